//! A simulated executor for random runs, with the rules that must hold at every step, whatever the policy.
//!
//! It answers creates and destroys late, out of order, and at times with a refusal; jobs end, go on, outgrow, are
//! forecast and withdrawn; slices vanish; users change their minds. At every step: what stands is a state of its GPU, foreign
//! instances included; no slice is leased twice; only idle slices of ours are destroyed; a slice holds the need of its job and
//! is what its user asks for; a job that wants a GPU alone has it alone; users are charged for what they hold. Where jobs are
//! served in order, nobody of a lane is overtaken by another of it, and nobody by a lower level. In the end all goes well, and then
//! every job is over.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::layout::{Table, samples};
use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

mod rules;
mod turns;

pub(super) use turns::{Arrival, POLICIES, Turn, turn, turn_or_policy};

/// What a job holds or has held, for the bill of its user.
#[derive(Clone, Copy, Debug)]
struct Use {
    job: JobId,
    user: u32,
    part: f64,
    from: f64,
    to: Option<f64>,
}

/// Jobs of one user and priority that wait: how many, and since when none of them has been served.
#[derive(Clone, Copy, Debug)]
struct Lane {
    jobs: usize,
    since: f64,
}

/// What stands on the GPUs as the driver would know it, and what the scheduler has promised.
pub(super) struct World {
    pub(super) scheduler: Scheduler,
    /// A decider gives the orders; else jobs are served in order.
    decides: bool,
    /// Terms are said at all.
    speaks: bool,
    tables: Vec<Arc<Table>>,
    foreign: Vec<Vec<Slot>>,
    pub(super) now: f64,
    slices: BTreeMap<Incarnation, (GpuIndex, Slot)>,
    creating: BTreeSet<Incarnation>,
    destroying: BTreeSet<Incarnation>,
    leases: BTreeMap<Incarnation, JobId>,
    /// Slices that must never be destroyed.
    fixed: BTreeSet<Incarnation>,
    /// Slices that could not be destroyed and were not leased since.
    stuck: BTreeSet<Incarnation>,
    pub(super) running: BTreeMap<JobId, Option<Incarnation>>,
    /// Asked to move, in order.
    moving: Vec<JobId>,
    /// Running jobs that are forecast to need more than they have.
    forecast: BTreeSet<JobId>,
    /// Numbers are in order of arrival.
    pub(super) waiting: BTreeSet<JobId>,
    /// Jobs that have had a slice.
    ran: BTreeSet<JobId>,
    needs: BTreeMap<JobId, u64>,
    outgrown: BTreeMap<JobId, u64>,
    facts: BTreeMap<JobId, Facts>,
    terms: BTreeMap<JobId, Terms>,
    /// Jobs whose terms have changed: one with a slice kept for it keeps it among its new fellows.
    retold: BTreeSet<JobId>,
    lanes: BTreeMap<(u32, i32), Lane>,
    uses: Vec<Use>,
    pub(super) over: BTreeSet<JobId>,
    /// A create was refused for good, or a slice could not be removed.
    spoilt: bool,
    log: Vec<String>,
}

/// The GPUs of a run, with foreign instances.
fn machines(kind: u8) -> Vec<(Table, Vec<&'static str>)> {
    match kind {
        0 => vec![(samples::a100_base(), vec![])],
        1 => vec![(samples::a100_base(), vec!["1g.5gb@2", "2g.10gb@4"])],
        2 => vec![(samples::a30_base(), vec![]), (samples::a100_base(), vec![])],
        // Slices that are there already: see `World::new`.
        4 => vec![
            (samples::a100_base().frozen(), vec![]),
            (samples::a100_base(), vec![]),
        ],
        _ => vec![
            (samples::a100_base(), vec!["3g.20gb@4"]),
            (samples::a100_base(), vec![]),
        ],
    }
}

/// Kinds of machines.
pub(super) const MACHINES: u8 = 5;

