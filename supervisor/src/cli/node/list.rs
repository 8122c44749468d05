//! `migm node list`: GPUs with their MIG mode, what is pending and what to do about it, and their instances.

use std::collections::HashMap;
use std::process::ExitCode;

use migm_shared::ids::JobId;
use serde::Serialize;

use super::super::{Failure, print_json, print_text};
use super::{Machine, Options, indices, instances, records, status, wanted};
use crate::control::{GpuStatus, NodeStatus, SliceStatus};
use crate::daemon::state::SliceRecord;
use crate::node::{Needs, Node};
use crate::report::picture::{Style, picture};
use crate::report::status::hint;

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

pub(super) fn list(options: &Options) -> Result<ExitCode, Failure> {
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
