//! One GPU's thread: it makes and removes its instances, and looks after it.
//!
//! A GPU that the driver calls lost, or that cannot be read several times in a row, is put aside: that is
//! told once, and from then on it is only looked at, at growing intervals, until it answers again. Then it
//! is read anew from the ground, since a reset has taken all instances, and told as [`Answer::Back`]. A MIG
//! mode that somebody has changed goes the same way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::gpus::{GpuError, PlacedGpu};
use super::machine::{Answer, Order, Trouble};
use crate::node::{Node, NodeError};

/// How often it is looked whether instances came or went.
const SURVEY: Duration = Duration::from_secs(2);
/// So many looks in a row fail before a GPU that is not lost is put aside.
const PATIENCE: u32 = 3;
/// The longest pause between two looks at a GPU that is put aside. The first is [`SURVEY`], each next one
/// twice as long.
const LONGEST: Duration = Duration::from_secs(64);

/// A GPU to be tended.
#[derive(Clone, Debug)]
pub struct Tended {
    /// NVML's index.
    pub index: u32,
    /// It is cut into instances.
    pub cut: bool,
    /// It could not be read at the start.
    pub aside: bool,
    /// The driver's version.
    pub driver: String,
}

/// See the [module](self).
pub(super) struct Tender {
    node: Arc<dyn Node>,
    gpu: Tended,
    /// Looks that failed in a row.
    failures: u32,
    pause: Duration,
    looked: Instant,
}

impl Tender {
    pub(super) fn new(node: Arc<dyn Node>, gpu: Tended) -> Self {
        Self {
            node,
            gpu,
            failures: 0,
            pause: SURVEY,
            looked: Instant::now(),
        }
    }

    pub(super) fn run(mut self, orders: &Receiver<Order>, mut answer: impl FnMut(Answer)) {
        loop {
            let rest = self.pause.saturating_sub(self.looked.elapsed());
            match orders.recv_timeout(rest) {
                Ok(order) => self.carry_out(order, &mut answer),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.looked.elapsed() >= self.pause {
                self.look(&mut answer);
            }
        }
    }

    pub(super) fn carry_out(&mut self, order: Order, answer: &mut impl FnMut(Answer)) {
        let index = self.gpu.index;
        let mut lost = None;
        let mut note = |error: &NodeError| {
            if error.is_gpu_lost() {
                lost = Some(error.clone());
            }
        };
        match order {
            Order::Create {
                slice,
                profile,
                placement,
                ..
            } => {
                let result = self
                    .node
                    .create(index, &profile, placement)
                    .inspect_err(&mut note);
                answer(Answer::Created { slice, result });
            }
            Order::Destroy { slice, gi, .. } => {
                let result = self.node.destroy(index, gi).inspect_err(&mut note);
                answer(Answer::Destroyed { slice, result });
            }
            Order::Occupants { job, gi, .. } => {
                let list = self.node.processes(index).inspect_err(&mut note);
                let pids = list.map(|list| {
                    let on_it = list.iter().filter(|process| gi.is_none() || process.gi == gi);
                    on_it.map(|process| process.pid).collect()
                });
                answer(Answer::Occupants { job, pids });
            }
            Order::Survey => self.look(answer),
            Order::Watch(_) | Order::Energy { .. } => {}
        }
        if let Some(error) = lost {
            self.put_aside(Trouble::Lost(error), answer);
        }
    }

    fn look(&mut self, answer: &mut impl FnMut(Answer)) {
        self.looked = Instant::now();
        if self.gpu.aside {
            match self.read() {
                Ok(gpu) => {
                    self.gpu.aside = false;
                    self.gpu.cut = gpu.gpu.mode.is_on();
                    self.pause = SURVEY;
                    self.failures = 0;
                    answer(Answer::Back(Box::new(gpu)));
                }
                Err(error) => {
                    tracing::debug!(gpu = self.gpu.index, %error, "still put aside");
                    self.pause = (self.pause * 2).min(LONGEST);
                }
            }
            return;
        }
        match self.see() {
            Ok((true, _)) => self.put_aside(Trouble::ModeChanged, answer),
            Ok((false, seen)) => {
                self.failures = 0;
                seen.into_iter().for_each(answer);
            }
            Err(error) => {
                self.failures += 1;
                tracing::warn!(gpu = self.gpu.index, %error, failures = self.failures, "cannot be read");
                if error.is_gpu_lost() {
                    self.put_aside(Trouble::Lost(error), answer);
                } else if self.failures >= PATIENCE {
                    self.put_aside(Trouble::Failing(error), answer);
                }
            }
        }
    }

    /// Whether the mode has changed, and the instances where there are any.
    fn see(&self) -> Result<(bool, Option<Answer>), NodeError> {
        let index = self.gpu.index;
        if self.node.gpu(index)?.mode.is_on() != self.gpu.cut {
            return Ok((true, None));
        }
        if !self.gpu.cut {
            return Ok((false, None));
        }
        let instances = self.node.instances(index)?;
        let processes = self.node.processes(index)?;
        let seen = Answer::Seen {
            gpu: index,
            instances,
            occupied: processes.iter().filter_map(|process| process.gi).collect(),
        };
        Ok((false, Some(seen)))
    }

    fn read(&self) -> Result<PlacedGpu, GpuError> {
        let gpu = self.node.gpu(self.gpu.index)?;
        PlacedGpu::read(self.node.as_ref(), gpu, &self.gpu.driver)
    }

    fn put_aside(&mut self, why: Trouble, answer: &mut impl FnMut(Answer)) {
        if std::mem::replace(&mut self.gpu.aside, true) {
            return;
        }
        self.pause = match why {
            // It is there: one look tells what it has become.
            Trouble::ModeChanged => Duration::ZERO,
            Trouble::Lost(_) | Trouble::Failing(_) => SURVEY,
        };
        let gpu = self.gpu.index;
        answer(Answer::Aside { gpu, why });
    }
}
