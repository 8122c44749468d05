//! What `--report` writes of a job.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::control::{AttemptRecord, Figures, Outcome};

/// How simulated time runs. On a real GPU seconds are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clock {
    /// The GPUs are simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
}

impl Clock {
    /// A real GPU's.
    pub const REAL: Self = Self {
        simulated: false,
        time_scale: 1.0,
    };

    /// Simulated seconds of so many wall seconds.
    #[must_use]
    pub fn seconds(&self, wall: f64) -> f64 {
        // A scale of zero or less would be nobody's clock.
        if self.time_scale > 0.0 {
            wall / self.time_scale
        } else {
            wall
        }
    }
}

/// One attempt; times in simulated seconds since the start that the report counts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttemptLine {
    /// Profile name.
    pub profile: String,
    /// First unit of the placement.
    pub placement: u32,
    /// When its process started.
    pub start: f64,
    /// When its last process had ended; null while it runs.
    pub end: Option<f64>,
    /// How it ended; null while it runs.
    pub outcome: Option<Outcome>,
    /// Exit status as a shell shows it.
    pub status: Option<i32>,
    /// Why it was moved, or what was asked when memory ran out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Bytes of the slice; of a soft slice the most that its lease had. 0 where it is not known.
    pub memory: u64,
}

impl AttemptLine {
    /// Of a record in monotonic wall seconds, counted from `origin`.
    #[must_use]
    pub fn new(record: &AttemptRecord, origin: f64, clock: &Clock) -> Self {
        let since = |time: f64| clock.seconds(time - origin);
        Self {
            profile: record.profile.clone(),
            placement: record.placement,
            start: since(record.start),
            end: record.end.map(since),
            outcome: record.outcome,
            status: record.status,
            why: record.why.clone(),
            memory: record.memory,
        }
    }
}

/// Peaks in bytes; all three kinds, each at its own time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Peak {
    /// What tensors held, where a framework reports it.
    pub allocated: Option<u64>,
    /// Bytes asked of the driver and not freed.
    pub reserved: u64,
    /// What the driver charges, where it was seen.
    pub device: Option<u64>,
}

/// The file that `--report` names. It is opened before the job starts, so that a place that cannot be written
/// is found out in time, and changed only by the report itself: a job that never ran leaves nothing.
#[derive(Debug)]
pub struct ReportFile {
    path: PathBuf,
    file: File,
    /// It was not there before, and nothing has been written to it.
    is_empty_and_ours: bool,
}

impl ReportFile {
    /// Opens it for writing.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(path: &Path) -> io::Result<Self> {
        let is_ours = !path.exists();
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_empty_and_ours: is_ours,
        })
    }

    /// Puts the report in place of what was there.
    ///
    /// # Errors
    /// The disk is full, or the kernel refuses otherwise.
    pub fn write(mut self, record: &JobRecord) -> io::Result<()> {
        let text = serde_json::to_string_pretty(record)?;
        self.is_empty_and_ours = false;
        // A pipe or a terminal has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        writeln!(&self.file, "{text}")
    }
}

impl Drop for ReportFile {
    fn drop(&mut self) {
        if self.is_empty_and_ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The report of one job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRecord {
    /// Name for people.
    pub name: String,
    /// Attempts in order; times since the submission.
    pub attempts: Vec<AttemptLine>,
    /// Peak of reserved bytes.
    pub peak_bytes: u64,
    /// Peaks of all three kinds.
    pub peak: Peak,
    /// The forecast of the peak that was acted on last, else the first that converged.
    pub predicted_peak_bytes: Option<u64>,
    /// Device allocations that succeeded, over all attempts.
    pub allocations: u64,
    /// Frees of such allocations.
    pub frees: u64,
    /// The GPU is simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
}

impl JobRecord {
    /// Puts a job's figures together; `submitted` in monotonic wall seconds.
    #[must_use]
    pub fn new(
        name: &str,
        attempts: &[AttemptRecord],
        submitted: f64,
        figures: &Figures,
        predicted_peak_bytes: Option<u64>,
        clock: &Clock,
    ) -> Self {
        let lines = attempts
            .iter()
            .map(|record| AttemptLine::new(record, submitted, clock));
        Self {
            name: name.to_owned(),
            attempts: lines.collect(),
            peak_bytes: figures.reserved,
            peak: Peak {
                allocated: figures.allocated,
                reserved: figures.reserved,
                device: figures.device,
            },
            predicted_peak_bytes,
            allocations: figures.allocations,
            frees: figures.frees,
            simulated: clock.simulated,
            time_scale: clock.time_scale,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_never_ran_leaves_the_report_file_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let (fresh, old) = (folder.path().join("fresh"), folder.path().join("old"));
        std::fs::write(&old, "what was there").unwrap();
        for path in [&fresh, &old] {
            drop(ReportFile::open(path).unwrap());
        }
        assert!(!fresh.exists());
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "what was there");
        assert!(ReportFile::open(&folder.path().join("no/such/folder")).is_err());
    }

    #[test]
    fn a_report_takes_the_place_of_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, "x".repeat(10_000)).unwrap();
        let record = JobRecord::new("job", &[], 0.0, &Figures::default(), None, &Clock::REAL);
        ReportFile::open(&path).unwrap().write(&record).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(read["name"], "job");
    }
}
