//! One simulation: the policy by its name, what it is told of the jobs, and the run.

use std::collections::HashMap;
use std::sync::Arc;

use migm_shared::ids::Incarnation;

use super::engine::Engine;
use super::{Job, Outcome, Settings, Workload, parameters};
use crate::layout::{ProfileIndex, Slot};
use crate::memory::{Costs, Keeping, Method, Observation, Situation, Verdict, decide};
use crate::schedule::policy::{Choice, Far, Fixed, Mfi, Migm, Miso, Rule, Waves};
use crate::schedule::{Action, Decider, Event, Facts, Policy, Scheduler};

/// Why a policy cannot run.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PolicyError {
    /// No such name.
    #[error(
        "`{0}` is no policy; there are sequential, static:LAYOUT, best-static, scheme-a, scheme-b, far, mfi, miso and migm"
    )]
    Unknown(String),
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
    /// Share of the GPU's compute slices of each kind's profiles.
    shares: Vec<Vec<f64>>,
    /// Speeds seen, by program, kind and profile.
    seen: HashMap<String, HashMap<(usize, usize), f64>>,
}

impl Knowledge {
    pub(super) fn new(load: &Workload, settings: &Settings) -> Self {
        let kinds = load
            .gpus
            .iter()
            .map(|gpu| gpu.kind)
            .max()
            .map_or(0, |most| most + 1);
        let shares = (0..kinds).map(|kind| {
            let gpu = load.gpus.iter().find(|gpu| gpu.kind == kind);
            let compute = |gpu: &super::Gpu| {
                let whole = gpu.table.profile(gpu.table.full()).compute.max(1);
                let profiles = gpu.table.profiles().iter();
                profiles
                    .map(|p| f64::from(p.compute) / f64::from(whole))
                    .collect()
            };
            gpu.map(compute).unwrap_or_default()
        });
        Self {
            settings: *settings,
            batch: load.batch,
            shares: shares.collect(),
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
            move_cost: settings.move_cost,
            in_batch: self.batch,
        })
    }

    /// Speeds by the law 1/s = a + (1 - a)/share, a fitted to what was seen of the program, else of all
    /// programs, else [`parameters::SERIAL`]; what was seen stands as it was.
    fn guess(&self, job: &Job) -> Vec<Arc<[f64]>> {
        let serial = |points: &HashMap<(usize, usize), f64>| {
            let known = points.iter().filter_map(|(&(kind, profile), &speed)| {
                let share = self.shares[kind][profile];
                (share < 1.0).then(|| (1.0 / share - 1.0 / speed) / (1.0 / share - 1.0))
            });
            let mut known: Vec<f64> = known.collect();
            known.sort_by(f64::total_cmp);
            mean(&known)
        };
        let own = self.seen.get(&job.program);
        let others = || {
            let mut all: Vec<f64> = self.seen.values().filter_map(serial).collect();
            all.sort_by(f64::total_cmp);
            mean(&all)
        };
        let serial = own.and_then(serial).or_else(others).unwrap_or(parameters::SERIAL);
        let guessed = self.shares.iter().enumerate().map(|(kind, shares)| {
            let profiles = shares.iter().enumerate().map(|(profile, &share)| {
                let seen = own.and_then(|points| points.get(&(kind, profile)));
                seen.copied()
                    .unwrap_or_else(|| (1.0 / (serial + (1.0 - serial) / share)).clamp(share / 4.0, 1.0))
            });
            profiles.collect()
        });
        guessed.collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of programs")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
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
        if let Some(layout) = name.strip_prefix("static:") {
            let layouts = static_layout(load, layout)?;
            return Ok(Self::Planned(Box::new(Fixed::new(layouts, Rule::Fastest))));
        }
        Ok(match name {
            "sequential" => Self::Ordered(Policy::Sequential),
            "scheme-b" => Self::Ordered(Policy::SchemeB),
            "best-static" => {
                let (layouts, rule) = super::search::best_static(load, settings);
                Self::Planned(Box::new(Fixed::new(layouts, rule)))
            }
            "migm" => Self::Planned(Box::new(Migm::new(Choice {
                fifo: settings.fifo,
                moves: settings.moves,
                search: settings.search,
                create: settings.create,
                destroy: settings.destroy,
            }))),
            "scheme-a" => Self::Planned(Box::new(Waves)),
            "far" => Self::Planned(Box::new(Far::new(settings.create, settings.destroy))),
            "mfi" => Self::Planned(Box::new(Mfi)),
            "miso" => Self::Planned(Box::new(Miso::default())),
            _ => return Err(PolicyError::Unknown(name.to_owned())),
        })
    }
}

/// Reads `4g+3g`, `7x1g` or `3g.20gb+3g.20gb`, and places it on every GPU.
fn static_layout(load: &Workload, layout: &str) -> Result<Vec<Vec<Slot>>, PolicyError> {
    let bad = |why: String| PolicyError::Layout {
        layout: layout.to_owned(),
        why,
    };
    let mut layouts = Vec::new();
    for gpu in &load.gpus {
        let mut wanted = Vec::new();
        for part in layout.split('+') {
            let (count, name) = match part.split_once('x') {
                Some((count, name)) => (
                    count
                        .parse::<usize>()
                        .map_err(|_| bad(format!("`{count}` is no number")))?,
                    name,
                ),
                None => (1, part),
            };
            let named =
                |p: &crate::layout::Profile| p.name == name || p.name.starts_with(&format!("{name}."));
            let profile = gpu.table.profiles().iter().position(named);
            let profile = profile.ok_or_else(|| bad(format!("`{name}` is no profile of this GPU")))?;
            wanted.extend(std::iter::repeat_n(ProfileIndex(profile), count));
        }
        let placed = super::search::place(&gpu.table, &wanted);
        layouts.push(placed.ok_or_else(|| bad("its slices cannot stand together".to_owned()))?);
    }
    Ok(layouts)
}
