//! Random runs of the policies that decide by the board, against an executor that answers late, out of order and
//! at times with a refusal.
//!
//! At every step: what stands is a state of its GPU, foreign instances included; no slice is leased twice; only
//! idle slices of ours are destroyed; a slice holds the need of its job. At the end of each run everything goes
//! well, and then every job is over. Overtaking is bounded: see `the_first_in_the_queue_is_passed_a_bounded_number_of_times`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;
use proptest::prelude::*;

use super::PASSED_AT_MOST;
use super::policy::{Choice, Far, Mfi, Migm, Miso, Waves};
use super::*;
use crate::layout::{Table, samples};

#[derive(Clone, Debug)]
enum Turn {
    Arrive {
        gib: u64,
        work: u16,
        kept: bool,
        known: bool,
    },
    Answer {
        which: usize,
        how: u8,
    },
    End {
        which: usize,
        again: Option<u64>,
    },
    Forecast {
        which: usize,
        gib: u64,
    },
    Withdraw {
        which: usize,
    },
    Vanish {
        which: usize,
    },
    Wait {
        seconds: u8,
    },
}

fn turn() -> impl Strategy<Value = Turn> {
    let index = any::<usize>;
    prop_oneof![
        6 => (0_u64..45, 1_u16..2000, any::<bool>(), any::<bool>())
            .prop_map(|(gib, work, kept, known)| Turn::Arrive { gib, work, kept, known }),
        12 => (index(), any::<u8>()).prop_map(|(which, how)| Turn::Answer { which, how }),
        6 => (index(), proptest::option::weighted(0.2, 0_u64..45)).prop_map(|(which, again)| Turn::End { which, again }),
        2 => (index(), 0_u64..45).prop_map(|(which, gib)| Turn::Forecast { which, gib }),
        1 => index().prop_map(|which| Turn::Withdraw { which }),
        1 => index().prop_map(|which| Turn::Vanish { which }),
        4 => (1_u8..200).prop_map(|seconds| Turn::Wait { seconds }),
    ]
}

struct World {
    scheduler: Scheduler,
    tables: Vec<Arc<Table>>,
    foreign: Vec<Vec<Slot>>,
    now: f64,
    slices: BTreeMap<Incarnation, (GpuIndex, Slot)>,
    creating: BTreeSet<Incarnation>,
    destroying: BTreeSet<Incarnation>,
    leases: BTreeMap<Incarnation, JobId>,
    running: BTreeMap<JobId, Option<Incarnation>>,
    /// Asked to move, in order.
    moving: Vec<JobId>,
    waiting: BTreeSet<JobId>,
    needs: BTreeMap<JobId, u64>,
    outgrown: BTreeMap<JobId, u64>,
    facts: BTreeMap<JobId, Facts>,
    over: BTreeSet<JobId>,
    log: Vec<String>,
}

fn policy(which: u8) -> Box<dyn super::Decider> {
    let choice = Choice {
        fifo: which == 1,
        moves: which < 3,
        search: if which == 2 { 0 } else { 30 },
        create: 0.3,
        destroy: 0.2,
    };
    match which {
        0..=3 => Box::new(Migm::new(choice)),
        4 => Box::new(Miso::default()),
        5 => Box::new(Mfi),
        6 => Box::new(Waves),
        _ => Box::new(Far::new(0.3, 0.2)),
    }
}

