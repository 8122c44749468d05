//! Supervisors, runners and batches that end, and what is left.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use migm_shared::ids::BatchId;
use migm_supervisor::control::{Grant, JobState, NodeStatus, Outcome, Reply, Request, Submission, Unmet};
use migm_supervisor::node::Node;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::{Daemon, PATIENCE, SCALE, submission};
use crate::peer::{GPU, Peer, descriptor, page, program, submit};
use crate::support::{eventually, migm};

#[test]
fn killed_in_the_middle_the_next_one_adopts_and_leaves_foreign_instances_alone() {
    let mut daemon = Daemon::simulated(GPU);
    let foreign = {
        let driver = daemon.driver();
        let node = &driver.node;
        let profiles = node.profiles(0).unwrap();
        let kind = profiles.iter().find(|profile| profile.name == "2g.10gb").unwrap();
        let place = *kind.placements.iter().find(|place| place.start == 0).unwrap();
        node.create(0, kind, place).unwrap()
    };
    let page = page();
    let (mut runner, answer) = submit(&daemon, submission("survivor"), &page);
    let Reply::Accepted { job, .. } = answer else {
        panic!("{answer:?}")
    };
    let grant = runner.grant();
    let mut child = program();
    runner.ask(&Request::Started {
        attempt: grant.attempt,
        pid: child.id(),
    });
    runner.ask(&Request::Status);
    let before = runner.hear::<Reply>();
    assert!(matches!(before, Reply::Status(_)), "{before:?}");

    daemon.kill();
    daemon.launch();
    let status = daemon.status();
    let state = |status: &NodeStatus, start: u32| -> String {
        let slices = &status.gpus[0].slices;
        slices
            .iter()
            .find(|slice| slice.start == start)
            .map_or_else(|| "none".into(), |slice| slice.state.clone())
    };
    assert_eq!(state(&status, grant.start), "busy", "{status:?}");
    assert_eq!(state(&status, 0), "foreign", "{status:?}");
    assert_eq!(status.jobs[0].state, JobState::Running);

    let mut runner = Peer::of(&daemon);
    let resume = Request::Resume {
        submission: submission("survivor"),
        job,
        grant: Some(grant.clone()),
        attempts: status.jobs[0].attempts.clone(),
        pid: Some(child.id()),
    };
    runner.0.send(&resume, Some(descriptor(&page))).unwrap();
    assert!(matches!(runner.hear(), Reply::Accepted { job: same, .. } if same == job));
    child.kill().unwrap();
    child.wait().unwrap();
    runner.ended(&grant, Outcome::Done, None);
    assert_eq!(runner.finished().id, job);
    drop(runner);
    // Ours goes at the end; the foreign one, and with it the simulated GPU's state, is as it was.
    let driver = daemon.driver();
    let node = &driver.node;
    assert!(daemon.terminate().success());
    let left = node.instances(0).unwrap();
    assert_eq!(left, [foreign]);
}

#[test]
fn a_real_job_goes_on_while_its_supervisor_is_killed_and_comes_back() {
    let mut daemon = Daemon::simulated(GPU);
    let mut run = Command::new(migm())
        .args(["run", "--name", "steady", "--"])
        .arg(migm())
        .args(["play", "stencil", "--iterations", "3000"])
        .env("MIGM_SOCKET", daemon.socket())
        .env("MIGM_HISTORY", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reserved = |daemon: &Daemon| {
        let status = daemon.status();
        status.jobs.first().map_or(0, |job| job.figures.reserved)
    };
    eventually("memory in use", PATIENCE, || {
        (reserved(&daemon) > 0).then_some(())
    });
    daemon.kill();
    assert!(
        run.try_wait().unwrap().is_none(),
        "the job is over too early to tell"
    );
    daemon.launch();
    assert!(run.wait().unwrap().success(), "{}", daemon.log());
    let job = daemon.status().jobs.remove(0);
    assert_eq!((job.name.as_str(), job.state), ("steady", JobState::Ended));
    let outcomes: Vec<_> = job.attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Done)], "it ran once, through");
    assert!(job.figures.reserved > 0);
    let slices = &daemon.status().gpus[0].slices;
    assert_eq!((slices.len(), slices[0].state.as_str()), (1, "idle"));
}

