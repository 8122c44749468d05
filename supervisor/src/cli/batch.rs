//! `migm batch`: many jobs, measured together.

use std::path::PathBuf;
use std::process::ExitCode;

use super::{Failure, exit, print_json, print_text};
use crate::control::start::Wanted;
use crate::daemon::error::DaemonError;
use crate::job::JobError;
use crate::job::batch::{self, BatchError, BatchOptions, BatchSpec, Output};
use crate::report::progress::Progress;
use crate::report::{BatchReport, all_done, table};
use crate::schedule::{PolicyName, QueueOrder};

/// Run the jobs of a TOML file, and report time, energy and memory
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  migm batch jobs.toml
  migm batch examples/batches/mixed.toml --sim a100-40gb --time-scale 0.1")]
pub struct Args {
    /// The jobs.
    #[arg(
        value_name = "FILE.toml",
        help = "The jobs: tables [[job]] with command and, if wanted, name, count or array, mem, iterations, arrival_s, env, part, after, after_any, priority, profile or exclusive, device"
    )]
    file: PathBuf,
    /// How jobs are placed: migm (what is best for all jobs together; the default where the batch starts a supervisor), scheme-b (in order, each on the
    /// tightest slice, reshaped on demand), sequential (each GPU whole, one job at a time), static:LAYOUT (as
    /// static:4g+3g), scheme-a, far, mfi or miso. A supervisor that serves by another one changes to it from the batch's start to its end, if
    /// this user may have that
    #[arg(long, value_name = "P", value_parser = str::parse::<PolicyName>)]
    policy: Option<PolicyName>,
    /// In which order migm takes the jobs that wait: free, or fifo (in order of arrival)
    #[arg(long, value_name = "O", value_parser = str::parse::<QueueOrder>)]
    order: Option<QueueOrder>,
    /// Run on a simulated GPU: a model such as a100-40gb, with :N for several
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
    /// Wall seconds per simulated second
    #[arg(long, value_name = "X", requires = "sim", value_parser = scale)]
    time_scale: Option<f64>,
    /// One JSON document; what jobs write to standard output goes to standard error
    #[arg(long)]
    json: bool,
}

/// A time scale of the command line.
pub(super) fn scale(given: &str) -> Result<f64, String> {
    match given.parse::<f64>() {
        Ok(scale) if scale.is_finite() && scale > 0.0 => Ok(scale),
        _ => Err(format!("`{given}` is no number above 0")),
    }
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let policy = match (args.policy, args.order) {
        (policy, Some(order)) => {
            let named = policy.unwrap_or_default().with_order(order);
            Some(named.map_err(Failure::input)?)
        }
        (policy, None) => policy,
    };
    if policy == Some(PolicyName::BestStatic) {
        return Err(Failure::input(DaemonError::Unsearched));
    }
    let spec = BatchSpec::read(&args.file).map_err(Failure::input)?;
    let migm = std::env::current_exe()
        .map_err(|error| Failure::new(exit::FAILED, format_args!("cannot find migm itself: {error}")))?;
    let options = BatchOptions {
        migm,
        wanted: Wanted {
            sim: args.sim,
            time_scale: args.time_scale,
            policy: policy.map(|policy| policy.to_string()),
            for_batch: true,
            ..Wanted::default()
        },
        output: if args.json {
            Output::Stderr
        } else {
            Output::Inherit
        },
    };
    let mut progress = Progress::new();
    let ended = batch::run(&spec, &options, &mut |news| progress.show(news));
    progress.end();
    let summary = ended.map_err(failure)?;
    let report = BatchReport::new(&summary, None);
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&table::batch(&report))?;
    }
    let code = if all_done(&summary) && summary.jobs.len() == spec.jobs.len() {
        0
    } else {
        exit::FAILED
    };
    Ok(ExitCode::from(code))
}

/// Which exit code a batch without a summary gets.
pub(super) fn failure(error: BatchError) -> Failure {
    let code = match &error {
        BatchError::Job(JobError::Start(start)) if start.is_bad_input() => exit::BAD_INPUT,
        BatchError::Policy(_) => exit::BAD_INPUT,
        BatchError::Job(JobError::Start(_) | JobError::Client(_)) => exit::NO_GPU,
        _ => exit::FAILED,
    };
    Failure::new(code, error)
}
