//! Suite d: jobs that come one by one.

use migm_supervisor::whatif::Workload;

use super::common::{Numbers, Options, a100s, compare, goal, job};

const GPUS: usize = 4;
const JOBS: usize = 150;

/// Poisson arrivals at a part of what the GPUs unpartitioned can do; durations log-uniform from 60 s to 2 h.
fn load(options: &Options, load: f64, seed: u64) -> Workload {
    let gpus = a100s(GPUS);
    let speeds = options.speeds();
    let names: Vec<String> = speeds.workloads().into_iter().map(str::to_owned).collect();
    let mut numbers = Numbers::new(seed);
    let mean_work = (7200.0 - 60.0) / (7200.0_f64 / 60.0).ln();
    let gap = mean_work / (load * 4.0);
    let mut now = 0.0;
    let jobs = (0..JOBS).map(|index| {
        now -= gap * numbers.unit().ln();
        let work = 60.0 * 120.0_f64.powf(numbers.unit());
        let workload = &names[numbers.below(names.len())];
        job(&index.to_string(), now, work, workload, &speeds, &gpus)
    });
    Workload {
        jobs: jobs.collect(),
        gpus,
        batch: false,
    }
}

pub fn loads(options: &Options) {
    let policies = ["sequential", "best-static", "scheme-b", "mfi", "miso", "migm"];
    for part in [0.3, 0.5, 0.7, 0.8, 0.9, 0.95] {
        let title = format!("(d) load {part} of {GPUS} GPUs unpartitioned, {JOBS} jobs");
        let outcomes = compare(&title, options, &policies, |seed| load(options, part, seed));
        let ours = outcomes.last().unwrap();
        for (at, name) in policies.iter().enumerate().take(3) {
            let worst = ours
                .iter()
                .zip(&outcomes[at])
                .map(|(ours, other)| ours.mean_completion / other.mean_completion);
            let worst = worst.fold(0.0, f64::max);
            goal(
                &format!("mean completion over {name}, worst seed"),
                worst <= 1.0,
                &format!("{worst:.3}"),
            );
        }
    }
}
