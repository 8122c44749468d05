//! `migm simulate`: what a batch or a trace would take under several policies, in virtual time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use migm_shared::units::Seconds;

use super::{Failure, exit, print_json, print_text};
use crate::job::batch::BatchSpec;
use crate::layout::{Rules, Table, base};
use crate::node::Node;
use crate::node::sim::{SimulatedGpu, objects};
use crate::report::gantt;
use crate::report::simulation::{PolicyLine, SimulationReport, table};
use crate::schedule::{QueueOrder, Terms, Wish};
use crate::whatif::parameters::Power;
use crate::whatif::tables::{self, MemoryTable, Row, Speeds};
use crate::whatif::{Before, Gpu, Job, Memory, Run, Settings, Workload, bounds, optimum, simulate};

/// Compare policies on a batch or a trace in virtual time
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The makespan is set against a proven lower bound, and for at most ten jobs against the proven optimum.

Examples:
  migm simulate examples/batches/chain.toml --policy sequential,scheme-b,migm
  migm simulate trace.csv --speeds speeds.csv --gpu a100-40gb:8 --gantt run.html")]
pub struct Args {
    /// Jobs.
    #[arg(
        value_name = "BATCH.toml|TRACE.csv",
        help = "A batch file whose jobs have duration_s, or a trace with job,arrival_s,duration_on_full_gpu_s,workload"
    )]
    file: PathBuf,
    /// GPU model, such as a100-40gb, with :N for several; several kinds with commas
    #[arg(
        long,
        value_name = "G[:N]",
        value_delimiter = ',',
        default_value = "a100-40gb"
    )]
    gpu: Vec<String>,
    /// Policies: sequential, static:LAYOUT (as static:4g+3g), best-static, scheme-a, scheme-b, far, mfi, miso, migm, migm:fifo
    #[arg(
        long,
        value_name = "P,...",
        value_delimiter = ',',
        default_value = "sequential,best-static,migm"
    )]
    policy: Vec<String>,
    /// Seconds per batch of each workload on each profile: model,batch,profile,median_seconds_per_batch,samples
    #[arg(long, value_name = "F")]
    speeds: Option<PathBuf>,
    /// Memory of workloads that have no speeds: model,batch,nvidia_smi_mib
    #[arg(long, value_name = "F")]
    memory: Option<PathBuf>,
    /// The policy is not told the speeds; it learns them from the running jobs
    #[arg(long)]
    learn: bool,
    /// Whether the policy is told how much work is left in a job
    #[arg(long, value_name = "R", value_parser = ["known", "unknown"], default_value = "known")]
    remaining: String,
    /// Whether running jobs may be moved
    #[arg(long, value_name = "M", value_parser = ["on", "off"], default_value = "on")]
    moves: String,
    /// Time that a move costs a job [default: 30s]
    #[arg(long, value_name = "S")]
    move_cost: Option<Seconds>,
    /// Time to create a slice [default: 320ms]
    #[arg(long, value_name = "S")]
    create_cost: Option<Seconds>,
    /// Time to destroy a slice [default: 210ms]
    #[arg(long, value_name = "S")]
    destroy_cost: Option<Seconds>,
    /// Whether a move keeps the work done so far
    #[arg(long, value_name = "W", value_parser = ["kept", "lost"], default_value = "kept")]
    work: String,
    /// In which order migm takes the jobs that wait: free, or fifo (in order of arrival), as migm:fifo does
    #[arg(long, value_name = "O", value_parser = str::parse::<QueueOrder>, default_value = "free")]
    order: QueueOrder,
    /// Draw the last policy's run as one HTML file
    #[arg(long, value_name = "FILE.html")]
    gantt: Option<PathBuf>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let gpus = gpus(&args.gpu)?;
    let load = workload(args, gpus)?;
    let defaults = Settings::default();
    let settings = Settings {
        learn: args.learn,
        remaining_known: args.remaining == "known",
        moves: args.moves == "on",
        move_cost: args.move_cost.map_or(defaults.move_cost, |cost| cost.0),
        create: args.create_cost.map_or(defaults.create, |cost| cost.0),
        destroy: args.destroy_cost.map_or(defaults.destroy, |cost| cost.0),
        work_kept: args.work == "kept",
        fifo: args.order == QueueOrder::Fifo,
        ..defaults
    };
    // All names before the first run: a wrong one changes nothing.
    let mut policies = BTreeMap::new();
    for name in args.policy.iter().filter(|name| *name != "best-static") {
        Run::named(name, &load, &settings).map_err(Failure::input)?;
    }
    let bound = bounds::makespan(&load);
    let optimum = optimum::makespan(&load, &settings);
    let mut picture = None;
    for name in &args.policy {
        let run = Run::named(name, &load, &settings).map_err(Failure::input)?;
        let outcome = simulate(&load, run, &settings, args.gantt.is_some());
        policies.insert(name.clone(), PolicyLine::new(&outcome, bound, optimum));
        picture = args.gantt.as_ref().map(|_| gantt::page(name, &load, &outcome));
    }
    if let (Some(path), Some(page)) = (&args.gantt, picture) {
        std::fs::write(path, page).map_err(|error| {
            Failure::new(
                exit::FAILED,
                format_args!("cannot write {}: {error}", path.display()),
            )
        })?;
    }
    let report = SimulationReport {
        gpu: args.gpu.join(","),
        gpus: load.gpus.len(),
        jobs: load.jobs.len(),
        simulated: true,
        optimum_makespan_s: optimum,
        policies,
    };
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&table(&report, &args.policy))?;
    }
    let undone = report.policies.values().any(|line| line.refused > 0);
    Ok(ExitCode::from(if undone { exit::FAILED } else { 0 }))
}

