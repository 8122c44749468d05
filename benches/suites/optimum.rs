//! The default policy against the proven optimum of small batches.

use migm_supervisor::whatif::{Gpu, Job, Workload, bounds, optimum};
use rand::RngExt;

use super::common::{Options, cpu, goal, gpus, mean, most, numbers, run};
use super::loads::{any, batch, names, trained};

/// Batches of each kind.
const BATCHES: u64 = 200;

/// 6 to 10 jobs of random programs, or all of one; durations log-uniform from 30 to 600 s.
fn load(options: &Options, node: &[Gpu], alike: bool, seed: u64) -> Workload {
    let speeds = options.speeds();
    let mut numbers = numbers(seed);
    let made = |work: f64, name: &str| trained(0, 0.0, work, name, &speeds, node);
    let fits = |job: &Job| job.speeds[0].iter().any(|speed| *speed > 0.0);
    let mut names = names(&speeds);
    names.retain(|name| fits(&made(1.0, name)));
    let count = numbers.random_range(6..=10);
    let one = any(&names, &mut numbers);
    let jobs: Vec<Job> = (0..count)
        .map(|_| {
            let work = 30.0 * 20.0_f64.powf(numbers.random());
            let drawn = any(&names, &mut numbers);
            made(work, if alike { one } else { drawn })
        })
        .collect();
    batch(node.to_vec(), jobs)
}

pub fn distance(options: &Options) {
    println!(
        "\n(optimum) {BATCHES} batches of 6 to 10 jobs: makespan over the proven optimum, mean and worst"
    );
    for (what, node, alike) in [
        ("A100", gpus("a100-40gb", 1), false),
        ("A100, jobs of one program", gpus("a100-40gb", 1), true),
        ("A30", gpus("a30-24gb", 1), false),
        ("two A100", gpus("a100-40gb", 2), false),
    ] {
        let policies = ["migm", "far", "scheme-b"];
        let mut over: [Vec<f64>; 3] = Default::default();
        let (mut bound, mut seconds) = (Vec::new(), Vec::new());
        let mut open = 0;
        for seed in 1..=BATCHES {
            let load = load(options, &node, alike, seed);
            let began = cpu();
            let found = optimum::search(&load, &options.settings, optimum::NODES).unwrap();
            seconds.push(cpu() - began);
            if !found.proven {
                open += 1;
                continue;
            }
            for (over, policy) in over.iter_mut().zip(policies) {
                over.push(run(policy, &load, &options.settings).makespan / found.makespan);
            }
            bound.push(bounds::makespan(&load).unwrap() / found.makespan);
        }
        let average = |of: &[f64]| mean(of.iter().copied());
        let figures = policies.iter().zip(&over);
        let figures: Vec<String> = figures
            .map(|(policy, of)| format!("{policy} {:.3} {:.3}", average(of), most(of)))
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
                most(&seconds)
            ),
        );
    }
}
