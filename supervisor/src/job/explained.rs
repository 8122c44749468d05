//! What was decided on jobs that are over, kept by their runners: a private supervisor ends with its last job, and
//! takes what it knew with it.
//!
//! One file a job, beside the history and as much the user's alone. Job numbers of private supervisors begin anew,
//! so a number stands for the last job that had it.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use migm_shared::ids::JobId;
use serde::{Deserialize, Serialize};

use crate::control::Explanation;

/// The version that this build reads and writes; another one is passed over.
const VERSION: u32 = 1;
/// Jobs that are kept: a few days of them, and a megabyte at most.
const KEPT: usize = 64;

#[derive(Serialize, Deserialize)]
struct File<T> {
    version: u32,
    explanation: T,
}

/// The folder that belongs to a history.
fn folder(history: &Path) -> PathBuf {
    history.with_extension("explained")
}

fn file(history: &Path, job: JobId) -> PathBuf {
    folder(history).join(format!("{job}.json"))
}

/// Keeps what was decided on a job that is over; the oldest go where there are too many.
///
/// # Errors
/// The kernel refuses; what was kept before stays.
pub fn keep(history: &Path, explanation: &Explanation) -> io::Result<()> {
    let folder = folder(history);
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let mut fresh = tempfile::Builder::new().prefix(".").tempfile_in(&folder)?;
    let version = VERSION;
    serde_json::to_writer(&mut fresh, &File { version, explanation })?;
    fresh.flush()?;
    fresh
        .persist(file(history, explanation.status.id))
        .map_err(|error| error.error)?;
    let mut kept: Vec<(SystemTime, PathBuf)> = fs::read_dir(&folder)?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    kept.sort();
    for (_, old) in kept.iter().rev().skip(KEPT) {
        // Another runner may have been faster.
        let _ = fs::remove_file(old);
    }
    Ok(())
}

/// What was decided on the last job with this number, and how long ago it ended.
#[must_use]
pub fn kept(history: &Path, job: JobId) -> Option<(Explanation, Duration)> {
    let path = file(history, job);
    let ended = fs::metadata(&path).ok()?.modified().ok()?;
    let read: File<Explanation> = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
    let ago = SystemTime::now().duration_since(ended).unwrap_or_default();
    (read.version == VERSION).then_some((read.explanation, ago))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Decision, Figures, Inputs, JobState, JobStatus, Seen, Verdict};

    fn explanation(id: u64) -> Explanation {
        Explanation {
            status: JobStatus {
                id: JobId(id),
                name: "job".into(),
                state: JobState::Ended,
                attempts: Vec::new(),
                figures: Figures::default(),
                predicted_peak_bytes: None,
                iteration: 0,
                iterations: None,
                part: None,
                note: None,
                user: 0,
                since: 0.0,
                wishes: crate::control::Wishes::default(),
            },
            start: "nothing is known".into(),
            decisions: vec![Decision {
                first: 1.0,
                last: 2.0,
                times: 3,
                attempt: 1,
                verdict: Verdict::Stay,
                reason: "fits".into(),
                inputs: Some(Inputs::default()),
            }],
            left_out: 0,
            submitted: 1.5,
            seen: Seen::default(),
            advice: None,
            simulated: true,
            time_scale: 0.05,
        }
    }

    #[test]
    fn the_last_jobs_are_kept_and_a_number_is_the_last_that_had_it() {
        let place = tempfile::tempdir().unwrap();
        let history = place.path().join("migm/history.jsonl");
        assert!(kept(&history, JobId(1)).is_none());
        for id in 0..100 {
            keep(&history, &explanation(id)).unwrap();
        }
        let again = Explanation {
            start: "another".into(),
            ..explanation(99)
        };
        keep(&history, &again).unwrap();
        assert_eq!(kept(&history, JobId(99)).unwrap().0, again);
        assert!(kept(&history, JobId(0)).is_none());
        assert_eq!(fs::read_dir(folder(&history)).unwrap().count(), KEPT);
    }
}
