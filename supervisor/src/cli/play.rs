//! `migm play`: the example programs, for the demo on machines without a CUDA compiler.

use std::process::ExitCode;

use crate::play::{PlayArgs, play};

/// Play one of the example programs over the driver API
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    /// Which
    name: String,
    #[command(flatten)]
    given: PlayArgs,
}

/// A program, not a command of ours: it fails with its own words and exit status.
pub(super) fn main(args: &Args) -> ExitCode {
    match play(&args.name, args.given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write;
            let _ = writeln!(std::io::stderr(), "play: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
