//! `migm serve transition`: the steps from one plan to another while all services run.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::super::{Failure, exit, print_json, print_text};
use super::{deployment, name, read, tables, write};
use crate::layout::Slot;
use crate::report::deployment::{Board, Cell, page};
use crate::report::table::Table as Text;
use crate::serve::transition::{
    Action, Options, Replay, Resident, Step, Times, Transition, exchange_and_compact, replay, transition,
};

/// Find the steps from one plan to another while all is served
#[derive(Debug, clap::Args)]
pub(super) struct TransitionArgs {
    /// The plan that runs, as `migm serve plan --json` writes it
    #[arg(long, value_name = "FILE")]
    from: PathBuf,
    /// The plan that shall run
    #[arg(long, value_name = "FILE")]
    to: PathBuf,
    /// Most GPUs beyond those of the larger plan [default: as many as no service dips with]
    #[arg(long, value_name = "N")]
    max_extra_gpus: Option<usize>,
    /// How long steps take: TOML with create_s, delete_s, migrate_local_s, migrate_remote_s, repartition_s
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// Write a picture of the GPUs before and after
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Document {
    gpus: Vec<GpuEntry>,
    steps: Vec<StepEntry>,
    creates: usize,
    deletes: usize,
    migrates: usize,
    repartitions: usize,
    /// GPUs beyond those of the larger plan.
    extra_gpus: usize,
    makespan_s: f64,
    /// Least of what a service got over what it must get; null where no service runs on.
    min_satisfaction: Option<f64>,
    /// Services that get less than they must at some time.
    dips: Vec<Dip>,
    /// The same by MIG-serving's exchange and compact, one step after the other.
    serial: SerialEntry,
}

#[derive(Debug, Serialize)]
struct SerialEntry {
    steps: usize,
    extra_gpus: usize,
    makespan_s: f64,
}

#[derive(Debug, Serialize)]
struct GpuEntry {
    gpu: usize,
    kind: String,
    /// Its number in the old plan.
    from: Option<usize>,
    /// Its number in the new plan.
    to: Option<usize>,
    extra: bool,
}

#[derive(Debug, Serialize)]
struct StepEntry {
    step: usize,
    action: &'static str,
    gpu: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<SliceEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_gpu: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_slice: Option<SliceEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed: Vec<SliceEntry>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    made: Vec<SliceEntry>,
    start_s: f64,
    end_s: f64,
    /// Steps that must have ended before.
    after: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct SliceEntry {
    profile: String,
    start: u32,
    size: u32,
}

#[derive(Debug, Serialize)]
struct Dip {
    service: String,
    least_rps: f64,
    floor_rps: f64,
}

pub(super) fn main(args: &TransitionArgs) -> Result<ExitCode, Failure> {
    let (from, to) = (deployment(&args.from)?, deployment(&args.to)?);
    let times = match &args.times {
        None => Times::default(),
        Some(path) => Times::parse(&read(path)?)
            .map_err(|fault| Failure::input(format_args!("{}: {fault}", name(path))))?,
    };
    let options = Options {
        times,
        max_extra_gpus: args.max_extra_gpus,
    };
    let tables = tables([&from, &to])?;
    let found = transition(&from, &to, &tables, &options).map_err(Failure::input)?;
    let length = |step: &Step| step.end_ms - step.start_ms;
    let seen = replay(&found, length).map_err(|error| Failure::new(exit::FAILED, error))?;
    let document = document(&found, &seen, times);
    if let Some(path) = &args.html {
        write(path, &picture(&found, &document))?;
    }
    if args.json {
        print_json(&document)?;
    } else {
        print_text(&text(&document))?;
    }
    let said = document.dips.iter().map(|dip| {
        format!(
            "service {} would dip to {:.1} of {:.1} requests/s",
            dip.service, dip.least_rps, dip.floor_rps
        )
    });
    let dips: Vec<String> = said.collect();
    if dips.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let free = Options {
        max_extra_gpus: None,
        ..options
    };
    let enough = transition(&from, &to, &tables, &free).map_err(Failure::input)?;
    Err(Failure::new(
        exit::FAILED,
        format_args!(
            "with at most {} extra GPUs {}; with {} none would",
            args.max_extra_gpus.unwrap_or(0),
            dips.join(", "),
            enough.extra_gpus()
        ),
    ))
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}

fn document(found: &Transition, seen: &Replay, times: Times) -> Document {
    let stage = &found.stage;
    let entry = |gpu: usize, slot: Slot| SliceEntry {
        profile: stage.table(&stage.gpus[gpu]).profile(slot.0).name.clone(),
        start: slot.1.start,
        size: slot.1.size,
    };
    let steps = found.steps.iter().enumerate().map(|(index, step)| {
        let mut made = StepEntry {
            step: index,
            action: "",
            gpu: 0,
            slice: None,
            from_gpu: None,
            from_slice: None,
            service: None,
            removed: Vec::new(),
            made: Vec::new(),
            start_s: seconds(step.start_ms),
            end_s: seconds(step.end_ms),
            after: step.after.clone(),
        };
        match &step.action {
            Action::Create { gpu, slot, instance } | Action::Delete { gpu, slot, instance } => {
                let creates = matches!(step.action, Action::Create { .. });
                made.action = if creates { "create" } else { "delete" };
                (made.gpu, made.slice) = (*gpu, Some(entry(*gpu, *slot)));
                made.service = Some(stage.services[instance.service].name.clone());
            }
            Action::Migrate { from, to, instance } => {
                made.action = "migrate";
                (made.gpu, made.slice) = (to.0, Some(entry(to.0, to.1)));
                (made.from_gpu, made.from_slice) = (Some(from.0), Some(entry(from.0, from.1)));
                made.service = Some(stage.services[instance.service].name.clone());
            }
            Action::Repartition {
                gpu,
                removed,
                made: new,
            } => {
                (made.action, made.gpu) = ("repartition", *gpu);
                made.removed = removed.iter().map(|&slot| entry(*gpu, slot)).collect();
                made.made = new.iter().map(|&slot| entry(*gpu, slot)).collect();
            }
        }
        made
    });
    let steps: Vec<StepEntry> = steps.collect();
    let count = |action: &str| steps.iter().filter(|step| step.action == action).count();
    let gpus = stage.gpus.iter().enumerate().map(|(index, gpu)| GpuEntry {
        gpu: index,
        kind: stage.kinds[gpu.kind].0.clone(),
        from: gpu.from,
        to: gpu.to,
        extra: gpu.extra,
    });
    let both = stage.services.iter().zip(&seen.least);
    let dips = both
        .filter(|(service, least)| **least < service.floor)
        .map(|(service, &least)| Dip {
            service: service.name.clone(),
            least_rps: least as f64 / 1e6,
            floor_rps: service.floor as f64 / 1e6,
        });
    let serial = exchange_and_compact(stage, times);
    Document {
        creates: count("create"),
        deletes: count("delete"),
        migrates: count("migrate"),
        repartitions: count("repartition"),
        gpus: gpus.collect(),
        extra_gpus: found.extra_gpus(),
        makespan_s: seconds(seen.makespan_ms),
        min_satisfaction: seen.min_satisfaction.is_finite().then_some(seen.min_satisfaction),
        dips: dips.collect(),
        serial: SerialEntry {
            steps: serial.steps(),
            extra_gpus: serial.extra_gpus,
            makespan_s: seconds(serial.makespan_ms),
        },
        steps,
    }
}

fn at(gpu: usize, slice: &SliceEntry) -> String {
    format!("GPU {gpu} {}@{}", slice.profile, slice.start)
}

/// What a step does, in words.
fn said(step: &StepEntry) -> String {
    let service = step.service.as_deref().unwrap_or("");
    let here = step
        .slice
        .as_ref()
        .map_or_else(String::new, |slice| at(step.gpu, slice));
    match (step.from_gpu, &step.from_slice) {
        (Some(gpu), Some(slice)) => format!("{service}: {} -> {here}", at(gpu, slice)),
        _ if step.action == "repartition" => {
            let list = |slices: &[SliceEntry]| {
                let names = slices
                    .iter()
                    .map(|slice| format!("{}@{}", slice.profile, slice.start));
                names.collect::<Vec<_>>().join(" ")
            };
            format!(
                "GPU {}: -[{}] +[{}]",
                step.gpu,
                list(&step.removed),
                list(&step.made)
            )
        }
        _ => format!("{service}: {here}"),
    }
}

fn headline(document: &Document) -> String {
    let satisfaction = document.min_satisfaction.map_or_else(
        || "no service runs on".to_owned(),
        |least| format!("least satisfaction {least:.3}"),
    );
    format!(
        "{} steps ({} create, {} delete, {} migrate, {} repartition), {} extra GPUs, {:.1} s, {satisfaction}",
        document.steps.len(),
        document.creates,
        document.deletes,
        document.migrates,
        document.repartitions,
        document.extra_gpus,
        document.makespan_s
    )
}

fn text(document: &Document) -> String {
    let serial = &document.serial;
    let mut text = format!(
        "{} (modelled)\nexchange and compact, one step after the other: {} steps, {} extra GPUs, {:.1} s\n\n",
        headline(document),
        serial.steps,
        serial.extra_gpus,
        serial.makespan_s
    );
    let mut table = Text::new(&[">step", ">start s", ">end s", "action", "what", "after"]);
    for step in &document.steps {
        let after: Vec<String> = step.after.iter().map(ToString::to_string).collect();
        table.row([
            step.step.to_string(),
            format!("{:.1}", step.start_s),
            format!("{:.1}", step.end_s),
            step.action.to_owned(),
            said(step),
            after.join(" "),
        ]);
    }
    text.push_str(&table.render());
    text
}

fn picture(found: &Transition, document: &Document) -> String {
    let stage = &found.stage;
    let board = |title: &str, gpu: &crate::serve::transition::Gpu, residents: &[Resident]| {
        let table = stage.table(gpu);
        let cells = residents.iter().map(|resident| Cell {
            start: resident.slot.1.start,
            size: resident.slot.1.size,
            profile: table.profile(resident.slot.0).name.clone(),
            service: stage.services[resident.instance.service].name.clone(),
        });
        Board {
            title: title.to_owned(),
            units: table
                .profile(table.full())
                .placements
                .iter()
                .map(|place| place.size)
                .max()
                .unwrap_or(1),
            cells: cells.collect(),
        }
    };
    let rows = stage.gpus.iter().enumerate().map(|(index, gpu)| {
        let title = format!(
            "GPU {index} {}{}",
            stage.kinds[gpu.kind].0,
            if gpu.extra { " (extra)" } else { "" }
        );
        vec![board(&title, gpu, &gpu.before), board("", gpu, &gpu.after)]
    });
    let bars = document.steps.iter().map(|step| crate::report::deployment::Bar {
        label: format!("{} {} {}", step.step, step.action, said(step)),
        action: step.action.to_owned(),
        start_s: step.start_s,
        end_s: step.end_s,
    });
    let rows: Vec<Vec<Board>> = rows.collect();
    let bars: Vec<_> = bars.collect();
    page(
        "Transition",
        &headline(document),
        &["before", "after"],
        &rows,
        &bars,
    )
}
