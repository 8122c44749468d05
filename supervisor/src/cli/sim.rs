//! `migm sim`: simulated GPUs for a shell.
use super::Failure;
use std::process::ExitCode;
/// Simulated GPUs
#[derive(Debug, clap::Args)]
pub struct Args {}
pub(super) fn main(_: Args) -> Result<ExitCode, Failure> {
    Err(Failure::input("not there"))
}
