//! The soft cap: kept over all processes of a job, raised by the supervisor, and not there unless it is set.

use std::time::Instant;

use migm_shared::page::Class;
use migm_shared::report::{Event, Report};

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

const ROOM: &str = "1000000";

fn program(peer: &Peer, arguments: &[&str]) -> Program {
    Program::linked("cap", arguments)
        .under(peer)
        .env("FAKE_MEMORY", ROOM)
}

/// What the job is charged once it is full.
fn asked_beyond(peer: &Peer) -> Option<u64> {
    eventually("the connection ends", || peer.ended() == 1);
    peer.reports().iter().find_map(|report| match report {
        Report::Raise { charged, .. } => Some(*charged),
        _ => None,
    })
}

#[test]
fn without_a_cap_the_answers_are_the_drivers() {
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["info"]).run();
    assert_eq!(said, "1000000 1000000 1000000\n999000 1000000 1000000\n");
    let said = program(&peer, &["fill", "300000"]).run();
    assert_eq!(said, "3 2\n", "the driver's own limit");
    assert!(
        !peer
            .reports()
            .iter()
            .any(|report| matches!(report, Report::Raise { .. }))
    );
}

#[test]
fn nonsense_is_no_cap() {
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["info"]).env("MIGM_CAP", "4G").run();
    assert_eq!(said, "1000000 1000000 1000000\n999000 1000000 1000000\n");
}

#[test]
fn the_cap_is_shown_and_never_more_than_there_is() {
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["info"]).env("MIGM_CAP", "5000").run();
    assert_eq!(said, "5000 5000 5000\n4000 5000 5000\n");
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["info"]).env("MIGM_CAP", "5000000").run();
    assert_eq!(said, "1000000 1000000 1000000\n999000 1000000 1000000\n");
}

#[test]
fn a_request_beyond_the_cap_is_refused_told_and_counted() {
    let peer = Peer::new(Manner::GivesPage);
    let start = Instant::now();
    // Three times 100 beside a context of 50; the peer refuses to raise.
    let said = program(&peer, &["fill", "100"]).env("MIGM_CAP", "380:50").run();
    assert_eq!(said, "3 2\n");
    assert!(start.elapsed().as_secs() < 15, "the peer answers at once");
    eventually("the connection ends", || peer.ended() == 1);
    let raise = Report::Raise {
        ticket: 1,
        device: 0,
        asked: 100,
        charged: 350,
    };
    assert!(peer.reports().contains(&raise), "{:?}", peer.reports());
    let told = |event: &Event| {
        let largest = Some((Class::Device, 300));
        matches!(event, Event::OutOfMemory { asked: 100, in_use: 300, largest: of, .. } if *of == largest)
    };
    assert!(peer.events().iter().any(told), "{:?}", peer.events());
    let reading = peer.page.read()[0];
    assert_eq!((reading.reserved, reading.reserved_peak), (300, 300));
}

#[test]
fn a_context_is_charged_what_the_driver_takes_for_it() {
    let filled = |cap: &str| {
        let peer = Peer::new(Manner::GivesPage);
        let fill = program(&peer, &["fill", "100"]).env("FAKE_CONTEXT", "90");
        let said = fill.env("MIGM_CAP", cap).run();
        (said, asked_beyond(&peer))
    };
    assert_eq!(
        filled("380:50"),
        ("2 2\n".into(), Some(290)),
        "not the runner's 50"
    );
    assert_eq!(filled("380"), ("2 2\n".into(), Some(290)));
}

#[test]
fn what_other_jobs_have_is_not_taken_for_a_context() {
    // Up to four times the runner's figure may be a context; more is somebody else's.
    for (others, charged) in [("150", 200 + 100), ("151", 50 + 300)] {
        let peer = Peer::new(Manner::GivesPage);
        program(&peer, &["fill", "100"])
            .env("FAKE_CONTEXT", "50")
            .env("FAKE_OTHERS", others)
            .env("MIGM_CAP", "390:50")
            .run();
        assert_eq!(asked_beyond(&peer), Some(charged), "{others}");
    }
}

