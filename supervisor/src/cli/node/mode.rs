//! `migm node enable-mig` and `disable-mig`: the mode of one GPU, read back before anything is said.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::super::{Failure, exit, print_json, print_text};
use super::clear::{ask_clear, connect};
use super::{Machine, Options, indices, instances, records, status, wanted};
use crate::control::{NodeStatus, SliceStatus};
use crate::node::{Gpu, Holder, ModeChange, Node, Virtual};

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

pub(super) fn change(options: &Options, on: bool) -> Result<ExitCode, Failure> {
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
