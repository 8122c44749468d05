//! One test for each rule of soft slices, and random runs against machines whose others come and go.

use std::collections::{BTreeMap, BTreeSet};

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;
use proptest::prelude::*;

use super::{Cut, Room};
use crate::layout::samples;
use crate::schedule::policy::Mfi;
use crate::schedule::{Action, Event, GpuIndex, Need, Policy, Scheduler, Terms, Wish};

mod alone;

const CUT: Cut = Cut {
    first: 5 * GIB,
    grain: GIB,
    grows: true,
};

/// GPUs of 40 GiB of which others hold some, and each look is answered at once.
struct Node {
    scheduler: Scheduler,
    others: BTreeMap<GpuIndex, u64>,
    now: f64,
    told: BTreeMap<GpuIndex, u64>,
    leases: BTreeMap<Incarnation, (GpuIndex, u64)>,
    /// Bytes that a job holds of its lease, where it matters.
    held: BTreeMap<JobId, u64>,
}

impl Node {
    fn new(gpus: usize, cut: Cut) -> Self {
        Self::by(Scheduler::new(Policy::SchemeB, Incarnation(1)), gpus, cut)
    }

    fn by(scheduler: Scheduler, gpus: usize, cut: Cut) -> Self {
        let mut node = Self {
            scheduler,
            others: (0..gpus).map(|gpu| (GpuIndex(gpu), 0)).collect(),
            now: 0.0,
            told: BTreeMap::new(),
            leases: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        for gpu in 0..gpus {
            node.step(Event::SoftGpu {
                gpu: GpuIndex(gpu),
                cut,
            });
        }
        node
    }

    /// One event, looks not answered. Whatever is leased or grown must have room by the last reading.
    fn step(&mut self, event: Event) -> Vec<Action> {
        if let Event::Room { gpu, room } = &event {
            self.told.insert(*gpu, room.unwrap().now);
        }
        let held = match &event {
            Event::Ended { job, .. } => self.scheduler.slice_of(*job),
            _ => None,
        };
        if let Some(slice) = held {
            self.leases.remove(&slice);
        }
        let actions = self.scheduler.step(self.now, event);
        for (index, action) in actions.iter().enumerate() {
            let (slice, memory) = match *action {
                Action::Lease { slice, gpu, memory } => {
                    let next = actions.get(index + 1);
                    assert!(matches!(next, Some(Action::Grant { slice: granted, .. }) if *granted == slice));
                    self.leases.insert(slice, (gpu, memory));
                    (slice, memory)
                }
                Action::Grow { slice, memory, job } => {
                    assert_eq!(self.scheduler.slice_of(job), Some(slice));
                    (slice, memory)
                }
                Action::Shrink { job, memory } => {
                    let slice = self.scheduler.slice_of(job).unwrap();
                    assert!(memory < self.leases[&slice].1, "it is a shrink");
                    continue;
                }
                _ => continue,
            };
            let lease = self.leases.get_mut(&slice).unwrap();
            let grew = memory > lease.1 || matches!(action, Action::Lease { .. });
            lease.1 = lease.1.max(memory);
            let gpu = lease.0;
            let sum: u64 = self
                .leases
                .values()
                .filter(|(on, _)| *on == gpu)
                .map(|(_, bytes)| bytes)
                .sum();
            assert!(
                !grew || sum <= self.told[&gpu],
                "{sum} of {} on {gpu:?}",
                self.told[&gpu]
            );
        }
        actions
    }

    fn room(&self, gpu: GpuIndex) -> Event {
        let most = 40 * GIB;
        let now = most - self.others[&gpu];
        let room = Some(Room { now, most });
        Event::Room { gpu, room }
    }

    /// One event, and looks answered until there are none.
    fn run(&mut self, event: Event) -> Vec<Action> {
        let mut all = self.step(event);
        let mut next = 0;
        while next < all.len() {
            match all[next] {
                Action::Look { gpu } => {
                    let room = self.room(gpu);
                    all.extend(self.step(room));
                }
                Action::Shrink { job, memory } => all.extend(self.shrunk(job, memory)),
                _ => {}
            }
            next += 1;
        }
        all
    }

    /// A lease has given back what it can.
    fn shrunk(&mut self, job: JobId, memory: u64) -> Vec<Action> {
        let memory = memory.max(self.held.get(&job).copied().unwrap_or(0));
        let slice = self.scheduler.slice_of(job).unwrap();
        let lease = self.leases.get_mut(&slice).unwrap();
        lease.1 = lease.1.min(memory);
        self.step(Event::Shrunk { job, memory })
    }

    fn enough(&mut self, job: u64, gib: u64) -> Vec<Action> {
        self.run(Event::Enough {
            job: JobId(job),
            need: need(gib),
        })
    }

    fn arrive(&mut self, job: u64, gib: u64) -> Vec<Action> {
        self.run(Event::Arrived {
            job: JobId(job),
            need: need(gib),
        })
    }

    fn end(&mut self, job: u64, again: Option<u64>) -> Vec<Action> {
        self.run(Event::Ended {
            job: JobId(job),
            again: again.map(need),
        })
    }

    fn raise(&mut self, job: u64, gib: u64) -> Vec<Action> {
        self.run(Event::Raise {
            job: JobId(job),
            need: need(gib),
        })
    }

    fn forecast(&mut self, job: u64, gib: u64) -> Vec<Action> {
        self.run(Event::Forecast {
            job: JobId(job),
            need: need(gib),
        })
    }

    /// GiB of a job's lease; 0 when it holds none.
    fn lease(&self, job: u64) -> u64 {
        let held = self.scheduler.slice_of(JobId(job));
        held.map_or(0, |slice| self.leases[&slice].1 / GIB)
    }
}

fn need(gib: u64) -> Need {
    Need {
        device_bytes: gib * GIB,
    }
}

fn moves(actions: &[Action]) -> Vec<u64> {
    let jobs = actions.iter().filter_map(|action| match action {
        Action::Move { job, .. } => Some(job.0),
        _ => None,
    });
    jobs.collect()
}

fn stays(actions: &[Action]) -> usize {
    actions
        .iter()
        .filter(|action| matches!(action, Action::Stay { .. }))
        .count()
}

#[test]
fn a_lease_is_what_the_job_needs_or_the_first_size() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 7);
    node.arrive(2, 0);
    assert_eq!((node.lease(1), node.lease(2)), (7, 5));
    let actions = node.arrive(3, 29);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Grant { .. })),
        "41 of 40"
    );
    assert_eq!(
        node.scheduler.why_waiting(JobId(3)),
        "no room for a soft slice of 29.00 GiB: GPU 0 has 40.00 GiB for them, 12.00 GiB of it leased and 0 B more held \
         by others"
    );
    node.end(2, None);
    assert_eq!(node.lease(3), 29);
}

