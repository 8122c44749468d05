//! `migm submit`: jobs that need no terminal and nobody who waits.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, PipeWriter};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use migm_shared::ids::JobId;
use nix::sys::signal::Signal;
use serde::Serialize;

use super::jobs::{Document, Known, LIMIT, clock, gather, told};
use super::run::Options;
use super::{Failure, exit, print_json, print_text};
use crate::control::client::Client;
use crate::control::{After, JobState, JobStatus, Reply, Request};
use crate::job::array::Indices;
use crate::job::detached::folder::{self, Fresh};
use crate::job::detached::{self, Detached, Selector, Told, fork};
use crate::job::record::Clock;
use crate::job::{self, Order, say};

/// How long a runner whose job is not wanted any more may take to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is kept of ended jobs is brought within bounds once in so many jobs.
const PRUNE_EACH: u64 = 16;

/// A request holds no more jobs to wait for.
const MOST_BEFORE: usize = 10_000;

/// Run a program detached from this shell, and print its number
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  id=$(migm submit --name prepare -- ./prepare)
  migm submit --array 0-9%4 --after $id -- ./sweep
  migm logs prepare --follow")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// One job for each of these indices, which it finds in `MIGM_ARRAY_INDEX`; with %MAX, so many at once
    #[arg(long, value_name = "A-B|LIST[%MAX]", conflicts_with = "report")]
    array: Option<Indices>,
    /// Begin when these jobs (numbers or names) have ended well; if one does not, the job is cancelled
    #[arg(long, value_name = "JOB,...", value_delimiter = ',')]
    after: Vec<Selector>,
    /// Begin when these jobs have ended, however they did
    #[arg(long, value_name = "JOB,...", value_delimiter = ',')]
    after_any: Vec<Selector>,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let place = detached::place().ok_or_else(|| {
        Failure::input("there is no place for the job's output: set MIGM_JOBS, XDG_STATE_HOME or HOME")
    })?;
    let wanted = args.options.wanted();
    let mut client = wanted.connect_or_start().map_err(|error| {
        let code = if error.is_bad_input() {
            exit::BAD_INPUT
        } else {
            exit::NO_GPU
        };
        Failure::new(code, error)
    })?;
    let node = told(&mut client).map_err(Failure::no_gpu)?;
    let mut order = args.options.order(&args.command);
    order.wishes.detached = true;
    for (selectors, any) in [(&args.after, false), (&args.after_any, true)] {
        for selector in selectors {
            order
                .wishes
                .after
                .extend(awaited(selector, any, &node.jobs, &place)?);
        }
    }
    if order.wishes.after.len() > MOST_BEFORE {
        return Err(Failure::input(format_args!(
            "the job is to wait for {} others, and {MOST_BEFORE} are the most",
            order.wishes.after.len()
        )));
    }
    let mut submitting = Submitting {
        place: &place,
        clock: clock(&node),
        jobs: Vec::new(),
    };
    let array = match &args.array {
        None => {
            submitting.submit(&order)?;
            None
        }
        Some(indices) => match submitting.submit_all(&mut client, &order, indices) {
            Ok(array) => Some(array),
            Err(failure) => {
                drop(client);
                submitting.take_back();
                return Err(failure);
            }
        },
    };
    print(args, array, &submitting.jobs)?;
    // Whoever waits for the number has it by now. All that is kept is looked through: not for each job of a loop.
    if submitting.jobs.iter().any(|job| job.0.is_multiple_of(PRUNE_EACH)) {
        folder::prune(&place, folder::KEPT, folder::KEPT_BYTES);
    }
    Ok(ExitCode::SUCCESS)
}

/// Jobs on their way to the supervisor.
struct Submitting<'a> {
    place: &'a Path,
    clock: Clock,
    jobs: Vec<JobId>,
}

