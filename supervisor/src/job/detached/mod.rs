//! Detached jobs: `migm submit`.
//!
//! 1. The command makes a folder for the job in the place of all detached jobs ([`place`]) and forks its runner off
//!    ([`fork`]): twice, into a session of its own, with no terminal, standard input from nowhere and its output to
//!    files in that folder. It is the runner that `migm run` is, in the directory and the environment of the command.
//! 2. The runner submits the job. When the supervisor has given it a number, or has refused it, it tells the command
//!    through a pipe ([`Told`]), and the folder gets its name ([`Kept::accepted`]). A job that is not accepted leaves
//!    nothing; a command that is gone by then does not want it.
//! 3. The runner writes down what becomes of the job ([`Record`]), for `jobs`, `logs`, `explain` and `wait`, which so need
//!    no supervisor. Once in some jobs a submission brings the folders of ended ones within bounds ([`folder::prune`]).
//!
//! A number stands for the last job that had it. A private supervisor numbers its jobs on from those kept here
//! ([`folder::highest`]), so that numbers repeat only where several supervisors serve one user.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use migm_shared::ids::JobId;
use serde::{Deserialize, Serialize};

use super::descendants::Identity;
use super::record::AttemptLine;
use crate::control::{JobState, Outcome, ShownId, Wishes};

pub mod folder;
pub mod fork;
pub mod kept;
pub mod select;

pub use kept::{Detached, Kept, Told};
pub use select::Selector;

/// The version of records that this build reads and writes; others are passed over.
const VERSION: u32 = 1;

/// Where the folders of detached jobs are: `MIGM_JOBS`, else `migm/jobs` in the user's state directory. `None` where
/// neither that nor a home is set.
#[must_use]
pub fn place() -> Option<PathBuf> {
    let given = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    given("MIGM_JOBS").or_else(|| {
        let state = given("XDG_STATE_HOME").filter(|path| path.is_absolute());
        let folder = state.or_else(|| given("HOME").map(|home| home.join(".local/state")))?;
        Some(folder.join("migm/jobs"))
    })
}

/// How a detached job came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Exit status 0.
    Done,
    /// Another exit status, or a signal that nobody here sent.
    Failed,
    /// By a signal of the user's.
    Signalled,
    /// Out of memory, and no larger slice.
    Oom,
    /// On request, or because of a job before it.
    Cancelled,
    /// The supervisor could not run it.
    Refused,
    /// Its runner has gone without a word: killed, or with the machine.
    Lost,
}

impl How {
    /// As an attempt ended that was the last one.
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Failed | Outcome::Moved => Self::Failed,
            Outcome::Signalled => Self::Signalled,
            Outcome::Oom => Self::Oom,
            Outcome::Cancelled => Self::Cancelled,
        }
    }

    /// As it is shown.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Signalled => "signalled",
            Self::Oom => "oom",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
            Self::Lost => "lost",
        }
    }
}

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub how: How,
    /// Exit status of its last attempt, as a shell shows it; `None` where it never ran or nobody knows.
    pub status: Option<i32>,
    /// Why, where the status does not say it.
    pub reason: Option<String>,
}

/// What is kept of a detached job, as its runner writes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    version: u32,
    /// Number.
    pub id: JobId,
    /// Drawn by its runner: tells it from another job of the same number.
    pub nonce: u64,
    /// Name.
    pub name: String,
    /// The command line.
    pub command: Vec<String>,
    /// Where it was submitted.
    pub directory: PathBuf,
    /// Whose it is.
    pub user: u32,
    /// As submitted.
    pub wishes: Wishes,
    /// Its runner.
    pub runner: Identity,
    /// The socket of its supervisor.
    pub socket: PathBuf,
    /// When it was accepted; seconds since 1970.
    pub submitted: f64,
    /// Since when it is where it is; seconds since 1970.
    pub since: f64,
    /// Where it is, as far as its runner knows.
    pub state: JobState,
    /// Its attempts; times in seconds since the submission, simulated ones where the GPUs are.
    pub attempts: Vec<AttemptLine>,
    /// Its end; of a runner that has gone without a word [`folder::read`] puts that here.
    pub end: Option<End>,
}

impl Record {
    /// Its number as people see it.
    #[must_use]
    pub fn shown_id(&self) -> ShownId {
        ShownId(self.id, self.wishes.element)
    }

    /// Whether its runner was at work when the record was read.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.end.is_none()
    }

    /// Whether it ended well; how it ended otherwise, in words after its name.
    ///
    /// # Errors
    /// It did not end well, or has not ended.
    pub fn ended_well(&self) -> Result<(), String> {
        let Some(end) = &self.end else {
            return Err("has not ended".to_owned());
        };
        match (end.how, end.status, end.reason.as_deref()) {
            (How::Done, ..) => Ok(()),
            (How::Failed, Some(status), _) => Err(format!("failed with {status}")),
            (How::Cancelled, _, Some(why)) => Err(format!("was cancelled: {why}")),
            (How::Cancelled, ..) => Err("was cancelled".to_owned()),
            (How::Refused, _, why) => Err(format!("was refused: {}", why.unwrap_or_default())),
            (How::Lost, _, why) => Err(format!("was lost: {}", why.unwrap_or_default())),
            (how, ..) => Err(format!("ended as {}", how.word())),
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn wall() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
