//! `migm history`: what was learnt per program.

use std::process::ExitCode;

use clap::Subcommand;
use migm_shared::units::Bytes;
use serde::Serialize;

use super::{Failure, exit, print_json, print_text};
use crate::job::history::{self, Entry, History, HistoryError};
use crate::report::table::{Table, outcome};

/// Show what earlier runs of programs came to, or forget it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// One JSON document
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<Wanted>,
}

#[derive(Debug, Subcommand)]
enum Wanted {
    /// Print all entries as JSON lines, one a program with its arguments
    Export,
    /// Forget a program, or all
    Forget {
        /// The signature that the list shows, or the start of it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        signature: Option<String>,
        /// Everything
        #[arg(long)]
        all: bool,
    },
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let place = history::place()
        .ok_or_else(|| Failure::input("there is no history: MIGM_HISTORY is off, or HOME is not set"))?;
    let history = History::new(place);
    match &args.command {
        None => list(&history, args.json)?,
        Some(Wanted::Export) => export(&history)?,
        Some(Wanted::Forget { signature, .. }) => {
            let gone = forget(&history, signature.as_deref())?;
            print_text(&format!("{gone} forgotten\n"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn failure(error: HistoryError) -> Failure {
    match &error {
        HistoryError::Version { .. } | HistoryError::Foreign { .. } => Failure::input(error),
        _ => Failure::new(exit::FAILED, error),
    }
}

#[derive(Debug, Serialize)]
struct Document<'a> {
    path: String,
    version: u32,
    unread_lines: usize,
    entries: &'a [Entry],
}

fn list(history: &History, json: bool) -> Result<(), Failure> {
    let (mut entries, unread) = history.read().map_err(failure)?;
    entries.reverse();
    if json {
        return print_json(&Document {
            path: history.path().display().to_string(),
            version: history::file::VERSION,
            unread_lines: unread,
            entries: &entries,
        });
    }
    print_text(&text(&entries))
}

/// The last run first.
fn text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "nothing has been learnt yet\n".to_owned();
    }
    let mut table = Table::new(&[
        "signature",
        ">runs",
        ">done",
        ">device peak",
        ">reserved",
        ">needs at least",
        ">iterations",
        "law",
        "last",
        "command",
    ]);
    for entry in entries {
        let past = &entry.past;
        let most = |of: fn(&crate::control::PastPeak) -> Option<u64>| past.peaks.iter().filter_map(of).max();
        let shown =
            |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), |bytes| Bytes(bytes).to_string());
        table.row([
            entry.signature.clone(),
            past.runs.to_string(),
            past.done.to_string(),
            shown(most(|peak| peak.device)),
            shown(most(|peak| Some(peak.reserved))),
            shown((past.at_least > 0).then_some(past.at_least)),
            past.iterations.to_string(),
            past.law.clone().unwrap_or_else(|| "-".to_owned()),
            outcome(past.outcome).to_owned(),
            entry.command(),
        ]);
    }
    table.render()
}

fn export(history: &History) -> Result<(), Failure> {
    let (entries, _) = history.read().map_err(failure)?;
    let mut text = String::new();
    for entry in &entries {
        let line = serde_json::to_string(entry).map_err(|error| Failure::new(exit::FAILED, error))?;
        text.push_str(&line);
        text.push('\n');
    }
    print_text(&text)
}

/// Forgets one signature by the start of it, or all.
fn forget(history: &History, start: Option<&str>) -> Result<usize, Failure> {
    if let Some(start) = start {
        let (entries, _) = history.read().map_err(failure)?;
        let named = entries
            .iter()
            .filter(|entry| entry.signature.starts_with(start))
            .count();
        match named {
            1 => {}
            0 => return Err(Failure::input(format_args!("no signature starts with `{start}`"))),
            several => {
                return Err(Failure::input(format_args!(
                    "{several} signatures start with `{start}`: say more of it"
                )));
            }
        }
    }
    let wanted = |entry: &Entry| start.is_none_or(|start| entry.signature.starts_with(start));
    history.forget(wanted).map_err(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Outcome, Past, PastPeak};
    use migm_shared::units::GIB;

    #[test]
    fn programs_for_people() {
        let entry = |signature: &str, numbers: Vec<f64>, past: Past| Entry {
            family: "f".into(),
            signature: signature.into(),
            program: "/usr/bin/python3".into(),
            words: vec!["/home/u/train.py".into(), "--batch=#".into()],
            environment: Vec::new(),
            numbers,
            content: "c".into(),
            gpu: "NVIDIA A100-SXM4-40GB".into(),
            simulated: false,
            last_run: 0,
            past,
        };
        let done = Past {
            paces: Vec::new(),
            runs: 3,
            done: 2,
            peaks: vec![PastPeak {
                allocated: None,
                reserved: 9 * GIB,
                device: Some(10 * GIB),
                slice: 20 * GIB,
            }],
            at_least: 0,
            iterations: 1_000,
            law: Some("line".into()),
            outcome: Outcome::Done,
        };
        let out = Past {
            paces: Vec::new(),
            runs: 1,
            done: 0,
            peaks: Vec::new(),
            at_least: 45 * GIB,
            iterations: 0,
            law: None,
            outcome: Outcome::Oom,
        };
        let entries = [
            entry("00112233445566aa", vec![32.0], done),
            entry("00112233445566bb", vec![0.5], out),
        ];
        insta::assert_snapshot!(text(&entries));
        assert_eq!(text(&[]), "nothing has been learnt yet\n");
    }
}
