//! `migm serve plan`: the fewest GPUs that serve many models.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::layout::table_of_model;
use super::{Failure, exit, print_json, print_text};
use crate::report::table::Table as Text;
use crate::serve::methods::{Effort, METHODS, Method, PlanError, Solution, named};
use crate::serve::{Fleet, Problem, Profiles, Usable, parse_demand, price};

/// Serve many models on few GPUs
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Plan(PlanArgs),
}

/// Find the fewest GPUs that serve a demand, and what runs on each slice
#[derive(Debug, clap::Args)]
struct PlanArgs {
    /// How models run on slices: CSV with model, compute_slices (or profile), batch, mps_processes,
    /// throughput_per_process_rps, latency_s (or latency_p99_s and the like); gpu and memory_bytes if known
    #[arg(long, value_name = "FILE")]
    profiles: PathBuf,
    /// What is to be served: CSV with model, required_rps, slo_latency_ms; service where a model has several
    #[arg(long, value_name = "FILE")]
    demand: PathBuf,
    /// Models of GPU, each with how many there are and what one costs if that matters
    #[arg(
        long,
        value_name = "G[:COUNT][=PRICE],...",
        value_delimiter = ',',
        required = true
    )]
    gpu: Vec<String>,
    /// migm's own, or a published method to compare with
    #[arg(long, value_name = "M", default_value = "migm", value_parser = methods())]
    method: String,
    /// Most processes that share a slice under MPS
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_processes: Option<u32>,
    /// A point is usable when its latency is below this share of the limit
    #[arg(long, value_name = "X", default_value = "1", value_parser = share)]
    latency_share: u32,
    /// Which of several latencies counts, such as p99
    #[arg(long, value_name = "P")]
    percentile: Option<String>,
    /// Share of a slice's memory that stays free
    #[arg(long, value_name = "X", default_value = "0", value_parser = headroom)]
    memory_headroom: u32,
    /// Seed of the methods that draw at random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seconds after which the best plan so far is taken
    #[arg(long, value_name = "S", default_value = "60", value_parser = clap::value_parser!(u32).range(1..))]
    time_limit: u32,
    /// One JSON document
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// One CSV row a slice
    #[arg(long)]
    csv: bool,
}

fn methods() -> clap::builder::PossibleValuesParser {
    METHODS.map(Method::name).into()
}

