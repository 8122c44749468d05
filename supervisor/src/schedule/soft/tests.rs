//! One test for each rule of soft slices, and random runs; a file for each part of the story.

use std::collections::BTreeMap;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use super::{Cut, Room};
use crate::schedule::{Action, Event, GpuIndex, Need, Policy, Scheduler};

mod alone;
mod gpus;
mod random;
mod shrinks;
mod sizes;
mod together;

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
