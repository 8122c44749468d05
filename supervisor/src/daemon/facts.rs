//! What the scheduler is told of a job beyond its memory: speeds, work left, what a move costs.
//!
//! 1. Paces come from three places, the later ones over the earlier: runs of the same command in the history, jobs of the
//!    same program that are here, this very job.
//! 2. They give the pace on a whole GPU and the speeds on the other slices ([`Shares`]). Without any, the law of all
//!    programs here stands for the job's own.
//! 3. Work is in wall seconds on the whole GPU: the iterations that are left over the pace there; else what earlier
//!    runs took, less what this one has done; else unknown.
//! 4. It is told before a job arrives or goes on, and again whenever something better is known. The decider is asked once
//!    per round of the event loop, when no more is at hand ([`Owner::decide_if_quiet`]).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use migm_shared::ids::JobId;
use serde::{Deserialize, Serialize};

use super::gpus::PlacedGpu;
use super::job::Job;
use super::owner::Owner;
use super::pace::NEWS;
use super::slices::Origin;
use crate::control::{JobState, Outcome, WorkKept};
use crate::schedule::speed::{SERIAL, Shares, mean};
use crate::schedule::{Event, Facts, GpuIndex, Need};

/// Jobs that are submitted one by one in a moment, as by a loop of a shell, are decided on together: so long after the
/// last, wall seconds, ...
const GATHER: f64 = 0.05;
/// ... and at most so long after the first.
const GATHER_MOST: f64 = 0.25;
/// Work left in a job that has lasted longer than all before it, as a share of theirs.
const OVERDUE: f64 = 0.05;

/// Work that a job has kept from attempts that are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Carried {
    /// Iterations.
    pub iterations: u64,
    /// Seconds of work, of a job that marks no iterations.
    pub seconds: f64,
}

impl Job {
    /// Whether what the running attempt has done survives an end of this kind.
    fn survives(&self, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Moved => self.learnt.kept != WorkKept::Never,
            Outcome::Oom => self.learnt.kept == WorkKept::Always,
            _ => false,
        }
    }

    /// The running attempt is over: what it has done is kept, or gone with all before it.
    pub(super) fn carry_over(&mut self, outcome: Outcome, seconds: f64) {
        self.carried = if self.survives(outcome) {
            Carried {
                iterations: self.carried.iterations + self.track.iteration(),
                seconds: self.carried.seconds + seconds,
            }
        } else {
            Carried::default()
        };
    }

    /// Device bytes that it needs of its slice of so many, as far as known. Of a job of which nothing is known all of it,
    /// until its forecast has settled.
    #[must_use]
    pub fn known_need(&self, memory: u64) -> u64 {
        let told = if self.need > 0 {
            self.need
        } else {
            self.enough.unwrap_or(memory)
        };
        let figures = self.figures_now();
        told.max(figures.device.unwrap_or(figures.reserved)).min(memory)
    }
}

/// A number that stands for a program.
fn numbered(program: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    hasher.finish()
}

impl Owner {
    /// Whether the policy weighs time.
    pub(super) fn plans(&self) -> bool {
        self.policy.ordered().is_none()
    }

    /// Tells the scheduler what is known of a job by now.
    pub(super) fn tell_facts(&mut self, id: JobId, now: f64) {
        if !self.plans() {
            return;
        }
        let Some(job) = self.jobs.get(&id) else { return };
        if matches!(job.state, JobState::Ended | JobState::Watched | JobState::Held) {
            return;
        }
        let facts = Arc::new(self.facts_of(job, now));
        self.tell(id, facts, now);
    }

    fn tell(&mut self, id: JobId, facts: Arc<Facts>, now: f64) {
        tracing::debug!(job = %id, ?facts, "told the scheduler");
        if let Some(job) = self.jobs.get_mut(&id) {
            job.learnt.told = Some(Arc::clone(&facts));
        }
        self.step(now, Event::Facts { job: id, facts });
    }

