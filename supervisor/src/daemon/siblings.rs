//! What one attempt teaches the jobs of the same command that are here already.
//!
//! Twenty copies of a job are submitted at once, and none of them knows more than the history had then. The first
//! that ends, or runs out of memory, has something to say to the others:
//!
//! 1. What it came to goes into the evidence of each sibling: the same user, the same signature. One that runs is
//!    forecast by it from then on, and relaunched by it.
//! 2. Siblings that wait for their first slice are sized anew. If that changes a need, the queue is taken back from the
//!    first of them on, from its end forwards so that no slice is made for a job that is about to leave it,
//! 3. and put in again, in the same order, when the slice that has become free is known to the scheduler.

use std::collections::HashMap;
use std::sync::Arc;

use migm_shared::ids::JobId;
use migm_shared::units::Bytes;

use super::job::{Ending, Job};
use super::learnt::past_peak;
use super::owner::Owner;
use crate::control::{Evidence, Grant, JobState, Outcome, Past, PastPace, Point, Verdict, WorkKept};
use crate::job::record::Clock;
use crate::schedule::Event;

/// What an attempt came to, for those that run the same command.
#[must_use]
pub(super) fn past_of(job: &Job, grant: &Grant, ending: &Ending, wall: f64, clock: Clock) -> Past {
    let figures = &job.figures;
    let done = ending.outcome == Outcome::Done;
    let needed = ending
        .unmet
        .map_or(0, |unmet| unmet.in_use.saturating_add(unmet.asked));
    Past {
        runs: 1,
        done: u64::from(done),
        peaks: past_peak(figures, grant.memory)
            .into_iter()
            .filter(|_| done)
            .collect(),
        at_least: if done { 0 } else { needed.max(figures.reserved) },
        iterations: if done { job.learnt.seen.iterations } else { 0 },
        law: job.learnt.seen.law.clone(),
        outcome: ending.outcome,
        paces: past_pace(job, grant, wall, clock)
            .into_iter()
            .filter(|_| done)
            .collect(),
    }
}

/// How long the last attempt took where it ran: the whole run, or as many iterations as it marked. `None` where only a
/// part of the run was its own, and nothing tells which.
fn past_pace(job: &Job, grant: &Grant, wall: f64, clock: Clock) -> Option<PastPace> {
    let iterations = job.track.iteration().max(job.learnt.seen.iterations);
    let is_whole = job.attempts.len() == 1 || job.learnt.kept == WorkKept::Never;
    (is_whole || iterations > 0).then(|| PastPace {
        gpu: grant.gpu.clone(),
        profile: grant.profile.clone(),
        simulated: clock.simulated,
        seconds: clock.seconds(wall),
        iterations,
    })
}

/// Adds what a run of the very command came to.
pub(super) fn absorb(evidence: &mut Evidence, past: &Past) {
    let numbers = evidence.numbers.clone();
    let is_same = |point: &&mut Point| point.same_program && point.numbers == numbers;
    match evidence.points.iter_mut().find(is_same) {
        Some(point) => point.past.absorb(past),
        None => evidence.points.push(Point {
            same_program: true,
            past: past.clone(),
            numbers,
        }),
    }
}

impl Owner {
    /// Teaches the siblings of a job what its attempt came to. Gives back the jobs that have been taken out of the
    /// queue, in order: [`queue`](Self::queue) them when the attempt's slice is free.
    pub(super) fn teach_siblings(&mut self, id: JobId, past: &Past, now: f64) -> Vec<JobId> {
        let Some((uid, signature)) = self
            .jobs
            .get(&id)
            .and_then(|job| Some((job.uid, job.learnt.evidence()?.signature.clone())))
        else {
            return Vec::new();
        };
        // A job that took no device memory says nothing of its siblings.
        if past.peaks.is_empty() && past.at_least == 0 {
            return Vec::new();
        }
        let (waiting, taught) = self.teach(id, uid, &signature, past);
        if !past.paces.is_empty() {
            self.tell_taught(&taught, now);
        }
        let resized = self.size_anew(id, &waiting, now);
        let queue = self.scheduler.queue();
        let first = queue.iter().position(|job| resized.contains(job));
        let tail = first.map_or_else(Vec::new, |first| queue[first..].to_vec());
        for job in tail.iter().rev() {
            self.step(now, Event::Withdrawn { job: *job });
        }
        tail
    }

