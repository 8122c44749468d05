//! `migm node`: the GPUs of this machine as the driver has them, their MIG mode, and our idle slices.
//!
//! The mode is changed here and nowhere else, and only for the GPU that is named. Instances of others are
//! never touched: `disable-mig` refuses while one stands, and `clear` leaves it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::Failure;
use crate::control::client::Client;
use crate::control::start::Wanted;
use crate::control::{NodeStatus, Reply, Request, SliceStatus};
use crate::daemon::socket::beside;
use crate::daemon::state::{SliceRecord, State};
use crate::node::sim::{self, SimulatedGpu};
use crate::node::{Gpu, Node, NodeError, Nvml};

mod clear;
mod list;
mod mode;

/// A destroy that waits for a holder takes some seconds, one after the other.
const LIMIT: Duration = Duration::from_secs(60);

/// Show this machine's GPUs, and turn their MIG mode on or off
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show GPUs, their MIG mode and instances, and what to do about it
    List(Options),
    /// Turn MIG on; the GPU must be free
    EnableMig(Options),
    /// Turn MIG off; only idle slices of ours may stand, and go
    DisableMig(Options),
    /// Remove the idle slices that migm made; busy and foreign ones stay
    Clear(Options),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// This GPU, by NVML's index; needed for a change of mode where there are several
    #[arg(long, value_name = "I")]
    device: Option<u32>,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// The simulated GPUs of the private supervisor of this model; for list and the modes, fresh ones where
    /// none runs
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(options) => list::list(&options),
        Command::EnableMig(options) => mode::change(&options, true),
        Command::DisableMig(options) => mode::change(&options, false),
        Command::Clear(options) => clear::clear(&options),
    }
}

/// The driver to ask, and the simulated GPU that goes with this command.
struct Machine {
    node: Nvml,
    fresh: Option<(SimulatedGpu, tempfile::TempDir)>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some((gpu, _)) = &self.fresh {
            let _ = gpu.remove();
        }
    }
}

impl Machine {
    fn open(options: &Options, places: &[PathBuf]) -> Result<Self, Failure> {
        let Some(spec) = &options.sim else {
            let node = Nvml::system().map_err(Failure::no_gpu)?;
            return Ok(Self { node, fresh: None });
        };
        for place in places {
            let known = State::read(&beside(place, "state.json"))
                .map_err(Failure::no_gpu)?
                .simulated;
            if let Some(known) = known.filter(|known| known.spec == *spec)
                && let Ok(gpu) = SimulatedGpu::attach(&beside(place, "sim"), &known.id)
            {
                let node = gpu.node().map_err(Failure::no_gpu)?;
                return Ok(Self { node, fresh: None });
            }
        }
        let links = tempfile::tempdir().map_err(Failure::no_gpu)?;
        let objects = sim::objects().map_err(Failure::no_gpu)?;
        objects.link(links.path(), true).map_err(Failure::no_gpu)?;
        let gpu = SimulatedGpu::create(links.path(), spec, false, 0.0).map_err(Failure::input)?;
        let node = gpu.node().map_err(Failure::no_gpu)?;
        Ok(Self {
            node,
            fresh: Some((gpu, links)),
        })
    }
}

fn wanted(options: &Options) -> Wanted {
    Wanted {
        sim: options.sim.clone(),
        ..Wanted::default()
    }
}

/// The indices that the command is about.
fn indices(node: &dyn Node, device: Option<u32>) -> Result<Vec<u32>, Failure> {
    let count = node.count().map_err(Failure::no_gpu)?;
    match device {
        _ if count == 0 => Err(Failure::no_gpu("the driver lists no GPU on this machine")),
        Some(device) if device >= count => Err(Failure::input(format_args!(
            "there is no GPU {device} here; NVML counts {count} from 0"
        ))),
        Some(device) => Ok(vec![device]),
        None => Ok((0..count).collect()),
    }
}

/// What the supervisor says, if one answers.
fn status(places: &[PathBuf]) -> Option<NodeStatus> {
    let mut client = Client::first_of(places).ok()?;
    let answer = client.ask(&Request::Status, LIMIT, |reply| match reply {
        Reply::Status(node) => Some(*node),
        _ => None,
    });
    answer.ok()
}

/// Slices of ours by the state files, where no supervisor tells.
fn records(places: &[PathBuf]) -> Vec<SliceRecord> {
    let files = places
        .iter()
        .map(|place| State::read(&beside(place, "state.json")));
    files.flatten().flat_map(|state| state.slices).collect()
}

/// Instances by the driver. Ours by a state file are idle or busy, all others foreign.
fn instances(node: &dyn Node, gpu: &Gpu, ours: &[SliceRecord]) -> Result<(Vec<SliceStatus>, u32), NodeError> {
    let profiles = node.profiles(gpu.index)?;
    let occupied: Vec<u32> = node
        .processes(gpu.index)?
        .iter()
        .filter_map(|process| process.gi)
        .collect();
    let places = profiles.iter().flat_map(|profile| &profile.placements);
    let grid = places.map(|place| place.start + place.size).max().unwrap_or(1);
    let slices = node.instances(gpu.index)?.into_iter().map(|one| {
        let record = ours.iter().find(|record| {
            record.gpu_uuid == gpu.uuid
                && (record.profile, record.start) == (one.profile, one.placement.start)
                && record.gi.is_none_or(|gi| gi == one.gi)
                && (record.uuid.is_none() || record.uuid == one.uuid)
        });
        let state = match record {
            None => "foreign",
            Some(_) if occupied.contains(&one.gi) => "busy",
            Some(_) => "idle",
        };
        let name = profiles.iter().find(|profile| profile.id == one.profile);
        SliceStatus {
            profile: name.map_or_else(
                || format!("profile {}", one.profile),
                |profile| profile.name.clone(),
            ),
            start: one.placement.start,
            size: one.placement.size,
            state: state.to_owned(),
            incarnation: record.map(|record| record.slice),
            uuid: one.uuid,
            memory: one.memory.unwrap_or(0),
            job: None,
            ends_s: None,
        }
    });
    Ok((slices.collect(), grid))
}