#[test]
fn a_lease_grows_in_grains_and_by_what_is_needed_where_there_is_no_more() {
    let mut node = Node::new(
        1,
        Cut {
            grain: 4 * GIB,
            ..CUT
        },
    );
    node.arrive(1, 5);
    node.raise(1, 6);
    assert_eq!(node.lease(1), 8);
    node.arrive(2, 29);
    node.raise(1, 10);
    assert_eq!(node.lease(1), 11, "all there is");
    assert_eq!(stays(&node.raise(1, 12)), 1);
    assert_eq!(node.lease(1), 11);
}

#[test]
fn what_others_hold_is_read_at_each_decision() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.others.insert(GpuIndex(0), 25 * GIB);
    assert_eq!(stays(&node.raise(1, 16)), 1);
    assert!(
        moves(&node.forecast(1, 16)) == [1],
        "more than others leave it now, and not than there can be"
    );
    node.end(1, Some(16));
    assert_eq!(node.lease(1), 0);
    node.others.insert(GpuIndex(0), 0);
    node.run(Event::Tick);
    assert_eq!(node.lease(1), 16);
}

#[test]
fn a_forecast_grows_the_lease_and_moves_the_job_only_without_room() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.arrive(2, 10);
    assert!(moves(&node.forecast(1, 25)).is_empty());
    assert_eq!(node.lease(1), 25);
    assert_eq!(moves(&node.forecast(2, 25)), [2]);
    assert!(moves(&node.forecast(2, 26)).is_empty(), "told once");
    node.end(2, Some(25));
    assert_eq!(node.lease(2), 0, "it waits");
    node.end(1, None);
    assert_eq!(node.lease(2), 25);
}

#[test]
fn a_lease_gives_back_what_its_forecast_does_not_need_when_another_job_waits() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 15);
    assert!(node.enough(1, 12).is_empty(), "nobody waits");
    assert_eq!(node.lease(1), 20);
    // Five are free, eight more can be had.
    node.arrive(3, 14);
    assert_eq!(
        (node.lease(3), node.scheduler.queue().len()),
        (0, 1),
        "more than can be had"
    );
    assert_eq!(node.lease(1), 20, "so nothing is taken");
    node.run(Event::Withdrawn { job: JobId(3) });
    node.arrive(4, 13);
    assert_eq!((node.lease(1), node.lease(4)), (12, 13));
}

