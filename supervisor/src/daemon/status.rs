//! What `migm status` shows.

use migm_shared::ids::JobId;

use super::event_loop::monotonic;
use super::gpus::{PlacedGpu, SOFT, Use};
use super::holds::Active;
use super::job::Peer;
use super::owner::{Output, Owner, Role};
use super::slices::{Origin, Slice};
use crate::control::{GpuStatus, JobState, JobStatus, NodeStatus, SliceStatus};
use crate::job::record::Clock;
use crate::node::Instance;

impl Owner {
    /// Everything at this moment, as far as the peer may see it: jobs of other users are left out.
    #[must_use]
    pub fn status(&self, peer: Peer) -> NodeStatus {
        let active = self.active();
        NodeStatus {
            gpus: self
                .gpus
                .iter()
                .enumerate()
                .map(|(index, gpu)| self.gpu_status(index, gpu))
                .collect(),
            jobs: self
                .jobs
                .values()
                .filter(|job| self.may(peer, job.uid))
                .map(|job| self.job_status(job, &active))
                .collect(),
            simulated: self.settings.simulated,
            time_scale: self.settings.time_scale,
            supervisor: std::process::id(),
        }
    }

    /// What the seconds are that reports show.
    pub(super) fn clock(&self) -> Clock {
        Clock {
            simulated: self.settings.simulated,
            time_scale: self.settings.time_scale,
        }
    }

    /// Seconds until the running attempt of a job is over, simulated ones where the GPUs are.
    fn seconds_left(&self, job: JobId) -> Option<f64> {
        let job = self.jobs.get(&job).filter(|job| job.state == JobState::Running)?;
        let start = job.attempts.last()?.start;
        job.seconds_left(self.clock().seconds(monotonic() - start))
    }

    pub(super) fn job_status(&self, job: &super::job::Job, active: &Active) -> JobStatus {
        let mut status = job.status();
        if let Some(why) = Some(job)
            .filter(|job| job.state == JobState::Held)
            .and_then(|job| self.why_held(job, active))
        {
            status.note = Some(why);
        }
        if job.state == JobState::Waiting {
            let why = self.scheduler.why_waiting(job.id);
            if !why.is_empty() {
                status.note = Some(why);
            }
        }
        if let Some(error) = self
            .write_refused
            .as_ref()
            .filter(|_| job.state != JobState::Ended)
        {
            status.note = Some(format!(
                "no slice changes until the state can be written: {error}"
            ));
        }
        status
    }

    /// Who only looks on hears at once, also while nothing else is given out: it is then that people look.
    pub(super) fn answer_onlookers(&mut self) {
        let looks_on = |output: &mut Output| match output {
            Output::Reply(peer, _) => {
                let role = self.clients.get(peer).map(|client| client.role);
                role == Some(Role::Onlooker)
            }
            _ => false,
        };
        self.prompt.extend(self.outputs.extract_if(.., looks_on));
    }

    fn gpu_status(&self, index: usize, gpu: &PlacedGpu) -> GpuStatus {
        let mine = self.slices.iter().filter(|(_, slice)| slice.gpu == index);
        let mut slices: Vec<SliceStatus> = mine
            .map(|(number, slice)| SliceStatus {
                profile: gpu.table.profile(slice.slot.0).name.clone(),
                start: slice.slot.1.start,
                size: slice.slot.1.size,
                state: match self.why_stuck(*number, monotonic()) {
                    Some(_) if slice.job.is_none() => "stuck".to_owned(),
                    _ => slice.word().to_owned(),
                },
                incarnation: Some(*number),
                uuid: slice.uuid.clone(),
                memory: slice.memory,
                job: slice.job,
                ends_s: slice.job.and_then(|job| self.seconds_left(job)),
            })
            .collect();
        let offered = |one: &&Instance| {
            let is_it = |slice: &Slice| {
                slice.gpu == index && slice.origin == Origin::Existing && slice.gi == Some(one.gi)
            };
            self.slices.values().any(is_it)
        };
        slices.extend(
            gpu.foreign
                .iter()
                .filter(|one| !offered(one))
                .map(|one| SliceStatus {
                    profile: gpu.profile_name(one.profile),
                    start: one.placement.start,
                    size: one.placement.size,
                    state: "foreign".to_owned(),
                    incarnation: None,
                    uuid: one.uuid.clone(),
                    memory: one.memory.unwrap_or(0),
                    job: None,
                    ends_s: None,
                }),
        );
        slices.sort_by_key(|slice| (slice.start, slice.size));
        GpuStatus {
            name: gpu.gpu.name.clone(),
            uuid: gpu.gpu.uuid.clone(),
            mode: match (&gpu.aside, gpu.used) {
                (Some(aside), _) => aside.word.to_owned(),
                (None, Use::Soft) => SOFT.to_owned(),
                (None, _) => gpu.gpu.mode.word().to_owned(),
            },
            slices,
        }
    }
}
