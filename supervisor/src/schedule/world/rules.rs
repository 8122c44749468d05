//! What must hold at every step of a random run.

use std::collections::BTreeSet;
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use super::World;
use crate::layout::{ProfileIndex, Slot, Table};
use crate::schedule::{HALF_LIFE_S, Policy, Wish};

impl World {
    pub(super) fn granted(&mut self, job: JobId, slice: Incarnation) {
        assert!(
            !self.creating.contains(&slice) && !self.destroying.contains(&slice),
            "it exists"
        );
        assert!(
            self.leases.insert(slice, job).is_none(),
            "no slice is leased twice"
        );
        assert!(
            !self.running.contains_key(&job),
            "no job has two slices at a time"
        );
        self.stuck.remove(&slice);
        let memory = self.memory(slice);
        assert!(memory >= self.needs[&job], "it holds the need");
        assert!(
            memory > self.outgrown.get(&job).copied().unwrap_or(0),
            "it is larger than before"
        );
        let (gpu, slot) = self.slices[&slice];
        let wish = &self.terms[&job].wish;
        assert!(wish.admits(&self.tables[gpu.0], slot.0), "{wish:?} got {slot:?}");
        self.check_order(job);
        assert!(self.leave(job, true), "only a waiting job gets a slice");
        self.running.insert(job, Some(slice));
        self.ran.insert(job);
        self.hold(job, Some(slice));
        self.check_alone();
    }

    /// Nobody is refused whom some slice could serve, where nothing stands in the way.
    pub(super) fn check_refusal(&self, job: JobId) {
        let had = self.outgrown.get(&job).copied().unwrap_or(0);
        let fits = |table: &Arc<Table>| {
            let profiles = (0..table.profiles().len()).map(ProfileIndex);
            profiles.into_iter().any(|profile| {
                let memory = table.profile(profile).memory;
                let admitted = self.terms[&job].wish.admits(table, profile);
                let offered = self.scheduler.policy != Policy::Sequential || profile == table.full();
                memory >= self.needs[&job] && memory > had && admitted && offered
            })
        };
        let whole = self.fixed.is_empty() && self.foreign.iter().all(Vec::is_empty);
        let plain = whole && !self.spoilt && self.scheduler.gpus.values().all(|gpu| gpu.offered.is_none());
        assert!(
            !plain || !self.tables.iter().any(fits),
            "nobody is refused without need: {:?}",
            self.terms[&job]
        );
    }

    /// Whether a job may stand before another of its lane where jobs are served in order: those that go on first, then by
    /// arrival. One that a decider has let overtake goes on behind one that has a slice kept for it by now.
    fn may_come_before(&self, job: JobId, other: JobId) -> bool {
        self.in_lane(job) <= self.in_lane(other) || job < other
    }

    /// Where jobs are served in order: nobody overtakes one of his own lane, and nobody one of a higher level.
    pub(super) fn check_order(&self, job: JobId) {
        if self.decides {
            return;
        }
        for &other in &self.waiting {
            let retold = self.retold.contains(&job) || self.retold.contains(&other);
            if self.lane(other) == self.lane(job) && !retold {
                assert!(self.may_come_before(job, other), "{other} is overtaken by {job}");
            }
            // The order is as of a second ago at most.
            let (own, others) = (self.level(job, 0.0), self.level(other, 2.0));
            assert!(
                own >= others,
                "{other} of level {others} is overtaken by {job} of {own}"
            );
        }
    }

    /// Who wants a GPU alone has it alone.
    pub(super) fn check_alone(&self) {
        for (slice, job) in &self.leases {
            if self.terms[job].wish != Wish::Exclusive {
                continue;
            }
            let on = self.slices[slice].0;
            let here = self.leases.keys().filter(|other| self.slices[other].0 == on);
            assert_eq!(here.count(), 1, "{job} is alone on GPU {}", on.0);
            assert!(self.foreign[on.0].is_empty());
        }
    }

    /// What stands, foreign instances included, is a state of each GPU; users are charged for what they hold.
    pub(super) fn check(&self) {
        for (index, table) in self.tables.iter().enumerate() {
            let ours = self
                .slices
                .values()
                .filter(|(on, _)| on.0 == index)
                .map(|(_, slot)| *slot);
            let all: Vec<Slot> = self.foreign[index].iter().copied().chain(ours).collect();
            table.state_of(&all).unwrap();
        }
    }

    /// The bill of each user is the sum over all that his jobs have held, faded.
    pub(in crate::schedule) fn check_bills(&self) {
        let (at, used) = self.scheduler.used();
        let tau = HALF_LIFE_S / std::f64::consts::LN_2;
        for user in 0..3 {
            let mine = self.uses.iter().filter(|one| one.user == user);
            let own: f64 = mine
                .map(|one| {
                    let faded = |then: f64| (-(at - then) / tau).exp();
                    one.part * tau * (faded(one.to.unwrap_or(at)) - faded(one.from))
                })
                .sum();
            let told = used.get(&user).copied().unwrap_or(0.0);
            assert!(
                (own - told).abs() <= 2.0 * (1.0 + own * 1e-9),
                "user {user} has had {own} and is charged {told}"
            );
        }
    }

    pub(super) fn check_queue(&self) {
        let queue = self.scheduler.queue();
        let all: BTreeSet<JobId> = queue.iter().copied().collect();
        assert_eq!(all, self.waiting);
        assert_eq!(all.len(), queue.len(), "each waits once");
        if !self.decides {
            for job in &queue {
                assert!(!self.scheduler.why_waiting(*job).is_empty(), "there is a reason");
            }
        }
        if !self.speaks {
            for (at, &job) in queue.iter().enumerate() {
                let ordered = |other: &JobId| match self.decides {
                    true => job < *other,
                    false => self.may_come_before(job, *other),
                };
                assert!(
                    queue[at + 1..].iter().all(ordered),
                    "one user's jobs are in order of arrival: {queue:?}"
                );
            }
        }
    }
}
