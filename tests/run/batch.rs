//! `migm batch`, with real runners and programs, against a supervisor that follows a script.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use migm_shared::ids::{AttemptId, BatchId, Incarnation, JobId};
use migm_supervisor::control::{
    AttemptRecord, BatchSummary, Figures, Grant, JobState, JobStatus, NodeStatus, Outcome, Reply, Request,
    Submission,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::scripted::{Peer, Scripted, grant, until};
use crate::support::migm;

const BATCH: BatchId = BatchId(3);

/// `migm batch b.toml --json` on this text, with the batch opened.
fn open(scripted: &Scripted, text: &str) -> (Child, Peer) {
    fs::write(scripted.folder().join("b.toml"), text).unwrap();
    let mut command = Command::new(migm());
    command
        .args(["batch", "b.toml", "--json"])
        .env("MIGM_HISTORY", "off")
        .env("MIGM_SOCKET", scripted.socket());
    command.current_dir(scripted.folder()).stdin(Stdio::null());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watcher = scripted.accept();
    assert!(matches!(watcher.expect(), Request::Status));
    watcher.say(&Reply::Status(Box::new(NodeStatus {
        gpus: Vec::new(),
        jobs: Vec::new(),
        simulated: true,
        time_scale: 0.5,
        supervisor: 1,
    })));
    assert!(matches!(watcher.expect(), Request::OpenBatch { name } if name == "b"));
    watcher.say(&Reply::BatchOpened { batch: BATCH });
    (child, watcher)
}

fn status(id: u64, submission: &Submission, attempts: Vec<AttemptRecord>) -> JobStatus {
    JobStatus {
        id: JobId(id),
        name: submission.name.clone(),
        state: if attempts.is_empty() {
            JobState::Held
        } else {
            JobState::Ended
        },
        attempts,
        figures: Figures::default(),
        predicted_peak_bytes: None,
        iteration: 0,
        iterations: submission.iterations,
        part: submission.part.clone(),
        note: None,
        user: 0,
        since: 0.0,
        wishes: migm_supervisor::control::Wishes::default(),
    }
}

/// Takes the next runner's job, and tells the watcher of it.
fn accept(scripted: &Scripted, watcher: &mut Peer, id: u64) -> (Peer, Submission, Grant) {
    let mut runner = scripted.accept();
    let Request::Submit(submission) = runner.expect() else {
        panic!("the first word of a runner is no submission");
    };
    assert_eq!(submission.batch, Some(BATCH));
    runner.say(&Reply::Accepted {
        job: JobId(id),
        notice: None,
    });
    watcher.say(&Reply::BatchJob(Box::new(status(id, &submission, Vec::new()))));
    let mut grant = grant(&submission, 1);
    grant.attempt = AttemptId {
        job: JobId(id),
        ..grant.attempt
    };
    (runner, submission, grant)
}

fn summary(jobs: Vec<JobStatus>) -> Reply {
    Reply::BatchEnded(Box::new(BatchSummary {
        batch: BATCH,
        started: 100.0,
        makespan: 2.0,
        energy_j: Some(500.0),
        reconfigurations: 2,
        ooms: 0,
        early_restarts: 0,
        moves: 0,
        jobs,
        gpu: "NVIDIA A100-SXM4-40GB".into(),
        simulated: true,
        time_scale: 0.5,
    }))
}

fn ended(outcome: Outcome) -> Vec<AttemptRecord> {
    vec![AttemptRecord {
        profile: "1g.5gb".into(),
        slice: Incarnation(1),
        placement: 0,
        start: 100.5,
        end: Some(101.0),
        outcome: Some(outcome),
        status: Some(0),
        why: None,
        memory: 0,
        for_speed: false,
    }]
}

#[test]
fn jobs_are_submitted_in_order_and_run_with_what_the_file_says() {
    let scripted = Scripted::new();
    let (child, mut watcher) = open(
        &scripted,
        "[[job]]\nname = 'a'\ncommand = ['sh', '-c', 'echo $OWN out; exit 0']\nmem = '1Gi'\niterations = 9\n\
         part = 'p'\nenv = { OWN = 'own words' }\n[[job]]\ncommand = 'true'\ncount = 2\n",
    );
    let (mut first, submission, grant) = accept(&scripted, &mut watcher, 1);
    assert_eq!(
        (submission.name.as_str(), submission.part.as_deref()),
        ("a", Some("p"))
    );
    assert_eq!((submission.mem, submission.iterations), (Some(1 << 30), Some(9)));
    assert!(submission.movable);
    let (mut second, next, second_grant) = accept(&scripted, &mut watcher, 2);
    assert_eq!(next.name, "true-1");
    // The batch has not started while a job is missing.
    watcher.expect_silence(Duration::from_millis(200));
    let (mut third, last, third_grant) = accept(&scripted, &mut watcher, 3);
    assert_eq!(last.name, "true-2");
    assert!(matches!(watcher.expect(), Request::StartBatch { batch: BATCH }));
    first.serve_one(&grant);
    second.serve_one(&second_grant);
    third.serve_one(&third_grant);
    let jobs = [(1, &submission), (2, &next), (3, &last)];
    let jobs = jobs.map(|(id, submission)| status(id, submission, ended(Outcome::Done)));
    watcher.say(&summary(jobs.into()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["makespan_s"], &report["energy_j"]),
        (&4.0.into(), &500.0.into())
    );
    assert_eq!(report["jobs"][0]["attempts"][0]["start"], 1.0);
    // What the job printed is not in the document's way.
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .any(|line| line == "own words out")
    );
}