#[test]
fn what_is_held_stays_and_is_not_asked_for_again() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 30);
    node.enough(1, 10);
    node.held.insert(JobId(1), 28 * GIB);
    let actions = node.arrive(2, 20);
    let shrinks = |actions: &[Action]| {
        let shrinks = actions
            .iter()
            .filter(|action| matches!(action, Action::Shrink { .. }));
        shrinks.count()
    };
    assert_eq!((shrinks(&actions), node.lease(1), node.lease(2)), (1, 28, 0));
    assert_eq!(shrinks(&node.run(Event::Tick)), 0);
    // By the next forecast it can.
    node.held.clear();
    assert_eq!(shrinks(&node.enough(1, 11)), 1);
    assert_eq!((node.lease(1), node.lease(2)), (11, 20));
}

#[test]
fn who_grows_gets_what_others_do_not_need_before_it_has_to_move() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 15);
    node.enough(2, 6);
    let actions = node.forecast(1, 30);
    assert_eq!(moves(&actions), [0; 0]);
    assert_eq!((node.lease(1), node.lease(2)), (30, 6));
    // A process that asks is served so too.
    node.end(1, None);
    node.arrive(3, 30);
    node.enough(3, 20);
    let actions = node.raise(2, 12);
    assert_eq!(stays(&actions), 0);
    assert_eq!((node.lease(3), node.lease(2)), (20, 12));
}

#[test]
fn with_a_lost_gpu_its_leases_go_and_who_waits_is_served_elsewhere() {
    let mut node = Node::new(2, CUT);
    let (first, second) = (GpuIndex(0), GpuIndex(1));
    node.arrive(1, 30);
    node.arrive(2, 30);
    let gpu_of = |node: &Node, job| {
        let slice = node.scheduler.slice_of(JobId(job)).unwrap();
        node.leases[&slice].0
    };
    assert_eq!((gpu_of(&node, 1), gpu_of(&node, 2)), (first, second));
    // One waits for room, and one asks for more, when GPU 0 goes.
    node.arrive(3, 20);
    assert_eq!(node.scheduler.queue(), [JobId(3)]);
    let asked = node.step(Event::Raise {
        job: JobId(1),
        need: need(35),
    });
    assert_eq!(asked, [first, second].map(|gpu| Action::Look { gpu }));
    node.run(Event::Lost { gpu: first });
    // One reading comes too late.
    for gpu in [first, second] {
        node.run(node.room(gpu));
    }
    assert_eq!(node.scheduler.slice_of(JobId(1)), None);
    // A question about a lease that is gone is answered, and its job has nothing to give back at its end.
    assert_eq!(stays(&node.raise(1, 35)), 1);
    assert_eq!(node.end(1, None), [Action::Look { gpu: second }]);
    // The other GPU goes on, and no reading is asked of the lost one.
    assert_eq!(gpu_of(&node, 2), second);
    let actions = node.end(2, None);
    assert!(!actions.contains(&Action::Look { gpu: first }), "{actions:?}");
    assert_eq!(gpu_of(&node, 3), second);
    // Back with a lease of a job that ran on.
    node.step(Event::SoftGpu { gpu: first, cut: CUT });
    node.step(Event::SoftSlice {
        slice: Incarnation(70),
        gpu: first,
        memory: 30 * GIB,
        holder: JobId(7),
    });
    node.leases.insert(Incarnation(70), (first, 30 * GIB));
    node.arrive(8, 15);
    assert_eq!(
        gpu_of(&node, 8),
        second,
        "there is no room beside the adopted one"
    );
}

#[test]
fn more_than_the_gpu_has_moves_nobody_and_is_refused_to_who_waits() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    assert!(moves(&node.forecast(1, 41)).is_empty());
    assert!(
        node.scheduler
            .note(JobId(1))
            .unwrap()
            .ends_with("no slice here holds it, so it stays")
    );
    let actions = node.end(1, Some(41));
    let reason = actions.iter().find_map(|action| match action {
        Action::Refuse { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(
        reason,
        Some("needs 41.00 GiB; the largest slice to be had here is a soft slice with 40.00 GiB")
    );
}

/// A program's own limit looks like a slice too small. Leases that crept up would relaunch it without end.
#[test]
fn who_fails_again_and_again_is_given_all_there_is_and_then_up() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 0);
    let mut had = vec![node.lease(1)];
    let refused = loop {
        let actions = node.end(1, Some(1));
        if node.lease(1) == 0 {
            break actions;
        }
        had.push(node.lease(1));
        assert!(had.len() < 10, "{had:?}");
    };
    assert_eq!(had, [5, 10, 20, 40]);
    assert!(
        refused
            .iter()
            .any(|action| matches!(action, Action::Refuse { job, .. } if *job == JobId(1))),
        "{refused:?}"
    );
}

