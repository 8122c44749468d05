//! `migm serve plan`: the fewest GPUs that serve many models.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::super::layout::table_of_model;
use super::super::{Failure, exit, print_json, print_text};
use super::{name, output, read, tables, write};
use crate::serve::methods::{Effort, METHODS, Method, PlanError, Solution, named};
use crate::serve::transition::{Options, Step, replay, transition};
use crate::serve::{
    DemandRow, Deployment, Fleet, Problem, Profiles, Tables, Usable, explain, first_fit, follow, parse_series,
};

mod document;

use document::{Document, Period, Series, Way, csv, document, headline, series_text, text};

/// Find the fewest GPUs for a demand, and what runs on each slice
#[derive(Debug, clap::Args)]
pub(super) struct PlanArgs {
    /// How models run on slices: CSV with model, compute_slices (or profile), batch, mps_processes,
    /// throughput_per_process_rps, latency_s (or latency_p99_s and the like); gpu and memory_bytes if known
    #[arg(long, value_name = "FILE")]
    profiles: PathBuf,
    /// What is to be served: CSV with model, required_rps, slo_latency_ms; service where a model has several;
    /// time where the demand changes: then there is a plan for each time, each made beside the one before
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
    /// The plan that runs, as --json writes it: the new one is made beside it
    #[arg(long, value_name = "FILE")]
    current: Option<PathBuf>,
    /// What a step from the running plan is worth, in GPUs of price 1: more of it takes more GPUs and fewer steps
    #[arg(long, value_name = "X", default_value = "0", value_parser = worth)]
    keep: f64,
    /// Say why a service has its slices
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["json", "csv"])]
    explain: Option<String>,
    /// Write a picture of the plan
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write a configuration for mig-parted, one entry a node
    #[arg(long, value_name = "FILE")]
    mig_parted: Option<PathBuf>,
    /// Write a CSV list of what to deploy, in the order that a placer by first fit needs
    #[arg(long, value_name = "FILE")]
    deployments: Option<PathBuf>,
    /// GPUs of a node, for the last two
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(u32).range(1..))]
    gpus_per_node: u32,
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

fn worth(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if (0.0..=1e6).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no number from 0 to 1000000")),
    }
}

