//! What runners and commands ask for.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use migm_shared::ids::JobId;

use super::gpus::Use;
use super::job::{Ending, Job, Peer};
use super::owner::{Output, Owner, Role};
use super::process::ProcessId;
use crate::control::{AttemptRecord, Grant, JobState, Reply, Request, Submission};
use crate::job::page::{JobPage, PageError};
use crate::schedule::{Event, GpuIndex, Wish};

impl Owner {
    /// Takes a request, with the descriptor that came along.
    pub fn request(&mut self, peer: Peer, request: Request, descriptor: Option<OwnedFd>, now: f64) {
        if let Some(client) = self.clients.get_mut(&peer) {
            client.role = match (client.role, &request) {
                (
                    Role::Unknown | Role::Onlooker,
                    Request::Status | Request::Grids | Request::Policy | Request::Explain { .. },
                ) => Role::Onlooker,
                (Role::Unknown | Role::Onlooker, _) => Role::Command,
                (role, _) => role,
            };
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
            Request::OpenBatch { name } => self.open_batch(peer, name, None),
            Request::OpenBatchBy { name, policy } => self.open_batch(peer, name, Some(&policy)),
            Request::Policy => {
                let status = self.policy_status();
                self.reply(peer, Reply::Policy(status));
            }
            Request::StartBatch { batch } => self.start_batch(peer, batch, now),
            Request::WatchBatch { batch } => self.watch_batch(peer, batch, now),
            Request::Shutdown => self.shut_down(peer),
            Request::Clear { device } => self.clear(peer, device, now),
            Request::Grids => {
                let grids = self.gpus.iter().map(super::gpus::PlacedGpu::grid).collect();
                self.reply(peer, Reply::Grids(grids));
            }
            Request::About(about) => self.about(peer, about),
            Request::Explain { job } => self.explain(peer, job),
            Request::OpenArray => self.open_array(peer),
            Request::StartArray { array } => self.start_array(peer, array),
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
        if self.stopping {
            // As if it had come a moment later: it waits for the next supervisor, like those who wait already.
            let why = "the supervisor is ending".to_owned();
            self.outputs.push(Output::Drop(peer, why));
            return;
        }
        if let Some(job) = self.submitted_before(peer, &submission) {
            let held = Held {
                job,
                grant: None,
                attempts: Vec::new(),
                pid: None,
            };
            self.resume(peer, submission, held, descriptor, now);
            return;
        }
        let admitted = self.admit(peer, &submission);
        let awaits = match admitted.and_then(|()| self.awaited(peer, &submission)) {
            Ok(awaits) => awaits,
            Err(reason) => {
                self.refuse(peer, reason);
                return;
            }
        };
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
        self.hear_of_ended(&awaits);
        job.awaits = awaits;
        job.came = now;
        if let Some(batch) = job
            .submission
            .batch
            .and_then(|batch| self.batches.get_mut(&batch))
        {
            batch.jobs.push(id);
            job.late = batch.started.is_some();
            batch.ended = None;
        }
        let held = self.is_to_be_held(&job);
        job.state = if held { JobState::Held } else { JobState::Waiting };
        self.jobs.insert(id, job);
        self.set_role(peer, Role::Runner(id));
        self.restrict(id, now);
        self.size_first(id, peer, now);
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
            self.gather(now);
        }
    }

    /// The job that is submitted again: an earlier supervisor took it and was gone before its runner had heard of that.
    fn submitted_before(&self, peer: Peer, submission: &Submission) -> Option<JobId> {
        let is_it = |job: &&Job| {
            job.runner.is_none()
                && job.state != JobState::Ended
                && job.submission == *submission
                && self.may(peer, job.uid)
        };
        self.jobs.values().find(is_it).map(|job| job.id)
    }

    fn set_role(&mut self, peer: Peer, role: Role) {
        if let Some(client) = self.clients.get_mut(&peer) {
            client.role = role;
        }
    }

