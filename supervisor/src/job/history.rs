//! What earlier runs of a program came to, kept for its next run.
//!
//! One run through it:
//!
//! 1. Before the job is submitted, the runner works out the program's [`Signature`] and reads the
//!    [`History`]: the entries of the same family become the [`Evidence`] that goes to the supervisor.
//! 2. The supervisor sizes the first slice by it ([`size()`]), once, when the job is submitted. It also learns the
//!    horizon from it, and a forecast must contradict it with more than a line through a few points.
//! 3. When the job is over, the runner appends one line with what this run came to.
//!
//! The file is the user's own, and the runner's alone: a supervisor that serves many users needs no right to
//! it, and nobody's runs say anything to another user. Runners append under a lock, so that runners of any
//! number of supervisors share it without loss ([`mod@file`]).

use std::cmp::Reverse;
use std::path::PathBuf;

mod entry;
pub mod file;
mod signature;
mod size;

pub use entry::Entry;
pub use file::{History, HistoryError};
pub use signature::{ENVIRONMENT, Signature};
pub use size::{FirstSize, expected, horizon, size};

use crate::control::{Evidence, PastPace, PastPeak, Point};

/// Where the history is, or that there is none: `MIGM_HISTORY` is `off`, or a file; else it is in the user's
/// state directory.
#[must_use]
pub fn place() -> Option<PathBuf> {
    place_by(|name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    })
}

fn place_by(given: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    match given("MIGM_HISTORY") {
        Some(word) if ["off", "0"].iter().any(|off| word.as_os_str() == *off) => None,
        Some(path) => Some(path),
        None => {
            // A relative path there is to be ignored, by the XDG base directory specification.
            let state = given("XDG_STATE_HOME").filter(|path| path.is_absolute());
            let folder = state.or_else(|| given("HOME").map(|home| home.join(".local/state")))?;
            Some(folder.join("migm/history.jsonl"))
        }
    }
}

/// What is sent of a family has at most about so many bytes: half of what a request may have.
const SENT: usize = 128 << 10;

/// The entries of a family, as the supervisor weighs them for one job of it: that of the very command first, then
/// those that ran last, as many as a request holds.
#[must_use]
pub fn evidence(signature: &Signature, mut entries: Vec<Entry>) -> Evidence {
    let id = signature.id();
    entries.sort_by_key(|entry| (entry.signature != id, Reverse(entry.last_run)));
    let mut room = SENT;
    let points = entries.into_iter().map_while(|entry| {
        let peaks = entry.past.peaks.len() * size_of::<PastPeak>();
        let paces = entry.past.paces.iter().map(|pace| {
            let words = pace.gpu.len() + pace.profile.len();
            size_of::<PastPace>() + words
        });
        let paces: usize = paces.sum();
        let bytes = size_of::<Point>() + peaks + paces + entry.numbers.len() * size_of::<f64>();
        room = room.checked_sub(bytes)?;
        Some(Point {
            same_program: entry.content == signature.content,
            numbers: entry.numbers,
            past: entry.past,
        })
    });
    Evidence {
        signature: signature.id(),
        numbers: signature.numbers.clone(),
        points: points.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{About, Outcome, Past, Request, WorkKept};

    fn at(variables: &[(&str, &str)]) -> Option<PathBuf> {
        place_by(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| PathBuf::from(value))
        })
    }

    #[test]
    fn it_is_in_the_state_directory_unless_told_otherwise() {
        let home = ("HOME", "/home/u");
        assert_eq!(
            at(&[home]),
            Some("/home/u/.local/state/migm/history.jsonl".into())
        );
        assert_eq!(
            at(&[home, ("XDG_STATE_HOME", "/s")]),
            Some("/s/migm/history.jsonl".into())
        );
        assert_eq!(at(&[home, ("MIGM_HISTORY", "/f")]), Some("/f".into()));
        assert_eq!(at(&[home, ("MIGM_HISTORY", "off")]), None);
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn a_family_of_thousands_fits_into_a_request_with_the_very_command_and_the_last_runs() {
        let signature = Signature {
            program: "/bin/p".into(),
            words: vec!["#".into()],
            environment: Vec::new(),
            numbers: vec![7.0],
            content: "c".into(),
        };
        let past = Past {
            runs: 1,
            done: 1,
            peaks: vec![
                PastPeak {
                    allocated: Some(1),
                    reserved: 1,
                    device: Some(1),
                    slice: 1,
                };
                Past::KEPT
            ],
            at_least: 0,
            iterations: 0,
            law: Some("settling".into()),
            outcome: Outcome::Done,
            paces: Vec::new(),
        };
        let entries = (0..5_000_u32).map(|number| {
            let one = Signature {
                numbers: vec![f64::from(number)],
                ..signature.clone()
            };
            Entry::new(&one, String::new(), true, u64::from(number), past.clone())
        });
        let sent = evidence(&signature, entries.collect());
        let numbers: Vec<f64> = sent
            .points
            .iter()
            .flat_map(|point| point.numbers.clone())
            .collect();
        assert_eq!(numbers[..3], [7.0, 4_999.0, 4_998.0]);
        assert!(numbers.len() > 100, "{}", numbers.len());
        let about = About {
            kept: WorkKept::Never,
            history: Some(sent),
        };
        assert!(migm_shared::frame::encode(&Request::About(about)).is_ok());
    }

    #[test]
    fn a_relative_state_directory_is_no_state_directory() {
        assert_eq!(
            at(&[("HOME", "/h"), ("XDG_STATE_HOME", "state")]),
            Some("/h/.local/state/migm/history.jsonl".into())
        );
    }
}
