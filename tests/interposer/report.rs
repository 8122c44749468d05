//! `migm_report`: what a program says of its own pool.

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

#[test]
fn what_a_program_reports_is_its_allocated_figure() {
    let peer = Peer::new(Manner::GivesPage);
    // Four threads that report 3000 to 3006 at once: a peak may be off by the steps that are under way.
    for (threads, peaks) in [("0", 2500..=2500), ("4", 3006..=3006 + 4 * 6)] {
        assert_eq!(
            Program::linked("report", &[threads]).under(&peer).run(),
            "reported\n"
        );
        for occupant in peer.page.occupants() {
            peer.page.leave(occupant);
        }
        let reading = peer.page.read()[0];
        assert!(
            reading.allocated_peak.is_some_and(|peak| peaks.contains(&peak)),
            "{reading:?}"
        );
        assert_eq!(reading.allocated, Some(0));
    }
    eventually("the connections end", || peer.ended() == 2);
}

#[test]
fn of_several_processes_the_sums_are_kept() {
    let peer = Peer::new(Manner::GivesPage);
    for _ in 0..2 {
        Program::linked("report", &["1"]).under(&peer).run();
    }
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.allocated, reading.framework_reserved),
        (Some(5000), Some(16_000))
    );
}

#[test]
fn without_the_interposer_there_is_nobody_to_report_to() {
    assert_eq!(Program::linked("report", &["0"]).bare().run(), "nobody\n");
}

#[test]
fn turned_off_it_does_nothing() {
    let peer = Peer::new(Manner::GivesPage);
    let said = Program::linked("report", &["0"])
        .under(&peer)
        .env("MIGM_DISABLE", "1")
        .run();
    assert_eq!(said, "reported\n");
    assert!(peer.hellos().is_empty() && peer.page.read().is_empty());
}
