//! `migm predict`: what a forecast would have done for a job whose memory was logged, and how good forecasts are on a
//! folder of such logs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use migm_shared::units::{Bytes, GIB, MIB};
use serde::Serialize;

use super::{Failure, exit, print_json, print_text};
use crate::memory::{
    Keeping, Method, On, Policy, Replay, Run, Score, ScoreTrack, TraceError, policy_cost, replay, runs,
    score, score_on_sizes,
};
use crate::report::chart::{Band, Chart};
use crate::report::table::Table;

/// Replay a job's memory log on a slice, or score predictors
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  migm predict memory.csv --slice 9.5Gi --svg job.svg
  migm predict --score logs --method paper,migm")]
pub struct Args {
    /// A log: x,allocated_bytes,reserved_bytes,requested_bytes with x an iteration or a second
    #[arg(
        value_name = "TRACE.csv",
        required_unless_present = "score",
        conflicts_with = "score"
    )]
    trace: Option<PathBuf>,
    /// Memory of the slice, such as 9.5Gi
    #[arg(
        long,
        value_name = "SIZE",
        required_unless_present = "score",
        conflicts_with = "score"
    )]
    slice: Option<Bytes>,
    /// The last x of the job, if it is known beforehand
    #[arg(long, value_name = "X", conflicts_with = "score")]
    horizon: Option<f64>,
    /// Which job, where the log holds several
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "score", value_parser = clap::value_parser!(u32).range(1..))]
    job: u32,
    /// Draw the series, the forecasts at 5, 10 and 20 % of the run and the decision
    #[arg(long, value_name = "FILE", conflicts_with = "score")]
    svg: Option<PathBuf>,
    /// Score on all logs of this folder instead
    #[arg(long, value_name = "DIR")]
    score: Option<PathBuf>,
    /// paper, paper-cumulative, max or migm; several to score [default: migm, all but paper-cumulative to score]
    #[arg(long, value_name = "M", value_delimiter = ',', value_parser = method)]
    method: Vec<Method>,
    /// One JSON document
    #[arg(long)]
    json: bool,
}

fn method(text: &str) -> Result<Method, crate::memory::UnknownMethod> {
    text.parse()
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    match (&args.trace, &args.score, args.slice) {
        (Some(trace), _, Some(slice)) => replayed(args, trace, slice.0),
        (_, Some(folder), _) => scored(args, folder),
        _ => Err(Failure::input("a log with --slice, or --score with a folder")),
    }
}

/// What happened to the job on that slice.
#[derive(Debug, Serialize)]
struct Replayed {
    trace: String,
    /// Which job of the log, from 1, of how many.
    job: u32,
    jobs: usize,
    method: &'static str,
    slice_bytes: u64,
    horizon: Option<f64>,
    /// `fits`: it ran to its end; `move`: it was moved before it ran out, if it would have; `late`: it ran out.
    decision: &'static str,
    first_warning_x: Option<f64>,
    predicted_peak_bytes: Option<u64>,
    /// What the next slice must hold, at a move.
    need_bytes: Option<u64>,
    /// What the forecast rests on.
    law: Option<String>,
    actual_peak_bytes: u64,
    oom_x: Option<f64>,
}

fn replayed(args: &Args, trace: &Path, slice: u64) -> Result<ExitCode, Failure> {
    if args.method.len() > 1 {
        return Err(Failure::input("one --method to replay; several are for --score"));
    }
    if slice == 0 {
        return Err(Failure::input("--slice 0 holds nothing"));
    }
    if let Some(horizon) = args.horizon.filter(|x| !x.is_finite()) {
        return Err(Failure::input(format_args!("--horizon `{horizon}` is no number")));
    }
    let method = args.method.first().copied().unwrap_or_default();
    let text = read(trace)?;
    let jobs = runs(&stem(trace), &text)
        .map_err(|error| Failure::input(format_args!("{}:{error}", trace.display())))?;
    let run = jobs.get(args.job as usize - 1).ok_or_else(|| {
        Failure::input(format_args!(
            "{}: there is no job {}; the log holds {}",
            trace.display(),
            args.job,
            jobs.len()
        ))
    })?;
    let start = || method.start();
    let seen = replay(run, 0, &start, On::slice(slice, args.horizon));
    let document = Replayed {
        trace: trace.display().to_string(),
        job: args.job,
        jobs: jobs.len(),
        method: method.name(),
        slice_bytes: slice,
        horizon: args.horizon,
        decision: decision(&seen),
        first_warning_x: seen.warning.map(|warning| warning.x),
        predicted_peak_bytes: seen.last.map(|forecast| forecast.peak),
        need_bytes: seen.warning.map(|warning| warning.forecast.high),
        law: seen
            .last
            .map(|forecast| format!("{:?}", forecast.law).to_lowercase()),
        actual_peak_bytes: run.peak(),
        oom_x: seen.crossing.map(|index| run.seen[index].x),
    };
    if let Some(file) = &args.svg {
        let chart = chart(run, method, slice, args.horizon, &seen);
        std::fs::write(file, chart.svg()).map_err(|error| {
            Failure::new(
                exit::FAILED,
                format_args!("cannot write {}: {error}", file.display()),
            )
        })?;
    }
    if args.json {
        print_json(&document)?;
    } else {
        print_text(&in_words(&document))?;
    }
    Ok(ExitCode::SUCCESS)
}