impl World {
    fn new(which: u8, machine: u8) -> Self {
        let gpus: Vec<(Table, Vec<&str>)> = match machine {
            0 => vec![(samples::a100_base(), vec![])],
            1 => vec![(samples::a100_base(), vec!["1g.5gb@2", "2g.10gb@4"])],
            2 => vec![(samples::a30_base(), vec![]), (samples::a100_base(), vec![])],
            _ => vec![
                (samples::a100_base(), vec!["3g.20gb@4"]),
                (samples::a100_base(), vec![]),
            ],
        };
        let mut world = Self {
            scheduler: Scheduler::with_decider(policy(which), Incarnation(1)),
            tables: Vec::new(),
            foreign: Vec::new(),
            now: 0.0,
            slices: BTreeMap::new(),
            creating: BTreeSet::new(),
            destroying: BTreeSet::new(),
            leases: BTreeMap::new(),
            running: BTreeMap::new(),
            moving: Vec::new(),
            waiting: BTreeSet::new(),
            needs: BTreeMap::new(),
            outgrown: BTreeMap::new(),
            facts: BTreeMap::new(),
            over: BTreeSet::new(),
            log: Vec::new(),
        };
        for (index, (table, foreign)) in gpus.into_iter().enumerate() {
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
        world
    }

    fn step(&mut self, event: Event) {
        let actions = self.scheduler.step(self.now, event);
        for action in actions {
            self.log.push(format!("{:.1} {action:?}", self.now));
            self.perform(action);
            self.check();
        }
    }

    fn memory(&self, slice: Incarnation) -> u64 {
        let (gpu, slot) = self.slices[&slice];
        self.tables[gpu.0].profile(slot.0).memory
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
                    "a new number"
                );
                self.creating.insert(slice);
            }
            Action::Destroy { slice } => {
                assert!(self.slices.contains_key(&slice), "only ours are destroyed");
                assert!(
                    !self.leases.contains_key(&slice),
                    "a leased slice is not destroyed"
                );
                assert!(!self.creating.contains(&slice), "nor one that is being made");
                assert!(self.destroying.insert(slice), "nor one twice");
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
                assert!(self.waiting.remove(&job), "only a waiting job gets a slice");
                assert!(self.memory(slice) >= self.needs[&job], "it holds the need");
                assert!(
                    self.memory(slice) > self.outgrown.get(&job).copied().unwrap_or(0),
                    "it is larger than before"
                );
                self.running.insert(job, Some(slice));
            }
            Action::Move { job, .. } => {
                assert!(
                    self.running.contains_key(&job) && !self.moving.contains(&job),
                    "a running job, told once"
                );
                self.moving.push(job);
            }
            Action::Look { .. }
            | Action::Lease { .. }
            | Action::Grow { .. }
            | Action::Shrink { .. }
            | Action::Stay { .. } => {
                panic!("there are no soft slices here")
            }
            Action::Refuse { job, .. } => {
                assert!(self.waiting.remove(&job), "only a waiting job is refused");
                self.over.insert(job);
            }
        }
    }

    fn check(&self) {
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
            if how < 225 {
                Event::Created { slice }
            } else {
                self.slices.remove(&slice);
                Event::CreateFailed {
                    slice,
                    illegal: how > 245,
                }
            }
        } else {
            self.destroying.remove(&slice);
            if how < 245 {
                self.slices.remove(&slice);
                Event::Destroyed { slice }
            } else {
                Event::DestroyFailed { slice }
            }
        };
        self.step(event);
    }

    /// The attempt has ended: the job is over, goes on larger, or has been moved.
    fn end(&mut self, job: JobId, again: Option<u64>) {
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
        let need = |bytes| Need { device_bytes: bytes };
        match again {
            Some(gib) => {
                let most = self.outgrown.entry(job).or_default();
                *most = memory.max(*most);
                self.needs.insert(job, gib * GIB);
                self.waiting.insert(job);
                let again = Some(need(gib * GIB));
                self.step(Event::Ended { job, again });
            }
            None if asked.is_some() => {
                self.waiting.insert(job);
                let facts = Arc::new(self.facts[&job].clone());
                self.step(Event::Facts { job, facts });
                let need = need(self.needs[&job]);
                self.step(Event::Moved { job, need });
            }
            None => {
                self.over.insert(job);
                self.step(Event::Ended { job, again: None });
            }
        }
    }

    fn arrive(&mut self, gib: u64, work: u16, kept: bool, known: bool) {
        let job = JobId(self.needs.len() as u64);
        self.needs.insert(job, gib * GIB);
        self.waiting.insert(job);
        let facts = Facts {
            work: known.then(|| f64::from(work)),
            weight: 1.0,
            keeps_work: kept,
            move_cost: 5.0,
            ..Facts::default()
        };
        self.facts.insert(job, facts.clone());
        let facts = Arc::new(facts);
        self.step(Event::Facts { job, facts });
        let need = Need {
            device_bytes: gib * GIB,
        };
        self.step(Event::Arrived { job, need });
    }

    fn take(&mut self, turn: &Turn) {
        self.now += 0.1;
        match *turn {
            Turn::Arrive {
                gib,
                work,
                kept,
                known,
            } => self.arrive(gib, work, kept, known),
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
                if let Some(job) = Self::pick(self.waiting.iter().copied(), which) {
                    self.waiting.remove(&job);
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
            Turn::Wait { seconds } => {
                self.now += f64::from(seconds);
                self.step(Event::Tick);
            }
        }
        self.step(Event::Settled);
        self.check();
    }

    /// All goes well from here on and every attempt ends.
    fn wind_down(&mut self) {
        for _ in 0..40 * (self.needs.len() + 2) {
            while !self.creating.is_empty() || !self.destroying.is_empty() {
                self.answer(0, 0);
                self.step(Event::Settled);
            }
            if let Some(job) = self
                .moving
                .first()
                .or_else(|| self.running.keys().next())
                .copied()
            {
                self.end(job, None);
            } else if self.waiting.is_empty() {
                break;
            } else {
                self.step(Event::Tick);
            }
            self.now += 100.0;
            self.step(Event::Settled);
        }
        let left: Vec<_> = self
            .waiting
            .iter()
            .map(|job| (job, self.needs[job], self.outgrown.get(job)))
            .collect();
        assert_eq!(
            self.over.len(),
            self.needs.len(),
            "every job ends or is refused: {left:?}"
        );
    }
}

fn play(which: u8, machine: u8, turns: &[Turn]) -> Vec<String> {
    let mut world = World::new(which, machine);
    for turn in turns {
        world.take(turn);
    }
    world.wind_down();
    world.log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_the_policy(
        which in 0_u8..8,
        machine in 0_u8..4,
        turns in proptest::collection::vec(turn(), 1..60),
    ) {
        let log = play(which, machine, &turns);
        prop_assert_eq!(play(which, machine, &turns), log, "the same events give the same actions");
    }
}

#[test]
fn the_first_in_the_queue_is_passed_a_bounded_number_of_times() {
    // A long job that needs the whole GPU, and an endless stream of short ones that do not.
    let mut world = World::new(3, 0);
    world.arrive(1, 10, false, true);
    world.step(Event::Settled);
    world.arrive(30, 60_000, false, true);
    let long = JobId(1);
    let mut passed = 0;
    while world.waiting.contains(&long) {
        world.arrive(1, 10, false, true);
        world.step(Event::Settled);
        while !world.creating.is_empty() || !world.destroying.is_empty() {
            world.answer(0, 0);
            world.step(Event::Settled);
        }
        let running: Vec<JobId> = world.running.keys().copied().collect();
        world.now += 10.0;
        if let Some(first) = running.first() {
            world.end(*first, None);
            world.step(Event::Settled);
        }
        passed = world.running.len() + world.over.len();
        assert!(passed < 4 * PASSED_AT_MOST as usize, "the long job starves");
    }
    assert!(passed > 1, "it was passed at all");
}
