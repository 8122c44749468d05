//! A supervisor as a process, on a simulated machine of its own or on one that the test has made.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use migm_supervisor::control::client::Client;
use migm_supervisor::control::{NodeStatus, Reply, Request, Submission, Wishes};
use migm_supervisor::daemon::state::State;
use migm_supervisor::layout::{Placement, Profile};
use migm_supervisor::node::sim::SimulatedGpu;
use migm_supervisor::node::{Instance, Node, Nvml};

use crate::support::{eventually, migm};

/// Far more than any step takes on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Simulated time runs twenty times as fast.
pub const SCALE: &str = "0.05";

/// A supervisor with a folder of its own; killed when dropped, and its simulated machine removed.
pub struct Daemon {
    folder: tempfile::TempDir,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Daemon {
    /// Its folder.
    pub fn home(&self) -> &Path {
        self.folder.path()
    }

    /// A folder that a supervisor takes for its socket.
    pub fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        folder
    }

    /// On simulated GPUs of its own, such as `a100-40gb:2`.
    pub fn simulated(gpus: &str) -> Self {
        Self::start(&["--sim", gpus, "--time-scale", SCALE])
    }

    /// By a policy, on simulated GPUs of its own.
    pub fn by(policy: &str, gpus: &str) -> Self {
        Self::start(&["--sim", gpus, "--time-scale", SCALE, "--policy", policy])
    }

    /// Each job on the tightest slice, in order of arrival.
    pub fn tightest(gpus: &str) -> Self {
        Self::by("scheme-b", gpus)
    }

    /// With arguments.
    pub fn start(arguments: &[&str]) -> Self {
        let mut daemon = Self {
            folder: Self::folder(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            environment: Vec::new(),
            child: None,
        };
        daemon.launch();
        daemon
    }

    /// With a configuration, in an environment where the loader finds the driver.
    pub fn configured(environment: &[(&str, &str)], config: &str) -> Self {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let folder = Self::folder();
        let file = folder.path().join("config.toml");
        fs::write(&file, config).unwrap();
        let mut daemon = Self {
            folder,
            arguments: vec!["--config".to_owned(), file.display().to_string()],
            environment: environment.iter().map(own).collect(),
            child: None,
        };
        daemon.launch();
        daemon
    }

    /// The next supervisor in this folder, started as the one before.
    pub fn launch(&mut self) {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let child = Command::new(migm())
            .arg("supervisor")
            .arg("--socket")
            .arg(self.socket())
            .args(&self.arguments)
            .env_remove("MIGM_SOCKET")
            .env("MIGM_LOG", "debug")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        eventually("a supervisor", PATIENCE, || {
            let ended = self.child.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "{}", self.log());
            UnixStream::connect(self.socket()).ok()
        });
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.path("migm.sock")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.socket()).unwrap()
    }

    pub fn status(&self) -> NodeStatus {
        let pick = |reply| match reply {
            Reply::Status(node) => Some(*node),
            _ => None,
        };
        self.client().ask(&Request::Status, PATIENCE, pick).unwrap()
    }

    /// Its state file.
    pub fn state(&self) -> serde_json::Value {
        serde_json::to_value(State::read(&self.path("migm.state.json")).unwrap()).unwrap()
    }

    /// `migm node` and the like against this supervisor.
    pub fn migm(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(migm());
        command
            .args(arguments)
            .env("MIGM_SOCKET", self.socket())
            .env_remove("NO_COLOR");
        command.stdin(Stdio::null()).output().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn terminate(&mut self) -> ExitStatus {
        let child = self.child.as_ref().unwrap();
        // SAFETY: the pid is that of a child not yet waited for.
        unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        self.wait()
    }

    pub fn wait(&mut self) -> ExitStatus {
        let child = self.child.as_mut().unwrap();
        let ended = eventually("the end of the supervisor", PATIENCE, || {
            child.try_wait().unwrap()
        });
        self.child = None;
        ended
    }

    /// The machine behind it, as long as the answer lives: the choice of a machine is the process's.
    pub fn driver(&self) -> Driver {
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

    pub fn faults(&self, text: &str) {
        self.driver().gpu.set_faults(text).unwrap();
    }

    /// An instance that somebody else made before this supervisor came.
    pub fn foreign(&mut self, profile: &str, start: u32) -> Instance {
        let made = self.driver().make(0, profile, start);
        self.kill();
        self.launch();
        made
    }

    pub fn instances(&self, gpu: u32) -> Vec<Instance> {
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
            eprintln!("supervisor's log:\n{}", self.log());
        } else if self.path("migm.sim").exists() {
            let _ = self.driver().gpu.remove();
        }
    }
}

/// NVML over a simulated machine, in this process.
pub struct Driver {
    pub node: Nvml,
    pub gpu: SimulatedGpu,
    _turn: MutexGuard<'static, ()>,
}

impl Driver {
    pub fn make(&self, gpu: u32, profile: &str, start: u32) -> Instance {
        let (kind, place) = self.slot(gpu, profile, start);
        self.node.create(gpu, &kind, place).unwrap()
    }

    pub fn slot(&self, gpu: u32, profile: &str, start: u32) -> (Profile, Placement) {
        slot(&self.node, gpu, profile, start)
    }
}

/// A profile and a place of it by name and start.
pub fn slot(node: &dyn Node, gpu: u32, profile: &str, start: u32) -> (Profile, Placement) {
    let profiles = node.profiles(gpu).unwrap();
    let kind = profiles.into_iter().find(|kind| kind.name == profile).unwrap();
    let place = *kind.placements.iter().find(|place| place.start == start).unwrap();
    (kind, place)
}

/// One test at a time has a simulated machine in this process.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a runner asks for, at the least.
pub fn submission(name: &str) -> Submission {
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
        wishes: Wishes::default(),
    }
}
