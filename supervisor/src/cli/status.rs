//! `migm status`: GPUs, slices and jobs.

use std::process::ExitCode;
use std::time::Duration;

use super::{Failure, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{NodeStatus, PolicyStatus, Reply, Request};
use crate::report::picture::Style;
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
    let (node, grids, policy) = ask(args.sim).map_err(|error| match error {
        ClientError::NoSupervisor(_) => Failure::no_gpu(format_args!(
            "{error}; `migm run` starts one for its job, `migm supervisor` one that stays"
        )),
        error => Failure::no_gpu(error),
    })?;
    if args.json {
        print_json(&StatusDocument::new(&node, policy.as_ref()))?;
    } else {
        print_text(&text(&node, &grids, policy.as_ref(), Style::of_stdout()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The status, the grids to draw it on, and the policy. An older supervisor does not know these, and hangs up.
fn ask(sim: Option<String>) -> Result<(NodeStatus, Vec<u32>, Option<PolicyStatus>), ClientError> {
    let wanted = Wanted {
        sim,
        ..Wanted::default()
    };
    let mut client = Client::first_of(&wanted.any_places())?;
    let node = client.ask(&Request::Status, LIMIT, |reply| match reply {
        Reply::Status(node) => Some(*node),
        _ => None,
    })?;
    let grids = client.ask(&Request::Grids, LIMIT, |reply| match reply {
        Reply::Grids(grids) => Some(grids),
        _ => None,
    });
    let policy = client.ask(&Request::Policy, LIMIT, |reply| match reply {
        Reply::Policy(policy) => Some(policy),
        _ => None,
    });
    Ok((node, grids.unwrap_or_default(), policy.ok()))
}
