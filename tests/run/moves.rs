//! Attempts that are stopped, and those that follow.

use std::fs;
use std::time::{Duration, Instant};

use migm_shared::page::Class;
use migm_supervisor::control::{Figures, Outcome, Reply, Request, Unmet};
use nix::sys::signal::{Signal, kill};

use crate::scripted::{Ended, Scripted, grant, is_alive, map, pid_of, wait_for_file};

#[test]
fn a_move_stops_the_attempt_and_starts_the_next() {
    let scripted = Scripted::new();
    let script = "echo $MIGM_ATTEMPT $CUDA_VISIBLE_DEVICES >> seen; \
                  case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac; exit 5";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let first = grant(&submission, 1);
    let leader = peer.start(&first);
    wait_for_file(&scripted.folder().join("ready"));
    // Words about another attempt mean nothing.
    let reason = "9 GiB forecast".to_owned();
    peer.say(&Reply::Move {
        attempt: grant(&submission, 2).attempt,
        reason: reason.clone(),
    });
    peer.expect_silence(Duration::from_millis(100));
    assert!(is_alive(leader));
    peer.say(&Reply::Move {
        attempt: first.attempt,
        reason,
    });
    let ended = peer.expect_ended(first.attempt);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Moved));
    let second = grant(&submission, 2);
    let ended = peer.serve_one(&second);
    assert_eq!((ended.status, ended.outcome), (5, Outcome::Failed));
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let seen = fs::read_to_string(scripted.folder().join("seen")).unwrap();
    assert_eq!(
        seen,
        format!("{} MIG-1\n{} MIG-2\n", first.attempt, second.attempt)
    );
}

#[test]
fn a_signal_between_two_attempts_ends_the_job_with_its_status() {
    let scripted = Scripted::new();
    let mut child = scripted.run(&[], "echo > ready; sleep 100").spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    wait_for_file(&scripted.folder().join("ready"));
    peer.ask_to_move(&grant);
    assert_eq!(peer.expect_ended(grant.attempt).outcome, Outcome::Moved);
    peer.expect_silence(Duration::from_millis(100));
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert!(matches!(peer.expect(), Request::Cancel { .. }));
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Starts a program, waits for its file `ready`, moves it, and says how that ended.
fn moved(args: &[&str], script: &str) -> (Scripted, Ended, Duration) {
    let scripted = Scripted::new();
    let mut child = scripted.run(args, script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    wait_for_file(&scripted.folder().join("ready"));
    let began = Instant::now();
    peer.ask_to_move(&grant);
    let ended = peer.expect_ended(grant.attempt);
    let took = began.elapsed();
    peer.finish(ended.figures);
    child.wait().unwrap();
    (scripted, ended, took)
}

#[test]
fn exit_status_0_after_our_signal_is_a_move_unless_told_otherwise() {
    let script = "trap 'exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let (_, ended, _) = moved(&[], script);
    assert_eq!((ended.status, ended.outcome), (0, Outcome::Moved));
    let (_, ended, _) = moved(&["--done-on-zero"], script);
    assert_eq!((ended.status, ended.outcome), (0, Outcome::Done));
}

#[test]
fn the_signal_of_a_move_can_be_chosen() {
    let script = "trap 'exit 9' USR2; trap '' TERM; echo > ready; while :; do sleep 0.01; done";
    let (_, ended, _) = moved(&["--signal", "usr2"], script);
    assert_eq!((ended.status, ended.outcome), (9, Outcome::Moved));
}

#[test]
fn after_the_grace_time_nothing_of_the_attempt_lives() {
    // Neither the program nor its daemon ends when asked.
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.01; done' &); \
                  while [ ! -s daemon ]; do sleep 0.01; done; echo > ready; while :; do sleep 0.01; done";
    let (scripted, ended, took) = moved(&["--grace", "300ms"], script);
    assert_eq!((ended.status, ended.outcome), (137, Outcome::Moved));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    let daemon = fs::read_to_string(scripted.folder().join("daemon")).unwrap();
    assert!(!is_alive(daemon.trim().parse().unwrap()));
}

#[test]
fn a_stopped_attempt_can_be_moved() {
    let script = "echo > ready; kill -STOP $$; exit 1";
    let (_, ended, took) = moved(&[], script);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Moved));
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_cancelled_job_ends_with_the_programs_status() {
    let scripted = Scripted::new();
    let mut child = scripted.run(&[], "sleep 100").spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    peer.say(&Reply::Cancel {
        attempt: Some(grant.attempt),
    });
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Cancelled));
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn out_of_memory_is_told_from_failure_and_carries_what_was_asked() {
    let scripted = Scripted::new();
    let script = "while [ ! -e go-$CUDA_VISIBLE_DEVICES ]; do sleep 0.01; done; exit 1";
    let mut child = scripted.run(&["--report", "r.json"], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let page = map(peer.page());
    assert!(page.is_formatted());
    assert!(matches!(peer.expect(), Request::Status));
    let first = grant(&submission, 1);
    let pid = peer.start(&first);
    let device = page.device_index([1; 16]).unwrap();
    let slot = page.join(pid.unsigned_abs(), 1, 1).unwrap();
    page.add(slot, device, Class::Device, 4_000);
    page.remove(slot, device, Class::Device, 1_000);
    page.add(slot, device, Class::Device, 500);
    page.refuse(slot, device, 5_000);
    fs::write(scripted.folder().join("go-MIG-1"), "").unwrap();
    let ended = peer.expect_ended(first.attempt);
    assert_eq!((ended.status, ended.outcome), (1, Outcome::Oom));
    let unmet = Unmet {
        asked: 5_000,
        in_use: 3_500,
    };
    assert_eq!(ended.unmet, Some(unmet));
    assert_eq!(
        (
            ended.figures.reserved,
            ended.figures.allocations,
            ended.figures.frees
        ),
        (4_000, 2, 1)
    );
    // What the dead held is out of the totals, and the second attempt's failure is its own.
    assert_eq!(page.read()[0].reserved, 0);
    assert!(page.occupants().is_empty());
    let second = grant(&submission, 2);
    peer.start(&second);
    fs::write(scripted.folder().join("go-MIG-2"), "").unwrap();
    let ended = peer.expect_ended(second.attempt);
    assert_eq!((ended.outcome, ended.unmet), (Outcome::Failed, None));
    peer.finish(Figures {
        device: Some(9_999),
        ..ended.figures
    });
    assert_eq!(child.wait().unwrap().code(), Some(1));

    let report = fs::read_to_string(scripted.folder().join("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["name"], "sh");
    assert_eq!(
        (&report["peak_bytes"], &report["peak"]["reserved"]),
        (&4_000.into(), &4_000.into())
    );
    assert_eq!(
        (&report["peak"]["device"], &report["peak"]["allocated"]),
        (&9_999.into(), &().into())
    );
    assert_eq!((&report["allocations"], &report["frees"]), (&2.into(), &1.into()));
    assert_eq!(report["predicted_peak_bytes"], 12_345);
    let attempts = report["attempts"].as_array().unwrap();
    let shown: Vec<_> = attempts
        .iter()
        .map(|one| (&one["profile"], &one["outcome"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&"1g.5gb".into(), &"oom".into()),
            (&"2g.5gb".into(), &"failed".into())
        ]
    );
    assert!(attempts[0]["end"].as_f64().unwrap() <= attempts[1]["start"].as_f64().unwrap());
}
