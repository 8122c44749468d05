//! `migm explain`: why a job is where it is.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::ids::JobId;
use migm_shared::units::Bytes;
use serde::Serialize;

use super::{Failure, exit, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{Decision, Explanation, Inputs, Reply, Request};
use crate::job::record::{AttemptLine, Clock};
use crate::report::status::state;

const LIMIT: Duration = Duration::from_secs(10);

/// Show what was decided on a job, when, and on which figures
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number, as `migm status` shows it
    #[arg(value_name = "JOB")]
    job: u64,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Of the private supervisor of this simulated GPU
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let explained = ask(args).map_err(|error| match error {
        ClientError::Refused(reason) => Failure::input(reason),
        ClientError::NoSupervisor(_) => Failure::no_gpu(format_args!(
            "{error}; a private supervisor ends with its last job, and a job's decisions with it"
        )),
        error => Failure::new(exit::NO_GPU, error),
    })?;
    if args.json {
        print_json(&Document::new(&explained))?;
    } else {
        print_text(&text(&explained))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(args: &Args) -> Result<Explanation, ClientError> {
    let wanted = Wanted {
        sim: args.sim.clone(),
        ..Wanted::default()
    };
    let mut client = Client::first_of(&wanted.places())?;
    let request = Request::Explain { job: JobId(args.job) };
    client.ask(&request, LIMIT, |reply| match reply {
        Reply::Explained(explained) => Some(*explained),
        _ => None,
    })
}

/// The JSON document. Times are seconds since the submission, simulated ones where the GPUs are.
#[derive(Debug, Serialize)]
struct Document<'a> {
    id: JobId,
    name: &'a str,
    state: &'static str,
    start: &'a str,
    attempts: Vec<AttemptLine>,
    decisions: Vec<Line<'a>>,
    left_out: u64,
    iterations: u64,
    law: Option<&'a str>,
    advice: Option<&'a str>,
    note: Option<&'a str>,
    simulated: bool,
    time_scale: f64,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    first: f64,
    last: f64,
    times: u64,
    attempt: u32,
    verdict: &'static str,
    reason: &'a str,
    inputs: Option<&'a Inputs>,
}

impl<'a> Document<'a> {
    fn new(explained: &'a Explanation) -> Self {
        let clock = clock(explained);
        let status = &explained.status;
        let attempts = status.attempts.iter();
        let decisions = explained.decisions.iter();
        Self {
            id: status.id,
            name: &status.name,
            state: state(status.state),
            start: &explained.start,
            attempts: attempts
                .map(|attempt| AttemptLine::new(attempt, explained.submitted, &clock))
                .collect(),
            decisions: decisions
                .map(|decision| Line {
                    first: clock.seconds(decision.first - explained.submitted),
                    last: clock.seconds(decision.last - explained.submitted),
                    times: decision.times,
                    attempt: decision.attempt,
                    verdict: decision.verdict.word(),
                    reason: &decision.reason,
                    inputs: decision.inputs.as_ref(),
                })
                .collect(),
            left_out: explained.left_out,
            iterations: explained.seen.iterations,
            law: explained.seen.law.as_deref(),
            advice: explained.advice.as_deref(),
            note: status.note.as_deref(),
            simulated: explained.simulated,
            time_scale: explained.time_scale,
        }
    }
}

fn clock(explained: &Explanation) -> Clock {
    Clock {
        simulated: explained.simulated,
        time_scale: explained.time_scale,
    }
}

/// For people: a line a decision, and below it the figures that were weighed last.
fn text(explained: &Explanation) -> String {
    let status = &explained.status;
    let mut text = format!("job {} `{}`, {}\n", status.id, status.name, state(status.state));
    let mut line = |words: std::fmt::Arguments| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{words}");
    };
    line(format_args!("started by: {}", explained.start));
    for (number, decision) in explained.decisions.iter().enumerate() {
        if explained.left_out > 0 && number == explained.decisions.len().saturating_sub(48) {
            line(format_args!(
                "  ... {} decisions are not kept",
                explained.left_out
            ));
        }
        line(format_args!("{}", heading(explained, decision)));
        if let Some(inputs) = &decision.inputs {
            line(format_args!("            {}", figures(inputs)));
        }
    }
    if let Some(advice) = &explained.advice {
        line(format_args!("next time: {advice}"));
    }
    if explained.simulated {
        line(format_args!("times are simulated seconds"));
    }
    text
}

fn heading(explained: &Explanation, decision: &Decision) -> String {
    let clock = clock(explained);
    let at = |time: f64| clock.seconds(time - explained.submitted);
    let attempt = match decision.attempt {
        0 => String::new(),
        attempt => format!("attempt {attempt} "),
    };
    let often = match decision.times {
        1 => String::new(),
        times => format!(" ({times} times until {:.1} s)", at(decision.last)),
    };
    format!(
        "{:>8.1} s  {attempt}{}{often}: {}",
        at(decision.first),
        decision.verdict.word(),
        decision.reason
    )
}

/// What the reason does not say.
fn figures(inputs: &Inputs) -> String {
    let mut text = format!(
        "law `{}`{}, most likely {}, at least {}; {} of the slice taken besides; {:.1} s of work, relaunch {:.1} s",
        inputs.law,
        if inputs.settled { "" } else { ", not settled" },
        Bytes(inputs.peak),
        Bytes(inputs.low),
        Bytes(inputs.unaccounted),
        inputs.work_done,
        inputs.relaunch,
    );
    // Writing to a string does not fail.
    if let Some(stakes) = inputs.stakes {
        let _ = write!(
            text,
            "; probability {:.2}, a move costs {:.1} s, staying {:.1} s",
            stakes.overflow, stakes.moving, stakes.staying
        );
    }
    if let Some(peak) = inputs.history_peak {
        let _ = write!(text, "; earlier runs at most {}", Bytes(peak));
    }
    text
}
