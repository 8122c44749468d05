//! `migm supervisor`: the daemon in the foreground.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::daemon::config::Told;
use crate::daemon::error::DaemonError;
use crate::daemon::{self, Options};
use crate::schedule::{PolicyName, QueueOrder};

/// Serve jobs as a daemon: make slices, watch memory, move jobs
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Without a service, the first `migm run` starts a private supervisor, which ends after the last.")]
pub struct SupervisorArgs {
    /// Configuration file (TOML); docs/configuration.md lists its keys. SIGHUP has it read again: its policy and order
    /// count at once.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Serve simulated GPUs of this model, such as a100-40gb or a100-40gb:2.
    #[arg(long, value_name = "GPU[:N]")]
    sim: Option<String>,
    /// Listen here [default: /run/migm/migm.sock for root, else the user's own place].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// For this user alone; end with the last client.
    #[arg(long)]
    private: bool,
    /// Wall seconds per simulated second, below 1 to run faster.
    #[arg(long, value_name = "X", requires = "sim", value_parser = time_scale)]
    time_scale: Option<f64>,
    /// How jobs are placed: migm, scheme-b, sequential, static:LAYOUT (as static:4g+3g), scheme-a, far, mfi or miso
    /// [default: the configuration's, else migm].
    #[arg(long, value_name = "POLICY", value_parser = str::parse::<PolicyName>)]
    policy: Option<PolicyName>,
    /// In which order migm takes the jobs that wait: free, or fifo (in order of arrival)
    /// [default: the configuration's, else free].
    #[arg(long, value_name = "ORDER", value_parser = str::parse::<QueueOrder>)]
    order: Option<QueueOrder>,
}

fn time_scale(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|scale| scale.is_finite() && *scale > 0.0)
        .ok_or_else(|| format!("`{text}` is not a number above 0"))
}

/// Runs it. Logs go to standard error, at the level of `MIGM_LOG` (info if not set).
///
/// # Errors
/// See [`DaemonError`]: its exit code is 2 for bad input and 3 without driver, GPU or permission.
pub fn run(args: SupervisorArgs) -> Result<ExitCode, DaemonError> {
    let filter = tracing_subscriber::EnvFilter::try_from_env("MIGM_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    // Where the caller has set up logging, that stays.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
    daemon::run(&Options {
        config: args.config,
        sim: args.sim,
        socket: args.socket,
        private: args.private,
        time_scale: args.time_scale,
        told: Told {
            policy: args.policy,
            order: args.order,
        },
    })?;
    Ok(ExitCode::SUCCESS)
}
