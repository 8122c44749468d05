//! What of the owner's state outlives this process.

use super::batch::Batch;
use super::error::DaemonError;
use super::job::Job;
use super::journal::News;
use super::owner::Owner;
use super::state::{State, Used};
use crate::control::JobState;

impl Owner {
    /// What the state file is to hold.
    #[must_use]
    pub fn state(&self) -> State {
        State {
            jobs: self
                .jobs
                .values()
                .filter(|job| self.is_kept(job))
                .map(Job::record)
                .collect(),
            batches: self.batches.values().map(Batch::record).collect(),
            ..self.outline()
        }
    }

    /// The same without jobs, and batches without those in them.
    fn outline(&self) -> State {
        let (at, used) = self.scheduler.used();
        State {
            reconfigurations: self.reconfigurations,
            simulated: self.settings.own_simulated.clone(),
            slices: self
                .slices
                .iter()
                .filter_map(|(number, slice)| slice.record(*number, &self.gpus))
                .chain(self.absent.iter().cloned())
                .collect(),
            batches: self.batches.values().map(Batch::outline).collect(),
            used: Used {
                at: (!used.is_empty()).then_some(at),
                by_user: used,
            },
            ..State::fresh(self.next_job, self.next_slice, self.next_batch)
        }
    }

    /// Whether the state file has a job: one that lives, or that a batch counts on.
    fn is_kept(&self, job: &Job) -> bool {
        let lives = !matches!(job.state, JobState::Ended | JobState::Watched);
        let counts = |batch| self.batches.contains_key(&batch);
        lives || job.submission.batch.is_some_and(counts)
    }

    /// Brings the state file up to date.
    ///
    /// # Errors
    /// It cannot be written; what has changed is kept for the next call.
    pub fn write_state(&mut self) -> Result<(), DaemonError> {
        let mut news = News {
            outline: self.outline(),
            ..News::default()
        };
        for id in &self.unwritten {
            match self.jobs.get(id).filter(|job| self.is_kept(job)) {
                Some(job) => news.jobs.push(job.record()),
                None => news.gone.push(*id),
            }
        }
        let mut journal = std::mem::take(&mut self.journal);
        let written = journal.write(&self.settings.state_path, news, || self.state());
        self.journal = journal;
        written?;
        self.unwritten.clear();
        self.dirty = false;
        Ok(())
    }
}
