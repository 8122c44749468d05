//! Random runs against machines whose others come and go.

use std::collections::BTreeSet;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;
use proptest::prelude::*;

use super::{CUT, Node, need};
use crate::schedule::policy::Mfi;
use crate::schedule::{Action, Event, GpuIndex, Policy, Scheduler, Terms, Wish};

#[derive(Clone, Debug)]
enum Turn {
    /// Bytes, and whether its user wants a GPU alone.
    Arrive(u64, bool),
    End(usize, Option<u64>),
    Raise(usize, u64),
    Forecast(usize, u64),
    Enough(usize, u64),
    Withdraw(usize),
    Others(usize, u64),
    Answer(usize),
    Tick(u8),
}

fn turn() -> impl Strategy<Value = Turn> {
    let index = any::<usize>;
    prop_oneof![
        5 => (0_u64..45, proptest::bool::weighted(0.2)).prop_map(|(gib, alone)| Turn::Arrive(gib, alone)),
        4 => (index(), proptest::option::weighted(0.4, 1_u64..45)).prop_map(|(job, again)| Turn::End(job, again)),
        4 => (index(), 1_u64..45).prop_map(|(job, gib)| Turn::Raise(job, gib)),
        4 => (index(), 1_u64..45).prop_map(|(job, gib)| Turn::Forecast(job, gib)),
        3 => (index(), 1_u64..30).prop_map(|(job, gib)| Turn::Enough(job, gib)),
        1 => index().prop_map(Turn::Withdraw),
        2 => (0_usize..2, 0_u64..40).prop_map(|(gpu, gib)| Turn::Others(gpu, gib)),
        8 => index().prop_map(Turn::Answer),
        2 => (0_u8..4).prop_map(Turn::Tick),
    ]
}

/// What the daemon would know.
#[derive(Default)]
struct Seen {
    looks: BTreeSet<GpuIndex>,
    running: BTreeSet<JobId>,
    waiting: BTreeSet<JobId>,
    asking: BTreeSet<JobId>,
    /// Who wants a GPU alone.
    alone: BTreeSet<JobId>,
}

impl Seen {
    /// One event, and what leases give back for it, which the daemon answers at once.
    fn step(&mut self, node: &mut Node, event: Event, in_reading: bool) {
        let mut actions = node.step(event);
        self.take(&actions, in_reading);
        // A job that the reading showed to be hopeless has left the queue: that is news.
        let settled = node.step(Event::Settled);
        self.take(&settled, false);
        actions.extend(settled);
        for action in actions {
            if let Action::Shrink { job, memory } = action {
                assert!(self.running.contains(&job) && !self.asking.contains(&job));
                let actions = node.shrunk(job, memory);
                self.take(&actions, false);
            }
        }
        for job in self.running.intersection(&self.alone) {
            let own = node.scheduler.slice_of(*job).unwrap();
            let gpu = node.leases[&own].0;
            let here = node.leases.values().filter(|(on, _)| *on == gpu).count();
            assert_eq!(here, 1, "{job} has {gpu:?} alone");
        }
    }

    fn take(&mut self, actions: &[Action], in_reading: bool) {
        for action in actions {
            match action {
                Action::Look { gpu } => {
                    assert!(!in_reading, "a reading asks for none");
                    assert!(self.looks.insert(*gpu), "one at a time");
                }
                Action::Grant { job, .. } => {
                    assert!(self.waiting.remove(job));
                    self.running.insert(*job);
                }
                Action::Grow { job, .. } | Action::Stay { job } => {
                    self.asking.remove(job);
                }
                Action::Refuse { job, .. } => assert!(self.waiting.remove(job)),
                Action::Lease { .. } | Action::Move { .. } | Action::Shrink { .. } => {}
                Action::Create { .. } | Action::Destroy { .. } => panic!("there is no MIG: {action:?}"),
            }
        }
    }
}

fn pick<T: Copy>(of: &BTreeSet<T>, which: usize) -> Option<T> {
    of.iter().copied().nth(which.checked_rem(of.len())?)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Leases never pass the room, every question is answered, and whoever can be served is; also beside a decider.
    #[test]
    fn leases_never_pass_the_room_and_every_question_is_answered(
        deciding in any::<bool>(),
        turns in proptest::collection::vec(turn(), 1..120)
    ) {
        let scheduler = match deciding {
            true => Scheduler::with_decider(Box::new(Mfi), Incarnation(1)),
            false => Scheduler::new(Policy::SchemeB, Incarnation(1)),
        };
        let mut node = Node::by(scheduler, 2, CUT);
        let mut seen = Seen::default();
        let mut next = 0;
        for turn in turns {
            let event = match turn {
                Turn::Arrive(gib, alone) => {
                    next += 1;
                    seen.waiting.insert(JobId(next));
                    if alone {
                        seen.alone.insert(JobId(next));
                        let job = JobId(next);
                        let terms = Terms { wish: Wish::Exclusive, ..Terms::default() };
                        seen.step(&mut node, Event::Terms { job, terms }, false);
                    }
                    Some(Event::Arrived { job: JobId(next), need: need(gib) })
                }
                Turn::End(which, again) => pick(&seen.running, which).map(|job| {
                    seen.running.remove(&job);
                    seen.asking.remove(&job);
                    if again.is_some() {
                        seen.waiting.insert(job);
                    }
                    Event::Ended { job, again: again.map(need) }
                }),
                Turn::Raise(which, gib) => pick(&seen.running, which).map(|job| {
                    seen.asking.insert(job);
                    Event::Raise { job, need: need(gib) }
                }),
                Turn::Forecast(which, gib) => {
                    pick(&seen.running, which).map(|job| Event::Forecast { job, need: need(gib) })
                }
                Turn::Enough(which, gib) => {
                    pick(&seen.running, which).map(|job| Event::Enough { job, need: need(gib) })
                }
                Turn::Withdraw(which) => pick(&seen.waiting, which).map(|job| {
                    seen.waiting.remove(&job);
                    Event::Withdrawn { job }
                }),
                Turn::Others(gpu, gib) => {
                    node.others.insert(GpuIndex(gpu), gib * GIB);
                    None
                }
                Turn::Answer(which) => pick(&seen.looks, which).map(|gpu| {
                    seen.looks.remove(&gpu);
                    node.room(gpu)
                }),
                Turn::Tick(seconds) => {
                    node.now += f64::from(seconds);
                    Some(Event::Tick)
                }
            };
            if let Some(event) = event {
                let in_reading = matches!(event, Event::Room { .. });
                seen.step(&mut node, event, in_reading);
            }
        }
        // All goes away, and time passes.
        node.others.values_mut().for_each(|bytes| *bytes = 0);
        for _ in 0..200 {
            node.now += 2.0;
            let ended = pick(&seen.running, 0).filter(|_| seen.asking.is_empty());
            let event = ended.map_or(Event::Tick, |job| Event::Ended { job, again: None });
            seen.running.retain(|job| Some(*job) != ended);
            seen.step(&mut node, event, false);
            while let Some(gpu) = seen.looks.pop_first() {
                let room = node.room(gpu);
                seen.step(&mut node, room, true);
            }
        }
        prop_assert!(seen.asking.is_empty(), "{:?} have no answer", seen.asking);
        prop_assert!(seen.waiting.is_empty(), "{:?} wait for nothing", seen.waiting);
    }
}