/// The GPUs that `a100-40gb:8,a30-24gb` names, their profiles as the simulated driver has them.
fn gpus(names: &[String]) -> Result<Vec<Gpu>, Failure> {
    let objects = objects().map_err(Failure::no_gpu)?;
    let mut gpus: Vec<Gpu> = Vec::new();
    let mut known: Vec<&str> = Vec::new();
    for name in names {
        let (model, count) = match name.split_once(':') {
            None => (name.as_str(), 1),
            Some((model, count)) => {
                let number = count
                    .parse::<usize>()
                    .ok()
                    .filter(|number| (1..=4096).contains(number));
                let number = number.ok_or_else(|| {
                    Failure::input(format_args!(
                        "--gpu {name}: `{count}` is no number from 1 to 4096"
                    ))
                })?;
                (model, number)
            }
        };
        let kind = known.iter().position(|other| *other == model);
        let gpu = match kind.and_then(|kind| gpus.iter().find(|gpu| gpu.kind == kind)) {
            Some(gpu) => gpu.clone(),
            None => {
                known.push(model);
                one(&objects, model, known.len() - 1)?
            }
        };
        gpus.extend(std::iter::repeat_n(gpu, count));
    }
    Ok(gpus)
}

fn one(objects: &crate::node::sim::Objects, model: &str, kind: usize) -> Result<Gpu, Failure> {
    let links = tempfile::tempdir().map_err(Failure::no_gpu)?;
    objects.link(links.path(), true).map_err(Failure::no_gpu)?;
    let simulated = SimulatedGpu::create(links.path(), model, true, 1.0).map_err(Failure::input)?;
    let read = simulated.node().map_err(Failure::no_gpu).and_then(|node| {
        let profiles = node.profiles(0).map_err(Failure::no_gpu)?;
        let driver = node.driver().map_err(Failure::no_gpu)?;
        Table::build(base(&profiles), Rules::for_version(&driver)).map_err(Failure::no_gpu)
    });
    // Its profiles are all that is wanted of it.
    let _ = simulated.remove();
    Ok(Gpu {
        table: Arc::new(read?),
        kind,
        power: Power::of(model),
    })
}

