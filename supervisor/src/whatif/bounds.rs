//! What no schedule can beat: lower bounds of the makespan.
//!
//! Whatever a schedule does, each GPU is in one layout at any time. With y_L the time that all GPUs together
//! spend in layout L and x_jp the time that job j spends on profile p, every schedule satisfies
//!
//! - sum over L of y_L <= G T: there are G GPUs for T seconds;
//! - sum over j of x_jp <= sum over L of n_Lp y_L: a layout offers n_Lp slices of profile p;
//! - sum over p of s_jp x_jp >= w_j: the work gets done;
//! - sum over p of x_jp <= T: a job is in one place at a time.
//!
//! The least T of this linear program holds also for schedules that move jobs for nothing. Jobs of equal
//! speeds are taken together in the third line, and the fourth is then replaced by the longest job on its
//! fastest slice.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::Workload;
use super::search::full_layouts;

/// The larger of the linear program's value and the longest job, in seconds from the first arrival; `None`
/// when some job fits no GPU.
#[must_use]
pub fn makespan(load: &Workload) -> Option<f64> {
    let start = load.start();
    let mut longest = 0.0_f64;
    for job in &load.jobs {
        let fastest = load
            .gpus
            .iter()
            .flat_map(|gpu| job.speeds[gpu.kind].iter().copied())
            .fold(0.0, f64::max);
        if fastest <= 0.0 {
            return None;
        }
        longest = longest.max(job.arrival - start + job.work / fastest);
    }
    // With arrivals, all work that comes from some time on must be done after it.
    let mut best = longest;
    let mut cuts: Vec<f64> = load.jobs.iter().map(|job| job.arrival - start).collect();
    cuts.sort_by(f64::total_cmp);
    cuts.dedup();
    let step = cuts.len().div_ceil(8);
    for cut in cuts.into_iter().step_by(step.max(1)) {
        best = best.max(cut + least(load, start + cut)?);
    }
    Some(best)
}

/// The linear program over the jobs that arrive at `from` or later.
fn least(load: &Workload, from: f64) -> Option<f64> {
    let mut kinds: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for (index, gpu) in load.gpus.iter().enumerate() {
        kinds.entry(gpu.kind).or_insert((0.0, index)).0 += 1.0;
    }
    // Work by equal speeds; the key is the speeds' bits.
    let mut classes: BTreeMap<Vec<u64>, (usize, f64)> = BTreeMap::new();
    for (index, job) in load
        .jobs
        .iter()
        .enumerate()
        .filter(|(_, job)| job.arrival >= from)
    {
        let key = job
            .speeds
            .iter()
            .flat_map(|speeds| speeds.iter().map(|speed| speed.to_bits()));
        classes.entry(key.collect()).or_insert((index, 0.0)).1 += job.work;
    }
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let time = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut done: Vec<Vec<(microlp::Variable, f64)>> = vec![Vec::new(); classes.len()];
    for (&kind, &(count, example)) in &kinds {
        let table = &load.gpus[example].table;
        let profiles = table.profiles().len();
        let mut offered: Vec<Vec<(microlp::Variable, f64)>> = vec![Vec::new(); profiles];
        let mut spent = vec![(time, -count)];
        for layout in full_layouts(table) {
            let in_layout = problem.add_var(0.0, (0.0, f64::INFINITY));
            spent.push((in_layout, 1.0));
            for (profile, offers) in offered.iter_mut().enumerate() {
                let slices = layout.iter().filter(|slot| slot.0.0 == profile).count();
                if slices > 0 {
                    offers.push((in_layout, -(u32::try_from(slices).map_or(0.0, f64::from))));
                }
            }
        }
        problem.add_constraint(&spent, ComparisonOp::Le, 0.0);
        for (class, (job, _)) in classes.values().enumerate() {
            for (profile, offers) in offered.iter_mut().enumerate() {
                let speed = load.jobs[*job].speeds[kind][profile];
                if speed > 0.0 {
                    let on = problem.add_var(0.0, (0.0, f64::INFINITY));
                    offers.push((on, 1.0));
                    done[class].push((on, speed));
                }
            }
        }
        for offers in &offered {
            problem.add_constraint(offers, ComparisonOp::Le, 0.0);
        }
    }
    for (terms, (_, work)) in done.iter().zip(classes.values()) {
        problem.add_constraint(terms, ComparisonOp::Ge, *work);
    }
    match problem.solve().ok()? {
        microlp::SolveOutcome::Solution(solution) => Some(solution.objective()),
        microlp::SolveOutcome::Interrupted(_) => None,
    }
}
