//! An attempt from its start to its end, and what becomes of its slice.
//!
//! A slice is free when the runner has told the end and no process that said hello still lives. Without a
//! runner it is free when no process of the job is known to live and NVML lists none on it.

use migm_shared::ids::{AttemptId, JobId};
use migm_shared::units::Bytes;

use super::job::{Ending, Job, Peer};
use super::machine::Order;
use super::owner::{Output, Owner};
use super::process::ProcessId;
use super::siblings::past_of;
use super::slices::Origin;
use crate::control::{Figures, JobState, Outcome, Unmet, Verdict};
use crate::memory::after_oom;
use crate::node::NodeError;
use crate::schedule::{Event, Need};

/// Nobody knows how it ended.
const UNKNOWN_END: Ending = Ending {
    status: None,
    outcome: Outcome::Failed,
    unmet: None,
};

impl Owner {
    /// The job whose runner this peer is, if the attempt is its running one.
    pub(super) fn running(&mut self, peer: Peer, attempt: AttemptId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&attempt.job)?;
        (job.runner == Some(peer) && job.is_leased() && job.attempt() == attempt).then_some(job)
    }

    pub(super) fn started(&mut self, peer: Peer, attempt: AttemptId, pid: u32, now: f64) {
        let Some(job) = self.running(peer, attempt) else {
            tracing::debug!(%attempt, "a start of no running attempt");
            return;
        };
        job.leader = ProcessId::of(pid);
        let mut launched = None;
        let count = job.attempts.len();
        let before = count.checked_sub(2).and_then(|index| job.attempts[index].end);
        if let Some(last) = job.attempts.last_mut() {
            // Until now that is when its slice was granted.
            launched = Some(now - last.start);
            last.start = now;
        }
        let (id, mode) = (
            job.id,
            job.attempts.get(count.saturating_sub(2)).map(|one| one.outcome),
        );
        if let Some(seconds) = launched {
            self.costs.launched(seconds);
        }
        if let (Some(end), Some(Some(Outcome::Moved | Outcome::Oom))) = (before, mode) {
            self.relaunch = now - end;
        }
        self.changed(id);
    }

    pub(super) fn told_ended(
        &mut self,
        peer: Peer,
        attempt: AttemptId,
        ending: Ending,
        figures: Figures,
        now: f64,
    ) {
        let Some(job) = self.running(peer, attempt) else {
            tracing::debug!(%attempt, "an end of no running attempt");
            return;
        };
        job.figures = Figures {
            device: job.figures.device.max(figures.device),
            ..figures
        };
        job.leader = None;
        job.ending = Some(ending);
        let (id, still) = (job.id, job.processes.len());
        self.note_down(id);
        if still > 0 {
            tracing::info!(job = %id, still, "ended, but processes that left its group still hold the slice");
        }
        self.end_if_empty(id, now);
    }

    /// Ends the attempt if its runner has told its end and nobody is left on the slice.
    pub(super) fn end_if_empty(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let Some(ending) = job.ending.take_if(|_| job.processes.is_empty()) {
            self.end_attempt(id, ending, now);
        }
    }

    /// The slice is free; the job goes on, or it is over.
    pub(super) fn end_attempt(&mut self, id: JobId, ending: Ending, now: f64) {
        let clock = self.clock();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(grant) = job.grant.take() else { return };
        let mut larger = grant.memory.saturating_add(1);
        if let Some(slice) = self.slices.get_mut(&grant.slice) {
            slice.job = None;
            if slice.origin == Origin::Soft {
                self.slices.remove(&grant.slice);
                larger = self.scheduler.larger_lease(id, grant.memory);
            }
        }
        job.figures = job.figures_now();
        if let Some(last) = job.attempts.last_mut() {
            last.end = Some(now);
            last.outcome = Some(ending.outcome);
            last.status = ending.status;
        }
        let seconds = job.attempts.last().map_or(0.0, |last| now - last.start);
        if let (Outcome::Moved, Some(asked)) = (ending.outcome, job.asked_to_move.take()) {
            self.costs.stopped(now - asked);
        }
        job.carry_over(ending.outcome, seconds);
        let for_speed = job.moved_for_speed(ending.outcome);
        let again = job.next_need(&ending, grant.memory, larger, self.context_cost);
        let past = past_of(job, &grant, &ending, seconds, clock);
        if ending.outcome == Outcome::Done {
            let advice = self.jobs.get(&id).and_then(|job| self.advice(job, &grant, &past));
            if let Some(job) = self.jobs.get_mut(&id) {
                job.note = advice.clone().or(job.note.take());
                job.learnt.advice = advice;
            }
        }
        let again = again.map(|Next { known, wanted }| self.within_reach(id, wanted, known, grant.memory));
        if let (Some(need), Outcome::Oom, Some(unmet)) = (again, ending.outcome, ending.unmet) {
            let reason = format!(
                "out of memory: it asked for {} with {} in use, so the next slice holds {}",
                Bytes(unmet.asked),
                Bytes(unmet.in_use),
                Bytes(need)
            );
            self.decide(id, now, Verdict::Relaunch, reason, None);
        }
        // What was stopped for speed says nothing of what a run comes to.
        let queued = match for_speed {
            true => Vec::new(),
            false => self.teach_siblings(id, &past, now),
        };
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.leader = None;
        if let Some(need) = again {
            job.state = JobState::Waiting;
            let device_bytes = need;
            let event = if for_speed {
                let need = Need { device_bytes };
                Event::Moved { job: id, need }
            } else {
                job.need = need;
                let again = Some(Need { device_bytes });
                Event::Ended { job: id, again }
            };
            self.changed(id);
            self.tell_facts(id, now);
            self.step(now, event);
        } else {
            self.finish(id, now);
            self.step(now, Event::Ended { job: id, again: None });
        }
        for job in queued {
            self.queue(job, now);
        }
    }

    /// The connection of a job's runner is gone.
    pub(super) fn runner_gone(&mut self, id: JobId, peer: Peer, now: f64) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.runner == Some(peer)) else {
            return;
        };
        job.runner = None;
        match job.state {
            JobState::Held | JobState::Waiting => {
                self.withdraw(id, "its runner went away while it waited", now)
            }
            JobState::Running | JobState::Moving => {
                tracing::info!(job = %id, "its runner is gone; it keeps the slice while a process lives");
                job.orphan_since = Some(now);
                self.orphans = true;
            }
            JobState::Ended | JobState::Watched => {}
        }
    }

    /// Leases whose runner is gone: freed when no process of the job lives.
    pub(super) fn look_for_orphans(&mut self, now: f64) {
        if !std::mem::take(&mut self.orphans) {
            return;
        }
        let grace = self.settings.config.grace_s;
        let mut lost = Vec::new();
        for job in self.jobs.values_mut().filter(|job| job.state != JobState::Ended) {
            let Some(since) = job.orphan_since else { continue };
            self.orphans = true;
            // A runner that lives may come back; one that is known to be dead will not.
            let dead = job.runner_process.is_some_and(|runner| !runner.lives());
            if !dead && now - since < grace {
                continue;
            }
            if !job.is_leased() {
                lost.push(job.id);
            } else if !job.asked && !job.has_process() {
                let slice = job.grant.as_ref().and_then(|grant| self.slices.get(&grant.slice));
                // A soft slice is bytes: whoever of the job is left counts among those that are not ours.
                let Some(slice) = slice.filter(|slice| slice.origin != Origin::Soft) else {
                    lost.push(job.id);
                    continue;
                };
                job.asked = true;
                self.orders.push(Order::Occupants {
                    job: job.id,
                    gpu: self.gpus[slice.gpu].gpu.index,
                    gi: slice.gi,
                });
            }
        }
        for id in lost {
            let leased = self.jobs.get(&id).is_some_and(Job::is_leased);
            if leased {
                self.end_attempt(id, UNKNOWN_END, now);
            } else {
                self.withdraw(id, "its runner did not come back", now);
            }
        }
    }

    /// NVML has told who is on the slice of a job without runner.
    pub(super) fn occupants(&mut self, id: JobId, pids: Result<Vec<u32>, NodeError>, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.asked = false;
        if job.runner.is_some() || !job.is_leased() || job.has_process() {
            return;
        }
        match pids {
            Ok(pids) if pids.is_empty() => {
                tracing::info!(job = %id, "no process is left and no runner came back: its slice is free");
                self.end_attempt(id, UNKNOWN_END, now);
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(job = %id, %error, "cannot tell whether its slice is free"),
        }
    }

    /// A process of a job is gone.
    pub(super) fn forget(&mut self, id: JobId, pid: u32, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.forget_process(pid);
        if job.state == JobState::Watched && job.processes.is_empty() {
            if let Some(last) = job.attempts.last_mut() {
                last.end = Some(now);
            }
            self.finish(id, now);
            return;
        }
        self.end_if_empty(id, now);
    }

    pub(super) fn watch_process(&mut self, pid: u32) {
        if pid != 0 {
            self.outputs.push(Output::Watch(pid));
        }
    }
}

