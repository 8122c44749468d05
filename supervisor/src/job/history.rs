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
//! number of supervisors share it without loss ([`file`]).

use std::path::PathBuf;

mod entry;
pub mod file;
mod signature;
mod size;

pub use entry::Entry;
pub use file::{History, HistoryError};
pub use signature::{ENVIRONMENT, Signature};
pub use size::{FirstSize, expected, horizon, size};

use crate::control::{Evidence, Point};

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

/// The entries of a family, as the supervisor weighs them for one job of it.
#[must_use]
pub fn evidence(signature: &Signature, entries: Vec<Entry>) -> Evidence {
    let points = entries.into_iter().map(|entry| Point {
        same_program: entry.content == signature.content,
        numbers: entry.numbers,
        past: entry.past,
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
    fn a_relative_state_directory_is_no_state_directory() {
        assert_eq!(
            at(&[("HOME", "/h"), ("XDG_STATE_HOME", "state")]),
            Some("/h/.local/state/migm/history.jsonl".into())
        );
    }
}