fn workload(args: &Args, gpus: Vec<Gpu>) -> Result<Workload, Failure> {
    let speeds = match &args.speeds {
        Some(path) => Speeds::parse(&text(path)?).map_err(|error| in_file(path, error))?,
        None => Speeds::default(),
    };
    let memory = match &args.memory {
        Some(path) => MemoryTable::parse(&text(path)?).map_err(|error| in_file(path, error))?,
        None => MemoryTable::default(),
    };
    let mut jobs: Vec<Job> = if args.file.extension().is_some_and(|extension| extension == "toml") {
        batch(&args.file, &speeds, &memory, &gpus)?
    } else {
        let rows = tables::trace(&text(&args.file)?).map_err(|error| in_file(&args.file, error))?;
        let job =
            |row: &Row| tables::job(row, &speeds, &memory, &gpus).map_err(|error| in_file(&args.file, error));
        rows.iter().map(job).collect::<Result<_, _>>()?
    };
    by_arrival(&mut jobs);
    // Jobs that all come at once are a batch: its end counts.
    let batch = jobs.windows(2).all(|pair| pair[0].arrival >= pair[1].arrival);
    Ok(Workload { gpus, jobs, batch })
}

/// Puts the jobs in order of arrival; what comes before what stays.
fn by_arrival(jobs: &mut Vec<Job>) {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|a, b| jobs[*a].arrival.total_cmp(&jobs[*b].arrival));
    let mut place = vec![0; jobs.len()];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new;
    }
    for before in jobs.iter_mut().flat_map(|job| &mut job.after) {
        before.job = place[before.job];
    }
    *jobs = order.into_iter().map(|old| jobs[old].clone()).collect();
}

/// The jobs of a batch file. A job whose name is a workload of the speeds has these; others follow a prior.
fn batch(path: &Path, speeds: &Speeds, memory: &MemoryTable, gpus: &[Gpu]) -> Result<Vec<Job>, Failure> {
    let spec = BatchSpec::read(path).map_err(Failure::input)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let mut jobs = Vec::new();
    for (index, job) in spec.jobs.iter().enumerate() {
        let work = job.duration.ok_or_else(|| {
            Failure::input(format_args!(
                "{}: job `{}` has no duration_s",
                path.display(),
                job.name
            ))
        })?;
        let steps = match &job.trace {
            Some(file) => {
                Some(tables::memory_trace(&text(&folder.join(file))?).map_err(|error| in_file(file, error))?)
            }
            None => None,
        };
        let row = Row {
            line: index + 1,
            job: job.name.clone(),
            arrival: job.arrival,
            work,
            workload: program(&job.name).to_owned(),
        };
        let mut found = tables::job(&row, speeds, memory, gpus)
            .unwrap_or_else(|_| tables::unknown(&row, job.mem.unwrap_or(0), gpus));
        if let Some(mem) = job.mem {
            found.told = mem;
        }
        if let Some(steps) = steps {
            found.memory = Memory { steps };
        } else if let Some(mem) = job.mem {
            found.memory = Memory::flat(mem);
        }
        let before = job.after.iter().map(|before| Before {
            job: before.job,
            any: before.any,
        });
        found.after = before.collect();
        found.terms = Terms {
            user: 0,
            priority: job.priority,
            wish: match &job.profile {
                Some(profile) => Wish::Profile(profile.clone()),
                None if job.exclusive => Wish::Exclusive,
                None => Wish::Any,
            },
        };
        jobs.push(found);
    }
    Ok(jobs)
}

/// The name without the number that `count` adds.
fn program(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((program, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            program
        }
        _ => name,
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", path.display())))
}

fn in_file(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::input(format_args!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_before_what_stays_when_jobs_are_put_in_order() {
        let job = |name: &str, arrival: f64, after: &[usize]| {
            let row = Row {
                line: 1,
                job: name.into(),
                arrival,
                work: 1.0,
                workload: "any".into(),
            };
            let before = after.iter().map(|&job| Before { job, any: false });
            Job {
                after: before.collect(),
                ..tables::unknown(&row, 0, &[])
            }
        };
        let mut jobs = vec![job("c", 9.0, &[1, 2]), job("b", 5.0, &[2]), job("a", 0.0, &[])];
        by_arrival(&mut jobs);
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        let after: Vec<Vec<usize>> = jobs
            .iter()
            .map(|job| job.after.iter().map(|before| before.job).collect())
            .collect();
        assert_eq!(
            (names, after),
            (vec!["a", "b", "c"], vec![vec![], vec![0], vec![1, 0]])
        );
    }

    #[test]
    fn the_number_of_a_copy_is_no_part_of_the_program() {
        assert_eq!(program("resnet_train128-12"), "resnet_train128");
        assert_eq!(program("a-b"), "a-b");
    }
}
