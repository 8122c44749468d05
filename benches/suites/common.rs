//! What the suites share: GPUs, a source of numbers, runs, and the table.

use std::path::PathBuf;
use std::sync::Arc;

use migm_supervisor::layout::{Rules, Table, base};
use migm_supervisor::report::table::Table as Text;
use migm_supervisor::schedule::{Action, Event, Scheduler};
use migm_supervisor::whatif::parameters::Power;
use migm_supervisor::whatif::tables::Speeds;
use migm_supervisor::whatif::{Gpu, Outcome, Run, Settings, Workload, bounds, simulate, simulate_watched};
use nix::time::{ClockId, clock_gettime};
use rand::SeedableRng;

use super::loads::Case;
use crate::gpus as tables;

/// Seconds per batch of five training programs on an A100-40GB, of our own rounding: see `docs/design/scheduling.md`.
const SPEEDS: &str = include_str!("speeds.csv");

#[derive(Clone, Debug)]
pub struct Options {
    pub data: Option<PathBuf>,
    pub seeds: u64,
    /// The kind of GPU, by its key in the simulator.
    pub gpu: String,
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            seeds: 5,
            gpu: "a100-40gb".to_owned(),
            settings: Settings::default(),
        }
    }
}

impl Options {
    pub fn speeds(&self) -> Speeds {
        match &self.data {
            Some(folder) => {
                Speeds::parse(&std::fs::read_to_string(folder.join("miso_seconds_per_batch.csv")).unwrap())
            }
            None => Speeds::parse(SPEEDS),
        }
        .unwrap()
    }
}

/// The same numbers for the same seed on every machine.
pub type Numbers = rand::rngs::Xoshiro256PlusPlus;

pub fn numbers(seed: u64) -> Numbers {
    Numbers::seed_from_u64(seed)
}

/// So many GPUs of one model, cut by its base profiles.
pub fn gpus(model: &str, count: usize) -> Vec<Gpu> {
    let profiles = base(&tables::of(model));
    let gpu = Gpu {
        table: Arc::new(Table::build(profiles, Rules::default()).unwrap()),
        kind: 0,
        power: Power::of(model),
    };
    vec![gpu; count]
}

/// A policy's run.
pub fn run(policy: &str, load: &Workload, settings: &Settings) -> Outcome {
    simulate(load, Run::named(policy, load, settings).unwrap(), settings, false)
}

/// Seconds of this thread on a CPU: on a busy machine the wall clock shows the others' work too.
pub fn cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let seconds = time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9;
    seconds
}

/// A run of the default policy that calls `look` at each decision with its CPU seconds, the scheduler before it and
/// what it answered.
pub fn decisions(
    load: &Workload,
    settings: &Settings,
    look: &mut dyn FnMut(f64, usize, &[Action]),
) -> Outcome {
    let run = Run::named("migm", load, settings).unwrap();
    let mut step = |scheduler: &mut Scheduler, now: f64, event: Event| {
        if !matches!(event, Event::Settled) {
            return scheduler.step(now, event);
        }
        let waiting = scheduler.waiting();
        let began = cpu();
        let actions = scheduler.step(now, event);
        look(cpu() - began, waiting, &actions);
        actions
    };
    simulate_watched(load, run, settings, false, &mut step)
}

pub const ALL: [&str; 8] = [
    "sequential",
    "best-static",
    "scheme-a",
    "scheme-b",
    "far",
    "mfi",
    "miso",
    "migm",
];

/// Outcomes of several policies on one workload for each seed, in the order of the policies.
pub struct Compared {
    policies: Vec<&'static str>,
    /// By policy and seed.
    pub outcomes: Vec<Vec<Outcome>>,
    /// By seed.
    pub bounds: Vec<f64>,
    /// What counts: the end of a batch, the mean completion time of jobs that come one by one.
    pub batch: bool,
}

