//! The daemon: it serves runners, commands and processes, and drives the scheduler in real time.
//!
//! One job through it:
//!
//! 1. The event loop ([`event_loop`]) accepts the runner's connection ([`connection`]) and hands its
//!    `Submit`, with the mapped counter page, to the [`owner`]. The owner is plain state: it does
//!    no I/O, and each event leaves orders and outputs behind.
//!    A job that waits for others is held back there first (`holds.rs`).
//! 2. The scheduler says `Create`. The state file ([`state`]) is written first, then the order goes to the
//!    GPU's own thread ([`machine`], [`tend`]), so that no frame waits for it.
//! 3. The slice has been read back: `Created`, then `Grant`, which is in the state file before the runner
//!    hears of it.
//! 4. The job's processes say hello and get the page. Their samples feed the attempt's track
//!    ([`forecast`]); what the driver charges beyond them is measured by the machine thread.
//! 5. A verdict to move goes to the scheduler, and its `Move` to the runner.
//! 6. `Ended`, and no process known here still lives: the slice is free, the job goes on or is over.
//!
//! Killed at any instant, the next supervisor finds the file, takes back what was half done ([`recover`])
//! and waits for the runners to come back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::control::JobState;
use crate::control::paths::{SERVICE_SOCKET, absolute, private_socket};
use crate::job::detached::{self, folder};
use crate::node::sim::{self, SimulatedGpu};
use crate::node::{Node, Nvml};
use crate::schedule::PolicyName;
use crate::schedule::policy::static_layout;

mod actions;
mod attempts;
pub mod batch;
mod batches;
mod clear;
pub mod config;
pub mod connection;
mod costs;
pub mod decisions;
pub mod error;
pub mod event_loop;
mod existing;
pub mod facts;
pub mod forecast;
pub mod gpus;
mod holds;
pub mod job;
pub mod journal;
pub mod learnt;
pub mod machine;
pub mod owner;
pub mod pace;
mod policy;
pub mod process;
pub mod recover;
mod reports;
mod requests;
mod saved;
mod siblings;
pub mod slices;
pub mod socket;
mod soft;
pub mod state;
mod status;
pub mod systemd;
pub mod tend;
mod trouble;

use config::{Config, Told};
use error::DaemonError;
use event_loop::{Base, EventLoop, monotonic};
use gpus::{GpuError, PlacedGpu, Use};
use machine::Machine;
use owner::{Owner, Settings};
use socket::{Lock, beside};
use state::{SimulatedState, State};
use tend::Tended;

/// How a supervisor is started.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Configuration file.
    pub config: Option<PathBuf>,
    /// Simulated GPUs: a model, with `:N` for several.
    pub sim: Option<String>,
    /// Where to listen.
    pub socket: Option<PathBuf>,
    /// For this user alone, and ending with the last client.
    pub private: bool,
    /// Wall seconds per simulated second.
    pub time_scale: Option<f64>,
    /// Instead of the configuration's.
    pub told: Told,
}

