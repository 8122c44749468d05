//! `migm node`: the GPUs of this machine as the driver has them, their MIG mode, and our idle slices.
//!
//! The mode is changed here and nowhere else, and only for the GPU that is named. Instances of others are
//! never touched: `disable-mig` refuses while one stands, and `clear` leaves it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::ids::JobId;
use serde::Serialize;

use super::{Failure, exit, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{GpuStatus, NodeStatus, Reply, Request, SliceStatus};
use crate::daemon::socket::beside;
use crate::daemon::state::{SliceRecord, State};
use crate::node::sim::{self, SimulatedGpu};
use crate::node::{Gpu, Holder, ModeChange, Needs, Node, NodeError, Nvml, Virtual};
use crate::report::picture::{Style, picture};
use crate::report::status::hint;

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

/// One GPU of `list`.
#[derive(Debug, Serialize)]
struct Listed {
    index: u32,
    name: String,
    uuid: String,
    /// As `migm status` has it.
    mode: String,
    /// `on`, `off` or `absent` now.
    current: &'static str,
    /// The same after the next reset.
    pending: &'static str,
    memory_bytes: u64,
    /// What to do where the mode hinders.
    remedy: Option<String>,
    /// Why nothing more is known of it.
    error: Option<String>,
    slices: Vec<SliceStatus>,
    #[serde(skip)]
    grid: u32,
}

/// One GPU of a change of mode.
#[derive(Debug, Serialize)]
struct Changed {
    index: u32,
    name: String,
    uuid: String,
    /// `on`, `off` or `absent` before.
    found: &'static str,
    /// `already`, `done`, `pending` or `refused`.
    outcome: &'static str,
    /// As read back.
    current: &'static str,
    pending: &'static str,
    /// One line for people.
    said: String,
    holders: Vec<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Command::List(options) => list(&options),
        Command::EnableMig(options) => change(&options, true),
        Command::DisableMig(options) => change(&options, false),
        Command::Clear(options) => clear(&options),
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

fn list(options: &Options) -> Result<ExitCode, Failure> {
    let places = wanted(options).any_places();
    let machine = Machine::open(options, &places)?;
    let told = status(&places);
    let ours = records(&places);
    let gpus: Vec<Listed> = indices(&machine.node, options.device)?
        .into_iter()
        .map(|index| listed(&machine.node, index, told.as_ref(), &ours))
        .collect();
    if options.json {
        #[derive(Serialize)]
        struct Document<'a> {
            gpus: &'a [Listed],
        }
        print_json(&Document { gpus: &gpus })?;
    } else {
        print_text(&list_text(&gpus, told.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn listed(node: &dyn Node, index: u32, told: Option<&NodeStatus>, ours: &[SliceRecord]) -> Listed {
    match node.gpu(index) {
        Ok(gpu) => {
            let known = told.and_then(|told| told.gpus.iter().find(|one| one.uuid == gpu.uuid));
            let instances = if gpu.mode.is_on() {
                instances(node, &gpu, ours)
            } else {
                Ok((Vec::new(), 1))
            };
            let error = instances.as_ref().err().map(ToString::to_string);
            let (seen, grid) = instances.unwrap_or((Vec::new(), 1));
            Listed {
                index,
                mode: known.map_or(gpu.mode.word(), |known| &known.mode).to_owned(),
                current: gpu.mode.now(),
                pending: gpu.mode.pending(),
                memory_bytes: gpu.memory,
                remedy: gpu.mode.remedy(index, node.virtualisation(index)),
                error,
                slices: known.map_or(seen, |known| known.slices.clone()),
                name: gpu.name,
                uuid: gpu.uuid,
                grid,
            }
        }
        Err(error) => Listed {
            index,
            name: format!("GPU {index}"),
            uuid: String::new(),
            mode: if error.is_gpu_lost() { "lost" } else { "failing" }.to_owned(),
            current: "unknown",
            pending: "unknown",
            memory_bytes: 0,
            remedy: Some(Needs::Reset.remedy(index)),
            error: Some(error.to_string()),
            slices: Vec::new(),
            grid: 1,
        },
    }
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

fn list_text(gpus: &[Listed], told: Option<&NodeStatus>) -> String {
    let names: HashMap<JobId, &str> = told
        .iter()
        .flat_map(|told| &told.jobs)
        .map(|job| (job.id, job.name.as_str()))
        .collect();
    let mut text = String::new();
    for gpu in gpus {
        text.push_str(&format!("GPU {}  {}  {}\n", gpu.index, gpu.name, gpu.uuid));
        let pending = match gpu.pending {
            pending if pending == gpu.current => String::new(),
            pending => format!(" (after a reset: {pending})"),
        };
        text.push_str(&format!("  MIG {}{pending}\n", gpu.current));
        if let Some(error) = &gpu.error {
            text.push_str(&format!("  {error}\n"));
        }
        let remedy = gpu.remedy.as_deref().or_else(|| hint(&gpu.mode));
        if let Some(remedy) = remedy {
            text.push_str(&format!("  {remedy}\n"));
        }
        if gpu.current == "on" {
            let drawn = GpuStatus {
                name: gpu.name.clone(),
                uuid: gpu.uuid.clone(),
                mode: gpu.mode.clone(),
                slices: gpu.slices.clone(),
            };
            let name = |job| names.get(&job).copied().unwrap_or_default().to_owned();
            text.push_str(&picture(&drawn, gpu.grid, Style::of_stdout(), name));
        }
    }
    text
}

fn change(options: &Options, on: bool) -> Result<ExitCode, Failure> {
    let places = wanted(options).any_places();
    let machine = Machine::open(options, &places)?;
    let indices = indices(&machine.node, options.device)?;
    if indices.len() > 1 {
        return Err(Failure::input(format_args!(
            "there are {} GPUs here: name one with --device",
            indices.len()
        )));
    }
    let index = indices[0];
    let before = machine.node.gpu(index).map_err(Failure::no_gpu)?;
    let blocked = if on {
        Vec::new()
    } else {
        make_free(&machine.node, &before, &places, options.sim.as_deref())?
    };
    let outcome = if blocked.is_empty() {
        machine.node.set_mode(index, on).map_err(|error| {
            // A guest of a vGPU is told who can, instead of what the driver calls it.
            match machine.node.virtualisation(index) {
                Virtual::Vgpu if error.is_not_supported() => Failure::no_gpu(format_args!(
                    "{error}; a vGPU guest cannot change the MIG mode, its host can"
                )),
                _ => Failure::no_gpu(error),
            }
        })?
    } else {
        ModeChange::InUse(Vec::new())
    };
    let after = machine.node.gpu(index).map_err(Failure::no_gpu)?;
    let changed = changed(&before, &after, on, &outcome, &blocked);
    let code = match outcome {
        ModeChange::Already | ModeChange::Done => ExitCode::SUCCESS,
        // Asked for, and not what the user wanted yet.
        ModeChange::Pending(_) | ModeChange::InUse(_) => ExitCode::from(exit::FAILED),
    };
    if options.json {
        print_json(&serde_json::json!({ "gpus": [changed] }))?;
    } else {
        print_text(&format!("{}\n", changed.said))?;
    }
    Ok(code)
}

/// Before MIG is turned off: what stands on the GPU and is not an idle slice of ours. Where there is nothing
/// of that kind, our idle slices go.
fn make_free(
    node: &dyn Node,
    gpu: &Gpu,
    places: &[PathBuf],
    sim: Option<&str>,
) -> Result<Vec<String>, Failure> {
    if !gpu.mode.is_on() {
        return Ok(Vec::new());
    }
    let standing = |told: Option<&NodeStatus>| {
        let known = told.and_then(|told| told.gpus.iter().find(|one| one.uuid == gpu.uuid));
        match known {
            Some(known) => Ok(known.slices.clone()),
            None => instances(node, gpu, &records(places)).map(|(slices, _)| slices),
        }
    };
    let slices = standing(status(places).as_ref()).map_err(Failure::no_gpu)?;
    let in_the_way = |slice: &&SliceStatus| slice.state != "idle";
    let name = |slice: &SliceStatus| match slice.job {
        Some(job) => format!(
            "{}@{} is {} with job {job}",
            slice.profile, slice.start, slice.state
        ),
        None => format!("{}@{} is {}", slice.profile, slice.start, slice.state),
    };
    let blocked: Vec<String> = slices.iter().filter(in_the_way).map(name).collect();
    if !blocked.is_empty() || slices.is_empty() {
        return Ok(blocked);
    }
    let mut client = connect(places, sim)?;
    let (_, kept, failed) = ask_clear(&mut client, Some(gpu.index))?;
    Ok([kept, failed].concat())
}

fn changed(before: &Gpu, after: &Gpu, on: bool, outcome: &ModeChange, blocked: &[String]) -> Changed {
    let (index, wanted) = (before.index, if on { "on" } else { "off" });
    let holders: Vec<String> = match outcome {
        ModeChange::InUse(holders) => holders.iter().map(Holder::to_string).collect(),
        _ => Vec::new(),
    };
    let (word, said) = match outcome {
        ModeChange::Already => ("already", format!("MIG of GPU {index} is {wanted} already")),
        ModeChange::Done => (
            "done",
            format!("MIG of GPU {index} is {wanted} now, it was {}", before.mode.now()),
        ),
        ModeChange::Pending(needs) => (
            "pending",
            format!(
                "MIG of GPU {index} is {} and will be {wanted}: {}",
                after.mode.now(),
                needs.remedy(index)
            ),
        ),
        ModeChange::InUse(_) if !blocked.is_empty() => (
            "refused",
            format!(
                "MIG stays {} on GPU {index}: {}",
                after.mode.now(),
                blocked.join("; ")
            ),
        ),
        ModeChange::InUse(_) if holders.is_empty() => (
            "refused",
            format!(
                "MIG stays {} on GPU {index}: it is in use, and no holder is visible to this user",
                after.mode.now()
            ),
        ),
        ModeChange::InUse(_) => (
            "refused",
            format!(
                "MIG stays {} on GPU {index}, it is in use: {}; stop them and try again",
                after.mode.now(),
                holders.join(", ")
            ),
        ),
    };
    Changed {
        index,
        name: after.name.clone(),
        uuid: after.uuid.clone(),
        found: before.mode.now(),
        outcome: word,
        current: after.mode.now(),
        pending: after.mode.pending(),
        said,
        holders: [holders.as_slice(), blocked].concat(),
    }
}

/// The supervisor that runs; else a private one for slices that its state file names. `None` where there is
/// nothing of ours.
fn connect_for_clear(places: &[PathBuf], sim: Option<&str>) -> Result<Option<Client>, Failure> {
    match Client::first_of(places) {
        Ok(client) => return Ok(Some(client)),
        Err(ClientError::NoSupervisor(_)) => {}
        Err(error) => return Err(Failure::no_gpu(error)),
    }
    let Some((own, services)) = places.split_last() else {
        return Ok(None);
    };
    let names = |place: &PathBuf| !records(std::slice::from_ref(place)).is_empty();
    if names(own) {
        let wanted = Wanted {
            socket: Some(own.clone()),
            sim: sim.map(str::to_owned),
            ..Wanted::default()
        };
        return wanted.connect_or_start().map(Some).map_err(Failure::no_gpu);
    }
    match services.iter().find(|place| names(place)) {
        Some(place) => Err(Failure::no_gpu(format_args!(
            "{} names slices, and its supervisor does not run: start it",
            beside(place, "state.json").display()
        ))),
        None => Ok(None),
    }
}

fn connect(places: &[PathBuf], sim: Option<&str>) -> Result<Client, Failure> {
    connect_for_clear(places, sim)?.ok_or_else(|| Failure::no_gpu(ClientError::NoSupervisor(places.to_vec())))
}

fn clear(options: &Options) -> Result<ExitCode, Failure> {
    let places = wanted(options).any_places();
    let (removed, kept, failed) = match connect_for_clear(&places, options.sim.as_deref())? {
        Some(mut client) => ask_clear(&mut client, options.device)?,
        None => (0, Vec::new(), Vec::new()),
    };
    if options.json {
        print_json(&serde_json::json!({ "removed": removed, "kept": kept, "failed": failed }))?;
    } else {
        let mut text = match removed {
            0 => "no idle slice of ours was removed\n".to_owned(),
            1 => "removed 1 slice\n".to_owned(),
            more => format!("removed {more} slices\n"),
        };
        for line in &kept {
            text.push_str(&format!("kept: {line}\n"));
        }
        for line in &failed {
            text.push_str(&format!("not removed: {line}\n"));
        }
        print_text(&text)?;
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

type Cleared = (u32, Vec<String>, Vec<String>);

fn ask_clear(client: &mut Client, device: Option<u32>) -> Result<Cleared, Failure> {
    let answer = client.ask(&Request::Clear { device }, LIMIT, |reply| match reply {
        Reply::Cleared {
            removed,
            kept,
            failed,
        } => Some((removed, kept, failed)),
        _ => None,
    });
    answer.map_err(|error| match error {
        ClientError::Refused(reason) => Failure::input(reason),
        error => Failure::no_gpu(error),
    })
}
