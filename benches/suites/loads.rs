//! The workloads of the suites, for any kind of GPU.
//!
//! Speeds are measured on an A100-40GB. On another GPU a slice has the speed that the A100 has at the same part of
//! the compute slices, linear between the parts measured, against the whole of its own GPU; a job runs where its
//! memory fits. Jobs that fit no slice are left out.

use migm_shared::units::GIB;
use migm_supervisor::layout::ProfileIndex;
use migm_supervisor::schedule::Terms;
use migm_supervisor::whatif::tables::{self, MemoryTable, Row, Speeds, compute_share};
use migm_supervisor::whatif::{Gpu, Job, Memory, Workload};
use rand::RngExt;

use super::common::{Numbers, Options, gpus, numbers};

/// A kind of workload, one for each seed.
pub struct Case {
    pub title: String,
    pub load: Box<dyn Fn(u64) -> Workload>,
}

impl Case {
    pub fn new(title: impl Into<String>, load: impl Fn(u64) -> Workload + 'static) -> Self {
        Self {
            title: title.into(),
            load: Box::new(load),
        }
    }
}

pub fn batch(gpus: Vec<Gpu>, jobs: impl IntoIterator<Item = Job>) -> Workload {
    of(gpus, jobs, true)
}

fn of(gpus: Vec<Gpu>, jobs: impl IntoIterator<Item = Job>, batch: bool) -> Workload {
    let fits = |job: &Job| {
        job.speeds
            .iter()
            .flat_map(|of| of.iter())
            .any(|speed| *speed > 0.0)
    };
    Workload {
        gpus,
        jobs: jobs.into_iter().filter(fits).collect(),
        batch,
    }
}

/// What a job of our own making is like: its speed by the part of the compute slices that it has.
pub struct Kind<'a> {
    pub name: &'a str,
    pub speed: &'a dyn Fn(f64) -> f64,
    pub gib: f64,
    /// See [`Job::bus`].
    pub bus: f64,
    /// See [`Job::active`].
    pub active: f64,
}

impl Kind<'_> {
    pub fn job(&self, work: f64, gpus: &[Gpu]) -> Job {
        let bytes = bytes(self.gib);
        let table = &gpus[0].table;
        let profiles = (0..table.profiles().len()).map(ProfileIndex);
        let speeds = profiles.map(|profile| {
            if table.profile(profile).memory < bytes {
                0.0
            } else {
                (self.speed)(compute_share(table, profile))
            }
        });
        Job {
            name: self.name.to_owned(),
            program: self.name.to_owned(),
            arrival: 0.0,
            work,
            speeds: vec![speeds.collect()],
            told: bytes,
            memory: Memory::flat(bytes),
            bus: self.bus,
            active: self.active,
            weight: 1.0,
            checkpoints: false,
            after: Vec::new(),
            terms: Terms::default(),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "bytes"
)]
fn bytes(gib: f64) -> u64 {
    (gib * GIB as f64) as u64
}

/// Speeds of a job that reaches `r` on a seventh of the GPU and rises to 1 as 1/s = a + (1 - a)/share.
pub fn rising(r: f64) -> impl Fn(f64) -> f64 {
    let serial = (7.0 - 1.0 / r) / 6.0;
    move |share| (1.0 / (serial + (1.0 - serial) / share)).min(1.0)
}

/// Speeds of a job that loses on every slice: less than its part of the GPU.
pub fn losing(share: f64) -> f64 {
    if share < 1.0 { 0.9 * share.powf(1.3) } else { 1.0 }
}

/// A job of a workload in the speeds.
pub fn measured(row: &Row, speeds: &Speeds, node: &[Gpu]) -> Job {
    let reference = gpus("a100-40gb", 1);
    let here = Gpu {
        kind: 1,
        ..node[0].clone()
    };
    let both: Vec<Gpu> = reference.into_iter().chain([here]).collect();
    let mut job = tables::job(row, speeds, &MemoryTable::default(), &both).unwrap();
    job.speeds.remove(0);
    job
}

