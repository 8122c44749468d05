//! Paths to memory beyond plain allocation: contexts that end, pools, graphs, and memory of others.

use migm_shared::page::{Class, DeviceReading};

use crate::peer::{Manner, Peer};
use crate::programs::Program;

const MIB: u64 = 1 << 20;

fn run(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<DeviceReading> {
    let peer = Peer::new(Manner::GivesPage);
    let mut program = Program::linked(name, arguments).under(&peer);
    for (name, value) in environment {
        program = program.env(name, value);
    }
    program.run();
    peer.page.read()
}

fn live(reading: &DeviceReading, class: Class) -> u64 {
    reading.live[class as usize]
}

/// Bytes of classes that end with a context: device, managed, arrays, host.
fn in_contexts(reading: &DeviceReading) -> [u64; 4] {
    [Class::Device, Class::Managed, Class::Array, Class::Host].map(|class| live(reading, class))
}

/// What belongs to the device itself stays in each case.
fn ends(arguments: &[&str], expected: [u64; 4]) {
    let reading = run("contexts", arguments, &[])[0];
    assert_eq!(in_contexts(&reading), expected, "{arguments:?}");
    assert_eq!(
        (live(&reading, Class::Pool), live(&reading, Class::Vmm)),
        (7000, 2 * MIB)
    );
    let reserved = expected[0] + expected[2] + 7000 + 2 * MIB;
    assert_eq!(reading.reserved, reserved, "{arguments:?}");
}

#[test]
fn a_destroyed_context_takes_its_memory_with_it_and_no_other() {
    ends(&["destroy"], [5, 0, 0, 0]);
}

#[test]
fn a_context_that_the_driver_does_not_destroy_keeps_its_memory() {
    ends(&["destroy", "refused"], [1005, 200, 100, 30]);
}

#[test]
fn a_reset_primary_context_takes_its_memory_with_it() {
    ends(&["reset"], [5, 0, 100, 0]);
}

#[test]
fn the_last_release_of_the_primary_context_ends_it() {
    ends(&["release", "one hold left"], [1005, 200, 200, 30]);
    ends(&["release"], [5, 0, 100, 0]);
}

#[test]
fn a_green_context_holds_the_primary_one() {
    ends(&["green", "held"], [1000, 200, 100, 30]);
    ends(&["green"], [0, 0, 0, 0]);
}

#[test]
fn addresses_of_an_ended_context_are_used_again() {
    let reading = run("contexts", &["again"], &[])[0];
    assert_eq!((reading.reserved, live(&reading, Class::Device)), (77, 77));
    assert_eq!(reading.reserved_peak, 300);
    assert_eq!(reading.allocations - reading.frees, 1);
}

#[test]
fn memory_of_others_is_reported_apart() {
    let open = run("imports", &["open"], &[])[0];
    // Both handles, the pool's pointer, the external memory, and what the mappings reach of the import.
    assert_eq!(live(&open, Class::Imported), 2000 + 500 + 60000 + 4 * MIB);
    assert_eq!((open.reserved, open.reserved_peak, open.allocations), (0, 0, 0));
    let closed = run("imports", &["closed"], &[])[0];
    assert_eq!(closed.live.iter().sum::<u64>(), 0);
    assert_eq!((closed.reserved, closed.frees), (0, 0));
}

#[test]
fn a_pool_says_where_its_memory_lies() {
    let reading = run("pools", &[], &[("FAKE_DEVICES", "2")]);
    let on = |uuid: u8| reading.iter().find(|device| device.uuid == [uuid; 16]).unwrap();
    assert_eq!((on(0xa1).reserved, live(on(0xa1), Class::Pool)), (200, 200));
    assert_eq!((on(0xa1).reserved_peak, on(0xa1).frees), (1200, 1));
    assert_eq!(live(on(0xa1), Class::Managed), 50);
    assert_eq!((on(0xa0).reserved, live(on(0xa0), Class::Pool)), (6, 6));
    assert_eq!(live(on(0xa0), Class::Host), 7000);
}

#[test]
fn an_allocation_in_a_capture_is_a_node_and_no_live_memory() {
    for (stop, graph) in [
        ("captured", 0),
        ("launched", 4000),
        ("again", 4000),
        ("trimmed", 0),
    ] {
        let reading = run("graphs", &[stop], &[])[0];
        assert_eq!(live(&reading, Class::Pool), 120, "{stop}");
        assert_eq!(live(&reading, Class::Graph), graph, "{stop}");
        assert_eq!(reading.reserved, 120 + graph, "{stop}");
    }
}

#[test]
fn memory_of_graphs_is_what_the_driver_has_reserved() {
    let reading = run("graphs", &["nodes"], &[])[0];
    assert_eq!(
        (
            live(&reading, Class::Graph),
            reading.reserved,
            reading.reserved_peak
        ),
        (9500, 9500, 9500)
    );
}

#[test]
fn a_free_is_by_address_whichever_call_the_memory_came_from() {
    let reading = run("frees", &[], &[])[0];
    assert_eq!(reading.live.iter().sum::<u64>(), 0);
    assert_eq!((reading.allocations, reading.frees), (3, 3));
    assert_eq!(reading.reserved_peak, 1000 + 200 + 4 * (32 + 8));
}
