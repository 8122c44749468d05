//! A refusal is with the supervisor before the program hears of it, whatever the program does then.

use migm_shared::page::Class;
use migm_shared::report::Event;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

fn refused(how: &str) -> Vec<Event> {
    let peer = Peer::new(Manner::GivesPage);
    let output = Program::linked("refused_and_gone", &[how])
        .under(&peer)
        .env("FAKE_MEMORY", "1000000")
        .output();
    assert_eq!(output.status.code(), None, "killed: {output:?}");
    eventually("the connection ends", || peer.ended() == 1);
    peer.events()
}

#[test]
fn a_program_killed_by_its_refusal_has_told_of_it() {
    // Ten times: a message that is only on its way would be lost in one of them.
    for _ in 0..10 {
        let events = refused("later");
        assert!(matches!(events[0], Event::Attached { .. }), "{events:?}");
        let largest = Some((Class::Device, 4000));
        let told = |event: &Event| matches!(event, Event::OutOfMemory { asked: 8_000_000, in_use: 4000, largest: of, .. } if *of == largest);
        assert!(events.iter().any(told), "{events:?}");
    }
}

#[test]
fn so_has_one_whose_first_request_it_was() {
    let events = refused("first");
    assert!(matches!(events[0], Event::Attached { .. }), "{events:?}");
    let told = |event: &Event| {
        matches!(
            event,
            Event::OutOfMemory {
                asked: 8_000_000,
                in_use: 0,
                largest: None,
                ..
            }
        )
    };
    assert!(events.iter().any(told), "{events:?}");
}

#[test]
fn a_supervisor_that_does_not_read_holds_no_refusal_up() {
    let peer = Peer::new(Manner::StopsReading);
    let start = std::time::Instant::now();
    Program::linked("refused_and_gone", &["later"])
        .under(&peer)
        .env("FAKE_MEMORY", "1000000")
        .output();
    assert!(start.elapsed().as_secs() < 10);
    assert_eq!(
        peer.page.unmet(1).map(|unmet| unmet.asked),
        Some(8_000_000),
        "the page has it"
    );
}
