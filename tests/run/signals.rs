//! Signals, and the processes that they reach.

use std::fs;
use std::time::Duration;

use migm_supervisor::control::{Figures, Outcome, Request};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scripted::{Scripted, grant, is_alive, pid_of, until, wait_for_file};

#[test]
fn signals_go_to_the_whole_group() {
    // Not SIGINT and SIGQUIT: by POSIX a shell's child in the background ignores both.
    for (signal, name, status) in [
        (Signal::SIGTERM, "TERM", 143),
        (Signal::SIGUSR2, "USR2", 140),
        (Signal::SIGHUP, "HUP", 129),
        (Signal::SIGUSR1, "USR1", 138),
    ] {
        let scripted = Scripted::new();
        // The child in the group notes the signal; the leader dies of it.
        let script = format!(
            "sh -c 'trap \"echo got > child; exit\" {name}; echo > ready; while :; do sleep 0.01; done' & wait"
        );
        let mut child = scripted.run(&[], &script).spawn().unwrap();
        let (mut peer, submission) = scripted.accept_job();
        let grant = grant(&submission, 1);
        let leader = peer.start(&grant);
        assert_eq!(
            nix::unistd::getpgid(Some(Pid::from_raw(leader))),
            Ok(Pid::from_raw(leader))
        );
        wait_for_file(&scripted.folder().join("ready"));
        kill(pid_of(&child), signal).unwrap();
        let ended = peer.expect_ended(grant.attempt);
        assert_eq!(
            (ended.status, ended.outcome),
            (status, Outcome::Signalled),
            "{name}"
        );
        peer.finish(ended.figures);
        assert_eq!(child.wait().unwrap().code(), Some(status));
        assert_eq!(
            fs::read_to_string(scripted.folder().join("child")).unwrap(),
            "got\n"
        );
    }
}

#[test]
fn a_program_that_makes_a_good_end_of_a_signal_is_done() {
    let scripted = Scripted::new();
    let script = "trap 'exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
    wait_for_file(&scripted.folder().join("ready"));
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(peer.expect_ended(grant.attempt).outcome, Outcome::Done);
    peer.finish(Figures::default());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_ends_the_waiting_for_a_slice() {
    let scripted = Scripted::new();
    let mut child = scripted.run(&[], "touch ran").spawn().unwrap();
    let (mut peer, _) = scripted.accept_job();
    peer.expect_silence(Duration::from_millis(100));
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert!(matches!(peer.expect(), Request::Cancel { .. }));
    peer.expect_end();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn a_slice_is_kept_until_no_descendant_lives_wherever_it_is() {
    let scripted = Scripted::new();
    // A daemon in a session of its own, whose parent has gone before the program ends.
    let script = "(setsid sh -c 'echo $$ > daemon; while [ ! -e go ]; do sleep 0.01; done; echo > late' &) ; \
                  while [ ! -s daemon ]; do sleep 0.01; done; exit 4";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    let leader = peer.start(&grant);
    until("the program ends", || !is_alive(leader));
    peer.expect_silence(Duration::from_millis(200));
    fs::write(scripted.folder().join("go"), "").unwrap();
    let ended = peer.expect_ended(grant.attempt);
    assert!(scripted.folder().join("late").exists());
    assert_eq!((ended.status, ended.outcome), (4, Outcome::Failed));
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(4));
}