/// Nobody would start the jobs, and the batch would wait for ever.
#[test]
fn a_start_that_went_down_with_a_supervisor_is_said_again_to_the_next() {
    let mut scripted = Scripted::new();
    let (child, mut watcher) = open(&scripted, "[[job]]\nname = 'only'\ncommand = 'true'\n");
    let (mut runner, submission, grant) = accept(&scripted, &mut watcher, 1);
    assert!(matches!(watcher.expect(), Request::StartBatch { batch: BATCH }));
    drop(watcher);
    scripted.die();
    scripted.come_back();
    let mut watcher = scripted.accept();
    assert!(matches!(watcher.expect(), Request::WatchBatch { batch: BATCH }));
    assert!(matches!(watcher.expect(), Request::StartBatch { batch: BATCH }));
    runner.serve_one(&grant);
    watcher.say(&summary(vec![status(1, &submission, ended(Outcome::Done))]));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

/// It would be of another kind than the batch's, or in the place of a service that comes back.
#[test]
fn a_job_of_a_batch_starts_no_supervisor_but_waits_for_the_next() {
    let mut scripted = Scripted::new();
    let (child, mut watcher) = open(
        &scripted,
        "[[job]]\nname = 'first'\ncommand = 'true'\n[[job]]\nname = 'late'\ncommand = 'true'\narrival_s = 1\n",
    );
    let (mut runner, first, first_grant) = accept(&scripted, &mut watcher, 1);
    assert!(matches!(watcher.expect(), Request::StartBatch { .. }));
    runner.serve_one(&first_grant);
    drop(watcher);
    scripted.die();
    // It arrives meanwhile.
    std::thread::sleep(Duration::from_secs(1));
    assert!(!scripted.folder().join("s.start").exists());
    scripted.come_back();
    let (mut watcher, mut late) = (None, None);
    while watcher.is_none() || late.is_none() {
        let mut peer = scripted.accept();
        match peer.expect() {
            Request::WatchBatch { .. } => watcher = Some(peer),
            Request::Submit(submission) => late = Some((peer, submission)),
            other => panic!("{other:?}"),
        }
    }
    let (Some(mut watcher), Some((mut runner, late))) = (watcher, late) else {
        unreachable!()
    };
    let job = JobId(2);
    runner.say(&Reply::Accepted { job, notice: None });
    watcher.say(&Reply::BatchJob(Box::new(status(2, &late, Vec::new()))));
    runner.serve_one(&grant(&late, 2));
    let jobs = [(1, &first), (2, &late)].map(|(id, job)| status(id, job, ended(Outcome::Done)));
    watcher.say(&summary(jobs.into()));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_late_job_arrives_on_the_simulated_clock_and_an_early_end_is_not_the_end() {
    let scripted = Scripted::new();
    let (child, mut watcher) = open(
        &scripted,
        "[[job]]\nname = 'late'\ncommand = 'true'\narrival_s = 1\n[[job]]\nname = 'early'\ncommand = 'true'\n",
    );
    let (mut early, submission, grant) = accept(&scripted, &mut watcher, 1);
    assert_eq!(submission.name, "early");
    assert!(matches!(watcher.expect(), Request::StartBatch { .. }));
    let began = std::time::Instant::now();
    early.serve_one(&grant);
    let done = status(1, &submission, ended(Outcome::Done));
    watcher.say(&summary(vec![done.clone()]));
    let (mut late, next, late_grant) = accept(&scripted, &mut watcher, 2);
    assert_eq!(next.name, "late");
    // One simulated second at half a wall second each.
    assert!(
        began.elapsed() > Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    late.serve_one(&late_grant);
    watcher.say(&summary(vec![done, status(2, &next, ended(Outcome::Done))]));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["jobs"].as_array().unwrap().len(), 2);
}

#[test]
fn a_job_that_is_not_accepted_stops_the_batch_before_it_starts() {
    let scripted = Scripted::new();
    let (child, mut watcher) = open(
        &scripted,
        "[[job]]\nname = 'small'\ncommand = 'touch ran'\n[[job]]\nname = 'large'\ncommand = 'touch ran'\n",
    );
    let (mut small, _, _) = accept(&scripted, &mut watcher, 1);
    let mut large = scripted.accept();
    large.expect();
    large.say(&Reply::Refused {
        reason: "no slice here holds that".into(),
    });
    // The job that was accepted is withdrawn.
    small.expect_withdrawn();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("migm: large: no slice here holds that\n"), "{said}");
    assert!(said.contains("job `large` was not accepted"), "{said}");
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn a_signal_to_the_batch_reaches_its_jobs_once() {
    let scripted = Scripted::new();
    let script = "trap 'echo got >> signals; exit 7' INT; echo > ready; while :; do sleep 0.01; done";
    let (child, mut watcher) = open(
        &scripted,
        &format!("[[job]]\nname = 'a'\ncommand = ['sh', '-c', \"{script}\"]\n"),
    );
    let (mut runner, submission, grant) = accept(&scripted, &mut watcher, 1);
    assert!(matches!(watcher.expect(), Request::StartBatch { .. }));
    runner.start(&grant);
    until("the program is ready", || {
        scripted.folder().join("ready").exists()
    });
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
    let said = runner.expect_ended(grant.attempt);
    assert_eq!((said.status, said.outcome), (7, Outcome::Signalled));
    runner.finish(said.figures);
    watcher.say(&summary(vec![status(1, &submission, ended(Outcome::Signalled))]));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        fs::read_to_string(scripted.folder().join("signals")).unwrap(),
        "got\n"
    );
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["jobs"][0]["attempts"][0]["outcome"], "signalled");
}

#[test]
fn a_batch_is_watched_again_when_its_supervisor_was_replaced() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done";
    let (child, mut watcher) = open(&scripted, &format!("[[job]]\nname = 'a'\ncommand = '{script}'\n"));
    let (mut runner, submission, grant) = accept(&scripted, &mut watcher, 1);
    assert!(matches!(watcher.expect(), Request::StartBatch { .. }));
    runner.start(&grant);
    drop((runner, watcher));
    scripted.die();
    scripted.come_back();
    let (mut one, mut other) = (scripted.accept(), scripted.accept());
    let (said, also) = (one.expect(), other.expect());
    let (mut runner, mut watcher) = match (&said, &also) {
        (Request::Resume { .. }, Request::WatchBatch { batch: BATCH }) => (one, other),
        (Request::WatchBatch { batch: BATCH }, Request::Resume { .. }) => (other, one),
        _ => panic!("not a runner and a watcher: {said:?}, {also:?}"),
    };
    fs::write(scripted.folder().join("go"), "").unwrap();
    let said = runner.expect_ended(grant.attempt);
    runner.finish(said.figures);
    watcher.say(&summary(vec![status(1, &submission, ended(Outcome::Done))]));
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}