const fn decision(seen: &Replay) -> &'static str {
    match (seen.warning, seen.crossing) {
        (Some(_), _) => "move",
        (None, Some(_)) => "late",
        (None, None) => "fits",
    }
}

fn in_words(document: &Replayed) -> String {
    let slice = Bytes(document.slice_bytes);
    let peak = Bytes(document.actual_peak_bytes);
    let predicted = document.predicted_peak_bytes.map_or_else(String::new, |bytes| {
        format!(", {} forecast by {}", Bytes(bytes), document.method)
    });
    let oom = document.oom_x.map_or_else(
        || "it never runs out".to_owned(),
        |x| format!("it runs out at {x}"),
    );
    match (document.decision, document.first_warning_x, document.need_bytes) {
        ("move", Some(x), Some(need)) => format!(
            "move at {x}, to a slice of at least {}; on {slice} {oom} (peak {peak}{predicted})\n",
            Bytes(need)
        ),
        ("late", ..) => {
            format!("late: on {slice} {oom}, and nothing announced it in time (peak {peak}{predicted})\n")
        }
        _ => format!("fits: on {slice} {oom} (peak {peak}{predicted})\n"),
    }
}

/// The series, what was forecast on the way, and the decision.
fn chart(run: &Run, method: Method, slice: u64, horizon: Option<f64>, seen: &Replay) -> Chart {
    let mut predictor = method.start();
    let mut shares = [0.05, 0.1, 0.2].into_iter().peekable();
    let mut bands = Vec::new();
    for (index, &observation) in run.seen.iter().enumerate() {
        predictor.observe(observation);
        let next = run.seen.get(index + 1).map_or(1.0, |later| run.share(later.x));
        while let Some(&share) = shares.peek() {
            if next <= share {
                break;
            }
            shares.next();
            if let Some(forecast) = predictor.forecast(Some(horizon.unwrap_or(run.span().1))) {
                bands.push(Band {
                    share,
                    from: (forecast.now, forecast.level),
                    to: forecast.horizon_used,
                    low: forecast.low,
                    likely: forecast.peak,
                    high: forecast.high,
                });
            }
        }
    }
    Chart {
        title: format!(
            "{} on {} by {}: {}",
            run.name,
            Bytes(slice),
            method.name(),
            decision(seen)
        ),
        series: run.seen.iter().map(|seen| (seen.x, seen.reserved)).collect(),
        slice,
        bands,
        warning: seen.warning.map(|warning| warning.x),
        oom: seen.crossing.map(|index| run.seen[index].x),
    }
}

/// The sizes of MIG slices that peaks of a log are set between: the smallest of an A100-40GB, and those of an A100-80GB.
const MIG_SIZES: [u64; 7] = [
    4864 * MIB,
    9728 * MIB,
    19968 * MIB,
    40192 * MIB,
    80640 * MIB,
    // Two whole GPUs, so that no peak of a log is above all.
    141 * GIB,
    192 * GIB,
];

#[derive(Debug, Serialize)]
struct Scored {
    folder: String,
    traces: usize,
    /// Jobs: some logs hold several.
    jobs: usize,
    /// Files whose header is another.
    ignored: Vec<String>,
    methods: BTreeMap<&'static str, Score>,
    tracks: BTreeMap<&'static str, BTreeMap<&'static str, Score>>,
    /// Mean time over the oracle's without a predictor, by what work survives.
    policies: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
}

