//! A private supervisor, started by the first command that finds none.
//!
//! 1. Nobody answers at the socket: the command takes the lock `<socket>.start` and tries once more, since
//!    another may have started one meanwhile.
//! 2. It starts `migm supervisor --private` in a session of its own, with the log beside the socket.
//! 3. It tries the socket until that answers, or that process ends; then the last line of its log says why.
//! 4. The lock is let go. Whoever waited for it finds a supervisor that answers.
//!
//! The lock file says whom was started and how: when that supervisor dies, whoever it served may start the
//! next one ([`started_as`]), which nobody may do for a service.
//!
//! All of it goes in [`Starter::step`]s that do not wait, so that a runner whose job goes on can start the
//! next supervisor between two signals.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use serde::{Deserialize, Serialize};

use super::client::{Client, ClientError};
use super::paths::{private_socket, socket_paths};
use crate::schedule::{PolicyName, UnknownPolicy};

/// A supervisor that has neither answered nor ended after this long is given up.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How often the socket is tried meanwhile.
pub const STEP: Duration = Duration::from_millis(20);

/// Why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// See [`ClientError`].
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The folder of the socket, its lock or log cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Folder {
        /// The path tried.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The folder belongs to somebody else, who could put a socket of theirs there.
    #[error("{} belongs to user {uid}, not to you; set MIGM_SOCKET or XDG_RUNTIME_DIR", path.display())]
    ForeignFolder {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// The process cannot be started.
    #[error("cannot start a supervisor: {0}")]
    Spawn(io::Error),
    /// It ended before it answered.
    #[error("{line}")]
    Ended {
        /// Its last line.
        line: String,
        /// Its exit code: 2 for what it was told wrongly.
        code: Option<i32>,
    },
    /// `MIGM_POLICY` names none.
    #[error("MIGM_POLICY: {0}")]
    Policy(#[from] UnknownPolicy),
    /// It neither answered nor ended.
    #[error("the private supervisor has not answered within {} s; its log is {}", START_LIMIT.as_secs(), .0.display())]
    Silent(PathBuf),
}

impl StartError {
    /// Whether it is what the user asked for that cannot be, such as a GPU model that nobody knows.
    #[must_use]
    pub const fn is_bad_input(&self) -> bool {
        matches!(
            self,
            Self::Ended { code: Some(2), .. } | Self::Client(ClientError::Path(_)) | Self::Policy(_)
        )
    }
}

/// What kind of supervisor a command wants, and where.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Wanted {
    /// `GPU` or `GPU:N`: one on simulated GPUs, with a socket of its own.
    pub sim: Option<String>,
    /// Wall seconds per simulated second for that.
    pub time_scale: Option<f64>,
    /// How it places jobs, if the command says so.
    pub policy: Option<String>,
    /// It is wanted for a batch.
    #[serde(default)]
    pub for_batch: bool,
    /// Whoever gave the socket looks after it: the supervisor there is waited for, and not started.
    #[serde(default)]
    pub looked_after: bool,
    /// This socket and no other.
    pub socket: Option<PathBuf>,
}

impl Wanted {
    /// With the policy of a supervisor that is started now, where none is asked for: that which `MIGM_POLICY` names, else one
    /// that weighs the jobs of a batch together. A job by itself gets the tightest slice: nothing tells how long it runs, and
    /// whoever comes next is to find room.
    fn with_usual_policy(mut self) -> Result<Self, UnknownPolicy> {
        if self.policy.is_none() {
            let named = std::env::var("MIGM_POLICY").ok().filter(|name| !name.is_empty());
            let usual = match named {
                Some(named) => named.parse()?,
                None if self.for_batch => PolicyName::default(),
                None => PolicyName::SchemeB,
            };
            self.policy = Some(usual.to_string());
        }
        Ok(self)
    }

    /// Where a client looks, in order; a private supervisor would listen at the last.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        if let Some(socket) = &self.socket {
            return vec![socket.clone()];
        }
        match &self.sim {
            // A supervisor of the machine's own GPUs, or of another model or clock, is not what was asked for.
            Some(sim) if std::env::var_os("MIGM_SOCKET").is_none_or(|given| given.is_empty()) => {
                let mut name = format!("sim-{}", sim.replace(':', "x"));
                if let Some(scale) = self.time_scale {
                    name.push_str(&format!("-{scale}").replace('.', "_"));
                }
                if let Some(policy) = &self.policy {
                    // The folder beside it comes into `LD_LIBRARY_PATH`, where a colon would end its name.
                    name.push_str(&format!("-{policy}").replace(':', "_"));
                }
                vec![private_socket().with_file_name(name + ".sock")]
            }
            _ => socket_paths(),
        }
    }

    /// Where supervisors of the GPUs asked for may be: [`places`](Self::places), and those that were started with a
    /// clock or a policy of their own, which whoever only looks does not know.
    #[must_use]
    pub fn any_places(&self) -> Vec<PathBuf> {
        let mut places = self.places();
        let ours = places.last().and_then(|place| place.parent());
        let (Some(sim), Some(folder)) = (self.sim.as_deref(), ours) else {
            return places;
        };
        let one = |sim: &str| sim.strip_suffix(":1").unwrap_or(sim).to_owned();
        let started = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let notes = started.map(|entry| entry.path()).filter(|path| {
            let note = || {
                let text = std::fs::read_to_string(path).ok()?;
                serde_json::from_str::<Started>(&text).ok()?.wanted.sim
            };
            path.extension().is_some_and(|extension| extension == "start")
                && note().is_some_and(|started| one(&started) == one(sim))
        });
        let mut others: Vec<PathBuf> = notes.map(|note| note.with_extension("sock")).collect();
        others.retain(|other| !places.contains(other));
        others.sort();
        places.extend(others);
        places
    }

    /// Connects to a supervisor of this kind, and starts a private one where none answers.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn connect_or_start(&self) -> Result<Client, StartError> {
        let mut starter = Starter::new(self.clone());
        loop {
            if let Some(client) = starter.step()? {
                return Ok(client);
            }
            std::thread::sleep(STEP);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Started {
    pid: u32,
    wanted: Wanted,
}

/// How the supervisor behind a connection was started, if it is a private one: enough to start the next.
#[must_use]
pub fn started_as(client: &Client) -> Option<Wanted> {
    let text = std::fs::read_to_string(client.path().with_extension("start")).ok()?;
    let started: Started = serde_json::from_str(&text).ok()?;
    (started.pid == client.supervisor()).then(|| Wanted {
        socket: Some(client.path().to_owned()),
        ..started.wanted
    })
}

/// A supervisor being looked for, or started.
#[derive(Debug)]
pub struct Starter {
    wanted: Wanted,
    places: Vec<PathBuf>,
    began: Instant,
    lock: Option<File>,
    child: Option<Child>,
}

impl Starter {
    /// Nothing is done before the first [`Starter::step`].
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        Self {
            places: wanted.places(),
            wanted,
            began: Instant::now(),
            lock: None,
            child: None,
        }
    }

    /// Process id of the supervisor that was started here, while it is not known to have ended.
    #[must_use]
    pub fn child(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// To whoever answers.
    fn connect(&self) -> Result<Option<Client>, StartError> {
        for place in &self.places {
            match Client::connect(place) {
                Ok(client) => return Ok(Some(client)),
                Err(ClientError::NoSupervisor(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// Goes one step and does not wait; `None` says to come again after [`STEP`].
    ///
    /// # Errors
    /// There will be no supervisor; see [`StartError`].
    pub fn step(&mut self) -> Result<Option<Client>, StartError> {
        if let Some(client) = self.connect()? {
            return Ok(Some(client));
        }
        if self.wanted.looked_after {
            return match self.began.elapsed() > START_LIMIT {
                true => Err(ClientError::NoSupervisor(self.places.clone()).into()),
                false => Ok(None),
            };
        }
        let Some(socket) = self.places.last() else {
            return Err(ClientError::NoSupervisor(Vec::new()).into());
        };
        let log = socket.with_extension("log");
        if let Some(child) = &mut self.child {
            // A runner reaps all its children, so this one may be gone without a status here.
            let code = match child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.code()),
                Err(_) => Some(None),
            };
            if let Some(code) = code {
                // It may have lost to one that others started at the same time, a service say.
                if let Some(client) = self.connect()? {
                    return Ok(Some(client));
                }
                let line = last_line(&log);
                return Err(StartError::Ended { line, code });
            }
        } else if self.lock.is_none() {
            self.lock = take_lock(socket)?;
        } else if let Some(lock) = &mut self.lock {
            // The lock was taken in the step before, and nobody has answered since.
            let wanted = self.wanted.clone().with_usual_policy()?;
            let child = spawn(&wanted, socket, &log)?;
            note(lock, child.id(), &wanted).map_err(|source| StartError::Folder {
                path: socket.with_extension("start"),
                source,
            })?;
            self.child = Some(child);
        }
        if self.began.elapsed() > START_LIMIT {
            return Err(StartError::Silent(log));
        }
        Ok(None)
    }
}

/// Takes the starter's lock; `None` while another holds it.
fn take_lock(socket: &Path) -> Result<Option<File>, StartError> {
    let folder = socket.parent().unwrap_or(Path::new("/"));
    own_folder(folder)?;
    let path = socket.with_extension("start");
    let wrong = |source| StartError::Folder {
        path: path.clone(),
        source,
    };
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(wrong)?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(source)) => Err(wrong(source)),
    }
}

fn note(lock: &mut File, pid: u32, wanted: &Wanted) -> io::Result<()> {
    let wanted = wanted.clone();
    let text = serde_json::to_string(&Started { pid, wanted })?;
    lock.set_len(0)?;
    lock.seek(SeekFrom::Start(0))?;
    lock.write_all(text.as_bytes())
}

/// Makes the folder for this user alone; one that is there must be ours.
fn own_folder(folder: &Path) -> Result<(), StartError> {
    let wrong = |source| StartError::Folder {
        path: folder.to_owned(),
        source,
    };
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        return Err(wrong(error));
    }
    let found = folder.symlink_metadata().map_err(wrong)?;
    let us = nix::unistd::getuid().as_raw();
    // Root may use any folder that it is told to; others only their own.
    if found.uid() != us && us != 0 {
        return Err(StartError::ForeignFolder {
            path: folder.to_owned(),
            uid: found.uid(),
        });
    }
    Ok(())
}

fn spawn(wanted: &Wanted, socket: &Path, log: &Path) -> Result<Child, StartError> {
    let wrong = |source| StartError::Folder {
        path: log.to_owned(),
        source,
    };
    let mut options = OpenOptions::new();
    let file = options
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(log)
        .map_err(wrong)?;
    let output = file.try_clone().map_err(wrong)?;
    let program = std::env::current_exe().map_err(StartError::Spawn)?;
    let socket = std::path::absolute(socket).map_err(StartError::Spawn)?;
    let mut command = Command::new(program);
    command.args(["supervisor", "--private"]);
    if let Some(sim) = &wanted.sim {
        command.args(["--sim", sim]);
        if let Some(scale) = wanted.time_scale {
            command.arg("--time-scale").arg(scale.to_string());
        }
    }
    if let Some(policy) = &wanted.policy {
        command.args(["--policy", policy]);
    }
    // It serves others after this command: nothing of the command's own attempt may stay in it.
    command
        .env("MIGM_SOCKET", socket)
        .env_remove("MIGM_ATTEMPT")
        .env_remove("LD_PRELOAD")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(file);
    let apart = || {
        nix::unistd::setsid()?;
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls setsid and sigprocmask alone, which signal-safety(7)
    // lists, and it allocates nothing.
    unsafe { command.pre_exec(apart) };
    command.spawn().map_err(StartError::Spawn)
}

/// What a supervisor that ended said last, without its `migm: ` in front.
fn last_line(log: &Path) -> String {
    let mut text = String::new();
    let read = File::open(log).and_then(|mut file| {
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(length.saturating_sub(16 << 10)))?;
        file.read_to_string(&mut text)
    });
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    match (read, line) {
        (Ok(_), Some(line)) => {
            let line = line.strip_prefix("migm: ").unwrap_or(line);
            line.strip_prefix("supervisor: ").unwrap_or(line).to_owned()
        }
        _ => format!(
            "the private supervisor ended without a word; its log is {}",
            log.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_of_the_log_is_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("l");
        std::fs::write(&log, "starting\nmigm: no NVIDIA driver\n\n").unwrap();
        assert_eq!(last_line(&log), "no NVIDIA driver");
        std::fs::write(&log, "").unwrap();
        assert!(last_line(&log).starts_with("the private supervisor ended without a word"));
    }

    #[test]
    fn of_two_starters_one_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("new/migm.sock");
        let first = take_lock(&socket).unwrap();
        assert!(first.is_some());
        assert!(take_lock(&socket).unwrap().is_none());
        drop(first);
        assert!(take_lock(&socket).unwrap().is_some());
        let mode = folder.path().join("new").metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn one_with_a_clock_or_policy_of_its_own_is_found_by_its_gpus() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        for (name, sim) in [
            ("b", "a100-40gb"),
            ("a", "a100-40gb:1"),
            ("c", "a100-40gb:2"),
            ("d", "a30-24gb"),
        ] {
            let wanted = Wanted {
                sim: Some(sim.to_owned()),
                time_scale: Some(0.5),
                ..Wanted::default()
            };
            let mut note_file = File::create(place(name).with_extension("start")).unwrap();
            note(&mut note_file, 1, &wanted).unwrap();
        }
        std::fs::write(place("e.start"), "no note").unwrap();
        let looking = Wanted {
            sim: Some("a100-40gb".to_owned()),
            socket: Some(place("sim-a100-40gb.sock")),
            ..Wanted::default()
        };
        let names = ["sim-a100-40gb.sock", "a.sock", "b.sock"].map(place);
        assert_eq!(looking.any_places(), names);
    }

    /// A colon in the name of the folder beside the socket cut `LD_LIBRARY_PATH` in two: no program found the driver.
    #[test]
    fn the_place_of_a_static_layout_has_no_colon() {
        let wanted = Wanted {
            sim: Some("a100-40gb:2".into()),
            policy: Some("static:4g+3g".into()),
            ..Wanted::default()
        };
        let name = wanted.places()[0].file_name().unwrap().to_owned();
        assert_eq!(name, "sim-a100-40gbx2-static_4g+3g.sock");
    }

    #[test]
    fn a_simulated_gpu_has_a_socket_of_its_own() {
        let wanted = Wanted {
            sim: Some("a100-40gb:2".into()),
            time_scale: Some(0.5),
            policy: Some("sequential".into()),
            for_batch: true,
            ..Wanted::default()
        };
        let places = wanted.places();
        assert_eq!(places.len(), 1);
        assert!(
            places[0].ends_with("sim-a100-40gbx2-0_5-sequential.sock"),
            "{places:?}"
        );
    }
}
