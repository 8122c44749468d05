//! What a batch or a trace of jobs would take under a policy: the scheduler in virtual time.
//!
//! One simulation's way:
//!
//! 1. [`tables`] reads jobs, speeds and memory from text; [`Workload`] is what results.
//! 2. [`simulate`] makes a [`Scheduler`](crate::schedule::Scheduler), the same machine that the daemon drives,
//!    and tells it of GPUs and jobs as their time comes.
//! 3. `engine` carries its actions out: creates and destroys take the times of [`Settings`], one at a time
//!    on each GPU; a job advances at the speed of its slice, less what it waits for the shared bus ([`bus`]);
//!    it may outgrow its slice and be forecast to, by the predictor of `memory/`.
//! 4. What happened is an [`Outcome`]: times, energy, moves, and every attempt with its place.
//! 5. [`bounds`] gives what no schedule can beat, [`optimum`] for a small batch the best that can be had; [`search`]
//!    finds the best static mix to compare with.
//!
//! Pure and deterministic: virtual time only, and the same input gives the same outcome.

use std::sync::Arc;

use crate::layout::{ProfileIndex, Slot, Table};
use crate::schedule::Terms;

pub mod bounds;
pub mod bus;
mod engine;
pub mod optimum;
pub mod parameters;
#[cfg(test)]
mod policy_tests;
mod run;
pub mod search;
pub mod tables;

pub use run::{PolicyError, Run, simulate, simulate_watched};

/// A GPU of the simulated node.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its states. GPUs of one kind share one table.
    pub table: Arc<Table>,
    /// Index of its kind in [`Job::speeds`].
    pub kind: usize,
    /// Its power.
    pub power: parameters::Power,
}

/// Device memory of a job as its work goes on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Part of the work done, 0 to 1, and device bytes from there on; ascending in both. Empty: unknown, and
    /// no slice is too small.
    pub steps: Vec<(f64, u64)>,
}

impl Memory {
    /// The same all the time.
    #[must_use]
    pub fn flat(bytes: u64) -> Self {
        Self {
            steps: vec![(0.0, bytes)],
        }
    }

    /// The peak.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.1)
    }

    /// The part of the work at which it needs more than `bytes`.
    #[must_use]
    pub fn exceeds(&self, bytes: u64) -> Option<f64> {
        self.steps.iter().find(|step| step.1 > bytes).map(|step| step.0)
    }
}

/// A job as it truly is; what the policy is told of it is up to [`Settings`].
#[derive(Clone, Debug)]
pub struct Job {
    /// Name for people.
    pub name: String,
    /// Jobs of one program have the same speeds: what is learnt of one holds for all.
    pub program: String,
    /// When it is submitted, seconds.
    pub arrival: f64,
    /// Seconds that it takes alone on the whole GPU of the first kind.
    pub work: f64,
    /// Seconds of work done per second, for each kind of GPU and profile; 0 where it does not fit.
    pub speeds: Vec<Arc<[f64]>>,
    /// Device bytes that its user says it needs; 0 when nothing is said.
    pub told: u64,
    /// Its memory.
    pub memory: Memory,
    /// Share of its time alone on the whole GPU that it spends on the shared bus.
    pub bus: f64,
    /// Busy multiprocessors, as a share of the whole GPU, when it runs at speed 1.
    pub active: f64,
    /// Weight against other jobs; 1 is usual.
    pub weight: f64,
    /// It writes checkpoints, so that a move keeps its work.
    pub checkpoints: bool,
    /// Jobs that must have ended before it arrives, whatever its arrival says.
    pub after: Vec<Before>,
    /// What its user asks for.
    pub terms: Terms,
}

/// A job that comes before another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Before {
    /// Index in [`Workload::jobs`].
    pub job: usize,
    /// It may have been refused; else the other one is refused with it.
    pub any: bool,
}

#[cfg(test)]
impl Job {
    /// One that is there from the start, keeps its work, and of which nothing else is said.
    pub(crate) fn plain(work: f64, speeds: &[f64]) -> Self {
        Self {
            name: "job".into(),
            program: "job".into(),
            arrival: 0.0,
            work,
            speeds: vec![speeds.into()],
            told: 0,
            memory: Memory::default(),
            bus: 0.0,
            active: 0.2,
            weight: 1.0,
            checkpoints: true,
            after: Vec::new(),
            terms: crate::schedule::Terms::default(),
        }
    }
}

/// GPUs and jobs, the latter in order of arrival.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The node.
    pub gpus: Vec<Gpu>,
    /// The jobs.
    pub jobs: Vec<Job>,
    /// Whether all jobs are known from the start and belong together: the end of the last counts.
    pub batch: bool,
}

impl Workload {
    /// The first arrival, seconds.
    #[must_use]
    pub fn start(&self) -> f64 {
        let arrivals = self.jobs.iter().map(|job| job.arrival);
        let first = arrivals.fold(f64::INFINITY, f64::min);
        if first.is_finite() { first } else { 0.0 }
    }
}

/// How the node and the policy behave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Speeds are not told but learnt from the running jobs.
    pub learn: bool,
    /// The work that is left in a job is told.
    pub remaining_known: bool,
    /// Running jobs may be moved for speed.
    pub moves: bool,
    /// Seconds that a move costs a job.
    pub move_cost: f64,
    /// Seconds to create a slice.
    pub create: f64,
    /// Seconds to destroy one.
    pub destroy: f64,
    /// A job that checkpoints keeps its work on a move.
    pub work_kept: bool,
    /// Jobs start in order of arrival.
    pub fifo: bool,
    /// Wall seconds that the search for a batch's plan may take, in evaluations.
    pub search: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            learn: false,
            remaining_known: true,
            moves: true,
            move_cost: parameters::MOVE_S,
            create: parameters::CREATE_S,
            destroy: parameters::DESTROY_S,
            work_kept: true,
            fifo: false,
            search: parameters::SEARCH,
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// The job is done.
    Done,
    /// Moved for speed.
    Moved,
    /// Moved on a forecast of its memory.
    Outgrowing,
    /// Out of memory.
    Oom,
}

/// One attempt of a job on one slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Index of the job.
    pub job: usize,
    /// Index of the GPU.
    pub gpu: usize,
    /// The slot.
    pub slot: Slot,
    /// Seconds.
    pub start: f64,
    /// Seconds.
    pub end: f64,
    /// How it ended.
    pub how: End,
}

impl Attempt {
    /// Kind of slice.
    #[must_use]
    pub fn profile(&self) -> ProfileIndex {
        self.slot.0
    }
}

/// What happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From the first arrival to the last end, seconds.
    pub makespan: f64,
    /// Energy of all GPUs meanwhile, joules. Modelled.
    pub energy: f64,
    /// Energy beyond idling, joules. Modelled.
    pub active_energy: f64,
    /// Mean seconds from arrival to end. A job after others arrives when the last of them has ended.
    pub mean_completion: f64,
    /// Largest ratio of that time to the job's work.
    pub max_slowdown: f64,
    /// Instances created and destroyed.
    pub reconfigurations: u64,
    /// Jobs moved for speed.
    pub moves: u64,
    /// Jobs moved on a forecast.
    pub early_restarts: u64,
    /// Attempts that ran out of memory.
    pub ooms: u64,
    /// Jobs that no slice could hold.
    pub refused: Vec<usize>,
    /// Seconds from arrival to end of each job; not a number where it was refused.
    pub completions: Vec<f64>,
    /// In order of their start.
    pub attempts: Vec<Attempt>,
    /// Watts of each GPU from a time on, where recorded.
    pub watts: Vec<Vec<(f64, f64)>>,
}
