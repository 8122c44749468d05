//! What the scheduler wants is done, and what the machine answers is told to the scheduler.

use std::collections::VecDeque;

use migm_shared::ids::{Incarnation, JobId};

use super::forecast::Track;
use super::job::Job;
use super::machine::{Answer, Order};
use super::owner::Owner;
use super::pace::Pace;
use super::slices::{Origin, Slice};
use super::state::Step;
use crate::control::{AttemptRecord, Grant, JobState, Reply, Verdict};
use crate::layout::Slot;
use crate::node::{Instance, NodeError};
use crate::schedule::{Action, Event, GpuIndex};

impl Owner {
    /// Carries out one action. What it brings about at once goes to `events`.
    pub(super) fn act(&mut self, now: f64, action: Action, events: &mut VecDeque<Event>) {
        match action {
            Action::Create {
                slice,
                gpu,
                profile,
                placement,
            } => {
                self.costs.began(slice, now);
                self.order_create(slice, gpu, (profile, placement));
            }
            Action::Destroy { slice } => {
                self.costs.began(slice, now);
                self.order_destroy(slice);
            }
            Action::Grant { job, slice, reason } => {
                if !self.grant(now, job, slice, reason) {
                    events.push_back(Event::Ended { job, again: None });
                }
                self.tell_need(job, now);
            }
            Action::Look { gpu } => self.order_look(gpu),
            Action::Lease { slice, gpu, memory } => self.cut_lease(slice, gpu, memory),
            Action::Grow { job, memory, .. } => self.grown(job, memory),
            Action::Shrink { job, memory } => {
                let memory = self.shrink(job, memory);
                events.push_back(Event::Shrunk { job, memory });
            }
            Action::Stay { job } => self.answer_raises(job),
            Action::Move {
                job,
                for_speed,
                reason,
            } => self.order_move(job, for_speed, reason, now),
            Action::Refuse { job, reason } if self.waits_for_a_gpu(job, &reason) => {}
            Action::Refuse { job, reason } if self.waits_for_own_policy(job, &reason) => {}
            Action::Refuse { job, mut reason } => {
                let takes_existing = |job: &Job| job.submission.use_existing;
                if let Some(forbidden) = &self.forbidden
                    && !self.jobs.get(&job).is_some_and(takes_existing)
                {
                    // Why none is made where it would fit.
                    reason = format!("{reason}; {forbidden}");
                }
                self.give_up(job, reason, now);
                events.push_back(Event::Withdrawn { job });
            }
        }
    }

    fn order_create(&mut self, number: Incarnation, GpuIndex(index): GpuIndex, slot: Slot) {
        let gpu = &self.gpus[index];
        let profile = gpu.table.profile(slot.0).clone();
        tracing::info!(slice = %number, gpu = gpu.gpu.index, profile = profile.name, start = slot.1.start, "creating");
        self.orders.push(Order::Create {
            slice: number,
            gpu: gpu.gpu.index,
            profile,
            placement: slot.1,
        });
        self.slices.insert(number, Slice::coming(index, gpu, slot));
        self.next_slice = self.next_slice.max(number.0 + 1);
        self.unanswered += 1;
        self.dirty = true;
    }

    pub(super) fn order_destroy(&mut self, number: Incarnation) {
        let Some(slice) = self.slices.get_mut(&number) else {
            return;
        };
        let Some(gi) = slice.gi else { return };
        slice.step = Step::Destroying;
        let gpu = self.gpus[slice.gpu].gpu.index;
        tracing::info!(slice = %number, gpu, gi, "removing");
        self.orders.push(Order::Destroy {
            slice: number,
            gpu,
            gi,
        });
        self.unanswered += 1;
        self.dirty = true;
    }

