//! Why a job that a decider decides on waits, for people.

use super::super::SliceState;
use super::super::machine::{Scheduler, Waiting};

impl Scheduler {
    /// One line on a waiting job: what it is promised and what is in the way of it, or that it is promised nothing.
    pub(in super::super) fn why_unplaced(&self, waiting: &Waiting) -> String {
        let promise = self
            .planned
            .as_ref()
            .and_then(|planned| planned.seats.get(&waiting.job));
        let Some(promise) = promise else {
            return self.why_unpromised(waiting);
        };
        let Some(gpu) = self.gpus.get(&promise.gpu) else {
            return String::new();
        };
        let name = gpu.table.named(promise.slot);
        let there = self.slices.values().filter(|slice| slice.gpu == promise.gpu);
        let (mut running, mut going, mut coming) = (0_usize, 0_usize, false);
        for slice in there.filter(|slice| slice.slot().1.overlaps(promise.slot.1)) {
            match slice.state {
                SliceState::Busy(_) => running += 1,
                SliceState::Creating(Some(job)) if job == waiting.job => coming = true,
                _ => going += 1,
            }
        }
        let waits = match (running, going) {
            _ if coming => "which is being created".to_owned(),
            (0, 0) => "which is next to be created".to_owned(),
            (0, going) => format!("and waits for {going} idle slices there to be removed"),
            (running, _) => format!("and waits for {running} jobs there to move away"),
        };
        let at = promise.gpu.0;
        format!("{name} on GPU {at} is kept for it, {waits}: {}", promise.reason)
    }

    fn why_unpromised(&self, waiting: &Waiting) -> String {
        if self.gpus.is_empty() {
            let shared = self.why_no_lease(waiting);
            return shared.unwrap_or_else(|| "no GPU is known yet".to_owned());
        }
        if !self.could_hold(waiting.job, waiting.need.device_bytes, waiting.outgrown) {
            return self.why_never(waiting);
        }
        if self.gpus.values().any(|gpu| gpu.retry_at().is_some()) {
            return "the driver refused to create a slice; tried again when something changes".to_owned();
        }
        let taken = |gpu| {
            let state = self.gpus[&gpu].table.state_of(&self.pinned(gpu));
            state.is_ok_and(|state| self.gpus[&gpu].table.is_full(state))
        };
        let idle = self.slices.values().any(|slice| slice.state == SliceState::Idle);
        let why = if !idle && self.gpus.keys().copied().all(taken) {
            "nothing is free: running jobs must end first"
        } else {
            "what is free is worth more to another job, or less to this one than a wait"
        };
        let queue = self.queue.values();
        match queue.take_while(|other| other.job != waiting.job).count() {
            0 => why.to_owned(),
            1 => format!("{why}; 1 job came before it"),
            before => format!("{why}; {before} jobs came before it"),
        }
    }
}