impl World {
    /// With `speaks` off all jobs are nobody's and nobody wishes for anything.
    pub(super) fn new(scheduler: Scheduler, machine: u8, speaks: bool) -> Self {
        let mut world = Self {
            decides: scheduler.planned.is_some(),
            scheduler,
            speaks,
            tables: Vec::new(),
            foreign: Vec::new(),
            now: 0.0,
            slices: BTreeMap::new(),
            creating: BTreeSet::new(),
            destroying: BTreeSet::new(),
            leases: BTreeMap::new(),
            fixed: BTreeSet::new(),
            stuck: BTreeSet::new(),
            running: BTreeMap::new(),
            moving: Vec::new(),
            forecast: BTreeSet::new(),
            waiting: BTreeSet::new(),
            ran: BTreeSet::new(),
            needs: BTreeMap::new(),
            outgrown: BTreeMap::new(),
            facts: BTreeMap::new(),
            terms: BTreeMap::new(),
            retold: BTreeSet::new(),
            lanes: BTreeMap::new(),
            uses: Vec::new(),
            over: BTreeSet::new(),
            spoilt: false,
            log: Vec::new(),
        };
        for (index, (table, foreign)) in machines(machine).into_iter().enumerate() {
            let foreign: Vec<Slot> = foreign
                .iter()
                .map(|name| table.slot_named(name).unwrap())
                .collect();
            let table = Arc::new(table);
            world.tables.push(Arc::clone(&table));
            world.foreign.push(foreign.clone());
            world.step(Event::Gpu {
                gpu: GpuIndex(index),
                table,
                foreign,
            });
        }
        if machine == 4 {
            world.adopt(GpuIndex(0), "3g.20gb@4", true);
            world.adopt(GpuIndex(1), "2g.10gb@0", true);
            world.adopt(GpuIndex(1), "1g.5gb@6", false);
        }
        world
    }

    /// A slice that stands before the scheduler starts.
    fn adopt(&mut self, gpu: GpuIndex, name: &str, fixed: bool) {
        let slice = Incarnation(self.slices.len() as u64 + 100);
        let slot = self.tables[gpu.0].slot_named(name).unwrap();
        self.slices.insert(slice, (gpu, slot));
        if fixed {
            self.fixed.insert(slice);
        }
        self.step(Event::Slice {
            slice,
            gpu,
            profile: slot.0,
            placement: slot.1,
            fixed,
            holder: None,
        });
    }

    pub(super) fn step(&mut self, event: Event) {
        for action in self.scheduler.step(self.now, event) {
            self.log.push(format!("{:.1} {action:?}", self.now));
            self.perform(action);
            self.check();
        }
    }

    fn memory(&self, slice: Incarnation) -> u64 {
        let (gpu, slot) = self.slices[&slice];
        self.tables[gpu.0].profile(slot.0).memory
    }

    fn lane(&self, job: JobId) -> (u32, i32) {
        let terms = &self.terms[&job];
        (terms.user, terms.priority)
    }

    fn join(&mut self, job: JobId) {
        self.waiting.insert(job);
        let since = self.now;
        let lane = self
            .lanes
            .entry(self.lane(job))
            .or_insert(Lane { jobs: 0, since });
        lane.jobs += 1;
    }

    /// False when it did not wait.
    fn leave(&mut self, job: JobId, served: bool) -> bool {
        let key = self.lane(job);
        let waited = self.waiting.remove(&job);
        let lane = self.lanes.get_mut(&key).filter(|_| waited);
        if let Some(lane) = lane {
            lane.jobs -= 1;
            lane.since = if served { self.now } else { lane.since };
            if lane.jobs == 0 {
                self.lanes.remove(&key);
            }
        }
        waited
    }

    /// Where a job stands in its lane: those that go on come first.
    fn in_lane(&self, job: JobId) -> (bool, JobId) {
        (!self.ran.contains(&job), job)
    }

