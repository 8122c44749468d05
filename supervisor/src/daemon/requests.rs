//! What runners and commands ask for.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use migm_shared::ids::{AttemptId, BatchId, JobId};

use super::batch::Batch;
use super::job::{Ending, Job, Peer};
use super::machine::{Moment, Order};
use super::owner::{Output, Owner, Role};
use super::page::{JobPage, PageError};
use super::process::ProcessId;
use crate::control::{AttemptRecord, Figures, Grant, JobState, Outcome, Reply, Request, Submission, Unmet};
use crate::node::NodeError;
use crate::schedule::{Event, Need};

impl Owner {
    /// Takes a request, with the descriptor that came along.
    pub fn request(&mut self, peer: Peer, request: Request, descriptor: Option<OwnedFd>, now: f64) {
        if let Some(client) = self.clients.get_mut(&peer)
            && client.role == Role::Unknown
        {
            client.role = Role::Command;
        }
        match request {
            Request::Submit(submission) => self.submit(peer, submission, descriptor, now),
            Request::Resume {
                submission,
                job,
                grant,
                attempts,
                pid,
            } => {
                let held = Held {
                    job,
                    grant,
                    attempts,
                    pid,
                };
                self.resume(peer, submission, held, descriptor, now);
            }
            Request::Started { attempt, pid } => self.started(peer, attempt, pid, now),
            Request::Ended {
                attempt,
                status,
                outcome,
                figures,
                unmet,
            } => {
                let ending = Ending {
                    status: Some(status),
                    outcome,
                    unmet,
                };
                self.told_ended(peer, attempt, ending, figures, now);
            }
            Request::Status => {
                let status = Box::new(self.status(peer));
                self.reply(peer, Reply::Status(status));
            }
            Request::Cancel { job } => self.cancel(peer, job, now),
            Request::OpenBatch { name } => self.open_batch(peer, name),
            Request::StartBatch { batch } => self.start_batch(peer, batch, now),
            Request::WatchBatch { batch } => self.watch_batch(peer, batch, now),
            Request::Shutdown => self.shut_down(peer),
        }
    }

    /// Whether a peer may see and change what belongs to a user.
    pub(super) fn may(&self, peer: Peer, uid: u32) -> bool {
        let us = self.clients.get(&peer).map(|client| client.credentials.uid);
        us == Some(uid) || us == Some(0)
    }

    fn submit(&mut self, peer: Peer, submission: Submission, descriptor: Option<OwnedFd>, now: f64) {
        let Some(client) = self.clients.get(&peer).copied() else {
            return;
        };
        if client.role != Role::Command {
            self.refuse(peer, "this connection has a job already");
            return;
        }
        if let Err(reason) = self.admit(peer, &submission) {
            self.refuse(peer, reason);
            return;
        }
        let page = match map(descriptor) {
            Ok(page) => page,
            Err(error) => {
                self.refuse(peer, error.to_string());
                return;
            }
        };
        let id = JobId(self.next_job);
        self.next_job += 1;
        let mut job = Job::new(id, submission, client.credentials.uid);
        job.runner = Some(peer);
        job.runner_process = ProcessId::of(client.credentials.pid);
        job.page = Some(page);
        tracing::info!(job = %id, name = job.submission.name, mem = job.submission.mem, "submitted");
        let mut held = false;
        if let Some(batch) = job
            .submission
            .batch
            .and_then(|batch| self.batches.get_mut(&batch))
        {
            batch.jobs.push(id);
            held = batch.started.is_none();
            batch.ended = None;
        }
        job.state = if held { JobState::Held } else { JobState::Waiting };
        self.jobs.insert(id, job);
        self.set_role(peer, Role::Runner(id));
        let notices: Vec<String> = self
            .gpus
            .iter()
            .filter_map(super::gpus::PlacedGpu::notice)
            .collect();
        let notice = (!notices.is_empty()).then(|| notices.join("; "));
        self.reply(peer, Reply::Accepted { job: id, notice });
        self.changed(id);
        if !held {
            self.queue(id, now);
        }
    }

    fn set_role(&mut self, peer: Peer, role: Role) {
        if let Some(client) = self.clients.get_mut(&peer) {
            client.role = role;
        }
    }

