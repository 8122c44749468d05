//! `migm layout`: which slices can stand together on a GPU, and what each choice leaves open; with `--why`, what
//! is in the way of one more slice.

use std::process::ExitCode;
use std::time::Instant;

use serde::Serialize;

use super::{Failure, print_json, print_text};
use crate::layout::{Profile, ProfileIndex, Rules, Slot, Standing, Table, base};
use crate::node::sim::{SimulatedGpu, objects};
use crate::node::{Node, Nvml};
use crate::report::table::Table as Text;

mod why;

use why::Why;

/// Show which slices a GPU can have, and what is in the way of one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
For each slice that can be made: how many full layouts are still within reach with it.

Examples:
  migm layout --gpu a100-40gb --after 1g.5gb@6
  migm layout --why 3g.20gb")]
pub struct Args {
    /// A model, such as a100-40gb, instead of a GPU of this machine
    #[arg(long, value_name = "G", conflicts_with = "device")]
    gpu: Option<String>,
    /// A GPU of this machine, by NVML's index
    #[arg(long, value_name = "I", default_value_t = 0)]
    device: u32,
    /// For each count of compute slices the profile with the least memory, or all profiles
    #[arg(long, value_enum, default_value_t)]
    profiles: Profiles,
    /// Slices that are there already, such as 1g.5gb@6,2g.10gb@0. For --why each may say whose it is: =idle,
    /// =foreign, =busy, or =busy:90 where it is forecast to end in 90 s; busy if it does not say
    #[arg(long, value_name = "P@S[=STATE],...", value_delimiter = ',')]
    after: Vec<String>,
    /// Say why no slice of this profile can be had, and what would free it. Without --gpu and --after it is about
    /// what the supervisor shows on the GPU
    #[arg(long, value_name = "P")]
    why: Option<String>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

/// Which profiles take part.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, clap::ValueEnum)]
enum Profiles {
    // No doc comments: clap would give each value a paragraph.
    #[default]
    Base,
    All,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Document {
    gpu: String,
    driver: String,
    after: Vec<String>,
    /// States within reach of the empty GPU, itself included.
    states: usize,
    /// Full layouts within reach of the empty GPU.
    full_layouts: usize,
    /// Creates that lead from one state to another.
    edges: usize,
    /// Wall time of building the table, microseconds.
    build_us: f64,
    /// Full layouts within reach of the state asked for.
    reachable: usize,
    /// Every create that is possible there.
    placements: Vec<Create>,
    /// The answer to `--why`.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<Why>,
}

#[derive(Debug, Serialize)]
struct Create {
    profile: String,
    start: u32,
    size: u32,
    memory_bytes: u64,
    /// Full layouts within reach after it.
    reachable: usize,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let document = match &args.gpu {
        Some(model) => ask_model(model, |node| document(node, 0, args)),
        None => document(&Nvml::system().map_err(Failure::no_gpu)?, args.device, args),
    }?;
    if args.json {
        print_json(&document)?;
    } else {
        print_text(&text(&document))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks a simulated GPU of a model.
fn ask_model<T>(model: &str, ask: impl FnOnce(&Nvml) -> Result<T, Failure>) -> Result<T, Failure> {
    let links = tempfile::tempdir().map_err(Failure::no_gpu)?;
    let objects = objects().map_err(Failure::no_gpu)?;
    objects.link(links.path(), true).map_err(Failure::no_gpu)?;
    // A model that is not known is a wrong argument; its line names those that are.
    let gpu = SimulatedGpu::create(links.path(), model, true, 1.0).map_err(Failure::input)?;
    let answer = gpu.node().map_err(Failure::no_gpu).and_then(|node| ask(&node));
    // Answered or not, the GPU was for this question only.
    let _ = gpu.remove();
    answer
}

/// The states of a model of GPU, with all profiles but variants.
pub(super) fn table_of_model(model: &str) -> Result<Table, Failure> {
    ask_model(model, |node| {
        let driver = node.driver().map_err(Failure::no_gpu)?;
        let mut profiles = node.profiles(0).map_err(Failure::no_gpu)?;
        profiles.retain(|profile| !profile.is_variant());
        Table::build(profiles, Rules::for_version(&driver))
            .map_err(|error| Failure::no_gpu(format_args!("{model}: {error}")))
    })
}

fn document(node: &impl Node, device: u32, args: &Args) -> Result<Document, Failure> {
    let gpus = node.gpus().map_err(Failure::no_gpu)?;
    let gpu = gpus.iter().find(|gpu| gpu.index == device).ok_or_else(|| {
        Failure::input(format_args!(
            "there is no GPU {device} here; NVML counts {} from 0",
            gpus.len()
        ))
    })?;
    let driver = node.driver().map_err(Failure::no_gpu)?;
    let all = node.profiles(device).map_err(Failure::no_gpu)?;
    let shown = if args.why.is_some() && args.gpu.is_none() && args.after.is_empty() {
        Some(why::shown(node, device, &gpu.uuid)?)
    } else {
        None
    };
    // What stands decides as well: a variant on the GPU is no base profile.
    let names = args.why.iter().chain(&args.after).chain(shown.iter().flatten());
    let base_only = args.profiles == Profiles::Base && names.clone().all(|text| is_base(&all, text));
    let profiles = if base_only { base(&all) } else { all };
    let began = Instant::now();
    let table = Table::build(profiles, Rules::for_version(&driver))
        .map_err(|error| Failure::no_gpu(format_args!("{}: {error}", gpu.name)))?;
    let build_us = began.elapsed().as_secs_f64() * 1e6;
    let standing = shown
        .as_ref()
        .unwrap_or(&args.after)
        .iter()
        .map(|text| why::standing(&table, text.trim()))
        .collect::<Result<Vec<Standing>, Failure>>()?;
    let after: Vec<Slot> = standing.iter().map(|one| one.slot).collect();
    let state = table.state_of(&after).map_err(Failure::input)?;
    let wanted = args.why.as_ref().map(|name| profile(&table, name.trim()));
    let why = match wanted {
        Some(wanted) => Some(Why::new(&table, &standing, wanted?).map_err(Failure::input)?),
        None => None,
    };
    let creates = table.placements(state).into_iter();
    Ok(Document {
        gpu: gpu.name.clone(),
        driver,
        after: after.iter().map(|&slot| table.named(slot)).collect(),
        states: table.states(),
        full_layouts: table.full_layouts(),
        edges: table.edges(),
        build_us,
        reachable: table.reachable(state),
        placements: creates
            .map(|(profile, placement, reachable)| Create {
                profile: table.profile(profile).name.clone(),
                start: placement.start,
                size: placement.size,
                memory_bytes: table.profile(profile).memory,
                reachable,
            })
            .collect(),
        why,
    })
}

/// Whether the profile that a text begins with is no variant and no double-memory profile, as far as it is known.
fn is_base(all: &[Profile], text: &str) -> bool {
    let name = text.split(['@', '=']).next().unwrap_or(text).trim();
    let known = all.iter().any(|profile| profile.name == name);
    !known || base(all).iter().any(|profile| profile.name == name)
}

/// The profile called `1g.5gb`, or `1g` where only one is.
fn profile(table: &Table, name: &str) -> Result<ProfileIndex, Failure> {
    let prefix = format!("{name}.");
    let short = || {
        let mut matching = (0..table.profiles().len())
            .filter(|&index| table.profiles()[index].name.starts_with(&prefix))
            .map(ProfileIndex);
        let only = matching.next()?;
        matching.next().is_none().then_some(only)
    };
    table.profile_named(name).or_else(short).ok_or_else(|| {
        let known: Vec<&str> = table.profiles().iter().map(|p| p.name.as_str()).collect();
        Failure::input(format_args!(
            "there is no profile `{name}` here; there are {}",
            known.join(", ")
        ))
    })
}

/// Reads `1g.5gb@6`, and `1g@6` where only one profile is a `1g`.
fn slot(table: &Table, text: &str) -> Result<Slot, Failure> {
    let named = |text: &str| table.slot_named(text).map_err(Failure::input);
    let Some((short, start)) = text.split_once('@') else {
        return named(text);
    };
    match profile(table, short) {
        Ok(only) => named(&format!("{}@{start}", table.profile(only).name)),
        Err(_) => named(text),
    }
}

fn text(document: &Document) -> String {
    use std::fmt::Write;
    let mut text = format!(
        "{}, driver {}: {} states, {} full layouts, {} edges (table built in {:.0} us, measured)\n",
        document.gpu,
        document.driver,
        document.states,
        document.full_layouts,
        document.edges,
        document.build_us
    );
    let there = if document.after.is_empty() {
        "on the empty GPU".to_owned()
    } else {
        format!("after {}", document.after.join(", "))
    };
    let _ = writeln!(
        text,
        "{there} {} full layouts are within reach",
        document.reachable
    );
    if let Some(why) = &document.why {
        text.push('\n');
        text.push_str(&why.text());
        return text;
    }
    if document.placements.is_empty() {
        text.push_str("nothing more can be created\n");
        return text;
    }
    let mut table = Text::new(&["create", ">units", ">memory", ">then within reach"]);
    for create in &document.placements {
        table.row([
            format!("{}@{}", create.profile, create.start),
            create.size.to_string(),
            migm_shared::units::Bytes(create.memory_bytes).to_string(),
            create.reachable.to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document {
            gpu: "NVIDIA A30".into(),
            driver: "570.1".into(),
            after: vec!["1g.6gb@0".into()],
            states: 13,
            full_layouts: 5,
            edges: 20,
            build_us: 12.3,
            reachable: 2,
            placements: vec![Create {
                profile: "2g.12gb".into(),
                start: 2,
                size: 2,
                memory_bytes: 12 << 30,
                reachable: 1,
            }],
            why: None,
        }
    }

    #[test]
    fn a_layout_for_people() {
        insta::assert_snapshot!(text(&document()));
    }
}