    /// Tells what is known by now of jobs that have been taught by a run of the same command. What would be the same for
    /// those that have not run is worked out once, and told where it is news.
    pub(super) fn tell_taught(&mut self, taught: &[JobId], now: f64) {
        if !self.plans() {
            return;
        }
        let mut known: Option<(JobId, Arc<Facts>)> = None;
        for &id in taught {
            let Some(job) = self.jobs.get(&id) else { continue };
            if job.state != JobState::Waiting || !job.attempts.is_empty() {
                self.tell_facts(id, now);
                continue;
            }
            let like = known.as_ref().filter(|(other, _)| self.are_alike(*other, id));
            let facts = like.map_or_else(
                || Arc::new(self.facts_of(job, now)),
                |(_, facts)| Arc::clone(facts),
            );
            known = Some((id, Arc::clone(&facts)));
            if job.learnt.told.as_ref().is_none_or(|told| is_news(told, &facts)) {
                self.tell(id, facts, now);
            }
        }
    }

    /// Tells the scheduler what a running job needs of its slice, so that no order gives it less.
    pub(super) fn tell_need(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get(&id).filter(|_| self.plans()) else {
            return;
        };
        let slice = job.grant.as_ref().and_then(|grant| self.slices.get(&grant.slice));
        let Some(slice) = slice.filter(|slice| slice.origin != Origin::Soft) else {
            return;
        };
        let device_bytes = job.known_need(slice.memory);
        let need = Need { device_bytes };
        self.step(now, Event::Enough { job: id, need });
    }

    /// A running job is forecast to need no more than this. Told as the figure changes.
    pub(super) fn settle_need(&mut self, id: JobId, enough: u64, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        // A twentieth is within what forecasts of one job differ by.
        let is_same = |before: u64| before.abs_diff(enough) <= before / 20;
        if !job.enough.is_some_and(is_same) {
            job.enough = Some(enough);
            self.tell_need(id, now);
        }
    }

    fn facts_of(&self, job: &Job, now: f64) -> Facts {
        let kinds = self.kinds();
        let shares = Shares::of(kinds.iter().map(|gpu| gpu.map(|gpu| gpu.table.as_ref())));
        let serial = self.usual_serial(&kinds, &shares);
        let (paces, by_marks) = self.paces_of(job);
        let known = shares.relative(&Self::points(&kinds, &paces), serial);
        let speeds = match &known {
            Some((seen, _)) => shares.guess(Some(seen), shares.serial(seen).unwrap_or(serial)),
            None => shares.guess(None, serial),
        };
        let shown = known
            .as_ref()
            .is_some_and(|(seen, _)| shares.serial(seen).is_some());
        let whole = known.map(|(_, whole)| whole);
        // What an attempt that is over has done is carried over, or lost.
        let running = job.attempts.last();
        let running = running.filter(|_| matches!(job.state, JobState::Running | JobState::Moving));
        let speed = self.speed_there(job, &speeds).unwrap_or(1.0);
        let ran = running.map_or(0.0, |last| (now - last.start).max(0.0) * speed);
        let marked = running.map_or(0, |_| job.track.iteration());
        let seconds = job.carried.seconds + ran;
        #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
        let (work, attained) = match whole {
            Some(whole) if by_marks => {
                let done = job.carried.iterations + marked;
                let all = job.submission.iterations.or(job.learnt.horizon());
                let left = all.map(|all| all.saturating_sub(done) as f64 / whole);
                (left, done as f64 / whole)
            }
            Some(whole) => {
                let all = 1.0 / whole;
                (Some((all - seconds).max(OVERDUE * all)), seconds)
            }
            None => (None, seconds),
        };
        Facts {
            speeds,
            work,
            attained,
            weight: 1.0,
            keeps_work: job.learnt.kept != WorkKept::Never,
            stays: !job.submission.movable
                || job.runner.is_none()
                || job.cancelled
                || job.state == JobState::Moving,
            move_cost: self.costs.moving(),
            in_batch: job.submission.batch.is_some() && !job.late,
            unseen: (!shown).then(|| numbered(&job.program())),
        }
    }

    /// The serial part of the programs that have been seen on two slices or more, in the mean.
    fn usual_serial(&self, kinds: &[Option<&PlacedGpu>], shares: &Shares) -> f64 {
        let several = self.paces.programs().filter(|paces| paces.len() > 1);
        let parts = several.filter_map(|paces| {
            let (speeds, _) = shares.relative(&Self::points(kinds, paces), SERIAL)?;
            shares.serial(&speeds)
        });
        mean(parts).unwrap_or(SERIAL).clamp(0.0, 1.0)
    }

