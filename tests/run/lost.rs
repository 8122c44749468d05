//! Supervisors that die while a job runs.

use std::fs;
use std::time::{Duration, Instant};

use migm_supervisor::control::{Outcome, Reply, Request};

use crate::scripted::{LIMIT, Scripted, grant, is_alive, map, outcomes, text, until, wait_for_file};

#[test]
fn the_job_goes_on_when_the_supervisor_dies_and_is_told_to_the_next() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    let leader = peer.start(&grant);
    drop(peer);
    scripted.die();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(leader));
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        submission: again,
        job,
        grant: held,
        attempts,
        pid,
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((again, job.0), (submission, 1));
    assert_eq!(held.as_ref(), Some(&grant));
    assert_eq!(pid, Some(leader.unsigned_abs()));
    assert_eq!(outcomes(&attempts), [None]);
    assert!(map(peer.page()).is_formatted());
    fs::write(scripted.folder().join("go"), "").unwrap();
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!(ended.status, 6);
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn an_end_while_no_supervisor_was_there_is_told_to_the_next() {
    let mut scripted = Scripted::new();
    let script = "case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac; exit 0";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let first = grant(&submission, 1);
    let leader = peer.start(&first);
    wait_for_file(&scripted.folder().join("ready"));
    // It dies right after it has asked for a move.
    peer.ask_to_move(&first);
    until("the attempt ends", || !is_alive(leader));
    drop(peer);
    scripted.die();
    std::thread::sleep(Duration::from_millis(200));
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        grant: held,
        attempts,
        pid,
        ..
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((held.as_ref(), pid), (Some(&first), None));
    assert_eq!(outcomes(&attempts), [None]);
    assert_eq!(peer.expect_ended(first.attempt).outcome, Outcome::Moved);
    let ended = peer.serve_one(&grant(&submission, 2));
    assert_eq!(ended.outcome, Outcome::Done);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_waiting_job_waits_on_with_the_next_supervisor() {
    let mut scripted = Scripted::new();
    let mut child = scripted.run(&[], "exit 0").spawn().unwrap();
    let (peer, submission) = scripted.accept_job();
    drop(peer);
    scripted.die();
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        grant: held,
        attempts,
        pid,
        ..
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((held, attempts, pid), (None, Vec::new(), None));
    peer.serve_one(&grant(&submission, 1));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn without_any_supervisor_the_job_ends_with_its_own_status() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    drop(peer);
    scripted.die();
    fs::write(scripted.folder().join("go"), "").unwrap();
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert!(began.elapsed() < LIMIT);
}

#[test]
fn a_job_that_the_next_supervisor_refuses_goes_on_without_one() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    drop(peer);
    scripted.die();
    scripted.come_back();
    let mut peer = scripted.accept();
    assert!(matches!(peer.expect(), Request::Resume { .. }));
    peer.say(&Reply::Refused {
        reason: "slice 7 has gone".into(),
    });
    peer.expect_end();
    fs::write(scripted.folder().join("go"), "").unwrap();
    let began = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let said = text(&output.stderr);
    assert_eq!(
        said,
        "migm: slice 7 has gone; the job goes on without a supervisor\n"
    );
}
