//! The state file: what the next supervisor must know if this one is killed at any instant.
//!
//! A whole state is written to a file beside it and renamed, and changes are appended to it ([`journal`](super::journal)), each
//! before any create, destroy or grant that it tells of is begun. A slice that is named `creating` or `destroying` is a
//! transition half done: the next supervisor finishes it or takes it back.
//!
//! It is not synced to the disk: it must outlive this process, not the kernel. With the kernel all instances
//! and jobs are gone, and a file of an earlier boot, which might name what somebody else has made since, is
//! known by its boot id and gives no more than numbers and what users have had. So no frame ever waits for a disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use migm_shared::ids::{BatchId, Incarnation, JobId};
use serde::{Deserialize, Serialize};
use serde_json::Deserializer;

use super::error::DaemonError;
use super::facts::Carried;
use super::journal::{Change, replay};
use super::process::ProcessId;
use crate::control::{After, AttemptRecord, Figures, Grant, JobState, Submission};
use crate::schedule::PolicyName;

/// The version that this build writes.
pub const VERSION: u32 = 2;
/// One that is read too: a whole state and no changes behind it.
const WHOLE_ONLY: u32 = 1;

/// All that outlives a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// [`VERSION`].
    pub version: u32,
    /// The kernel's id of the boot that it was written in.
    pub boot: String,
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
    /// What users have had of the GPUs.
    #[serde(default)]
    pub used: Used,
}

/// What users have had of the GPUs, as the scheduler told it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Used {
    /// As of when, monotonic seconds; `None` for a time of an earlier boot.
    pub at: Option<f64>,
    /// GPU seconds by user id.
    pub by_user: BTreeMap<u32, f64>,
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
    /// UUID of its MIG device, once the driver has told it. Another one at the same place is proof that the
    /// slice is not ours any more; the same one proves nothing, since UUIDs repeat.
    #[serde(default)]
    pub uuid: Option<String>,
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
    /// Jobs whose end it still waits for.
    #[serde(default)]
    pub awaits: Vec<After>,
    /// When it came to be where it is; monotonic seconds.
    #[serde(default)]
    pub came: f64,
    /// What it has kept of attempts that are over.
    #[serde(default)]
    pub carried: Carried,
    /// It came after its batch had started.
    #[serde(default)]
    pub late: bool,
    /// Its end has been asked for.
    #[serde(default)]
    pub cancelled: bool,
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
    /// The policy that is to serve while it goes on, where it has named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyName>,
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
            // Only a power cut leaves an empty file, and then there is nothing to be known.
            Ok(text) if text.is_empty() => return Ok(Self::fresh(1, 1, 1)),
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::fresh(1, 1, 1)),
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
        let mut heads = Deserializer::from_slice(&text).into_iter::<Head>();
        let head = heads.next().unwrap_or_else(|| serde_json::from_str(""));
        let head = head.map_err(|error| wrong(error.to_string()))?;
        if ![VERSION, WHOLE_ONLY].contains(&head.version) {
            return Err(wrong(format!(
                "it has version {}, and this is version {VERSION}",
                head.version
            )));
        }
        let (whole, behind) = text.split_at(heads.byte_offset());
        let whole: Self = serde_json::from_slice(whole).map_err(|error| wrong(error.to_string()))?;
        let changes = changes(behind).map_err(|error| wrong(error.to_string()))?;
        let state = Self {
            version: VERSION,
            ..replay(whole, changes)
        };
        if state.boot == boot() {
            return Ok(state);
        }
        tracing::info!("the state file is of an earlier boot: its slices and jobs are gone");
        // A new boot is no amnesty. How long ago that was is not known by this boot's clock.
        let used = Used {
            at: None,
            ..state.used
        };
        Ok(Self {
            used,
            ..Self::fresh(state.next_job, state.next_slice, state.next_batch)
        })
    }

    /// No slices and no jobs, with numbers to go on from.
    #[must_use]
    pub fn fresh(next_job: u64, next_slice: u64, next_batch: u64) -> Self {
        Self {
            version: VERSION,
            boot: boot(),
            next_job,
            next_slice,
            next_batch,
            ..Self::default()
        }
    }

    /// Whether the next supervisor would find anything in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let lives = |job: &JobRecord| job.state != JobState::Ended;
        let goes_on = |batch: &BatchRecord| batch.ended.is_none();
        self.slices.is_empty() && !self.batches.iter().any(goes_on) && !self.jobs.iter().any(lives)
    }
}

