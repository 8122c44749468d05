//! What the runner of a detached job writes down of it.

use migm_shared::ids::JobId;

use super::{Runner, Stage};
use crate::control::JobState;
use crate::job::record::Clock;
use crate::job::{JobError, say};

impl Runner {
    /// The supervisor has given the job a number. A detached job that nobody wants any more goes again.
    pub(super) fn accepted(&mut self, job: JobId, notice: Option<String>) -> Result<(), JobError> {
        self.job = Some(job);
        let Some(kept) = &mut self.kept else {
            if let Some(notice) = notice.filter(|_| self.order.batch.is_none()) {
                say(notice);
            }
            return Ok(());
        };
        let kept = kept.accepted(job, &self.submission, self.link.path(), notice);
        kept.map_err(|error| {
            let cancel = crate::control::Request::Cancel { job };
            self.link.send(&cancel, None);
            JobError::Keep(error)
        })
    }

    /// Writes down where a detached job is, if that has changed.
    pub(super) fn keep(&mut self) {
        let state = match &self.stage {
            Stage::Waiting => JobState::Waiting,
            Stage::Running(attempt) if attempt.is_stopping() => JobState::Moving,
            Stage::Running(_) => JobState::Running,
            Stage::Reported { goes_on: true, .. } => JobState::Moving,
            // As good as over; its end is written with the exit status.
            Stage::Reported { .. } | Stage::Over(_) => return,
        };
        let clock = self.clock.unwrap_or(Clock::REAL);
        if let Some(kept) = &mut self.kept
            && let Err(error) = kept.note(state, &self.attempts, self.submitted, &clock)
        {
            say(format_args!(
                "cannot write down that the job is {state:?}: {error}"
            ));
        }
    }

    /// Writes down how a detached job ended.
    pub(super) fn keep_end(&mut self, end: Result<i32, &JobError>) {
        let clock = self.clock.unwrap_or(Clock::REAL);
        let explained = self.explained.as_deref();
        if let Some(kept) = &mut self.kept
            && let Err(error) = kept.over(end, &self.attempts, self.submitted, &clock, explained)
        {
            say(format_args!("cannot write down how the job ended: {error}"));
        }
    }
}
