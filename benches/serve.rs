//! The serving planner beside published methods: GPUs, time, and distance to the certified bound.
//!
//! `cargo bench --bench serve` uses the files of `examples/serving`; `-- --data DIR` the full tables they were
//! made from (`parvagpu_profiles.csv`, `parvagpu_scenarios.csv`, `migserving_profiles.csv`), and `-- --large` adds
//! 10,000 services. Times are wall times of one run; plans depend on the seeds only, which are printed.

mod gpus;
mod random;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use migm_supervisor::layout::{Rules, Table};
use migm_supervisor::serve::methods::{Effort, METHODS};
use migm_supervisor::serve::{Fleet, Problem, Profiles, Usable, linear_bound, parse_demand, price};

use random::Random;

/// Seconds for each method on each problem.
const LIMIT: f64 = 60.0;
/// Beyond so many services only migm's own method runs.
const ALL_METHODS: usize = 100;

/// Profiles and scenarios of ParvaGPU, profiles of MIG-serving.
struct Data {
    parva: Profiles,
    scenarios: Vec<String>,
    migserving: Profiles,
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

impl Data {
    fn carried() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/serving");
        let profiles = |name: &str| Profiles::parse(name, &text(&folder.join(name)), None).expect("profiles");
        Self {
            parva: profiles("parvagpu_profiles.csv"),
            scenarios: (1..=6)
                .map(|n| text(&folder.join(format!("parvagpu_{n}.csv"))))
                .collect(),
            migserving: profiles("migserving_profiles.csv"),
        }
    }

    fn full(folder: &Path) -> Self {
        let read = |name: &str| text(&folder.join(name));
        let parva = Profiles::parse("parvagpu_profiles.csv", &read("parvagpu_profiles.csv"), None);
        let mut scenarios: BTreeMap<String, String> = BTreeMap::new();
        for line in read("parvagpu_scenarios.csv").lines().skip(1) {
            let (number, row) = line.split_once(',').expect("a scenario");
            let demand = scenarios
                .entry(number.to_owned())
                .or_insert_with(|| "model,required_rps,slo_latency_ms\n".to_owned());
            let _ = writeln!(demand, "{row}");
        }
        let mut rows =
            "model,compute_slices,batch,mps_processes,throughput_per_process_rps,latency_p90_s\n".to_owned();
        for line in read("migserving_profiles.csv").lines().skip(1) {
            let field: Vec<&str> = line.split(',').collect();
            let seconds = field[5].parse::<f64>().expect("a latency") / 1e3;
            let (framework, model, batch, slices) = (field[0], field[1], field[2], field[3]);
            let _ = writeln!(
                rows,
                "{framework}/{model},{slices},{batch},1,{},{seconds:.6}",
                field[4]
            );
        }
        Self {
            parva: parva.expect("profiles"),
            scenarios: scenarios.into_values().collect(),
            migserving: Profiles::parse("migserving_profiles.csv", &rows, None).expect("profiles"),
        }
    }
}

/// Services with a drawn demand.
#[derive(Clone, Copy)]
struct Drawn {
    seed: u64,
    services: usize,
    lognormal: bool,
    /// Mean requests per second of a service.
    mean: f64,
}

impl Drawn {
    /// Models in turn; each limit is one of `limits`.
    fn demand(self, models: &[String], limits: &[u32]) -> String {
        let mut random = Random(self.seed);
        let mut demand = "service,model,required_rps,slo_latency_ms\n".to_owned();
        for index in 0..self.services {
            let normal = random.normal();
            let factor = if self.lognormal {
                // Sigma 0.8, and a mean of 1.
                (0.8 * normal - 0.32).exp()
            } else {
                (1.0 + 0.3 * normal).max(0.1)
            };
            let limit = limits[index / models.len() % limits.len()];
            let model = &models[index % models.len()];
            let _ = writeln!(demand, "s{index},{model},{:.2},{limit}", self.mean * factor);
        }
        demand
    }

    fn name(self) -> String {
        let kind = if self.lognormal { "lognormal" } else { "normal" };
        format!("{} {kind} {} seed {}", self.services, self.mean, self.seed)
    }
}

