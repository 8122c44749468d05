//! What is known of a job's program before it runs, and what this run teaches.
//!
//! 1. A runner says what it knows ([`About`]) over the connection on which it submits next.
//! 2. The first slice is sized (`Owner::size_first`): by `--mem`, else by history, else by nothing. What only
//!    a hint or a law asks for is cut down to what a slice here holds (`Owner::within_reach`): it may be wrong,
//!    and a job is not refused on it.
//! 3. Each decision is logged and kept with the job (`Owner::decide`).
//! 4. When the job is over, its runner hears all of it (`Owner::explanation`) and writes its history.

use std::collections::BTreeMap;
use std::sync::Arc;

use migm_shared::ids::JobId;
use migm_shared::units::Bytes;

use super::decisions::Decisions;
use super::gpus::Use;
use super::holds::Active;
use super::job::{Job, Peer};
use super::owner::Owner;
use super::siblings::absorb;
use crate::control::{
    About, Evidence, Explanation, Figures, Grant, Inputs, JobState, Past, PastPeak, Reply, Seen, Verdict,
    WorkKept,
};
use crate::job::history;
use crate::schedule::{Facts, PolicyName};

/// What a job's program is known to do, before it runs and since.
#[derive(Clone, Debug, Default)]
pub struct Learnt {
    /// Its runner has said what it knows, and is to hear what was learnt.
    pub heard: bool,
    /// What its work survives.
    pub kept: WorkKept,
    /// What earlier runs came to, where that is kept: one for all jobs of which the same is known.
    pub evidence: Option<Arc<Evidence>>,
    /// As told to the scheduler last.
    pub told: Option<Arc<Facts>>,
    /// What the size of its first slice rests on.
    pub start: String,
    /// What was decided on it.
    pub decisions: Decisions,
    /// What its last attempt has been seen to do.
    pub seen: Seen,
    /// How often each law was seen in the running attempt.
    laws: BTreeMap<String, u64>,
    /// Reserved bytes that the law of the running attempt says are still to come, as far as it may be trusted.
    pub to_come: Option<u64>,
    /// When it came; monotonic seconds.
    pub submitted: f64,
    /// What would serve its next run better.
    pub advice: Option<String>,
}

impl Learnt {
    /// Takes what its runner says.
    pub(super) fn hear(&mut self, about: Option<About>) {
        self.heard = about.is_some();
        let about = about.unwrap_or_default();
        self.kept = about.kept;
        self.evidence = about.history.map(Arc::new);
    }

    pub(super) fn evidence(&self) -> Option<&Evidence> {
        self.evidence.as_deref()
    }

    /// Peak of reserved bytes by earlier runs of the same command, margin included.
    #[must_use]
    pub fn expected(&self) -> Option<u64> {
        history::expected(self.evidence()?)
    }

    /// Iterations of earlier runs of the same command.
    #[must_use]
    pub fn horizon(&self) -> Option<u64> {
        history::horizon(self.evidence()?)
    }

    /// A new attempt begins: what the last one did says nothing of it.
    pub fn begin_attempt(&mut self) {
        self.seen = Seen::default();
        self.laws.clear();
        self.to_come = None;
    }

    /// Takes what an attempt shows by now.
    pub fn see(&mut self, inputs: &Inputs) {
        // What it followed for most of its time: at its very end it frees all, which says nothing.
        *self.laws.entry(inputs.law.clone()).or_default() += 1;
        let most = self.laws.iter().max_by_key(|(_, times)| **times);
        self.seen.law = most.map(|(law, _)| law.clone());
        self.to_come = inputs.settled.then(|| to_come(inputs));
    }
}

/// What a law says is to come: its upper bound at the horizon, or at the point up to which it may be trusted.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "device memory is far below 2^53 bytes, and the share is between 0 and 1"
)]
fn to_come(inputs: &Inputs) -> u64 {
    let ahead = inputs.horizon - inputs.x;
    let share = if ahead > 0.0 {
        ((inputs.trusted_to - inputs.x) / ahead).clamp(0.0, 1.0)
    } else {
        1.0
    };
    let climb = inputs.high.saturating_sub(inputs.level) as f64 * share;
    inputs.level.saturating_add(climb.ceil() as u64)
}

impl Owner {
    /// Keeps what a runner says of its program until its job comes.
    pub(super) fn about(&mut self, peer: Peer, about: About) {
        self.told.insert(peer, about);
    }