/// A process that ends is listed no more while its memory is still in use: that once refused who waited.
#[test]
fn memory_that_is_nobodys_for_a_moment_refuses_nobody() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.step(Event::Arrived {
        job: JobId(2),
        need: need(35),
    });
    let (gpu, now, most) = (GpuIndex(0), 10 * GIB, 20 * GIB);
    let room = Some(Room { now, most });
    let actions = node.step(Event::Room { gpu, room });
    assert!(actions.is_empty(), "{actions:?}");
    node.end(1, None);
    assert_eq!(node.lease(2), 35);
}

/// The one that leaves makes the room that the other waits for.
#[test]
fn who_asks_waits_a_moment_for_a_job_that_leaves() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(moves(&node.forecast(2, 30)), [2]);
    let actions = node.raise(1, 25);
    assert_eq!((stays(&actions), node.lease(1)), (0, 20), "no answer yet");
    node.end(2, Some(30));
    assert_eq!(node.lease(1), 25);
    assert_eq!(node.lease(2), 0);
}

/// Both were moved, where one would have done.
/// The one that is refused will end, and so need the other not.
#[test]
fn of_two_that_ask_at_once_one_is_refused() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(stays(&node.raise(1, 22)), 1);
    assert_eq!(stays(&node.raise(2, 22)), 0);
    node.end(1, Some(22));
    assert_eq!(node.lease(2), 22);
    node.now += 10.0;
    assert_eq!(stays(&node.raise(2, 60)), 1, "more than there is");
}

#[test]
fn of_two_that_are_forecast_at_once_one_moves() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(moves(&node.forecast(2, 30)), [2]);
    assert!(moves(&node.forecast(1, 30)).is_empty());
    assert!(moves(&node.end(2, Some(30))).is_empty());
    assert_eq!((node.lease(1), node.lease(2)), (30, 0));
}

#[test]
fn who_asks_does_not_wait_longer_than_the_interposer() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    node.forecast(2, 30);
    assert_eq!(stays(&node.raise(1, 25)), 0);
    node.now = 2.0;
    assert_eq!(stays(&node.run(Event::Tick)), 1);
}

#[test]
fn leases_that_the_mps_server_limits_do_not_grow() {
    let mut node = Node::new(1, Cut { grows: false, ..CUT });
    node.arrive(1, 10);
    assert_eq!(stays(&node.raise(1, 11)), 1);
    assert_eq!(moves(&node.forecast(1, 11)), [1]);
}

#[test]
fn jobs_spread_over_gpus_that_have_all_been_read() {
    let mut node = Node::new(2, CUT);
    for job in 1..=4 {
        node.arrive(job, 10);
    }
    let on = |node: &Node, job| node.leases[&node.scheduler.slice_of(JobId(job)).unwrap()].0.0;
    assert_eq!([1, 2, 3, 4].map(|job| on(&node, job)), [0, 1, 0, 1]);
}

#[test]
fn a_driver_that_does_not_answer_moves_nobody() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    for event in [
        Event::Raise {
            job: JobId(1),
            need: need(12),
        },
        Event::Forecast {
            job: JobId(1),
            need: need(12),
        },
    ] {
        node.step(event);
    }
    let unread = Event::Room {
        gpu: GpuIndex(0),
        room: None,
    };
    let actions = node.scheduler.step(0.0, unread);
    assert_eq!(actions, [Action::Stay { job: JobId(1) }]);
}

#[test]
fn a_slice_of_a_mig_gpu_comes_before_a_soft_one() {
    let mut node = Node::new(1, CUT);
    node.run(Event::Gpu {
        gpu: GpuIndex(7),
        table: std::sync::Arc::new(samples::a100_base()),
        foreign: Vec::new(),
    });
    let actions = node.arrive(1, 30);
    assert!(matches!(actions[0], Action::Create { .. }), "{actions:?}");
    node.arrive(2, 30);
    assert_eq!(node.lease(2), 0, "not before the first has its slice");
    let Action::Create { slice, .. } = actions[0] else {
        unreachable!()
    };
    node.run(Event::Created { slice });
    assert_eq!(node.lease(2), 30);
}

#[test]
fn an_adopted_lease_counts_and_can_grow() {
    let mut node = Node::new(1, CUT);
    let slice = Incarnation(9);
    node.leases.insert(slice, (GpuIndex(0), 20 * GIB));
    node.run(Event::SoftSlice {
        slice,
        gpu: GpuIndex(0),
        memory: 20 * GIB,
        holder: JobId(4),
    });
    node.raise(4, 22);
    assert_eq!(node.lease(4), 22);
    node.arrive(5, 18);
    assert_eq!(node.lease(5), 18);
    assert!(
        node.scheduler.slice_of(JobId(5)).unwrap() > slice,
        "numbers are never used twice"
    );
}

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
