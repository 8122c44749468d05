//! Soft slices: leases on bytes of a GPU without MIG, kept by the interposer and grown in place.
//!
//! One lease through it:
//!
//! 1. The scheduler wants a reading ([`Owner::order_look`]); the machine thread makes it, and the decision follows
//!    ([`Owner::room_read`]).
//! 2. The lease is cut and granted. The grant sets `MIGM_CAP`, by which the interposer keeps the job's processes
//!    together within it.
//! 3. A process at the end of the lease asks for more and waits ([`Owner::raise`]). The scheduler grows the lease or
//!    says no. Grown, it is in the state file first; then the cap in the counter page is raised, and then the process
//!    is answered: whatever dies in between, no job has more than the next supervisor finds leased.
//! 4. A forecast grows it the same way, and nobody waits.
//! 5. What a process's context costs is charged at the configured or measured figure at first, and at what NVML lists
//!    for the job's processes as soon as that has been read.

use std::collections::HashMap;
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::page::DEVICES;
use migm_shared::report::Answer;
use migm_shared::units::Bytes;

use super::config::{Config, Mps};
use super::gpus::{PlacedGpu, Use};
use super::job::{Job, Peer};
use super::machine::{Device, Order};
use super::owner::{Output, Owner};
use super::page::JobPage;
use super::slices::{Origin, Slice};
use crate::job::environment::SoftLease;
use crate::node::soft::{Ours, Room};
use crate::node::{Gpu, MigMode, NodeError};
use crate::schedule::soft::Cut;
use crate::schedule::{Event, GpuIndex, Need};

/// A lease for a job of which nothing is known is the GPU's memory divided by this: what the smallest slice of a
/// MIG GPU has.
const FIRST_PART: u64 = 8;
/// A lease grows by whole parts of the GPU's memory, so that a job does not ask at each allocation.
const GRAIN_PART: u64 = 64;

/// What the operator has set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SoftSettings {
    first: Option<u64>,
    context: u64,
    mps: Mps,
}

impl SoftSettings {
    /// How leases on a GPU of so many bytes are cut.
    pub(super) fn cut(self, memory: u64) -> Cut {
        Cut {
            first: self.first.unwrap_or(memory / FIRST_PART).min(memory),
            grain: (memory / GRAIN_PART).max(1),
            // The MPS server keeps its limit for a process's life.
            grows: self.mps != Mps::Limit,
        }
    }

    /// What the processes of a job on a soft slice find in their environment; nothing on another slice.
    pub(super) fn environment(
        self,
        slice: &Slice,
        gpu: &PlacedGpu,
        measured: Option<u64>,
    ) -> Vec<(String, String)> {
        if slice.origin != Origin::Soft {
            return Vec::new();
        }
        let lease = SoftLease {
            bytes: slice.memory,
            context: measured.unwrap_or(self.context).min(slice.memory),
            share: (self.mps != Mps::Off).then_some(gpu.gpu.memory),
            limited: self.mps == Mps::Limit,
        };
        lease.settings()
    }
}

/// A process that waits for more memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) peer: Peer,
    pub(super) ticket: u32,
    pub(super) device: u32,
    pub(super) asked: u64,
}

/// What the owner keeps for soft slices besides the slices themselves.
#[derive(Debug)]
pub(super) struct SoftLeases {
    pub(super) settings: SoftSettings,
    /// What a process's context was measured at last.
    pub(super) context: Option<u64>,
    /// Processes that wait for an answer.
    raises: HashMap<JobId, Vec<Raise>>,
    /// Caps to be raised once the state file tells of it.
    caps: Vec<(Arc<JobPage>, u64)>,
}

impl SoftLeases {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            settings: SoftSettings {
                first: config.soft_first,
                context: config.soft_context,
                mps: config.mps,
            },
            context: None,
            raises: HashMap::new(),
            caps: Vec::new(),
        }
    }
}

/// What `migm run` tells people of a shared GPU.
pub(super) fn notice(gpu: &Gpu) -> String {
    let index = gpu.index;
    let why = match gpu.mode {
        MigMode::Absent => format!("GPU {index} has no MIG"),
        MigMode::Pending { .. } => format!("the MIG mode of GPU {index} changes at its next reset"),
        _ => format!("MIG is off on GPU {index} (`nvidia-smi -i {index} -mig 1` turns it on)"),
    };
    format!(
        "{why}: jobs share it as soft slices, which cap their memory and isolate neither compute nor faults"
    )
}

impl Owner {
    /// Leases that running jobs hold, at their present size.
    pub(super) fn adopt_leases(&mut self) {
        for grant in self.jobs.values().filter_map(|job| job.grant.as_ref()) {
            let on = self.gpus.iter().position(|gpu| gpu.gpu.uuid == grant.gpu_uuid);
            let Some(index) = on.filter(|index| self.gpus[*index].used == Use::Soft) else {
                continue;
            };
            tracing::info!(slice = %grant.slice, memory = grant.memory, "adopted a soft slice of an earlier supervisor");
            let slice = Slice::soft(index, &self.gpus[index], grant.memory);
            self.slices.insert(grant.slice, slice);
        }
    }

    /// The scheduler wants to know what leases may have.
    pub(super) fn order_look(&mut self, GpuIndex(index): GpuIndex) {
        let on_it = |job: &&Job| {
            let slice = job.grant.as_ref().and_then(|grant| self.slices.get(&grant.slice));
            slice.is_some_and(|slice| slice.gpu == index)
        };
        let mut ours = Ours::default();
        for job in self.jobs.values().filter(on_it) {
            ours.pids.extend(pids(job));
            if let Some(page) = &job.page {
                ours.charged += charged(page);
            }
        }
        let gpu = self.gpus[index].gpu.index;
        self.orders.push(Order::Room { gpu, ours });
    }

