//! What the daemon and people ask of the scheduler.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::Bytes;

use super::choose::Choice;
use super::machine::Scheduler;
use super::{GpuIndex, Slice, SliceState};
use crate::layout::Table;

impl Scheduler {
    /// All slices known, foreign ones left out.
    pub fn slices(&self) -> impl Iterator<Item = (Incarnation, &Slice)> {
        self.slices.iter().map(|(&number, slice)| (number, slice))
    }

    /// One slice.
    #[must_use]
    pub fn slice(&self, number: Incarnation) -> Option<&Slice> {
        self.slices.get(&number)
    }

    /// The slice that a running job holds.
    #[must_use]
    pub fn slice_of(&self, job: JobId) -> Option<Incarnation> {
        self.jobs.get(&job)?.holds
    }

    /// Waiting jobs in the order in which they will be served.
    #[must_use]
    pub fn queue(&self) -> Vec<JobId> {
        self.queue.values().map(|waiting| waiting.job).collect()
    }

    /// Number of waiting jobs.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The table of a GPU, less the creates that its driver refused.
    #[must_use]
    pub fn table(&self, gpu: GpuIndex) -> Option<&Arc<Table>> {
        self.gpus.get(&gpu).map(|gpu| &gpu.table)
    }

    /// How many kinds of GPU have been seen: those with the same table are of one kind.
    #[must_use]
    pub fn kinds(&self) -> usize {
        self.kinds.len()
    }

    /// Which kind a GPU is of, as [`Facts::speeds`](super::Facts::speeds) counts them.
    #[must_use]
    pub fn kind_of(&self, gpu: GpuIndex) -> Option<usize> {
        self.gpus.get(&gpu).map(|gpu| gpu.kind)
    }

    /// The last thing to say of a running job: why it moves, or why it stays although it should move.
    #[must_use]
    pub fn note(&self, job: JobId) -> Option<&str> {
        self.jobs.get(&job)?.note.as_deref()
    }

    /// Why a waiting job waits, one line for people; empty when it does not wait.
    #[must_use]
    pub fn why_waiting(&self, job: JobId) -> String {
        let Some(known) = self.jobs.get(&job) else {
            return String::new();
        };
        let Some(waiting) = self.queue.get(&known.arrival) else {
            return String::new();
        };
        if let Some(seat) = &waiting.seat {
            if let Some((gpu, bytes)) = self.soft.lease(seat.slice) {
                return format!(
                    "a soft slice of {} on GPU {} is kept for it until those before it have started",
                    Bytes(bytes),
                    gpu.0
                );
            }
            let slice = &self.slices[&seat.slice];
            let name = self.gpus[&slice.gpu].table.named(slice.slot());
            return match slice.state {
                SliceState::Creating(_) => format!("{name} is being created"),
                _ => format!("{name} is kept for it until those before it have started"),
            };
        }
        if self.planned.is_some() {
            return self.why_unplaced(waiting);
        }
        let before = self
            .queue
            .range(..known.arrival)
            .find(|(_, other)| other.seat.is_none());
        if let Some((_, first)) = before {
            let why = self.why_before(first, waiting);
            return format!(
                "job {} comes first{why}: {}",
                first.job,
                self.why_waiting(first.job)
            );
        }
        let going = self.going();
        if going > 0 {
            return format!("waits for {going} idle slices to be removed");
        }
        match self.choose(waiting) {
            Choice::Never { reason } => reason,
            _ if self.gpus.is_empty() => self
                .why_no_lease(waiting)
                .unwrap_or_else(|| "no GPU is known yet".to_owned()),
            _ if self.gpus.values().any(|gpu| gpu.retry_at().is_some()) => {
                "the driver refused to create a slice for it; tried again when something changes".to_owned()
            }
            _ => format!(
                "no free slice holds {}{}; running jobs must end first",
                Bytes(waiting.need.device_bytes),
                self.wish_in_words(job)
            ),
        }
    }
}