#[test]
fn a_lease_without_runner_lasts_as_long_as_its_process() {
    let daemon = Daemon::simulated(GPU);
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("orphan"), &page);
    let grant = runner.grant();
    let mut child = program();
    runner.ask(&Request::Started {
        attempt: grant.attempt,
        pid: child.id(),
    });
    runner.ask(&Request::Status);
    runner.hear::<Reply>();
    drop(runner);
    std::thread::sleep(Duration::from_millis(500));
    let slice = |status: &NodeStatus| status.gpus[0].slices[0].state.clone();
    assert_eq!(slice(&daemon.status()), "busy");
    child.kill().unwrap();
    child.wait().unwrap();
    // This test is the runner by the kernel and lives, so the supervisor waits for it to come back first.
    let until = Instant::now() + PATIENCE;
    while slice(&daemon.status()) == "busy" {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(daemon.status().jobs[0].state, JobState::Ended);
}

#[test]
fn a_batch_waits_for_its_start_and_is_measured_to_its_end() {
    let daemon = Daemon::simulated(GPU);
    let mut command = Peer::of(&daemon);
    command.ask(&Request::OpenBatch { name: "two".into() });
    let Reply::BatchOpened { batch } = command.hear() else {
        panic!()
    };
    let pages = [page(), page()];
    let mut runners: Vec<Peer> = pages
        .iter()
        .map(|page| {
            let asked = Submission {
                batch: Some(batch),
                ..submission("of two")
            };
            submit(&daemon, asked, page).0
        })
        .collect();
    assert!(runners[0].try_hear::<Reply>(Duration::from_millis(300)).is_none());
    command.ask(&Request::StartBatch { batch });
    for runner in &mut runners {
        let grant = runner.grant();
        runner.ended(&grant, Outcome::Done, None);
        runner.finished();
    }
    let summary = loop {
        match command.hear() {
            Reply::BatchEnded(summary) => break summary,
            Reply::BatchJob(_) | Reply::Done => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(summary.jobs.len(), 2);
    assert!(summary.jobs.iter().all(|job| job.state == JobState::Ended));
    assert!(summary.makespan > 0.0, "{summary:?}");
    assert!(summary.energy_j.is_some_and(|joules| joules > 0.0), "{summary:?}");
    assert!((1..=2).contains(&summary.reconfigurations), "{summary:?}");
    assert!((summary.time_scale - 0.05).abs() < 1e-9);
    // Of a batch that is not there nothing starts.
    command.ask(&Request::StartBatch { batch: BatchId(99) });
    assert!(matches!(command.hear(), Reply::Refused { .. }));
}

/// The word of the first submission, or of the start, went down with the supervisor that had it in its state file.
#[test]
fn what_is_said_again_to_the_next_supervisor_is_neither_a_second_job_nor_an_error() {
    let mut daemon = Daemon::simulated(GPU);
    let mut command = Peer::of(&daemon);
    command.ask(&Request::OpenBatch { name: "one".into() });
    let Reply::BatchOpened { batch } = command.hear() else {
        panic!()
    };
    let page = page();
    let asked = Submission {
        batch: Some(batch),
        ..submission("said twice")
    };
    let (_runner, first) = submit(&daemon, asked.clone(), &page);
    daemon.kill();
    daemon.launch();
    let (mut runner, again) = submit(&daemon, asked, &page);
    let (Reply::Accepted { job, .. }, Reply::Accepted { job: same, .. }) = (first, again) else {
        panic!()
    };
    assert_eq!(job, same);
    let mut command = Peer::of(&daemon);
    command.ask(&Request::WatchBatch { batch });
    command.ask(&Request::StartBatch { batch });
    command.ask(&Request::StartBatch { batch });
    let grant = runner.grant();
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    let summary = loop {
        match command.hear() {
            Reply::BatchEnded(summary) => break summary,
            Reply::BatchJob(_) | Reply::Done => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(summary.jobs.len(), 1, "{summary:?}");
}

/// Supervisor and runner would each wait for the other's word, and the slice would be leased for ever.
#[test]
fn a_next_grant_that_went_down_with_its_supervisor_is_given_again_by_the_next() {
    let mut daemon = Daemon::tightest(GPU);
    let page = page();
    let asked = submission("outgrows its slice");
    let (mut runner, answer) = submit(&daemon, asked.clone(), &page);
    let Reply::Accepted { job, .. } = answer else {
        panic!("{answer:?}")
    };
    let first = runner.grant();
    let unmet = Some(Unmet {
        asked: 1 << 30,
        in_use: 4 << 30,
    });
    runner.ended(&first, Outcome::Oom, unmet);
    let second = runner.grant();
    daemon.kill();
    daemon.launch();
    // As if that last word had not come.
    let mut attempts = daemon.status().jobs[0].attempts.clone();
    attempts.truncate(1);
    let mut runner = Peer::of(&daemon);
    let resume = Request::Resume {
        submission: asked,
        job,
        grant: Some(first.clone()),
        attempts,
        pid: None,
    };
    runner.0.send(&resume, Some(descriptor(&page))).unwrap();
    runner.ended(&first, Outcome::Oom, unmet);
    assert!(matches!(runner.hear(), Reply::Accepted { job: same, .. } if same == job));
    let again = runner.grant();
    assert_eq!((again.attempt, again.slice), (second.attempt, second.slice));
    runner.ended(&again, Outcome::Done, None);
    let outcomes: Vec<_> = runner.finished().attempts.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Oom), Some(Outcome::Done)]);
}

/// `migm cancel` has said that it is done, so it is, whatever becomes of the supervisor.
#[test]
fn a_job_that_is_cancelled_while_its_runner_is_away_is_stopped_when_it_is_back() {
    let mut daemon = Daemon::simulated(GPU);
    let page = page();
    let asked = submission("to be cancelled");
    let (mut runner, answer) = submit(&daemon, asked.clone(), &page);
    let Reply::Accepted { job, .. } = answer else {
        panic!("{answer:?}")
    };
    let grant = runner.grant();
    daemon.kill();
    daemon.launch();
    let mut command = Peer::of(&daemon);
    command.ask(&Request::Cancel { job });
    assert_eq!(command.hear::<Reply>(), Reply::Done);
    daemon.kill();
    daemon.launch();
    let resume = |grant: Option<Grant>| {
        let mut runner = Peer::of(&daemon);
        let resume = Request::Resume {
            submission: asked.clone(),
            job,
            attempts: Vec::new(),
            grant,
            pid: None,
        };
        runner.0.send(&resume, Some(descriptor(&page))).unwrap();
        assert!(matches!(runner.hear(), Reply::Accepted { .. }));
        runner
    };
    // One that has never heard of its grant has nothing to stop.
    assert_eq!(resume(None).hear::<Reply>(), Reply::Cancel { attempt: None });
    let mut runner = resume(Some(grant.clone()));
    let attempt = Some(grant.attempt);
    assert_eq!(runner.hear::<Reply>(), Reply::Cancel { attempt });
    runner.ended(&grant, Outcome::Cancelled, None);
    runner.finished();
}

/// A restart of the service is no reason to lose a job that comes in the middle of it.
#[test]
fn a_job_that_comes_to_a_supervisor_that_is_ending_is_not_refused_but_left_to_the_next() {
    let mut daemon = Daemon::simulated(GPU);
    let (first, late) = (page(), page());
    let (mut runner, _) = submit(&daemon, submission("leaves a slice"), &first);
    let grant = runner.grant();
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    drop(runner);
    // Its end takes long enough to meet it.
    daemon.faults("destroy-gix*=40000ms");
    let mut runner = Peer::of(&daemon);
    let pid = Pid::from_raw(i32::try_from(daemon.status().supervisor).unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    eventually("the end begins", PATIENCE, || {
        (!daemon.socket().exists()).then_some(())
    });
    let submit_late = Request::Submit(submission("late"));
    runner.0.send(&submit_late, Some(descriptor(&late))).unwrap();
    assert!(runner.is_closed(), "it has been answered");
    assert!(daemon.wait().success());
    daemon.launch();
    let (mut runner, _) = submit(&daemon, submission("late"), &late);
    let grant = runner.grant();
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
}

/// Their runners would wait for a start for ever, and keep a private supervisor with them.
#[test]
fn jobs_of_a_batch_that_nobody_is_left_to_start_are_cancelled() {
    let mut daemon = Daemon::simulated(GPU);
    let mut command = Peer::of(&daemon);
    command.ask(&Request::OpenBatch {
        name: "killed".into(),
    });
    let Reply::BatchOpened { batch } = command.hear() else {
        panic!()
    };
    let page = page();
    let asked = Submission {
        batch: Some(batch),
        ..submission("held")
    };
    let (runner, _) = submit(&daemon, asked.clone(), &page);
    drop(command);
    // Neither it nor the supervisor: both at once.
    daemon.kill();
    daemon.launch();
    drop(runner);
    let (mut runner, _) = submit(&daemon, asked.clone(), &page);
    let Reply::Withdrawn { reason, unheard } = runner.hear() else {
        panic!()
    };
    assert_eq!(reason, "whoever submitted its batch has gone without starting it");
    assert!(!unheard);
    runner.finished();
    let (_, late) = submit(&daemon, asked, &page);
    assert!(matches!(late, Reply::Refused { .. }), "{late:?}");
    assert_eq!(daemon.state()["batches"], serde_json::json!([]));
}

/// A full disk at night: nothing is granted, and whoever looks is told why instead of waiting for an answer.
#[test]
fn while_the_state_cannot_be_written_the_status_says_so_and_nothing_is_granted() {
    let daemon = Daemon::simulated(GPU);
    // What is written first is a file beside it. In the way of that is a folder.
    let in_the_way = daemon.path("migm.state.json.fresh");
    std::fs::create_dir(&in_the_way).unwrap();
    let page = page();
    let mut runner = Peer::of(&daemon);
    let submit = Request::Submit(submission("patient"));
    runner.0.send(&submit, Some(descriptor(&page))).unwrap();
    let note = eventually("the reason", PATIENCE, || {
        let job = daemon.status().jobs.into_iter().next()?;
        job.note.filter(|note| note.contains("state"))
    });
    assert!(
        note.starts_with("no slice changes until the state can be written: writing /")
            && note.contains("Is a directory"),
        "{note}"
    );
    assert!(runner.try_hear::<Reply>(Duration::from_millis(300)).is_none());
    std::fs::remove_dir(&in_the_way).unwrap();
    assert!(matches!(runner.hear(), Reply::Accepted { .. }));
    let grant = runner.grant();
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
}

#[test]
fn a_private_supervisor_ends_after_its_last_client_and_leaves_nothing() {
    let mut daemon = Daemon::start(&["--private", "--sim", GPU, "--time-scale", SCALE]);
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("only"), &page);
    let grant = runner.grant();
    let driver = daemon.driver();
    let node = &driver.node;
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    drop(runner);
    assert!(daemon.wait().success());
    assert!(node.instances(0).unwrap().is_empty(), "its idle slice is removed");
    for gone in ["migm.sock", "migm.state.json", "migm.sim"] {
        assert!(!daemon.path(gone).exists(), "{gone}\n{}", daemon.log());
    }
}
