//! The daemon as a process, on a simulated GPU, with scripted runners, commands and processes as peers.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use migm_shared::frame::{Message, encode};
use migm_shared::ids::{BatchId, JobId};
use migm_shared::page::Class;
use migm_shared::report::{Event, Hello, Report, Sample, Welcome};
use migm_shared::units::{GIB, MIB};
use migm_supervisor::control::{
    About, Evidence, Figures, Grant, JobState, JobStatus, NodeStatus, Outcome, Reply, Request, Submission,
    Unmet, WorkKept,
};
use migm_supervisor::daemon::connection::Connection;
use migm_supervisor::job::page::JobPage;
use migm_supervisor::node::sim::{self, SimulatedGpu};
use migm_supervisor::node::{Instance, Node, Nvml};

use support::migm;

/// Far more than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const GPU: &str = "a100-40gb";

/// A supervisor with a folder of its own; killed when dropped.
struct Daemon {
    folder: tempfile::TempDir,
    child: Option<Child>,
    environment: Vec<(&'static str, String)>,
}

impl Daemon {
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    fn start(arguments: &[&str]) -> Self {
        let mut daemon = Self {
            folder: Self::folder(),
            child: None,
            environment: Vec::new(),
        };
        daemon.launch(arguments);
        daemon
    }

    fn simulated() -> Self {
        Self::start(&["--sim", GPU, "--time-scale", "0.05"])
    }

    /// Each job on the tightest slice.
    fn tightest() -> Self {
        Self::start(&["--sim", GPU, "--time-scale", "0.05", "--policy", "scheme-b"])
    }

