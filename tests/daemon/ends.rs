//! Supervisors, runners and batches that end, and what is left.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use migm_shared::ids::BatchId;
use migm_supervisor::control::{JobState, NodeStatus, Outcome, Reply, Request, Submission};
use migm_supervisor::node::Node;

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
    let summary = command.summary();
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
