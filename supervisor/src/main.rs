//! `migm`: see the crate `migm_supervisor` and `migm --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    migm_supervisor::cli::main()
}
