//! `migm run`: one job in the foreground.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::clock;
use migm_shared::ids::{AttemptId, BatchId};
use migm_shared::units::{Bytes, Seconds};
use nix::sys::signal::Signal;

use super::{Failure, exit};
use crate::control::WorkKept;
use crate::control::start::Wanted;
use crate::job::environment::{self, Cap};
use crate::job::{self, JobError, Order, history, signals};

/// Run one program on the tightest slice that holds it; its exit status is passed on
#[derive(Debug, clap::Args)]
pub struct Args {
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
    #[arg(long)]
    name: Option<String>,
    /// Use idle slices that others have made
    #[arg(long)]
    use_existing: bool,
    /// An exit status of 0 after our signal means that the program is done, not that it was interrupted
    #[arg(long)]
    done_on_zero: bool,
    /// Started again, the program goes on where it was: it saves its work when it is asked to stop, or always
    #[arg(long, value_name = "WHEN", value_parser = kept, num_args = 0..=1, require_equals = true, default_missing_value = "on-signal")]
    keeps_work: Option<WorkKept>,
    /// Read standard input to its end first, so that the program can be started again with it
    #[arg(long)]
    stdin_spool: bool,
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
    /// Also within another `migm run`: get a slice of its own, where the program would run in the outer one's. It waits
    /// for that while the outer job holds all there is, as under the policies sequential and, alone, migm
    #[arg(long)]
    own_slice: bool,
    /// List the environment that the program would get, and run nothing
    #[arg(long)]
    explain: bool,
    /// Soft cap on the job's device bytes, and what a context is charged where that cannot be measured
    #[arg(long, value_name = "SIZE[:CONTEXT]", hide = true)]
    cap: Option<Cap>,
    /// Say what happens, also where standard error is no terminal
    #[arg(long, short)]
    verbose: bool,
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
    let left_out = if args.report.is_some() {
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
    let environment = environment::Wanted {
        iteration: args.iteration,
        grow_on_demand: args.grow_on_demand,
        cap: args.cap,
    };
    if args.explain {
        let given = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        super::print_text(&environment.explain(given))?;
        return Ok(ExitCode::SUCCESS);
    }
    // A batch counts on the record of each of its jobs, and a simulated GPU is another than the outer one's.
    let is_apart = args.own_slice || args.batch.is_some() || args.sim.is_some();
    if let Some(attempt) = job::outer_attempt().filter(|_| !is_apart) {
        return Err(run_within(attempt, &args));
    }
    let program = || {
        let path = Path::new(args.command.first()?);
        path.file_name().map(|name| name.to_string_lossy().into_owned())
    };
    let order = Order {
        name: args.name.clone().or_else(program).unwrap_or_else(|| "job".into()),
        command: args.command.clone(),
        mem: args.mem.map(|bytes| bytes.0),
        iterations: args.iterations,
        signal: args.signal,
        grace: args.grace,
        report: args.report,
        use_existing: args.use_existing,
        done_on_zero: args.done_on_zero,
        stdin_spool: args.stdin_spool,
        verbose: args.verbose,
        environment,
        batch: args.batch.map(BatchId),
        part: args.part,
        wanted: Wanted {
            sim: args.sim,
            ..Wanted::default()
        },
        kept: args.keeps_work.unwrap_or_default(),
        history: history::place(),
    };
    let status = job::runner::run(order).map_err(|error| match &error {
        JobError::Start(start) if start.is_bad_input() => Failure::input(error),
        _ => Failure::new(exit::RUN_FAILED, error),
    })?;
    Ok(ExitCode::from(status))
}