/// Runs a supervisor until it is told to end, or, if private, until nobody needs it.
///
/// # Errors
/// See [`DaemonError`]; its [`exit_code`](DaemonError::exit_code) is the command's.
pub fn run(options: &Options) -> Result<(), DaemonError> {
    let config = match &options.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let policy = options.told.policy(&config)?;
    if policy == PolicyName::BestStatic {
        return Err(DaemonError::Unsearched);
    }
    let base = Base::new().map_err(DaemonError::system("setting up the event loop"))?;
    raise_descriptor_limit();
    let path = socket_path(options, &config);
    let lock = Lock::take(&path, options.private)?;
    let state_path = state_path(&path, &config);
    let mut state = State::read(&state_path)?;
    if options.private
        && let Some(place) = detached::place()
    {
        // It keeps no state between its lives, and a number of a job whose output is kept is not given again.
        state.next_job = state.next_job.max(folder::highest(&place) + 1);
    }

    let simulated = match &options.sim {
        Some(spec) => Some(simulate(
            options,
            spec,
            config.mode.wants_mig(),
            &path,
            &mut state,
        )?),
        None => None,
    };
    let node: Arc<dyn Node> = match &simulated {
        Some(gpu) => Arc::new(gpu.node()?),
        None => Arc::new(Nvml::system()?),
    };
    let time_scale = match &simulated {
        Some(gpu) => Some(gpu.time_scale()?),
        None => sim::behind_the_loader(),
    };
    let driver = node.driver()?;
    let mut gpus = read_gpus(node.as_ref(), &driver, &config, &policy)?;
    check_layout(&policy, &gpus)?;
    let slices = recover::adopt(node.as_ref(), &state, &mut gpus);
    let settings = Settings {
        private: options.private,
        policy: policy.clone(),
        told: options.told.clone(),
        shared: config.mode.shares(&policy),
        config_path: options.config.clone(),
        interposer: sim::interposer_path().map_err(|error| error.to_string()),
        library_path: match &simulated {
            Some(_) => vec![links(&path).display().to_string()],
            None => Vec::new(),
        },
        simulated: time_scale.is_some(),
        time_scale: time_scale.unwrap_or(1.0),
        own_simulated: state.simulated.clone(),
        socket: path.clone(),
        state_path: state_path.clone(),
        config,
    };
    let sample = Duration::from_millis(settings.config.sample_ms);
    let tended = gpus.iter().map(|gpu| Tended {
        index: gpu.gpu.index,
        cut: gpu.is_cut(),
        aside: gpu.aside.is_some(),
        driver: driver.clone(),
        shared: settings.shared,
    });
    let machine = Machine::start(node, tended.collect(), sample, base.wake())
        .map_err(DaemonError::system("starting the threads of the GPUs"))?;
    let mut owner = Owner::new(settings, gpus, slices, state, monotonic());
    // Before anyone is served, so that a simulated GPU is found again whatever happens.
    owner.write_state()?;
    let listening = lock.listen()?;
    tracing::info!(socket = %path.display(), private = options.private, "listening");
    let (owner, listening) = EventLoop::new(base, listening, owner, machine, options.private)?.run()?;
    clean_up(&owner, simulated.as_ref(), &path, &state_path);
    drop(listening);
    tracing::info!("ended");
    Ok(())
}

/// Without a word on where, a service listens where root's services do, and anyone else's at the user's own
/// place.
fn socket_path(options: &Options, config: &Config) -> PathBuf {
    let given = options.socket.clone().or_else(|| config.socket.clone());
    given.map(absolute).unwrap_or_else(|| {
        let chosen = std::env::var_os("MIGM_SOCKET").is_some_and(|value| !value.is_empty());
        if !options.private && !chosen && nix::unistd::geteuid().is_root() {
            PathBuf::from(SERVICE_SOCKET)
        } else {
            private_socket()
        }
    })
}

fn state_path(socket: &Path, config: &Config) -> PathBuf {
    let beside_it = beside(socket, "state.json");
    match (&config.state_dir, beside_it.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => beside_it,
    }
}

/// Where the links to the simulated driver lie.
fn links(socket: &Path) -> PathBuf {
    beside(socket, "sim")
}

/// The GPU of the state file if it is still there and is the one asked for, else a fresh one. A simulated
/// GPU is ours: MIG is on from the start, where the mode is one that has slices made.
fn simulate(
    options: &Options,
    spec: &str,
    mig: bool,
    socket: &Path,
    state: &mut State,
) -> Result<SimulatedGpu, DaemonError> {
    let folder = links(socket);
    sim::objects()?.link(&folder, options.private)?;
    if let Some(known) = state.simulated.as_ref().filter(|known| known.spec == spec) {
        match SimulatedGpu::attach(&folder, &known.id) {
            Ok(gpu) => {
                tracing::info!(
                    id = known.id,
                    "the simulated GPU of an earlier supervisor is still there"
                );
                return Ok(gpu);
            }
            Err(error) => tracing::info!(%error, "the earlier simulated GPU is gone"),
        }
    }
    // Slices and leases on a GPU that is gone are gone too; numbers are still never used twice.
    *state = State::fresh(state.next_job, state.next_slice, state.next_batch);
    let gpu = SimulatedGpu::create(&folder, spec, mig, options.time_scale.unwrap_or(0.0))
        .inspect_err(|_| drop(std::fs::remove_dir_all(&folder)))?;
    state.simulated = Some(SimulatedState {
        spec: spec.to_owned(),
        id: gpu.id().to_owned(),
    });
    Ok(gpu)
}

