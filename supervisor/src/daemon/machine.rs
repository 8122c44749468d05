//! The thread that talks with the driver. A create takes a third of a second and a destroy may wait for
//! seconds, while frames must not wait: so the owner sends [`Order`]s here and hears [`Answer`]s.
//!
//! Orders are carried out in the order given, and each is answered once. Between them, every
//! `sample` period, the memory of the watched slices is measured, and less often it is looked whether
//! instances came or went without us.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use migm_shared::ids::{BatchId, Incarnation, JobId};

use super::page::JobPage;
use crate::layout::{Placement, Profile};
use crate::node::soft::{self, Ours, Room};
use crate::node::{Instance, Node, NodeError};

/// How often it is looked whether instances came or went.
const SURVEY: Duration = Duration::from_secs(2);

/// A wish of the owner.
#[derive(Debug)]
pub enum Order {
    /// Make an instance.
    Create {
        /// Our number for it.
        slice: Incarnation,
        /// NVML's index of the GPU.
        gpu: u32,
        /// Kind.
        profile: Profile,
        /// Place.
        placement: Placement,
    },
    /// Remove an instance.
    Destroy {
        /// Our number for it.
        slice: Incarnation,
        /// NVML's index of the GPU.
        gpu: u32,
        /// NVML's id.
        gi: u32,
    },
    /// Measure these from here on, instead of those before.
    Watch(Vec<Watched>),
    /// Read the energy counters.
    Energy {
        /// For which batch.
        batch: BatchId,
        /// Which of its two readings.
        moment: Moment,
    },
    /// List the instances at once instead of at the next round.
    Survey,
    /// What can leases on a shared GPU have together?
    Room {
        /// NVML's index of the GPU.
        gpu: u32,
        /// Whose memory is leased.
        ours: Ours,
    },
    /// Which processes does NVML list on the device?
    Occupants {
        /// Whose slice.
        job: JobId,
        /// NVML's index of the GPU.
        gpu: u32,
        /// The GPU instance; `None` for the whole GPU.
        gi: Option<u32>,
    },
}

/// Which reading of a batch's energy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Moment {
    /// Before its first job.
    Start,
    /// After its last.
    End,
}

/// A leased device that is to be measured.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Who runs on it.
    pub job: JobId,
    /// Which attempt.
    pub attempt: u32,
    /// Which device.
    pub device: Device,
    /// What the job itself has counted.
    pub page: Arc<JobPage>,
}

/// A device that CUDA sees.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Device {
    /// A MIG device by UUID.
    Slice(String),
    /// A whole GPU by NVML's index.
    Whole(u32),
    /// These processes' part of a GPU that others use too.
    Shared {
        /// NVML's index.
        gpu: u32,
        /// The job's processes.
        pids: Vec<u32>,
    },
}

/// What came of an order, or what was seen.
#[derive(Debug)]
pub enum Answer {
    /// Of [`Order::Create`].
    Created {
        /// Our number.
        slice: Incarnation,
        /// What was read back.
        result: Result<Instance, NodeError>,
    },
    /// Of [`Order::Destroy`].
    Destroyed {
        /// Our number.
        slice: Incarnation,
        /// `Ok` when it is gone.
        result: Result<(), NodeError>,
    },
    /// Of [`Order::Energy`].
    Energy {
        /// For which batch.
        batch: BatchId,
        /// Which reading.
        moment: Moment,
        /// Millijoules over all GPUs; `None` where one has no counter.
        millijoules: Option<u64>,
    },
    /// Of [`Order::Room`].
    Room {
        /// NVML's index of the GPU.
        gpu: u32,
        /// What there is.
        room: Result<Room, NodeError>,
    },
    /// Of [`Order::Occupants`].
    Occupants {
        /// Whose slice.
        job: JobId,
        /// Processes that NVML lists; the error as text where it lists none.
        pids: Result<Vec<u32>, NodeError>,
    },
    /// What the driver charges beyond what the job has asked for.
    Measured {
        /// Whose slice.
        job: JobId,
        /// Which attempt.
        attempt: u32,
        /// Bytes.
        unaccounted: u64,
    },
    /// The instances on a GPU.
    Seen {
        /// NVML's index.
        gpu: u32,
        /// All of them.
        instances: Vec<Instance>,
        /// Ids of those on which NVML lists a process.
        occupied: Vec<u32>,
    },
}

/// The owner's end.
#[derive(Debug)]
pub struct Machine {
    orders: Option<Sender<Order>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
}

