//! What the runner and the supervisor say to each other.

use std::os::fd::AsFd;

use super::{Runner, Stage};
use crate::control::{Reply, Request};
use crate::job::attempt::Why;
use crate::job::record::Clock;
use crate::job::{JobError, say};

impl Runner {
    /// Tells a supervisor that has just been found all about the job.
    pub(super) fn introduce(&mut self) {
        if let Some(about) = self.about() {
            self.link.send(&Request::About(about), None);
        }
        let Some(job) = self.job else {
            let request = Request::Submit(self.submission.clone());
            self.link.send(&request, Some(self.page.as_fd()));
            self.ask_for_clock();
            return;
        };
        let (grant, pid) = match &self.stage {
            Stage::Running(attempt) => (Some(attempt.grant.clone()), Some(attempt.leader())),
            Stage::Reported { grant, .. } => (Some((**grant).clone()), None),
            Stage::Waiting | Stage::Over(_) => (None, None),
        };
        let mut attempts = self.attempts.clone();
        // The supervisor that heard of this end may have died of it: the next one hears of it below.
        if let (Stage::Reported { .. }, Some(last)) = (&self.stage, attempts.last_mut()) {
            last.end = None;
            last.outcome = None;
            last.status = None;
        }
        let resume = Request::Resume {
            submission: self.submission.clone(),
            job,
            grant,
            attempts,
            pid: pid.and_then(|pid| u32::try_from(pid.as_raw()).ok()),
        };
        self.link.send(&resume, Some(self.page.as_fd()));
        if let Stage::Reported {
            ended,
            goes_on,
            until,
            ..
        } = &mut self.stage
        {
            self.link.send(ended, None);
            if *goes_on {
                *until = None;
            }
        }
        self.ask_for_clock();
    }

    /// The report needs to know how simulated time runs.
    pub(super) fn ask_for_clock(&mut self) {
        if self.report.is_some() && self.clock.is_none() {
            self.link.send(&Request::Status, None);
        }
    }

    pub(super) fn on_reply(&mut self, reply: Reply) -> Result<(), JobError> {
        // The user has ended the job meanwhile: no word changes its status any more.
        if matches!(self.stage, Stage::Over(_)) {
            return Ok(());
        }
        match reply {
            Reply::Accepted { job, notice } => {
                self.accepted(job, notice)?;
            }
            Reply::Grant(grant) => match self.stage {
                Stage::Waiting | Stage::Reported { goes_on: true, .. } => self.start(grant),
                // Said again after a resume, or to a job that does not go on.
                _ => {}
            },
            Reply::Move { attempt, reason } => self.stop_attempt(attempt, Why::Move(reason)),
            Reply::Cancel {
                attempt: Some(attempt),
            } => self.stop_attempt(attempt, Why::Cancel),
            Reply::Cancel { attempt: None } => match self.stage {
                Stage::Waiting | Stage::Reported { .. } => self.end_without_more(JobError::Cancelled)?,
                Stage::Running(_) | Stage::Over(_) => {}
            },
            Reply::Withdrawn { reason, unheard } => match self.stage {
                Stage::Waiting if unheard => return Err(JobError::Unheard(reason)),
                Stage::Waiting | Stage::Reported { .. } => {
                    self.end_without_more(JobError::Withdrawn(reason))?;
                }
                Stage::Running(_) | Stage::Over(_) => {}
            },
            Reply::Finished(status) => {
                // Of a job that still runs only the job itself can say that it is over.
                if !matches!(self.stage, Stage::Running(_)) {
                    self.end_without_more(JobError::Refused("the job is over".into()))?;
                    self.say_what_it_came_to(&status);
                    self.last = Some(status);
                }
            }
            Reply::Refused { reason } => {
                if matches!(self.stage, Stage::Running(_)) {
                    say(format_args!("{reason}; the job goes on without a supervisor"));
                    self.link.close();
                } else {
                    if !self.attempts.is_empty() {
                        say(&reason);
                    }
                    self.end_without_more(JobError::Refused(reason))?;
                }
            }
            Reply::Status(node) => {
                self.clock = Some(Clock {
                    simulated: node.simulated,
                    time_scale: node.time_scale,
                });
            }
            Reply::Explained(explained) => self.explained = Some(explained),
            Reply::BatchOpened { .. }
            | Reply::BatchJob(_)
            | Reply::BatchEnded(_)
            | Reply::Done
            | Reply::Cleared { .. }
            | Reply::ArrayOpened { .. }
            | Reply::Grids(_)
            | Reply::Policy(_) => {}
        }
        Ok(())
    }

    /// The job is over with the status of its last attempt; without one, for the given reason.
    pub(super) fn end_without_more(&mut self, reason: JobError) -> Result<(), JobError> {
        let status = self.attempts.last().and_then(|last| last.status).ok_or(reason)?;
        self.stage = Stage::Over(status);
        Ok(())
    }
}
