//! Soft slices beside a decider: it is asked first, and what it leaves waiting may have a lease on a shared GPU, in
//! order of arrival. A job that no such lease can ever hold is passed over.

use migm_shared::ids::JobId;

use super::super::machine::{Scheduler, Waiting};
use super::super::soft::Offer;
use super::super::{Action, GpuIndex};

impl Scheduler {
    /// Whether anything has happened since the decider was asked last.
    pub(in super::super) fn has_news(&self) -> bool {
        self.planned.as_ref().is_some_and(|planned| planned.changed)
    }

    /// Waiting jobs that are promised nothing, once the decider has been asked about them.
    fn left_over(&self) -> impl Iterator<Item = (u64, &Waiting)> {
        let asked = self.planned.as_ref().filter(|planned| !planned.changed);
        let waiting = asked.into_iter().flat_map(|planned| {
            let waiting = self.queue.iter();
            waiting.filter(|(_, waiting)| !planned.seats.contains_key(&waiting.job))
        });
        waiting.map(|(&arrival, waiting)| (arrival, waiting))
    }

    /// The first waiting job that may come to a lease.
    pub(in super::super) fn first_shared(&self) -> Option<JobId> {
        if self.soft.is_empty() {
            return None;
        }
        let mut left = self.left_over();
        let first = left.find(|(_, waiting)| !matches!(self.offer(waiting), Offer::Never));
        first.map(|(_, waiting)| waiting.job)
    }

    /// Leases what the last reading admits.
    pub(in super::super) fn serve_shared(&mut self, actions: &mut Vec<Action>) {
        if self.soft.is_empty() {
            return;
        }
        let left: Vec<u64> = self.left_over().map(|(arrival, _)| arrival).collect();
        for arrival in left {
            match self.offer(&self.queue[&arrival]) {
                Offer::Now(gpu, bytes) => self.lease_shared(arrival, gpu, bytes, actions),
                Offer::Later => return,
                Offer::Never if self.gpus.is_empty() => {
                    let reason = self.why_never(&self.queue[&arrival]);
                    if let Some(waiting) = self.leave_queue(arrival, false) {
                        self.refuse(arrival, &waiting, reason, actions);
                    }
                }
                Offer::Never => {}
            }
        }
    }

    fn lease_shared(&mut self, arrival: u64, gpu: GpuIndex, bytes: u64, actions: &mut Vec<Action>) {
        let reason = self.say_why_lease(arrival, gpu, bytes);
        let Some(waiting) = self.leave_queue(arrival, true) else {
            return;
        };
        let job = waiting.job;
        let slice = self.keep_lease(gpu, bytes, job);
        self.hand_over(job, slice, reason, actions);
    }
}