/// The same with everything named.
pub fn trained(index: usize, arrival: f64, work: f64, workload: &str, speeds: &Speeds, node: &[Gpu]) -> Job {
    let row = Row {
        line: 0,
        job: index.to_string(),
        arrival,
        work,
        workload: workload.to_owned(),
    };
    measured(&row, speeds, node)
}

pub fn names(speeds: &Speeds) -> Vec<String> {
    speeds.workloads().into_iter().map(str::to_owned).collect()
}

pub fn any<'a>(names: &'a [String], numbers: &mut Numbers) -> &'a str {
    &names[numbers.random_range(0..names.len())]
}

/// Suite a, homogeneous. Jobs and counts of suite a are ours: the paper's are unpublished.
pub fn homogeneous(options: &Options, r: f64, c: f64) -> Case {
    let gpu = options.gpu.clone();
    let title = format!("(a) Rodinia-like, homogeneous: 140 jobs of about 20 s, r = {r}, c = {c}, 2 GiB");
    Case::new(title, move |seed| {
        let mut numbers = numbers(seed);
        let node = gpus(&gpu, 1);
        let kind = Kind {
            name: "rodinia",
            speed: &rising(r),
            gib: 2.0,
            bus: c,
            active: 0.15,
        };
        let jobs: Vec<Job> = (0..140)
            .map(|_| kind.job(20.0 * numbers.random_range(0.98..1.02), &node))
            .collect();
        batch(node, jobs)
    })
}

/// Suite a, heterogeneous.
pub fn heterogeneous(options: &Options) -> Case {
    let gpu = options.gpu.clone();
    Case::new(
        "(a) Rodinia-like, heterogeneous: 60 jobs, five sizes",
        move |seed| {
            let mut numbers = numbers(seed);
            let node = gpus(&gpu, 1);
            let sizes = [(0.9, 2.0), (0.6, 4.0), (0.35, 8.0), (0.25, 16.0), (0.2, 30.0)];
            let jobs: Vec<Job> = (0..60)
                .map(|_| {
                    let (r, gib) = sizes[numbers.random_range(0..sizes.len())];
                    let kind = Kind {
                        name: &format!("r{gib}"),
                        speed: &rising(r),
                        gib,
                        bus: 0.03,
                        active: 0.5,
                    };
                    kind.job(numbers.random_range(10.0..60.0), &node)
                })
                .collect();
            batch(node, jobs)
        },
    )
}

/// Suite a, machine learning: CNNs and transformers as the paper says; which models, batch sizes and counts is ours.
pub fn learning(options: &Options) -> Vec<Case> {
    let speeds = options.speeds();
    let all = names(&speeds);
    let of = |models: &[&str]| -> Vec<String> {
        let listed = |name: &&String| {
            let (model, batch) = name.split_once("_train").unwrap_or((name, "0"));
            models.contains(&model) && batch.parse::<u32>().is_ok_and(|batch| batch <= 512)
        };
        all.iter().filter(listed).cloned().collect()
    };
    let mixes = [
        (
            "(a) ML mix 1: 28 jobs of resnet and mobilenet",
            of(&["resnet", "mobilenet"]),
            28,
        ),
        (
            "(a) ML mix 2: 35 jobs of resnet, mobilenet and transformer",
            of(&["resnet", "mobilenet", "transformer"]),
            35,
        ),
        ("(a) ML mix 3: 48 jobs of all models", all.clone(), 48),
    ];
    let case = |(title, from, count): (&str, Vec<String>, usize)| {
        let (gpu, speeds) = (options.gpu.clone(), speeds.clone());
        Case::new(title, move |seed| {
            let mut numbers = numbers(seed);
            let node = gpus(&gpu, 1);
            let jobs: Vec<Job> = (0..count)
                .map(|index| {
                    let work = numbers.random_range(200.0..600.0);
                    trained(index, 0.0, work, any(&from, &mut numbers), &speeds, &node)
                })
                .collect();
            batch(node, jobs)
        })
    };
    mixes.into_iter().map(case).collect()
}