    /// Leases a slice to a job. `false` when the job is no more.
    fn grant(&mut self, now: f64, id: JobId, number: Incarnation, reason: String) -> bool {
        let (Some(job), Some(slice)) = (self.jobs.get_mut(&id), self.slices.get_mut(&number)) else {
            return false;
        };
        let gpu = &self.gpus[slice.gpu];
        let profile = gpu.table.profile(slice.slot.0);
        slice.job = Some(id);
        job.state = JobState::Running;
        job.note = Some(reason.clone());
        job.leader = None;
        job.track = Track::new(self.settings.config.predictor);
        job.pace = Pace::default();
        job.enough = None;
        job.asked_to_move = None;
        job.learnt.begin_attempt();
        if let Some(page) = &job.page {
            page.next_attempt();
        }
        let mut environment = vec![(
            "MIGM_SOCKET".to_owned(),
            self.settings.socket.display().to_string(),
        )];
        if let Some(simulated) = &self.settings.own_simulated {
            environment.push(("SIMGPU_ID".to_owned(), simulated.id.clone()));
            environment.push((
                "SIMGPU_TIME_SCALE".to_owned(),
                self.settings.time_scale.to_string(),
            ));
        }
        environment.extend(self.soft.settings.environment(slice, gpu, self.soft.context));
        let grant = Grant {
            attempt: job.attempt(),
            slice: number,
            gpu: gpu.gpu.name.clone(),
            gpu_uuid: gpu.gpu.uuid.clone(),
            profile: profile.name.clone(),
            start: slice.slot.1.start,
            memory: slice.memory,
            visible_device: slice.uuid.clone().unwrap_or_default(),
            environment,
            library_path: self.settings.library_path.clone(),
            interposer: self
                .settings
                .interposer
                .as_ref()
                .map_or_else(|_| String::new(), |path| path.display().to_string()),
            reason,
        };
        tracing::info!(
            job = %id, attempt = grant.attempt.attempt, slice = %number, profile = grant.profile,
            start = grant.start, reason = grant.reason, "granted"
        );
        job.attempts.push(AttemptRecord {
            profile: grant.profile.clone(),
            slice: number,
            placement: grant.start,
            start: now,
            end: None,
            outcome: None,
            status: None,
            why: None,
            memory: grant.memory,
            for_speed: false,
        });
        job.grant = Some(grant.clone());
        self.decide(id, now, Verdict::Grant, grant.reason.clone(), None);
        self.tell_runner(id, Reply::Grant(grant));
        self.changed(id);
        true
    }

    fn order_move(&mut self, id: JobId, for_speed: bool, reason: String, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        tracing::info!(job = %id, for_speed, reason, "moving");
        job.asked_to_move = Some(now);
        job.state = JobState::Moving;
        job.note = Some(reason.clone());
        if let Some(last) = job.attempts.last_mut() {
            last.why = Some(reason.clone());
            last.for_speed = for_speed;
        }
        let attempt = job.attempt();
        if for_speed {
            self.decide(id, now, Verdict::Move, format!("for speed: {reason}"), None);
        }
        self.tell_runner(id, Reply::Move { attempt, reason });
        self.changed(id);
    }

    /// No slice will ever do. A job that never ran is refused; one that ran is over with what it has.
    pub(super) fn give_up(&mut self, id: JobId, reason: String, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        tracing::info!(job = %id, reason, "no slice can hold it");
        job.note = Some(reason.clone());
        let never_ran = job.attempts.is_empty();
        self.decide(id, now, Verdict::Refuse, reason.clone(), None);
        if never_ran {
            self.tell_runner(id, Reply::Refused { reason });
            if let Some(job) = self.jobs.get_mut(&id) {
                job.runner = None;
            }
        }
        self.finish(id, now);
    }

