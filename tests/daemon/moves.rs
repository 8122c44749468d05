//! Leases by need, and moves on forecasts and after an out of memory.

use std::path::Path;
use std::time::Duration;

use migm_shared::ids::JobId;
use migm_shared::page::Class;
use migm_shared::report::{Event, Hello, Report, Sample, Welcome};
use migm_shared::units::{GIB, MIB};
use migm_supervisor::control::{
    About, Evidence, Grant, JobState, Outcome, Reply, Request, Submission, Unmet, WorkKept,
};
use migm_supervisor::job::page::JobPage;
use migm_supervisor::node::Node;

use crate::daemon::{Daemon, submission};
use crate::peer::{GPU, Peer, descriptor, page, program, submit};

#[test]
fn a_job_gets_the_smallest_slice_and_leaves_it_idle() {
    let daemon = Daemon::tightest(GPU);
    let page = page();
    let (mut runner, answer) = submit(&daemon, submission("small"), &page);
    assert!(
        matches!(answer, Reply::Accepted { notice: None, .. }),
        "{answer:?}"
    );
    let grant = runner.grant();
    assert_eq!(grant.profile, "1g.5gb");
    assert!(grant.visible_device.starts_with("MIG-"), "{grant:?}");
    assert!(grant.memory > 4 * GIB, "{grant:?}");
    assert!(grant.interposer.ends_with("libmigm_interposer.so"), "{grant:?}");
    assert!(Path::new(&grant.library_path[0]).join("libcuda.so.1").exists());
    assert!(grant.environment.iter().any(|(name, _)| name == "SIMGPU_ID"));

    let driver = daemon.driver();
    let node = &driver.node;
    let there = node.instances(0).unwrap();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].uuid.as_deref(), Some(grant.visible_device.as_str()));
    assert_eq!(there[0].placement.start, grant.start);
    drop(driver);

    runner.ended(&grant, Outcome::Done, None);
    let status = runner.finished();
    assert_eq!(status.attempts[0].outcome, Some(Outcome::Done));
    let slices = &daemon.status().gpus[0].slices;
    assert_eq!((slices.len(), slices[0].state.as_str()), (1, "idle"));
}

#[test]
fn after_an_oom_the_next_slice_holds_what_was_in_use_and_what_was_asked() {
    let daemon = Daemon::tightest(GPU);
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("jumper"), &page);
    let grant = runner.grant();
    let unmet = Unmet {
        asked: 9 * GIB,
        in_use: 4 * GIB,
    };
    runner.ended(&grant, Outcome::Oom, Some(unmet));
    let next = runner.grant();
    // The next size up, 10 GiB, would be too small. Of the two with 20 GiB the one with more SMs is taken.
    assert_eq!(next.profile, "4g.20gb");
    assert_eq!(next.attempt.attempt, 2);
    assert_ne!(next.slice, grant.slice);
    runner.ended(&next, Outcome::Done, None);
    let status = runner.finished();
    assert_eq!(status.attempts.len(), 2);
    assert_eq!(status.attempts[0].outcome, Some(Outcome::Oom));
}

#[test]
fn a_grower_is_moved_before_its_slice_is_full() {
    let daemon = Daemon::tightest(GPU);
    let page = page();
    let asked = Submission {
        iterations: Some(100),
        ..submission("grower")
    };
    let (mut runner, _) = submit(&daemon, asked, &page);
    let grant = runner.grant();
    let mut child = program();
    runner.ask(&Request::Started {
        attempt: grant.attempt,
        pid: child.id(),
    });
    // The process: this one, by the token that the runner gave it.
    let mut process = Peer::of(&daemon);
    process.report(&Report::Hello(Hello {
        pid: std::process::id(),
        attempt: Some(grant.attempt.to_string()),
        program: "grower".into(),
        has_page: false,
    }));
    assert_eq!(process.hear::<Welcome>(), Welcome::Page);
    assert!(process.0.descriptor().is_some(), "the page comes along");
    let device = page.device_index([9; 16]).unwrap();
    let slot = page.join(std::process::id(), 1, 1).unwrap();
    process.report(&Report::Event(Event::Attached {
        slot: u32::try_from(slot).unwrap(),
        devices: vec![(0, [9; 16])],
    }));
    let mut told = None;
    for iteration in 0..40_u64 {
        let reserved = page.add(slot, device, Class::Device, 64 * MIB) + 2 * GIB;
        process.report(&Report::Samples(vec![Sample {
            time_ns: (iteration + 1) * 20_000_000,
            iteration,
            reserved,
            peak: reserved,
            ..Sample::default()
        }]));
        if let Some(reply) = runner.try_hear::<Reply>(Duration::from_millis(20)) {
            told = Some((iteration, reply));
            break;
        }
    }
    let (iteration, reply) = told.expect("no move");
    let Reply::Move { attempt, reason } = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(attempt, grant.attempt);
    assert!(iteration < 38, "moved at {iteration}: {reason}");
    child.kill().unwrap();
    child.wait().unwrap();
    // The process that said hello is this test and lives on, so the slice is not free yet.
    runner.ended(&grant, Outcome::Moved, None);
    assert!(runner.try_hear::<Reply>(Duration::from_millis(500)).is_none());
    let state = daemon.status().jobs[0].state;
    assert_eq!(state, JobState::Moving);
    runner.ask(&Request::Cancel {
        job: grant.attempt.job,
    });
    assert!(matches!(runner.hear(), Reply::Cancel { attempt: Some(_) }));
}

