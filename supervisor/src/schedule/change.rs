//! Another policy, while jobs wait and run.
//!
//! 1. What the former policy kept for jobs that wait is kept no longer: slices that stand are idle, slices under way are made
//!    for nobody yet. Whoever is on his way out of a slice goes on, and waits again.
//! 2. The GPUs and what stands on them, who runs where, the queue with all its places, terms
//!    and shares stay as they are. What the driver has refused is asked for again where it is wanted, as after a restart.
//! 3. One that serves in order serves at once; one that decides does so at the next [`Event::Settled`](super::Event::Settled),
//!    when it has been told what is known of the jobs.

#[cfg(test)]
use migm_shared::ids::Incarnation;
use migm_shared::ids::JobId;

use super::machine::{Scheduler, Waiting};
use super::planned::Planned;
use super::policy::{Choice, PolicyName};
use super::{Action, Policy, Slice, SliceState};

/// Where a job that was refused stood in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its number there.
    pub(super) arrival: u64,
    /// The number of its first arrival.
    pub(super) came: u64,
    /// It had had a slice.
    pub(super) ran: bool,
}

impl Scheduler {
    /// See the [module](self).
    pub(super) fn serve_by(&mut self, name: &PolicyName, choice: Choice) {
        let decider = name.decider(choice);
        let policy = name.ordered();
        if policy.is_none() && decider.is_none() {
            return;
        }
        self.keep_nothing();
        self.gpus.values_mut().for_each(super::gpu::Gpu::ask_again);
        let before = self.planned.take();
        self.policy = policy.unwrap_or_default();
        self.planned = decider.map(|decider| Planned::in_place_of(before, decider));
        match &self.planned {
            Some(_) => self.introduce(),
            None => self.learn_demand_anew(),
        }
        let in_order = self.planned.is_none();
        for waiting in self.queue.values_mut() {
            let planned = self.planned.as_ref();
            waiting.facts = planned.and_then(|planned| planned.known(waiting.job));
            waiting.goes_on = in_order && waiting.ran;
        }
        // Jobs that go on come first under one kind of policy and not under the other.
        self.lanes.mix();
    }

    /// No slice is kept or being made for a waiting job any more.
    fn keep_nothing(&mut self) {
        self.unseat_from(0);
        for slice in self.slices.values_mut() {
            slice.state = match slice.state {
                SliceState::Reserved(_) => SliceState::Idle,
                SliceState::Creating(_) => SliceState::Creating(None),
                other => other,
            };
        }
    }

    /// Tells a decider of the GPUs and of who runs.
    fn introduce(&mut self) {
        for (&index, gpu) in &mut self.gpus {
            if let Some(planned) = &mut self.planned {
                planned.meet(index, gpu.kind);
                gpu.offered = planned.offers(index, &gpu.table);
            }
        }
        let held = self.slices.values().filter_map(|slice| match slice.state {
            SliceState::Busy(job) => Some((*slice, job)),
            _ => None,
        });
        for (slice, job) in held.collect::<Vec<(Slice, JobId)>>() {
            if !self.planned.as_ref().is_some_and(|planned| planned.runs(job)) {
                self.adopt_run(&slice, job, self.now);
            }
        }
    }

    /// What jobs want counts by the slices that a policy gives them, and deciders do not count it.
    fn learn_demand_anew(&mut self) {
        self.kinds.iter_mut().for_each(super::worth::Kind::forget_demand);
        for waiting in self.queue.values() {
            let (wish, whole) = (self.terms.wish(waiting.job), self.policy == Policy::Sequential);
            let least = waiting.least();
            self.kinds
                .iter_mut()
                .for_each(|kind| kind.wanted(least, whole, wish));
        }
    }

    /// A job that has left the queue is told that no slice will ever serve it.
    pub(super) fn refuse(
        &mut self,
        arrival: u64,
        waiting: &Waiting,
        reason: String,
        actions: &mut Vec<Action>,
    ) {
        let job = waiting.job;
        self.forget(job);
        let place = Place {
            arrival,
            came: waiting.came,
            ran: waiting.ran,
        };
        self.refused.insert(job, place);
        actions.push(Action::Refuse { job, reason });
    }

    /// Slices that are being made, whether or not somebody waits for them.
    #[cfg(test)]
    pub(super) fn coming(&self) -> impl Iterator<Item = Incarnation> + '_ {
        let coming = |slice: &Slice| matches!(slice.state, SliceState::Creating(_));
        let all = self.slices.iter().filter(move |(_, slice)| coming(slice));
        all.map(|(number, _)| *number)
    }
}
