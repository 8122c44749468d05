//! The threads that talk with the driver. A create takes a third of a second and a destroy may wait for
//! seconds, while frames must not wait: so the owner sends [`Order`]s here and hears [`Answer`]s.
//!
//! Each GPU has a thread of its own ([`tend`](super::tend)), so that one which hangs or fails holds up no
//! other: it makes and removes that GPU's instances, in the order told, answers each order once, and looks
//! now and then whether instances came or went without us and whether the GPU is still there. One more
//! thread measures: every `sample` period the memory of the watched slices, and energy when asked.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use migm_shared::ids::{BatchId, Incarnation, JobId};

use super::gpus::PlacedGpu;
use super::tend::{Tended, Tender};
use crate::job::page::JobPage;
use crate::layout::{Placement, Profile};
use crate::node::soft::{self, Ours, Room};
use crate::node::{Instance, Node, NodeError};

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

impl Watched {
    /// Whether it is the same attempt on the same device, counted in the same page.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (self.job, self.attempt, &self.device) == (other.job, other.attempt, &other.device)
            && Arc::ptr_eq(&self.page, &other.page)
    }
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
    /// A GPU is lost, or fails so often that it is put aside. Until it is [`Answer::Back`] nothing is seen
    /// of it.
    Aside {
        /// NVML's index.
        gpu: u32,
        /// What it did.
        why: Trouble,
    },
    /// A GPU that was put aside answers again, as it is now. All its instances count as foreign.
    Back(Box<PlacedGpu>),
}

impl Trouble {
    /// Of an error after which nothing else is worth trying on the GPU.
    #[must_use]
    pub fn of(error: &NodeError) -> Option<Self> {
        if error.is_gpu_lost() {
            Some(Self::Lost(error.clone()))
        } else if error.needs_reset() {
            Some(Self::NeedsReset(error.clone()))
        } else {
            None
        }
    }
}

/// Why a GPU is put aside.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The driver says that it is gone.
    Lost(NodeError),
    /// The driver does nothing with it before a reset.
    NeedsReset(NodeError),
    /// It has refused to be read several times in a row.
    Failing(NodeError),
    /// Its MIG mode is another than it was: it is read anew.
    ModeChanged,
}

/// The owner's end.
#[derive(Debug)]
pub struct Machine {
    gpus: BTreeMap<u32, Sender<Order>>,
    measuring: Option<Sender<Order>>,
    answers: Receiver<Answer>,
    threads: Vec<JoinHandle<()>>,
}

impl Machine {
    /// Starts the threads. `wake` is called after each answer.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(
        node: Arc<dyn Node>,
        gpus: Vec<Tended>,
        sample: Duration,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let (outgoing, answers) = unbounded();
        let wake = Arc::new(wake);
        let say = move || {
            let (outgoing, wake) = (outgoing.clone(), Arc::clone(&wake));
            move |answer: Answer| {
                if outgoing.send(answer).is_ok() {
                    wake();
                }
            }
        };
        let (measuring, incoming) = unbounded();
        let gauge = Gauge {
            node: Arc::clone(&node),
            gpus: gpus.iter().map(|gpu| gpu.index).collect(),
            sample,
            watched: Vec::new(),
            measured_at: None,
            readings: HashMap::new(),
        };
        let answer = say();
        let mut machine = Self {
            gpus: BTreeMap::new(),
            measuring: Some(measuring),
            answers,
            threads: vec![spawn("gauge".to_owned(), move || gauge.run(&incoming, answer))?],
        };
        for tended in gpus {
            let (orders, incoming) = unbounded();
            machine.gpus.insert(tended.index, orders);
            let name = format!("gpu {}", tended.index);
            let tender = Tender::new(Arc::clone(&node), tended);
            let answer = say();
            machine
                .threads
                .push(spawn(name, move || tender.run(&incoming, answer))?);
        }
        Ok(machine)
    }

    /// Hands over an order.
    pub fn order(&self, order: Order) {
        let to = match &order {
            Order::Create { gpu, .. }
            | Order::Destroy { gpu, .. }
            | Order::Occupants { gpu, .. }
            | Order::Room { gpu, .. } => self.gpus.get(gpu),
            Order::Watch(_) | Order::Energy { .. } => self.measuring.as_ref(),
            Order::Survey => {
                for orders in self.gpus.values() {
                    let _ = orders.send(Order::Survey);
                }
                return;
            }
        };
        if to.is_none_or(|orders| orders.send(order).is_err()) {
            tracing::error!("the thread that an order is for has ended; the order is lost");
        }
    }

    /// What has been answered so far.
    pub fn answers(&self) -> impl Iterator<Item = Answer> + '_ {
        self.answers.try_iter()
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run)
}

/// How long the end waits for calls in hand. One that the driver never answers is left to the end of the process.
pub(super) const LAST_CALL: Duration = Duration::from_secs(2);

impl Drop for Machine {
    /// Waits for the orders in hand, two seconds at most.
    fn drop(&mut self) {
        self.measuring = None;
        self.gpus.clear();
        let until = Instant::now() + LAST_CALL;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                let name = thread.thread().name().unwrap_or_default().to_owned();
                tracing::error!(name, "the driver does not answer; its call is left behind");
            }
        }
    }
}

/// The least time between two readings that are set against each other.
const CONFIRM: Duration = Duration::from_millis(50);

/// Measures.
struct Gauge {
    node: Arc<dyn Node>,
    gpus: Vec<u32>,
    sample: Duration,
    watched: Vec<Watched>,
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

impl Gauge {
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
        }
    }

    fn carry_out(&mut self, order: Order) -> Option<Answer> {
        match order {
            Order::Watch(watched) => {
                self.watched = watched;
                let watched = &self.watched;
                self.readings
                    .retain(|job, _| watched.iter().any(|on| on.job == *job));
                // At once: a short job may be over at the next round.
                self.measured_at = None;
                None
            }
            Order::Energy { batch, moment } => Some(Answer::Energy {
                batch,
                moment,
                millijoules: self.energy(),
            }),
            Order::Create { .. }
            | Order::Destroy { .. }
            | Order::Occupants { .. }
            | Order::Room { .. }
            | Order::Survey => None,
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

    /// Until the next round of readings: a first reading is set against a second one soon. With nothing to read, for ever.
    fn pause(&self) -> Duration {
        if self.watched.is_empty() {
            return Duration::MAX;
        }
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
        let before = on.page.reserved_bytes();
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
        let after = on.page.reserved_bytes();
        if before != after || on.page.occupants().is_empty() {
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