    /// Sizes the first slice of a job that has just come from this peer.
    pub(super) fn size_first(&mut self, id: JobId, peer: Peer, now: f64) {
        let about = self.told.remove(&peer);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.learnt.hear(about);
        job.learnt.submitted = now;
        let mem = job.submission.mem;
        self.share_evidence(id);
        let (need, why) = match (mem, self.sized_by_history(id)) {
            (Some(mem), None) => (mem, format!("--mem says {}", Bytes(mem))),
            (Some(mem), Some((_, why))) => {
                (mem, format!("--mem says {}, and counts alone; {why}", Bytes(mem)))
            }
            (None, Some(sized)) => sized,
            (None, None) => (0, self.first_size_of_the_unknown().to_owned()),
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            job.need = need;
            job.learnt.start.clone_from(&why);
        }
        let reason = match need {
            0 => why,
            need => format!("need {}: {why}", Bytes(need)),
        };
        self.decide(id, now, Verdict::Size, reason, None);
    }

    /// What becomes of a job of which nothing is known.
    fn first_size_of_the_unknown(&self) -> &'static str {
        match self.policy {
            PolicyName::SchemeB => "nothing is known of its memory: the smallest slice",
            PolicyName::Sequential => "nothing is known of its memory",
            _ => "nothing is known of its memory: any slice that is free for it",
        }
    }

    /// The need of a job's first slice by what is known of its program, and why, where anything is.
    pub(super) fn sized_by_history(&self, id: JobId) -> Option<(u64, String)> {
        let known = self.jobs.get(&id)?.learnt.evidence()?;
        let first = history::size(known, self.context_cost)?;
        let need = self.within_reach(id, first.bytes, 0, 0);
        let mut why = first.why;
        if need < first.bytes {
            why.push_str(", which is more than any slice here holds: it starts on the largest");
            if first.known > need {
                why.push_str("; it will run out unless it has changed");
            }
        }
        Some((need, why))
    }

    /// Takes what the runner of a job of an earlier supervisor knows. The job has its size already.
    pub(super) fn learn_again(&mut self, id: JobId, peer: Peer, now: f64) {
        let about = self.told.remove(&peer);
        if let Some(job) = self.jobs.get_mut(&id) {
            job.learnt.hear(about);
            job.learnt.submitted = job.attempts.first().map_or(now, |first| first.start);
            if job.learnt.start.is_empty() {
                job.learnt.start = "sized by an earlier supervisor".to_owned();
            }
        }
    }

    /// `wanted`, or less where no slice that the job may have is that large: what the largest one holds, but
    /// never less than `known`, which is no forecast. `had` is what it has outgrown.
    pub(super) fn within_reach(&self, id: JobId, wanted: u64, known: u64, had: u64) -> u64 {
        if wanted <= known || self.scheduler.could_hold(id, wanted, had) {
            return wanted.max(known);
        }
        let sizes = self
            .gpus
            .iter()
            .flat_map(|gpu| gpu.table.profiles().iter().map(|profile| profile.memory))
            .chain(self.scheduler.largest_lease(id));
        let mut below: Vec<u64> = sizes.filter(|size| (known..wanted).contains(size)).collect();
        below.sort_unstable();
        let largest = below
            .into_iter()
            .rev()
            .find(|size| self.scheduler.could_hold(id, *size, had));
        // Where nothing is to be had at all, the scheduler says so with the figure that was wanted.
        largest.unwrap_or(if known > 0 { known } else { wanted })
    }

    /// Logs a decision and keeps it with the job.
    pub(super) fn decide(
        &mut self,
        id: JobId,
        now: f64,
        verdict: Verdict,
        reason: String,
        inputs: Option<Inputs>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let attempt = u32::try_from(job.attempts.len()).unwrap_or(u32::MAX);
        let is_new = job
            .learnt
            .decisions
            .add(now, attempt, verdict, reason.clone(), inputs);
        // Each sample gives a verdict; only what changes is news.
        if is_new {
            tracing::info!(job = %id, attempt, reason, "decision: {}", verdict.word());
        } else {
            tracing::debug!(job = %id, attempt, reason, "decision: {}", verdict.word());
        }
    }

    /// What was decided on a job, and why.
    pub(super) fn explanation(&self, job: &Job) -> Explanation {
        let (decisions, left_out) = job.learnt.decisions.kept();
        let active = match job.state {
            JobState::Held => self.active(),
            _ => Active::new(),
        };
        Explanation {
            status: self.job_status(job, &active),
            start: job.learnt.start.clone(),
            decisions,
            left_out,
            submitted: job.learnt.submitted,
            seen: job.learnt.seen.clone(),
            advice: job.learnt.advice.clone(),
            simulated: self.settings.simulated,
            time_scale: self.settings.time_scale,
        }
    }

    /// Answers [`Request::Explain`](crate::control::Request::Explain).
    pub(super) fn explain(&mut self, peer: Peer, id: JobId) {
        match self.jobs.get(&id).filter(|job| self.may(peer, job.uid)) {
            Some(job) => {
                let explained = Box::new(self.explanation(job));
                self.reply(peer, Reply::Explained(explained));
            }
            None => self.refuse(peer, format!("there is no job {id}")),
        }
    }

    /// Tells the runner of a job that is over what it may keep in its history.
    pub(super) fn tell_learnt(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.learnt.heard) else {
            return;
        };
        let explained = Box::new(self.explanation(job));
        self.tell_runner(id, Reply::Explained(explained));
    }

    /// What would have served a job better that has ended well on this slice, where history will see to it.
    pub(super) fn advice(&self, job: &Job, grant: &Grant, past: &Past) -> Option<String> {
        let mut known = job.learnt.evidence()?.clone();
        let peak = *past.peaks.last()?;
        absorb(&mut known, past);
        let next = history::size(&known, self.context_cost)?;
        let gpu = &self.gpus[self.slices.get(&grant.slice)?.gpu];
        // Where the tightest slice is not what a job starts on, that is no advice.
        if self.policy != PolicyName::SchemeB || gpu.used != Use::Reshaped {
            return None;
        }
        let fit = gpu.table.tightest(next.bytes);
        let smaller = gpu.table.profile(*fit.first()?);
        if smaller.memory >= grant.memory {
            return None;
        }
        let next_time = if job.submission.mem.is_some() {
            "a smaller --mem, or none, has the next run start there"
        } else {
            "the next run of the same command starts there"
        };
        Some(format!(
            "it peaked at {} of the {} of {}: {} with {} is enough, and {next_time}",
            Bytes(peak.device.unwrap_or(peak.reserved)),
            Bytes(grant.memory),
            grant.profile,
            smaller.name,
            Bytes(smaller.memory),
        ))
    }
}