impl Submitting<'_> {
    fn submit_all(
        &mut self,
        client: &mut Client,
        order: &Order,
        indices: &Indices,
    ) -> Result<JobId, Failure> {
        let array = client
            .ask(&Request::OpenArray, LIMIT, |reply| match reply {
                Reply::ArrayOpened { array } => Some(array),
                _ => None,
            })
            .map_err(Failure::no_gpu)?;
        for element in indices.elements(array) {
            let mut order = order.clone();
            order.wishes.element = Some(element);
            self.submit(&order)?;
        }
        client
            .ask(&Request::StartArray { array }, LIMIT, |reply| {
                matches!(reply, Reply::Done).then_some(())
            })
            .map_err(Failure::no_gpu)?;
        Ok(array)
    }

    /// Forks a runner off, and returns when the supervisor has the job.
    fn submit(&mut self, order: &Order) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(
                exit::FAILED,
                format_args!("cannot start a detached job in {}: {error}", self.place.display()),
            )
        };
        let fresh = Fresh::make(self.place).map_err(failed)?;
        let path = fresh.path().to_owned();
        let clock = self.clock;
        let runner = |tell: PipeWriter| {
            let detached = Detached {
                folder: path.clone(),
                tell,
                clock,
            };
            job::runner::run_detached(order.clone(), detached).unwrap_or_else(|error| {
                say(error);
                exit::RUN_FAILED
            })
        };
        let reader = fork::start(&path, runner).map_err(failed)?;
        fresh.hand_over();
        let mut line = String::new();
        BufReader::new(reader).read_line(&mut line).map_err(failed)?;
        match serde_json::from_str(&line) {
            Ok(Told::Accepted { job, notice }) => {
                if let Some(notice) = notice.filter(|_| self.jobs.is_empty()) {
                    say(notice);
                }
                self.jobs.push(job);
                Ok(())
            }
            Ok(Told::Refused { reason, code }) => Err(Failure::new(code, reason)),
            Err(_) => {
                // It has gone without a word, and so without its folder.
                let _ = std::fs::remove_dir_all(&path);
                Err(Failure::new(
                    exit::FAILED,
                    "the job's runner ended before the job was accepted",
                ))
            }
        }
    }

    /// Ends the runners of jobs that are not wanted after all, and removes what they have kept.
    fn take_back(&self) {
        let until = Instant::now() + PATIENCE;
        let mine = || {
            let all = folder::all(self.place).into_iter();
            all.filter(|(_, record)| {
                self.jobs.contains(&record.id) && record.submitted + 600.0 > detached::wall()
            })
        };
        for (_, record) in mine() {
            if let Some(runner) = record.runner.process() {
                runner.signal(Signal::SIGTERM);
            }
        }
        while mine().any(|(_, record)| record.runner.lives()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        for (folder, record) in mine().collect::<Vec<(PathBuf, _)>>() {
            if !record.runner.lives() {
                let _ = std::fs::remove_dir_all(folder);
            }
        }
    }
}

/// What a new job must wait for. Of jobs that the supervisor knows it judges the end itself; of older ones their runners'
/// record counts.
fn awaited(selector: &Selector, any: bool, jobs: &[JobStatus], place: &Path) -> Result<Vec<After>, Failure> {
    let takes = |job: &&JobStatus| {
        job.state != JobState::Watched && selector.takes(job.id, job.wishes.element.as_ref(), &job.name)
    };
    let array = |job: &JobStatus| job.wishes.element.map(|element| element.array);
    let mut known: Vec<&JobStatus> = jobs.iter().filter(takes).collect();
    if matches!(selector, Selector::Name(_)) {
        // A name may have been used before: those that live count, else the last, each with its array.
        let live: Vec<&JobStatus> = known
            .iter()
            .filter(|job| job.state != JobState::Ended)
            .copied()
            .collect();
        let meant = if live.is_empty() {
            known.last().copied().into_iter().collect()
        } else {
            live
        };
        known.retain(|job| {
            let same_array = |other: &&JobStatus| array(other).is_some() && array(other) == array(job);
            meant.iter().any(|other| other.id == job.id) || meant.iter().any(same_array)
        });
    }
    let kept = selector.kept(place);
    if known.is_empty() && kept.is_empty() {
        return Err(Failure::input(format_args!(
            "there is no job {selector} to wait for"
        )));
    }
    for (_, record) in kept {
        let told = known.iter().any(|job| job.id == record.id);
        let same_array = record
            .wishes
            .element
            .is_some_and(|element| known.iter().any(|job| array(job) == Some(element.array)));
        if told || !known.is_empty() && !same_array {
            continue;
        }
        let shown = record.shown_id();
        if record.is_live() {
            return Err(Failure::new(
                exit::FAILED,
                format_args!("job {shown} is another supervisor's, so this one cannot wait for it"),
            ));
        }
        if let (false, Err(how)) = (any, record.ended_well()) {
            return Err(Failure::new(
                exit::FAILED,
                format_args!("`{}` {how}", record.name),
            ));
        }
    }
    Ok(known.into_iter().map(|job| After { job: job.id, any }).collect())
}

fn print(args: &Args, array: Option<JobId>, jobs: &[JobId]) -> Result<(), Failure> {
    let Some(id) = array.or(jobs.first().copied()) else {
        return Err(Failure::new(exit::FAILED, "no job was submitted"));
    };
    if !args.json {
        return print_text(&format!("{id}\n"));
    }
    let mut all = gather(&args.options.wanted())?;
    // The last of a number is the one.
    all.retain(|job| jobs.contains(&job.id) && job.wishes.detached);
    all.sort_by_key(|job| job.id);
    all.dedup_by_key(|job| job.id);
    let Some(first) = all.first() else {
        return Err(Failure::new(
            exit::FAILED,
            format_args!("job {id} has gone already"),
        ));
    };
    if array.is_none() {
        return print_json(&first.document());
    }
    #[derive(Serialize)]
    struct Array<'a> {
        id: JobId,
        name: &'a str,
        state: &'static str,
        profile: Option<&'a str>,
        attempts: [(); 0],
        jobs: Vec<Document<'a>>,
    }
    print_json(&Array {
        id,
        name: &first.name,
        // That of its first job: a whole array has none.
        state: first.document().state,
        profile: None,
        attempts: [],
        jobs: all.iter().map(Known::document).collect(),
    })
}
