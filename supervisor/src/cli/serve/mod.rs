//! `migm serve`: plans for many models on few GPUs, and the way from one plan to the next.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use super::{Failure, exit};
use crate::serve::{Deployment, Tables};

mod output;
mod plan;
mod transition;

/// Plan which slices serve many models on the fewest GPUs
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(plan::PlanArgs),
    Transition(transition::TransitionArgs),
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Plan(args) => plan::main(args),
        Command::Transition(args) => transition::main(args),
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", name(path))))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text)
        .map_err(|error| Failure::new(exit::FAILED, format_args!("cannot write {}: {error}", name(path))))
}

/// Reads a plan as `--json` writes it.
fn deployment(path: &Path) -> Result<Deployment, Failure> {
    Deployment::parse(&name(path), &read(path)?).map_err(Failure::input)
}

/// The tables of all kinds of GPU that deployments use.
fn tables<'a>(deployments: impl IntoIterator<Item = &'a Deployment>) -> Result<Tables, Failure> {
    let mut tables = Tables::new();
    for kind in deployments.into_iter().flat_map(Deployment::kinds) {
        if !tables.contains_key(kind) {
            tables.insert(kind.to_owned(), super::layout::table_of_model(kind)?);
        }
    }
    Ok(tables)
}
