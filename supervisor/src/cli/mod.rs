//! The command line: one file a command. This one holds what all share: the parser, and the one place
//! where an error becomes a line on standard error and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod batch;
mod cancel;
mod demo;
mod explain;
mod history;
mod jobs;
mod layout;
mod logs;
mod node;
mod play;
mod predict;
mod run;
mod serve;
mod sim;
mod simulate;
mod status;
mod submit;
mod supervisor;
mod wait;

/// Exit codes of all commands but `run`, whose codes are its program's.
pub mod exit {
    /// The job or the check failed.
    pub const FAILED: u8 = 1;
    /// The input is bad: arguments, configuration, files.
    pub const BAD_INPUT: u8 = 2;
    /// There is no GPU, no driver, no permission or no supervisor.
    pub const NO_GPU: u8 = 3;
    /// `run` itself failed, not its program.
    pub const RUN_FAILED: u8 = 125;
    /// `run`: the program cannot be executed.
    pub const NOT_EXECUTABLE: u8 = 126;
    /// `run`: there is no such program.
    pub const NOT_FOUND: u8 = 127;
}

/// Runs GPU jobs, unmodified, each on the tightest MIG slice that holds it.
#[derive(Debug, Parser)]
#[command(name = "migm", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Examples:
  migm demo                       # what it does, on a simulated GPU
  migm run -- ./my_cuda_program   # one job; no service has to run
  migm node list                  # the GPUs here, and how to turn MIG on

Exit codes: 0 success, 1 the job or check failed, 2 bad input, 3 no GPU, driver, permission or supervisor. `run` passes on \
its program's.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// In the order of the help: jobs, what became of them, the machine, what would be, what needs no GPU.
#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Batch(batch::Args),
    Submit(submit::Args),
    Jobs(jobs::Args),
    Logs(logs::Args),
    Wait(wait::Args),
    Cancel(cancel::Args),
    Status(status::Args),
    Explain(explain::Args),
    History(history::Args),
    Supervisor(supervisor::SupervisorArgs),
    Node(node::Args),
    Layout(layout::Args),
    Simulate(simulate::Args),
    Predict(predict::Args),
    Serve(serve::Args),
    Demo(demo::Args),
    Sim(sim::Args),
    Play(play::Args),
}

/// Why a command ends without success: one line for people, and the exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    /// With this code.
    pub fn new(code: u8, line: impl Display) -> Self {
        Self {
            code,
            line: line.to_string(),
        }
    }

    /// Bad input: names the field, line or value.
    pub fn input(line: impl Display) -> Self {
        Self::new(exit::BAD_INPUT, line)
    }

    /// No GPU, driver, permission or supervisor.
    pub fn no_gpu(line: impl Display) -> Self {
        Self::new(exit::NO_GPU, line)
    }
}

/// Runs the command that the arguments name.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let ended = match cli.command {
        Command::Run(args) => run::main(args),
        Command::Submit(args) => submit::main(&args),
        Command::Jobs(args) => jobs::main(&args),
        Command::Logs(args) => logs::main(&args),
        Command::Cancel(args) => cancel::main(&args),
        Command::Wait(args) => wait::main(&args),
        Command::Batch(args) => batch::main(args),
        Command::Demo(args) => demo::main(args),
        Command::Status(args) => status::main(args),
        Command::Explain(args) => explain::main(&args),
        Command::History(args) => history::main(&args),
        Command::Node(args) => node::main(args),
        Command::Layout(args) => layout::main(&args),
        Command::Predict(args) => predict::main(&args),
        Command::Serve(args) => serve::main(&args),
        Command::Sim(args) => sim::main(&args),
        Command::Simulate(args) => simulate::main(&args),
        Command::Play(args) => return play::main(&args),
        Command::Supervisor(args) => {
            supervisor::run(args).map_err(|error| Failure::new(error.exit_code(), error))
        }
    };
    ended.unwrap_or_else(|failure| {
        crate::job::say(one_line(&failure.line));
        ExitCode::from(failure.code)
    })
}

/// Help and version go to standard output and are a success; all else is one line and bad input.
fn refuse(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::{DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand, DisplayVersion};
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::BAD_INPUT)
        }
        _ => {
            crate::job::say(usage_line(&error.render().to_string()));
            ExitCode::from(exit::BAD_INPUT)
        }
    }
}

/// The first paragraph of what clap says, in one line: the rest repeats the usage.
fn usage_line(rendered: &str) -> String {
    let paragraph = rendered.split("\n\n").next().unwrap_or(rendered);
    let paragraph = paragraph.strip_prefix("error: ").unwrap_or(paragraph);
    one_line(paragraph)
}

fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}

/// One JSON document on standard output.
///
/// # Errors
/// Standard output cannot be written; a reader that has gone is none.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(exit::FAILED, error))?;
    print_text(&(text + "\n"))
}

/// Text on standard output.
///
/// # Errors
/// Standard output cannot be written; a reader that has gone is none.
pub(crate) fn print_text(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            exit::FAILED,
            format_args!("cannot write to standard output: {error}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod documented;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_parser_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line() {
        let said = |args: &[&str]| {
            let error = Cli::try_parse_from(args).unwrap_err();
            usage_line(&error.render().to_string())
        };
        assert_eq!(
            said(&["migm", "run", "--memm", "4G", "--", "x"]),
            "unexpected argument '--memm' found"
        );
        assert_eq!(
            said(&["migm", "run"]),
            "the following required arguments were not provided: <CMD>..."
        );
        let size = said(&["migm", "run", "--mem", "5X", "--", "x"]);
        assert!(
            size.starts_with("invalid value '5X' for '--mem <SIZE>': `5X` ends in `X`"),
            "{size}"
        );
    }
}