/// All GPUs that the configuration takes. One that cannot be read is put aside, and said so; it is an error only if
/// none can be.
fn read_gpus(
    node: &dyn Node,
    driver: &str,
    config: &Config,
    policy: &PolicyName,
) -> Result<Vec<PlacedGpu>, DaemonError> {
    let mut found = Vec::new();
    let mut usable = false;
    let mut last = None;
    let mut left_out = false;
    for index in 0..node.count()? {
        let gpu = node.gpu(index);
        if let Ok(gpu) = &gpu
            && !config.mode.takes(gpu.mode)
        {
            tracing::info!(
                gpu = index,
                mode = gpu.mode.word(),
                wanted = config.mode.word(),
                "left out, as configured"
            );
            left_out = true;
            continue;
        }
        let read = gpu
            .map_err(GpuError::from)
            .and_then(|gpu| PlacedGpu::read(node, gpu, driver, config.mode.shares(policy)));
        match read {
            Ok(gpu) => {
                tracing::info!(
                    gpu = index,
                    name = gpu.gpu.name,
                    mode = gpu.gpu.mode.word(),
                    foreign = gpu.foreign.len(),
                    "found a GPU"
                );
                usable = true;
                found.push(gpu);
            }
            Err(error) => {
                tracing::error!(gpu = index, %error, "a GPU cannot be used and is put aside");
                found.push(PlacedGpu::unreadable(index, &error).map_err(DaemonError::Layout)?);
                last = Some(error);
            }
        }
    }
    match (usable, last) {
        (true, _) => Ok(found),
        (false, Some(GpuError::Node(error))) => Err(error.into()),
        (false, Some(error @ GpuError::Layout { .. })) => Err(DaemonError::Layout(error)),
        (false, None) if left_out => Err(DaemonError::OtherMode(config.mode.word())),
        (false, None) => Err(DaemonError::NoGpu),
    }
}

/// A static layout must stand on every GPU that is cut.
fn check_layout(policy: &PolicyName, gpus: &[PlacedGpu]) -> Result<(), DaemonError> {
    let PolicyName::Static(layout) = policy else {
        return Ok(());
    };
    for gpu in gpus.iter().filter(|gpu| gpu.used == Use::Reshaped) {
        static_layout(&gpu.table, layout).map_err(|why| DaemonError::StaticLayout {
            layout: layout.clone(),
            gpu: gpu.gpu.index,
            why,
        })?;
    }
    Ok(())
}

/// Each process of a job takes a connection and a pidfd.
fn raise_descriptor_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// A simulated GPU goes unless a job still runs on it. The state file goes unless the next supervisor would
/// find something in it, or has a batch to go on with: more of its jobs may come.
fn clean_up(owner: &Owner, simulated: Option<&SimulatedGpu>, socket: &Path, state_path: &Path) {
    let state = owner.state();
    let runs = state
        .jobs
        .iter()
        .any(|job| matches!(job.state, JobState::Running | JobState::Moving));
    let mut empty = state.is_empty() && !owner.has_watched_batch();
    if let Some(gpu) = simulated.filter(|_| !runs) {
        // Somebody may have taken it away already.
        let is_gone = SimulatedGpu::attach(&links(socket), gpu.id()).is_err();
        match gpu.remove() {
            Err(error) if !is_gone => tracing::warn!(%error, "the simulated GPU stays"),
            _ => {
                let _ = std::fs::remove_dir_all(links(socket));
                empty = true;
            }
        }
    }
    if empty {
        let _ = std::fs::remove_file(state_path);
    }
}
