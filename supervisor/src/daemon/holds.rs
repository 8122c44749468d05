//! Jobs that wait for something else than a slice: the start of their batch, jobs before them, the rest of their
//! array. They are held, and the scheduler does not know them.
//!
//! What ends and what lets go is noted where it happens ([`Holds`]) and acted on once the event is done with
//! ([`Owner::attend`]): the end of one job may cancel a whole line of others, and the scheduler may be in the
//! middle of a step. What a job still waits for is in the state file.

use std::collections::{BTreeMap, HashMap};

use migm_shared::ids::JobId;

use super::job::{Job, Peer};
use super::owner::Owner;
use crate::control::{After, JobState, Reply, Submission};

/// What has happened and has not been acted on, and arrays not yet whole.
#[derive(Debug, Default)]
pub struct Holds {
    /// Arrays whose jobs are being submitted, and by whom.
    opening: BTreeMap<JobId, Peer>,
    /// Jobs that have ended, and how unless well.
    ended: Vec<(JobId, Result<(), String>)>,
    /// Some held job may be free to go.
    changed: bool,
}

impl Holds {
    /// A held job may have become free to go.
    pub const fn note_change(&mut self) {
        self.changed = true;
    }

    /// A job has ended.
    pub fn note_end(&mut self, job: &Job) {
        self.ended.push((job.id, job.status().ended_well()));
        self.changed = true;
    }
}

/// How many jobs of each array have a slice or wait for one. By user too: nobody's jobs count for another's array.
pub(super) type Active = HashMap<(u32, JobId), u32>;

/// What a job is held for.
enum Hold<'a> {
    /// The start of its batch.
    Batch,
    /// The end of these.
    Jobs(&'a [After]),
    /// The rest of its array.
    Array,
    /// Others of its array: so many may be under way.
    Turn(u32),
}

impl Owner {
    pub(super) fn open_array(&mut self, peer: Peer) {
        let array = JobId(self.next_job);
        self.next_job += 1;
        self.dirty = true;
        self.holds.opening.insert(array, peer);
        self.reply(peer, Reply::ArrayOpened { array });
    }

    pub(super) fn start_array(&mut self, peer: Peer, array: JobId) {
        if self.holds.opening.get(&array) != Some(&peer) {
            self.refuse(peer, format!("this connection has opened no array {array}"));
            return;
        }
        self.holds.opening.remove(&array);
        self.holds.note_change();
        self.reply(peer, Reply::Done);
    }

    /// A connection that was submitting an array is gone: none of it is wanted.
    pub(super) fn drop_arrays_of(&mut self, peer: Peer, now: f64) {
        let dropped: Vec<JobId> = self
            .holds
            .opening
            .extract_if(.., |_, opener| *opener == peer)
            .map(|(array, _)| array)
            .collect();
        let is_of = |job: &&Job| {
            let element = job.submission.wishes.element;
            job.state == JobState::Held && element.is_some_and(|element| dropped.contains(&element.array))
        };
        let jobs: Vec<JobId> = self.jobs.values().filter(is_of).map(|job| job.id).collect();
        for job in jobs {
            let reason = "its array was not submitted in full".to_owned();
            self.call_off(job, reason, true, now);
        }
    }

    /// What a new job must wait for, of the jobs that it names.
    pub(super) fn awaited(&self, peer: Peer, submission: &Submission) -> Result<Vec<After>, String> {
        let mut awaited = Vec::new();
        for after in &submission.wishes.after {
            let job = self.jobs.get(&after.job).filter(|job| self.may(peer, job.uid));
            let Some(job) = job.filter(|job| job.state != JobState::Watched) else {
                return Err(format!("there is no job {} to wait for", after.job));
            };
            if job.state != JobState::Ended {
                awaited.push(*after);
            } else if let (false, Err(how)) = (after.any, job.status().ended_well()) {
                // A batch counts on the record of each of its jobs: this one is taken, and cancelled.
                if submission.batch.is_none() {
                    return Err(format!("`{}` {how}", job.submission.name));
                }
                awaited.push(*after);
            }
        }
        Ok(awaited)
    }

    /// Those before a new job that have ended already have their say on it.
    pub(super) fn hear_of_ended(&mut self, awaited: &[After]) {
        for after in awaited {
            if let Some(job) = self
                .jobs
                .get(&after.job)
                .filter(|job| job.state == JobState::Ended)
            {
                self.holds.note_end(job);
            }
        }
    }

    /// Whether a job that comes is to be held.
    pub(super) fn is_to_be_held(&self, job: &Job) -> bool {
        let element = job.submission.wishes.element;
        let limited = element.is_some_and(|element| element.at_once.is_some());
        let active = if limited { self.active() } else { Active::new() };
        self.hold_of(job, &active).is_some()
    }

