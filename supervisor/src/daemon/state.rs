//! The state file: what the next supervisor must know if this one is killed at any instant.
//!
//! It is written as a whole to a file beside it, synced and renamed, before any create, destroy or grant
//! that it tells of is begun. A slice that is named `creating` or `destroying` is a transition half done:
//! the next supervisor finishes it or takes it back.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use migm_shared::ids::{BatchId, Incarnation, JobId};
use serde::{Deserialize, Serialize};

use super::error::DaemonError;
use super::process::ProcessId;
use crate::control::{AttemptRecord, Figures, Grant, JobState, Submission};

/// The version that this build writes and reads.
pub const VERSION: u32 = 1;

/// All that outlives a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// [`VERSION`].
    pub version: u32,
    /// The next job's number.
    pub next_job: u64,
    /// The next slice's number.
    pub next_slice: u64,
    /// The next batch's number.
    pub next_batch: u64,
    /// Instances created plus instances destroyed.
    pub reconfigurations: u64,
    /// The simulated GPU, if it is one.
    pub simulated: Option<SimulatedState>,
    /// Our slices.
    pub slices: Vec<SliceRecord>,
    /// Jobs that live, and ended ones of living batches.
    pub jobs: Vec<JobRecord>,
    /// Batches that have not ended, and ended ones that somebody may still ask for.
    pub batches: Vec<BatchRecord>,
}

/// A simulated GPU to find again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimulatedState {
    /// As asked for: model and count.
    pub spec: String,
    /// The simulator's id.
    pub id: String,
}

/// How far a slice is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// A create has been asked for.
    Creating,
    /// It is there.
    Ready,
    /// A destroy has been asked for.
    Destroying,
}

/// One of our slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SliceRecord {
    /// Our number.
    pub slice: Incarnation,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// NVML's id, once the driver has told it.
    pub gi: Option<u32>,
    /// NVML's profile id.
    pub profile: u32,
    /// First unit of the placement.
    pub start: u32,
    /// Units of the placement.
    pub size: u32,
    /// How far it is.
    pub step: Step,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobRecord {
    /// Number.
    pub id: JobId,
    /// As submitted.
    pub submission: Submission,
    /// Whose it is.
    pub uid: u32,
    /// Where it is.
    pub state: JobState,
    /// Attempts so far.
    pub attempts: Vec<AttemptRecord>,
    /// The lease it holds.
    pub grant: Option<Grant>,
    /// The running attempt's first process.
    pub leader: Option<ProcessId>,
    /// Device bytes that it is known to need; 0 when nothing is known.
    pub need: u64,
    /// Largest unaccounted device bytes seen.
    pub unaccounted: Option<u64>,
    /// Memory so far.
    pub figures: Figures,
    /// The last forecast.
    pub predicted: Option<u64>,
    /// One line for people.
    pub note: Option<String>,
}

/// A batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchRecord {
    /// Number.
    pub id: BatchId,
    /// Name for people.
    pub name: String,
    /// Whose it is.
    pub uid: u32,
    /// Jobs in order of submission.
    pub jobs: Vec<JobId>,
    /// When it started; monotonic seconds.
    pub started: Option<f64>,
    /// The energy counters then, millijoules.
    pub energy_start: Option<u64>,
    /// Reconfigurations then.
    pub reconfigurations: u64,
    /// When its last job ended.
    pub ended: Option<f64>,
    /// The energy counters then, millijoules.
    pub energy_end: Option<u64>,
}

impl State {
    /// Reads the file; a missing one is an empty state.
    ///
    /// # Errors
    /// It cannot be read, or is of another version, or no state.
    pub fn read(path: &Path) -> Result<Self, DaemonError> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Self {
                    version: VERSION,
                    next_job: 1,
                    next_slice: 1,
                    next_batch: 1,
                    ..Self::default()
                });
            }
            Err(error) => return Err(DaemonError::system(format!("reading {}", path.display()))(error)),
        };
        let wrong = |why: String| DaemonError::State {
            path: path.to_path_buf(),
            why,
        };
        // The version first: another version's fields are no reason to call the file broken.
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        if head.version != VERSION {
            return Err(wrong(format!(
                "it has version {}, and this is version {VERSION}",
                head.version
            )));
        }
        serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))
    }

    /// Whether the next supervisor would find anything in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lives = |job: &JobRecord| job.state != JobState::Ended;
        let goes_on = |batch: &BatchRecord| batch.ended.is_none();
        self.slices.is_empty() && !self.batches.iter().any(goes_on) && !self.jobs.iter().any(lives)
    }

    /// Replaces the file; after a crash at any instant the old one or this one is there.
    ///
    /// # Errors
    /// The system refused.
    pub fn write(&self, path: &Path) -> Result<(), DaemonError> {
        let failed = || DaemonError::system(format!("writing {}", path.display()));
        let text = serde_json::to_vec_pretty(self).map_err(|error| failed()(error.into()))?;
        let fresh = fresh_name(path);
        let mut file = File::create(&fresh).map_err(failed())?;
        file.write_all(&text).map_err(failed())?;
        file.sync_all().map_err(failed())?;
        fs::rename(&fresh, path).map_err(failed())?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(failed())?;
        }
        Ok(())
    }
}

fn fresh_name(path: &Path) -> PathBuf {
    path.with_extension("json.fresh")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut state = State::read(&path).unwrap();
        assert!(state.is_empty());
        state.slices.push(SliceRecord {
            slice: Incarnation(4),
            gpu_uuid: "GPU-1".into(),
            gi: None,
            profile: 19,
            start: 6,
            size: 1,
            step: Step::Creating,
        });
        state.write(&path).unwrap();
        assert_eq!(State::read(&path).unwrap(), state);
        assert!(!state.is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn another_version_is_refused_by_number_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, r#"{"version": 2, "other": true}"#).unwrap();
        let said = State::read(&path).unwrap_err().to_string();
        assert!(said.contains("it has version 2, and this is version 1"), "{said}");
        fs::write(&path, "{").unwrap();
        assert!(matches!(State::read(&path), Err(DaemonError::State { .. })));
    }
}
