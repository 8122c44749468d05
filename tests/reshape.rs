//! Reshaping for real: the supervisor as a process on a simulated GPU, killed at every step, and a driver
//! that refuses, hangs and loses GPUs.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use migm_shared::ids::Incarnation;
use migm_supervisor::control::client::Client;
use migm_supervisor::control::{Figures, Grant, NodeStatus, Outcome, Reply, Request, Submission};
use migm_supervisor::daemon::machine::{Answer, Machine, Order};
use migm_supervisor::daemon::tend::Tended;
use migm_supervisor::job::page::JobPage;
use migm_supervisor::layout::{Placement, Profile};
use migm_supervisor::node::sim::SimulatedGpu;
use migm_supervisor::node::{Gpu, Instance, Memory, MigMode, Node, NodeError, Nvml, Process};
use simgpu::device_files::DeviceFile;
use support::{Place, eventually, json, migm};

/// Far more than any step takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Simulated time runs twenty times as fast.
const SCALE: &str = "0.05";

/// A supervisor on a simulated machine of its own, and that machine's NVML. Killed when dropped.
struct Daemon {
    folder: tempfile::TempDir,
    sim: &'static str,
    policy: &'static str,
    child: Option<Child>,
}

impl Daemon {
    /// By scheme B: most tests here say what slices are made, and in what order.
    fn start(sim: &'static str) -> Self {
        Self::by("scheme-b", sim)
    }

    fn by(policy: &'static str, sim: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut daemon = Self {
            folder,
            sim,
            policy,
            child: None,
        };
        daemon.launch();
        daemon
    }

    fn launch(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let child = Command::new(migm())
            .args(["supervisor", "--sim", self.sim, "--time-scale", SCALE, "--socket"])
            .arg(self.socket())
            .args(["--policy", self.policy])
            .env_remove("MIGM_SOCKET")
            .env("MIGM_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        eventually("a supervisor", PATIENCE, || Client::connect(&self.socket()).ok());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn socket(&self) -> PathBuf {
        self.path("migm.sock")
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    fn status(&self) -> NodeStatus {
        let pick = |reply| match reply {
            Reply::Status(node) => Some(*node),
            _ => None,
        };
        self.client().ask(&Request::Status, PATIENCE, pick).unwrap()
    }

    fn state(&self) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.path("migm.state.json")).unwrap()).unwrap()
    }

    /// `migm node` and the like against this supervisor.
    fn migm(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(migm());
        command
            .args(arguments)
            .env("MIGM_SOCKET", self.socket())
            .env_remove("NO_COLOR");
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn terminate(&mut self) {
        let mut child = self.child.take().unwrap();
        // SAFETY: the pid is that of a child not yet waited for.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        let ended = eventually("the end of the supervisor", PATIENCE, || {
            child.try_wait().unwrap()
        });
        assert!(ended.success(), "{ended}");
    }

    /// The machine behind it, as long as the answer lives: the choice of a machine is the process's.
    fn driver(&self) -> Driver {
        let turn = turn();
        let id = self.state()["simulated"]["id"].as_str().unwrap().to_owned();
        let gpu = SimulatedGpu::attach(&self.path("migm.sim"), &id).unwrap();
        let node = gpu.node().unwrap();
        Driver {
            node,
            gpu,
            _turn: turn,
        }
    }

    fn faults(&self, text: &str) {
        self.driver().gpu.set_faults(text).unwrap();
    }

    /// An instance that somebody else made before this supervisor came.
    fn foreign(&mut self, profile: &str, start: u32) -> Instance {
        let made = self.driver().make(0, profile, start);
        self.kill();
        self.launch();
        made
    }

    fn instances(&self, gpu: u32) -> Vec<Instance> {
        self.driver().node.instances(gpu).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!(
                "{}",
                std::fs::read_to_string(self.path("log")).unwrap_or_default()
            );
        } else if self.path("migm.sim").exists() {
            let _ = self.driver().gpu.remove();
        }
    }
}

struct Driver {
    node: Nvml,
    gpu: SimulatedGpu,
    _turn: MutexGuard<'static, ()>,
}

fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    fn make(&self, gpu: u32, profile: &str, start: u32) -> Instance {
        let (kind, place) = self.slot(gpu, profile, start);
        self.node.create(gpu, &kind, place).unwrap()
    }

    fn slot(&self, gpu: u32, profile: &str, start: u32) -> (Profile, Placement) {
        slot(&self.node, gpu, profile, start)
    }
}

