//! How fast the simulation and one decision are.

use std::time::Instant;

use migm_supervisor::whatif::{Job, Settings, Workload};

use super::common::{Options, cpu, decisions, goal, gpus, numbers};
use super::loads::{any, batch, hours, names, pause, trained};

fn load(options: &Options, jobs: usize, count: usize, gap: f64) -> Workload {
    let node = gpus(&options.gpu, count);
    let speeds = options.speeds();
    let names = names(&speeds);
    let mut numbers = numbers(7);
    let mut now = 0.0;
    let jobs: Vec<Job> = (0..jobs)
        .map(|index| {
            now += pause(&mut numbers, gap);
            let work = hours(&mut numbers);
            trained(index, now, work, any(&names, &mut numbers), &speeds, &node)
        })
        .collect();
    Workload {
        batch: false,
        ..batch(node, jobs)
    }
}

/// CPU microseconds of each decision with at least `least` jobs waiting. The decisions of all runs are the same: of
/// each, the least time counts, which is what it takes when nothing else disturbs the machine.
fn micros(load: &Workload, settings: &Settings, least: usize, runs: usize) -> Vec<f64> {
    let mut best: Vec<f64> = Vec::new();
    for _ in 0..runs {
        let mut at = 0;
        decisions(load, settings, &mut |took, waiting, _| {
            if waiting < least {
                return;
            }
            match best.get_mut(at) {
                Some(known) => *known = known.min(took * 1e6),
                None => best.push(took * 1e6),
            }
            at += 1;
        });
    }
    best.sort_by(f64::total_cmp);
    best
}

pub fn large(options: &Options) {
    println!("\n(speed) measured, in CPU time of the thread");
    let settings = options.settings;
    for (what, gap) in [
        ("load about 1 of the GPUs unpartitioned", 23.0),
        ("twice that", 11.5),
    ] {
        let many = load(options, 10_000, 64, gap);
        let (began, before) = (Instant::now(), cpu());
        let outcome = decisions(&many, &settings, &mut |_, _, _| {});
        let (wall, seconds) = (began.elapsed().as_secs_f64(), cpu() - before);
        let ended = outcome.completions.iter().filter(|seconds| seconds.is_finite());
        assert_eq!(ended.count(), many.jobs.len());
        goal(
            &format!("10,000 jobs on 64 GPUs in 10 s, {what}"),
            seconds <= 10.0,
            &format!("{seconds:.1} s, {wall:.1} s on the wall"),
        );
    }
    for count in [4, 8, 64] {
        // All come within seconds: a thousand wait for most of the run.
        let waiting = load(options, 1_400, count, 0.001);
        // What a search may take for jobs that come one by one, where few enough wait for one.
        let none = Settings {
            search: 0,
            ..settings
        };
        for (what, settings, budget) in [("no search", none, 100.0), ("search as set", settings, 1_000.0)] {
            let micros = micros(&waiting, &settings, 1_000, 5);
            let at = |part: usize| micros[micros.len() * part / 100];
            let figure = format!(
                "median {:.0} us, 99 % {:.0} us, most {:.0} us of {} decisions",
                at(50),
                at(99),
                micros[micros.len() - 1],
                micros.len()
            );
            goal(
                &format!("one decision with 1,000 waiting for {count} GPUs in {budget} us, {what}"),
                at(99) <= budget,
                &figure,
            );
        }
    }
}