    /// Whether a job can be taken at all.
    fn admit(&self, peer: Peer, submission: &Submission) -> Result<(), String> {
        if self.stopping {
            return Err("the supervisor is ending".to_owned());
        }
        if let Err(reason) = &self.settings.interposer {
            return Err(reason.clone());
        }
        if let Some(batch) = submission.batch {
            match self.batches.get(&batch) {
                Some(batch) if self.may(peer, batch.uid) => {}
                _ => return Err(format!("there is no batch {batch}")),
            }
        }
        if let Some(reason) = &self.forbidden
            && !submission.use_existing
        {
            return Err(reason.clone());
        }
        match &submission.visible_devices {
            Some(list) => self.check_visible(list),
            None => Ok(()),
        }
    }

    /// The user's `CUDA_VISIBLE_DEVICES` must name GPUs of this node, by index or by the start of a UUID.
    fn check_visible(&self, list: &str) -> Result<(), String> {
        if list.trim().is_empty() {
            return Err("CUDA_VISIBLE_DEVICES is empty, which hides all GPUs; unset it".to_owned());
        }
        let mut chosen = std::collections::BTreeSet::new();
        for one in list.split(',').map(str::trim) {
            let index = one.parse::<u32>().ok();
            let found = self.gpus.iter().position(|gpu| {
                Some(gpu.gpu.index) == index || one.starts_with("GPU-") && gpu.gpu.uuid.starts_with(one)
            });
            chosen.insert(found.ok_or_else(|| {
                format!(
                    "CUDA_VISIBLE_DEVICES has `{one}`, which is no GPU of this node ({} GPUs)",
                    self.gpus.len()
                )
            })?);
        }
        if chosen.len() < self.gpus.len() {
            return Err(format!(
                "CUDA_VISIBLE_DEVICES={list} names {} of {} GPUs: jobs are placed over all GPUs of a supervisor; \
                 unset it, or start `migm supervisor` for these GPUs alone",
                chosen.len(),
                self.gpus.len()
            ));
        }
        Ok(())
    }

    fn resume(
        &mut self,
        peer: Peer,
        submission: Submission,
        held: Held,
        descriptor: Option<OwnedFd>,
        now: f64,
    ) {
        let id = held.job;
        let known = self
            .jobs
            .get(&id)
            .is_some_and(|job| job.submission.nonce == submission.nonce && self.may(peer, job.uid));
        if !known {
            if held.grant.is_none() {
                self.submit(peer, submission, descriptor, now);
            } else {
                self.refuse(
                    peer,
                    format!("the lease of job {id} is not known here; it goes on without a supervisor"),
                );
            }
            return;
        }
        let page = match map(descriptor) {
            Ok(page) => page,
            Err(error) => {
                self.refuse(peer, error.to_string());
                return;
            }
        };
        let credentials = self.clients.get(&peer).map(|client| client.credentials);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if job.state == JobState::Ended {
            let reason = format!("job {id} was given up while its runner was away");
            self.refuse(peer, reason);
            return;
        }
        tracing::info!(job = %id, state = ?job.state, "its runner is back");
        job.runner = Some(peer);
        job.runner_process = credentials.and_then(|who| ProcessId::of(who.pid));
        job.page = Some(page);
        job.orphan_since = None;
        job.asked = false;
        if held.attempts.len() >= job.attempts.len() {
            job.attempts = held.attempts;
        }
        if job.leader.is_none() {
            job.leader = held.pid.and_then(ProcessId::of);
        }
        let (state, attempt) = (job.state, job.attempt());
        let missed = job.grant.clone().filter(|_| held.grant.is_none());
        let reason = job.note.clone().unwrap_or_default();
        self.set_role(peer, Role::Runner(id));
        self.reply(
            peer,
            Reply::Accepted {
                job: id,
                notice: None,
            },
        );
        self.changed(id);
        match (state, missed) {
            (JobState::Waiting, _) => self.queue(id, now),
            (JobState::Moving, _) => self.reply(peer, Reply::Move { attempt, reason }),
            (_, Some(grant)) => self.reply(peer, Reply::Grant(grant)),
            _ => {}
        }
    }

    /// The job whose runner this peer is, if the attempt is its running one.
    fn running(&mut self, peer: Peer, attempt: AttemptId) -> Option<&mut Job> {
        let job = self.jobs.get_mut(&attempt.job)?;
        (job.runner == Some(peer) && job.is_leased() && job.attempt() == attempt).then_some(job)
    }

