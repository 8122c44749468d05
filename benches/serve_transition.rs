//! Transitions between serving plans: whether any service ever gets less than it must, and what the steps cost beside
//! MIG-serving's exchange and compact, done one after the other.
//!
//! `cargo bench --bench serve_transition` runs 10,000 random pairs of deployments (`-- --pairs N` for another number)
//! and a day of five models, about the size of MIG-serving's, on the carried profiles; the demand curve is made up. Steps' times are MIG-serving's; all seconds of
//! transitions are modelled. Seeds are fixed, so that figures do not change from run to run.

mod gpus;
mod random;

use std::time::Instant;

use migm_supervisor::layout::{Rules, Slot, Table};
use migm_supervisor::serve::methods::{Effort, METHODS};
use migm_supervisor::serve::transition::{
    Options, Step, Transition, exchange_and_compact, replay, transition,
};
use migm_supervisor::serve::{
    DeployedGpu, DeployedSlice, Deployment, Fleet, Problem, Profiles, Rate, Served, Tables, Usable, follow,
    parse_demand,
};

use random::Random;

const KIND: &str = "a100-40gb";
const PROFILES: &str = include_str!("../examples/serving/migserving_profiles.csv");
/// Share of the peak that is asked for in each hour: low at night, two peaks by day.
const DAY: [f64; 24] = [
    0.42, 0.36, 0.32, 0.30, 0.31, 0.35, 0.44, 0.58, 0.74, 0.88, 0.96, 0.99, 0.95, 0.90, 0.88, 0.90, 0.93,
    0.96, 1.0, 0.99, 0.92, 0.79, 0.64, 0.52,
];
/// Models and their peak, requests per second; each at 100 ms.
const MODELS: [(&str, f64); 5] = [
    ("pytorch/roberta-large", 800.0),
    ("pytorch/bert-base-uncased", 4300.0),
    ("pytorch/albert-large-v2", 1300.0),
    ("pytorch/resnet50", 16000.0),
    ("pytorch/densenet121", 8000.0),
];

fn tables() -> Tables {
    let table = Table::build(gpus::a100_plain(), Rules::default()).expect("a table");
    Tables::from([(KIND.to_owned(), table)])
}

/// Up to twelve GPUs, each cut by any layout, each slice with one of six services or none; each service requires a
/// share of what it gets.
fn drawn(random: &mut Random, table: &Table, layouts: &[Vec<Slot>], most: usize) -> Deployment {
    let mut deployment = Deployment::default();
    for _ in 0..=random.below(most) {
        let slices = layouts[random.below(layouts.len())]
            .iter()
            .filter_map(|&(profile, placement)| {
                let service = random.below(7);
                let profile = table.profile(profile);
                let compute = i64::from(profile.compute);
                (service < 6).then(|| DeployedSlice {
                    placement,
                    profile: profile.name.clone(),
                    service: format!("s{service}"),
                    batch: 1,
                    processes: 1,
                    // What a slice serves grows less than it does, for some services less than for others.
                    rate: Rate(
                        compute * (10_000_000 - compute * 100_000 * i64::try_from(service).unwrap_or(0)),
                    ),
                })
            });
        let mut slices: Vec<DeployedSlice> = slices.collect();
        slices.sort();
        if !slices.is_empty() {
            deployment.gpus.push(DeployedGpu {
                kind: KIND.to_owned(),
                slices,
            });
        }
    }
    for service in 0..6 {
        let name = format!("s{service}");
        let served = deployment.served(&name);
        if served.0 > 0 {
            let share = 30 + i64::try_from(random.below(71)).unwrap_or(0);
            deployment.services.push(Served {
                name,
                required: Rate(served.0 * share / 100),
            });
        }
    }
    deployment
}

fn length(step: &Step) -> u64 {
    step.end_ms - step.start_ms
}

/// Plays a transition and returns it with its worst satisfaction, its makespan, and the extra GPUs it used.
fn play(from: &Deployment, to: &Deployment, tables: &Tables, options: &Options) -> (Transition, f64, f64) {
    let found = transition(from, to, tables, options).expect("a transition");
    let seen = replay(&found, length).unwrap_or_else(|broken| panic!("{broken}"));
    let seconds = seen.makespan_ms as f64 / 1e3;
    (found, seen.min_satisfaction, seconds)
}

fn pairs(tables: &Tables, count: usize) {
    let table = &tables[KIND];
    let layouts: Vec<Vec<Slot>> = table.layouts().collect();
    let mut random = Random(1);
    let options = Options::default();
    let (mut worst, mut worst_jittered) = (f64::INFINITY, f64::INFINITY);
    let (mut steps, mut extra, mut longest) = (0, 0, 0.0_f64);
    let (mut sum_ours, mut sum_serial, mut serial_steps, mut serial_extra) = (0.0, 0.0, 0, 0);
    let began = Instant::now();
    for _ in 0..count {
        let from = drawn(&mut random, table, &layouts, 12);
        let to = drawn(&mut random, table, &layouts, 12);
        let (found, least, seconds) = play(&from, &to, tables, &options);
        worst = worst.min(least);
        // Once more with each step's time drawn on its own: order alone must keep the floors.
        let lengths: Vec<u64> = found
            .steps
            .iter()
            .map(|_| 1 + random.below(100_000) as u64)
            .collect();
        let drawn_length = |step: &Step| {
            let at = found
                .steps
                .iter()
                .position(|own| std::ptr::eq(own, step))
                .expect("its step");
            lengths[at]
        };
        let seen = replay(&found, drawn_length).unwrap_or_else(|broken| panic!("{broken}"));
        worst_jittered = worst_jittered.min(seen.min_satisfaction);
        steps += found.steps.len();
        extra += found.extra_gpus();
        longest = longest.max(seconds);
        sum_ours += seconds;
        let serial = exchange_and_compact(&found.stage, options.times);
        sum_serial += serial.makespan_ms as f64 / 1e3;
        serial_steps += serial.steps();
        serial_extra += serial.extra_gpus;
    }
    println!(
        "{count} random pairs of up to 12 GPUs, seed 1: worst satisfaction {worst:.6}, with drawn step times \
         {worst_jittered:.6} (1 or more: no service ever below its floor)"
    );
    let mean = |sum: f64| sum / count as f64;
    println!(
        "  mean: {:.1} steps, {:.2} extra GPUs, {:.0} s (longest {longest:.0} s); exchange and compact, serial: {:.1} steps, \
         {:.2} extra GPUs, {:.0} s",
        mean(f64::from(u32::try_from(steps).unwrap_or(0))),
        mean(extra as f64),
        mean(sum_ours),
        mean(serial_steps as f64),
        mean(serial_extra as f64),
        mean(sum_serial)
    );
    println!(
        "  {:.2} ms a pair with its checks, measured",
        began.elapsed().as_secs_f64() * 1e3 / count as f64
    );
}