/// The peak of a run that ended well on a slice of that memory; `None` of one that never took device memory.
#[must_use]
pub fn past_peak(figures: &Figures, slice: u64) -> Option<PastPeak> {
    (figures.reserved > 0).then_some(PastPeak {
        allocated: figures.allocated,
        reserved: figures.reserved,
        device: figures.device,
        slice,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::units::GIB;

    fn inputs(trusted_to: f64) -> Inputs {
        Inputs {
            level: 4 * GIB,
            x: 40.0,
            horizon: 100.0,
            trusted_to,
            high: 10 * GIB,
            ..Inputs::default()
        }
    }

    #[test]
    fn a_law_is_followed_as_far_as_it_may_be_trusted() {
        assert_eq!(to_come(&inputs(200.0)), 10 * GIB);
        assert_eq!(to_come(&inputs(70.0)), 7 * GIB);
        assert_eq!(to_come(&inputs(0.0)), 4 * GIB);
        let at_the_end = Inputs {
            horizon: 40.0,
            ..inputs(200.0)
        };
        assert_eq!(to_come(&at_the_end), 10 * GIB);
    }

    #[test]
    fn the_law_of_an_attempt_is_the_one_that_it_followed_longest() {
        let mut learnt = Learnt::default();
        for law in ["flat", "line", "line", "line", "flat"] {
            learnt.see(&Inputs {
                law: law.to_owned(),
                ..inputs(0.0)
            });
        }
        assert_eq!(learnt.seen.law.as_deref(), Some("line"));
        learnt.begin_attempt();
        assert_eq!(learnt.seen.law, None);
    }

    #[test]
    fn what_is_to_come_is_not_said_by_a_forecast_that_has_not_settled() {
        let mut learnt = Learnt::default();
        learnt.see(&inputs(200.0));
        assert_eq!(learnt.to_come, None);
        learnt.see(&Inputs {
            settled: true,
            ..inputs(200.0)
        });
        assert_eq!(learnt.to_come, Some(10 * GIB));
        learnt.begin_attempt();
        assert_eq!(learnt.to_come, None);
    }
}
