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
//! | speed | 10,000 jobs on 64 GPUs, and the time of one decision |
//!
//! `--data DIR` names a folder with `miso_seconds_per_batch.csv` and `miso_trace_100.csv`; without it, small
//! tables beside this file stand in, and b is left out. `--seeds N` (default 5) sets the spread; `--learn` is the second pass:
//! speeds are learnt, not told. The policy's settings are the same in all suites. All figures are simulated.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at its first surprise")]

use std::path::PathBuf;

mod common;
#[path = "../gpus/mod.rs"]
mod gpus;
mod mixes;
mod online;
mod optimum;
mod speed;
mod trace;

use common::Options;

fn main() {
    let mut options = Options::default();
    let mut wanted: Vec<String> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--data" => options.data = arguments.next().map(PathBuf::from),
            "--seeds" => {
                options.seeds = arguments
                    .next()
                    .and_then(|n| n.parse().ok())
                    .unwrap_or(options.seeds)
            }
            "--learn" => options.settings.learn = true,
            other => wanted.push(other.to_owned()),
        }
    }
    let runs = |suite: &str| wanted.is_empty() || wanted.iter().any(|name| name == suite);
    if runs("a") {
        mixes::paper(&options);
    }
    if runs("b") {
        trace::miso(&options);
    }
    if runs("c") {
        mixes::batches(&options);
    }
    if runs("d") {
        online::loads(&options);
    }
    if runs("e") {
        mixes::adversarial(&options);
    }
    if runs("optimum") {
        optimum::distance(&options);
    }
    if runs("speed") {
        speed::large(&options);
    }
}
