//! What the counter page adds up, of threads, processes and jobs, living and dead.

use super::*;

const UUID: [u8; 16] = *b"0123456789abcdef";

/// A page of the test's own, in static memory: it is too large for a test's stack.
macro_rules! page {
    () => {{
        static PAGE: CounterPage = CounterPage::new();
        PAGE.format();
        &PAGE
    }};
}

#[test]
fn the_layout_is_pinned() {
    assert_eq!(size_of::<Header>(), 64);
    assert_eq!(size_of::<DeviceTotals>(), 128);
    assert_eq!(size_of::<ProcessSlot>(), 64);
    assert_eq!(size_of::<LaneDevice>(), 128);
    assert_eq!(
        size_of::<CounterPage>(),
        64 + 64 + 16 * 128 + 512 * (64 + 16 * 16 * 128)
    );
}

#[test]
fn live_and_peak_over_two_processes() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
    assert_eq!(page.add(one, device, Class::Device, 100), 100);
    assert_eq!(page.add(two, device, Class::Vmm, 50), 150);
    page.remove(one, device, Class::Device, 100);
    page.add(two, device, Class::Host, 1000);
    page.add(two, device, Class::Managed, 500);
    let reading = page.read()[0];
    assert_eq!((reading.reserved, reading.reserved_peak), (50, 150));
    assert_eq!((reading.allocations, reading.frees), (2, 1));
    assert_eq!(reading.live[Class::Host as usize], 1000);
    assert_eq!(reading.live[Class::Managed as usize], 500);
    assert_eq!(reading.uuid, UUID);
}

#[test]
fn a_process_is_the_sum_of_its_lanes_also_when_it_is_dead() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let slot = page.join(10, 1, 1).unwrap();
    let [one, two] = [1, 2].map(|lane| page.tally(slot, lane, device).unwrap());
    assert_eq!(one.add(Class::Device, 100), 100);
    assert_eq!(two.add(Class::Device, 30), 130);
    two.remove(Class::Device, 100);
    two.remove(Class::Device, 30);
    one.add(Class::Pool, 7);
    two.restore(Class::Device, 30);
    let reading = page.read()[0];
    assert_eq!(
        (reading.reserved, reading.reserved_peak, reading.live[0]),
        (37, 130, 30)
    );
    assert_eq!(page.process_counts(slot, device), (3, 1, 137));
    assert!(page.tally(slot, LANES, device).is_none());
    page.leave(page.occupants()[0]);
    assert_eq!(page.read()[0].reserved, 0);
}

#[test]
fn a_device_keeps_its_index() {
    let page = page!();
    let other = [7; 16];
    assert_eq!(page.device_index(UUID), Some(0));
    assert_eq!(page.device_index(other), Some(1));
    assert_eq!(page.device_index(UUID), Some(0));
    for n in 2..16_u8 {
        assert_eq!(page.device_index([n + 100; 16]), Some(n.into()));
    }
    assert_eq!(page.device_index([1; 16]), None);
}

#[test]
fn the_bytes_of_a_killed_process_leave_the_total_once() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let slot = page.join(10, 1, 1).unwrap();
    page.add(slot, device, Class::Device, 100);
    page.report_allocated(slot, device, 80);
    let dead = page.occupants()[0];
    page.leave(dead);
    page.leave(dead);
    let reading = page.read()[0];
    assert_eq!((reading.reserved, reading.reserved_peak), (0, 100));
    assert_eq!((reading.allocated, reading.allocated_peak), (Some(0), Some(80)));
    assert_eq!(reading.allocations, 1);
    assert!(page.occupants().is_empty());
}

#[test]
fn a_request_met_later_is_no_oom() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let slot = page.join(10, 1, 3).unwrap();
    page.add(slot, device, Class::Device, 40);
    assert_eq!(page.refuse(slot, device, 100), 40);
    assert_eq!(
        page.unmet(3),
        Some(UnmetRequest {
            device: 0,
            asked: 100,
            in_use: 40
        })
    );
    assert_eq!(page.unmet(2), None);
    page.add(slot, device, Class::Device, 99);
    assert!(page.unmet(3).is_some());
    page.add(slot, device, Class::Device, 100);
    assert_eq!(page.unmet(3), None);
}

#[test]
fn a_request_met_from_memory_that_was_kept_is_no_oom() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let slot = page.join(10, 1, 3).unwrap();
    page.refuse(slot, device, 100);
    page.meet(slot, 99);
    assert!(page.is_unmet(slot));
    page.meet(slot, 100);
    assert!(!page.is_unmet(slot));
}

#[test]
fn the_kind_that_most_bytes_are_of_is_a_reserved_one() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
    assert_eq!(page.largest(device), None);
    page.add(one, device, Class::Host, 1000);
    page.add(one, device, Class::Device, 60);
    page.add(one, device, Class::Vmm, 50);
    page.add(two, device, Class::Vmm, 50);
    assert_eq!(page.largest(device), Some((Class::Vmm, 100)));
    assert_eq!(page.largest(DEVICES), None);
}

#[test]
fn what_a_framework_holds_is_summed_over_living_processes() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
    assert_eq!(page.read()[0].framework_reserved, None);
    for (slot, allocated) in [(one, 5), (two, 7), (one, 3)] {
        page.report_allocated(slot, device, allocated);
        page.report_reserved(slot, device, 10 * allocated);
    }
    let reading = page.read()[0];
    assert_eq!(
        (reading.allocated, reading.framework_reserved),
        (Some(10), Some(100))
    );
    assert_eq!(page.process_allocated(one, device), 3);
    page.leave(page.occupants()[0]);
    assert_eq!(page.read()[0].framework_reserved, Some(70));
}

#[test]
fn a_refused_free_is_undone() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    let slot = page.join(10, 1, 1).unwrap();
    page.add(slot, device, Class::Device, 40);
    page.remove(slot, device, Class::Device, 40);
    page.restore(slot, device, Class::Device, 40);
    let reading = page.read()[0];
    assert_eq!((reading.reserved, reading.frees, reading.live[0]), (40, 0, 40));
}

#[test]
fn totals_from_many_threads_are_exact() {
    let page = page!();
    let device = page.device_index(UUID).unwrap();
    std::thread::scope(|scope| {
        for pid in 1..=8 {
            scope.spawn(move || {
                let slot = page.join(pid, 1, 1).unwrap();
                for _ in 0..10_000 {
                    page.add(slot, device, Class::Device, 3);
                    page.remove(slot, device, Class::Device, 3);
                    page.add(slot, device, Class::Pool, 1);
                }
            });
        }
    });
    let reading = page.read()[0];
    assert_eq!(reading.reserved, 80_000);
    assert_eq!((reading.allocations, reading.frees), (160_000, 80_000));
    assert!(
        (80_000..=80_024).contains(&reading.reserved_peak),
        "{}",
        reading.reserved_peak
    );
}
