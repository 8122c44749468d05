//! What is said between a supervisor and the next, or while one cannot do its work.

use std::time::Duration;

use migm_supervisor::control::{Grant, JobState, Outcome, Reply, Request, Submission, Unmet};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::daemon::{Daemon, PATIENCE, submission};
use crate::loaded::Loaded;
use crate::peer::{GPU, Peer, descriptor, page, submit};
use crate::support::eventually;

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
    let summary = command.summary();
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

/// Its runner tells of the end again, as one that the dead supervisor may not have heard of.
#[test]
fn the_end_of_an_attempt_that_a_killed_supervisor_has_noted_stays_in_the_record() {
    let mut daemon = Daemon::tightest(GPU);
    let (one, other) = (page(), page());
    let (mut neighbour, _) = submit(&daemon, submission("neighbour"), &one);
    let beside = neighbour.grant();
    let asked = Submission {
        nonce: 7,
        ..submission("needs it all")
    };
    let (mut runner, answer) = submit(&daemon, asked.clone(), &other);
    let Reply::Accepted { job, .. } = answer else {
        panic!("{answer:?}")
    };
    let first = runner.grant();
    let mut attempts = daemon.status().jobs[1].attempts.clone();
    let unmet = Some(Unmet {
        asked: 30 << 30,
        in_use: 4 << 30,
    });
    runner.ended(&first, Outcome::Oom, unmet);
    eventually("it waits", PATIENCE, || {
        let state = daemon.status().jobs[1].state;
        (state == JobState::Waiting).then_some(())
    });
    daemon.kill();
    daemon.launch();
    attempts[0].memory = first.memory;
    let resume = |submission: &Submission, grant: &Grant, attempts, page| {
        let mut runner = Peer::of(&daemon);
        let resume = Request::Resume {
            submission: submission.clone(),
            job: grant.attempt.job,
            grant: Some(grant.clone()),
            attempts,
            pid: None,
        };
        runner.0.send(&resume, Some(descriptor(page))).unwrap();
        assert!(matches!(runner.hear(), Reply::Accepted { .. }));
        runner
    };
    let mut runner = resume(&asked, &first, attempts, &other);
    runner.ended(&first, Outcome::Oom, unmet);
    let mut neighbour = resume(&submission("neighbour"), &beside, Vec::new(), &one);
    neighbour.ended(&beside, Outcome::Done, None);
    let second = runner.grant();
    assert_eq!((second.attempt.job, second.profile.as_str()), (job, "7g.40gb"));
    runner.ended(&second, Outcome::Done, None);
    let outcomes: Vec<_> = runner.finished().attempts.iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Oom), Some(Outcome::Done)]);
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

/// All that have come are over, so nothing else is left to remember the batch by.
#[test]
fn a_batch_takes_the_late_jobs_that_come_after_the_service_was_restarted() {
    let loaded = Loaded::new(true);
    let mut daemon = loaded.daemon(&[], "");
    let mut command = Peer::of(&daemon);
    command.ask(&Request::OpenBatch { name: "two".into() });
    let Reply::BatchOpened { batch } = command.hear() else {
        panic!()
    };
    let page = page();
    let of_batch = |name| Submission {
        batch: Some(batch),
        ..submission(name)
    };
    let run = |daemon: &Daemon, command: &mut Peer, name| {
        let (mut runner, answer) = submit(daemon, of_batch(name), &page);
        assert!(matches!(answer, Reply::Accepted { .. }), "{answer:?}");
        command.ask(&Request::StartBatch { batch });
        let grant = runner.grant();
        runner.ended(&grant, Outcome::Done, None);
        runner.finished();
        command.summary().jobs.len()
    };
    assert_eq!(run(&daemon, &mut command, "early"), 1);
    assert!(daemon.terminate().success());
    daemon.launch();
    let mut command = Peer::of(&daemon);
    command.ask(&Request::WatchBatch { batch });
    assert_eq!(command.summary().jobs.len(), 1);
    assert_eq!(run(&daemon, &mut command, "late"), 2);
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
    // A file that is gone is written anew, first beside its place. In the way of that is a folder.
    let in_the_way = daemon.path("migm.state.json.fresh");
    std::fs::create_dir(&in_the_way).unwrap();
    std::fs::remove_file(daemon.path("migm.state.json")).unwrap();
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