    /// Takes an answer of the machine thread.
    pub fn answer(&mut self, answer: Answer, now: f64) {
        match answer {
            Answer::Created { slice, result } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.created(slice, result, now);
            }
            Answer::Destroyed { slice, result } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.destroyed(slice, result, now);
            }
            Answer::Energy {
                batch,
                moment,
                millijoules,
            } => {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.energy_read(batch, moment, millijoules);
            }
            Answer::Room { gpu, room } => self.room_read(gpu, room, now),
            Answer::Occupants { job, pids } => self.occupants(job, pids, now),
            Answer::Measured {
                job,
                attempt,
                unaccounted,
            } => self.measured(job, attempt, unaccounted, now),
            Answer::Seen {
                gpu,
                instances,
                occupied,
            } => self.seen(gpu, instances, &occupied, now),
            Answer::Aside { gpu, why } => self.put_aside(gpu, &why, now),
            Answer::Back(gpu) => self.take_back(*gpu, now),
        }
    }

    fn created(&mut self, number: Incarnation, result: Result<Instance, NodeError>, now: f64) {
        self.dirty = true;
        let Some(slice) = self.slices.get_mut(&number) else {
            return;
        };
        match result {
            Ok(instance) => {
                self.reconfigurations += 1;
                self.costs.created(number, now);
                slice.step = Step::Ready;
                slice.gi = Some(instance.gi);
                slice.memory = instance.memory.unwrap_or(slice.memory);
                slice.uuid = instance.uuid;
                tracing::info!(slice = %number, gi = instance.gi, uuid = slice.uuid, "created");
                if self.stopping {
                    self.order_destroy(number);
                    return;
                }
                self.step(now, Event::Created { slice: number });
            }
            Err(error) => {
                tracing::warn!(slice = %number, %error, "create failed");
                self.costs.refused(number);
                let illegal = error.is_illegal();
                let mut left = None;
                match &error {
                    // Half of it is there: it keeps its place until it can be taken away.
                    NodeError::LeftBehind { gi, .. } => {
                        slice.gi = Some(*gi);
                        slice.origin = Origin::Left;
                        slice.step = Step::Destroying;
                        left = Some(slice.gpu);
                    }
                    _ => {
                        self.slices.remove(&number);
                    }
                }
                if let Some(index) = left {
                    self.note_stuck(number, &error, now);
                    self.tell_gpu(index, now);
                }
                if error.is_insufficient() {
                    // The table holds it legal: somebody may have taken the place since the last look.
                    self.orders.push(Order::Survey);
                }
                if error.is_barred() {
                    self.forbid(&error, now);
                    return;
                }
                self.step(
                    now,
                    Event::CreateFailed {
                        slice: number,
                        illegal,
                    },
                );
            }
        }
    }

    fn destroyed(&mut self, number: Incarnation, result: Result<(), NodeError>, now: f64) {
        self.dirty = true;
        match result {
            Ok(()) => {
                self.reconfigurations += 1;
                self.costs.destroyed(number, now);
                self.stuck.remove(&number);
                let gone = self.slices.remove(&number);
                tracing::info!(slice = %number, "removed");
                let unknown = self.is_clearing(number);
                if unknown {
                    self.cleared(number, Ok(()), now);
                }
                match gone {
                    // Its ground counted as foreign.
                    Some(slice) if unknown || slice.origin == Origin::Left => self.tell_gpu(slice.gpu, now),
                    _ => self.step(now, Event::Destroyed { slice: number }),
                }
            }
            Err(error) => {
                tracing::warn!(slice = %number, %error, "remove failed");
                self.costs.refused(number);
                self.note_stuck(number, &error, now);
                let Some(slice) = self.slices.get_mut(&number) else {
                    return;
                };
                if matches!(error, NodeError::HalfGone { .. }) {
                    // Nobody can run there any more: it only takes room, until it is asked to go again.
                    slice.origin = Origin::Left;
                    let index = slice.gpu;
                    self.tell_gpu(index, now);
                    self.step(now, Event::Destroyed { slice: number });
                } else if slice.origin != Origin::Left {
                    slice.step = Step::Ready;
                }
                if self.is_clearing(number) {
                    self.cleared(number, Err(&error), now);
                    return;
                }
                self.step(now, Event::DestroyFailed { slice: number });
            }
        }
    }
}