    fn launch(&mut self, arguments: &[&str]) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let child = Command::new(migm())
            .arg("supervisor")
            .arg("--socket")
            .arg(self.socket())
            .args(arguments)
            .env_remove("MIGM_SOCKET")
            .env("MIGM_LOG", "debug")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let until = Instant::now() + PATIENCE;
        while UnixStream::connect(self.socket()).is_err() {
            assert!(
                self.child.as_mut().unwrap().try_wait().unwrap().is_none(),
                "{}",
                self.log()
            );
            assert!(Instant::now() < until, "{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("migm.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    fn peer(&self) -> Peer {
        Peer::connect(&self.socket())
    }

    fn status(&self) -> NodeStatus {
        let mut peer = self.peer();
        peer.ask(&Request::Status);
        match peer.hear::<Reply>() {
            Reply::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn terminate(&mut self) -> ExitStatus {
        let child = self.child.as_mut().unwrap();
        // SAFETY: the pid is that of a child not yet waited for.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        self.wait()
    }

    fn wait(&mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            if Instant::now() > until {
                let _ = child.kill();
                panic!("still runs:\n{}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A supervisor that meets a GPU as on a real machine: by the loader, and not its own.
    fn on(machine: &Loaded, environment: &[(&'static str, &str)]) -> Self {
        Self::configured(machine, environment, "")
    }

    fn configured(machine: &Loaded, environment: &[(&'static str, &str)], config: &str) -> Self {
        let mut daemon = Self {
            folder: Self::folder(),
            child: None,
            environment: vec![
                ("LD_LIBRARY_PATH", machine.links.path().display().to_string()),
                ("SIMGPU_ID", machine.gpu.id().to_owned()),
            ],
        };
        let more = environment
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        daemon.environment.extend(more);
        let file = daemon.folder.path().join("config.toml");
        fs::write(&file, config).unwrap();
        daemon.launch(&["--config", file.to_str().unwrap()]);
        daemon
    }

    /// NVML over the daemon's simulated GPU, in this process. One at a time: the choice is the process's.
    fn node(&self) -> (MutexGuard<'static, ()>, SimulatedGpu, Nvml) {
        let turn = turn();
        let state: serde_json::Value =
            serde_json::from_slice(&fs::read(self.folder.path().join("migm.state.json")).unwrap()).unwrap();
        let id = state["simulated"]["id"].as_str().unwrap();
        let gpu = SimulatedGpu::attach(&self.folder.path().join("migm.sim"), id).unwrap();
        let node = gpu.node().unwrap();
        (turn, gpu, node)
    }
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A GPU that is there before any supervisor.
struct Loaded {
    links: tempfile::TempDir,
    gpu: SimulatedGpu,
    node: Nvml,
    _turn: MutexGuard<'static, ()>,
}

impl Loaded {
    fn new(mig: bool) -> Self {
        let turn = turn();
        let links = Daemon::folder();
        sim::objects().unwrap().link(links.path(), true).unwrap();
        let gpu = SimulatedGpu::create(links.path(), GPU, mig, 0.05).unwrap();
        let node = gpu.node().unwrap();
        Self {
            links,
            gpu,
            node,
            _turn: turn,
        }
    }

    /// An instance that somebody else made.
    fn instance(&self, profile: &str, start: u32) -> Instance {
        let profiles = self.node.profiles(0).unwrap();
        let kind = profiles.iter().find(|kind| kind.name == profile).unwrap();
        let place = *kind.placements.iter().find(|place| place.start == start).unwrap();
        self.node.create(0, kind, place).unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.gpu.remove();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // In good order, so that the simulated GPU goes too.
            // SAFETY: the pid is that of a child not yet waited for.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
            let until = Instant::now() + Duration::from_secs(10);
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        // A job that still had its lease keeps the GPU beyond its supervisor.
        if self.folder.path().join("migm.sim").exists() && !std::thread::panicking() {
            let (_turn, gpu, _node) = self.node();
            let _ = gpu.remove();
        }
        if std::thread::panicking() {
            eprintln!("supervisor's log:\n{}", self.log());
        }
    }
}

/// One end of a conversation, by the book.
struct Peer(Connection);

impl Peer {
    fn connect(socket: &Path) -> Self {
        Self(Connection::new(UnixStream::connect(socket).unwrap()).unwrap())
    }

    fn ask(&mut self, request: &Request) {
        self.0.send(request, None).unwrap();
    }

    fn report(&mut self, report: &Report) {
        self.0.send(report, None).unwrap();
    }

    fn try_hear<M: Message>(&mut self, patience: Duration) -> Option<M> {
        let until = Instant::now() + patience;
        loop {
            if let Some(message) = self.0.take::<M>().unwrap() {
                return Some(message);
            }
            if !self.0.receive().ok()? {
                if Instant::now() >= until {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    fn hear<M: Message>(&mut self) -> M {
        self.try_hear(PATIENCE).expect("no answer")
    }

    /// Whether the other side closes the connection before long.
    fn is_closed(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.0.receive().is_err() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    fn grant(&mut self) -> Grant {
        match self.hear() {
            Reply::Grant(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn finished(&mut self) -> JobStatus {
        match self.hear() {
            Reply::Finished(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self, grant: &Grant, outcome: Outcome, unmet: Option<Unmet>) {
        self.ask(&Request::Ended {
            attempt: grant.attempt,
            status: i32::from(outcome != Outcome::Done),
            outcome,
            figures: Figures::default(),
            unmet,
        });
    }
}

/// A counter page as a runner makes it.
fn page() -> JobPage {
    JobPage::create(1).unwrap()
}

fn descriptor(page: &JobPage) -> OwnedFd {
    page.as_fd().try_clone_to_owned().unwrap()
}

fn submission(name: &str) -> Submission {
    Submission {
        name: name.into(),
        command: vec!["program".into(), name.into()],
        mem: None,
        iterations: None,
        movable: true,
        visible_devices: None,
        use_existing: false,
        batch: None,
        part: None,
        nonce: 0xfeed,
        runner: std::process::id(),
    }
}

/// A runner whose job has been accepted, with the answer.
fn submit(daemon: &Daemon, submission: Submission, page: &JobPage) -> (Peer, Reply) {
    let mut runner = daemon.peer();
    runner
        .0
        .send(&Request::Submit(submission), Some(descriptor(page)))
        .unwrap();
    let answer = runner.hear();
    (runner, answer)
}

/// A program of a job, alone in its group as a runner starts it.
fn program() -> Child {
    Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
}

#[test]
fn a_job_gets_the_smallest_slice_and_leaves_it_idle() {
    let daemon = Daemon::tightest();
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

    let (_turn, _gpu, node) = daemon.node();
    let there = node.instances(0).unwrap();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].uuid.as_deref(), Some(grant.visible_device.as_str()));
    assert_eq!(there[0].placement.start, grant.start);
    drop((_turn, node));

    runner.ended(&grant, Outcome::Done, None);
    let status = runner.finished();
    assert_eq!(status.attempts[0].outcome, Some(Outcome::Done));
    let slices = &daemon.status().gpus[0].slices;
    assert_eq!((slices.len(), slices[0].state.as_str()), (1, "idle"));
}

#[test]
fn after_an_oom_the_next_slice_holds_what_was_in_use_and_what_was_asked() {
    let daemon = Daemon::tightest();
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
    let daemon = Daemon::tightest();
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
    let mut process = daemon.peer();
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
        let mut peer = daemon.peer();
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
    let daemon = Daemon::tightest();
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
    let mut runner = daemon.peer();
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
    let daemon = Daemon::tightest();
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
    let mut onlooker = daemon.peer();
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

#[test]
fn killed_in_the_middle_the_next_one_adopts_and_leaves_foreign_instances_alone() {
    let mut daemon = Daemon::simulated();
    let foreign = {
        let (_turn, _gpu, node) = daemon.node();
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
    daemon.launch(&["--sim", GPU, "--time-scale", "0.05"]);
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

    let mut runner = daemon.peer();
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
    let (_turn, _gpu, node) = daemon.node();
    assert!(daemon.terminate().success());
    let left = node.instances(0).unwrap();
    assert_eq!(left, [foreign]);
}

#[test]
fn a_real_job_goes_on_while_its_supervisor_is_killed_and_comes_back() {
    let mut daemon = Daemon::simulated();
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
    support::eventually("memory in use", PATIENCE, || {
        (reserved(&daemon) > 0).then_some(())
    });
    daemon.kill();
    assert!(
        run.try_wait().unwrap().is_none(),
        "the job is over too early to tell"
    );
    daemon.launch(&["--sim", GPU, "--time-scale", "0.05"]);
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
fn in_mode_whole_jobs_get_a_gpu_one_at_a_time_and_its_own_mode_stays() {
    let machine = Loaded::new(false);
    let daemon = Daemon::configured(&machine, &[], "mode = 'whole'\n");
    let pages = [page(), page()];
    let (mut first, answer) = submit(&daemon, submission("first"), &pages[0]);
    let Reply::Accepted {
        notice: Some(notice), ..
    } = answer
    else {
        panic!("{answer:?}")
    };
    assert!(notice.contains("MIG is off on GPU 0"), "{notice}");
    let grant = first.grant();
    assert_eq!((grant.profile.as_str(), grant.start), ("whole", 0));
    assert!(grant.visible_device.starts_with("GPU-"), "{grant:?}");
    assert!(
        grant.library_path.is_empty(),
        "the loader has its own folders: {grant:?}"
    );
    let (mut second, _) = submit(&daemon, submission("second"), &pages[1]);
    assert!(second.try_hear::<Reply>(Duration::from_millis(300)).is_none());
    first.ended(&grant, Outcome::Done, None);
    first.finished();
    let next = second.grant();
    assert_eq!(next.slice, grant.slice);
    let status = daemon.status();
    assert_eq!((status.gpus[0].mode.as_str(), status.simulated), ("whole", true));
    assert_eq!(
        machine.node.gpus().unwrap()[0].mode,
        migm_supervisor::node::MigMode::Off
    );
    second.ended(&next, Outcome::Done, None);
    second.finished();
}

#[test]
fn without_permission_a_job_is_refused_with_the_capability_and_the_remedy() {
    let machine = Loaded::new(true);
    let daemon = Daemon::on(&machine, &[("SIMGPU_NO_PERMISSION", "1")]);
    for _ in 0..2 {
        let mut runner = daemon.peer();
        let submit = Request::Submit(submission("powerless"));
        runner.0.send(&submit, Some(descriptor(&page()))).unwrap();
        let reason = loop {
            match runner.hear() {
                Reply::Accepted { .. } => {}
                Reply::Refused { reason } => break reason,
                other => panic!("{other:?}"),
            }
        };
        for said in [
            "NO_PERMISSION",
            "/proc/driver/nvidia/capabilities/mig/config",
            "--use-existing",
        ] {
            assert!(reason.contains(said), "{reason}");
        }
    }
}

#[test]
fn without_permission_idle_instances_of_others_are_used_and_left_as_they_were() {
    let machine = Loaded::new(true);
    let theirs = machine.instance("2g.10gb", 2);
    let mut daemon = Daemon::on(&machine, &[("SIMGPU_NO_PERMISSION", "1")]);
    let asked = Submission {
        use_existing: true,
        ..submission("guest")
    };
    let page = page();
    let (mut runner, _) = submit(&daemon, asked, &page);
    let grant = runner.grant();
    assert_eq!((grant.profile.as_str(), grant.start), ("2g.10gb", 2));
    assert_eq!(Some(grant.visible_device.as_str()), theirs.uuid.as_deref());
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    assert!(daemon.terminate().success());
    assert_eq!(machine.node.instances(0).unwrap(), [theirs]);
}

#[test]
fn a_lease_without_runner_lasts_as_long_as_its_process() {
    let daemon = Daemon::simulated();
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
    let daemon = Daemon::simulated();
    let mut command = daemon.peer();
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

#[test]
fn a_private_supervisor_ends_after_its_last_client_and_leaves_nothing() {
    let mut daemon = Daemon {
        folder: Daemon::folder(),
        child: None,
        environment: Vec::new(),
    };
    daemon.launch(&["--private", "--sim", GPU, "--time-scale", "0.05"]);
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("only"), &page);
    let grant = runner.grant();
    let (_turn, _gpu, node) = daemon.node();
    runner.ended(&grant, Outcome::Done, None);
    runner.finished();
    drop(runner);
    assert!(daemon.wait().success());
    assert!(node.instances(0).unwrap().is_empty(), "its idle slice is removed");
    for gone in ["migm.sock", "migm.state.json", "migm.sim"] {
        assert!(
            !daemon.folder.path().join(gone).exists(),
            "{gone}\n{}",
            daemon.log()
        );
    }
}

#[test]
fn garbage_costs_the_sender_its_connection_and_nobody_else() {
    let daemon = Daemon::simulated();
    let mut other = daemon.peer();
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"MIGM\x02\x00\x09\x00\x00\x00\x00\x00".to_vec(),
        // A body of 4 GiB is refused from its header.
        b"MIGM\x02\x00\x03\x00\xff\xff\xff\xff".to_vec(),
        // A report before hello.
        encode(&Report::Event(Event::Leaving)).unwrap(),
    ] {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        stream.write_all(&garbage).unwrap();
        assert!(
            Peer(Connection::new(stream).unwrap()).is_closed(),
            "{garbage:02x?}"
        );
    }
    other.ask(&Request::Status);
    assert!(matches!(other.hear(), Reply::Status(_)));
    assert_eq!(
        daemon.log().matches("a peer is dropped").count(),
        4,
        "{}",
        daemon.log()
    );
}

#[test]
fn a_command_that_never_reads_is_dropped() {
    let daemon = Daemon::simulated();
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    let request = encode(&Request::Status).unwrap();
    let many: Vec<u8> = request
        .iter()
        .copied()
        .cycle()
        .take(request.len() * 1000)
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let until = Instant::now() + PATIENCE;
    while writer.write_all(&many).is_ok() {
        assert!(
            Instant::now() < until,
            "the supervisor keeps all that it cannot send"
        );
    }
    assert_eq!(daemon.status().gpus.len(), 1);
}

#[test]
fn a_page_that_could_shrink_is_refused() {
    let daemon = Daemon::simulated();
    let mut runner = daemon.peer();
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    runner
        .0
        .send(&Request::Submit(submission("bad")), Some(file))
        .unwrap();
    let Reply::Refused { reason } = runner.hear() else {
        panic!()
    };
    assert!(reason.contains("counter page"), "{reason}");
}

#[test]
fn a_hidden_or_unknown_gpu_is_refused_by_name() {
    let daemon = Daemon::simulated();
    for (list, said) in [
        ("", "hides all GPUs"),
        ("3", "`3`"),
        ("GPU-nothing", "`GPU-nothing`"),
    ] {
        let asked = Submission {
            visible_devices: Some(list.into()),
            ..submission("picky")
        };
        let (_, answer) = submit(&daemon, asked, &page());
        assert!(
            matches!(&answer, Reply::Refused { reason } if reason.contains(said)),
            "{answer:?}"
        );
    }
    let asked = Submission {
        visible_devices: Some("0".into()),
        ..submission("content")
    };
    let (mut runner, _) = submit(&daemon, asked, &page());
    runner.grant();
}

#[test]
fn a_user_who_names_one_gpu_of_two_gets_slices_there_and_moves_there() {
    let daemon = Daemon::start(&[
        "--sim",
        "a100-40gb:2",
        "--time-scale",
        "0.05",
        "--policy",
        "scheme-b",
    ]);
    let uuids = daemon
        .status()
        .gpus
        .into_iter()
        .map(|gpu| gpu.uuid)
        .collect::<Vec<_>>();
    for (list, expected) in [
        ("1".to_owned(), &uuids[1]),
        (uuids[0][..12].to_owned(), &uuids[0]),
    ] {
        let asked = Submission {
            visible_devices: Some(list),
            ..submission("picky")
        };
        let (mut runner, _) = submit(&daemon, asked, &page());
        let grant = runner.grant();
        assert_eq!(&grant.gpu_uuid, expected);
        let unmet = Unmet {
            asked: 9 * GIB,
            in_use: 4 * GIB,
        };
        runner.ended(&grant, Outcome::Oom, Some(unmet));
        let next = runner.grant();
        assert_eq!(&next.gpu_uuid, expected);
        runner.ended(&next, Outcome::Done, None);
        runner.finished();
    }
}

#[test]
fn a_process_without_runner_is_watched_until_it_is_gone() {
    let daemon = Daemon::simulated();
    let mut process = daemon.peer();
    let page = page();
    let hello = Report::Hello(Hello {
        pid: std::process::id(),
        attempt: None,
        program: "by-hand".into(),
        has_page: true,
    });
    process.0.send(&hello, Some(descriptor(&page))).unwrap();
    assert_eq!(process.hear::<Welcome>(), Welcome::OwnPage);
    let job = daemon.status().jobs.remove(0);
    assert_eq!((job.name.as_str(), job.state), ("by-hand", JobState::Watched));
}

/// This test's own limit may be lower than the supervisor's.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}

#[test]
fn a_thousand_processes_are_welcome() {
    let daemon = Daemon::simulated();
    let mut processes = Vec::new();
    raise_descriptor_limit();
    for _ in 0..1000 {
        let mut process = daemon.peer();
        process.report(&Report::Hello(Hello {
            pid: 1,
            attempt: None,
            program: "many".into(),
            has_page: false,
        }));
        processes.push(process);
    }
    for process in &mut processes {
        assert_eq!(process.hear::<Welcome>(), Welcome::OwnPage);
    }
}

#[test]
fn out_of_descriptors_it_serves_again_when_some_are_free() {
    let folder = Daemon::folder();
    let socket = folder.path().join("migm.sock");
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48 && exec \"$0\" supervisor --sim a100-40gb --socket \"$1\"",
        ])
        .args([migm(), socket.clone()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    support::eventually("a socket", PATIENCE, || UnixStream::connect(&socket).ok());
    let crowd: Vec<Peer> = (0..80).map(|_| Peer::connect(&socket)).collect();
    let mut last = Peer::connect(&socket);
    last.ask(&Request::Status);
    assert!(
        last.try_hear::<Reply>(Duration::from_millis(500)).is_none(),
        "48 descriptors hold no 81 peers"
    );
    drop(crowd);
    assert!(matches!(last.hear(), Reply::Status(_)));
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}

#[test]
fn another_user_sees_no_jobs_of_ours() {
    // SAFETY: takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can play another user");
        return;
    }
    let daemon = Daemon::simulated();
    let folder = daemon.folder.path();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("secret"), &page);
    let grant = runner.grant();
    // A copy, since nobody may be unable to reach the build's folder.
    let copy = folder.join("migm");
    fs::copy(migm(), &copy).unwrap();
    let output = Command::new(&copy)
        .args(["status", "--json"])
        .env("MIGM_SOCKET", daemon.socket())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let status: serde_json::Value = support::json(&output);
    assert_eq!(status["jobs"].as_array().map(Vec::len), Some(0), "{status}");
    assert_eq!(status["gpus"][0]["slices"][0]["state"], "busy", "{status}");
    runner.ended(&grant, Outcome::Done, None);
    assert_eq!(daemon.status().jobs.len(), 1);
}

#[test]
fn systemd_hears_ready_and_the_watchdog() {
    let folder = Daemon::folder();
    let notify = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = Command::new(migm())
        .args(["supervisor", "--sim", GPU, "--socket"])
        .arg(folder.path().join("migm.sock"))
        .env("NOTIFY_SOCKET", &notify)
        .env("WATCHDOG_USEC", "400000")
        .env_remove("WATCHDOG_PID")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hear = || {
        let mut text = [0; 256];
        let length = systemd.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert!(
        UnixStream::connect(folder.path().join("migm.sock")).is_ok(),
        "ready means that it listens"
    );
    let since = Instant::now();
    for _ in 0..5 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    // systemd kills after 400 ms without a ping.
    assert!(
        since.elapsed() < Duration::from_millis(5 * 400),
        "{:?}",
        since.elapsed()
    );
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let last = std::iter::repeat_with(hear).find(|text| text != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(child.wait().unwrap().success());
}

fn fails(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = Daemon::folder();
    let output = Command::new(migm())
        .arg("supervisor")
        .args(["--socket", folder.path().join("migm.sock").to_str().unwrap()])
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty());
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    )
}

#[test]
fn no_driver_is_one_line_and_exit_3() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("skipped: this machine has an NVIDIA driver");
        return;
    }
    let (code, said) = fails(&[], &[("LD_LIBRARY_PATH", "")]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no NVIDIA driver"), "{said}");
}

#[test]
fn a_wrong_configuration_is_exit_2_with_its_line() {
    let folder = Daemon::folder();
    let config = folder.path().join("migm.toml");
    fs::write(&config, "sample_ms = 100\ngrace = 3\n").unwrap();
    let (code, said) = fails(&["--config", config.to_str().unwrap(), "--sim", GPU], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("migm.toml:2:1: unknown field `grace`"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn an_unknown_model_is_exit_2_and_named() {
    let (code, said) = fails(&["--sim", "gtx-9000"], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("gtx-9000"), "{said}");
}

#[test]
fn a_second_supervisor_on_a_socket_is_refused() {
    let daemon = Daemon::simulated();
    let output = Command::new(migm())
        .args(["supervisor", "--sim", GPU, "--socket"])
        .arg(daemon.socket())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another supervisor serves"), "{said}");
    assert_eq!(daemon.status().gpus.len(), 1);
}
