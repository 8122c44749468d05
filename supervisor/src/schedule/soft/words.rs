//! What people are told of leases.

use migm_shared::units::Bytes;

use super::lease_for;
use crate::schedule::GpuIndex;
use crate::schedule::assign::need_in_words;
use crate::schedule::machine::{Scheduler, Waiting};

impl Scheduler {
    /// One line for people on why this lease.
    pub(in crate::schedule) fn say_why_lease(&self, arrival: u64, gpu: GpuIndex, bytes: u64) -> String {
        let waiting = &self.queue[&arrival];
        let grows = self.soft.0.get(&gpu).is_some_and(|pool| pool.cut.grows);
        let how = if grows { ", which grows in place" } else { "" };
        format!(
            "{}{}: a soft slice of {}{how}",
            need_in_words(waiting),
            self.wish_in_words(waiting.job),
            Bytes(bytes)
        )
    }

    /// What keeps a waiting job from a soft slice; `None` where there is none to wait for.
    pub(in crate::schedule) fn why_no_lease(&self, waiting: &Waiting) -> Option<String> {
        let mut pools = self
            .soft
            .0
            .iter()
            .filter(|(gpu, _)| self.may_use(waiting.job, **gpu) && self.may_share(waiting.job));
        let (gpu, pool) = pools.next()?;
        if !self.may_join(waiting.job, pool) {
            let (gpu, jobs) = (gpu.0, pool.leases.len());
            return Some(match self.terms.is_exclusive(waiting.job) {
                true => format!(
                    "wants a GPU alone, and jobs have soft slices of GPU {gpu}: {jobs}; they must end first"
                ),
                false => format!("the job on GPU {gpu} has it alone, and must end first"),
            });
        }
        let room = pool.last?;
        Some(format!(
            "no room for a soft slice of {}: GPU {} has {} for them, {} of it leased and {} more held by others",
            Bytes(lease_for(waiting, pool)),
            gpu.0,
            Bytes(room.now),
            Bytes(pool.leased()),
            Bytes(room.most.saturating_sub(room.now))
        ))
    }
}