fn slot(node: &dyn Node, gpu: u32, profile: &str, start: u32) -> (Profile, Placement) {
    let profiles = node.profiles(gpu).unwrap();
    let kind = profiles.into_iter().find(|kind| kind.name == profile).unwrap();
    let place = *kind.placements.iter().find(|place| place.start == start).unwrap();
    (kind, place)
}

/// A job by the book: its runner's connection and page.
struct Job {
    client: Client,
    _page: JobPage,
}

impl Job {
    fn submit(daemon: &Daemon, mem: u64) -> Self {
        Self::on(daemon, mem, None)
    }

    fn on(daemon: &Daemon, mem: u64, devices: Option<&str>) -> Self {
        let submission = Submission {
            name: format!("needs-{mem}"),
            command: vec!["program".into()],
            mem: Some(mem),
            iterations: None,
            movable: true,
            visible_devices: devices.map(str::to_owned),
            use_existing: false,
            batch: None,
            part: None,
            nonce: 7,
            runner: std::process::id(),
        };
        let page = JobPage::create(1).unwrap();
        let mut client = daemon.client();
        client
            .send(&Request::Submit(submission), Some(page.as_fd()))
            .unwrap();
        Self { client, _page: page }
    }

    fn hear(&mut self, patience: Duration) -> Option<Reply> {
        loop {
            match self.client.receive(patience) {
                Ok(Some(Reply::Accepted { .. })) => {}
                Ok(reply) => return reply,
                Err(_) => return None,
            }
        }
    }