fn measure(name: &str, table: &Table, profiles: &Profiles, demand: &str, usable: &Usable) {
    let rows = parse_demand(name, demand).expect("a demand");
    let mut fleet = Fleet::default();
    fleet.add("a100-40gb", table, 1.0, None).expect("a fleet");
    let problem =
        Problem::new(fleet, profiles, name, &rows, usable).unwrap_or_else(|error| panic!("{error}"));
    let mut line = format!("{name:30}");
    for method in METHODS {
        let own = method.name() == METHODS[0].name();
        if problem.services.len() > ALL_METHODS && !own {
            continue;
        }
        let began = Instant::now();
        let late = || began.elapsed().as_secs_f64() > LIMIT;
        let solved = method.solve(&problem, &Effort { seed: 1, late: &late });
        let ms = began.elapsed().as_secs_f64() * 1e3;
        match solved {
            Ok(solution) => {
                assert!(solution.plan.satisfies(&problem), "{}", method.name());
                if own {
                    let linear = match problem.services.len() {
                        0..=ALL_METHODS => linear_bound(&problem).unwrap_or(f64::NAN),
                        _ => f64::NAN,
                    };
                    let _ = write!(line, " {linear:8.3} {:6}", price(solution.lower_bound));
                }
                let _ = write!(line, " {:6} {ms:7.0}", solution.plan.gpus.len());
            }
            Err(_) => {
                let _ = write!(line, " {:>6} {:>7}", "-", "-");
            }
        }
    }
    println!("{line}");
}

/// Peak resident memory of this process, MiB; 0 where the system does not tell.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let after = |flag: &str| {
        words
            .iter()
            .position(|word| word == flag)
            .and_then(|at| words.get(at + 1))
    };
    let data = match after("--data") {
        Some(folder) => Data::full(&PathBuf::from(folder)),
        None => Data::carried(),
    };
    let table = Table::build(gpus::a100_plain(), Rules::default()).expect("a table");
    let mut heading = format!("{:30} {:>8} {:>6}", "", "linear", "bound");
    for method in METHODS {
        let _ = write!(heading, " {:>14}", method.name());
    }
    println!(
        "GPUs and milliseconds of each method; the bounds are the plain linear one and migm's certified one"
    );
    for processes in [3, 1] {
        println!(
            "\nParvaGPU's scenarios, latency below 0.45 of the limit, up to {processes} processes\n{heading}"
        );
        let usable = Usable {
            latency_share_ppm: 450_000,
            max_processes: Some(processes),
            ..Usable::default()
        };
        for (index, demand) in data.scenarios.iter().enumerate() {
            measure(
                &format!("scenario {}", index + 1),
                &table,
                &data.parva,
                demand,
                &usable,
            );
        }
    }
    let models: Vec<String> = ["pytorch", "tensorflow"]
        .iter()
        .flat_map(|framework| {
            let models = [
                "albert-large-v2",
                "bert-base-uncased",
                "densenet121",
                "gpt2",
                "inceptionv3",
                "resnet50",
                "roberta-large",
                "vgg19",
            ];
            models.map(|model| format!("{framework}/{model}"))
        })
        .collect();
    println!("\nAs MIG-serving: 24 services, 16 at 100 ms and 8 at 200 ms, no MPS\n{heading}");
    for (lognormal, mean) in [
        (false, 6_000.0),
        (false, 9_000.0),
        (true, 6_000.0),
        (true, 9_000.0),
    ] {
        for seed in [1, 2] {
            let drawn = Drawn {
                seed,
                services: 24,
                lognormal,
                mean,
            };
            let demand = drawn.demand(&models, &[100, 200]);
            measure(
                &drawn.name(),
                &table,
                &data.migserving,
                &demand,
                &Usable::default(),
            );
        }
    }
    let eleven: Vec<String> = [
        "bert",
        "densenet121",
        "densenet169",
        "densenet201",
        "inceptionv3",
        "mobilenetv2",
        "resnet101",
        "resnet152",
        "resnet50",
        "vgg16",
        "vgg19",
    ]
    .map(str::to_owned)
    .to_vec();
    for processes in [1, 2, 4] {
        println!(
            "\nParvaGPU's profiles: 24 services, limits 150 to 600 ms, up to {processes} processes\n{heading}"
        );
        let usable = Usable {
            max_processes: Some(processes),
            ..Usable::default()
        };
        for lognormal in [false, true] {
            let drawn = Drawn {
                seed: 1,
                services: 24,
                lognormal,
                mean: 10_000.0,
            };
            let demand = drawn.demand(&eleven, &[150, 300, 600]);
            measure(&drawn.name(), &table, &data.parva, &demand, &usable);
        }
    }
    println!("\nMany services, ParvaGPU's profiles, up to 3 processes\n{heading}");
    let sizes: &[usize] = if words.iter().any(|word| word == "--large") {
        &[100, 1_000, 10_000]
    } else {
        &[100, 1_000]
    };
    let usable = Usable {
        max_processes: Some(3),
        ..Usable::default()
    };
    for &services in sizes {
        for mean in [1_000.0, 8_000.0] {
            let drawn = Drawn {
                seed: 1,
                services,
                lognormal: true,
                mean,
            };
            let demand = drawn.demand(&eleven, &[150, 300, 600]);
            measure(&drawn.name(), &table, &data.parva, &demand, &usable);
        }
    }
    println!("peak memory {} MiB", peak_mib());
}
