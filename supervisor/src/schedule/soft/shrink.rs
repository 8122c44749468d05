//! Leases that give back what the forecast of their job does not need, as soon as another job waits for the room.

use std::cmp::Reverse;

use migm_shared::ids::JobId;

use super::lease_for;
use crate::schedule::choose::Choice;
use crate::schedule::machine::Scheduler;
use crate::schedule::{Action, GpuIndex};

impl Scheduler {
    /// A running job is forecast to need no more than this.
    pub(in crate::schedule) fn enough(&mut self, job: JobId, need: u64) {
        let Some(slice) = self.slice_of(job) else { return };
        if let Some((_, pool)) = self.soft.of(slice)
            && let Some(lease) = pool.leases.get_mut(&slice)
        {
            lease.enough = Some(need);
        }
    }

    /// A lease has so many bytes now.
    pub(in crate::schedule) fn shrunk(&mut self, job: JobId, memory: u64) {
        let Some(slice) = self.slice_of(job) else { return };
        if let Some((_, pool)) = self.soft.of(slice)
            && let Some(lease) = pool.leases.get_mut(&slice)
        {
            lease.bytes = lease.bytes.min(memory);
            self.charge(job);
        }
    }

    /// The first job that waits, and that nothing can serve now, gets the room that others do not need.
    pub(super) fn make_room(&mut self, gpu: GpuIndex, actions: &mut Vec<Action>) {
        let Some(waiting) = self.queue.values().find(|waiting| waiting.seat.is_none()) else {
            return;
        };
        if !self.may_use(waiting.job, gpu)
            || self.going() > 0
            || !matches!(self.choose(waiting), Choice::Wait)
        {
            return;
        }
        let Some(pool) = self.soft.0.get(&gpu) else { return };
        let want = lease_for(waiting, pool);
        let job = waiting.job;
        // Less memory makes no room where somebody is to be alone.
        if pool.could_hold(want) && self.may_share(job) && self.may_join(job, pool) {
            let short = want.saturating_sub(pool.free());
            self.give_back(gpu, job, short, actions);
        }
    }

    /// Leases of others on a GPU give back `short` bytes together, those that can spare most first; nothing where that is
    /// more than all of them can spare. Whether any does.
    pub(super) fn give_back(
        &mut self,
        gpu: GpuIndex,
        but: JobId,
        short: u64,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some(pool) = self.soft.0.get_mut(&gpu).filter(|pool| pool.cut.grows) else {
            return false;
        };
        let grain = pool.cut.grain.max(1);
        let mut spare: Vec<_> = Vec::new();
        for lease in pool.leases.values_mut() {
            let moving = self.jobs.get(&lease.job).is_none_or(|known| known.moving);
            if lease.kept || lease.job == but || moving || pool.wishes.contains_key(&lease.job) {
                continue;
            }
            let Some(enough) = lease.enough else { continue };
            let least = enough.div_ceil(grain).saturating_mul(grain);
            if least < lease.bytes {
                spare.push((lease.bytes - least, least, lease));
            }
        }
        spare.sort_by_key(|(bytes, _, lease)| (Reverse(*bytes), lease.job));
        if short == 0 || spare.iter().map(|(bytes, ..)| bytes).sum::<u64>() < short {
            return false;
        }
        let mut found = 0;
        for (bytes, memory, lease) in spare {
            if found >= short {
                break;
            }
            found += bytes;
            // Until the next forecast: what it does not give back now it holds.
            lease.enough = None;
            let job = lease.job;
            actions.push(Action::Shrink { job, memory });
        }
        true
    }
}