    pub(super) fn room_read(&mut self, gpu: u32, room: Result<Room, NodeError>, now: f64) {
        let Some(index) = self.gpus.iter().position(|one| one.gpu.index == gpu) else {
            return;
        };
        let room = room
            .inspect_err(|error| tracing::warn!(gpu, %error, "cannot tell what memory there is to lease"))
            .ok();
        tracing::debug!(gpu, ?room, "room for soft slices");
        let gpu = GpuIndex(index);
        self.step(now, Event::Room { gpu, room });
    }

    /// A soft slice comes to be.
    pub(super) fn cut_lease(&mut self, number: Incarnation, GpuIndex(index): GpuIndex, memory: u64) {
        let slice = Slice::soft(index, &self.gpus[index], memory);
        self.slices.insert(number, slice);
        self.next_slice = self.next_slice.max(number.0 + 1);
        self.dirty = true;
    }

    /// A process has come to its job's soft cap. What the lease holds it may have at once; for more, the lease must
    /// grow.
    pub(super) fn raise(&mut self, id: JobId, raise: Raise, now: f64) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(page) = &job.page else {
            return self.prompt.push(answer(raise, 0));
        };
        let device = usize::try_from(raise.device).unwrap_or(usize::MAX);
        let leased = job.grant.as_ref().map_or(0, |grant| grant.memory);
        let is_soft = self.soft_slice(job).is_some();
        let counters = page.counters();
        let waiting = self.soft.raises.entry(id).or_default();
        waiting.push(raise);
        // All that wait are to be served by one answer.
        let asked: u64 = waiting.iter().map(|one| one.asked).fold(0, u64::saturating_add);
        let needed = counters.charged(device).saturating_add(asked);
        tracing::info!(job = %id, asked = raise.asked, needed, leased, "a job asks for more than its cap");
        if needed <= leased || !is_soft {
            if needed <= leased {
                counters.raise_cap(device, needed);
            }
            return self.answer_raises(id);
        }
        let need = Need { device_bytes: needed };
        self.step(now, Event::Raise { job: id, need });
    }

    /// A lease has so many bytes from here on.
    pub(super) fn grown(&mut self, id: JobId, memory: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(grant) = &mut job.grant else { return };
        if grant.memory < memory {
            tracing::info!(job = %id, slice = %grant.slice, had = grant.memory, memory, "a soft slice grows in place");
            grant.memory = memory;
            if let Some(slice) = self.slices.get_mut(&grant.slice) {
                slice.memory = memory;
            }
            job.note = Some(format!("its soft slice has grown to {}", Bytes(memory)));
            self.changed(id);
        }
        if let Some(page) = self.jobs.get(&id).and_then(|job| job.page.clone()) {
            self.soft.caps.push((page, memory));
        }
        self.answer_raises(id);
    }

    /// Answers the job's processes that wait, after the state file has been written. The cap in the page is what holds;
    /// the figure in the answer is for the log.
    pub(super) fn answer_raises(&mut self, id: JobId) {
        let leased = self
            .jobs
            .get(&id)
            .and_then(|job| job.grant.as_ref())
            .map_or(0, |grant| grant.memory);
        for raise in self.soft.raises.remove(&id).into_iter().flatten() {
            self.outputs.push(answer(raise, leased));
        }
    }

    /// Raises the caps of leases that the state file tells of by now.
    pub(super) fn raise_caps(&mut self) {
        for (page, bytes) in self.soft.caps.drain(..) {
            (0..DEVICES).for_each(|device| page.counters().raise_cap(device, bytes));
        }
    }

    /// A job that cannot be moved is forecast to need more: its lease grows if it can. `false` if it holds none.
    pub(super) fn grow_only(&mut self, id: JobId, need: u64, now: f64) -> bool {
        let soft = self
            .jobs
            .get(&id)
            .is_some_and(|job| self.soft_slice(job).is_some());
        if soft {
            let need = Need { device_bytes: need };
            self.step(now, Event::Raise { job: id, need });
        }
        soft
    }

    /// NVML has told what the job's processes use beyond what they have reserved: that is what their contexts cost.
    pub(super) fn charge_contexts(&mut self, id: JobId, attempt: u32, unaccounted: u64) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.attempt().attempt == attempt) else {
            return;
        };
        if let (Some(_), Some(page)) = (self.soft_slice(job), &job.page) {
            let counters = page.counters();
            let capped = (0..DEVICES).filter(|device| counters.cap(*device).is_some());
            let each = capped
                .filter_map(|device| counters.correct_contexts(device, unaccounted))
                .last();
            self.soft.context = each.or(self.soft.context);
        }
    }

    /// What NVML is to measure for a job on a shared GPU.
    pub(super) fn shared_device(&self, job: &Job, slice: &Slice) -> Device {
        Device::Shared {
            gpu: self.gpus[slice.gpu].gpu.index,
            pids: pids(job).collect(),
        }
    }

    fn soft_slice(&self, job: &Job) -> Option<&Slice> {
        let slice = self.slices.get(&job.grant.as_ref()?.slice)?;
        (slice.origin == Origin::Soft).then_some(slice)
    }
}

fn answer(raise: Raise, cap: u64) -> Output {
    let Raise {
        peer, ticket, device, ..
    } = raise;
    Output::Answer(peer, Answer { ticket, device, cap })
}

/// Processes of a job, as far as known.
fn pids(job: &Job) -> impl Iterator<Item = u32> {
    let known = job.processes.keys().copied().filter(|pid| *pid != 0);
    known.chain(job.leader.map(|leader| leader.pid))
}

/// What a job has counted itself.
fn charged(page: &JobPage) -> u64 {
    let counters = page.counters();
    (0..DEVICES).map(|device| counters.charged(device)).sum()
}
