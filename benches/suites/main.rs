//! The schedulers on five suites, in virtual time: `cargo bench --bench suites [-- OPTIONS] [SUITE ...]`.
//!
//! | suite | what |
//! |---|---|
//! | a | kinds of mix as in MIGM's paper: Rodinia-like homogeneous and heterogeneous, machine learning, LLM |
//! | b | the trace of MISO on 2 to 32 GPUs, and bootstrap resamples of it |
//! | c | batches of 20 to 60 jobs on one GPU, four laws of durations |
//! | d | jobs that come one by one at loads from 0.3 to 0.95 |
//! | e | jobs made to hurt the default policy |
//! | optimum | 200 batches of 6 to 10 jobs, and how far from the proven optimum they end |
//! | types | the workloads of a to e on every kind of GPU, against sequential and best static |
//! | speed | 10,000 jobs on 64 GPUs, and the time of one decision |
//!
//! `--data DIR` names a folder with `miso_seconds_per_batch.csv` and `miso_trace_100.csv`; without it, a small
//! table beside this file stands in, and b is left out. `--seeds N` (default 5) sets the spread; `--gpu MODEL` (default
//! a100-40gb) the kind of GPU; `--learn` is the second pass: speeds are learnt, not told. The policy's settings are the same
//! in all suites. All figures are simulated but those of `speed` and the CPU time of a plan.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at its first surprise")]

use std::path::PathBuf;

mod batches;
mod common;
#[path = "../gpus/mod.rs"]
mod gpus;
mod loads;
mod online;
mod optimum;
mod speed;
mod trace;
mod types;

use common::Options;

type Suite = (&'static str, fn(&Options));

const SUITES: [Suite; 8] = [
    ("a", batches::paper),
    ("b", trace::miso),
    ("c", batches::batches),
    ("d", online::loads),
    ("e", batches::adversarial),
    ("optimum", optimum::distance),
    ("types", types::all),
    ("speed", speed::large),
];

fn main() {
    let mut options = Options::default();
    let mut wanted: Vec<String> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--data" => options.data = Some(PathBuf::from(arguments.next().expect("--data DIR"))),
            "--seeds" => options.seeds = arguments.next().and_then(|n| n.parse().ok()).expect("--seeds N"),
            "--gpu" => options.gpu = arguments.next().expect("--gpu MODEL"),
            "--learn" => options.settings.learn = true,
            other => {
                assert!(
                    SUITES.iter().any(|(name, _)| *name == other),
                    "`{other}` is no suite"
                );
                wanted.push(other.to_owned());
            }
        }
    }
    for (name, suite) in SUITES {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            suite(&options);
        }
    }
}