    /// Whether a job can be taken at all.
    fn admit(&self, peer: Peer, submission: &Submission) -> Result<(), String> {
        for name in [Some(&submission.name), submission.part.as_ref()]
            .into_iter()
            .flatten()
        {
            crate::job::name(name)?;
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
        let usable = self.usable(submission)?;
        self.check_profile(submission, usable.as_deref())
    }

    /// Refuses a profile that no GPU of those which a job may use has.
    fn check_profile(&self, submission: &Submission, usable: Option<&[GpuIndex]>) -> Result<(), String> {
        let Some(wanted) = &submission.wishes.profile else {
            return Ok(());
        };
        let may = |index: usize| usable.is_none_or(|usable| usable.contains(&GpuIndex(index)));
        let gpus = self
            .gpus
            .iter()
            .enumerate()
            .filter(|(index, gpu)| may(*index) && gpu.used != Use::Soft);
        let there = gpus.flat_map(|(_, gpu)| gpu.table.profiles());
        match Wish::why_not_among(wanted, there.map(|profile| profile.name.as_str())) {
            Some(reason) => Err(reason),
            None => Ok(()),
        }
    }

    /// The GPUs that a job may use: those that the user names, and where instances cannot be made, of these the ones
    /// that need none, unless the job takes instances of others. `None`: all.
    pub(super) fn usable(&self, submission: &Submission) -> Result<Option<Vec<GpuIndex>>, String> {
        let list = submission.visible_devices.as_deref();
        let visible = list.map(|list| self.visible(list)).transpose()?;
        let named = self.on_devices(&submission.wishes.devices, visible)?;
        let Some(reason) = self.forbidden.as_ref().filter(|_| !submission.use_existing) else {
            return Ok(named);
        };
        let all = || (0..self.gpus.len()).map(GpuIndex).collect();
        let mut gpus: Vec<GpuIndex> = named.unwrap_or_else(all);
        gpus.retain(|gpu| self.gpus[gpu.0].used != Use::Existing);
        if gpus.is_empty() {
            return Err(reason.clone());
        }
        Ok(Some(gpus))
    }

    /// Of the GPUs that are visible, all where `None`, those with these numbers.
    pub(super) fn on_devices(
        &self,
        devices: &[u32],
        visible: Option<Vec<GpuIndex>>,
    ) -> Result<Option<Vec<GpuIndex>>, String> {
        if devices.is_empty() {
            return Ok(visible);
        }
        let mut named = Vec::new();
        for device in devices {
            let found = self.gpus.iter().position(|gpu| gpu.gpu.index == *device);
            let index = found.ok_or_else(|| {
                format!(
                    "--device names GPU {device}, which is none of this node's ({} GPUs)",
                    self.gpus.len()
                )
            })?;
            named.push(GpuIndex(index));
        }
        if let Some(visible) = visible {
            named.retain(|gpu| visible.contains(gpu));
            if named.is_empty() {
                return Err("--device names no GPU that CUDA_VISIBLE_DEVICES leaves".to_owned());
            }
        }
        Ok(Some(named))
    }

    /// The GPUs that the user's `CUDA_VISIBLE_DEVICES` names, by index or by the start of a UUID.
    pub(super) fn visible(&self, list: &str) -> Result<Vec<GpuIndex>, String> {
        if list.trim().is_empty() {
            return Err("CUDA_VISIBLE_DEVICES is empty, which hides all GPUs; unset it".to_owned());
        }
        list.split(',')
            .map(str::trim)
            .map(|one| {
                let index = one.parse::<u32>().ok();
                let found = self.gpus.iter().position(|gpu| {
                    Some(gpu.gpu.index) == index || one.starts_with("GPU-") && gpu.gpu.uuid.starts_with(one)
                });
                found.map(GpuIndex).ok_or_else(|| {
                    format!(
                        "CUDA_VISIBLE_DEVICES has `{one}`, which is no GPU of this node ({} GPUs)",
                        self.gpus.len()
                    )
                })
            })
            .collect()
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
            let ours = std::mem::replace(&mut job.attempts, held.attempts);
            for (mine, theirs) in ours.into_iter().zip(&mut job.attempts) {
                // Why it moved is ours to know. An end that we know is not told again: it is of no running attempt.
                theirs.for_speed = mine.for_speed;
                if theirs.outcome.is_none() {
                    *theirs = mine;
                }
            }
        }
        if job.leader.is_none() {
            job.leader = held.pid.and_then(ProcessId::of);
        }
        self.learn_again(id, peer, now);
        let Some(job) = self.jobs.get(&id) else { return };
        let (state, attempt) = (job.state, job.attempt());
        // Its runner may also still hold the lease before this one, whose end it has told an earlier supervisor.
        let heard = held.grant.as_ref().map(|grant| grant.attempt);
        let missed = job.grant.clone().filter(|grant| heard != Some(grant.attempt));
        let (reason, cancelled) = (job.note.clone().unwrap_or_default(), job.cancelled);
        self.set_role(peer, Role::Runner(id));
        self.reply(
            peer,
            Reply::Accepted {
                job: id,
                notice: None,
            },
        );
        self.changed(id);
        self.tell_facts(id, now);
        match (state, missed) {
            (JobState::Waiting, _) => self.queue(id, now),
            // What it waited for may have come while its runner was away.
            (JobState::Held, _) => self.holds.note_change(),
            // Asked for while its runner was away. One that does not know of its attempt has none to stop.
            (_, ref missed) if cancelled => {
                let attempt = missed.is_none().then_some(attempt);
                self.reply(peer, Reply::Cancel { attempt });
            }
            (JobState::Moving, _) => self.reply(peer, Reply::Move { attempt, reason }),
            (_, Some(grant)) => self.reply(peer, Reply::Grant(grant)),
            _ => {}
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
                self.changed(id);
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
}

/// What a runner says that it holds.
struct Held {
    job: JobId,
    grant: Option<Grant>,
    attempts: Vec<AttemptRecord>,
    pid: Option<u32>,
}

fn map(descriptor: Option<OwnedFd>) -> Result<Arc<JobPage>, PageError> {
    let descriptor =
        descriptor.ok_or_else(|| PageError::System(std::io::Error::other("none came with the request")))?;
    JobPage::map(descriptor).map(Arc::new)
}