    fn grant(&mut self) -> Grant {
        match self.hear(PATIENCE) {
            Some(Reply::Grant(grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn end(mut self, grant: &Grant) {
        let ended = Request::Ended {
            attempt: grant.attempt,
            status: 0,
            outcome: Outcome::Done,
            figures: Figures::default(),
            unmet: None,
        };
        self.client.send(&ended, None).unwrap();
        assert!(matches!(self.hear(PATIENCE), Some(Reply::Finished(_))));
    }
}

fn run(daemon: &Daemon, mem: u64) -> Grant {
    let mut job = Job::submit(daemon, mem);
    let grant = job.grant();
    job.end(&grant);
    grant
}

/// What must be true of a machine after a supervisor was killed and the next one has looked around: foreign
/// instances as they were, all else ours by number, nothing half made, nothing in the file still under way.
fn nothing_is_lost(daemon: &Daemon, foreign: &[Instance], when: &str) {
    let status = daemon.status();
    let there = daemon.instances(0);
    for one in foreign {
        assert!(
            there.contains(one),
            "{when}: a foreign instance is gone: {there:?}"
        );
    }
    for one in &there {
        assert!(!one.cis.is_empty(), "{when}: half an instance: {there:?}");
        let slice = status.gpus[0]
            .slices
            .iter()
            .find(|slice| slice.start == one.placement.start);
        let slice = slice.unwrap_or_else(|| panic!("{when}: unknown {one:?}"));
        let is_foreign = foreign.contains(one);
        assert_eq!(
            slice.state,
            if is_foreign { "foreign" } else { "idle" },
            "{when}: {status:?}"
        );
        assert_eq!(slice.incarnation.is_some(), !is_foreign, "{when}: {status:?}");
        assert_eq!(slice.uuid, one.uuid, "{when}");
    }
    assert_eq!(status.gpus[0].slices.len(), there.len(), "{when}: {status:?}");
    let file = daemon.state();
    let slices = file["slices"].as_array().unwrap();
    assert!(
        slices.iter().all(|slice| slice["step"] == "ready"),
        "{when}: {file}"
    );
}

/// A reshape is a chain of NVML calls: compute instance and GPU instance of each slice that goes, then of the
/// slice that comes. The supervisor dies within each of these calls in turn (simgpu holds up the k-th), and the
/// one after it goes on from there: fusion first, then fission, on a GPU half of which belongs to somebody else.
#[test]
fn killed_at_every_step_the_next_supervisor_goes_on_from_a_legal_layout() {
    killed_at_every_step("scheme-b");
}

/// The same with orders that a decider gives, of one that takes the tightest slice too.
#[test]
fn killed_at_every_step_of_a_decider_the_next_supervisor_goes_on() {
    killed_at_every_step("mfi");
}

fn killed_at_every_step(policy: &'static str) {
    let mut daemon = Daemon::by(policy, "a100-40gb");
    let foreign = vec![daemon.foreign("4g.20gb", 0)];
    let (small, large) = (4_000_000_000, 19_000_000_000);
    let mut kills = Vec::new();
    for (name, before, wanted) in [("fusion", small, large), ("fission", large, small)] {
        for step in 1.. {
            // Two small slices, or the large one.
            let mut first = Job::submit(&daemon, before);
            let grant = first.grant();
            if before == small {
                run(&daemon, before);
            }
            first.end(&grant);
            nothing_is_lost(&daemon, &foreign, name);
            daemon.faults(&format!("change@{step}=200000ms"));
            let mut job = Job::submit(&daemon, wanted);
            if let Some(Reply::Grant(grant)) = job.hear(Duration::from_millis(400)) {
                // The chain has no such step: all have had their turn.
                job.end(&grant);
                daemon.faults("");
                break;
            }
            daemon.kill();
            daemon.faults("");
            let when = format!("{name}, killed in call {step}");
            kills.push(when.clone());
            daemon.launch();
            nothing_is_lost(&daemon, &foreign, &when);
            // The job that it was for comes back with its runner, and gets its slice.
            run(&daemon, wanted);
            nothing_is_lost(&daemon, &foreign, &when);
        }
    }
    assert!(
        kills.len() >= 8,
        "the chains are shorter than they can be: {kills:?}"
    );
    let last = daemon.driver();
    daemon.terminate();
    assert_eq!(
        last.node.instances(0).unwrap(),
        foreign,
        "something of ours was left"
    );
    drop(last);
}

#[test]
fn a_create_that_the_driver_refuses_is_planned_elsewhere() {
    let daemon = Daemon::start("a100-40gb");
    daemon.faults("create-gi@1=insufficient-resources");
    let mut job = Job::submit(&daemon, 4_000_000_000);
    let grant = job.grant();
    assert_ne!(
        grant.start, 6,
        "the place that was refused is where the table would have it"
    );
    job.end(&grant);
    // Half-made ones are taken back.
    daemon.faults("create-ci@1=insufficient-resources");
    let grant = run(&daemon, 9_000_000_000);
    assert_eq!(grant.profile, "2g.10gb");
    assert!(daemon.instances(0).iter().all(|one| !one.cis.is_empty()));
}

#[test]
fn what_the_driver_refuses_a_decider_is_had_elsewhere_or_later() {
    for policy in ["migm", "mfi"] {
        let daemon = Daemon::by(policy, "a100-40gb");
        for fault in ["create-gi", "create-ci"] {
            daemon.faults(&format!("{fault}@1x2=insufficient-resources"));
            run(&daemon, 9_000_000_000);
            let there = daemon.instances(0);
            assert!(there.iter().all(|one| !one.cis.is_empty()), "{policy}: {there:?}");
            // The next job needs a create too.
            daemon.migm(&["node", "clear", "--sim", "a100-40gb"]);
        }
    }
}

#[test]
fn a_gpu_lost_in_a_reshape_is_put_aside_and_the_other_goes_on() {
    for policy in ["scheme-b", "mfi"] {
        lost_in_a_reshape(policy);
    }
}

fn lost_in_a_reshape(policy: &'static str) {
    let daemon = Daemon::by(policy, "a100-40gb:2");
    let small = 4_000_000_000;
    let mut here = Job::on(&daemon, small, Some("0"));
    let (mut there, lost) = (Job::on(&daemon, small, Some("1")), "gpu1/create-gi@1=lost");
    let (on_0, on_1) = (here.grant(), there.grant());
    let before = daemon.instances(1);
    daemon.faults(lost);
    // In the middle of a transition on GPU 1.
    let mut waits = Job::on(&daemon, 9_000_000_000, Some("1"));
    let status = eventually("GPU 1 put aside", PATIENCE, || {
        let status = daemon.status();
        (status.gpus[1].mode == "lost").then_some(status)
    });
    assert_eq!(status.gpus[0].mode, "mig");
    let note = |status: &NodeStatus, id| {
        status
            .jobs
            .iter()
            .find(|job| job.id == id)
            .and_then(|job| job.note.clone())
            .unwrap_or_default()
    };
    let said = note(&status, on_1.attempt.job);
    assert!(
        said.contains("GPU 1 is put aside") && said.contains("GPU_IS_LOST"),
        "{said}"
    );
    assert!(!note(&status, on_0.attempt.job).contains("put aside"));
    // Others are served, and the first one is left alone.
    let anywhere = run(&daemon, 9_000_000_000);
    assert_eq!(anywhere.gpu_uuid, on_0.gpu_uuid);
    here.end(&on_0);
    assert!(
        waits.hear(Duration::ZERO).is_none(),
        "it waits for the GPU that it named"
    );
    let listed = json(&daemon.migm(&["node", "list", "--json", "--sim", "a100-40gb:2"]));
    assert_eq!(
        (&listed["gpus"][0]["mode"], &listed["gpus"][1]["mode"]),
        (&"mig".into(), &"lost".into())
    );
    // It comes back with its instances: ours is ours, its job keeps it, and the wait is over.
    daemon.faults("");
    let grant = waits.grant();
    assert_eq!(grant.gpu_uuid, on_1.gpu_uuid);
    assert!(daemon.instances(1).contains(&before[0]));
    let status = daemon.status();
    let slice = status.gpus[1]
        .slices
        .iter()
        .find(|slice| slice.start == on_1.start)
        .unwrap();
    assert_eq!(
        (slice.state.as_str(), slice.incarnation),
        ("busy", Some(on_1.slice))
    );
    there.end(&on_1);
    waits.end(&grant);
}

/// Each profile name means something else on each, and so does each table.
#[test]
fn gpus_of_two_kinds_each_get_what_fits_them_and_neither_waits_for_the_other() {
    let daemon = Daemon::start("a100-40gb:1,a30-24gb:1");
    let on = |grant: &Grant| if grant.gpu.contains("A30") { "A30" } else { "A100" };
    // The tightest of both: 1g.5gb has 4.75 GiB, 1g.6gb has 5.8.
    let mut jobs = Vec::new();
    for (mem, profile, gpu) in [
        (4_000_000_000, "1g.5gb", "A100"),
        (5_500_000_000, "1g.6gb", "A30"),
        (20_000_000_000, "4g.20gb", "A100"),
        (11_000_000_000, "2g.12gb", "A30"),
    ] {
        let mut job = Job::submit(&daemon, mem);
        let grant = job.grant();
        assert_eq!((grant.profile.as_str(), on(&grant)), (profile, gpu));
        jobs.push((job, grant));
    }
    let status = daemon.status();
    assert!(status.gpus[0].name.contains("A100") && status.gpus[1].name.contains("A30"));
    let kinds = |index: usize| {
        let slices = status.gpus[index].slices.iter();
        slices.map(|slice| slice.profile.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        (kinds(0), kinds(1)),
        (vec!["4g.20gb", "1g.5gb"], vec!["1g.6gb", "2g.12gb"])
    );
    // One refuses whatever is asked of it: who needs no more than the other has gets it there.
    daemon.faults("gpu1/create-gi@1x1000=insufficient-resources");
    let mut spills = Job::submit(&daemon, 5_600_000_000);
    let grant = spills.grant();
    assert_eq!((grant.profile.as_str(), on(&grant)), ("2g.10gb", "A100"));
    spills.end(&grant);
    // One is lost: its jobs are told, and the other runs on and serves.
    daemon.faults("gpu1/0s=lost");
    let status = eventually("the A30 put aside", PATIENCE, || {
        let status = daemon.status();
        (status.gpus[1].mode == "lost").then_some(status)
    });
    assert_eq!(status.gpus[0].mode, "mig");
    let said = daemon.migm(&["status"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("A100") && said.contains("lost"), "{said}");
    let grant = run(&daemon, 4_500_000_000);
    assert_eq!(on(&grant), "A100");
    daemon.faults("");
    eventually("the A30 is back", PATIENCE, || {
        (daemon.status().gpus[1].mode == "mig").then_some(())
    });
    for (job, grant) in jobs {
        job.end(&grant);
    }
    assert_eq!(on(&run(&daemon, 5_500_000_000)), "A30");
}

/// A machine of two GPUs of which the first alone is cut, and a supervisor there.
fn half_cut(permission: Option<&str>) -> (Place, Killed) {
    let mut place = Place::simulated(&["--gpu", "h100-80gb:2", "--time-scale", SCALE]);
    assert_eq!(node(&place, &["enable-mig", "--device", "0"]).0, Some(0));
    if let Some(kind) = permission {
        place.set("SIMGPU_NO_PERMISSION", kind);
    }
    let child = place.migm(&["supervisor"]).stderr(Stdio::null()).spawn().unwrap();
    let supervisor = Killed(child);
    let modes = eventually("the supervisor answers", PATIENCE, || {
        let output = place.migm(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let gpus = status["gpus"].as_array()?.clone();
        Some(
            gpus.iter()
                .map(|gpu| gpu["mode"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        )
    });
    assert_eq!(modes, ["mig", "soft"]);
    (place, supervisor)
}

/// One job that needs so much: the profile and bytes of its only attempt.
fn granted(place: &Place, mem: &str, program: &[&str]) -> (String, u64) {
    let report = place.path().join(format!("{mem}.json"));
    let mut command = place.migm(&["run", "--mem", mem, "--report"]);
    let output = command.arg(&report).arg("--").args(program).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let attempt = &said["attempts"][0];
    (
        attempt["profile"].as_str().unwrap().to_owned(),
        attempt["memory"].as_u64().unwrap(),
    )
}

#[test]
fn where_one_gpu_is_cut_and_one_is_shared_both_serve() {
    let (place, _supervisor) = half_cut(None);
    // A slice that isolates comes first; beside it, what is too much for the rest of that GPU is shared.
    let inner = [
        support::migm().display().to_string(),
        "run --own-slice --mem 70G --report inner.json -- true".into(),
    ];
    let script = format!("cd {} && {} {}", place.path().display(), inner[0], inner[1]);
    let (profile, _) = granted(&place, "60G", &["sh", "-c", &script]);
    assert_eq!(profile, "7g.80gb");
    let inner: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("inner.json")).unwrap()).unwrap();
    assert_eq!(
        (&inner["attempts"][0]["profile"], &inner["attempts"][0]["memory"]),
        (&"soft".into(), &70_000_000_000_u64.into())
    );
}

#[test]
fn without_the_right_to_cut_jobs_go_to_the_gpu_that_is_shared() {
    let (place, _supervisor) = half_cut(Some("config"));
    // The first finds out, the second is let in although it is known by then.
    for mem in ["5G", "6G"] {
        let bytes = mem[..1].parse::<u64>().unwrap() * 1_000_000_000;
        assert_eq!(granted(&place, mem, &["true"]), ("soft".to_owned(), bytes));
    }
    // Who wants the other one, or more than the shared one has, hears why there is no slice.
    for (name, value, mem) in [("CUDA_VISIBLE_DEVICES", "0", "5G"), ("UNUSED", "", "90G")] {
        let mut command = place.migm(&["run", "--mem", mem, "--", "true"]);
        let output = command.env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(
            said.contains("NO_PERMISSION") && said.contains("--use-existing"),
            "{said}"
        );
    }
}

#[test]
fn a_supervisor_ends_although_the_driver_never_answers() {
    let mut daemon = Daemon::start("a100-40gb");
    // Some minutes of wall time.
    daemon.faults("change@1=10000000ms");
    let _waits = Job::submit(&daemon, 4_000_000_000);
    eventually("a create in hand", PATIENCE, || {
        let status = daemon.status();
        let slices = &status.gpus[0].slices;
        slices.iter().any(|slice| slice.state == "creating").then_some(())
    });
    daemon.terminate();
}

#[test]
fn a_supervisor_whose_simulated_gpu_is_taken_away_ends_when_asked() {
    let mut daemon = Daemon::start("a100-40gb");
    let mut job = Job::submit(&daemon, 4_000_000_000);
    let grant = job.grant();
    let id = daemon.state()["simulated"]["id"].as_str().unwrap().to_owned();
    simgpu::files::remove(&id).unwrap();
    job.end(&grant);
    daemon.terminate();
    assert!(!daemon.path("migm.sim").exists(), "something of it was left");
}

#[test]
fn a_gpu_lost_while_no_supervisor_ran_comes_back_with_the_slices_of_the_state_file() {
    let mut daemon = Daemon::start("a100-40gb:2");
    let grant = Job::on(&daemon, 4_000_000_000, Some("1")).grant();
    daemon.kill();
    daemon.faults("gpu1/0s=lost");
    daemon.launch();
    let status = daemon.status();
    assert_eq!(
        (status.gpus[0].mode.as_str(), status.gpus[1].mode.as_str()),
        ("mig", "lost")
    );
    assert_eq!(run(&daemon, 4_000_000_000).gpu_uuid, status.gpus[0].uuid);
    let named = daemon.state()["slices"].to_string();
    assert!(
        named.contains(&grant.gpu_uuid),
        "the file no longer names it: {named}"
    );
    daemon.faults("");
    let slice = eventually("GPU 1 back", PATIENCE, || {
        let status = daemon.status();
        let mut slices = status.gpus[1].slices.iter();
        slices.find(|slice| slice.start == grant.start).cloned()
    });
    assert_eq!(slice.incarnation, Some(grant.slice), "{slice:?}");
    assert_ne!(slice.state, "foreign");
}

#[test]
fn clear_takes_idle_slices_of_ours_and_names_what_stays_and_who_holds_it() {
    let mut daemon = Daemon::start("a100-40gb");
    let foreign = daemon.foreign("1g.5gb", 0);
    let mut busy = Job::submit(&daemon, 19_000_000_000);
    let grant = busy.grant();
    run(&daemon, 4_000_000_000);
    // In use for a moment after the end of a process: tried again.
    daemon.faults("destroy-ci@1x2=in-use");
    let clear = ["node", "clear", "--json", "--sim", "a100-40gb"];
    let output = daemon.migm(&clear);
    let said = json(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said["removed"], 1);
    let kept = said["kept"].to_string();
    assert!(
        kept.contains("is busy with job") && kept.contains("1g.5gb@0 on GPU 0 is foreign"),
        "{kept}"
    );
    assert_eq!(daemon.instances(0).len(), 2);
    // Somebody who is no CUDA process holds the GPU: the compute instance goes, the GPU instance does not.
    run(&daemon, 4_000_000_000);
    let id = daemon.state()["simulated"]["id"].as_str().unwrap().to_owned();
    let machine = simgpu::Machine::open_id(&id).unwrap();
    let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
    let output = daemon.migm(&clear);
    let said = json(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let failed = said["failed"].to_string();
    let holder = format!("pid {}", std::process::id());
    assert!(failed.contains("IN_USE") && failed.contains(&holder), "{failed}");
    drop(held);
    // No job may get what is left of it.
    let status = daemon.status();
    assert!(
        status.gpus[0].slices.iter().any(|slice| slice.state == "stuck"),
        "{status:?}"
    );
    let hollow: Vec<u32> = daemon
        .instances(0)
        .iter()
        .filter(|one| one.cis.is_empty())
        .map(|one| one.placement.start)
        .collect();
    assert_eq!(hollow.len(), 1);
    let next = run(&daemon, 4_000_000_000);
    assert_ne!(next.start, hollow[0]);
    assert!(daemon.instances(0).contains(&foreign));
    busy.end(&grant);
}

/// `migm node` on a simulated GPU of the test's own, without a supervisor.
fn node(place: &Place, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let arguments = [&["node"], arguments, &["--json"]].concat();
    let output = place.migm(&arguments).output().unwrap();
    (output.status.code(), json(&output))
}

#[test]
fn the_mode_is_changed_when_asked_read_back_and_told_with_its_remedy() {
    let ampere = Place::simulated(&["--gpu", "a100-40gb"]);
    let (code, said) = node(&ampere, &["list"]);
    assert_eq!((code, &said["gpus"][0]["current"]), (Some(0), &"off".into()));
    assert!(said["gpus"][0]["remedy"].as_str().unwrap().contains("enable-mig"));
    // A reset is due: asked for, and not yet so.
    let (code, said) = node(&ampere, &["enable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (code, &gpu["outcome"], &gpu["current"]),
        (Some(1), &"pending".into(), &"off".into())
    );
    assert!(gpu["said"].as_str().unwrap().contains("--gpu-reset"), "{said}");
    let (_, said) = node(&ampere, &["list"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (&gpu["pending"], &gpu["mode"]),
        (&"on".into(), &"mig-pending".into())
    );
    assert!(gpu["remedy"].as_str().unwrap().contains("reset"), "{said}");

    let mut hopper = Place::simulated(&["--gpu", "h100-80gb"]);
    let (code, said) = node(&hopper, &["enable-mig"]);
    assert_eq!(
        (code, &said["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{said}"
    );
    let (code, said) = node(&hopper, &["enable-mig"]);
    assert_eq!((code, &said["gpus"][0]["outcome"]), (Some(0), &"already".into()));
    // Somebody's instance is not touched, and named.
    let theirs = {
        let _turn = turn();
        let id = hopper.variable("SIMGPU_ID").unwrap();
        let folder = Path::new(
            hopper
                .variable("LD_LIBRARY_PATH")
                .unwrap()
                .split(':')
                .next()
                .unwrap(),
        );
        let gpu = SimulatedGpu::attach(folder, id).unwrap();
        let nvml = gpu.node().unwrap();
        let (kind, place) = slot(&nvml, 0, "2g.20gb", 2);
        let made = nvml.create(0, &kind, place).unwrap();
        let (code, said) = node(&hopper, &["disable-mig"]);
        let gpu = &said["gpus"][0];
        assert_eq!(
            (code, &gpu["outcome"], &gpu["current"]),
            (Some(1), &"refused".into(), &"on".into())
        );
        assert!(
            gpu["said"].as_str().unwrap().contains("2g.20gb@2 is foreign"),
            "{said}"
        );
        assert_eq!(nvml.instances(0).unwrap(), std::slice::from_ref(&made));
        nvml.destroy(0, made.gi).unwrap();
        made
    };
    assert!(theirs.uuid.is_some());
    // In use by a monitor: it is named, and nothing stays pending.
    let machine = simgpu::Machine::open_id(hopper.variable("SIMGPU_ID").unwrap()).unwrap();
    let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
    let (code, said) = node(&hopper, &["disable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (code, &gpu["outcome"], &gpu["pending"]),
        (Some(1), &"refused".into(), &"on".into()),
        "{said}"
    );
    assert!(
        gpu["holders"]
            .to_string()
            .contains(&format!("pid {}", std::process::id())),
        "{said}"
    );
    drop(held);
    hopper.set("SIMGPU_NO_PERMISSION", "1");
    let output = hopper.migm(&["node", "disable-mig"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("NO_PERMISSION") && said.contains("CAP_SYS_ADMIN"),
        "{said}"
    );
    hopper.set("SIMGPU_NO_PERMISSION", "0");
    let (code, said) = node(&hopper, &["disable-mig"]);
    assert_eq!(
        (code, &said["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{said}"
    );
    let output = hopper
        .migm(&["node", "enable-mig", "--device", "4"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// A place on a machine that is a guest of another.
fn guest(kind: &str) -> Place {
    let mut place = Place::without_gpu();
    place.set("SIMGPU_GUEST", kind);
    let output = place
        .migm(&["sim", "env", "--gpu", "a100-40gb"])
        .output()
        .unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        place.set(name, value.trim_matches('\''));
    }
    place
}

#[test]
fn in_a_virtual_machine_the_remedy_is_the_guests_reboot_or_the_host() {
    let place = guest("passthrough");
    let (code, said) = node(&place, &["enable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!((code, &gpu["outcome"]), (Some(1), &"pending".into()), "{said}");
    assert!(
        gpu["said"]
            .as_str()
            .unwrap()
            .contains("reboot the virtual machine"),
        "{said}"
    );
    let place = guest("vgpu");
    let output = place.migm(&["node", "enable-mig"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("its host can"), "{said}");
}

#[test]
fn a_supervisor_that_runs_takes_up_a_mode_that_was_changed() {
    let place = Place::simulated(&["--gpu", "h100-80gb"]);
    let tightest = ["supervisor", "--policy", "scheme-b"];
    let mut supervisor = Killed(place.migm(&tightest).stderr(Stdio::null()).spawn().unwrap());
    let mode = || {
        let output = place.migm(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(status["gpus"][0]["mode"].as_str()?.to_owned())
    };
    eventually("a GPU that jobs share", PATIENCE, || {
        mode().filter(|mode| mode == "soft")
    });
    assert_eq!(node(&place, &["enable-mig"]).0, Some(0));
    eventually("a GPU to be cut", PATIENCE, || {
        mode().filter(|mode| mode == "mig")
    });
    let ran = place
        .migm(&["run", "--mem", "1G", "--", "true"])
        .status()
        .unwrap();
    assert!(ran.success());
    // The picture, as a pipe gets it: the slice is where it was made, and all else is free.
    let output = place.migm(&["status"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.is_ascii() && said.contains("|1g.10gb ") && said.contains("|idle "),
        "{said}"
    );
    assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    // Off again: our idle slice is no hindrance, and goes.
    let (code, changed) = node(&place, &["disable-mig"]);
    assert_eq!(
        (code, &changed["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{changed}"
    );
    eventually("a shared GPU again", PATIENCE, || {
        mode().filter(|mode| mode == "soft")
    });
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(supervisor.0.id().cast_signed(), libc::SIGTERM) };
    assert!(supervisor.0.wait().unwrap().success());
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Counts what is asked of the machine.
struct Counting {
    node: Nvml,
    steps: AtomicUsize,
    reads: AtomicUsize,
}

impl Counting {
    fn read<T>(&self, answer: T) -> T {
        self.reads.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

impl Node for Counting {
    fn gpus(&self) -> Result<Vec<Gpu>, NodeError> {
        self.read(self.node.gpus())
    }
    fn gpu(&self, index: u32) -> Result<Gpu, NodeError> {
        self.read(self.node.gpu(index))
    }
    fn driver(&self) -> Result<String, NodeError> {
        self.read(self.node.driver())
    }
    fn profiles(&self, gpu: u32) -> Result<Vec<Profile>, NodeError> {
        self.read(self.node.profiles(gpu))
    }
    fn instances(&self, gpu: u32) -> Result<Vec<Instance>, NodeError> {
        self.read(self.node.instances(gpu))
    }
    fn create(&self, gpu: u32, profile: &Profile, placement: Placement) -> Result<Instance, NodeError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.node.create(gpu, profile, placement)
    }
    fn destroy(&self, gpu: u32, gi: u32) -> Result<(), NodeError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.node.destroy(gpu, gi)
    }
    fn energy_mj(&self, gpu: u32) -> Result<Option<u64>, NodeError> {
        self.read(self.node.energy_mj(gpu))
    }
    fn memory(&self, gpu: u32) -> Result<Memory, NodeError> {
        self.read(self.node.memory(gpu))
    }
    fn slice_memory(&self, uuid: &str) -> Result<Memory, NodeError> {
        self.read(self.node.slice_memory(uuid))
    }
    fn processes(&self, gpu: u32) -> Result<Vec<Process>, NodeError> {
        self.read(self.node.processes(gpu))
    }
}

/// Beside its two changes a step reads back, and looks up what it has no handle of.
#[test]
fn a_step_asks_the_driver_for_its_two_changes_and_what_it_reads_back() {
    let daemon = Daemon::start("a100-40gb");
    let driver = daemon.driver();
    let calls = || (driver.node.calls().changes(), driver.node.calls().reads());
    let since = |before: (u64, u64)| (calls().0 - before.0, calls().1 - before.1);
    // The kinds of compute instance are asked for once.
    let (kind, place) = driver.slot(0, "2g.10gb", 4);
    let made = driver.node.create(0, &kind, place).unwrap();
    driver.node.destroy(0, made.gi).unwrap();
    for others in 0..4_u32 {
        let before = calls();
        let made = driver.node.create(0, &kind, place).unwrap();
        let created = since(before);
        assert!(made.uuid.is_some() && made.memory.is_some(), "{made:?}");
        // Both instances made and read back; the GPU, the number of MIG devices, the UUID and memory of this one,
        // and three for each that stands before it and for itself.
        let walked = 3 * u64::from(others + 1);
        assert_eq!(created.0, 2);
        assert!(created.1 <= 2 + 4 + walked, "{created:?} beside {others}");
        let before = calls();
        driver.node.destroy(0, made.gi).unwrap();
        // The GPU and both instances looked up, and one look that it is gone.
        assert_eq!(since(before), (2, 4), "beside {others}");
        driver.make(0, "1g.5gb", others);
    }
}

/// Three steps are three calls, each with its own reading back inside, and nothing else is asked meanwhile.
#[test]
fn a_reshape_asks_no_more_of_the_driver_than_its_steps() {
    let daemon = Daemon::start("a100-40gb");
    let driver = daemon.driver();
    let (mode, small) = (
        driver.node.gpu(0).unwrap().mode,
        [4, 5].map(|at| driver.make(0, "1g.5gb", at)),
    );
    assert_eq!(mode, MigMode::On);
    let (kind, place) = driver.slot(0, "2g.10gb", 4);
    let counting = Arc::new(Counting {
        node: driver.gpu.node().unwrap(),
        steps: AtomicUsize::new(0),
        reads: AtomicUsize::new(0),
    });
    let tended = Tended {
        index: 0,
        cut: true,
        aside: false,
        driver: "580.82.07".into(),
        shared: false,
    };
    let node: Arc<dyn Node> = Arc::clone(&counting) as _;
    let machine = Machine::start(node, vec![tended], Duration::from_secs(600), || {}).unwrap();
    for (number, one) in (1..).zip(&small) {
        let slice = Incarnation(number);
        machine.order(Order::Destroy {
            slice,
            gpu: 0,
            gi: one.gi,
        });
    }
    machine.order(Order::Create {
        slice: Incarnation(3),
        gpu: 0,
        profile: kind,
        placement: place,
    });
    let mut answers = Vec::new();
    eventually("three answers", PATIENCE, || {
        answers.extend(
            machine
                .answers()
                .filter(|answer| !matches!(answer, Answer::Seen { .. })),
        );
        (answers.len() == 3).then_some(())
    });
    let steps = counting.steps.load(Ordering::SeqCst);
    let reads = counting.reads.load(Ordering::SeqCst);
    assert_eq!(steps, 3);
    assert!(reads <= steps, "{reads} readings for {steps} steps");
    assert!(matches!(&answers[2], Answer::Created { result: Ok(made), .. } if made.placement == place));
    drop(machine);
    assert_eq!(driver.node.instances(0).unwrap().len(), 1);
}