/// The lines behind a whole state. One without an end was written by a supervisor that died of it.
fn changes(lines: &[u8]) -> serde_json::Result<Vec<Change>> {
    let end = lines.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    let lines = lines[..end].split(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(serde_json::from_slice).collect()
}

/// The kernel's id of this boot; empty where `/proc` does not tell it.
pub(super) fn boot() -> String {
    static BOOT: LazyLock<String> = LazyLock::new(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| String::new(), |id| id.trim().to_owned())
    });
    BOOT.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, state: &State) {
        fs::write(path, serde_json::to_vec(state).unwrap()).unwrap();
    }

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
            uuid: None,
        });
        state.used.at = Some(12.25);
        state.used.by_user.insert(1000, 0.1);
        write(&path, &state);
        assert_eq!(State::read(&path).unwrap(), state);
        assert!(!state.is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_of_an_earlier_boot_names_no_slices_and_keeps_the_numbers_and_the_bills() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut state = State::fresh(5, 6, 7);
        state.boot = "another".into();
        state.used.at = Some(1e6);
        state.used.by_user.insert(1000, 7.5);
        state.slices.push(SliceRecord {
            slice: Incarnation(4),
            gpu_uuid: "GPU-1".into(),
            gi: Some(1),
            profile: 19,
            start: 6,
            size: 1,
            step: Step::Ready,
            uuid: None,
        });
        write(&path, &state);
        let mut kept = State::fresh(5, 6, 7);
        kept.used.by_user.insert(1000, 7.5);
        assert_eq!(State::read(&path).unwrap(), kept);
    }

    #[test]
    fn a_file_of_before_jobs_waited_for_others_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let mut state = State::fresh(5, 6, 7);
        state.jobs.push(JobRecord {
            id: JobId(4),
            submission: Submission::plain(),
            uid: 0,
            state: JobState::Waiting,
            attempts: Vec::new(),
            grant: None,
            leader: None,
            need: 0,
            unaccounted: None,
            figures: Figures::default(),
            predicted: None,
            note: None,
            awaits: Vec::new(),
            came: 0.0,
            carried: Carried::default(),
            late: false,
            cancelled: false,
        });
        let mut before = serde_json::to_value(&state).unwrap();
        let job = before["jobs"][0].as_object_mut().unwrap();
        assert!(job.remove("awaits").is_some() && job.remove("came").is_some());
        let submission = job["submission"].as_object_mut().unwrap();
        assert!(submission.remove("wishes").is_some());
        fs::write(&path, before.to_string()).unwrap();
        assert_eq!(State::read(&path).unwrap(), state);
    }

    #[test]
    fn a_file_of_version_1_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        let state = State::fresh(5, 6, 7);
        let before = State {
            version: 1,
            ..state.clone()
        };
        // It was one document over many lines.
        fs::write(&path, serde_json::to_vec_pretty(&before).unwrap()).unwrap();
        assert_eq!(State::read(&path).unwrap(), state);
    }

    #[test]
    fn another_version_is_refused_by_number_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.json");
        fs::write(&path, r#"{"version": 3, "other": true}"#).unwrap();
        let said = State::read(&path).unwrap_err().to_string();
        assert!(said.contains("it has version 3, and this is version 2"), "{said}");
        fs::write(&path, "{").unwrap();
        assert!(matches!(State::read(&path), Err(DaemonError::State { .. })));
    }
}
