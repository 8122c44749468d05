//! `migm explain`: why a job is where it is.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::ids::JobId;
use migm_shared::units::Bytes;
use serde::Serialize;

use super::logs::kept_one;
use super::{Failure, exit, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{Decision, Explanation, Inputs, Reply, Request, ShownId, Wishes};
use crate::job::detached::{self, Selector, folder};
use crate::job::record::{AttemptLine, Clock};
use crate::job::{explained, history};
use crate::report::status::state;

const LIMIT: Duration = Duration::from_secs(10);

/// Show what was decided on a job, when and why
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job's number, as `migm status` and `migm jobs` show it; of a submitted job also its name
    #[arg(value_name = "JOB")]
    job: Selector,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Of the private supervisor of this simulated GPU
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let (explained, ago) = find(args)?;
    if args.json {
        print_json(&Document::new(&explained))?;
    } else {
        print_text(&text(&explained, ago))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// From the supervisor; else from what the runner of a job that has ended has kept, and how long ago that was.
fn find(args: &Args) -> Result<(Explanation, Option<Duration>), Failure> {
    let wanted = Wanted {
        sim: args.sim.clone(),
        ..Wanted::default()
    };
    let number = match &args.job {
        Selector::Number(job) => Some(*job),
        Selector::Element(..) | Selector::Name(_) => None,
    };
    let asked = number.map(|job| ask(&wanted.places(), job));
    if let Some(Ok(explained)) = asked {
        return Ok((explained, None));
    }
    let submitted = detached::place().is_some_and(|place| !args.job.kept(&place).is_empty());
    let of_history = || {
        let kept = number.and_then(|job| explained::kept(&history::place()?, job));
        kept.filter(|_| !submitted)
    };
    if let Some((explained, ago)) = of_history() {
        return Ok((explained, Some(ago)));
    }
    if !submitted && let Some(Err(error)) = asked {
        return Err(match error {
            ClientError::Refused(reason) => Failure::input(reason),
            error => Failure::no_gpu(format_args!("{error}, and no runner has kept a job {}", args.job)),
        });
    }
    let (folder, record) = kept_one(&args.job)?;
    if let Some(explained) = folder::explanation(&folder) {
        let ago = Duration::try_from_secs_f64(detached::wall() - record.since).unwrap_or_default();
        return Ok((explained, Some(ago)));
    }
    if let Some(end) = record.end {
        let reason = end.reason.unwrap_or_else(|| end.how.word().to_owned());
        return Err(Failure::new(
            exit::FAILED,
            format_args!(
                "nothing was kept of what was decided on job {}: {reason}",
                args.job
            ),
        ));
    }
    let explained = ask(&[record.socket], record.id).map_err(Failure::no_gpu)?;
    Ok((explained, None))
}

fn ask(places: &[PathBuf], job: JobId) -> Result<Explanation, ClientError> {
    let mut client = Client::first_of(places)?;
    client.ask(&Request::Explain { job }, LIMIT, |reply| match reply {
        Reply::Explained(explained) => Some(*explained),
        _ => None,
    })
}

/// The JSON document. Times are seconds since the submission, simulated ones where the GPUs are.
#[derive(Debug, Serialize)]
struct Document<'a> {
    id: ShownId,
    name: &'a str,
    state: &'static str,
    profile: Option<&'a str>,
    start: &'a str,
    attempts: Vec<AttemptLine>,
    decisions: Vec<Line<'a>>,
    left_out: u64,
    iterations: u64,
    law: Option<&'a str>,
    advice: Option<&'a str>,
    note: Option<&'a str>,
    wishes: &'a Wishes,
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
            id: status.shown_id(),
            wishes: &status.wishes,
            name: &status.name,
            state: state(status.state),
            profile: status.attempts.last().map(|last| last.profile.as_str()),
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
fn text(explained: &Explanation, ago: Option<Duration>) -> String {
    let status = &explained.status;
    let mut text = format!(
        "job {} `{}`, {}",
        status.shown_id(),
        status.name,
        state(status.state)
    );
    text.push_str(&match ago {
        Some(ago) => format!(" {} s ago\n", ago.as_secs()),
        None => "\n".to_owned(),
    });
    let mut line = |words: std::fmt::Arguments| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{words}");
    };
    let wishes = status.wishes.to_string();
    if !wishes.is_empty() {
        line(format_args!("asked for: {wishes}"));
    }
    line(format_args!("started by: {}", explained.start));
    for (number, decision) in explained.decisions.iter().enumerate() {
        if explained.left_out > 0 && number == Explanation::FIRST {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{
        AttemptRecord, Figures, JobState, JobStatus, Outcome, Seen, Stakes, Verdict, WorkKept,
    };
    use migm_shared::ids::Incarnation;
    use migm_shared::units::GIB;

    fn decision(first: f64, times: u64, verdict: Verdict, reason: &str, inputs: Option<Inputs>) -> Decision {
        Decision {
            first,
            last: first + 0.5,
            times,
            attempt: u32::from(verdict != Verdict::Size),
            verdict,
            reason: reason.into(),
            inputs,
        }
    }

    fn explanation() -> Explanation {
        let inputs = Inputs {
            slice: 5 * GIB,
            unaccounted: 434 << 20,
            level: 2 * GIB,
            x: 12.0,
            horizon: 130.0,
            trusted_to: 130.0,
            peak: 9 * GIB,
            low: 8 * GIB,
            high: 10 * GIB,
            settled: true,
            law: "line".into(),
            work_done: 1.25,
            relaunch: 0.5,
            kept: WorkKept::Never,
            stakes: Some(Stakes {
                overflow: 0.99,
                time_to_full: 4.0,
                time_left: 12.0,
                moving: 1.75,
                staying: 5.7,
                wait: None,
            }),
            history_peak: None,
        };
        let staying = Inputs {
            settled: false,
            stakes: None,
            history_peak: Some(3 * GIB),
            ..inputs.clone()
        };
        Explanation {
            status: JobStatus {
                id: JobId(7),
                name: "decoder".into(),
                state: JobState::Running,
                attempts: vec![AttemptRecord {
                    profile: "1g.5gb".into(),
                    slice: Incarnation(3),
                    placement: 6,
                    start: 100.5,
                    end: Some(102.0),
                    outcome: Some(Outcome::Moved),
                    status: Some(143),
                    why: None,
                    memory: 0,
                    for_speed: false,
                }],
                figures: Figures::default(),
                predicted_peak_bytes: None,
                iteration: 12,
                iterations: Some(130),
                part: None,
                note: None,
                user: 0,
                since: 100.5,
                wishes: Wishes::default(),
            },
            start: "nothing is known of its memory: the smallest slice".into(),
            decisions: vec![
                decision(
                    100.0,
                    1,
                    Verdict::Size,
                    "nothing is known of its memory: the smallest slice",
                    None,
                ),
                decision(
                    100.2,
                    1,
                    Verdict::Grant,
                    "need unknown: 1g.5gb@6 with 4.75 GiB, created",
                    None,
                ),
                decision(
                    100.6,
                    9,
                    Verdict::Stay,
                    "not settled yet: forecast 8.00 GiB to 10.00 GiB",
                    Some(staying),
                ),
                decision(
                    101.5,
                    1,
                    Verdict::Move,
                    "forecast need 10.42 GiB exceeds 1g.5gb@6 with 4.75 GiB",
                    Some(inputs),
                ),
            ],
            left_out: 0,
            submitted: 100.0,
            seen: Seen {
                iterations: 12,
                law: Some("line".into()),
            },
            advice: Some("it peaked at 1.00 GiB".into()),
            simulated: true,
            time_scale: 0.5,
        }
    }

    #[test]
    fn a_job_that_was_moved_for_people() {
        insta::assert_snapshot!(text(&explanation(), None));
    }

    #[test]
    fn a_job_that_was_moved_as_json() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&Document::new(&explanation())).unwrap());
    }
}