pub(super) fn main(args: &PlanArgs) -> Result<ExitCode, Failure> {
    let profiles = Profiles::parse(
        &name(&args.profiles),
        &read(&args.profiles)?,
        args.percentile.as_deref(),
    )
    .map_err(Failure::input)?;
    let series = parse_series(&name(&args.demand), &read(&args.demand)?).map_err(Failure::input)?;
    let current = args.current.as_deref().map(super::deployment).transpose()?;
    let mut current = current;
    let mut periods: Vec<Planned> = Vec::new();
    for (time, demand) in &series {
        let planned = planned(args, &profiles, time, demand, current.as_ref())?;
        current = Some(planned.deployment.clone());
        periods.push(planned);
    }
    if let Some(last) = periods.last() {
        write_files(args, last)?;
    }
    if let Some(service) = &args.explain {
        return explained(args, &profiles, &periods, service);
    }
    let mut documents: Vec<Period> = periods.into_iter().map(|planned| planned.period).collect();
    match documents.pop() {
        Some(only) if documents.is_empty() => print(args, &only.plan)?,
        Some(last) => {
            documents.push(last);
            print_series(args, Series { periods: documents })?;
        }
        None => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A plan with all that is written of it.
struct Planned {
    problem: Problem,
    solution: Solution,
    deployment: Deployment,
    tables: Tables,
    period: Period,
}

fn planned(
    args: &PlanArgs,
    profiles: &Profiles,
    time: &str,
    demand: &[DemandRow],
    current: Option<&Deployment>,
) -> Result<Planned, Failure> {
    let (problem, mut tables) = problem(args, profiles, demand)?;
    if let Some(current) = current {
        tables.extend(self::tables([current])?);
    }
    // The parser has checked the name.
    let method = named(&args.method).ok_or_else(|| Failure::input(&args.method))?;
    let limit = Duration::from_secs(u64::from(args.time_limit));
    let began = Instant::now();
    let effort = Effort {
        seed: args.seed,
        late: &|| began.elapsed() > limit,
    };
    let failed = |error: PlanError| match error {
        PlanError::Stock => Failure::new(exit::FAILED, error),
        PlanError::OneKind { .. } | PlanError::Unable { .. } => Failure::input(error),
    };
    let mut kept_gpus = 0;
    let solution = match current {
        None => method.solve(&problem, &effort).map_err(failed)?,
        Some(current) => {
            let followed = follow(&problem, current, &tables, method, &effort, args.keep).map_err(failed)?;
            kept_gpus = followed.kept_gpus;
            followed.solution
        }
    };
    let solve_ms = began.elapsed().as_secs_f64() * 1e3;
    let own = Deployment::of(&solution.plan, &problem);
    // Beside a plan that runs, slices stay where they are; a new one is laid out so that any placer makes it.
    let settled = match current {
        None => first_fit::settle(&own, &tables).filter(|settled| settled.gpus.len() == own.gpus.len()),
        Some(_) => None,
    };
    let deployment = settled.unwrap_or(own);
    let way = current
        .map(|current| way(current, &deployment, &tables, kept_gpus))
        .transpose()?;
    let document = document(&problem, method.name(), &solution, &deployment, solve_ms, way);
    Ok(Planned {
        problem,
        solution,
        deployment,
        tables,
        period: Period {
            time: time.to_owned(),
            plan: document,
        },
    })
}

fn way(from: &Deployment, to: &Deployment, tables: &Tables, kept_gpus: usize) -> Result<Way, Failure> {
    let found = transition(from, to, tables, &Options::default()).map_err(Failure::input)?;
    let length = |step: &Step| step.end_ms - step.start_ms;
    let seen = replay(&found, length).map_err(|error| Failure::new(exit::FAILED, error))?;
    Ok(Way {
        steps: found.steps.len(),
        extra_gpus: found.extra_gpus(),
        makespan_s: seen.makespan_ms as f64 / 1e3,
        min_satisfaction: seen.min_satisfaction.is_finite().then_some(seen.min_satisfaction),
        kept_gpus,
    })
}

fn write_files(args: &PlanArgs, planned: &Planned) -> Result<(), Failure> {
    let (deployment, per_node) = (&planned.deployment, args.gpus_per_node as usize);
    if let Some(path) = &args.html {
        let line = headline(&planned.period.plan);
        write(path, &output::picture("Plan", &line, deployment, &planned.tables))?;
    }
    if let Some(path) = &args.mig_parted {
        write(path, &output::mig_parted(deployment, per_node))?;
    }
    if let Some(path) = &args.deployments {
        if !first_fit::replays(deployment, &planned.tables) {
            crate::job::say(
                "a placer by first fit would lay these deployments out otherwise; pin them to their GPUs",
            );
        }
        write(path, &output::list(deployment, per_node)?)?;
    }
    Ok(())
}

fn explained(
    args: &PlanArgs,
    profiles: &Profiles,
    periods: &[Planned],
    wanted: &str,
) -> Result<ExitCode, Failure> {
    for planned in periods {
        let problem = &planned.problem;
        let Some(service) = problem.services.iter().position(|service| service.name == wanted) else {
            return Err(Failure::input(format_args!(
                "{}: there is no service {wanted}",
                name(&args.demand)
            )));
        };
        let found = explain(problem, profiles, &usable(args), &planned.solution.plan, service);
        if periods.len() > 1 {
            print_text(&format!("{}\n", planned.period.time))?;
        }
        print_text(&output::explanation(problem, service, &found))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &PlanArgs, document: &Document) -> Result<(), Failure> {
    if args.json {
        print_json(document)
    } else if args.csv {
        print_text(&csv(document)?)
    } else {
        print_text(&text(document))
    }
}

fn print_series(args: &PlanArgs, series: Series) -> Result<(), Failure> {
    if args.csv {
        return Err(Failure::input("--csv is for one time only; --json has all"));
    }
    if args.json {
        return print_json(&series);
    }
    print_text(&series_text(series))
}

fn usable(args: &PlanArgs) -> Usable {
    Usable {
        latency_share_ppm: args.latency_share,
        max_processes: args.max_processes,
        memory_headroom_ppm: args.memory_headroom,
    }
}

/// The problem of one time, with the tables of its kinds of GPU.
fn problem(args: &PlanArgs, profiles: &Profiles, demand: &[DemandRow]) -> Result<(Problem, Tables), Failure> {
    let mut fleet = Fleet::default();
    let mut tables = Tables::new();
    for wanted in &args.gpu {
        let (model, count, price) = gpu(wanted).map_err(Failure::input)?;
        let table = table_of_model(model)?;
        fleet.add(model, &table, price, count).map_err(Failure::input)?;
        tables.insert(model.to_owned(), table);
    }
    let problem = Problem::new(fleet, profiles, &name(&args.demand), demand, &usable(args));
    Ok((problem.map_err(Failure::input)?, tables))
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