    /// Why a job is held.
    pub(super) fn why_held(&self, job: &Job, active: &Active) -> Option<String> {
        self.hold_of(job, active).map(|hold| self.in_words(&hold))
    }

    pub(super) fn active(&self) -> Active {
        let mut active = Active::new();
        for job in self.jobs.values() {
            let is_active = matches!(
                job.state,
                JobState::Waiting | JobState::Running | JobState::Moving
            );
            if let Some(element) = job.submission.wishes.element.filter(|_| is_active) {
                *active.entry((job.uid, element.array)).or_default() += 1;
            }
        }
        active
    }

    fn hold_of<'a>(&self, job: &'a Job, active: &Active) -> Option<Hold<'a>> {
        let batch = job.submission.batch.and_then(|batch| self.batches.get(&batch));
        if batch.is_some_and(|batch| batch.started.is_none()) {
            return Some(Hold::Batch);
        }
        if !job.awaits.is_empty() {
            return Some(Hold::Jobs(&job.awaits));
        }
        let element = job.submission.wishes.element?;
        if self.holds.opening.contains_key(&element.array) {
            return Some(Hold::Array);
        }
        let most = element.at_once?;
        let count = active.get(&(job.uid, element.array)).copied().unwrap_or(0);
        (count >= most).then_some(Hold::Turn(most))
    }

    fn in_words(&self, hold: &Hold<'_>) -> String {
        match hold {
            Hold::Batch => "its batch has not started".to_owned(),
            Hold::Jobs(awaits) => {
                const NAMED: usize = 3;
                let first = awaits.iter().take(NAMED);
                let named: Vec<String> = first.map(|after| self.named(after.job)).collect();
                let more = awaits.len().saturating_sub(NAMED);
                let and_more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                format!("waits for the end of {}{and_more}", named.join(", "))
            }
            Hold::Array => "its array is being submitted".to_owned(),
            Hold::Turn(most) => format!("{most} of its array at once, and so many are under way"),
        }
    }

    fn named(&self, id: JobId) -> String {
        self.jobs.get(&id).map_or_else(
            || id.to_string(),
            |job| format!("{} `{}`", job.status().shown_id(), job.submission.name),
        )
    }

    /// Acts on what has happened since the last call.
    pub fn attend(&mut self, now: f64) {
        while let Some((ended, how)) = self.holds.ended.pop() {
            self.tell_those_after(ended, &how, now);
        }
        if std::mem::take(&mut self.holds.changed) {
            self.let_go(now);
        }
    }

    fn tell_those_after(&mut self, ended: JobId, how: &Result<(), String>, now: f64) {
        let name = self
            .jobs
            .get(&ended)
            .map_or_else(|| ended.to_string(), |job| job.submission.name.clone());
        let mut lost = Vec::new();
        let mut fewer = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.state == JobState::Held) {
            let Some(after) = job.awaits.iter().find(|after| after.job == ended).copied() else {
                continue;
            };
            match how {
                Err(how) if !after.any => lost.push((job.id, format!("`{name}` {how}"))),
                _ => {
                    job.awaits.retain(|after| after.job != ended);
                    fewer.push(job.id);
                }
            }
        }
        for job in fewer {
            self.changed(job);
        }
        for (job, reason) in lost {
            self.call_off(job, reason, false, now);
        }
    }

    /// Cancels a held job for a reason of ours.
    pub(super) fn call_off(&mut self, id: JobId, reason: String, unheard: bool, now: f64) {
        tracing::info!(job = %id, reason, "cancelled");
        let told = Reply::Withdrawn {
            reason: reason.clone(),
            unheard,
        };
        self.tell_runner(id, told);
        self.withdraw(id, &reason, now);
    }

    /// Held jobs that wait for nothing any more join the queue, in order of submission.
    fn let_go(&mut self, now: f64) {
        let held: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.state == JobState::Held && job.runner.is_some())
            .map(|job| job.id)
            .collect();
        if held.is_empty() {
            return;
        }
        let mut active = self.active();
        for id in held {
            let free = self
                .jobs
                .get(&id)
                .is_some_and(|job| self.hold_of(job, &active).is_none());
            let Some(job) = self.jobs.get_mut(&id).filter(|_| free) else {
                continue;
            };
            job.state = JobState::Waiting;
            job.came = now;
            if let Some(element) = job.submission.wishes.element {
                *active.entry((job.uid, element.array)).or_default() += 1;
            }
            self.changed(id);
            self.queue(id, now);
        }
    }
}