    /// Adds what a run came to to what is known of its siblings, of which those that wait for their first slice are given
    /// back apart, and after them all. Jobs of which the same is known still share it afterwards.
    fn teach(&mut self, id: JobId, uid: u32, signature: &str, past: &Past) -> (Vec<JobId>, Vec<JobId>) {
        let (mut waiting, mut taught) = (Vec::new(), Vec::new());
        let mut anew: HashMap<*const Evidence, Arc<Evidence>> = HashMap::new();
        let siblings = self
            .jobs
            .values_mut()
            .filter(|job| job.id != id && job.uid == uid);
        for job in siblings.filter(|job| job.state != JobState::Ended) {
            let known = job.learnt.evidence.as_mut();
            let Some(known) = known.filter(|known| known.signature == signature) else {
                continue;
            };
            let added = anew.entry(Arc::as_ptr(known)).or_insert_with(|| {
                let mut evidence = Evidence::clone(known);
                absorb(&mut evidence, past);
                Arc::new(evidence)
            });
            *known = Arc::clone(added);
            taught.push(job.id);
            let never_ran = job.attempts.is_empty() && job.submission.mem.is_none();
            if never_ran && matches!(job.state, JobState::Waiting | JobState::Held) {
                waiting.push(job.id);
            }
        }
        if let Some(last) = anew.into_values().next() {
            self.evidence.insert((uid, signature.to_owned()), last);
        }
        (waiting, taught)
    }

    /// Sizes the first slices of jobs anew by what they have been taught, and gives back those whose need has changed.
    fn size_anew(&mut self, by: JobId, waiting: &[JobId], now: f64) -> Vec<JobId> {
        let mut resized = Vec::new();
        let mut known: Option<(JobId, Option<(u64, String)>)> = None;
        for &sibling in waiting {
            let like = known.take().filter(|(other, _)| self.are_alike(*other, sibling));
            let sized = like.map_or_else(|| self.sized_by_history(sibling), |(_, sized)| sized);
            if let Some((need, why)) = &sized
                && let Some(job) = self.jobs.get_mut(&sibling).filter(|job| job.need != *need)
            {
                job.need = *need;
                job.learnt.start.clone_from(why);
                let reason = format!("need {}, by what job {by} came to: {why}", Bytes(*need));
                self.decide(sibling, now, Verdict::Size, reason, None);
                self.note_down(sibling);
                resized.push(sibling);
            }
            known = Some((sibling, sized));
        }
        resized
    }

    /// Lets a job that has just come share what is known of its command with those of which the same is known.
    pub(super) fn share_evidence(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(own) = &mut job.learnt.evidence else {
            return;
        };
        let shared = self
            .evidence
            .entry((job.uid, own.signature.clone()))
            .or_insert_with(|| Arc::clone(own));
        if shared == own {
            *own = Arc::clone(shared);
        } else {
            *shared = Arc::clone(own);
        }
    }

    /// Forgets what is known of commands of which no job is left.
    pub(super) fn drop_evidence(&mut self) {
        self.evidence.retain(|_, known| Arc::strong_count(known) > 1);
    }

    /// Whether the same is known, said and asked for of two jobs that have not run.
    pub(super) fn are_alike(&self, one: JobId, other: JobId) -> bool {
        let (Some(one), Some(other)) = (self.jobs.get(&one), self.jobs.get(&other)) else {
            return false;
        };
        let known = match (&one.learnt.evidence, &other.learnt.evidence) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        known && said(one) == said(other)
    }
}

/// What the size of a job's first slice, and what the scheduler is told of it, rest on besides what is known of its command.
fn said(job: &Job) -> impl PartialEq + '_ {
    let (asked, wishes) = (&job.submission, &job.submission.wishes);
    (
        (
            asked.mem,
            asked.iterations,
            asked.movable,
            asked.batch,
            job.late,
            job.learnt.kept,
        ),
        (
            &wishes.profile,
            wishes.exclusive,
            &wishes.devices,
            &asked.visible_devices,
            asked.use_existing,
        ),
        (job.runner.is_some(), job.cancelled, job.uid),
    )
}
