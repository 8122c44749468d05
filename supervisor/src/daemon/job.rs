//! A job as the supervisor keeps it.

use std::collections::BTreeMap;
use std::sync::Arc;

use migm_shared::ids::{AttemptId, JobId};
use migm_shared::page::DeviceReading;

use super::facts::Carried;
use super::forecast::Track;
use super::learnt::Learnt;
use super::pace::Pace;
use super::process::ProcessId;
use super::state::JobRecord;
use crate::control::{After, AttemptRecord, Figures, Grant, JobState, JobStatus, Outcome, Submission, Unmet};
use crate::job::page::JobPage;
use crate::memory::Method;
use crate::schedule::{Terms, Wish};

/// A peer of the control socket.
pub type Peer = usize;

/// One job.
#[derive(Debug)]
pub struct Job {
    /// Number.
    pub id: JobId,
    /// As submitted.
    pub submission: Submission,
    /// Whose it is.
    pub uid: u32,
    /// The connection of its runner; `None` when that is gone or has not come back.
    pub runner: Option<Peer>,
    /// Its runner, by the kernel; `None` where it is not known.
    pub runner_process: Option<ProcessId>,
    /// Its counter page.
    pub page: Option<Arc<JobPage>>,
    /// Where it is.
    pub state: JobState,
    /// Attempts so far.
    pub attempts: Vec<AttemptRecord>,
    /// The lease it holds.
    pub grant: Option<Grant>,
    /// The running attempt's first process, which leads its group.
    pub leader: Option<ProcessId>,
    /// Its living processes with a connection, and their slot in the page.
    pub processes: BTreeMap<u32, Option<usize>>,
    /// The end that the runner has told, while a process that it does not know of still lives.
    pub ending: Option<Ending>,
    /// What the running attempt has told.
    pub track: Track,
    /// How fast the running attempt goes.
    pub pace: Pace,
    /// What it has kept of attempts that are over.
    pub carried: Carried,
    /// Device bytes that the running attempt needs at most, by a forecast that has settled.
    pub enough: Option<u64>,
    /// It came after its batch had started.
    pub late: bool,
    /// When it was asked to move; monotonic seconds.
    pub asked_to_move: Option<f64>,
    /// What is known of its program, and what was decided on it.
    pub learnt: Learnt,
    /// Device bytes that it is known to need; 0 when nothing is known.
    pub need: u64,
    /// Largest unaccounted device bytes seen.
    pub unaccounted: Option<u64>,
    /// Largest reserved bytes that a sample has told: all there is of a process that kept its own page.
    pub told_peak: u64,
    /// As the runner has told last.
    pub figures: Figures,
    /// The last forecast of the peak of reserved bytes.
    pub predicted: Option<u64>,
    /// One line for people.
    pub note: Option<String>,
    /// Somebody asked for its end.
    pub cancelled: bool,
    /// Since when its runner is missing; monotonic seconds.
    pub orphan_since: Option<f64>,
    /// NVML has been asked who is on its slice, and has not answered.
    pub asked: bool,
    /// The watched process has been signalled.
    pub warned: bool,
    /// Jobs whose end it still waits for.
    pub awaits: Vec<After>,
    /// When it came to be held, waiting or ended; monotonic seconds.
    pub came: f64,
}

/// How an attempt ended, as its runner tells it.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// Exit status as a shell shows it; `None` when nobody knows it.
    pub status: Option<i32>,
    /// By the runner's rules.
    pub outcome: Outcome,
    /// What was asked in vain.
    pub unmet: Option<Unmet>,
}

impl Job {
    /// How many iterations it runs, by the user's word or by earlier runs. Of a job that marks none now, the
    /// clock must tell.
    #[must_use]
    pub fn iterations(&self) -> Option<u64> {
        let learnt = self.learnt.horizon().filter(|_| self.track.iteration() > 0);
        self.submission.iterations.or(learnt)
    }

    /// Seconds until the running attempt is over, at the pace of its first `spent` seconds.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
    pub fn seconds_left(&self, spent: f64) -> Option<f64> {
        let done = Some(self.track.iteration()).filter(|&done| done > 0)?;
        let left = self.iterations()?.saturating_sub(done);
        Some(left as f64 * spent / done as f64)
    }

    /// A job that waits.
    #[must_use]
    pub fn new(id: JobId, submission: Submission, uid: u32) -> Self {
        Self {
            id,
            need: submission.mem.unwrap_or(0),
            submission,
            uid,
            runner: None,
            runner_process: None,
            page: None,
            state: JobState::Waiting,
            attempts: Vec::new(),
            grant: None,
            leader: None,
            processes: BTreeMap::new(),
            ending: None,
            track: Track::new(Method::default()),
            pace: Pace::default(),
            carried: Carried::default(),
            enough: None,
            late: false,
            asked_to_move: None,
            learnt: Learnt::default(),
            unaccounted: None,
            told_peak: 0,
            figures: Figures::default(),
            predicted: None,
            note: None,
            cancelled: false,
            orphan_since: None,
            asked: false,
            warned: false,
            awaits: Vec::new(),
            came: 0.0,
        }
    }

    /// A job of an earlier supervisor; its page and runner are missing.
    #[must_use]
    pub fn recovered(record: JobRecord, now: f64) -> Self {
        Self {
            state: record.state,
            attempts: record.attempts,
            grant: record.grant,
            leader: record.leader,
            need: record.need,
            unaccounted: record.unaccounted,
            figures: record.figures,
            predicted: record.predicted,
            note: record.note,
            awaits: record.awaits,
            came: record.came,
            carried: record.carried,
            late: record.late,
            cancelled: record.cancelled,
            orphan_since: Some(now),
            ..Self::new(record.id, record.submission, record.uid)
        }
    }

