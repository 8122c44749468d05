//! The policy changes while the daemon serves: for good by its configuration, for a batch's time by its word.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use migm_shared::units::GIB;
use migm_supervisor::control::{JobState, Outcome, Reply, Request, Submission};
use serde_json::Value;

use crate::daemon::{Daemon, PATIENCE, SCALE, submission};
use crate::peer::{GPU, Peer, page, submit};
use crate::support::{eventually, json, migm};

/// A batch of so many jobs of so many wall seconds each.
fn file(daemon: &Daemon, name: &str, count: usize, seconds: f64) -> PathBuf {
    let file = daemon.path(name);
    let text = format!("[[job]]\nname = '{name}'\ncommand = ['sleep', '{seconds}']\ncount = {count}\n");
    fs::write(&file, text).unwrap();
    file
}

fn batch(daemon: &Daemon, file: &Path, words: &[&str]) -> Child {
    let mut command = Command::new(migm());
    command
        .args(["batch", "--json"])
        .args(words)
        .arg(file)
        .env("MIGM_SOCKET", daemon.socket())
        .env("MIGM_HISTORY", "off")
        .stdin(Stdio::null());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn status(daemon: &Daemon) -> Value {
    json(&daemon.migm(&["status", "--json"]))
}

/// Waits until this policy serves.
fn serves(daemon: &Daemon, policy: &str) -> Value {
    eventually(policy, PATIENCE, || {
        Some(status(daemon)).filter(|status| status["policy"] == policy)
    })
}

fn running(daemon: &Daemon, name: &str) -> usize {
    let jobs = daemon.status().jobs;
    let of_it = jobs.iter().filter(|job| job.name.starts_with(name));
    of_it.filter(|job| job.state == JobState::Running).count()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn kill(pid: u32, signal: i32) {
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// On simulated GPUs, with this configuration beside further arguments.
fn configured(config: &Path, arguments: &[&str]) -> Daemon {
    let mut all = vec![
        "--sim",
        GPU,
        "--time-scale",
        SCALE,
        "--config",
        config.to_str().unwrap(),
    ];
    all.extend(arguments);
    Daemon::start(&all)
}

fn needs(gib: u64, name: &str) -> Submission {
    Submission {
        mem: Some(gib * GIB),
        ..submission(name)
    }
}

#[test]
fn a_batch_is_served_by_its_policy_and_the_jobs_of_others_go_on() {
    let daemon = Daemon::tightest(GPU);
    let pages = [page(), page()];
    let (mut other, _) = submit(&daemon, submission("other"), &pages[0]);
    let held = other.grant();
    let first = batch(
        &daemon,
        &file(&daemon, "first", 3, 1.5),
        &["--policy", "static:3g+3g"],
    );
    let lent = serves(&daemon, "static:3g+3g");
    assert_eq!(
        (&lent["policy_after"], &lent["order"]),
        (&"scheme-b".into(), &Value::Null)
    );
    assert!(lent["policy_batch"].is_u64(), "{lent}");
    let text = String::from_utf8(daemon.migm(&["status"]).stdout).unwrap();
    assert!(text.starts_with("policy static:3g+3g, for batch "), "{text}");
    // What that layout has no slice for waits for the supervisor's own policy, and is not refused.
    let (mut large, _) = submit(&daemon, needs(30, "large"), &pages[1]);
    eventually("the reason why it waits", PATIENCE, || {
        let jobs = daemon.status().jobs;
        let note = jobs.into_iter().find(|job| job.name == "large")?.note?;
        note.contains("waits for scheme-b, which serves again after batch ")
            .then_some(())
    });
    let output = first.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    for job in report["jobs"].as_array().unwrap() {
        let attempts = job["attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{job}");
        assert_eq!(
            (&attempts[0]["profile"], &attempts[0]["outcome"]),
            (&"3g.20gb".into(), &"done".into())
        );
    }
    serves(&daemon, "scheme-b");
    let nothing: Option<Reply> = other.try_hear(Duration::from_millis(200));
    assert!(nothing.is_none(), "it runs on: {nothing:?}");
    other.ended(&held, Outcome::Done, None);
    other.finished();
    assert_eq!(large.grant().profile, "7g.40gb");
}

#[test]
fn of_two_batches_with_different_policies_the_second_is_refused_in_one_line() {
    let daemon = Daemon::simulated(GPU);
    let first = batch(&daemon, &file(&daemon, "first", 1, 3.0), &["--policy", "far"]);
    serves(&daemon, "far");
    for (words, reason) in [
        (["--policy", "mfi"], "policy mfi: batch 1 of user "),
        (["--order", "fifo"], "policy migm:fifo: batch 1 of user "),
        (
            ["--policy", "static:9g"],
            "policy static:9g on GPU 0: `9g` is no profile",
        ),
    ] {
        let second = batch(&daemon, &file(&daemon, "second", 1, 0.1), &words);
        let output = second.wait_with_output().unwrap();
        let lines = said(&output);
        assert_eq!(output.status.code(), Some(2), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains(reason), "{lines}");
    }
    // Who names the same, or none, is served with it.
    for words in [&["--policy", "far"][..], &[]] {
        let third = batch(&daemon, &file(&daemon, "third", 1, 0.1), words);
        let output = third.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    assert!(first.wait_with_output().unwrap().status.success());
    serves(&daemon, "migm");
}

#[test]
fn killed_commands_and_supervisors_leave_the_policy_to_the_jobs() {
    let mut daemon = Daemon::tightest(GPU);
    let mut first = batch(&daemon, &file(&daemon, "first", 2, 6.0), &["--policy", "mfi"]);
    eventually("both run", PATIENCE, || {
        (running(&daemon, "first") == 2).then_some(())
    });
    daemon.kill();
    assert_eq!(daemon.state()["batches"][0]["policy"], "mfi");
    daemon.launch();
    serves(&daemon, "mfi");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(status(&daemon)["policy"], "mfi", "its jobs run");
    daemon.kill();
    daemon.launch();
    assert_eq!(status(&daemon)["policy"], "mfi", "its jobs run");
    assert_eq!(running(&daemon, "first"), 2);
    serves(&daemon, "scheme-b");
    let jobs = daemon.status().jobs;
    let all = jobs.iter().filter(|job| job.name.starts_with("first"));
    for job in all {
        assert_eq!(
            (job.attempts.len(), job.attempts[0].outcome),
            (1, Some(Outcome::Done)),
            "{job:?}"
        );
    }
}

#[test]
fn a_configuration_that_is_read_again_changes_the_policy_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("migm.toml");
    fs::write(&config, "policy = 'scheme-b'\n").unwrap();
    let mut daemon = configured(&config, &[]);
    let pages = [page(), page(), page()];
    let (mut whole, _) = submit(&daemon, needs(30, "whole"), &pages[0]);
    let held = whole.grant();
    let (mut second, _) = submit(&daemon, needs(4, "second"), &pages[1]);
    let (mut third, _) = submit(&daemon, needs(4, "third"), &pages[2]);
    fs::write(&config, "policy = 'migm'\norder = 'fifo'\n").unwrap();
    kill(daemon.pid(), libc::SIGHUP);
    assert_eq!(serves(&daemon, "migm")["order"], "fifo");
    for (text, reason) in [
        (
            "policy = 'far'\norder = 'fifo'\n",
            "policy far has no choice of order",
        ),
        ("polcy = 'far'\n", "migm.toml:1:1: unknown field `polcy`"),
        ("policy = 'static:9g'\n", "`9g` is no profile"),
    ] {
        fs::write(&config, text).unwrap();
        kill(daemon.pid(), libc::SIGHUP);
        eventually(reason, PATIENCE, || daemon.log().contains(reason).then_some(()));
        let now = status(&daemon);
        assert_eq!((&now["policy"], &now["order"]), (&"migm".into(), &"fifo".into()));
    }
    whole.ended(&held, Outcome::Done, None);
    whole.finished();
    for waiting in [&mut second, &mut third] {
        let grant = waiting.grant();
        waiting.ended(&grant, Outcome::Done, None);
        waiting.finished();
    }
    fs::write(&config, "policy = 'mfi'\n").unwrap();
    daemon.kill();
    daemon.launch();
    assert_eq!(status(&daemon)["policy"], "mfi");
}

#[test]
fn the_command_line_goes_before_a_configuration_that_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("migm.toml");
    fs::write(&config, "policy = 'scheme-b'\n").unwrap();
    let daemon = configured(&config, &["--policy", "far"]);
    assert_eq!(status(&daemon)["policy"], "far");
    fs::write(&config, "policy = 'mfi'\n").unwrap();
    kill(daemon.pid(), libc::SIGHUP);
    let line = "the configuration is read again";
    eventually(line, PATIENCE, || daemon.log().contains(line).then_some(()));
    assert_eq!(status(&daemon)["policy"], "far");
}

/// Without a configuration there is nothing to read: a supervisor whose terminal has gone ends.
#[test]
fn a_hang_up_without_a_configuration_is_the_end() {
    let mut daemon = Daemon::simulated(GPU);
    kill(daemon.pid(), libc::SIGHUP);
    assert!(daemon.wait().success());
}

/// While a job that needs a whole GPU waits for one that runs, a small one behind it starts or does not.
#[test]
fn in_order_of_arrival_nobody_starts_before_one_who_waits_for_room() {
    for (words, overtakes) in [(&["--order", "free"], true), (&["--order", "fifo"], false)] {
        let mut all = vec!["--sim", GPU, "--time-scale", SCALE];
        all.extend(words);
        let daemon = Daemon::start(&all);
        let pages = [page(), page(), page()];
        let ask = |name: &str, gib: u64, profile: &str, page| {
            let mut asked = needs(gib, name);
            asked.wishes.profile = Some(profile.to_owned());
            submit(&daemon, asked, page).0
        };
        let mut first = ask("first", 4, "1g.5gb", &pages[0]);
        let held = first.grant();
        let mut large = ask("large", 30, "7g.40gb", &pages[1]);
        // Decided on by itself.
        std::thread::sleep(Duration::from_millis(300));
        let mut small = ask("small", 4, "1g.5gb", &pages[2]);
        if overtakes {
            let grant = small.grant();
            small.ended(&grant, Outcome::Done, None);
            small.finished();
        } else {
            let early: Option<Reply> = small.try_hear(Duration::from_millis(700));
            assert!(early.is_none(), "{early:?}");
        }
        first.ended(&held, Outcome::Done, None);
        first.finished();
        let grant = large.grant();
        large.ended(&grant, Outcome::Done, None);
        large.finished();
        if !overtakes {
            small.grant();
        }
    }
}

#[test]
fn an_order_for_a_policy_without_the_choice_is_refused_in_one_line() {
    let daemon = Daemon::simulated(GPU);
    let jobs = file(&daemon, "jobs", 1, 0.1);
    let words: [&[&str]; 2] = [
        &[
            "batch",
            "--policy",
            "far",
            "--order",
            "fifo",
            jobs.to_str().unwrap(),
        ],
        &[
            "supervisor",
            "--sim",
            GPU,
            "--policy",
            "scheme-b",
            "--order",
            "fifo",
        ],
    ];
    for words in words {
        let output = daemon.migm(words);
        let lines = said(&output);
        assert_eq!(output.status.code(), Some(2), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains("has no choice of order"), "{lines}");
    }
}

/// A GPU without MIG is shared by all policies but one, and that is settled at the start.
#[test]
fn who_shares_a_gpu_without_slices_is_not_changed_under_way() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("migm.toml");
    fs::write(&config, "mode = 'soft'\n").unwrap();
    let daemon = configured(&config, &[]);
    let mut peer = Peer::of(&daemon);
    let open = |policy: &str| Request::OpenBatchBy {
        name: "b".into(),
        policy: policy.into(),
    };
    peer.ask(&open("sequential"));
    let answer = peer.hear();
    let Reply::Refused { reason } = answer else {
        panic!("{answer:?}")
    };
    assert!(reason.contains("is settled when a supervisor starts"), "{reason}");
    peer.ask(&open("scheme-b"));
    assert!(matches!(peer.hear(), Reply::BatchOpened { .. }));
}