    /// A waiting job's level as it was `ago` seconds ago: only the first of a lane gains by waiting.
    fn level(&self, job: JobId, ago: f64) -> f64 {
        let lane = self.lane(job);
        let fellows = self.waiting.iter().filter(|other| self.lane(**other) == lane);
        let first = fellows.map(|other| self.in_lane(*other)).min();
        let waited = match first == Some(self.in_lane(job)) {
            true => self.now - ago - self.lanes[&lane].since,
            false => 0.0,
        };
        f64::from(lane.1) + (waited / AGE_S).max(0.0).floor()
    }

    fn hold(&mut self, job: JobId, slice: Option<Incarnation>) {
        let now = self.now;
        for open in self
            .uses
            .iter_mut()
            .filter(|one| one.job == job && one.to.is_none())
        {
            open.to = Some(now);
        }
        if let Some(slice) = slice.filter(|_| self.speaks) {
            let (gpu, slot) = self.slices[&slice];
            self.uses.push(Use {
                job,
                user: self.terms[&job].user,
                part: share(&self.tables[gpu.0], slot.0),
                from: now,
                to: None,
            });
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create {
                slice,
                gpu,
                profile,
                placement,
            } => {
                let new = self.slices.insert(slice, (gpu, (profile, placement)));
                assert!(new.is_none(), "number used twice");
                self.creating.insert(slice);
            }
            Action::Destroy { slice } => {
                assert!(self.slices.contains_key(&slice), "only ours are destroyed");
                assert!(
                    !self.leases.contains_key(&slice),
                    "a leased slice is not destroyed"
                );
                assert!(!self.fixed.contains(&slice), "nor a fixed one");
                assert!(!self.creating.contains(&slice), "nor one that is being made");
                assert!(self.destroying.insert(slice), "nor one twice");
                assert!(
                    !self.stuck.contains(&slice),
                    "nor again one that cannot be removed"
                );
            }
            Action::Grant { job, slice, .. } => self.granted(job, slice),
            Action::Move { job, .. } => {
                assert!(
                    self.running.contains_key(&job) && !self.moving.contains(&job),
                    "a running job, told once"
                );
                let own = self.forecast.contains(&job);
                assert!(
                    own || self.facts[&job].keeps_work,
                    "nobody loses his work for another"
                );
                self.moving.push(job);
            }
            Action::Look { .. }
            | Action::Lease { .. }
            | Action::Grow { .. }
            | Action::Shrink { .. }
            | Action::Stay { .. } => panic!("no GPU is shared: {action:?}"),
            Action::Refuse { job, .. } => {
                assert!(self.leave(job, false), "only a waiting job is refused");
                self.over.insert(job);
                self.check_refusal(job);
            }
        }
    }

    fn pick<T: Copy>(items: impl IntoIterator<Item = T>, which: usize) -> Option<T> {
        let items: Vec<T> = items.into_iter().collect();
        (!items.is_empty()).then(|| items[which % items.len()])
    }

    fn answer(&mut self, which: usize, how: u8) {
        let all = self.creating.iter().chain(&self.destroying).copied();
        let Some(slice) = Self::pick(all, which) else {
            return;
        };
        let event = if self.creating.remove(&slice) {
            if how < 220 {
                Event::Created { slice }
            } else {
                self.slices.remove(&slice);
                let illegal = how > 240;
                self.spoilt |= illegal;
                Event::CreateFailed { slice, illegal }
            }
        } else {
            self.destroying.remove(&slice);
            if how < 243 {
                self.slices.remove(&slice);
                Event::Destroyed { slice }
            } else {
                self.stuck.insert(slice);
                self.spoilt = true;
                Event::DestroyFailed { slice }
            }
        };
        self.step(event);
    }

