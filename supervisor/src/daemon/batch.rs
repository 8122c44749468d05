//! Batches: jobs that are measured together.

use migm_shared::ids::{BatchId, JobId};

use super::job::{Job, Peer};
use super::machine::Moment;
use super::state::BatchRecord;
use crate::control::{BatchSummary, JobStatus, Outcome};
use crate::schedule::PolicyName;

/// One batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Number.
    pub id: BatchId,
    /// Name for people.
    pub name: String,
    /// Whose it is.
    pub uid: u32,
    /// The policy that is to serve while it goes on, where it has named one.
    pub policy: Option<PolicyName>,
    /// Who hears of its jobs.
    pub watcher: Option<Peer>,
    /// Since when nobody is there who could start it; monotonic seconds.
    pub alone_since: Option<f64>,
    /// Jobs in order of submission.
    pub jobs: Vec<JobId>,
    /// When it started; monotonic seconds. Its jobs wait until then.
    pub started: Option<f64>,
    /// When its last job ended.
    pub ended: Option<f64>,
    /// Whether the last reading has been asked for and not told.
    pub reading: bool,
    /// Energy counters at the start, millijoules.
    pub energy_start: Option<u64>,
    /// Energy counters at the end.
    pub energy_end: Option<u64>,
    /// Reconfigurations of this supervisor's life at the start.
    pub reconfigurations: u64,
}

impl Batch {
    /// A batch whose jobs wait.
    #[must_use]
    pub const fn new(id: BatchId, name: String, uid: u32, watcher: Option<Peer>) -> Self {
        Self {
            id,
            name,
            uid,
            policy: None,
            watcher,
            alone_since: None,
            jobs: Vec::new(),
            started: None,
            ended: None,
            reading: false,
            energy_start: None,
            energy_end: None,
            reconfigurations: 0,
        }
    }

    /// From the state file.
    #[must_use]
    pub fn recovered(record: BatchRecord) -> Self {
        Self {
            policy: record.policy,
            jobs: record.jobs,
            started: record.started,
            energy_start: record.energy_start,
            reconfigurations: record.reconfigurations,
            ended: record.ended,
            energy_end: record.energy_end,
            ..Self::new(record.id, record.name, record.uid, None)
        }
    }

    /// For the state file.
    #[must_use]
    pub fn record(&self) -> BatchRecord {
        BatchRecord {
            jobs: self.jobs.clone(),
            ..self.outline()
        }
    }

    /// The same without its jobs.
    #[must_use]
    pub fn outline(&self) -> BatchRecord {
        BatchRecord {
            id: self.id,
            name: self.name.clone(),
            uid: self.uid,
            policy: self.policy.clone(),
            jobs: Vec::new(),
            started: self.started,
            energy_start: self.energy_start,
            reconfigurations: self.reconfigurations,
            // An end that has not been measured is measured by the next supervisor.
            ended: self.ended.filter(|_| !self.reading),
            energy_end: self.energy_end,
        }
    }

    /// Takes a reading of the energy counters.
    pub const fn measured(&mut self, moment: Moment, millijoules: Option<u64>) {
        match moment {
            Moment::Start => self.energy_start = millijoules,
            Moment::End => {
                self.energy_end = millijoules;
                self.reading = false;
            }
        }
    }

    /// What `migm batch` reports. `jobs` are the batch's, in order.
    #[must_use]
    pub fn summary(&self, jobs: Vec<JobStatus>, node: &NodeFacts) -> BatchSummary {
        let started = self.started.unwrap_or(0.0);
        let count = |outcome: Outcome, for_speed: bool| {
            let attempts = jobs.iter().flat_map(|job| &job.attempts);
            let of_kind = attempts.filter(|attempt| attempt.outcome == Some(outcome));
            of_kind.filter(|attempt| attempt.for_speed == for_speed).count() as u64
        };
        let energy = self.energy_start.zip(self.energy_end);
        #[expect(
            clippy::cast_precision_loss,
            reason = "2^53 mJ are more than a GPU uses in its life"
        )]
        let energy_j = energy.map(|(start, end)| end.saturating_sub(start) as f64 / 1000.0);
        BatchSummary {
            batch: self.id,
            started,
            makespan: self.ended.unwrap_or(started) - started,
            energy_j,
            reconfigurations: node.reconfigurations.saturating_sub(self.reconfigurations),
            ooms: count(Outcome::Oom, false) + count(Outcome::Oom, true),
            early_restarts: count(Outcome::Moved, false),
            moves: count(Outcome::Moved, true),
            jobs,
            gpu: node.gpu.clone(),
            simulated: node.simulated,
            time_scale: node.time_scale,
        }
    }
}

/// What a summary says of the node.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Model name of the first GPU.
    pub gpu: String,
    /// The GPUs are simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
    /// Reconfigurations of this supervisor's life.
    pub reconfigurations: u64,
}

/// Whether all jobs of a batch are over.
#[must_use]
pub fn all_ended<'a>(mut jobs: impl Iterator<Item = &'a Job>) -> bool {
    jobs.all(|job| job.state == crate::control::JobState::Ended)
}
