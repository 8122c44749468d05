//! The daemon under policies that weigh time, with real processes on a simulated GPU.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{Place, eventually, json};

/// Far more than any step takes on a loaded machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Half a second on the whole GPU for each iteration of `boxes`, of which a half of its multiprocessors is busy.
const COSTS: &str = "[kernels]\nboxes_force = { seconds = 0.5, sms = 49 }\n";

fn place() -> Place {
    let mut place = Place::simulated(&["--mig", "--time-scale", "0.02"]);
    let costs = place.path().join("costs.toml");
    std::fs::write(&costs, COSTS).unwrap();
    place.set("SIMGPU_COSTS", costs.to_str().unwrap());
    place.set("MIGM_POLICY", "migm");
    place
}

/// A batch of so many `boxes` with so many iterations each.
fn batch(place: &Place, count: usize, iterations: u32) -> PathBuf {
    let file = place.path().join("jobs.toml");
    let program = support::migm();
    let text = format!(
        "[[job]]\nname = 'boxes'\ncommand = ['{}', 'play', 'boxes', '--iterations', '{iterations}']\n\
         iterations = {iterations}\ncount = {count}\n",
        program.display()
    );
    std::fs::write(&file, text).unwrap();
    file
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn status(place: &Place) -> Option<Value> {
    let output = place.migm(&["status", "--json"]).output().unwrap();
    output.status.success().then(|| json(&output))
}

fn jobs(place: &Place) -> Vec<Value> {
    let all = status(place).and_then(|status| status["jobs"].as_array().cloned());
    all.unwrap_or_default()
}

/// Each attempt of a job: profile and outcome.
fn attempts(job: &Value) -> Vec<(String, String)> {
    let attempts = job["attempts"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    attempts
        .map(|attempt| (word(&attempt["profile"]), word(&attempt["outcome"])))
        .collect()
}

#[test]
fn a_batch_runs_to_its_end_under_policies_that_decide_by_the_board() {
    for (policy, expected) in [
        ("migm", None),
        ("far", None),
        ("static:4g+3g", Some(BTreeSet::from(["3g.20gb", "4g.20gb"]))),
    ] {
        let place = place();
        let file = batch(&place, 5, 10);
        let mut command = place.migm(&["batch", "--json", "--policy", policy]);
        let output = command.arg(file).output().unwrap();
        assert!(output.status.success(), "{policy}: {}", said(&output));
        let report = json(&output);
        let jobs = report["jobs"].as_array().unwrap();
        let ran: Vec<(String, String)> = jobs.iter().flat_map(attempts).collect();
        assert_eq!(ran.len(), 5, "{policy}: {report}");
        assert!(
            ran.iter().all(|(_, outcome)| outcome == "done"),
            "{policy}: {ran:?}"
        );
        if let Some(expected) = expected {
            let profiles: BTreeSet<&str> = ran.iter().map(|(profile, _)| profile.as_str()).collect();
            assert_eq!(profiles, expected);
        }
        assert_eq!(
            (&report["moves"], &report["early_restarts"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn what_no_supervisor_serves_by_is_refused_in_one_line() {
    let place = place();
    let file = batch(&place, 1, 1);
    for (policy, why) in [
        ("best-static", "static:LAYOUT serves with one layout"),
        (
            "static:5g",
            "policy static:5g on GPU 0: `5g` is no profile of this GPU",
        ),
        (
            "static:4g+4g",
            "policy static:4g+4g on GPU 0: its slices cannot stand together",
        ),
    ] {
        let mut command = place.migm(&["batch", "--policy", policy]);
        let output = command.arg(&file).output().unwrap();
        let lines = said(&output);
        assert_eq!(output.status.code(), Some(2), "{policy}: {lines}");
        assert_eq!(lines.lines().count(), 1, "{policy}: {lines}");
        assert!(lines.contains(why), "{policy}: {lines}");
    }
    let output = place
        .migm(&["run", "--", "true"])
        .env("MIGM_POLICY", "fifo")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("MIGM_POLICY: `fifo` is no policy"),
        "{}",
        said(&output)
    );
}

/// A job that keeps its work, in the background.
fn keeper(place: &Place, name: &str, iterations: &str) -> Child {
    let mut command = place.migm(&["run", "--name", name, "--keeps-work=always"]);
    command
        .args(["--iterations", iterations, "--"])
        .arg(support::migm());
    command.args(["play", "boxes", "--iterations", iterations]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_job_that_keeps_its_work_is_moved_for_speed_and_its_outcome_says_moved() {
    let place = place();
    let mut first = keeper(&place, "first", "3000");
    eventually("the first has shown its pace", LIMIT, || {
        let jobs = jobs(&place);
        jobs.first()?["iteration"].as_u64().filter(|&done| done > 20)
    });
    // The same program: what it has left is known by the first one's pace, and two slices serve both better.
    let mut second = keeper(&place, "second", "3000");
    let moved = eventually("the first makes room", LIMIT, || {
        let jobs = jobs(&place);
        let first = attempts(jobs.iter().find(|job| job["name"] == "first")?);
        (first.len() == 2).then_some(first)
    });
    assert_eq!(moved[0], ("7g.40gb".to_owned(), "moved".to_owned()), "{moved:?}");
    assert_ne!(moved[1].0, "7g.40gb", "{moved:?}");
    let both = eventually("both run", LIMIT, || {
        let jobs = jobs(&place);
        (jobs.iter().filter(|job| job["state"] == "running").count() == 2).then_some(jobs)
    });
    // It may come back to a slice of the size that it had, and is no early restart.
    assert_eq!(both[0]["attempts"][0]["for_speed"], true, "{}", both[0]);
    let why = json(&place.migm(&["explain", "1", "--json"]).output().unwrap());
    let decisions = why["decisions"].as_array().unwrap();
    let moves = decisions.iter().filter(|one| one["verdict"] == "move");
    let reasons: Vec<&str> = moves.map(|one| one["reason"].as_str().unwrap()).collect();
    assert!(
        reasons
            .first()
            .is_some_and(|reason| reason.starts_with("for speed: ")),
        "{why}"
    );
    for runner in [&mut first, &mut second] {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    }
    for mut runner in [first, second] {
        runner.wait().unwrap();
    }
}

#[test]
fn a_supervisor_killed_in_the_middle_of_a_planned_batch_loses_nothing() {
    let place = place();
    let file = batch(&place, 9, 25);
    let mut command = place.migm(&["batch", "--json", "--policy", "migm"]);
    let command = command.arg(file).stdout(Stdio::piped()).stderr(Stdio::piped());
    let batch = command.spawn().unwrap();
    let supervisor = eventually("some have ended and some run", LIMIT, || {
        let status = status(&place)?;
        let count = |state: &str| {
            let jobs = status["jobs"].as_array()?.iter();
            Some(jobs.filter(|job| job["state"] == state).count())
        };
        (count("ended")? > 0 && count("running")? > 0).then(|| status["supervisor"].as_i64())?
    });
    let pid = nix::unistd::Pid::from_raw(i32::try_from(supervisor).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    let output = batch.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report = json(&output);
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 9);
    for job in jobs {
        let attempts = attempts(job);
        assert_eq!(attempts.len(), 1, "nothing was started twice: {job}");
        assert_eq!(attempts[0].1, "done", "{job}");
    }
}
