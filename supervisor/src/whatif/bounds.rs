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
//! fastest slice, or the longest chain of jobs that come one after the other: the linear program knows nothing of these.

use std::collections::BTreeMap;

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::Workload;
use super::search::full_layouts;

/// The larger of the linear program's value and the longest job or chain of jobs, in seconds from the first arrival; `None`
/// when some job fits no GPU.
#[must_use]
pub fn makespan(load: &Workload) -> Option<f64> {
    let start = load.start();
    let mut fastest_times = Vec::with_capacity(load.jobs.len());
    for job in &load.jobs {
        let fastest = load
            .gpus
            .iter()
            .flat_map(|gpu| job.speeds[gpu.kind].iter().copied())
            .fold(0.0, f64::max);
        if fastest <= 0.0 {
            return None;
        }
        fastest_times.push(job.work / fastest);
    }
    let longest = longest_chain(load, start, &fastest_times);
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

/// The earliest end of the last job, each beginning when it has arrived and those before it have ended, on its fastest
/// slice: `seconds` of each job.
fn longest_chain(load: &Workload, start: f64, seconds: &[f64]) -> f64 {
    let mut ends: Vec<f64> = load
        .jobs
        .iter()
        .zip(seconds)
        .map(|(job, seconds)| job.arrival - start + seconds)
        .collect();
    // As often as the longest chain has links; without chains once.
    for _ in 0..load.jobs.len() {
        let mut changed = false;
        for (index, job) in load.jobs.iter().enumerate() {
            let before = job
                .after
                .iter()
                .map(|before| ends[before.job])
                .fold(0.0, f64::max);
            if before + seconds[index] > ends[index] {
                ends[index] = before + seconds[index];
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    ends.into_iter().fold(0.0, f64::max)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Gpu, Job, Run, Settings, parameters::Power, simulate};
    use super::*;
    use crate::layout::samples;

    fn load(gpus: usize, jobs: &[(f64, [f64; 5])]) -> Workload {
        let gpu = Gpu {
            table: Arc::new(samples::a100_base()),
            kind: 0,
            power: Power::A100,
        };
        let job = |(work, speeds): &(f64, [f64; 5])| Job::plain(*work, speeds);
        Workload {
            gpus: vec![gpu; gpus],
            jobs: jobs.iter().map(job).collect(),
            batch: true,
        }
    }

    #[test]
    fn seven_slices_do_seven_jobs_at_once_and_no_more() {
        let close = |load: &Workload, wanted: f64| {
            let bound = makespan(load).unwrap();
            assert!((bound - wanted).abs() < 1e-6, "{bound} for {wanted}");
        };
        close(&load(1, &[(100.0, [1.0; 5]); 7]), 100.0);
        close(&load(1, &[(100.0, [1.0; 5]); 21]), 300.0);
        close(&load(3, &[(100.0, [1.0; 5]); 21]), 100.0);
        // Nothing gained by slices: one after the other.
        let whole = [1.0 / 7.0, 2.0 / 7.0, 3.0 / 7.0, 4.0 / 7.0, 1.0];
        close(&load(1, &[(100.0, whole); 4]), 400.0);
    }

    #[test]
    fn jobs_after_others_arrive_at_their_end_and_the_bound_is_their_chain() {
        use super::super::Before;
        let mut load = load(1, &[(100.0, [1.0; 5]); 4]);
        for (job, before) in [(1, 0), (3, 1)] {
            load.jobs[job].after.push(Before {
                job: before,
                any: false,
            });
        }
        // The file's order is no chain's order.
        load.jobs[0].after.push(Before { job: 2, any: true });
        assert_eq!(makespan(&load), Some(400.0));
        let settings = Settings::default();
        for policy in ["sequential", "scheme-b", "migm"] {
            let run = Run::named(policy, &load, &settings).unwrap();
            let outcome = simulate(&load, run, &settings, false);
            let start = |job: usize| {
                outcome
                    .attempts
                    .iter()
                    .find(|attempt| attempt.job == job)
                    .unwrap()
                    .start
            };
            let end = |job: usize| {
                outcome
                    .attempts
                    .iter()
                    .find(|attempt| attempt.job == job)
                    .unwrap()
                    .end
            };
            for (before, after) in [(2, 0), (0, 1), (1, 3)] {
                assert!(end(before) <= start(after), "{policy}: {after} after {before}");
            }
            assert!(outcome.makespan >= 400.0, "{policy}");
            // Their time counts from the end of those before them.
            assert!(
                outcome.completions.iter().all(|seconds| *seconds < 110.0),
                "{policy}"
            );
        }
    }

    #[test]
    fn what_comes_after_a_job_that_fits_nowhere_is_refused_with_it_or_not() {
        use super::super::Before;
        let mut load = load(
            1,
            &[
                (10.0, [0.0; 5]),
                (10.0, [1.0; 5]),
                (10.0, [1.0; 5]),
                (10.0, [1.0; 5]),
            ],
        );
        load.jobs[0].told = 1 << 50;
        for (job, before, any) in [(1, 0, false), (2, 1, false), (3, 0, true)] {
            load.jobs[job].after.push(Before { job: before, any });
        }
        let settings = Settings::default();
        let run = Run::named("scheme-b", &load, &settings).unwrap();
        let mut outcome = simulate(&load, run, &settings, false);
        outcome.refused.sort_unstable();
        assert_eq!(outcome.refused, [0, 1, 2]);
        assert!(outcome.completions[3].is_finite());
    }

    #[test]
    fn the_grid_counts_and_not_only_the_compute_slices() {
        // Two 3g fill the grid of eight, though one compute slice is left.
        let only_3g = [0.0, 0.0, 1.0, 0.0, 0.0];
        let bound = makespan(&load(1, &[(100.0, only_3g); 6])).unwrap();
        assert!((bound - 300.0).abs() < 1e-6, "{bound}");
    }

    #[test]
    fn a_job_that_fits_nowhere_has_no_bound() {
        assert_eq!(makespan(&load(1, &[(1.0, [0.0; 5])])), None);
    }

    #[test]
    fn no_policy_beats_the_bound_and_all_end() {
        let speeds = [
            [0.3, 0.5, 0.7, 0.8, 1.0],
            [0.9, 0.95, 1.0, 1.0, 1.0],
            [0.0, 0.0, 0.5, 0.6, 1.0],
        ];
        let jobs: Vec<(f64, [f64; 5])> = (0..12_u32)
            .map(|index| (20.0 + 13.0 * f64::from(index), speeds[(index % 3) as usize]))
            .collect();
        let load = load(2, &jobs);
        let bound = makespan(&load).unwrap();
        let settings = Settings {
            search: 300,
            ..Settings::default()
        };
        for policy in [
            "sequential",
            "static:7g",
            "best-static",
            "scheme-a",
            "far",
            "mfi",
            "miso",
            "migm",
        ] {
            let outcome = simulate(
                &load,
                Run::named(policy, &load, &settings).unwrap(),
                &settings,
                false,
            );
            assert!(
                outcome.completions.iter().all(|seconds| seconds.is_finite()),
                "{policy}: all end"
            );
            assert!(
                outcome.makespan >= bound - 1e-9,
                "{policy}: {} below {bound}",
                outcome.makespan
            );
        }
    }
}