/// Suite a, LLM.
pub fn decoders(options: &Options) -> Case {
    let gpu = options.gpu.clone();
    let title = "(a) LLM mix: 21 decoders whose cache grows from 3 to 6 to 14 GiB, no hint";
    Case::new(title, move |seed| {
        let mut numbers = numbers(seed);
        let node = gpus(&gpu, 1);
        let kind = Kind {
            name: "decoder",
            speed: &rising(0.55),
            gib: 0.0,
            bus: 0.02,
            active: 0.3,
        };
        let jobs: Vec<Job> = (0..21)
            .map(|_| {
                let end = numbers.random_range(6.0..14.0);
                let steps = (0..=100).map(|step| {
                    let part = f64::from(step) / 100.0;
                    (part, bytes(3.0 + (end - 3.0) * part))
                });
                Job {
                    memory: Memory {
                        steps: steps.collect(),
                    },
                    ..kind.job(numbers.random_range(100.0..200.0), &node)
                }
            })
            .collect();
        batch(node, jobs)
    })
}

/// Suite c: batches of 20 to 60 jobs.
pub fn laws(options: &Options) -> Vec<Case> {
    type Law = (&'static str, fn(f64) -> f64);
    let laws: [Law; 4] = [
        ("uniform 30-600 s", |u| 30.0 + 570.0 * u),
        ("log-uniform 30-600 s", |u| 30.0 * 20.0_f64.powf(u)),
        ("heavy-tailed from 30 s (Pareto 1.5, at most 3000 s)", |u| {
            (30.0 / (1.0 - u).powf(1.0 / 1.5)).min(3000.0)
        }),
        ("uniform 1.5-30 s", |u| 1.5 + 28.5 * u),
    ];
    let case = |(what, law): Law| {
        let (gpu, speeds) = (options.gpu.clone(), options.speeds());
        Case::new(format!("(c) 20-60 jobs, {what}"), move |seed| {
            let mut numbers = numbers(seed);
            let node = gpus(&gpu, 1);
            let names = names(&speeds);
            let count = numbers.random_range(20..=60);
            let jobs: Vec<Job> = (0..count)
                .map(|index| {
                    let work = law(numbers.random());
                    trained(index, 0.0, work, any(&names, &mut numbers), &speeds, &node)
                })
                .collect();
            batch(node, jobs)
        })
    };
    laws.into_iter().map(case).collect()
}

/// Seconds until the next of a Poisson process with `gap` seconds in the mean.
pub fn pause(numbers: &mut Numbers, gap: f64) -> f64 {
    -gap * (1.0 - numbers.random::<f64>()).ln()
}

/// Durations log-uniform from 60 s to 2 h, and their mean.
pub fn hours(numbers: &mut Numbers) -> f64 {
    60.0 * 120.0_f64.powf(numbers.random())
}
pub fn mean_hours() -> f64 {
    (7200.0 - 60.0) / (7200.0_f64 / 60.0).ln()
}

pub const ONLINE_GPUS: usize = 4;
pub const ONLINE_JOBS: usize = 150;

/// Suite d: Poisson arrivals at a part of what the GPUs unpartitioned can do.
pub fn online(options: &Options, part: f64) -> Case {
    let (gpu, speeds) = (options.gpu.clone(), options.speeds());
    let title = format!("(d) load {part} of {ONLINE_GPUS} GPUs unpartitioned, {ONLINE_JOBS} jobs");
    Case::new(title, move |seed| {
        let mut numbers = numbers(seed);
        let node = gpus(&gpu, ONLINE_GPUS);
        let names = names(&speeds);
        #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
        let gap = mean_hours() / (part * ONLINE_GPUS as f64);
        let mut now = 0.0;
        let jobs: Vec<Job> = (0..ONLINE_JOBS)
            .map(|index| {
                now += pause(&mut numbers, gap);
                let work = hours(&mut numbers);
                trained(index, now, work, any(&names, &mut numbers), &speeds, &node)
            })
            .collect();
        of(node, jobs, false)
    })
}

/// Suite b: the trace, or for a seed above 0 a resample: the same arrivals with jobs drawn with replacement.
pub fn traced(options: &Options, rows: &[Row], count: usize, title: impl Into<String>) -> Case {
    let (gpu, speeds, rows) = (options.gpu.clone(), options.speeds(), rows.to_vec());
    Case::new(title, move |seed| {
        let node = gpus(&gpu, count);
        let mut numbers = numbers(seed);
        let jobs: Vec<Job> = rows
            .iter()
            .map(|row| {
                let drawn = match seed {
                    0 => row,
                    _ => &rows[numbers.random_range(0..rows.len())],
                };
                let row = Row {
                    arrival: row.arrival,
                    ..drawn.clone()
                };
                measured(&row, &speeds, &node)
            })
            .collect();
        of(node, jobs, false)
    })
}

/// Suite e: what should hurt.
pub fn adversarial(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut equal = |title: &str, count: usize, work: f64, of: fn(&[Gpu], f64) -> Job| {
        let gpu = options.gpu.clone();
        cases.push(Case::new(format!("(e) {title}"), move |_| {
            let node = gpus(&gpu, 1);
            let jobs: Vec<Job> = (0..count).map(|_| of(&node, work)).collect();
            batch(node, jobs)
        }));
    };
    equal("one job", 1, 100.0, |node, work| {
        plain(&rising(0.5), 0.0, 1.0).job(work, node)
    });
    equal("jobs that lose on every slice", 30, 30.0, |node, work| {
        plain(&losing, 0.0, 1.0).job(work, node)
    });
    equal("jobs that live on the bus (c = 0.9)", 30, 30.0, |node, work| {
        plain(&rising(0.95), 0.9, 0.2).job(work, node)
    });
    equal("jobs as short as a reconfiguration", 60, 0.5, |node, work| {
        plain(&rising(0.9), 0.0, 0.2).job(work, node)
    });
    let gpu = options.gpu.clone();
    cases.push(Case::new("(e) one long and many short", move |_| {
        let node = gpus(&gpu, 1);
        let speed = rising(0.9);
        let short = plain(&speed, 0.0, 0.2);
        let mut jobs: Vec<Job> = (0..40).map(|_| short.job(10.0, &node)).collect();
        jobs.push(plain(&rising(0.3), 0.0, 1.0).job(2000.0, &node));
        batch(node, jobs)
    }));
    let gpu = options.gpu.clone();
    let title = "(e) long and short in turns that lose on every slice, online";
    cases.push(Case::new(title, move |_| {
        let node = gpus(&gpu, 1);
        let kind = plain(&losing, 0.0, 1.0);
        let jobs: Vec<Job> = (0..40_u32)
            .map(|index| Job {
                arrival: f64::from(index) * 300.0,
                checkpoints: index % 4 == 0,
                ..kind.job(if index % 2 == 0 { 600.0 } else { 20.0 }, &node)
            })
            .collect();
        of(node, jobs, false)
    }));
    let speeds = options.speeds();
    cases.push(Case::new("(e) two A30, 30 jobs of all models", move |seed| {
        let mut numbers = numbers(seed);
        let node = gpus("a30-24gb", 2);
        let names = names(&speeds);
        let jobs: Vec<Job> = (0..30)
            .map(|index| {
                let work = numbers.random_range(20.0..320.0);
                trained(index, 0.0, work, any(&names, &mut numbers), &speeds, &node)
            })
            .collect();
        batch(node, jobs)
    }));
    cases
}

/// A job of 2 GiB.
fn plain<'a>(speed: &'a dyn Fn(f64) -> f64, bus: f64, active: f64) -> Kind<'a> {
    Kind {
        name: "own",
        speed,
        gib: 2.0,
        bus,
        active,
    }
}