    fn started(&mut self, peer: Peer, attempt: AttemptId, pid: u32, now: f64) {
        let Some(job) = self.running(peer, attempt) else {
            tracing::debug!(%attempt, "a start of no running attempt");
            return;
        };
        job.leader = ProcessId::of(pid);
        let count = job.attempts.len();
        let before = count.checked_sub(2).and_then(|index| job.attempts[index].end);
        if let Some(last) = job.attempts.last_mut() {
            last.start = now;
        }
        let (id, mode) = (
            job.id,
            job.attempts.get(count.saturating_sub(2)).map(|one| one.outcome),
        );
        if let (Some(end), Some(Some(Outcome::Moved | Outcome::Oom))) = (before, mode) {
            self.relaunch = now - end;
        }
        self.changed(id);
    }

    fn told_ended(&mut self, peer: Peer, attempt: AttemptId, ending: Ending, figures: Figures, now: f64) {
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
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(grant) = job.grant.take() else { return };
        if let Some(slice) = self.slices.get_mut(&grant.slice) {
            slice.job = None;
        }
        job.figures = job.figures_now();
        if let Some(last) = job.attempts.last_mut() {
            last.end = Some(now);
            last.outcome = Some(ending.outcome);
            last.status = ending.status;
        }
        let again = job.next_need(&ending, grant.memory, self.context_cost);
        tracing::info!(
            job = %id, attempt = grant.attempt.attempt, outcome = ?ending.outcome, status = ending.status,
            next_need = again, "attempt is over"
        );
        job.leader = None;
        if let Some(need) = again {
            job.need = need;
            job.state = JobState::Waiting;
            self.changed(id);
            let again = Some(Need { device_bytes: need });
            self.step(now, Event::Ended { job: id, again });
        } else {
            self.finish(id, now);
            self.step(now, Event::Ended { job: id, again: None });
        }
    }

