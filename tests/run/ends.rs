//! How a job begins and ends: what the program finds, and what is passed on.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use migm_supervisor::control::{Outcome, Reply};

use crate::scripted::{Scripted, grant, text};
use crate::support::migm;

/// One attempt that ends by itself.
fn once(args: &[&str], script: &str) -> (Output, Outcome) {
    let scripted = Scripted::new();
    let child = scripted.run(args, script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let ended = peer.serve_one(&grant(&submission, 1));
    peer.expect_end();
    (child.wait_with_output().unwrap(), ended.outcome)
}

#[test]
fn the_programs_status_and_output_are_passed_on_and_nothing_is_added() {
    let (output, outcome) = once(&[], "echo out; echo err >&2; exit 3");
    assert_eq!((output.status.code(), outcome), (Some(3), Outcome::Failed));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out\n".into(), "err\n".into())
    );
    let (output, outcome) = once(&[], "exit 0");
    assert_eq!((output.status.code(), outcome), (Some(0), Outcome::Done));
}

#[test]
fn a_signal_that_nobody_here_sent_is_a_failure_with_the_shells_status() {
    let (output, outcome) = once(&[], "kill -KILL $$");
    assert_eq!((output.status.code(), outcome), (Some(137), Outcome::Failed));
    // A real-time signal has no name in many libraries.
    let (output, outcome) = once(&[], "kill -34 $$");
    assert_eq!((output.status.code(), outcome), (Some(162), Outcome::Failed));
}

#[test]
fn a_program_that_cannot_run_gives_126_or_127_and_the_slice_back() {
    let scripted = Scripted::new();
    let plain = scripted.folder().join("plain");
    fs::write(&plain, "no program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (program, status) in [
        ("/no/such/program", 127),
        ("no-such-program-in-path", 127),
        ("./plain", 126),
    ] {
        let mut command = Command::new(migm());
        command
            .args(["run", "--", program])
            .env("MIGM_HISTORY", "off")
            .env("MIGM_SOCKET", scripted.socket());
        command
            .current_dir(scripted.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let (mut peer, submission) = scripted.accept_job();
        let grant = grant(&submission, 1);
        peer.grant(&grant);
        let ended = peer.expect_ended(grant.attempt);
        assert_eq!(
            (ended.status, ended.outcome),
            (status, Outcome::Failed),
            "{program}"
        );
        peer.finish(ended.figures);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("migm: cannot run `{program}`: ")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn who_asked_for_words_is_told_of_the_waiting_and_the_slice() {
    let scripted = Scripted::new();
    let child = scripted
        .run(&["--verbose", "--name", "train"], "exit 0")
        .spawn()
        .unwrap();
    let (mut peer, submission) = scripted.accept_job();
    peer.expect_silence(Duration::from_millis(1_500));
    peer.serve_one(&grant(&submission, 1));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"");
    assert_eq!(
        text(&output.stderr),
        "migm: waiting for a slice for `train`\n\
         migm: attempt 1 on 1g.5gb at 0 of NVIDIA A100-SXM4-40GB: the smallest that is free\n"
    );
}

#[test]
fn a_refused_job_ends_with_125_and_the_reason() {
    let scripted = Scripted::new();
    let child = scripted.run(&[], "touch ran").spawn().unwrap();
    let mut peer = scripted.accept();
    peer.expect();
    peer.say(&Reply::Refused {
        reason: "no slice here holds 90 GiB".into(),
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stderr), "migm: no slice here holds 90 GiB\n");
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_the_program_runs() {
    let scripted = Scripted::new();
    let output = scripted
        .run(&["--report", "no/such/folder/r"], "touch ran")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).starts_with("migm: cannot write the report no/such/folder/r: "));
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn the_submission_says_what_the_user_said() {
    let scripted = Scripted::new();
    let args = [
        "--mem",
        "4.5G",
        "--iterations",
        "200",
        "--name",
        "train",
        "--use-existing",
        "--batch",
        "4",
    ];
    let mut command = scripted.run(&args, "exit 0");
    command.env("CUDA_VISIBLE_DEVICES", "1");
    let mut child = command.args(["x", "--part", "y"]).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    assert_eq!(submission.name, "train");
    assert_eq!(submission.command, ["sh", "-c", "exit 0", "x", "--part", "y"]);
    assert_eq!(
        (submission.mem, submission.iterations),
        (Some(4_500_000_000), Some(200))
    );
    assert_eq!(submission.visible_devices.as_deref(), Some("1"));
    assert_eq!(
        (submission.movable, submission.use_existing, submission.part),
        (true, true, None)
    );
    assert_eq!(submission.batch.map(|batch| batch.0), Some(4));
    assert_eq!(submission.runner, child.id());
    peer.say(&Reply::Cancel { attempt: None });
    assert_eq!(child.wait().unwrap().code(), Some(125));
}

#[test]
fn an_attempt_finds_its_slice_in_the_environment_and_the_users_stays() {
    let scripted = Scripted::new();
    let script = "env > seen; exit 0";
    let mut command = scripted.run(&[], script);
    // Libraries that are not there: the loader says so on standard error and goes on.
    command
        .env("LD_PRELOAD", "/users.so")
        .env("LD_LIBRARY_PATH", "/users:")
        .env("USERS", "own");
    command.env("CUDA_VISIBLE_DEVICES", "0");
    let mut child = command.spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let mut grant = grant(&submission, 1);
    grant.interposer = "/ours.so".into();
    grant.library_path = vec!["/sim".into()];
    peer.serve_one(&grant);
    child.wait().unwrap();
    let seen = fs::read_to_string(scripted.folder().join("seen")).unwrap();
    let expected = [
        "CUDA_VISIBLE_DEVICES=MIG-1".to_owned(),
        "LD_PRELOAD=/ours.so:/users.so".to_owned(),
        "LD_LIBRARY_PATH=/sim:/users:".to_owned(),
        format!("MIGM_SOCKET={}", scripted.socket().display()),
        format!("MIGM_ATTEMPT={}", grant.attempt),
        "SIMGPU_ID=seven".to_owned(),
        "USERS=own".to_owned(),
    ];
    for line in expected {
        assert!(
            seen.lines().any(|there| there == line),
            "{line} is not in\n{seen}"
        );
    }
}

#[test]
fn the_program_inherits_no_descriptor_and_no_blocked_signal() {
    let (output, _) = once(&[], "ls -l /proc/self/fd; grep SigBlk /proc/self/status");
    let shown = text(&output.stdout);
    // The test's own parents may leave it files and pipes; sockets, the page and signals are the runner's.
    for ours in ["socket:", "memfd:", "anon_inode:"] {
        assert!(!shown.contains(ours), "{shown}");
    }
    assert!(shown.ends_with("SigBlk:\t0000000000000000\n"), "{shown}");
}
