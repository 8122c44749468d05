//! How far the makespan of real processes is from what `migm simulate` says, for one mixed batch:
//!
//! ```text
//! cargo build --release && cargo bench --bench real_processes
//! ```
//!
//! Wall time in which other programs hold the machine counts as simulated time of the batch: run it on a quiet one.
#![expect(clippy::unwrap_used, reason = "a benchmark ends at its first surprise")]

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/twin.rs"]
mod twin;

use twin::{POLICIES, Twin, figure};

const RUNS: usize = 3;
/// The median of the runs is to be this close.
const APART: f64 = 0.05;

fn main() {
    let twin = Twin::new();
    println!(
        "makespan of real processes over that of migm simulate, {RUNS} runs; a start takes {:.2} simulated s\n",
        twin.start_up
    );
    println!("policy        simulated s   median   all");
    for policy in POLICIES {
        let simulated = figure(&twin.simulated(policy), "makespan_s");
        let mut ratios: Vec<f64> = (0..RUNS)
            .map(|_| figure(&twin.real(policy), "makespan_s") / simulated)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let median = ratios[RUNS / 2];
        let mark = if (median - 1.0).abs() <= APART {
            "ok"
        } else {
            "MISS"
        };
        println!("{policy:12}  {simulated:11.2}   {median:6.3}   {ratios:.3?}  {mark}");
    }
}