fn problem(tables: &Tables, share: f64) -> Problem {
    let profiles = Profiles::parse("profiles", PROFILES, None).expect("profiles");
    let mut demand = "model,required_rps,slo_latency_ms\n".to_owned();
    for (index, (model, peak)) in MODELS.iter().enumerate() {
        // Models do not peak together.
        let own = share * (1.0 - 0.06 * index as f64);
        demand.push_str(&format!("{model},{:.1},100\n", peak * own));
    }
    let rows = parse_demand("demand", &demand).expect("a demand");
    let mut fleet = Fleet::default();
    fleet.add(KIND, &tables[KIND], 1.0, None).expect("a fleet");
    Problem::new(fleet, &profiles, "demand", &rows, &Usable::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn effort<'a>() -> Effort<'a> {
    Effort {
        seed: 1,
        late: &|| false,
    }
}

fn fresh(tables: &Tables, share: f64) -> Deployment {
    let problem = problem(tables, share);
    let solution = METHODS[0].solve(&problem, &effort()).expect("a plan");
    Deployment::of(&solution.plan, &problem)
}

fn day_and_night(tables: &Tables) {
    let (day, night) = (fresh(tables, 1.0), fresh(tables, 0.3));
    println!(
        "\nDay ({} GPUs) and night ({} GPUs), plans made apart",
        day.gpus.len(),
        night.gpus.len()
    );
    println!(
        "{:14} {:>10} {:>6} {:>6} {:>8} {:>9} | {:>6} {:>6} {:>8} | {:>12}",
        "", "most extra", "steps", "extra", "s", "worst", "serial", "extra", "s", "serial/ours"
    );
    for (name, from, to) in [("day to night", &day, &night), ("night to day", &night, &day)] {
        for most in [None, Some(0)] {
            let options = Options {
                max_extra_gpus: most,
                ..Options::default()
            };
            let (found, least, seconds) = play(from, to, tables, &options);
            let serial = exchange_and_compact(&found.stage, options.times);
            let serial_s = serial.makespan_ms as f64 / 1e3;
            println!(
                "{name:14} {:>10} {:6} {:6} {seconds:8.1} {least:9.4} | {:6} {:6} {serial_s:8.1} | {:12.2}",
                most.map_or_else(|| "any".to_owned(), |most| most.to_string()),
                found.steps.len(),
                found.extra_gpus(),
                serial.steps(),
                serial.extra_gpus,
                serial_s / seconds
            );
        }
    }
}

fn curve(tables: &Tables) {
    println!("\nA day, hour by hour, each plan made beside the one before; --keep in GPUs a step");
    println!(
        "{:>10} {:>9} {:>7} {:>7} {:>11} {:>9} | {:>12} {:>12}",
        "keep", "GPU hours", "steps", "extra", "transit. s", "worst", "serial steps", "serial s"
    );
    for keep in [None, Some(0.0), Some(0.02), Some(0.05), Some(0.2), Some(1.0)] {
        let mut current = fresh(tables, DAY[23]);
        let (mut hours, mut steps, mut extra, mut seconds) = (0, 0, 0, 0.0);
        let (mut worst, mut serial_steps, mut serial_ms) = (f64::INFINITY, 0, 0);
        for share in DAY {
            let next = match keep {
                None => fresh(tables, share),
                Some(keep) => {
                    let problem = problem(tables, share);
                    let followed =
                        follow(&problem, &current, tables, METHODS[0], &effort(), keep).expect("a plan");
                    Deployment::of(&followed.solution.plan, &problem)
                }
            };
            let (found, least, took) = play(&current, &next, tables, &Options::default());
            let serial = exchange_and_compact(&found.stage, Options::default().times);
            hours += next.gpus.len();
            steps += found.steps.len();
            extra += found.extra_gpus();
            seconds += took;
            worst = worst.min(least);
            serial_steps += serial.steps();
            serial_ms += serial.makespan_ms;
            current = next;
        }
        println!(
            "{:>10} {hours:9} {steps:7} {extra:7} {seconds:11.0} {worst:9.4} | {serial_steps:12} {:12.0}",
            keep.map_or_else(|| "made anew".to_owned(), |keep| keep.to_string()),
            serial_ms as f64 / 1e3
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let at = words.iter().position(|word| word == "--pairs");
    let count = at
        .and_then(|at| words.get(at + 1)?.parse().ok())
        .unwrap_or(10_000);
    let tables = tables();
    pairs(&tables, count);
    day_and_night(&tables);
    curve(&tables);
}