/// A number between these, in millionths.
fn millionths(text: &str, range: std::ops::RangeInclusive<f64>) -> Result<u32, String> {
    match text.parse::<f64>() {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "up to a million"
        )]
        Ok(number) if range.contains(&number) => Ok((number * 1e6).round() as u32),
        _ => Err(format!(
            "`{text}` is no number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

fn share(text: &str) -> Result<u32, String> {
    millionths(text, 0.001..=1.0)
}

fn headroom(text: &str) -> Result<u32, String> {
    millionths(text, 0.0..=0.99)
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Document {
    method: &'static str,
    /// GPUs of the plan.
    gpus: usize,
    /// What all of them cost: the number of GPUs where each costs 1.
    price: f64,
    /// No plan is cheaper; GPUs where each costs 1.
    lower_bound: f64,
    /// Whether the price is the lower bound.
    optimal: bool,
    /// Wall time of the method, milliseconds.
    solve_ms: f64,
    /// Whether each service gets what it requires.
    satisfied: bool,
    kinds: Vec<KindUsed>,
    services: Vec<Served>,
    slices: Vec<Slice>,
}

#[derive(Debug, Serialize)]
struct KindUsed {
    gpu: String,
    used: usize,
    price: f64,
}

#[derive(Debug, Serialize)]
struct Served {
    name: String,
    model: String,
    required_rps: f64,
    planned_rps: f64,
    limit_ms: u32,
    /// Of the slowest slice.
    latency_s: f64,
    slices: usize,
}

#[derive(Debug, Serialize)]
struct Slice {
    /// Index of the GPU in the plan.
    gpu: usize,
    kind: String,
    profile: String,
    start: u32,
    size: u32,
    service: String,
    batch: u32,
    processes: u32,
    throughput_rps: f64,
    latency_s: f64,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    match &args.command {
        Command::Plan(args) => plan(args),
    }
}

fn plan(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let problem = problem(args)?;
    // The parser has checked the name.
    let method = named(&args.method).ok_or_else(|| Failure::input(&args.method))?;
    let limit = Duration::from_secs(u64::from(args.time_limit));
    let began = Instant::now();
    let effort = Effort {
        seed: args.seed,
        late: &|| began.elapsed() > limit,
    };
    let solution = method.solve(&problem, &effort).map_err(|error| match error {
        PlanError::Stock => Failure::new(exit::FAILED, error),
        PlanError::OneKind { .. } | PlanError::Unable { .. } => Failure::input(error),
    })?;
    let solve_ms = began.elapsed().as_secs_f64() * 1e3;
    let document = document(&problem, method.name(), &solution, solve_ms);
    if args.json {
        print_json(&document)?;
    } else if args.csv {
        print_text(&csv(&document)?)?;
    } else {
        print_text(&text(&document))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads all that is given.
fn problem(args: &PlanArgs) -> Result<Problem, Failure> {
    let name = |path: &Path| path.display().to_string();
    let profiles_text = read(&args.profiles)?;
    let demand_text = read(&args.demand)?;
    let profiles = Profiles::parse(&name(&args.profiles), &profiles_text, args.percentile.as_deref())
        .map_err(Failure::input)?;
    let demand = parse_demand(&name(&args.demand), &demand_text).map_err(Failure::input)?;
    let mut fleet = Fleet::default();
    for wanted in &args.gpu {
        let (model, count, price) = gpu(wanted).map_err(Failure::input)?;
        let table = table_of_model(model)?;
        fleet.add(model, &table, price, count).map_err(Failure::input)?;
    }
    let usable = Usable {
        latency_share_ppm: args.latency_share,
        max_processes: args.max_processes,
        memory_headroom_ppm: args.memory_headroom,
    };
    Problem::new(fleet, &profiles, &name(&args.demand), &demand, &usable).map_err(Failure::input)
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", path.display())))
}

/// Reads `a100-40gb:8=1.5`.
fn gpu(text: &str) -> Result<(&str, Option<u32>, f64), String> {
    let (rest, price) = match text.split_once('=') {
        None => (text, 1.0),
        Some((rest, price)) => {
            let price = price
                .parse()
                .map_err(|_| format!("`{price}` in `{text}` is no price"))?;
            (rest, price)
        }
    };
    match rest.split_once(':') {
        None => Ok((rest, None, price)),
        Some((model, count)) => match count.parse() {
            Ok(count) if count > 0 => Ok((model, Some(count), price)),
            _ => Err(format!("`{count}` in `{text}` is no number of GPUs")),
        },
    }
}

fn document(problem: &Problem, method: &'static str, solution: &Solution, solve_ms: f64) -> Document {
    let plan = &solution.plan;
    let mut slices = Vec::new();
    for (index, gpu) in plan.gpus.iter().enumerate() {
        for slice in &gpu.slices {
            let service = &problem.services[slice.service];
            let Some(point) = service.points[slice.size] else {
                continue;
            };
            slices.push(Slice {
                gpu: index,
                kind: problem.fleet.kinds[gpu.kind].name.clone(),
                profile: problem.fleet.sizes[slice.size].profile.clone(),
                start: slice.placement.start,
                size: slice.placement.size,
                service: service.name.clone(),
                batch: point.batch,
                processes: point.processes,
                throughput_rps: point.rate.rps(),
                latency_s: point.latency_s,
            });
        }
    }
    let served = plan.served(problem);
    let services = problem.services.iter().zip(served).map(|(service, rate)| {
        let own = || slices.iter().filter(|slice| slice.service == service.name);
        Served {
            name: service.name.clone(),
            model: service.model.clone(),
            required_rps: service.required.rps(),
            planned_rps: rate.rps(),
            limit_ms: service.limit_ms,
            latency_s: own().map(|slice| slice.latency_s).fold(0.0, f64::max),
            slices: own().count(),
        }
    });
    let services = services.collect();
    let kinds = problem
        .fleet
        .kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| KindUsed {
            gpu: kind.name.clone(),
            used: plan.gpus.iter().filter(|gpu| gpu.kind == index).count(),
            price: price(kind.price),
        });
    Document {
        method,
        gpus: plan.gpus.len(),
        price: price(plan.price(problem)),
        lower_bound: price(solution.lower_bound),
        optimal: plan.price(problem) <= solution.lower_bound,
        solve_ms,
        satisfied: plan.satisfies(problem),
        kinds: kinds.collect(),
        services,
        slices,
    }
}

fn csv(document: &Document) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for slice in &document.slices {
        writer
            .serialize(slice)
            .map_err(|error| Failure::new(exit::FAILED, error))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Failure::new(exit::FAILED, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn text(document: &Document) -> String {
    let used = document
        .kinds
        .iter()
        .map(|kind| format!("{} {}", kind.used, kind.gpu));
    let proof = if document.optimal {
        "proven fewest"
    } else {
        "not proven fewest"
    };
    let mut text = format!(
        "{} by {}: price {}, lower bound {}, {proof} (solved in {:.1} ms, measured)\n\n",
        used.collect::<Vec<_>>().join(", "),
        document.method,
        document.price,
        document.lower_bound,
        document.solve_ms
    );
    let mut services = Text::new(&[
        "service",
        ">required/s",
        ">planned/s",
        ">latency ms",
        ">limit ms",
        ">slices",
    ]);
    for service in &document.services {
        services.row([
            service.name.clone(),
            format!("{:.1}", service.required_rps),
            format!("{:.1}", service.planned_rps),
            format!("{:.1}", service.latency_s * 1e3),
            service.limit_ms.to_string(),
            service.slices.to_string(),
        ]);
    }
    text.push_str(&services.render());
    text.push('\n');
    let mut gpus = Text::new(&[">gpu", "kind", "slices"]);
    for gpu in 0..document.gpus {
        let own: Vec<&Slice> = document.slices.iter().filter(|slice| slice.gpu == gpu).collect();
        let names = own
            .iter()
            .map(|slice| format!("{}@{} {}", slice.profile, slice.start, slice.service));
        gpus.row([
            gpu.to_string(),
            own.first().map_or_else(String::new, |slice| slice.kind.clone()),
            names.collect::<Vec<_>>().join(", "),
        ]);
    }
    text.push_str(&gpus.render());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_may_be_limited_and_priced() {
        assert_eq!(gpu("a30-24gb"), Ok(("a30-24gb", None, 1.0)));
        assert_eq!(gpu("a100-40gb:8=1.5"), Ok(("a100-40gb", Some(8), 1.5)));
        for (wrong, said) in [
            ("a30-24gb:0", "`0` in `a30-24gb:0` is no number of GPUs"),
            ("a30-24gb=x", "`x` in `a30-24gb=x` is no price"),
        ] {
            assert_eq!(gpu(wrong).unwrap_err(), said);
        }
    }

    #[test]
    fn shares_are_kept_in_millionths() {
        assert_eq!(share("0.45"), Ok(450_000));
        for wrong in ["0", "1.1", "NaN", "x"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert_eq!(headroom("0"), Ok(0));
    }
}