/// A process of a job that tells its memory by a script of its own.
struct Teller {
    peer: Peer,
    at: u64,
}

impl Teller {
    fn join(daemon: &Daemon, grant: &Grant) -> Self {
        let mut peer = Peer::of(daemon);
        peer.report(&Report::Hello(Hello {
            pid: std::process::id(),
            attempt: Some(grant.attempt.to_string()),
            program: "teller".into(),
            has_page: false,
        }));
        assert_eq!(peer.hear::<Welcome>(), Welcome::Page);
        Self { peer, at: 0 }
    }

    /// Tells of iterations of these levels, up to where the runner is told to move: of each third nothing, each
    /// fourth twice, and each fifth only after the two that follow it.
    fn tell(&mut self, levels: impl Iterator<Item = u64>, runner: &mut Peer) -> Option<u64> {
        let mut late: Vec<(u64, Report)> = Vec::new();
        for level in levels {
            let at = self.at;
            self.at += 1;
            let report = Report::Samples(vec![Sample {
                time_ns: (at + 1) * 20_000_000,
                iteration: at,
                reserved: level,
                peak: level,
                ..Sample::default()
            }]);
            match at {
                _ if at % 3 == 2 => {}
                _ if at % 5 == 4 => late.push((at + 2, report)),
                _ => {
                    self.peer.report(&report);
                    if at % 4 == 3 {
                        self.peer.report(&report);
                    }
                }
            }
            while late.first().is_some_and(|(due, _)| *due <= at) {
                self.peer.report(&late.remove(0).1);
            }
            if let Some(reply) = runner.try_hear::<Reply>(Duration::from_millis(5)) {
                assert!(matches!(reply, Reply::Move { .. }), "{reply:?}");
                return Some(at);
            }
        }
        None
    }
}

#[test]
fn samples_lost_doubled_and_late_move_the_job_that_outgrows_its_slice_and_no_other() {
    let daemon = Daemon::tightest(GPU);
    let mut program = program();
    let moved = |levels: &dyn Fn(u64) -> u64| {
        let page = page();
        let asked = Submission {
            iterations: Some(100),
            ..submission("teller")
        };
        let (mut runner, _) = submit(&daemon, asked, &page);
        let grant = runner.grant();
        runner.ask(&Request::Started {
            attempt: grant.attempt,
            pid: program.id(),
        });
        Teller::join(&daemon, &grant).tell((0..100).map(levels), &mut runner)
    };
    let (fits, flat, grows) = (
        moved(&|at| 3 * GIB + at * 12 * MIB),
        moved(&|at| if at < 40 { 2 * GIB } else { 4 * GIB }),
        // Full at iteration 89: no driver charges this job for a context.
        moved(&|at| 3 * GIB + at * 20 * MIB),
    );
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!((fits, flat), (None, None));
    assert!(grows.is_some_and(|at| at < 60), "{grows:?}");
}

/// The runner of one of several copies of a command, of which no run is known.
fn copy(daemon: &Daemon, page: &JobPage) -> Peer {
    let mut runner = Peer::of(daemon);
    runner.ask(&Request::About(About {
        kept: WorkKept::Never,
        history: Some(Evidence {
            signature: "copies".into(),
            ..Evidence::default()
        }),
    }));
    let request = Request::Submit(submission("copy"));
    runner.0.send(&request, Some(descriptor(page))).unwrap();
    assert!(matches!(runner.hear(), Reply::Accepted { .. }));
    runner
}

#[test]
fn copies_that_wait_learn_from_the_one_that_ran_out_of_memory_and_keep_their_places() {
    let daemon = Daemon::tightest(GPU);
    let page = page();
    let mut running: Vec<(Peer, Grant)> = (0..7)
        .map(|_| {
            let mut runner = copy(&daemon, &page);
            let grant = runner.grant();
            assert_eq!(grant.profile, "1g.5gb");
            (runner, grant)
        })
        .collect();
    let mut eighth = copy(&daemon, &page);
    let (mut other, _) = submit(&daemon, submission("other"), &page);
    let unmet = Unmet {
        asked: 5 * GIB,
        in_use: 4 * GIB,
    };
    let (mut first, grant) = running.remove(0);
    first.ended(&grant, Outcome::Oom, Some(unmet));
    // Nobody overtakes the first, for which there is no room, and the eighth knows what it will need.
    assert!(other.try_hear::<Reply>(Duration::from_millis(100)).is_none());
    for (runner, grant) in &mut running {
        runner.ended(grant, Outcome::Done, None);
        assert!(matches!(runner.hear(), Reply::Explained(_)));
        runner.finished();
    }
    assert_eq!(first.grant().profile, "2g.10gb");
    assert_eq!(eighth.grant().profile, "2g.10gb");
    assert_eq!(other.grant().profile, "1g.5gb");
    let mut onlooker = Peer::of(&daemon);
    onlooker.ask(&Request::Explain { job: JobId(8) });
    let Reply::Explained(explained) = onlooker.hear() else {
        panic!("no explanation")
    };
    let reasons: Vec<&str> = explained
        .decisions
        .iter()
        .map(|decision| decision.reason.as_str())
        .collect();
    assert!(
        reasons[1].starts_with("need 9.00 GiB, by what job 1 came to: history: 1 run"),
        "{reasons:?}"
    );
    assert!(
        explained.start.starts_with("history: 1 run"),
        "{}",
        explained.start
    );
}
