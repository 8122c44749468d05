//! What a runner does for a job that is detached, besides running it.

use std::io::{self, PipeWriter, Write};
use std::path::{Path, PathBuf};

use migm_shared::ids::JobId;
use serde::{Deserialize, Serialize};

use super::folder;
use super::{End, How, Record, VERSION, wall};
use crate::control::{AttemptRecord, Explanation, JobState, Submission};
use crate::job::JobError;
use crate::job::descendants::Identity;
use crate::job::record::{AttemptLine, Clock};

/// What a runner needs to know of its being detached.
#[derive(Debug)]
pub struct Detached {
    /// The job's folder, still without a name.
    pub folder: PathBuf,
    /// Who waits for its number.
    pub tell: PipeWriter,
    /// How its supervisor's time runs.
    pub clock: Clock,
}

/// What a runner tells the command that has forked it off, as one line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Told {
    /// The job has a number.
    Accepted {
        /// The number.
        job: JobId,
        /// What the supervisor has to say on it.
        notice: Option<String>,
    },
    /// There is no such job, and why.
    Refused {
        /// One line for people.
        reason: String,
        /// The command's exit code.
        code: u8,
    },
}

/// The record of a detached job in its runner's hands.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    tell: Option<PipeWriter>,
    record: Option<Record>,
}

impl Kept {
    /// Of a job without a number.
    #[must_use]
    pub fn new(detached: Detached) -> Self {
        Self {
            folder: detached.folder,
            tell: Some(detached.tell),
            record: None,
        }
    }

    /// Where the job's files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The job has a number: its folder gets a name, and whoever waits hears of it. Said again, it changes no more than
    /// the number: a supervisor that knew nothing of the job may have given it another one.
    ///
    /// # Errors
    /// Nobody waits any more, or nothing can be kept: the job is not wanted.
    pub fn accepted(
        &mut self,
        job: JobId,
        submission: &Submission,
        socket: &Path,
        notice: Option<String>,
    ) -> io::Result<()> {
        if self.record.as_ref().is_some_and(|record| record.id == job) {
            return Ok(());
        }
        self.folder = folder::name(&self.folder, job, submission.nonce)?;
        let now = wall();
        let record = Record {
            version: VERSION,
            id: job,
            nonce: submission.nonce,
            name: submission.name.clone(),
            command: submission.command.clone(),
            directory: std::env::current_dir().unwrap_or_default(),
            user: nix::unistd::getuid().as_raw(),
            wishes: submission.wishes.clone(),
            runner: Identity::of(std::process::id())
                .ok_or_else(|| io::Error::other("/proc does not know this process"))?,
            socket: socket.to_owned(),
            submitted: self.record.as_ref().map_or(now, |record| record.submitted),
            since: now,
            state: JobState::Waiting,
            attempts: Vec::new(),
            end: None,
        };
        folder::write(&self.folder, &record)?;
        // Only what somebody has heard of is kept.
        self.tell(&Told::Accepted { job, notice })?;
        self.record = Some(record);
        Ok(())
    }

    fn tell(&mut self, what: &Told) -> io::Result<()> {
        let Some(mut pipe) = self.tell.take() else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        pipe.write_all(&line)
    }

    /// Writes down where the job is, if that has changed.
    ///
    /// # Errors
    /// The kernel refuses; the next change is tried again.
    pub fn note(
        &mut self,
        state: JobState,
        attempts: &[AttemptRecord],
        submitted: f64,
        clock: &Clock,
    ) -> io::Result<()> {
        let Some(record) = self.record.as_mut() else {
            return Ok(());
        };
        let ended = |attempt: Option<bool>| attempt.unwrap_or(true);
        let last_was = record.attempts.last().map(|last| last.end.is_some());
        let last_is = attempts.last().map(|last| last.end.is_some());
        let same = record.state == state
            && record.attempts.len() == attempts.len()
            && ended(last_was) == ended(last_is);
        if same {
            return Ok(());
        }
        let lines = attempts
            .iter()
            .map(|attempt| AttemptLine::new(attempt, submitted, clock));
        record.attempts = lines.collect();
        if record.state != state {
            record.state = state;
            record.since = wall();
        }
        folder::write(&self.folder, record)
    }

    /// The job is over. One that was never accepted, or that nobody has heard of, leaves nothing; whoever waits hears why.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn over(
        &mut self,
        end: Result<i32, &JobError>,
        attempts: &[AttemptRecord],
        submitted: f64,
        clock: &Clock,
        explained: Option<&Explanation>,
    ) -> io::Result<()> {
        let Some(record) = &mut self.record else {
            // First: whoever hears of it finds nothing left.
            let removed = std::fs::remove_dir_all(&self.folder);
            if let Err(error) = end {
                let told = Told::Refused {
                    reason: error.to_string(),
                    code: error.code(),
                };
                self.tell(&told)?;
            }
            return removed;
        };
        if let Err(JobError::Unheard(_)) = end {
            return std::fs::remove_dir_all(&self.folder);
        }
        let last = attempts.last();
        let lines = attempts
            .iter()
            .map(|attempt| AttemptLine::new(attempt, submitted, clock));
        record.attempts = lines.collect();
        record.state = JobState::Ended;
        record.since = wall();
        record.end = Some(match (end, last.and_then(|last| last.outcome)) {
            (Ok(status), Some(outcome)) => End {
                how: How::of(outcome),
                status: Some(status),
                reason: last.and_then(|last| last.why.clone()),
            },
            // A signal of the user's while it waited.
            (Ok(status), None) => End {
                how: How::Signalled,
                status: Some(status),
                reason: None,
            },
            (Err(JobError::Cancelled), _) => End {
                how: How::Cancelled,
                status: None,
                reason: Some("cancelled while it waited".to_owned()),
            },
            (Err(JobError::Withdrawn(reason)), _) => End {
                how: How::Cancelled,
                status: None,
                reason: Some(reason.clone()),
            },
            (Err(error), _) => End {
                how: How::Refused,
                status: None,
                reason: Some(error.to_string()),
            },
        });
        folder::write(&self.folder, record)?;
        if let Some(explained) = explained {
            folder::write_explanation(&self.folder, explained)?;
        }
        Ok(())
    }
}