    fn cancel(&mut self, peer: Peer, id: JobId, now: f64) {
        let uid = self.jobs.get(&id).map(|job| job.uid);
        let Some(job) = self.jobs.get_mut(&id).filter(|_| uid.is_some()) else {
            self.refuse(peer, format!("there is no job {id}"));
            return;
        };
        let (state, attempt) = (job.state, job.attempt());
        if !self.may(peer, uid.unwrap_or(u32::MAX)) {
            self.refuse(peer, format!("there is no job {id}"));
            return;
        }
        match state {
            JobState::Ended => self.refuse(peer, format!("job {id} has ended")),
            JobState::Watched => self.refuse(
                peer,
                format!("job {id} is only watched: it was started without `migm run`, so stop its process"),
            ),
            JobState::Held | JobState::Waiting => {
                self.tell_runner(id, Reply::Cancel { attempt: None });
                self.reply(peer, Reply::Done);
                self.withdraw(id, "cancelled while it waited", now);
            }
            JobState::Running | JobState::Moving => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.cancelled = true;
                }
                self.tell_runner(
                    id,
                    Reply::Cancel {
                        attempt: Some(attempt),
                    },
                );
                self.reply(peer, Reply::Done);
            }
        }
    }

    /// A job that has no slice goes.
    pub(super) fn withdraw(&mut self, id: JobId, note: &str, now: f64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.note = Some(note.to_owned());
        }
        self.finish(id, now);
        self.step(now, Event::Withdrawn { job: id });
    }

    fn open_batch(&mut self, peer: Peer, name: String) {
        let Some(client) = self.clients.get(&peer) else {
            return;
        };
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        let batch = Batch::new(id, name, client.credentials.uid, Some(peer));
        self.batches.insert(id, batch);
        self.dirty = true;
        self.reply(peer, Reply::BatchOpened { batch: id });
    }

    fn start_batch(&mut self, peer: Peer, id: BatchId, now: f64) {
        let uid = self.batches.get(&id).map(|batch| batch.uid);
        let allowed = uid.is_some_and(|uid| self.may(peer, uid));
        let reconfigurations = self.reconfigurations;
        let Some(batch) = self.batches.get_mut(&id).filter(|_| allowed) else {
            self.refuse(peer, format!("there is no batch {id}"));
            return;
        };
        if batch.started.is_some() {
            self.refuse(peer, format!("batch {id} has started"));
            return;
        }
        batch.started = Some(now);
        batch.reconfigurations = reconfigurations;
        let jobs = batch.jobs.clone();
        tracing::info!(batch = %id, jobs = jobs.len(), "batch starts");
        self.unanswered += 1;
        self.orders.push(Order::Energy {
            batch: id,
            moment: Moment::Start,
        });
        self.reply(peer, Reply::Done);
        for id in jobs {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if job.state != JobState::Held {
                continue;
            }
            job.state = JobState::Waiting;
            self.changed(id);
            self.queue(id, now);
        }
        self.dirty = true;
        self.check_batch(id, now);
    }

    fn watch_batch(&mut self, peer: Peer, id: BatchId, now: f64) {
        let uid = self.batches.get(&id).map(|batch| batch.uid);
        let allowed = uid.is_some_and(|uid| self.may(peer, uid));
        let Some(batch) = self.batches.get_mut(&id).filter(|_| allowed) else {
            self.refuse(peer, format!("there is no batch {id}"));
            return;
        };
        batch.watcher = Some(peer);
        let told = batch.ended.is_some() && !batch.reading;
        self.changed_jobs.extend(batch.jobs.iter().copied());
        self.reply(peer, Reply::Done);
        if told {
            self.tell_summary(id);
        } else {
            self.check_batch(id, now);
        }
    }

    fn shut_down(&mut self, peer: Peer) {
        let us = nix::unistd::geteuid().as_raw();
        if !self.may(peer, us) {
            self.refuse(peer, "the supervisor belongs to another user");
            return;
        }
        let live = self
            .jobs
            .values()
            .filter(|job| job.state != JobState::Ended)
            .count();
        if live > 0 {
            self.refuse(peer, format!("{live} jobs have not ended"));
            return;
        }
        self.reply(peer, Reply::Done);
        self.stop();
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
            }
            JobState::Ended | JobState::Watched => {}
        }
    }

    /// Leases whose runner is gone: freed when no process of the job lives.
    pub(super) fn look_for_orphans(&mut self, now: f64) {
        let grace = self.settings.config.grace_s;
        let mut lost = Vec::new();
        for job in self.jobs.values_mut() {
            let Some(since) = job.orphan_since else { continue };
            // A runner that lives may come back; one that is known to be dead will not.
            let dead = job.runner_process.is_some_and(|runner| !runner.lives());
            if job.state == JobState::Ended || !dead && now - since < grace {
                continue;
            }
            if !job.is_leased() {
                lost.push(job.id);
            } else if !job.asked && !job.has_process() {
                let slice = job.grant.as_ref().and_then(|grant| self.slices.get(&grant.slice));
                let Some(slice) = slice else {
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

/// Nobody knows how it ended.
const UNKNOWN_END: Ending = Ending {
    status: None,
    outcome: Outcome::Failed,
    unmet: None,
};

/// What a runner says that it holds.
struct Held {
    job: JobId,
    grant: Option<Grant>,
    attempts: Vec<AttemptRecord>,
    pid: Option<u32>,
}

impl Job {
    /// Device bytes for the next attempt, or `None` when the job is over.
    ///
    /// After an out-of-memory answer that is what was in use, what was asked for and what the driver
    /// charges besides: a slice that holds just that, not the next size up.
    fn next_need(&self, ending: &Ending, had: u64, context_cost: Option<u64>) -> Option<u64> {
        if self.cancelled || self.runner.is_none() {
            return None;
        }
        let least = had.saturating_add(1);
        match (ending.outcome, ending.unmet) {
            (Outcome::Moved, _) => Some(self.need.max(least)),
            (Outcome::Oom, Some(Unmet { asked, in_use })) if self.submission.movable => {
                let besides = self.unaccounted.or(context_cost).unwrap_or(0);
                Some(asked.saturating_add(in_use).saturating_add(besides).max(least))
            }
            _ => None,
        }
    }
}

fn map(descriptor: Option<OwnedFd>) -> Result<Arc<JobPage>, PageError> {
    let descriptor =
        descriptor.ok_or_else(|| PageError::System(std::io::Error::other("none came with the request")))?;
    JobPage::map(descriptor).map(Arc::new)
}
