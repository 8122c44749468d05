//! `migm status`: GPUs, slices and jobs.

use std::process::ExitCode;
use std::time::Duration;

use super::{Failure, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{NodeStatus, Reply, Request};
use crate::report::status::{StatusDocument, text};

const LIMIT: Duration = Duration::from_secs(10);

/// Show GPUs, their slices and the jobs on them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Of the private supervisor of this simulated GPU
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let node = ask(args.sim).map_err(|error| match error {
        ClientError::NoSupervisor(_) => Failure::no_gpu(format_args!(
            "{error}; `migm run` starts one for its job, `migm supervisor` one that stays"
        )),
        error => Failure::no_gpu(error),
    })?;
    if args.json {
        print_json(&StatusDocument::new(&node))?;
    } else {
        print_text(&text(&node))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(sim: Option<String>) -> Result<NodeStatus, ClientError> {
    let wanted = Wanted {
        sim,
        ..Wanted::default()
    };
    let mut client = Client::first_of(&wanted.places())?;
    client.ask(&Request::Status, LIMIT, |reply| match reply {
        Reply::Status(node) => Some(*node),
        _ => None,
    })
}
