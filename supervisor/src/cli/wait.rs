//! `migm wait`: until submitted jobs have ended.

use std::process::ExitCode;

use super::logs::kept;
use super::{Failure, exit};
use crate::control::ShownId;
use crate::job::detached::{How, Selector, folder};

/// Wait until submitted jobs have ended
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The exit status is that of the first job that did not end well, 1 if it never ran.")]
pub struct Args {
    /// The jobs: numbers, as 7 or 7_2, or names
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<Selector>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let mut jobs = Vec::new();
    for selector in &args.jobs {
        jobs.extend(kept(selector)?);
    }
    let mut status = 0;
    for (place, mut record) in jobs {
        let end = loop {
            if let Some(end) = record.end {
                break end;
            }
            let shown = ShownId(record.id, record.wishes.element);
            // Its end is the last that a runner writes before it goes.
            if let Some(runner) = record.runner.process() {
                runner.wait().map_err(|error| {
                    Failure::new(exit::FAILED, format_args!("cannot wait for job {shown}: {error}"))
                })?;
            }
            record = folder::read(&place).ok_or_else(|| {
                Failure::new(exit::FAILED, format_args!("job {shown} is not kept any more"))
            })?;
        };
        if status == 0 {
            // A program that is cancelled may still end with 0.
            status = match (end.how, end.status) {
                (How::Done, _) => 0,
                (_, None | Some(0)) => 1,
                (_, Some(status)) => status,
            };
        }
    }
    Ok(ExitCode::from(u8::try_from(status & 0xff).unwrap_or(u8::MAX)))
}
