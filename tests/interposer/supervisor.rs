//! The conversation with the supervisor, and what happens without one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use migm_shared::report::{Event, Sample};

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

#[test]
fn without_a_supervisor_the_program_runs_as_it_would() {
    let printed = Program::linked("steps", &["3", "1000"]).run();
    assert_eq!(printed, "");
}

#[test]
fn a_failed_connection_leaves_errno_as_it_was() {
    Program::linked("refusals", &["free"]).run();
}

#[test]
fn a_jobs_process_asks_for_the_page_and_says_who_it_is() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("steps", &["1", "100000"]).under(&peer).run();
    let hello = peer.hellos().remove(0);
    assert_eq!(hello.program, "steps");
    assert_eq!(hello.attempt.as_deref(), Some("7.1.0000000000000001"));
    assert!(!hello.has_page);
    let occupant = peer.page.occupants()[0];
    assert_eq!((occupant.pid, occupant.attempt), (hello.pid, 1));
    assert_ne!(occupant.start, 0);
    eventually("the connection ends", || peer.ended() == 1);
    let attached = Event::Attached {
        slot: u32::try_from(occupant.slot).unwrap(),
        devices: vec![(0, [0xa0; 16])],
    };
    assert_eq!(peer.events()[0], attached);
}

#[test]
fn a_watched_process_brings_its_own_page() {
    let peer = Peer::new(Manner::KeepsNone);
    let socket = peer.path().to_str().unwrap();
    Program::linked("steps", &["2", "100"])
        .env("MIGM_SOCKET", socket)
        .run();
    eventually("hello", || !peer.hellos().is_empty());
    let hello = peer.hellos().remove(0);
    assert_eq!((hello.attempt, hello.has_page), (None, true));
    let page = peer.received_page().expect("sent along");
    assert_eq!(page.read()[0].reserved, 2000);
    assert_eq!(page.read()[0].reserved_peak, 52_000);
}

#[test]
fn each_iteration_becomes_a_sample_with_its_peak() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("steps", &["8", "60000"]).under(&peer).run();
    eventually("the connection ends", || peer.ended() == 1);
    let samples = peer.samples();
    for n in 2..=7_u64 {
        let is_state = |sample: &Sample| {
            let counts = (sample.allocations, sample.frees, sample.requested);
            sample.iteration == n && sample.reserved == n * 1000 && counts == (2 * n, n, n * 51_000)
        };
        assert!(
            samples.iter().any(is_state),
            "no sample of iteration {n}: {samples:?}"
        );
    }
    assert!(samples.iter().all(|sample| sample.allocated.is_none()));
    let peaks = samples
        .iter()
        .filter(|sample| sample.peak == sample.reserved + 50_000)
        .count();
    assert!(peaks >= 5, "{samples:?}");
    assert!(samples.is_sorted_by_key(|sample| sample.time_ns));
}

#[test]
fn what_is_allocated_right_after_a_mark_is_told_too() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("steps", &["3", "0", "and more"])
        .under(&peer)
        .run();
    eventually("the connection ends", || peer.ended() == 1);
    let last = *peer.samples().last().unwrap();
    assert_eq!((last.iteration, last.reserved, last.allocations), (3, 3007, 7));
}

#[test]
fn an_idle_process_sends_nothing() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("steps", &["1", "700000"]).under(&peer).run();
    eventually("the connection ends", || peer.ended() == 1);
    assert!(peer.samples().len() <= 2, "{:?}", peer.samples());
}

#[test]
fn a_supervisor_that_never_answers_costs_a_second_once() {
    let peer = Peer::new(Manner::Silent);
    let time = |program: Program| {
        let start = Instant::now();
        program.run();
        start.elapsed()
    };
    let without = time(Program::linked("steps", &["20", "100"]));
    let with = time(Program::linked("steps", &["20", "100"]).under(&peer));
    assert!(with >= Duration::from_millis(950), "it does wait: {with:?}");
    assert!(
        with < without + Duration::from_secs(4),
        "{with:?}, without {without:?}"
    );
}

#[test]
fn a_page_that_is_none_is_not_used() {
    let peer = Peer::new(Manner::GivesRubbish);
    Program::linked("steps", &["3", "200000"]).under(&peer).run();
    assert!(peer.page.read().is_empty());
    // It counts in its own page, and offers that.
    assert!(peer.hellos().iter().any(|hello| hello.has_page));
    assert!(
        peer.received_page()
            .is_some_and(|page| page.read()[0].allocations >= 2)
    );
}

#[test]
fn a_full_socket_loses_samples_but_no_bytes() {
    let peer = Peer::new(Manner::StopsReading);
    let start = Instant::now();
    Program::linked("steps", &["3000", "300"]).under(&peer).run();
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.reserved, reading.allocations, reading.frees),
        (3_000_000, 6000, 3000)
    );
}

#[test]
fn a_supervisor_that_comes_back_is_told_again_and_gets_the_page() {
    let page = {
        let first = Peer::new(Manner::GivesPage);
        let path = first.path().to_owned();
        let page = Arc::clone(&first.page);
        let mut child = Program::linked("steps", &["40", "50000"]).under(&first).spawn();
        eventually("the first hello", || first.hellos().len() == 1);
        first.stop();
        let second = Peer::at(path, Arc::clone(&page), Manner::GivesPage);
        eventually("the second hello", || second.hellos().len() == 1);
        assert!(second.hellos()[0].has_page);
        let again = second.received_page().expect("the job's page comes back");
        assert!(child.wait().unwrap().success());
        assert_eq!(again.read(), page.read());
        eventually("the connection ends", || second.ended() == 1);
        let attached = |event: &Event| matches!(event, Event::Attached { .. });
        assert!(second.events().first().is_some_and(attached));
        assert!(second.samples().iter().any(|sample| sample.iteration > 20));
        page
    };
    assert_eq!(page.read()[0].reserved, 40_000);
}

#[test]
fn a_supervisor_that_comes_late_is_told_of_the_page() {
    let path = crate::programs::folder().join("late");
    let child = Program::linked("steps", &["40", "50000"])
        .env("MIGM_SOCKET", path.to_str().unwrap())
        .env("MIGM_ATTEMPT", "7.1.0000000000000001")
        .spawn();
    std::thread::sleep(Duration::from_millis(300));
    let peer = Peer::at(path, Arc::new(crate::peer::Page::new()), Manner::GivesPage);
    eventually("hello", || peer.hellos().len() == 1);
    let page = peer.received_page().expect("its own page");
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(page.read()[0].reserved, 40_000);
    assert!(peer.page.read().is_empty());
}
