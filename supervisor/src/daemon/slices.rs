//! The slices that jobs may get, by our own numbers.

use migm_shared::ids::{Incarnation, JobId};

use super::gpus::PlacedGpu;
use super::machine::Device;
use super::state::{SliceRecord, Step};
use crate::layout::Slot;
use crate::node::Instance;

/// Whose a slice is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// We made it, and remove it.
    Ours,
    /// We made it half, and could not remove it: it takes room and nobody gets it.
    Left,
    /// It was there; it is used while it is idle.
    Existing,
    /// A whole GPU.
    Whole,
    /// Bytes of a shared GPU.
    Soft,
}

/// One slice.
#[derive(Clone, Debug)]
pub struct Slice {
    /// Which of the supervisor's GPUs.
    pub gpu: usize,
    /// Kind and place in that GPU's table.
    pub slot: Slot,
    /// Whose it is.
    pub origin: Origin,
    /// How far it is.
    pub step: Step,
    /// NVML's id.
    pub gi: Option<u32>,
    /// UUID of its MIG device, or of the GPU.
    pub uuid: Option<String>,
    /// Its memory by NVML, bytes.
    pub memory: u64,
    /// Who holds the lease.
    pub job: Option<JobId>,
    /// Somebody who is none of our jobs runs on it.
    pub taken: bool,
}

/// Stands for whoever runs on a slice without being a job of ours. Job numbers count up from 1, so none is
/// met by numbers that count down from the largest.
#[must_use]
pub const fn stranger(slice: Incarnation) -> JobId {
    JobId(u64::MAX - slice.0)
}

impl Slice {
    /// A whole GPU.
    #[must_use]
    pub fn whole(index: usize, gpu: &PlacedGpu) -> Self {
        let profile = &gpu.table.profiles()[0];
        Self {
            gpu: index,
            slot: (crate::layout::ProfileIndex(0), profile.placements[0]),
            origin: Origin::Whole,
            step: Step::Ready,
            gi: None,
            uuid: Some(gpu.gpu.uuid.clone()),
            memory: gpu.gpu.memory,
            job: None,
            taken: false,
        }
    }

    /// So many bytes of a shared GPU.
    #[must_use]
    pub fn soft(index: usize, gpu: &PlacedGpu, memory: u64) -> Self {
        Self {
            origin: Origin::Soft,
            memory,
            ..Self::whole(index, gpu)
        }
    }

    /// One that is there, as read from the driver.
    #[must_use]
    pub fn there(index: usize, gpu: &PlacedGpu, slot: Slot, origin: Origin, instance: &Instance) -> Self {
        Self {
            gpu: index,
            slot,
            origin,
            step: Step::Ready,
            gi: Some(instance.gi),
            uuid: instance.uuid.clone(),
            memory: instance
                .memory
                .unwrap_or_else(|| gpu.table.profile(slot.0).memory),
            job: None,
            taken: false,
        }
    }

    /// One that is being made.
    #[must_use]
    pub fn coming(index: usize, gpu: &PlacedGpu, slot: Slot) -> Self {
        Self {
            gpu: index,
            slot,
            origin: Origin::Ours,
            step: Step::Creating,
            gi: None,
            uuid: None,
            memory: gpu.table.profile(slot.0).memory,
            job: None,
            taken: false,
        }
    }

    /// For the state file, if it is ours.
    #[must_use]
    pub fn record(&self, slice: Incarnation, gpus: &[PlacedGpu]) -> Option<SliceRecord> {
        let gpu = gpus.get(self.gpu)?;
        matches!(self.origin, Origin::Ours | Origin::Left).then(|| SliceRecord {
            slice,
            gpu_uuid: gpu.gpu.uuid.clone(),
            gi: self.gi,
            profile: gpu.table.profile(self.slot.0).id,
            start: self.slot.1.start,
            size: self.slot.1.size,
            step: self.step,
            uuid: self.uuid.clone(),
        })
    }

    /// What NVML is to measure.
    #[must_use]
    pub fn device(&self, gpus: &[PlacedGpu]) -> Option<Device> {
        match self.origin {
            Origin::Whole => Some(Device::Whole(gpus.get(self.gpu)?.gpu.index)),
            _ => self.uuid.clone().map(Device::Slice),
        }
    }

    /// The word that `migm status` shows.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match (self.step, self.job, self.origin) {
            (Step::Creating, ..) => "creating",
            (Step::Destroying, ..) => "destroying",
            (Step::Ready, Some(_), _) => "busy",
            (Step::Ready, None, Origin::Existing) => "foreign",
            (Step::Ready, None, _) => "idle",
        }
    }
}
