//! How fast the simulation and one decision are.

use std::time::Instant;

use migm_supervisor::schedule::Event;
use migm_supervisor::whatif::{Run, Settings, Workload, simulate_watched};
use nix::time::{ClockId, clock_gettime};

use super::common::{Numbers, Options, a100s, goal, job};

fn load(options: &Options, jobs: usize, gpus: usize, gap: f64) -> Workload {
    let gpus = a100s(gpus);
    let speeds = options.speeds();
    let names: Vec<String> = speeds.workloads().into_iter().map(str::to_owned).collect();
    let mut numbers = Numbers::new(7);
    let mut now = 0.0;
    let jobs = (0..jobs).map(|index| {
        now -= gap * numbers.unit().ln();
        let work = 60.0 * 120.0_f64.powf(numbers.unit());
        job(
            &index.to_string(),
            now,
            work,
            &names[numbers.below(names.len())],
            &speeds,
            &gpus,
        )
    });
    Workload {
        jobs: jobs.collect(),
        gpus,
        batch: false,
    }
}

/// Seconds of this thread on a CPU: on a busy machine the wall clock shows the others' work too.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a few seconds")]
    let seconds = time.tv_sec() as f64 + time.tv_nsec() as f64 * 1e-9;
    seconds
}

/// Wall seconds of the whole and CPU microseconds of each decision with at least `least` jobs waiting.
fn time(load: &Workload, settings: &Settings, least: usize) -> (f64, Vec<f64>) {
    let mut micros = Vec::new();
    let mut waiting = 0_usize;
    let began = Instant::now();
    let run = Run::named("migm", load, settings).unwrap();
    let outcome = simulate_watched(load, run, settings, false, &mut |scheduler, now, event| {
        let decides = matches!(event, Event::Settled);
        let began = cpu();
        let actions = scheduler.step(now, event);
        let took = (cpu() - began) * 1e6;
        if decides {
            if waiting >= least {
                micros.push(took);
            }
            waiting = scheduler.waiting();
        }
        actions
    });
    assert_eq!(
        outcome
            .completions
            .iter()
            .filter(|seconds| seconds.is_finite())
            .count(),
        load.jobs.len()
    );
    (began.elapsed().as_secs_f64(), micros)
}

pub fn large(options: &Options) {
    println!("\nspeed (measured: the simulation in wall time, decisions in CPU time of their thread)");
    let settings = options.settings;
    for (what, gap) in [
        ("load about 1 of the GPUs unpartitioned", 23.0),
        ("twice that", 11.5),
    ] {
        let many = load(options, 10_000, 64, gap);
        let (seconds, _) = time(&many, &settings, usize::MAX);
        goal(
            &format!("10,000 jobs on 64 GPUs in 10 s, {what}"),
            seconds <= 10.0,
            &format!("{seconds:.1} s"),
        );
    }
    // All come within seconds: a thousand wait for most of the run.
    let waiting = load(options, 1_400, 8, 0.001);
    for (what, settings) in [
        (
            "no search",
            Settings {
                search: 0,
                ..settings
            },
        ),
        ("as set", settings),
    ] {
        let (_, mut micros) = time(&waiting, &settings, 1_000);
        micros.sort_by(f64::total_cmp);
        let at = |part: usize| micros[micros.len() * part / 100];
        let figure = format!(
            "median {:.0} us, 99 % {:.0} us of {} decisions",
            at(50),
            at(99),
            micros.len()
        );
        goal(
            &format!("one decision with 1,000 waiting, {what}"),
            at(99) <= 100.0,
            &figure,
        );
    }
}