fn scored(args: &Args, folder: &Path) -> Result<ExitCode, Failure> {
    let methods = if args.method.is_empty() {
        vec![Method::Paper, Method::Max, Method::Migm]
    } else {
        args.method.clone()
    };
    let (traces, jobs, ignored) = read_folder(folder)?;
    let by_method = |score: &dyn Fn(Method) -> Score| -> BTreeMap<&'static str, Score> {
        methods
            .iter()
            .map(|&method| (method.name(), score(method)))
            .collect()
    };
    let on = |runs: &[Run], track: ScoreTrack| by_method(&|method| score(runs, &|| method.start(), track));
    let usual = ScoreTrack::default();
    let sampled = |step: f64| -> Vec<Run> { jobs.iter().map(|run| run.sampled(1.0, step)).collect() };
    let mut tracks = BTreeMap::new();
    for (name, track) in [
        ("fit_1.02", ScoreTrack { fit: 1.02, ..usual }),
        ("fit_1.25", ScoreTrack { fit: 1.25, ..usual }),
        (
            "horizon_unknown",
            ScoreTrack {
                fit: 1.25,
                horizon_known: false,
                ..usual
            },
        ),
        (
            "move_keeps_work",
            ScoreTrack {
                keeping: Keeping::OnMove,
                ..usual
            },
        ),
        (
            "checkpoints",
            ScoreTrack {
                keeping: Keeping::Always,
                ..usual
            },
        ),
    ] {
        tracks.insert(name, on(&jobs, track));
    }
    tracks.insert("sampled_100ms", on(&sampled(0.1), usual));
    tracks.insert("sampled_1s", on(&sampled(1.0), usual));
    for (name, near) in [("mig_sizes", false), ("mig_sizes_within_10_percent", true)] {
        let scores = by_method(&|method| score_on_sizes(&jobs, &|| method.start(), &MIG_SIZES, near));
        tracks.insert(name, scores);
    }
    let document = Scored {
        folder: folder.display().to_string(),
        traces,
        jobs: jobs.len(),
        ignored,
        methods: on(&jobs, usual),
        tracks,
        policies: policies(&jobs),
    };
    if args.json {
        print_json(&document)?;
    } else {
        print_text(&table(&document))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn policies(jobs: &[Run]) -> BTreeMap<&'static str, BTreeMap<&'static str, f64>> {
    let mut policies = BTreeMap::new();
    for (name, keeping) in [
        ("restart_from_zero", Keeping::Nothing),
        ("move_keeps_work", Keeping::OnMove),
        ("checkpoints", Keeping::Always),
    ] {
        let track = ScoreTrack {
            keeping,
            ..ScoreTrack::default()
        };
        let costs = [
            ("do_nothing", Policy::Nothing),
            ("next_size_up", Policy::NextSize),
            ("right_size_after_oom", Policy::RightSize),
            ("full_gpu", Policy::Full),
            ("oracle", Policy::Oracle),
        ];
        let costs = costs.map(|(name, policy)| (name, policy_cost(jobs, policy, track)));
        policies.insert(name, costs.into_iter().collect());
    }
    policies
}

/// How many traces, their jobs, and the names of the CSV files that are none.
fn read_folder(folder: &Path) -> Result<(usize, Vec<Run>, Vec<String>), Failure> {
    let unreadable =
        |error: std::io::Error| Failure::input(format_args!("cannot read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "csv") {
            files.push(path);
        }
    }
    files.sort();
    let (mut traces, mut jobs, mut ignored) = (0, Vec::new(), Vec::new());
    for file in &files {
        match runs(&stem(file), &read(file)?) {
            Ok(more) => {
                traces += 1;
                jobs.extend(more);
            }
            Err(TraceError::Header(_)) => ignored.push(stem(file) + ".csv"),
            Err(error) => return Err(Failure::input(format_args!("{}:{error}", file.display()))),
        }
    }
    if jobs.is_empty() {
        return Err(Failure::input(format_args!(
            "{}: there is no trace in it",
            folder.display()
        )));
    }
    Ok((traces, jobs, ignored))
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::input(format_args!("cannot read {}: {error}", file.display())))
}

fn stem(file: &Path) -> String {
    file.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

fn table(document: &Scored) -> String {
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let mut text = format!(
        "{}: {} jobs in {} traces",
        document.folder, document.jobs, document.traces
    );
    if !document.ignored.is_empty() {
        text += &format!("; ignored, with another header: {}", document.ignored.join(", "));
    }
    text += "\n\n";
    let mut table = Table::new(&[
        "track",
        "method",
        ">at 5 %",
        ">10 %",
        ">20 %",
        ">missed",
        ">announced",
        ">false",
        ">lead",
        ">cost",
    ]);
    let all = std::iter::once(("usual", &document.methods))
        .chain(document.tracks.iter().map(|(&name, scores)| (name, scores)));
    for (track, scores) in all {
        for (&method, score) in scores {
            table.row([
                track.to_owned(),
                method.to_owned(),
                percent(score.median_error_5),
                percent(score.median_error_10),
                percent(score.median_error_20),
                format!("{} of {}", score.missed, score.runs_over),
                format!("{} of {}", score.missed_avoidable, score.runs_avoidable),
                format!("{} of {}", score.false_restarts, score.runs_fit),
                percent(score.lead_median),
                format!("{:.3}", score.cost),
            ]);
        }
    }
    text += &table.render();
    for (keeping, costs) in &document.policies {
        text += &format!("\n{keeping}:");
        for (policy, cost) in costs {
            text += &format!("  {policy} {cost:.3}");
        }
    }
    text + "\n"
}
