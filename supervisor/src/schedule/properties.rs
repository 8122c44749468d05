//! Random runs against a simulated executor, with the rules that must hold at every step.
//!
//! The executor answers creates and destroys late, out of order, and at times with a refusal; jobs end, go
//! on, outgrow, are forecast and withdrawn; slices vanish. Overtaking is bounded by none: at every grant, no
//! job that arrived earlier is waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;
use proptest::prelude::*;

use super::*;
use crate::layout::{Table, samples};

/// What the executor may do next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Turn {
    Arrive { gib: u64 },
    Answer { which: usize, how: u8 },
    End { which: usize, again: Option<u64> },
    Forecast { which: usize, gib: u64 },
    Withdraw { which: usize },
    Vanish { which: usize },
    Tick { seconds: u8 },
}

fn turn() -> impl Strategy<Value = Turn> {
    let index = any::<usize>;
    prop_oneof![
        6 => (0_u64..45).prop_map(|gib| Turn::Arrive { gib }),
        12 => (index(), any::<u8>()).prop_map(|(which, how)| Turn::Answer { which, how }),
        6 => (index(), proptest::option::weighted(0.3, 0_u64..45))
            .prop_map(|(which, again)| Turn::End { which, again }),
        3 => (index(), 0_u64..45).prop_map(|(which, gib)| Turn::Forecast { which, gib }),
        1 => index().prop_map(|which| Turn::Withdraw { which }),
        1 => index().prop_map(|which| Turn::Vanish { which }),
        1 => (0_u8..30).prop_map(|seconds| Turn::Tick { seconds }),
    ]
}

/// What stands on the GPUs as the driver would know it, and what the scheduler has promised.
struct World {
    scheduler: Scheduler,
    tables: BTreeMap<GpuIndex, Arc<Table>>,
    foreign: BTreeMap<GpuIndex, Vec<Slot>>,
    now: f64,
    slices: BTreeMap<Incarnation, (GpuIndex, Slot)>,
    /// Creates and destroys not answered yet.
    creating: BTreeSet<Incarnation>,
    destroying: BTreeSet<Incarnation>,
    leases: BTreeMap<Incarnation, JobId>,
    /// Slices that must never be destroyed.
    fixed: BTreeSet<Incarnation>,
    running: BTreeMap<JobId, Option<Incarnation>>,
    moving: BTreeSet<JobId>,
    /// Jobs without a slice, by the order of their first arrival.
    waiting: BTreeMap<u64, JobId>,
    arrivals: BTreeMap<JobId, u64>,
    /// Memory of the largest slice that a job has given up.
    outgrown: BTreeMap<JobId, u64>,
    needs: BTreeMap<JobId, u64>,
    over: BTreeSet<JobId>,
    /// Slices that could not be destroyed and were not leased since.
    stuck: BTreeSet<Incarnation>,
    /// Creates that can never be: GPU, what stood there, the slot.
    illegal: BTreeSet<(GpuIndex, Vec<Slot>, Slot)>,
    log: Vec<String>,
}

impl World {
    fn new(policy: Policy, gpus: Vec<(Table, Vec<&str>)>) -> Self {
        let mut world = Self {
            scheduler: Scheduler::new(policy, Incarnation(1)),
            tables: BTreeMap::new(),
            foreign: BTreeMap::new(),
            now: 0.0,
            slices: BTreeMap::new(),
            creating: BTreeSet::new(),
            destroying: BTreeSet::new(),
            leases: BTreeMap::new(),
            fixed: BTreeSet::new(),
            running: BTreeMap::new(),
            moving: BTreeSet::new(),
            waiting: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            outgrown: BTreeMap::new(),
            needs: BTreeMap::new(),
            over: BTreeSet::new(),
            stuck: BTreeSet::new(),
            illegal: BTreeSet::new(),
            log: Vec::new(),
        };
        for (index, (table, foreign)) in gpus.into_iter().enumerate() {
            let gpu = GpuIndex(index);
            let foreign: Vec<Slot> = foreign
                .iter()
                .map(|name| table.slot_named(name).unwrap())
                .collect();
            world.tables.insert(gpu, Arc::new(table));
            world.foreign.insert(gpu, foreign.clone());
            let table = Arc::clone(&world.tables[&gpu]);
            world.step(Event::Gpu { gpu, table, foreign });
        }
        world
    }

