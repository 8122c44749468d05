//! `migm run`: one job in the foreground.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::clock;
use migm_shared::ids::{AttemptId, BatchId, JobId};
use migm_shared::units::{Bytes, Seconds};
use nix::sys::signal::Signal;

use super::{Failure, exit};
use crate::control::start::Wanted;
use crate::control::{After, Element, Wishes, WorkKept};
use crate::job::environment::{self, Cap};
use crate::job::{self, JobError, Order, array, history, signals};

// What `run` and `submit` have in common. No doc comment: clap would show it in place of the command's own.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Device memory that the program needs, context included, such as 4.5G or 4Gi
    #[arg(long, value_name = "SIZE")]
    mem: Option<Bytes>,
    /// Iterations that it runs: the horizon of the forecast
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// What asks the program to stop when it is to move to another slice
    #[arg(long, value_name = "S", default_value = "TERM", value_parser = signals::parse)]
    signal: Signal,
    /// Time from that signal to SIGKILL
    #[arg(long, value_name = "T", default_value = "10", value_parser = duration)]
    grace: Duration,
    /// Write the job's attempts and memory figures there, as JSON
    #[arg(long, value_name = "F")]
    report: Option<PathBuf>,
    /// Name for people; else the program's
    #[arg(long, value_parser = job::name)]
    name: Option<String>,
    /// Jobs of a higher priority get their slices first; 0 is usual, and less is possible
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,
    /// A slice of this profile and no other, such as 2g.10gb
    #[arg(long, value_name = "P")]
    profile: Option<String>,
    /// A whole GPU with no other job beside it
    #[arg(long, conflicts_with = "profile")]
    exclusive: bool,
    /// On these GPUs only, by their numbers, of those that `CUDA_VISIBLE_DEVICES` leaves
    #[arg(long, value_name = "I,...", value_delimiter = ',')]
    device: Vec<u32>,
    /// Use idle slices that others have made
    #[arg(long)]
    use_existing: bool,
    /// An exit status of 0 after our signal means that the program is done, not that it was interrupted
    #[arg(long)]
    done_on_zero: bool,
    /// Started again, the program goes on where it was: it saves its work when it is asked to stop, or always
    #[arg(long, value_name = "WHEN", value_parser = kept, num_args = 0..=1, require_equals = true, default_missing_value = "on-signal")]
    keeps_work: Option<WorkKept>,
    /// Run on a simulated GPU: a model such as a100-40gb, with :N for several
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
    /// What marks an iteration: stream-sync, context-sync, event-sync, copy-to-host, graph-launch or nvtx-range, with :N
    /// for N of them an iteration; `auto` finds out, `off` goes by time
    #[arg(long, value_name = "EVENT", env = "MIGM_ITERATION", hide_env_values = true)]
    iteration: Option<clock::Wanted>,
    /// Have frameworks take device memory as they need it, where they would take most of it at the start
    #[arg(long)]
    grow_on_demand: bool,
    /// Soft cap on the job's device bytes, and what a context is charged where that cannot be measured
    #[arg(long, value_name = "SIZE[:CONTEXT]", hide = true)]
    cap: Option<Cap>,
    /// Say what happens, also where standard error is no terminal
    #[arg(long, short)]
    verbose: bool,
}

impl Options {
    /// The supervisor that is wanted.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            sim: self.sim.clone(),
            ..Wanted::default()
        }
    }

    fn environment(&self) -> environment::Wanted {
        environment::Wanted {
            iteration: self.iteration,
            grow_on_demand: self.grow_on_demand,
            cap: self.cap,
        }
    }

    /// The job that is asked for, in the foreground and in no batch.
    pub(super) fn order(&self, command: &[OsString]) -> Order {
        let program = || {
            let path = Path::new(command.first()?);
            path.file_name()
                .map(|name| job::name_of_program(&name.to_string_lossy()))
        };
        Order {
            name: self.name.clone().or_else(program).unwrap_or_else(|| "job".into()),
            command: command.to_vec(),
            mem: self.mem.map(|bytes| bytes.0),
            iterations: self.iterations,
            signal: self.signal,
            grace: self.grace,
            report: self.report.clone(),
            use_existing: self.use_existing,
            done_on_zero: self.done_on_zero,
            stdin_spool: false,
            verbose: self.verbose,
            environment: self.environment(),
            batch: None,
            part: None,
            wishes: Wishes {
                priority: self.priority,
                profile: self.profile.clone(),
                exclusive: self.exclusive,
                devices: self.device.clone(),
                ..Wishes::default()
            },
            wanted: self.wanted(),
            kept: self.keeps_work.unwrap_or_default(),
            history: history::place(),
        }
    }
}