    /// The attempt has ended: the job is over, goes on larger, or has been moved.
    pub(super) fn end(&mut self, job: JobId, again: Option<u64>) {
        let held = self.running.remove(&job).flatten();
        let asked = self
            .moving
            .iter()
            .position(|other| *other == job)
            .map(|at| self.moving.remove(at));
        let memory = held.map_or(0, |slice| self.memory(slice));
        if let Some(slice) = held {
            self.leases.remove(&slice);
        }
        self.forecast.remove(&job);
        self.hold(job, None);
        let need = |bytes| Need { device_bytes: bytes };
        match again {
            Some(gib) => {
                let most = self.outgrown.entry(job).or_default();
                *most = memory.max(*most);
                self.needs.insert(job, gib * GIB);
                self.join(job);
                let again = Some(need(gib * GIB));
                self.step(Event::Ended { job, again });
            }
            None if asked.is_some() => {
                let facts = Arc::new(self.facts[&job].clone());
                self.step(Event::Facts { job, facts });
                self.join(job);
                let need = need(self.needs[&job]);
                self.step(Event::Moved { job, need });
            }
            None => {
                self.over.insert(job);
                self.step(Event::Ended { job, again: None });
            }
        }
    }

    pub(super) fn arrive(&mut self, arrival: &Arrival) -> JobId {
        let job = JobId(self.needs.len() as u64);
        let device_bytes = arrival.gib * GIB;
        let facts = Facts {
            work: arrival.known.then(|| f64::from(arrival.work)),
            weight: 1.0,
            keeps_work: arrival.kept,
            move_cost: 5.0,
            ..Facts::default()
        };
        let terms = match self.speaks {
            true => arrival.terms.clone(),
            false => Terms::default(),
        };
        self.needs.insert(job, device_bytes);
        self.facts.insert(job, facts.clone());
        self.terms.insert(job, terms.clone());
        // It waits from its arrival on: what is told of it before makes nobody wait for it.
        let facts = Arc::new(facts);
        self.step(Event::Facts { job, facts });
        if self.speaks {
            self.step(Event::Terms { job, terms });
        }
        self.join(job);
        let need = Need { device_bytes };
        self.step(Event::Arrived { job, need });
        job
    }

    /// The user of a job changes his mind on how urgent it is, and on what it is to have.
    fn retell(&mut self, which: usize, terms: &Terms) {
        let all = self.waiting.iter().chain(self.running.keys()).copied();
        let Some(job) = Self::pick(all, which).filter(|_| self.speaks) else {
            return;
        };
        let waits = self.waiting.contains(&job);
        // What a running job is to have counts from its next slice on.
        let (user, wish) = (self.terms[&job].user, &self.terms[&job].wish);
        let terms = Terms {
            user,
            priority: terms.priority,
            wish: if waits { terms.wish.clone() } else { wish.clone() },
        };
        self.retold.insert(job);
        let old = self.terms.insert(job, terms.clone());
        if let Some(old) = old.filter(|_| waits) {
            self.join(job);
            let lane = self.lanes.get_mut(&(old.user, old.priority)).unwrap();
            lane.jobs -= 1;
            if lane.jobs == 0 {
                self.lanes.remove(&(old.user, old.priority));
            }
        }
        self.step(Event::Terms { job, terms });
    }

    /// The part of its GPU that a running job has.
    pub(super) fn part(&self, job: JobId) -> f64 {
        let (gpu, slot) = self.slices[&self.running[&job].unwrap()];
        share(&self.tables[gpu.0], slot.0)
    }

    pub(super) fn user(&self, job: JobId) -> u32 {
        self.terms[&job].user
    }

    pub(super) fn withdraw(&mut self, job: JobId) {
        self.leave(job, false);
        self.over.insert(job);
        self.step(Event::Withdrawn { job });
    }