    /// Paces of a job's program by GPU model and profile; by iteration marks, or else by whole runs.
    fn paces_of(&self, job: &Job) -> (BTreeMap<(String, String), f64>, bool) {
        let past = job.past_paces(self.settings.simulated, self.settings.time_scale);
        let here = self.paces.of(&job.program());
        let by_marks = here.is_some_and(|paces| !paces.is_empty()) || past.iter().any(|pace| pace.2);
        let past = past.into_iter().filter(|pace| pace.2 == by_marks);
        let mut paces: BTreeMap<(String, String), f64> = past.map(|pace| (pace.0, pace.1)).collect();
        paces.extend(here.into_iter().flatten().map(|(at, pace)| (at.clone(), *pace)));
        (paces, by_marks)
    }

    /// Seconds of work per second of a job where it runs.
    fn speed_there(&self, job: &Job, speeds: &[Arc<[f64]>]) -> Option<f64> {
        let slice = self.slices.get(&job.grant.as_ref()?.slice)?;
        let kind = self.scheduler.kind_of(GpuIndex(slice.gpu))?;
        speeds.get(kind)?.get(slice.slot.0.0).copied()
    }

    /// A job has come by itself: others may follow.
    pub(super) fn gather(&mut self, now: f64) {
        if self.plans() {
            let (first, _) = *self.gathering.get_or_insert((now, now));
            self.gathering = Some((first, now));
        }
    }

    /// When jobs that have just come are decided on; `None` where none waits for that.
    #[must_use]
    pub fn decides_at(&self) -> Option<f64> {
        let (first, last) = self.gathering?;
        Some((last + GATHER).min(first + GATHER_MOST))
    }

    /// Nothing more is at hand: a policy that weighs time decides.
    pub fn decide_if_quiet(&mut self, now: f64) {
        if !self.plans() || self.decides_at().is_some_and(|at| now < at) {
            return;
        }
        self.gathering = None;
        self.step(now, Event::Settled);
    }
}

/// Whether facts differ by more than what runs of one command differ by.
fn is_news(told: &Facts, now: &Facts) -> bool {
    let apart = |a: f64, b: f64| (a - b).abs() > NEWS * a.abs().max(b.abs());
    let speeds =
        |facts: &Facts| -> Vec<f64> { facts.speeds.iter().flat_map(|of| of.iter().copied()).collect() };
    let (before, after) = (speeds(told), speeds(now));
    let work = match (told.work, now.work) {
        (Some(before), Some(after)) => apart(before, after),
        (before, after) => before.is_some() != after.is_some(),
    };
    let flags = |facts: &Facts| (facts.keeps_work, facts.stays, facts.in_batch, facts.unseen);
    work || flags(told) != flags(now)
        || before.len() != after.len()
        || before
            .iter()
            .zip(&after)
            .any(|(before, after)| apart(*before, *after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Submission;

    #[test]
    fn a_program_that_turns_out_as_fast_as_thought_is_news() {
        let guessed = Facts {
            unseen: Some(1),
            ..Facts::default()
        };
        let seen = Facts::default();
        assert!(is_news(&guessed, &seen), "others of it need wait no longer");
        assert!(!is_news(&seen, &Facts::default()));
    }

    fn job(kept: WorkKept) -> Job {
        let mut job = Job::new(JobId(1), Submission::plain(), 0);
        job.learnt.kept = kept;
        job
    }

    #[test]
    fn work_is_carried_over_by_the_ends_that_it_survives() {
        let seconds = |kept: WorkKept, ends: &[Outcome]| {
            let mut job = job(kept);
            for &end in ends {
                job.carry_over(end, 10.0);
            }
            job.carried.seconds
        };
        use Outcome::{Moved, Oom};
        assert_eq!(seconds(WorkKept::Never, &[Moved, Moved]), 0.0);
        assert_eq!(seconds(WorkKept::OnSignal, &[Moved, Moved]), 20.0);
        // A program that only saves when it is asked to has lost all by then.
        assert_eq!(seconds(WorkKept::OnSignal, &[Moved, Oom]), 0.0);
        assert_eq!(seconds(WorkKept::Always, &[Moved, Oom]), 20.0);
    }
}
