//! The scheduler: one machine, `step(now, event) -> actions`.
//!
//! It reads no clock and does no I/O; the daemon drives it in real time. Slices live here as the scheduler
//! knows them; the daemon maps each [`Incarnation`] to NVML's objects.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use crate::layout::{Placement, ProfileIndex};

/// Index of a GPU on this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct GpuIndex(pub usize);

/// What a job needs, as far as known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Need {
    /// Device bytes, context included; 0 when nothing is known.
    pub device_bytes: u64,
}

/// What happens to the scheduler.
#[derive(Clone, Debug)]
pub enum Event {
    /// A GPU whose slices may be created and removed, with the places that foreign instances hold.
    Gpu {
        gpu: GpuIndex,
        table: Arc<crate::layout::Table>,
        foreign: Vec<(ProfileIndex, Placement)>,
    },
    /// A slice that exists: adopted after a restart, a whole GPU, or an existing one we may only use. A
    /// `fixed` slice is never destroyed.
    Slice {
        slice: Incarnation,
        gpu: GpuIndex,
        profile: ProfileIndex,
        placement: Placement,
        fixed: bool,
        holder: Option<JobId>,
    },
    /// A job joins the end of the queue.
    Arrived { job: JobId, need: Need },
    /// The last process of a job's attempt has gone and its slice is free; with `again`, the job waits at
    /// the front of the queue for a slice of that need, else it is over.
    Ended { job: JobId, again: Option<Need> },
    /// A waiting job is withdrawn.
    Withdrawn { job: JobId },
    /// A running job will need this much.
    Forecast { job: JobId, need: Need },
    /// A create has been read back.
    Created { slice: Incarnation },
    /// A create was refused; `illegal` when the driver says that the combination can never be.
    CreateFailed { slice: Incarnation, illegal: bool },
    /// A destroy has been read back.
    Destroyed { slice: Incarnation },
    /// A destroy failed for good: the slice stays idle and is not asked for again by itself.
    DestroyFailed { slice: Incarnation },
    /// A slice has gone without us.
    Vanished { slice: Incarnation },
    /// Time has passed; for rules that wait.
    Tick,
}

/// What the scheduler wants done, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Make an instance.
    Create {
        slice: Incarnation,
        gpu: GpuIndex,
        profile: ProfileIndex,
        placement: Placement,
    },
    /// Remove an idle instance.
    Destroy { slice: Incarnation },
    /// Lease a slice to a job.
    Grant {
        job: JobId,
        slice: Incarnation,
        reason: String,
    },
    /// Stop a running job, so that it starts again on a larger slice.
    Move { job: JobId, reason: String },
    /// No slice of this node can ever hold the job.
    Refuse { job: JobId, reason: String },
}
