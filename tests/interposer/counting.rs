//! Counts and bytes are exact.

use migm_shared::page::Class;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;
use migm_shared::report::Event;

fn run(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> (Peer, String) {
    let peer = Peer::new(Manner::GivesPage);
    let mut program = Program::linked(name, arguments).under(&peer);
    for (name, value) in environment {
        program = program.env(name, value);
    }
    let printed = program.run();
    (peer, printed)
}

#[test]
fn each_path_goes_to_its_class_with_its_real_size() {
    let (peer, _) = run("every_path", &[], &[]);
    let reading = peer.page.read()[0];
    let live = |class: Class| reading.live[class as usize];
    assert_eq!(
        live(Class::Device),
        1000 + 3000 + 10 * 1024,
        "the pitch is the driver's"
    );
    assert_eq!(live(Class::Managed), 5000);
    assert_eq!(live(Class::Pool), 7000 + 7000 + 6000);
    assert_eq!(
        live(Class::Array),
        16 * 8 * 16 + 400 + 128 + 10 + (128 + 32 + 8),
        "bytes, not bits; no height and no depth count as one; all levels"
    );
    assert_eq!(live(Class::Vmm), 1 << 21);
    assert_eq!(
        live(Class::Host),
        11000 + 2000 + (1 << 21) + 8 + 16,
        "host memory is no device memory"
    );
    let device: u64 = Class::ALL
        .into_iter()
        .filter(|class| class.is_reserved())
        .map(live)
        .sum();
    assert_eq!((reading.reserved, reading.reserved_peak), (device, device));
    assert_eq!(reading.allocations, 12, "device allocations only");
}

#[test]
fn sixty_four_threads_lose_nothing() {
    let (peer, printed) = run("threads", &[], &[]);
    let numbers: Vec<u64> = printed
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let reading = peer.page.read()[0];
    assert_eq!(
        [reading.reserved, reading.allocations, reading.frees],
        numbers[..]
    );
    assert_eq!(reading.live[Class::Device as usize], numbers[0]);
    assert!(reading.reserved_peak >= reading.reserved);
    assert_eq!(numbers[1], 64 * 4000 + 200 * 4 * 20);
}

#[test]
fn a_thread_cancelled_inside_a_hook_leaves_the_gate_open() {
    // The unwinder is not loaded with us: it is found when the thread unwinds.
    let (peer, _) = run("cancelled", &[], &[]);
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.reserved, reading.allocations, reading.frees),
        (500, 2, 1),
        "the free of the clean-up counts"
    );
}

#[test]
fn a_refused_free_is_put_back_and_an_unknown_one_reaches_the_driver() {
    let (peer, _) = run("refusals", &["free"], &[]);
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.reserved, reading.allocations, reading.frees),
        (1000, 1, 0)
    );
}

#[test]
fn a_failed_allocation_is_not_counted_and_attaches_nothing() {
    let (peer, _) = run("refusals", &["alloc"], &[]);
    assert!(peer.page.read().is_empty());
    assert!(peer.hellos().is_empty());
}

#[test]
fn out_of_memory_is_noted_with_what_was_in_use() {
    let (peer, _) = run("refusals", &["oom"], &[("FAKE_MEMORY", "10000")]);
    let unmet = peer.page.unmet(1).expect("the request was not met");
    assert_eq!((unmet.asked, unmet.in_use), (8000, 4000));
    let reading = peer.page.read()[0];
    assert_eq!((reading.reserved, reading.allocations), (4000, 1));
}

#[test]
fn a_request_met_after_a_free_is_no_out_of_memory() {
    let (peer, _) = run("refusals", &["oom_met"], &[("FAKE_MEMORY", "10000")]);
    assert_eq!(peer.page.unmet(1), None);
    assert_eq!(peer.page.read()[0].reserved, 8000);
}

#[test]
fn out_of_memory_is_told_while_the_process_goes_on() {
    let peer = Peer::new(Manner::GivesPage);
    let mut child = Program::linked("refusals", &["oom_goes_on"])
        .env("FAKE_MEMORY", "10000")
        .under(&peer)
        .spawn();
    let told = |event: &Event| matches!(event, Event::OutOfMemory { device: 0, asked: 8000, in_use: 4000, time_ns, largest: Some((Class::Device, 4000)) } if *time_ns > 0);
    eventually("the event", || peer.events().iter().any(told));
    assert_eq!(peer.ended(), 0, "the process is still there");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_free_is_charged_to_the_device_of_its_allocation() {
    let (peer, _) = run("devices", &[], &[("FAKE_DEVICES", "2")]);
    let reading = peer.page.read();
    let on = |uuid: u8| reading.iter().find(|device| device.uuid == [uuid; 16]).unwrap();
    assert_eq!((on(0xa0).reserved, on(0xa0).frees), (30, 0));
    assert_eq!(
        (on(0xa1).reserved, on(0xa1).reserved_peak, on(0xa1).frees),
        (200, 1200, 1)
    );
    let attached = |event: &Event| matches!(event, Event::Attached { devices, .. } if devices.len() == 2);
    let events = peer.events();
    assert!(events.is_empty() || events.iter().any(attached), "{events:?}");
}

#[test]
fn physical_memory_lives_by_reference() {
    const SIZE: u64 = 1 << 21;
    for (stop, live, frees) in [
        ("released", SIZE, 0),
        ("one_mapping_left", SIZE, 0),
        ("retained", SIZE, 0),
        ("refused", SIZE, 0),
        ("gone", 0, 1),
        ("range_refused", 40 * SIZE, 1),
        ("end", 0, 41),
    ] {
        let (peer, _) = run("vmm", &[stop], &[]);
        let reading = peer.page.read()[0];
        assert_eq!((reading.reserved, reading.frees), (live, frees), "{stop}");
        assert_eq!(reading.live[Class::Vmm as usize], live, "{stop}");
    }
}
