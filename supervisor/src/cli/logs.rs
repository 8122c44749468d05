//! `migm logs`: what a detached job has written.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;

use super::jobs::{Document, Known};
use super::{Failure, exit, print_json};
use crate::job::detached::{self, Record, Selector, folder};

/// Between two looks at a log that is followed.
const LOOK: Duration = Duration::from_millis(100);

/// Show what a submitted job has written, while it runs and after
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job: its number, as 7 or 7_2, or its name
    #[arg(value_name = "JOB")]
    job: Selector,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Standard error instead, with what its runner says
    #[arg(long)]
    err: bool,
    /// One JSON document: the job, and the files that hold its output
    #[arg(long, conflicts_with_all = ["follow", "err"])]
    json: bool,
}

/// A job, and where its output is.
#[derive(Debug, Serialize)]
struct Files<'a> {
    #[serde(flatten)]
    job: Document<'a>,
    out: PathBuf,
    err: PathBuf,
}

/// The detached jobs that are meant, with their folders.
pub(super) fn kept(selector: &Selector) -> Result<Vec<(PathBuf, Record)>, Failure> {
    let found = detached::place().map_or_else(Vec::new, |place| selector.kept(&place));
    if found.is_empty() {
        return Err(Failure::input(format_args!(
            "no submitted job {selector} is kept; the output of others is where they were started"
        )));
    }
    Ok(found)
}

/// The one detached job that is meant.
pub(super) fn kept_one(selector: &Selector) -> Result<(PathBuf, Record), Failure> {
    let mut found = kept(selector)?;
    match found.len() {
        0 | 1 => {}
        count => {
            let first = found[0].1.shown_id();
            return Err(Failure::input(format_args!(
                "{selector} stands for {count} jobs; say which, as {first}"
            )));
        }
    }
    Ok(found.swap_remove(0))
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let (folder, record) = kept_one(&args.job)?;
    if args.json {
        let job = Known::of_record(folder.clone(), record);
        let files = Files {
            job: job.document(),
            out: folder::out(&folder),
            err: folder::err(&folder),
        };
        print_json(&files)?;
        return Ok(ExitCode::SUCCESS);
    }
    let path = if args.err {
        folder::err(&folder)
    } else {
        folder::out(&folder)
    };
    let shown = File::open(&path).and_then(|mut log| show(&mut log, &folder, args.follow));
    match shown {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // Whoever read it has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure::new(
            exit::FAILED,
            format_args!("cannot show {}: {error}", path.display()),
        )),
    }
}

fn show(log: &mut File, folder: &Path, follow: bool) -> io::Result<()> {
    let mut to = io::stdout().lock();
    loop {
        // Asked before the log is read: what comes until its end is in it then.
        let over = !follow || folder::read(folder).is_none_or(|record| !record.is_live());
        io::copy(log, &mut to)?;
        to.flush()?;
        if over {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}
