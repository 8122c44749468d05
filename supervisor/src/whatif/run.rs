//! One simulation: the policy by its name, what it is told of the jobs, and the run.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use migm_shared::ids::Incarnation;

use super::engine::Engine;
use super::{Job, Outcome, Settings, Workload, parameters};
use crate::layout::{ProfileIndex, Slot};
use crate::memory::{Costs, Keeping, Method, Observation, Situation, Verdict, decide};
use crate::schedule::policy::{Choice, Fixed, PolicyName, Rule, UnknownPolicy, static_layout};
use crate::schedule::speed::{Points, SERIAL, Shares, mean};
use crate::schedule::{Action, Decider, Event, Facts, Policy, Scheduler};

/// Why a policy cannot run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No such name.
    #[error(transparent)]
    Unknown(#[from] UnknownPolicy),
    /// The layout of `static:` cannot stand.
    #[error("static layout `{layout}`: {why}")]
    Layout {
        /// As given.
        layout: String,
        /// What is wrong.
        why: String,
    },
}

/// A policy ready to run.
#[derive(Debug)]
pub enum Run {
    /// One of the policies that serve in order.
    Ordered(Policy),
    /// One that decides by the board.
    Planned(Box<dyn Decider>),
}

/// Runs the workload. `record` keeps the watts over time.
#[must_use]
pub fn simulate(load: &Workload, run: Run, settings: &Settings, record: bool) -> Outcome {
    simulate_watched(load, run, settings, record, &mut |scheduler, now, event| {
        scheduler.step(now, event)
    })
}

/// As [`simulate`]; `watch` makes each step and may time it.
pub fn simulate_watched(
    load: &Workload,
    run: Run,
    settings: &Settings,
    record: bool,
    watch: &mut dyn FnMut(&mut Scheduler, f64, Event) -> Vec<Action>,
) -> Outcome {
    let scheduler = match run {
        Run::Ordered(policy) => Scheduler::new(policy, Incarnation(1)),
        Run::Planned(decider) => Scheduler::with_decider(decider, Incarnation(1)),
    };
    Engine::new(load, settings, scheduler, record, watch).run()
}

/// What the policy is told of the jobs: all, or what their runs have shown.
#[derive(Debug)]
pub(super) struct Knowledge {
    settings: Settings,
    batch: bool,
    shares: Shares,
    /// Speeds seen, by program.
    seen: HashMap<String, Points>,
}

impl Knowledge {
    pub(super) fn new(load: &Workload, settings: &Settings) -> Self {
        let kinds = load
            .gpus
            .iter()
            .map(|gpu| gpu.kind)
            .max()
            .map_or(0, |most| most + 1);
        let table = |kind| {
            let mut gpus = load.gpus.iter();
            gpus.find(|gpu| gpu.kind == kind).map(|gpu| gpu.table.as_ref())
        };
        Self {
            settings: *settings,
            batch: load.batch,
            shares: Shares::of((0..kinds).map(table)),
            seen: HashMap::new(),
        }
    }

    /// A run of the job on a profile has shown its speed there. True when that is new.
    pub(super) fn ran(&mut self, job: &Job, kind: usize, profile: ProfileIndex, speed: f64) -> bool {
        if !self.settings.learn || speed <= 0.0 {
            return false;
        }
        let of = self.seen.entry(job.program.clone()).or_default();
        of.insert((kind, profile.0), speed).is_none()
    }

    pub(super) fn facts(&self, job: &Job, left: f64) -> Arc<Facts> {
        let settings = &self.settings;
        let points = self.seen.get(&job.program);
        let shown = points.is_some_and(|points| self.shares.serial(points).is_some());
        Arc::new(Facts {
            speeds: if settings.learn {
                self.guess(job)
            } else {
                job.speeds.clone()
            },
            work: settings.remaining_known.then_some(left),
            attained: job.work - left,
            weight: job.weight,
            keeps_work: job.checkpoints && settings.work_kept,
            stays: false,
            move_cost: settings.move_cost,
            in_batch: self.batch,
            unseen: (settings.learn && !shown).then(|| numbered(&job.program)),
        })
    }

    /// Speeds by the law of [`speed`](crate::schedule::speed), fitted to what was seen of the program, else of all
    /// programs, else with [`SERIAL`]; what was seen stands as it was.
    fn guess(&self, job: &Job) -> Vec<Arc<[f64]>> {
        let own = self.seen.get(&job.program);
        let serial = own
            .and_then(|points| self.shares.serial(points))
            .or_else(|| mean(self.seen.values().filter_map(|points| self.shares.serial(points))));
        self.shares.guess(own, serial.unwrap_or(SERIAL))
    }
}

/// A number that stands for a program's name.
fn numbered(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// When the predictor of `memory/` first says that a job will outgrow `memory` bytes: the part of its work
/// done by then, and the need.
pub(super) fn first_warning(job: &Job, memory: u64, settings: &Settings) -> Option<(f64, u64)> {
    let steps = &job.memory.steps;
    if steps.len() < 2 || job.memory.peak() <= memory {
        return None;
    }
    let full_at = job.memory.exceeds(memory)?;
    let mut predictor = Method::Migm.start();
    let horizon = f64::from(parameters::ITERATIONS);
    for iteration in 1..parameters::ITERATIONS {
        let x = f64::from(iteration);
        let part = x / horizon;
        if part >= full_at {
            return None;
        }
        let at = steps
            .iter()
            .rev()
            .find(|step| step.0 <= part)
            .map_or(0, |step| step.1);
        predictor.observe(Observation::reserved_only(x, at));
        let Some(forecast) = predictor.forecast(Some(horizon)) else {
            continue;
        };
        let situation = Situation {
            slice_bytes: memory,
            unaccounted_bytes: 0,
            pace: job.work / horizon,
            work_done: part * job.work,
            costs: Costs {
                relaunch: parameters::DOOMED_S,
                reconfiguration: settings.create,
            },
            // The engine starts a job again from zero when it outgrows its slice.
            keeping: Keeping::Nothing,
        };
        if let Verdict::Move { need_bytes, .. } = decide(&forecast, &situation) {
            return Some((part, need_bytes));
        }
    }
    None
}

impl Run {
    /// The policy of that name for the workload; `best-static` is searched for.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn named(name: &str, load: &Workload, settings: &Settings) -> Result<Self, PolicyError> {
        let choice = Choice {
            fifo: settings.fifo,
            moves: settings.moves,
            search: settings.search,
            create: settings.create,
            destroy: settings.destroy,
        };
        let name: PolicyName = name.parse()?;
        let decider: Box<dyn Decider> = match &name {
            PolicyName::Static(layout) => Box::new(Fixed::new(static_layouts(load, layout)?, Rule::Fastest)),
            _ => match name.decider(choice) {
                Some(decider) => decider,
                None => match name.ordered() {
                    Some(policy) => return Ok(Self::Ordered(policy)),
                    None => {
                        let (layouts, rule) = super::search::best_static(load, settings);
                        Box::new(Fixed::new(layouts, rule))
                    }
                },
            },
        };
        Ok(Self::Planned(decider))
    }
}

/// The layout on every GPU.
fn static_layouts(load: &Workload, layout: &str) -> Result<Vec<Vec<Slot>>, PolicyError> {
    let placed = load.gpus.iter().map(|gpu| static_layout(&gpu.table, layout));
    placed
        .collect::<Result<_, _>>()
        .map_err(|why| PolicyError::Layout {
            layout: layout.to_owned(),
            why,
        })
}