/// What another job has, below four times the runner's figure, passes for a context of this job's.
#[test]
fn on_a_shared_device_a_context_is_charged_the_runners_figure() {
    let peer = Peer::new(Manner::GivesPage);
    program(&peer, &["fill", "100"])
        .env("FAKE_CONTEXT", "50")
        .env("FAKE_OTHERS", "100")
        .env("MIGM_CAP", "390:50:shared")
        .run();
    assert_eq!(asked_beyond(&peer), Some(50 + 300));
}

#[test]
fn a_context_that_cannot_be_measured_costs_what_the_runner_says() {
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["no-context", "100"])
        .env("FAKE_CONTEXT", "90")
        .env("MIGM_CAP", "380:50")
        .run();
    assert_eq!(said, "3 2\n");
    assert_eq!(asked_beyond(&peer), Some(350));
}

#[test]
fn the_context_is_shown_as_in_use_from_the_first_query() {
    let peer = Peer::new(Manner::GivesPage);
    let info = program(&peer, &["info"]).env("FAKE_CONTEXT", "700");
    let said = info.env("MIGM_CAP", "5000").run();
    assert_eq!(said, "4300 5000 5000\n3300 5000 5000\n");
}

#[test]
fn the_padding_of_rows_does_not_pass_the_cap() {
    let peer = Peer::new(Manner::GivesPage);
    // Two rows of 100 bytes take 1,024 at the driver's pitch; three times that would pass.
    let said = program(&peer, &["rows", "100", "2"])
        .env("MIGM_CAP", "2500")
        .run();
    assert_eq!(said, "2 2\n");
    assert_eq!(peer.page.read()[0].reserved_peak, 2048);
}

#[test]
fn a_raise_is_taken_up_at_once() {
    let peer = Peer::new(Manner::RaisesTo(555));
    let said = program(&peer, &["fill", "100"]).env("MIGM_CAP", "380:50").run();
    assert_eq!(said, "5 2\n", "two more than the first cap allows");
    assert_eq!(peer.page.cap(0), Some(555));
}

#[test]
fn a_supervisor_that_does_not_answer_is_waited_for_two_seconds() {
    let peer = Peer::new(Manner::StopsReading);
    let start = Instant::now();
    let said = program(&peer, &["fill", "100"]).env("MIGM_CAP", "380:50").run();
    assert_eq!(said, "3 2\n");
    let waited = start.elapsed().as_millis();
    assert!((1_900..15_000).contains(&waited), "{waited} ms");
    assert_eq!(
        peer.page.unmet(1),
        None,
        "what was refused was given after a free"
    );
}

#[test]
fn without_a_supervisor_the_cap_holds_and_nobody_is_waited_for() {
    let start = Instant::now();
    let said = Program::linked("cap", &["fill", "100"])
        .env("MIGM_CAP", "350")
        .run();
    assert_eq!(said, "3 2\n");
    assert!(start.elapsed().as_millis() < 1_900);
}

#[test]
fn physical_memory_is_capped_where_it_is_on_the_device() {
    let peer = Peer::new(Manner::GivesPage);
    let said = program(&peer, &["vmm", "100"]).env("MIGM_CAP", "350").run();
    assert_eq!(said, "3 2\n");
    assert_eq!(peer.page.charged(0), 300);
}

#[test]
fn managed_and_host_memory_is_not_capped() {
    let peer = Peer::new(Manner::GivesPage);
    program(&peer, &["managed"])
        .env("FAKE_MEMORY", "9000000")
        .env("MIGM_CAP", "350")
        .run();
}

#[test]
fn processes_of_a_job_do_not_pass_the_cap_together() {
    let peer = Peer::new(Manner::GivesPage);
    let children: Vec<_> = (0..4)
        .map(|_| {
            program(&peer, &["race", "400", "300"])
                .env("MIGM_CAP", "1000:10")
                .spawn()
        })
        .collect();
    let (mut granted, mut refused) = (0, 0);
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let counts: Vec<u32> = said
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        granted += counts[0];
        refused += counts[1];
    }
    let reading = peer.page.read()[0];
    // Four contexts and three times 300 fill it: a fourth must never have been in.
    assert!(reading.reserved_peak <= 900, "{reading:?}");
    assert_eq!(granted + refused, 1600);
    assert!(granted > 0 && refused > 0, "{granted} had it, {refused} did not");
    assert_eq!(u32::try_from(reading.allocations).unwrap(), granted);
}