impl Compared {
    pub fn run(
        case: &Case,
        options: &Options,
        policies: &[&'static str],
        seeds: impl Iterator<Item = u64>,
    ) -> Self {
        let mut compared = Self {
            policies: policies.to_vec(),
            outcomes: vec![Vec::new(); policies.len()],
            bounds: Vec::new(),
            batch: true,
        };
        for seed in seeds {
            let load = (case.load)(seed);
            compared.batch = load.batch;
            compared.bounds.push(bounds::makespan(&load).unwrap_or(f64::NAN));
            for (into, policy) in compared.outcomes.iter_mut().zip(policies) {
                into.push(run(policy, &load, &options.settings));
            }
        }
        compared
    }

    pub fn of(&self, policy: &str) -> &[Outcome] {
        let at = self.policies.iter().position(|known| *known == policy).unwrap();
        &self.outcomes[at]
    }

    /// A figure of one policy over the same of another, by seed.
    pub fn ratios(&self, above: &str, below: &str, figure: impl Fn(&Outcome) -> f64) -> Vec<f64> {
        let pairs = self.of(above).iter().zip(self.of(below));
        pairs
            .map(|(above, below)| figure(above) / figure(below))
            .collect()
    }

    /// What counts of a policy over the default's: above 1 is better. By seed.
    pub fn gains(&self, over: &str) -> Vec<f64> {
        self.ratios(over, "migm", if self.batch { makespan } else { mean_completion })
    }

    fn print(&self, title: &str) {
        let seeds = self.bounds.len();
        println!("\n{title}; {seeds} seeds, means, spread as least..most, slowdown the most of all");
        let mut text = Text::new(&[
            "policy",
            ">makespan s",
            ">mean s",
            ">slowdown",
            ">kJ",
            ">reconf",
            ">moves",
            ">OOM",
            ">/bound",
            ">x seq",
            ">spread",
            ">x seq mean",
            ">spread",
            ">x static",
            ">x static mean",
            ">x seq kJ",
        ]);
        for policy in &self.policies {
            #[expect(clippy::cast_precision_loss, reason = "counts of a table")]
            let count = |figure: fn(&Outcome) -> u64| {
                format!(
                    "{:.0}",
                    mean(self.of(policy).iter().map(|outcome| figure(outcome) as f64))
                )
            };
            let figure = |figure: fn(&Outcome) -> f64| mean(self.of(policy).iter().map(figure));
            let over = |other: &str, figure: fn(&Outcome) -> f64| self.ratios(other, policy, figure);
            let slowdowns = self.of(policy).iter().map(|outcome| outcome.max_slowdown);
            let bounds = self.of(policy).iter().zip(&self.bounds);
            text.row([
                (*policy).to_owned(),
                format!("{:.0}", figure(makespan)),
                format!("{:.0}", figure(mean_completion)),
                format!("{:.1}", slowdowns.fold(0.0, f64::max)),
                format!("{:.0}", figure(energy) / 1e3),
                count(|outcome| outcome.reconfigurations),
                count(|outcome| outcome.moves),
                count(|outcome| outcome.ooms),
                format!(
                    "{:.3}",
                    mean(bounds.map(|(outcome, bound)| outcome.makespan / bound))
                ),
                averaged(&over("sequential", makespan)),
                spread(&over("sequential", makespan)),
                averaged(&over("sequential", mean_completion)),
                spread(&over("sequential", mean_completion)),
                averaged(&over("best-static", makespan)),
                averaged(&over("best-static", mean_completion)),
                averaged(&over("sequential", energy)),
            ]);
        }
        print!("{}", text.render());
    }
}

pub fn makespan(outcome: &Outcome) -> f64 {
    outcome.makespan
}
pub fn mean_completion(outcome: &Outcome) -> f64 {
    outcome.mean_completion
}
pub fn energy(outcome: &Outcome) -> f64 {
    outcome.energy
}

fn averaged(ratios: &[f64]) -> String {
    format!("{:.2}", mean(ratios.iter().copied()))
}

fn spread(ratios: &[f64]) -> String {
    format!("{:.2}..{:.2}", least(ratios), most(ratios))
}

pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Runs the policies for each seed and prints the table.
pub fn compare(case: &Case, options: &Options, policies: &[&'static str]) -> Compared {
    let compared = Compared::run(case, options, policies, 1..=options.seeds);
    compared.print(&case.title);
    compared
}

/// The same for one workload that has no seed.
pub fn compare_once(case: &Case, options: &Options, policies: &[&'static str]) -> Compared {
    let compared = Compared::run(case, options, policies, 0..1);
    compared.print(&case.title);
    compared
}

/// One line on a goal.
pub fn goal(what: &str, reached: bool, figure: &str) {
    println!("  {} {what}: {figure}", if reached { "ok  " } else { "MISS" });
}

pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.into_iter().collect();
    #[expect(clippy::cast_precision_loss, reason = "a few values")]
    let count = all.len().max(1) as f64;
    all.iter().sum::<f64>() / count
}