    /// A slice that stands before the scheduler starts.
    fn adopt(&mut self, gpu: GpuIndex, name: &str, fixed: bool) {
        let slice = Incarnation(self.slices.len() as u64 + 100);
        let slot = self.tables[&gpu].slot_named(name).unwrap();
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

    fn step(&mut self, event: Event) {
        self.now += 0.1;
        for action in self.scheduler.step(self.now, event) {
            self.log.push(format!("{action:?}"));
            self.perform(action);
            self.check();
        }
    }

    /// Our slots on a GPU in order.
    fn standing(&self, gpu: GpuIndex) -> Vec<Slot> {
        let mut slots: Vec<Slot> = self
            .slices
            .values()
            .filter(|(on, _)| *on == gpu)
            .map(|(_, slot)| *slot)
            .collect();
        slots.sort_unstable();
        slots
    }

    fn memory(&self, slice: Incarnation) -> u64 {
        let (gpu, slot) = self.slices[&slice];
        self.tables[&gpu].profile(slot.0).memory
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Create {
                slice,
                gpu,
                profile,
                placement,
            } => {
                assert!(
                    self.slices.insert(slice, (gpu, (profile, placement))).is_none(),
                    "number used twice"
                );
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
            Action::Grant { job, slice, .. } => {
                assert!(
                    !self.creating.contains(&slice) && !self.destroying.contains(&slice),
                    "it exists"
                );
                assert!(
                    self.leases.insert(slice, job).is_none(),
                    "no slice is leased twice"
                );
                self.stuck.remove(&slice);
                let memory = self.memory(slice);
                assert!(memory >= self.needs[&job], "it holds the need");
                assert!(
                    memory > self.outgrown.get(&job).copied().unwrap_or(0),
                    "it is larger than before"
                );
                let first = self.waiting.pop_first().map(|(_, job)| job);
                assert_eq!(first, Some(job), "no job is overtaken");
                self.running.insert(job, Some(slice));
            }
            Action::Move { job, .. } => {
                assert!(
                    self.running.contains_key(&job) && self.moving.insert(job),
                    "a running job, told once"
                );
            }
            Action::Look { .. } | Action::Lease { .. } | Action::Grow { .. } | Action::Stay { .. } => {
                panic!("no GPU is shared: {action:?}")
            }
            Action::Refuse { job, .. } => {
                self.waiting.remove(&self.arrivals[&job]);
                self.over.insert(job);
            }
        }
    }

    /// What stands, foreign instances included, is a state of each GPU.
    fn check(&self) {
        for (gpu, table) in &self.tables {
            let ours = self
                .slices
                .values()
                .filter(|(on, _)| on == gpu)
                .map(|(_, slot)| *slot);
            let all: Vec<Slot> = self.foreign[gpu].iter().copied().chain(ours).collect();
            table.state_of(&all).unwrap();
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
            if how < 210 {
                Event::Created { slice }
            } else {
                let illegal = how > 235;
                if let Some((gpu, slot)) = self.slices.remove(&slice)
                    && illegal
                {
                    self.illegal.insert((gpu, self.standing(gpu), slot));
                }
                Event::CreateFailed { slice, illegal }
            }
        } else {
            self.destroying.remove(&slice);
            if how < 240 {
                self.slices.remove(&slice);
                Event::Destroyed { slice }
            } else {
                self.stuck.insert(slice);
                Event::DestroyFailed { slice }
            }
        };
        self.step(event);
    }

    fn end(&mut self, job: JobId, again: Option<u64>) {
        let held = self.running.remove(&job).flatten();
        self.moving.remove(&job);
        if let Some(slice) = held {
            self.leases.remove(&slice);
        }
        match again {
            Some(gib) => {
                if let Some(slice) = held {
                    let had = self.memory(slice);
                    let outgrown = self.outgrown.entry(job).or_default();
                    *outgrown = had.max(*outgrown);
                }
                self.needs.insert(job, gib * GIB);
                self.waiting.insert(self.arrivals[&job], job);
            }
            None => {
                self.over.insert(job);
            }
        }
        let again = again.map(|gib| Need {
            device_bytes: gib * GIB,
        });
        self.step(Event::Ended { job, again });
    }

    fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Arrive { gib } => {
                let number = self.arrivals.len() as u64;
                let job = JobId(number);
                self.arrivals.insert(job, number);
                self.needs.insert(job, gib * GIB);
                self.waiting.insert(number, job);
                self.step(Event::Arrived {
                    job,
                    need: Need {
                        device_bytes: gib * GIB,
                    },
                });
            }
            Turn::Answer { which, how } => self.answer(which, how),
            Turn::End { which, again } => {
                if let Some(job) = Self::pick(self.running.keys().copied(), which) {
                    self.end(job, again);
                }
            }
            Turn::Forecast { which, gib } => {
                if let Some(job) = Self::pick(self.running.keys().copied(), which) {
                    let need = Need {
                        device_bytes: gib * GIB,
                    };
                    self.step(Event::Forecast { job, need });
                }
            }
            Turn::Withdraw { which } => {
                if let Some((arrival, job)) = Self::pick(self.waiting.iter().map(|(a, j)| (*a, *j)), which) {
                    self.waiting.remove(&arrival);
                    self.over.insert(job);
                    self.step(Event::Withdrawn { job });
                }
            }
            Turn::Vanish { which } => {
                if let Some(slice) = Self::pick(self.slices.keys().copied(), which) {
                    self.slices.remove(&slice);
                    self.creating.remove(&slice);
                    self.destroying.remove(&slice);
                    if let Some(job) = self.leases.remove(&slice) {
                        self.running.insert(job, None);
                    }
                    self.step(Event::Vanished { slice });
                }
            }
            Turn::Tick { seconds } => {
                self.now += f64::from(seconds);
                self.step(Event::Tick);
            }
        }
        self.check();
        for job in self.waiting.values() {
            assert!(!self.scheduler.why_waiting(*job).is_empty(), "there is a reason");
        }
        assert_eq!(
            self.scheduler.queue(),
            self.waiting.values().copied().collect::<Vec<_>>()
        );
    }

    /// All that is under way goes well and every attempt ends: then every job is over.
    fn wind_down(&mut self) {
        for _ in 0..20 * (self.arrivals.len() + 2) {
            while !self.creating.is_empty() || !self.destroying.is_empty() {
                self.answer(0, 0);
            }
            let Some(job) = self.running.keys().next().copied() else {
                if self.waiting.is_empty() {
                    break;
                }
                self.now += 100.0;
                self.step(Event::Tick);
                continue;
            };
            self.end(job, None);
        }
        assert_eq!(
            self.over.len(),
            self.arrivals.len(),
            "every job ends or is refused: {:?}",
            self.waiting
        );
    }
}

fn machines(kind: u8) -> Vec<(Table, Vec<&'static str>)> {
    match kind {
        0 => vec![(samples::a100_base(), vec![])],
        1 => vec![(samples::a100_base(), vec!["1g.5gb@2", "2g.10gb@4"])],
        2 => vec![(samples::a30_base(), vec![]), (samples::a100_base(), vec![])],
        // Slices that are there already: see `play`.
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

fn play(policy: Policy, kind: u8, turns: &[Turn]) -> Vec<String> {
    let mut world = World::new(policy, machines(kind));
    if kind == 4 {
        world.adopt(GpuIndex(0), "3g.20gb@4", true);
        world.adopt(GpuIndex(1), "2g.10gb@0", true);
        world.adopt(GpuIndex(1), "1g.5gb@6", false);
    }
    for turn in turns {
        world.take(turn.clone());
    }
    world.wind_down();
    world.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_in_any_run(
        kind in 0_u8..5,
        turns in proptest::collection::vec(turn(), 1..120),
        sequential in any::<bool>(),
    ) {
        let policy = if sequential { Policy::Sequential } else { Policy::SchemeB };
        let log = play(policy, kind, &turns);
        prop_assert_eq!(play(policy, kind, &turns), log, "the same events give the same actions");
    }
}