    /// What the state file keeps.
    #[must_use]
    pub fn record(&self) -> JobRecord {
        JobRecord {
            id: self.id,
            submission: self.submission.clone(),
            uid: self.uid,
            state: self.state,
            attempts: self.attempts.clone(),
            grant: self.grant.clone(),
            leader: self.leader,
            need: self.need,
            unaccounted: self.unaccounted,
            figures: self.figures,
            predicted: self.predicted,
            note: self.note.clone(),
            awaits: self.awaits.clone(),
            came: self.came,
            carried: self.carried,
            late: self.late,
            cancelled: self.cancelled,
        }
    }

    /// What its user asks for, as the scheduler hears it.
    #[must_use]
    pub fn terms(&self) -> Terms {
        let wishes = &self.submission.wishes;
        Terms {
            user: self.uid,
            priority: wishes.priority,
            wish: match &wishes.profile {
                Some(profile) => Wish::Profile(profile.clone()),
                None if wishes.exclusive => Wish::Exclusive,
                None => Wish::Any,
            },
        }
    }

    /// Since when it is where it is; monotonic seconds.
    fn since(&self) -> f64 {
        let last = self.attempts.last();
        let since = match self.state {
            JobState::Running | JobState::Moving | JobState::Watched => last.map(|last| last.start),
            JobState::Held | JobState::Waiting | JobState::Ended => last.and_then(|last| last.end),
        };
        // A job that waits again, and one that ended without a lease, came here after its last attempt.
        since.map_or(self.came, |since| match self.state {
            JobState::Ended => since.max(self.came),
            _ => since,
        })
    }

    /// Whether it has a lease.
    #[must_use]
    pub const fn is_leased(&self) -> bool {
        self.grant.is_some()
    }

    /// The attempt that holds the lease, or would be the next.
    #[must_use]
    pub fn attempt(&self) -> AttemptId {
        let so_far = u32::try_from(self.attempts.len()).unwrap_or(u32::MAX);
        self.grant.as_ref().map_or(
            AttemptId {
                job: self.id,
                attempt: so_far.saturating_add(1),
                nonce: self.submission.nonce,
            },
            |grant| grant.attempt,
        )
    }

    /// Memory so far: the runner's figures, or better ones from the page.
    #[must_use]
    pub fn figures_now(&self) -> Figures {
        let mut figures = self.figures;
        // Before the first attempt nobody has written into the page, and to read it would take memory for it.
        if let Some(page) = self.page.as_ref().filter(|_| !self.attempts.is_empty()) {
            let readings = page.read();
            // Attempts ran on one device each, one after the other: their peaks do not add up.
            let peak = readings.iter().map(|device| device.reserved_peak).max();
            let allocated = readings.iter().filter_map(|device| device.allocated_peak).max();
            figures.reserved = figures.reserved.max(peak.unwrap_or(0));
            figures.allocated = figures.allocated.max(allocated);
            let sum = |of: fn(&DeviceReading) -> u64| -> u64 { readings.iter().map(of).sum() };
            figures.allocations = figures.allocations.max(sum(|device| device.allocations));
            figures.frees = figures.frees.max(sum(|device| device.frees));
        }
        figures.reserved = figures.reserved.max(self.told_peak);
        let device = self
            .unaccounted
            .map(|bytes| figures.reserved.saturating_add(bytes));
        figures.device = figures.device.max(device);
        figures
    }

    /// As `migm status` shows it.
    #[must_use]
    pub fn status(&self) -> JobStatus {
        JobStatus {
            id: self.id,
            name: self.submission.name.clone(),
            state: self.state,
            attempts: self.attempts.clone(),
            figures: self.figures_now(),
            predicted_peak_bytes: self.predicted,
            iteration: self.track.iteration(),
            iterations: self.submission.iterations,
            part: self.submission.part.clone(),
            note: self.note.clone(),
            user: self.uid,
            since: self.since(),
            wishes: self.submission.wishes.clone(),
        }
    }

    /// Takes the memory of a dead process out of the page, which the process itself could not do.
    pub fn forget_process(&mut self, pid: u32) {
        let Some(slot) = self.processes.remove(&pid) else {
            return;
        };
        self.track.process_gone(pid);
        if let (Some(page), Some(slot)) = (&self.page, slot)
            && let Some(occupant) = page.occupants().into_iter().find(|one| one.slot == slot)
        {
            page.leave(occupant);
        }
    }

    /// Whether any process of the running attempt is known to live.
    #[must_use]
    pub fn has_process(&self) -> bool {
        !self.processes.is_empty() || self.leader.is_some_and(ProcessId::group_lives)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Wishes;

    #[test]
    fn the_scheduler_hears_whose_a_job_is_and_what_is_asked_for() {
        let terms = |wishes: Wishes| {
            let submission = Submission {
                wishes,
                ..Submission::plain()
            };
            Job::new(JobId(1), submission, 1000).terms()
        };
        let usual = terms(Wishes::default());
        assert_eq!((usual.user, usual.priority, usual.wish), (1000, 0, Wish::Any));
        let one = terms(Wishes {
            priority: -2,
            profile: Some("2g.10gb".into()),
            ..Wishes::default()
        });
        assert_eq!((one.priority, one.wish), (-2, Wish::Profile("2g.10gb".into())));
        let alone = terms(Wishes {
            exclusive: true,
            ..Wishes::default()
        });
        assert_eq!(alone.wish, Wish::Exclusive);
    }
}
