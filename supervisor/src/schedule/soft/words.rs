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
            "{}: a soft slice of {}{how}",
            need_in_words(waiting),
            Bytes(bytes)
        )
    }

    /// What keeps a waiting job from a soft slice; `None` where there is none to wait for.
    pub(in crate::schedule) fn why_no_lease(&self, waiting: &Waiting) -> Option<String> {
        let mut pools = self
            .soft
            .0
            .iter()
            .filter(|(gpu, _)| self.may_use(waiting.job, **gpu));
        let (gpu, pool) = pools.next()?;
        let room = pool.last?;
        Some(format!(
            "no room for a soft slice of {}: GPU {} has {} for them, {} of it leased and {} more held by others",
            Bytes(lease_for(waiting, pool.cut)),
            gpu.0,
            Bytes(room.now),
            Bytes(pool.leased()),
            Bytes(room.most.saturating_sub(room.now))
        ))
    }
}
