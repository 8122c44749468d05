//! Standard input of a job that may run more than once.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use migm_supervisor::control::Outcome;

use crate::scripted::{Scripted, grant, text, wait_for_file};

#[test]
fn a_job_that_reads_a_pipe_is_not_movable_and_says_so_once() {
    let scripted = Scripted::new();
    let mut command = scripted.run(&[], "cat > got; echo > ready; sleep 0.3");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one two").unwrap();
    let (mut peer, submission) = scripted.accept_job();
    assert!(!submission.movable);
    let grant = grant(&submission, 1);
    peer.start(&grant);
    wait_for_file(&scripted.folder().join("ready"));
    // A supervisor that asks all the same must not cost the user the input.
    peer.ask_to_move(&grant);
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!(ended.outcome, Outcome::Done);
    peer.finish(ended.figures);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        fs::read_to_string(scripted.folder().join("got")).unwrap(),
        "one two"
    );
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("pipe") && said.contains("not relaunched") && said.contains("--stdin-spool"),
        "{said}"
    );
}

/// Runs two attempts that each copy their input, and gives back what both have read.
fn read_twice(args: &[&str], stdin: impl Into<Stdio>, input: Option<&[u8]>) -> String {
    let scripted = Scripted::new();
    let script = "cat >> got; case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac";
    let mut child = scripted.run(args, script).stdin(stdin).spawn().unwrap();
    if let Some(input) = input {
        child.stdin.take().unwrap().write_all(input).unwrap();
    }
    let (mut peer, submission) = scripted.accept_job();
    assert!(submission.movable);
    let first = grant(&submission, 1);
    peer.start(&first);
    wait_for_file(&scripted.folder().join("ready"));
    peer.ask_to_move(&first);
    assert_eq!(peer.expect_ended(first.attempt).outcome, Outcome::Moved);
    assert_eq!(peer.serve_one(&grant(&submission, 2)).outcome, Outcome::Done);
    child.wait().unwrap();
    fs::read_to_string(scripted.folder().join("got")).unwrap()
}

#[test]
fn each_attempt_reads_a_spooled_pipe_from_the_start() {
    assert_eq!(
        read_twice(&["--stdin-spool"], Stdio::piped(), Some(b"a b\n")),
        "a b\na b\n"
    );
}

#[test]
fn each_attempt_reads_a_file_from_where_the_job_began() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"skipped\nread\n").unwrap();
    nix::unistd::lseek(&file, 8, nix::unistd::Whence::SeekSet).unwrap();
    assert_eq!(read_twice(&[], file, None), "read\nread\n");
}