    pub(super) fn take(&mut self, turn: &Turn) {
        self.now += 0.1;
        let running = || self.running.keys().copied();
        match turn {
            Turn::Arrive(arrival) => {
                self.arrive(arrival);
            }
            Turn::Answer { which, how } => self.answer(*which, *how),
            Turn::End { which, again } => {
                if let Some(job) = Self::pick(running(), *which) {
                    self.end(job, *again);
                }
            }
            Turn::Forecast { which, gib } => {
                if let Some(job) = Self::pick(running(), *which) {
                    self.forecast.insert(job);
                    let need = Need {
                        device_bytes: gib * GIB,
                    };
                    self.step(Event::Forecast { job, need });
                }
            }
            Turn::Withdraw { which } => {
                if let Some(job) = Self::pick(self.waiting.iter().copied(), *which) {
                    self.withdraw(job);
                }
            }
            Turn::Retell { which, terms } => self.retell(*which, terms),
            Turn::Vanish { which } => {
                if let Some(slice) = Self::pick(self.slices.keys().copied(), *which) {
                    self.slices.remove(&slice);
                    self.creating.remove(&slice);
                    self.destroying.remove(&slice);
                    self.fixed.remove(&slice);
                    self.spoilt = true;
                    if let Some(job) = self.leases.remove(&slice) {
                        self.running.insert(job, None);
                        self.hold(job, None);
                    }
                    self.step(Event::Vanished { slice });
                }
            }
            Turn::Policy { which } => self.change_policy(*which),
            Turn::Wait { seconds } => {
                self.now += f64::from(*seconds);
                self.step(Event::Tick);
            }
        }
        self.step(Event::Settled);
        self.check();
        self.check_bills();
        self.check_queue();
    }

    /// Another policy serves; what is known of the jobs is told again, as the daemon does.
    pub(super) fn change_policy(&mut self, which: u8) {
        let (policy, choice) = policy(which);
        let coming: BTreeSet<Incarnation> = self.scheduler.coming().collect();
        assert_eq!(coming, self.creating, "what is under way is known");
        self.log.push(format!("{:.1} {policy}", self.now));
        self.step(Event::Policy { policy, choice });
        self.decides = self.scheduler.planned.is_some();
        let all: Vec<JobId> = self.waiting.iter().chain(self.running.keys()).copied().collect();
        for job in all {
            let facts = Arc::new(self.facts[&job].clone());
            self.step(Event::Facts { job, facts });
        }
    }

    /// Answers all that is under way, as by a driver that never fails.
    pub(super) fn answer_all(&mut self) {
        while !self.creating.is_empty() || !self.destroying.is_empty() {
            self.answer(0, 0);
            self.step(Event::Settled);
        }
    }

    /// All goes well from here on and every attempt ends: then every job is over.
    pub(super) fn wind_down(&mut self) {
        for _ in 0..40 * (self.needs.len() + 2) {
            self.answer_all();
            let next = self.moving.first().or_else(|| self.running.keys().next());
            if let Some(job) = next.copied() {
                self.end(job, None);
            } else if self.waiting.is_empty() {
                break;
            } else {
                self.step(Event::Tick);
            }
            self.now += 100.0;
            self.step(Event::Settled);
        }
        let left = self
            .waiting
            .iter()
            .map(|job| (job, self.needs[job], self.outgrown.get(job), &self.terms[job]));
        assert_eq!(
            self.over.len(),
            self.needs.len(),
            "every job ends or is refused: {:?}",
            left.collect::<Vec<_>>()
        );
    }
}

/// A policy by number: one of [`POLICIES`], or the static layout behind them.
pub(super) fn policy(which: u8) -> (PolicyName, policy::Choice) {
    const NAMES: [&str; POLICIES as usize + 1] = [
        "scheme-b",
        "sequential",
        "migm",
        "migm:fifo",
        "migm",
        "miso",
        "mfi",
        "scheme-a",
        "far",
        "static:2g+1g",
    ];
    let choice = policy::Choice {
        fifo: false,
        moves: which != 4,
        search: 30,
        create: 0.3,
        destroy: 0.2,
    };
    (NAMES[usize::from(which)].parse().unwrap(), choice)
}

/// A whole run; what was done.
pub(super) fn play(scheduler: Scheduler, machine: u8, speaks: bool, turns: &[Turn]) -> Vec<String> {
    let mut world = World::new(scheduler, machine, speaks);
    for turn in turns {
        world.take(turn);
    }
    world.wind_down();
    world.log
}