impl Machine {
    /// Starts the thread. `wake` is called after each answer. GPUs in `surveyed` have instances.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        node: Box<dyn Node>,
        gpus: Vec<u32>,
        surveyed: Vec<u32>,
        sample: Duration,
        wake: impl Fn() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (orders, incoming) = unbounded();
        let (outgoing, answers) = unbounded();
        let worker = Worker {
            node,
            gpus,
            surveyed,
            sample,
            watched: Vec::new(),
            surveyed_at: Some(Instant::now()),
            measured_at: None,
            readings: HashMap::new(),
        };
        let thread = std::thread::Builder::new()
            .name("machine".to_owned())
            .spawn(move || {
                worker.run(&incoming, |answer| {
                    if outgoing.send(answer).is_ok() {
                        wake();
                    }
                });
            })?;
        Ok(Self {
            orders: Some(orders),
            answers,
            thread: Some(thread),
        })
    }

    /// Hands over an order.
    pub fn order(&self, order: Order) {
        if let Some(orders) = &self.orders
            && orders.send(order).is_err()
        {
            tracing::error!("the machine thread has ended; an order is lost");
        }
    }

    /// What has been answered so far.
    pub fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.try_iter()
    }
}

impl Drop for Machine {
    /// Waits for the order in hand.
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The least time between two readings that are set against each other.
const CONFIRM: Duration = Duration::from_millis(50);

struct Worker {
    node: Box<dyn Node>,
    gpus: Vec<u32>,
    surveyed: Vec<u32>,
    sample: Duration,
    watched: Vec<Watched>,
    surveyed_at: Option<Instant>,
    measured_at: Option<Instant>,
    /// The last reading of each watched job.
    readings: HashMap<JobId, Reading>,
}

/// Device bytes of a job beyond its reserved ones, as seen once.
#[derive(Clone, Copy, Debug)]
struct Reading {
    attempt: u32,
    unaccounted: u64,
    at: Instant,
    /// A later reading has been set against one of this attempt.
    is_confirmed: bool,
}

impl Reading {
    /// An allocation is counted after the driver has made it, and a free before. What is on its way then looks
    /// like memory of the context, by gigabytes if need be. So a figure is that which two readings have in
    /// common, with enough time in between for a call to end.
    fn after(self, earlier: Option<Self>) -> (Self, Option<u64>) {
        let Some(earlier) = earlier.filter(|earlier| earlier.attempt == self.attempt) else {
            return (self, None);
        };
        let both = self.unaccounted.min(earlier.unaccounted);
        if self.at.duration_since(earlier.at) < CONFIRM {
            let kept = Self {
                unaccounted: both,
                ..earlier
            };
            return (kept, None);
        }
        let confirmed = Self {
            is_confirmed: true,
            ..self
        };
        (confirmed, Some(both))
    }
}

impl Worker {
    fn run(mut self, orders: &Receiver<Order>, mut answer: impl FnMut(Answer)) {
        loop {
            let pause = self.pause();
            let waited = self.measured_at.map_or(pause, |last| last.elapsed());
            let rest = pause.saturating_sub(waited);
            match orders.recv_timeout(rest) {
                Ok(order) => {
                    if let Some(said) = self.carry_out(order) {
                        answer(said);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.measured_at.is_none_or(|last| last.elapsed() >= pause) {
                for on in std::mem::take(&mut self.watched) {
                    if let Some(said) = self.measure(&on) {
                        answer(said);
                    }
                    self.watched.push(on);
                }
                self.measured_at = Some(Instant::now());
            }
            if self.surveyed_at.is_none_or(|last| last.elapsed() >= SURVEY) {
                self.surveyed
                    .iter()
                    .filter_map(|&gpu| self.survey(gpu))
                    .for_each(&mut answer);
                self.surveyed_at = Some(Instant::now());
            }
        }
    }

    fn carry_out(&mut self, order: Order) -> Option<Answer> {
        Some(match order {
            Order::Create {
                slice,
                gpu,
                profile,
                placement,
            } => Answer::Created {
                slice,
                result: self.node.create(gpu, &profile, placement),
            },
            Order::Destroy { slice, gpu, gi } => Answer::Destroyed {
                slice,
                result: self.node.destroy(gpu, gi),
            },
            Order::Watch(watched) => {
                self.watched = watched;
                let watched = &self.watched;
                self.readings
                    .retain(|job, _| watched.iter().any(|on| on.job == *job));
                // At once: a short job may be over at the next round.
                self.measured_at = None;
                return None;
            }
            Order::Survey => {
                self.surveyed_at = None;
                return None;
            }
            Order::Energy { batch, moment } => Answer::Energy {
                batch,
                moment,
                millijoules: self.energy(),
            },
            Order::Room { gpu, ours } => Answer::Room {
                gpu,
                room: soft::room(self.node.as_ref(), gpu, &ours),
            },
            Order::Occupants { job, gpu, gi } => Answer::Occupants {
                job,
                pids: self.node.processes(gpu).map(|list| {
                    let on_it = list.iter().filter(|process| gi.is_none() || process.gi == gi);
                    on_it.map(|process| process.pid).collect()
                }),
            },
        })
    }

    fn survey(&self, gpu: u32) -> Option<Answer> {
        let seen = self
            .node
            .instances(gpu)
            .and_then(|instances| Ok((instances, self.node.processes(gpu)?)));
        match seen {
            Ok((instances, processes)) => Some(Answer::Seen {
                gpu,
                instances,
                occupied: processes.iter().filter_map(|process| process.gi).collect(),
            }),
            Err(error) => {
                tracing::warn!(gpu, %error, "cannot list instances");
                None
            }
        }
    }

    fn energy(&self) -> Option<u64> {
        self.gpus
            .iter()
            .map(|&gpu| {
                self.node.energy_mj(gpu).unwrap_or_else(|error| {
                    tracing::warn!(gpu, %error, "no energy reading");
                    None
                })
            })
            .sum()
    }

    /// Until the next round of readings: a first reading is set against a second one soon.
    fn pause(&self) -> Duration {
        let is_waiting = self.readings.values().any(|reading| !reading.is_confirmed);
        if is_waiting {
            CONFIRM.min(self.sample)
        } else {
            self.sample
        }
    }

    /// A figure is of use only if the job asked for nothing and freed nothing while NVML was read: a free
    /// in between would look like memory of the context.
    fn measure(&mut self, on: &Watched) -> Option<Answer> {
        let before = on.page.reserved();
        let used = match &on.device {
            Device::Slice(uuid) => self.node.slice_memory(uuid).map(|memory| memory.used),
            Device::Whole(gpu) => self.node.memory(*gpu).map(|memory| memory.used),
            Device::Shared { gpu, pids } => match soft::used_by(self.node.as_ref(), *gpu, pids) {
                Ok(used) => Ok(used?),
                Err(error) => Err(error),
            },
        };
        let used = match used {
            Ok(used) => used,
            Err(error) => {
                tracing::debug!(job = %on.job, %error, "no memory reading");
                return None;
            }
        };
        let after = on.page.reserved();
        if before != after || on.page.counters().occupants().is_empty() {
            return None;
        }
        let reading = Reading {
            attempt: on.attempt,
            unaccounted: used.saturating_sub(after),
            at: Instant::now(),
            is_confirmed: false,
        };
        let (reading, figure) = reading.after(self.readings.get(&on.job).copied());
        self.readings.insert(on.job, reading);
        figure.map(|unaccounted| Answer::Measured {
            job: on.job,
            attempt: on.attempt,
            unaccounted,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(attempt: u32, unaccounted: u64, at: Instant) -> Reading {
        Reading {
            attempt,
            unaccounted,
            at,
            is_confirmed: false,
        }
    }

    /// The job had made 4 GB and not counted them yet: taken for its context, they put it on a slice twice as
    /// large as it needed.
    #[test]
    fn an_allocation_on_its_way_is_not_taken_for_the_context() {
        let start = Instant::now();
        let (first, figure) = reading(1, 4_434, start).after(None);
        assert_eq!(figure, None);
        let (second, figure) = reading(1, 434, start + CONFIRM).after(Some(first));
        assert_eq!(figure, Some(434));
        // Later growth counts once it has been seen twice.
        let (third, figure) = reading(1, 534, start + 2 * CONFIRM).after(Some(second));
        assert_eq!(figure, Some(434));
        let (_, figure) = reading(1, 534, start + 3 * CONFIRM).after(Some(third));
        assert_eq!(figure, Some(534));
    }

    #[test]
    fn two_readings_at_once_are_one() {
        let start = Instant::now();
        let (first, _) = reading(1, 4_434, start).after(None);
        let (both, figure) = reading(1, 4_434, start + CONFIRM / 2).after(Some(first));
        assert_eq!((figure, both.is_confirmed), (None, false));
        let (_, figure) = reading(1, 434, start + CONFIRM).after(Some(both));
        assert_eq!(figure, Some(434));
    }

    #[test]
    fn another_attempt_starts_over() {
        let start = Instant::now();
        let (first, _) = reading(1, 434, start).after(None);
        let (_, figure) = reading(2, 434, start + CONFIRM).after(Some(first));
        assert_eq!(figure, None);
    }
}
