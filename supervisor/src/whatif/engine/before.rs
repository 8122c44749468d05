//! Jobs that come after others.

use super::{Engine, What};

impl Engine<'_> {
    /// No slice holds the job, nor will those run that need its good end.
    pub(super) fn refused(&mut self, job: usize) {
        self.ended += 1;
        self.outcome.refused.push(job);
        // Not told of it again.
        self.jobs[job].came = Some(self.now);
        let needs_it = |after: &usize| {
            let mut before = self.load.jobs[*after].after.iter();
            before.any(|before| before.job == job && !before.any)
        };
        let lost: Vec<usize> = self.jobs[job].after.iter().copied().filter(needs_it).collect();
        for lost in lost {
            if self.jobs[lost].came.is_none() {
                self.refused(lost);
            }
        }
        self.over(job);
    }

    /// The job has ended: those that waited for it alone arrive, unless their own time is still to come.
    pub(super) fn over(&mut self, job: usize) {
        for after in std::mem::take(&mut self.jobs[job].after) {
            let live = &mut self.jobs[after];
            live.before -= 1;
            if live.before == 0 && self.load.jobs[after].arrival <= self.now {
                self.at(self.now, What::Arrive(after));
            }
        }
    }
}
