//! The default policy against the proven optimum of small batches.

use std::time::Instant;

use migm_supervisor::whatif::{Gpu, Job, Workload, bounds, optimum};

use super::common::{Numbers, Options, a30s, a100s, goal, job, mean, run};

/// Batches of each kind.
const BATCHES: u64 = 200;

/// 6 to 10 jobs of random programs, or all of one; durations log-uniform from 30 to 600 s.
fn load(options: &Options, gpus: &[Gpu], kinds: &[Gpu], alike: bool, seed: u64) -> Workload {
    let speeds = options.speeds();
    let mut numbers = Numbers::new(seed);
    // The speeds are those of an A100; another kind's are carried over from them.
    let made = |work: f64, name: &str| {
        let mut found = job(name, 0.0, work, name, &speeds, kinds);
        found.speeds.drain(..kinds.len() - 1);
        found
    };
    let fits = |job: &Job| job.speeds[0].iter().any(|speed| *speed > 0.0);
    let names = speeds.workloads().into_iter();
    let names: Vec<&str> = names.filter(|name| fits(&made(1.0, name))).collect();
    let count = 6 + numbers.below(5);
    let one = names[numbers.below(names.len())];
    let mut jobs: Vec<Job> = Vec::new();
    while jobs.len() < count {
        let work = 30.0 * 20.0_f64.powf(numbers.unit());
        let drawn = names[numbers.below(names.len())];
        jobs.push(made(work, if alike { one } else { drawn }));
    }
    Workload {
        gpus: gpus.to_vec(),
        jobs,
        batch: true,
    }
}

pub fn distance(options: &Options) {
    println!(
        "\n(optimum) {BATCHES} batches of 6 to 10 jobs: makespan over the proven optimum, mean and worst"
    );
    let a100 = a100s(1);
    let a30 = a30s(1);
    let both: Vec<Gpu> = a100
        .iter()
        .cloned()
        .chain(a30.iter().map(|gpu| Gpu {
            kind: 1,
            ..gpu.clone()
        }))
        .collect();
    for (what, gpus, kinds, alike) in [
        ("A100", &a100, &a100, false),
        ("A100, jobs of one program", &a100, &a100, true),
        ("A30", &a30, &both, false),
        ("two A100", &a100s(2), &a100, false),
    ] {
        let policies = ["migm", "far", "scheme-b"];
        let mut over: [Vec<f64>; 3] = Default::default();
        let (mut bound, mut seconds) = (Vec::new(), Vec::new());
        let mut open = 0;
        for seed in 1..=BATCHES {
            let load = load(options, gpus, kinds, alike, seed);
            let began = Instant::now();
            let found = optimum::search(&load, &options.settings, optimum::NODES).unwrap();
            seconds.push(began.elapsed().as_secs_f64());
            if !found.proven {
                open += 1;
                continue;
            }
            for (over, policy) in over.iter_mut().zip(policies) {
                over.push(run(policy, &load, &options.settings).makespan / found.makespan);
            }
            bound.push(bounds::makespan(&load).unwrap() / found.makespan);
        }
        let worst = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let average = |of: &[f64]| mean(of.iter().copied());
        let figures = policies.iter().zip(&over);
        let figures: Vec<String> = figures
            .map(|(policy, of)| format!("{policy} {:.3} {:.3}", average(of), worst(of)))
            .collect();
        println!(
            "  {what}: {}; lower bound {:.3} mean",
            figures.join(", "),
            average(&bound)
        );
        goal(
            &format!("{what}: all proven within {} nodes", optimum::NODES),
            open == 0,
            &format!(
                "{open} not; {:.3} s mean, {:.3} s worst",
                average(&seconds),
                worst(&seconds)
            ),
        );
    }
}
