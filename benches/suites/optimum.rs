//! The default policy against the proven optimum of small batches.

use std::time::Instant;

use migm_supervisor::whatif::{Gpu, Job, Workload, bounds, optimum};

use super::common::{Numbers, Options, a30s, a100s, goal, job, mean, run};

/// Batches of each kind.
const BATCHES: u64 = 200;

/// 6 to 10 jobs of random programs, durations log-uniform from 30 to 600 s.
fn load(options: &Options, gpus: Vec<Gpu>, kinds: &[Gpu], seed: u64) -> Workload {
    let speeds = options.speeds();
    let names: Vec<String> = speeds.workloads().into_iter().map(str::to_owned).collect();
    let mut numbers = Numbers::new(seed);
    let count = 6 + numbers.below(5);
    let mut jobs: Vec<Job> = Vec::new();
    while jobs.len() < count {
        let work = 30.0 * 20.0_f64.powf(numbers.unit());
        let name = &names[numbers.below(names.len())];
        let mut found = job(&jobs.len().to_string(), 0.0, work, name, &speeds, kinds);
        // The speeds are those of an A100; another kind's are carried over.
        found.speeds.drain(..kinds.len() - 1);
        if found.speeds[0].iter().any(|speed| *speed > 0.0) {
            jobs.push(found);
        }
    }
    Workload {
        gpus,
        jobs,
        batch: true,
    }
}

pub fn distance(options: &Options) {
    println!("\n(optimum) {BATCHES} batches of 6 to 10 jobs on one GPU: makespan over the proven optimum");
    let a100 = a100s(1);
    let both: Vec<Gpu> = a100
        .iter()
        .cloned()
        .chain(a30s(1).into_iter().map(|gpu| Gpu { kind: 1, ..gpu }))
        .collect();
    for (what, gpus, kinds) in [("A100", a100s(1), a100), ("A30", a30s(1), both)] {
        let (mut ours, mut fars, mut bound, mut seconds) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut open = 0;
        for seed in 1..=BATCHES {
            let load = load(options, gpus.clone(), &kinds, seed);
            let began = Instant::now();
            let found = optimum::search(&load, optimum::NODES).unwrap();
            seconds.push(began.elapsed().as_secs_f64());
                    seconds.last().unwrap()
                );
            }
            if !found.proven {
                open += 1;
                continue;
            }
            ours.push(run("migm", &load, &options.settings).makespan / found.makespan);
            fars.push(run("far", &load, &options.settings).makespan / found.makespan);
            bound.push(bounds::makespan(&load).unwrap() / found.makespan);
        }
        let worst = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let line = |of: &[f64]| format!("{:.4} mean, {:.3} worst", mean(of.iter().copied()), worst(of));
        println!(
            "  {what}: migm {}; far {}; linear program {:.3} mean",
            line(&ours),
            line(&fars),
            mean(bound.iter().copied())
        );
        goal(
            &format!("{what}: proven within {} nodes", optimum::NODES),
            open == 0,
            &format!(
                "{open} not; {:.2} s mean, {:.2} s worst",
                mean(seconds.iter().copied()),
                worst(&seconds)
            ),
        );
    }
}