/// Run one program on the tightest slice that holds it
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The exit status is the program's, or 128+n if signal n ended it; 125 if migm failed, 126 if the program \
cannot be executed, 127 if there is none.

Examples:
  migm run -- ./my_cuda_program --its-arguments
  migm run --iterations 500 --keeps-work -- python train.py
  migm run --mem 9G --report job.json -- ./my_cuda_program")]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Read standard input to its end first, so that the program can be started again with it
    #[arg(long)]
    stdin_spool: bool,
    /// Also within another `migm run`: get a slice of its own, where the program would run in the outer one's. It waits
    /// for that while the outer job holds all there is, as under the policies sequential and, alone, migm
    #[arg(long)]
    own_slice: bool,
    /// List the environment that the program would get, and run nothing
    #[arg(long)]
    explain: bool,
    /// Jobs of the batch whose good end it waits for
    #[arg(long, value_name = "ID", value_delimiter = ',', hide = true)]
    after_job: Vec<u64>,
    /// Jobs of the batch whose end it waits for
    #[arg(long, value_name = "ID", value_delimiter = ',', hide = true)]
    after_any_job: Vec<u64>,
    /// Its place in an array
    #[arg(long, value_name = "ARRAY:INDEX:COUNT:MAX", value_parser = array::element, hide = true)]
    element: Option<Element>,
    /// The batch that the job belongs to
    #[arg(long, value_name = "ID", hide = true)]
    batch: Option<u64>,
    /// Part of the batch
    #[arg(long, value_name = "P", hide = true)]
    part: Option<String>,
    /// The program and its arguments
    #[arg(
        required_unless_present = "explain",
        trailing_var_arg = true,
        value_name = "CMD"
    )]
    command: Vec<OsString>,
}

fn duration(given: &str) -> Result<Duration, String> {
    let seconds: Seconds = given.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds.0).map_err(|_| format!("`{given}` is out of range"))
}

/// Becomes the program: what it allocates counts for the outer job, which is moved with it. Gives back why not.
fn run_within(attempt: AttemptId, args: &Args) -> Failure {
    let left_out = if args.options.report.is_some() {
        ", without a report"
    } else {
        ""
    };
    job::say(format_args!(
        "within attempt {attempt} of another `migm run`: the program runs on that slice{left_out}; --own-slice gets \
         it one of its own"
    ));
    let Some((program, arguments)) = args.command.split_first() else {
        return Failure::input("there is no program to run");
    };
    let error = std::process::Command::new(program).args(arguments).exec();
    let status = match error.kind() {
        ErrorKind::NotFound => exit::NOT_FOUND,
        _ => exit::NOT_EXECUTABLE,
    };
    Failure::new(status, format_args!("{}: {error}", program.display()))
}

fn kept(given: &str) -> Result<WorkKept, String> {
    match given {
        "on-signal" => Ok(WorkKept::OnSignal),
        "always" => Ok(WorkKept::Always),
        other => Err(format!("`{other}` is neither on-signal nor always")),
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    if args.explain {
        let given = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        super::print_text(&args.options.environment().explain(given))?;
        return Ok(ExitCode::SUCCESS);
    }
    // A batch counts on the record of each of its jobs, and a simulated GPU is another than the outer one's.
    let is_apart = args.own_slice || args.batch.is_some() || args.options.sim.is_some();
    if let Some(attempt) = job::outer_attempt().filter(|_| !is_apart) {
        return Err(run_within(attempt, &args));
    }
    let after = |jobs: &[u64], any| {
        jobs.iter()
            .map(move |&job| After { job: JobId(job), any })
            .collect::<Vec<_>>()
    };
    let mut order = args.options.order(&args.command);
    order.stdin_spool = args.stdin_spool;
    order.batch = args.batch.map(BatchId);
    // One started here would be by another policy, on other GPUs, or in the place of a service that is just being restarted.
    order.wanted.looked_after = args.batch.is_some();
    order.part = args.part;
    order.wishes.element = args.element;
    order.wishes.after = [after(&args.after_job, false), after(&args.after_any_job, true)].concat();
    let one_of_many = order.batch.map(|_| order.name.clone());
    let status = job::runner::run(order).map_err(|error| match (&error, one_of_many) {
        (JobError::Start(start), _) if start.is_bad_input() => Failure::input(error),
        (_, Some(name)) => Failure::new(exit::RUN_FAILED, format_args!("{name}: {error}")),
        (_, None) => Failure::new(exit::RUN_FAILED, error),
    })?;
    Ok(ExitCode::from(status))
}