/// What the next attempt needs, in device bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Next {
    /// It is known to need this: a slice that does not hold it is no use.
    known: u64,
    /// It will need this if the law of its memory, or what earlier runs came to, holds on.
    wanted: u64,
}

impl Job {
    /// Whether its last attempt was stopped for a better slice, and not because it outgrew the one it had.
    fn moved_for_speed(&self, outcome: Outcome) -> bool {
        let asked = self.attempts.last().is_some_and(|last| last.for_speed);
        asked && outcome == Outcome::Moved
    }

    /// What the next attempt needs, or `None` when the job is over.
    ///
    /// After an out-of-memory answer that is what was in use, what was asked for and what the driver
    /// charges besides: a slice that holds just that, not the next size up. Where the memory followed a law, or
    /// earlier runs of the same command are known, it should hold what they say is to come too. `larger` is the next
    /// size after `had`, for a program that failed though all that fits in what it had.
    fn next_need(&self, ending: &Ending, had: u64, larger: u64, context_cost: Option<u64>) -> Option<Next> {
        if self.cancelled || self.runner.is_none() {
            return None;
        }
        let besides = self.unaccounted.or(context_cost).unwrap_or(0);
        match (ending.outcome, ending.unmet) {
            (Outcome::Moved, _) if self.moved_for_speed(Outcome::Moved) => {
                let known = self.known_need(had);
                Some(Next { known, wanted: known })
            }
            (Outcome::Moved, _) => {
                let known = self.need.max(had.saturating_add(1));
                Some(Next { known, wanted: known })
            }
            (Outcome::Oom, Some(Unmet { asked, in_use })) if self.submission.movable => {
                let proved = after_oom(in_use, asked, besides);
                let known = if proved > had { proved } else { larger };
                let to_come = self.learnt.to_come.max(self.learnt.expected());
                let wanted = to_come.map_or(0, |bytes| bytes.saturating_add(besides));
                Some(Next {
                    known,
                    wanted: wanted.max(known),
                })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{AttemptRecord, Submission};
    use migm_shared::ids::Incarnation;
    use migm_shared::units::GIB;

    fn job(movable: bool) -> Job {
        let submission = Submission {
            movable,
            ..Submission::plain()
        };
        let mut job = Job::new(JobId(1), submission, 0);
        job.runner = Some(3);
        job
    }

    fn ending(outcome: Outcome, unmet: Option<Unmet>) -> Ending {
        Ending {
            status: Some(1),
            outcome,
            unmet,
        }
    }

    const UNMET: Option<Unmet> = Some(Unmet {
        asked: 9 * GIB,
        in_use: 4 * GIB,
    });

    #[test]
    fn after_an_oom_the_context_counts_too() {
        let mut job = job(true);
        let end = ending(Outcome::Oom, UNMET);
        assert_eq!(job.next_need(&end, 5 * GIB, 10 * GIB, None), just(13 * GIB));
        assert_eq!(job.next_need(&end, 5 * GIB, 10 * GIB, Some(GIB)), just(14 * GIB));
        job.unaccounted = Some(2 * GIB);
        assert_eq!(job.next_need(&end, 5 * GIB, 10 * GIB, Some(GIB)), just(15 * GIB));
    }

    fn just(bytes: u64) -> Option<Next> {
        Some(Next {
            known: bytes,
            wanted: bytes,
        })
    }

    #[test]
    fn after_an_oom_what_the_law_says_is_to_come_is_wanted_and_not_known() {
        let mut job = job(true);
        job.unaccounted = Some(GIB);
        let end = ending(Outcome::Oom, UNMET);
        job.learnt.to_come = Some(20 * GIB);
        let next = Next {
            known: 14 * GIB,
            wanted: 21 * GIB,
        };
        assert_eq!(job.next_need(&end, 5 * GIB, 10 * GIB, None), Some(next));
        // A law that has been overtaken wants nothing.
        job.learnt.to_come = Some(2 * GIB);
        assert_eq!(job.next_need(&end, 5 * GIB, 10 * GIB, None), just(14 * GIB));
    }

    #[test]
    fn memory_lost_to_fragments_still_leads_to_a_larger_slice() {
        let small = Some(Unmet {
            asked: GIB,
            in_use: GIB,
        });
        assert_eq!(
            job(true).next_need(&ending(Outcome::Oom, small), 5 * GIB, 10 * GIB, None),
            just(10 * GIB)
        );
    }

    #[test]
    fn moved_for_speed_a_job_needs_what_it_needed_and_moved_on_a_forecast_more_than_it_had() {
        let mut job = job(true);
        job.attempts.push(AttemptRecord {
            profile: "2g.10gb".into(),
            slice: Incarnation(1),
            placement: 0,
            start: 0.0,
            end: None,
            outcome: None,
            status: None,
            why: None,
            memory: 10 * GIB,
            for_speed: true,
        });
        let moved = ending(Outcome::Moved, None);
        let next = |job: &Job| job.next_need(&moved, 10 * GIB, 20 * GIB, None);
        // Nothing is known of it: all that it had may be in use.
        assert_eq!(next(&job), just(10 * GIB));
        job.enough = Some(3 * GIB);
        assert_eq!(next(&job), just(3 * GIB));
        // What it has been seen to hold counts more than a forecast.
        job.told_peak = 4 * GIB;
        assert_eq!(next(&job), just(4 * GIB));
        job.need = 6 * GIB;
        assert_eq!(next(&job), just(6 * GIB));
        job.attempts[0].for_speed = false;
        assert_eq!(next(&job), just(10 * GIB + 1));
    }

    #[test]
    fn who_does_not_go_on() {
        let moved = ending(Outcome::Moved, None);
        assert_eq!(
            job(true).next_need(&moved, 5 * GIB, 10 * GIB, None),
            just(5 * GIB + 1)
        );
        let mut cancelled = job(true);
        cancelled.cancelled = true;
        assert_eq!(cancelled.next_need(&moved, 5 * GIB, 10 * GIB, None), None);
        let mut orphan = job(true);
        orphan.runner = None;
        assert_eq!(orphan.next_need(&moved, 5 * GIB, 10 * GIB, None), None);
        assert_eq!(
            job(false).next_need(&ending(Outcome::Oom, UNMET), 5 * GIB, 10 * GIB, None),
            None
        );
        assert_eq!(
            job(true).next_need(&ending(Outcome::Failed, UNMET), 5 * GIB, 10 * GIB, None),
            None
        );
    }
}
