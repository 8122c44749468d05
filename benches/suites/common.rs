//! What the suites share: the GPU, workloads, a source of numbers, and the table.

use std::path::PathBuf;
use std::sync::Arc;

use migm_supervisor::layout::{Profile, Rules, Table, base};
use migm_supervisor::report::table::Table as Text;
use migm_supervisor::whatif::parameters::Power;
use migm_supervisor::whatif::tables::{self, MemoryTable, Row, Speeds};
use migm_supervisor::whatif::{Gpu, Job, Outcome, Run, Settings, Workload, bounds, simulate};

use crate::gpus;

/// Seconds per batch of five training programs on an A100-40GB, of our own rounding: see `docs/design/scheduling.md`.
const SPEEDS: &str = include_str!("speeds.csv");

#[derive(Debug)]
pub struct Options {
    pub data: Option<PathBuf>,
    pub seeds: u64,
    pub settings: Settings,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            data: None,
            seeds: 5,
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

/// xorshift64* (Vigna 2016).
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Self {
        let mut numbers = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            numbers.unit();
        }
        numbers
    }

    /// Above 0, below 1.
    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let bits = ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) | 1) as f64;
        bits / 9_007_199_254_740_992.0
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a small index"
    )]
    pub fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }
}

fn table(profiles: Vec<Profile>) -> Arc<Table> {
    Arc::new(Table::build(profiles, Rules::default()).unwrap())
}

pub fn a100s(count: usize) -> Vec<Gpu> {
    let gpu = Gpu {
        table: table(base(&gpus::a100())),
        kind: 0,
        power: Power::A100,
    };
    vec![gpu; count]
}

pub fn a30s(count: usize) -> Vec<Gpu> {
    let gpu = Gpu {
        table: table(gpus::a30_base()),
        kind: 0,
        power: Power::of("a30-24gb"),
    };
    vec![gpu; count]
}

/// A job of a workload in the speeds.
pub fn job(name: &str, arrival: f64, work: f64, workload: &str, speeds: &Speeds, gpus: &[Gpu]) -> Job {
    let row = Row {
        line: 0,
        job: name.to_owned(),
        arrival,
        work,
        workload: workload.to_owned(),
    };
    tables::job(&row, speeds, &MemoryTable::default(), gpus).unwrap()
}

/// A policy's run.
pub fn run(policy: &str, load: &Workload, settings: &Settings) -> Outcome {
    simulate(load, Run::named(policy, load, settings).unwrap(), settings, false)
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

/// Means over the seeds of one policy on one kind of load.
#[derive(Clone, Debug, Default)]
struct Sums {
    values: Vec<[f64; 11]>,
}

/// Runs all policies on one load per seed and prints a table: means, and the spread of the makespan and of the mean
/// completion time against sequential as least to most. Gives for each policy and seed the outcome.
pub fn compare(
    title: &str,
    options: &Options,
    policies: &[&str],
    load: impl Fn(u64) -> Workload,
) -> Vec<Vec<Outcome>> {
    let mut sums: Vec<Sums> = vec![Sums::default(); policies.len()];
    let mut all: Vec<Vec<Outcome>> = vec![Vec::new(); policies.len()];
    for seed in 1..=options.seeds {
        let load = load(seed);
        let bound = bounds::makespan(&load).unwrap_or(f64::NAN);
        let outcomes: Vec<Outcome> = policies
            .iter()
            .map(|policy| run(policy, &load, &options.settings))
            .collect();
        let of = |name: &str| {
            policies
                .iter()
                .position(|policy| *policy == name)
                .map(|at| &outcomes[at])
        };
        let sequential = of("sequential").unwrap();
        let fixed = of("best-static").unwrap_or(sequential);
        for (at, outcome) in outcomes.iter().enumerate() {
            #[expect(clippy::cast_precision_loss, reason = "counts of a table")]
            let counts = [outcome.reconfigurations, outcome.moves, outcome.ooms].map(|count| count as f64);
            sums[at].values.push([
                outcome.makespan,
                outcome.mean_completion,
                outcome.max_slowdown,
                outcome.energy / 1e3,
                counts[0],
                counts[1],
                counts[2],
                outcome.makespan / bound,
                sequential.makespan / outcome.makespan,
                sequential.mean_completion / outcome.mean_completion,
                fixed.mean_completion / outcome.mean_completion,
            ]);
        }
        for (into, outcome) in all.iter_mut().zip(outcomes) {
            into.push(outcome);
        }
    }
    println!("\n{title}; {} seeds, means, spread as least..most", options.seeds);
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
        ">x static mean",
    ]);
    for (policy, sum) in policies.iter().zip(&sums) {
        let column = |at: usize| sum.values.iter().map(move |row| row[at]);
        #[expect(clippy::cast_precision_loss, reason = "a few seeds")]
        let mean = |at: usize| column(at).sum::<f64>() / sum.values.len() as f64;
        let spread = |at: usize| {
            let least = column(at).fold(f64::INFINITY, f64::min);
            format!("{least:.2}..{:.2}", column(at).fold(0.0, f64::max))
        };
        text.row([
            (*policy).to_owned(),
            format!("{:.0}", mean(0)),
            format!("{:.0}", mean(1)),
            format!("{:.1}", column(2).fold(0.0, f64::max)),
            format!("{:.0}", mean(3)),
            format!("{:.0}", mean(4)),
            format!("{:.0}", mean(5)),
            format!("{:.1}", mean(6)),
            format!("{:.3}", mean(7)),
            format!("{:.2}", mean(8)),
            spread(8),
            format!("{:.2}", mean(9)),
            spread(9),
            format!("{:.2}", mean(10)),
        ]);
    }
    print!("{}", text.render());
    all
}

/// One line on a goal.
pub fn goal(what: &str, reached: bool, figure: &str) {
    println!("  {} {what}: {figure}", if reached { "ok  " } else { "MISS" });
}

pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let all: Vec<f64> = values.collect();
    #[expect(clippy::cast_precision_loss, reason = "a few values")]
    let count = all.len().max(1) as f64;
    all.iter().sum::<f64>() / count
}
