//! `migm cancel`: ends jobs.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use nix::sys::signal::Signal;

use super::jobs::{Document, Known, LIMIT, gather, living};
use super::{Failure, print_json};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{Reply, Request};
use crate::job::detached::Selector;

/// Cancel jobs that wait or run
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A job that waits is cancelled at once. One that runs gets its signal, then SIGKILL after its grace time.")]
pub struct Args {
    /// The jobs: numbers, as 7 or 7_2, or names; the number of an array means all of it
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<Selector>,
    /// One JSON document: the job as it was, of several `jobs[]`
    #[arg(long)]
    json: bool,
    /// Of the private supervisor of this simulated GPU
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = Wanted {
        sim: args.sim.clone(),
        ..Wanted::default()
    };
    // All are looked for before the first is cancelled: a wrong one changes nothing.
    let mut meant: Vec<Known> = Vec::new();
    for selector in &args.jobs {
        let found = living(selector, gather(&wanted)?)?;
        let is_new = |job: &Known| {
            !meant
                .iter()
                .any(|other| (other.id, &other.socket) == (job.id, &job.socket))
        };
        let new: Vec<Known> = found.into_iter().filter(is_new).collect();
        meant.extend(new);
    }
    // From the last to the first: no job takes the place of one that has just been cancelled before it.
    let mut clients = Clients::new();
    for job in meant.iter().rev() {
        cancel(job, &mut clients)?;
    }
    if args.json {
        #[derive(serde::Serialize)]
        struct List<'a> {
            jobs: Vec<Document<'a>>,
        }
        let mut jobs: Vec<Document> = meant.iter().map(Known::document).collect();
        match jobs.pop() {
            Some(only) if jobs.is_empty() => print_json(&only)?,
            last => {
                jobs.extend(last);
                print_json(&List { jobs })?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Connections to supervisors, by their sockets: one for all jobs that it has.
type Clients = HashMap<PathBuf, Client>;

fn cancel(job: &Known, clients: &mut Clients) -> Result<(), Failure> {
    let request = Request::Cancel { job: job.id };
    let known = clients
        .remove(&job.socket)
        .map_or_else(|| Client::connect(&job.socket), Ok);
    let asked = known.and_then(|mut client| {
        let asked = client.ask(&request, LIMIT, |reply| {
            matches!(reply, Reply::Done).then_some(())
        });
        if matches!(asked, Ok(()) | Err(ClientError::Refused(_))) {
            clients.insert(job.socket.clone(), client);
        }
        asked
    });
    match (asked, &job.kept) {
        (Ok(()), _) => Ok(()),
        // Without a supervisor the runner itself ends its job, as on any signal of the user's.
        (Err(ClientError::NoSupervisor(_)), Some((_, record))) => {
            if let Some(runner) = record.runner.process() {
                runner.signal(Signal::SIGTERM);
            }
            Ok(())
        }
        // It has ended meanwhile: what was wanted.
        (Err(ClientError::Refused(reason)), _) if reason.ends_with("has ended") => Ok(()),
        (Err(ClientError::Refused(reason)), _) => Err(Failure::new(super::exit::FAILED, reason)),
        (Err(error), _) => Err(Failure::no_gpu(error)),
    }
}
