//! A job in its runner's hands: `migm run`.
//!
//! 1. The runner makes the job's counter page ([`page`]), looks at standard input ([`input`]) and submits
//!    the job to a supervisor over the [`link`], starting a private one if there is none.
//! 2. It waits for a grant. A signal ends the waiting.
//! 3. For each grant it [`launch`]es an [`attempt`]: the user's command, in the user's environment, in a process
//!    group of its own that gets the [`terminal`] if the runner has it.
//! 4. While the attempt lives, [`runner`] waits for signals ([`signals`]), the supervisor's word and the
//!    clock. Signals go on to the group; a move or a cancel stops the group, with a grace time before
//!    SIGKILL; a supervisor that goes away is looked for again while the job goes on.
//! 5. An attempt has ended when no descendant of the runner lives ([`descendants`]). The runner reads the
//!    page, judges the outcome and reports it; the supervisor answers with the next grant or the end.
//! 6. The exit status is the program's own.
//!
//! Nothing here needs a right that the user's own shell lacks, and nothing is written to standard output.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use migm_shared::ids::{AttemptId, BatchId};
use nix::sys::signal::Signal;

use crate::control::Wishes;
use crate::control::start::Wanted;

pub mod array;
pub mod attempt;
pub mod batch;
pub mod descendants;
pub mod detached;
pub mod environment;
pub mod explained;
pub mod history;
pub mod input;
pub mod launch;
pub mod link;
pub mod page;
pub mod record;
pub mod runner;
pub mod signals;
pub mod terminal;

/// Takes a name for people. It is shown in lines and tables, to other users too, which it may neither break nor colour.
///
/// # Errors
/// It is empty, or has a control character.
pub fn name(given: &str) -> Result<String, String> {
    match given.chars().find(|one| one.is_control()) {
        Some(_) => Err(format!("{given:?} is no name: it has a control character")),
        None if given.is_empty() => Err("the name is empty".to_owned()),
        None => Ok(given.to_owned()),
    }
}

/// The name of a program, as one for people.
#[must_use]
pub fn name_of_program(program: &str) -> String {
    let shown = program.replace(char::is_control, "?");
    if shown.is_empty() { "job".to_owned() } else { shown }
}

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Order {
    /// The program and its arguments; never empty.
    pub command: Vec<OsString>,
    /// Name for people.
    pub name: String,
    /// Device bytes that the user says it needs.
    pub mem: Option<u64>,
    /// Iterations that the user says it runs.
    pub iterations: Option<u64>,
    /// What stops an attempt that is to move.
    pub signal: Signal,
    /// Wall time between that signal and SIGKILL.
    pub grace: Duration,
    /// Where the job's figures go as JSON.
    pub report: Option<PathBuf>,
    /// Idle foreign slices may be used.
    pub use_existing: bool,
    /// Exit status 0 after our signal means done, not moved.
    pub done_on_zero: bool,
    /// Standard input is kept in a file first, so that each attempt reads it from the start.
    pub stdin_spool: bool,
    /// Say what happens, also where standard error is no terminal.
    pub verbose: bool,
    /// What the user has asked the runner to set for the program.
    pub environment: environment::Wanted,
    /// The batch that it belongs to.
    pub batch: Option<BatchId>,
    /// Part of the batch.
    pub part: Option<String>,
    /// What else the user asks for.
    pub wishes: Wishes,
    /// Which supervisor.
    pub wanted: Wanted,
    /// What the program's work survives.
    pub kept: crate::control::WorkKept,
    /// Where what it comes to is kept; nowhere if `None`.
    pub history: Option<PathBuf>,
}

/// Why a job could not be run; a program that ran and failed is no such error.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// There is no supervisor.
    #[error(transparent)]
    Start(#[from] crate::control::start::StartError),
    /// The supervisor did not take the job.
    #[error(transparent)]
    Client(#[from] crate::control::client::ClientError),
    /// The counter page cannot be made.
    #[error("cannot make the counter page: {0}")]
    Page(std::io::Error),
    /// Standard input cannot be kept.
    #[error("cannot keep a copy of standard input: {0}")]
    Spool(std::io::Error),
    /// A system call that does not fail in good order.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The supervisor says that it cannot be done.
    #[error("{0}")]
    Refused(String),
    /// The job was cancelled before it had a slice.
    #[error("the job was cancelled while it waited for a slice")]
    Cancelled,
    /// The job was cancelled before it had a slice, for this reason.
    #[error("the job was cancelled before it ran: {0}")]
    Withdrawn(String),
    /// The job was cancelled before anybody had heard of it.
    #[error("the job was cancelled before it ran: {0}")]
    Unheard(String),
    /// The record of a detached job cannot be written.
    #[error("cannot keep the job's record: {0}")]
    Keep(std::io::Error),
    /// The report cannot be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Report {
        /// Where.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
}

impl JobError {
    /// The exit code of a command that could not submit a job: 2 for bad input, 3 without a supervisor, else 1.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Start(start) if start.is_bad_input() => 2,
            Self::Start(_) | Self::Client(_) => 3,
            _ => 1,
        }
    }

    fn system(doing: &'static str) -> impl FnOnce(nix::errno::Errno) -> Self {
        move |errno| Self::System {
            doing,
            source: errno.into(),
        }
    }
}

/// `CLOCK_MONOTONIC` in seconds, the clock that runners and supervisors share.
#[must_use]
#[expect(
    clippy::cast_precision_loss,
    reason = "exact to a microsecond for 270 years of uptime"
)]
pub fn monotonic() -> f64 {
    // The kernel has this clock; without it all times would be zero, which harms no job.
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9)
}

/// The attempt of a job that this process belongs to, where it runs under `migm run` itself.
#[must_use]
pub fn outer_attempt() -> Option<AttemptId> {
    std::env::var("MIGM_ATTEMPT").ok()?.parse().ok()
}

/// Says a line on standard error. A closed standard error stops no job.
pub(crate) fn say(line: impl std::fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr().lock(), "migm: {line}");
}
