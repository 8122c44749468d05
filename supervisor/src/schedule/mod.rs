//! The scheduler: one machine, `step(now, event) -> actions`.
//!
//! One job's way through it:
//!
//! 1. [`Event::Arrived`] puts the job into the queue: in order of arrival, but for what [`Event::Terms`] says of users and
//!    priorities (`rank`).
//! 2. The first job without a slice is assigned one: an idle slice of the tightest profile that holds its
//!    need, else one that is created where the fewest jobs to come are lost for it ([`Action::Create`]; before the
//!    demand is known, where most full layouts stay in reach), idle slices
//!    of ours being destroyed for it where they must ([`Action::Destroy`]; the create follows when they are
//!    gone). When neither can be had, it waits for running jobs, and so do all behind it.
//! 3. [`Action::Grant`] leases the slice. Grants are given strictly in the order of the queue: no job overtakes
//!    another, not even by the time that a create takes.
//! 4. [`Event::Forecast`] may say that the job will need more than its slice: [`Action::Move`].
//! 5. [`Event::Ended`] frees the slice. A job that goes on keeps its place in the order of arrival, which
//!    is in front of every job of no higher priority that never had a slice, and never gets a slice of its former size again.
//!
//! It reads no clock and does no I/O; the daemon drives it in real time. Slices live here as the scheduler
//! knows them; the daemon maps each [`Incarnation`] to NVML's objects.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use crate::layout::{Placement, ProfileIndex, Slot};

mod assign;
mod board;
mod change;
#[cfg(test)]
mod change_properties;
mod choose;
mod gpu;
mod machine;
mod planned;
#[cfg(test)]
mod planned_orders;
#[cfg(test)]
mod planned_properties;
pub mod policy;
#[cfg(test)]
mod properties;
mod rank;
mod shares;
pub mod soft;
pub mod speed;
mod terms;
#[cfg(test)]
mod terms_properties;
#[cfg(test)]
mod tests;
mod view;
mod weigh;
#[cfg(test)]
mod world;
mod worth;

pub use board::{Board, Candidate, Decider, Desk, Facts, Held, Order, share};
pub use machine::Scheduler;
pub use planned::PASSED_AT_MOST;
pub use policy::{PolicyName, QueueOrder, UnknownPolicy};
pub use rank::AGE_S;
pub use shares::HALF_LIFE_S;

/// Index of a GPU on this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct GpuIndex(pub usize);

/// What a job needs, as far as known.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Need {
    /// Device bytes, context included; 0 when nothing is known.
    pub device_bytes: u64,
}

/// What a job's user asks for beyond its memory.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Terms {
    /// Whose job it is: a user id.
    pub user: u32,
    /// Higher goes first; 0 is usual.
    pub priority: i32,
    /// Which slices it may have.
    pub wish: Wish,
}

/// Which slices a job may have, by its user's word.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Wish {
    /// Any that holds it.
    #[default]
    Any,
    /// Of this profile only, by the driver's name (`1g.5gb`): a job that outgrows it is refused, not moved.
    Profile(String),
    /// A whole GPU, with no other job of ours beside it: the profile that leaves no room for another, or a lease on all that a
    /// shared GPU has.
    Exclusive,
}

/// The policies that serve strictly in order, by which slices a job may get.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Policy {
    /// The tightest slice that holds the job, made on demand: MIGM's scheme B (arXiv 2508.18556).
    #[default]
    SchemeB,
    /// Each GPU whole, one job on it at a time.
    Sequential,
}

/// What happens to the scheduler.
///
/// An event about a job or a slice that is not known, or not in the state that the event ends, changes
/// nothing.
#[derive(Clone, Debug)]
pub enum Event {
    /// A GPU whose slices may be created and removed, with the places that foreign instances hold. Said
    /// again, it replaces what was known, with the same profiles; our slices on it stay. A GPU whose instances must not be changed
    /// comes with a [`frozen`](crate::layout::Table::frozen) table.
    Gpu {
        /// Which.
        gpu: GpuIndex,
        /// Its states.
        table: Arc<crate::layout::Table>,
        /// Slots of instances that are not ours, those announced as slices left out.
        foreign: Vec<Slot>,
    },
    /// A slice that exists: adopted after a restart, a whole GPU, or an existing one we may only use. A
    /// `fixed` slice is never destroyed.
    Slice {
        /// Its number.
        slice: Incarnation,
        /// Where.
        gpu: GpuIndex,
        /// Kind.
        profile: ProfileIndex,
        /// Place.
        placement: Placement,
        /// Never destroyed.
        fixed: bool,
        /// The job that runs on it.
        holder: Option<JobId>,
    },
    /// A GPU that jobs share as soft slices; said again, it changes how leases are cut from then on.
    SoftGpu {
        /// Which.
        gpu: GpuIndex,
        /// How its leases are cut.
        cut: soft::Cut,
    },
    /// A soft slice that a running job holds: adopted after a restart.
    SoftSlice {
        /// Its number.
        slice: Incarnation,
        /// Where.
        gpu: GpuIndex,
        /// Its bytes.
        memory: u64,
        /// The job that runs on it.
        holder: JobId,
    },
    /// The answer to [`Action::Look`].
    Room {
        /// Which GPU.
        gpu: GpuIndex,
        /// What there is; `None` where the driver does not tell.
        room: Option<soft::Room>,
    },
    /// A process of a running job has come to the end of its soft slice. Answered by [`Action::Grow`] or
    /// [`Action::Stay`].
    Raise {
        /// Which.
        job: JobId,
        /// What it needs at least.
        need: Need,
    },
    /// A running job is forecast to need no more than this, less than its soft slice has.
    Enough {
        /// Which.
        job: JobId,
        /// What it needs at most.
        need: Need,
    },
    /// The answer to [`Action::Shrink`].
    Shrunk {
        /// Whose.
        job: JobId,
        /// What its soft slice has now.
        memory: u64,
    },
    /// A job may use these GPUs only; said before it arrives or goes on.
    Restricted {
        /// Which.
        job: JobId,
        /// The GPUs.
        gpus: Vec<GpuIndex>,
    },
    /// What a job's user asks for; said before it arrives or goes on.
    Terms {
        /// Which.
        job: JobId,
        /// What is asked for.
        terms: Terms,
    },
    /// What a user had had of the GPUs by now: as [`Scheduler::used`] told it before a restart.
    Used {
        /// Who: a user id.
        user: u32,
        /// GPU seconds.
        seconds: f64,
    },
    /// A job joins the queue.
    Arrived {
        /// Which.
        job: JobId,
        /// What it needs.
        need: Need,
    },
    /// The last process of a job's attempt has gone and its slice is free; with `again`, the job waits at
    /// the front of the queue for a slice of that need, larger than the one it had, else it is over.
    Ended {
        /// Which.
        job: JobId,
        /// What it needs now, if it goes on.
        again: Option<Need>,
    },
    /// A waiting job is withdrawn.
    Withdrawn {
        /// Which.
        job: JobId,
    },
    /// What is known of a job, or known better now; said before it arrives, goes on or while it runs. For
    /// policies that weigh time; the others do not hear it.
    Facts {
        /// Which.
        job: JobId,
        /// What is known; `work` and `attained` as of now.
        facts: Arc<Facts>,
    },
    /// The attempt of a job that was asked to move has ended and its slice is free; it goes on elsewhere, and
    /// may come back to a slice of the same size.
    Moved {
        /// Which.
        job: JobId,
        /// What it needs.
        need: Need,
    },
    /// No further event is at hand: policies that weigh time decide now, so that jobs which come together are
    /// seen together.
    Settled,
    /// A running job will need this much.
    Forecast {
        /// Which.
        job: JobId,
        /// What it will need.
        need: Need,
    },
    /// A create has been read back.
    Created {
        /// Which.
        slice: Incarnation,
    },
    /// A create was refused; `illegal` when the driver says that the combination can never be.
    CreateFailed {
        /// Which.
        slice: Incarnation,
        /// It can never be.
        illegal: bool,
    },
    /// A destroy has been read back.
    Destroyed {
        /// Which.
        slice: Incarnation,
    },
    /// A destroy failed for good: the slice stays idle and is not asked for again by itself.
    DestroyFailed {
        /// Which.
        slice: Incarnation,
    },
    /// A slice has gone without us.
    Vanished {
        /// Which.
        slice: Incarnation,
    },
    /// A GPU is gone with all its slices, as far as jobs are concerned; [`Event::Gpu`] brings it back.
    Lost {
        /// Which.
        gpu: GpuIndex,
    },
    /// From now on jobs are served by this policy; one that would have to be searched for changes nothing. What stands, runs,
    /// waits or is under way goes on. Facts of the jobs are to be told again.
    Policy {
        /// By name.
        policy: PolicyName,
        /// For those that plan.
        choice: policy::Choice,
    },
    /// Time has passed; for rules that wait. Wanted every second or so.
    Tick,
}

/// What the scheduler wants done, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Action {
    /// Make an instance. Answered by [`Event::Created`] or [`Event::CreateFailed`].
    Create {
        /// Its number from here on.
        slice: Incarnation,
        /// Where.
        gpu: GpuIndex,
        /// Kind.
        profile: ProfileIndex,
        /// Place.
        placement: Placement,
    },
    /// Remove an idle instance. Answered by [`Event::Destroyed`] or [`Event::DestroyFailed`].
    Destroy {
        /// Which.
        slice: Incarnation,
    },
    /// Lease a slice to a job. Answered, when the attempt is over, by [`Event::Ended`].
    Grant {
        /// To which job.
        job: JobId,
        /// Which slice.
        slice: Incarnation,
        /// One line for people.
        reason: String,
    },
    /// Read what leases on a GPU may have together. Answered by [`Event::Room`].
    Look {
        /// Which.
        gpu: GpuIndex,
    },
    /// A soft slice comes to be; its [`Grant`](Self::Grant) follows.
    Lease {
        /// Its number from here on.
        slice: Incarnation,
        /// Where.
        gpu: GpuIndex,
        /// Its bytes.
        memory: u64,
    },
    /// A running job's soft slice has so many bytes from here on, at least what was asked for.
    Grow {
        /// Whose.
        job: JobId,
        /// Which.
        slice: Incarnation,
        /// Its bytes.
        memory: u64,
    },
    /// A running job's soft slice is to give back what its forecast does not need, as another job waits for the room.
    /// It keeps what is held of it in any case. Answered by [`Event::Shrunk`].
    Shrink {
        /// Whose.
        job: JobId,
        /// Its bytes from here on, if it can be so few.
        memory: u64,
    },
    /// What a running job asked for cannot be had.
    Stay {
        /// Which.
        job: JobId,
    },
    /// Stop a running job, so that it starts again on another slice. Answered by [`Event::Ended`] or, for speed, by
    /// [`Event::Moved`].
    Move {
        /// Which.
        job: JobId,
        /// It would fit where it is: another slice serves it, or all jobs together, better.
        for_speed: bool,
        /// One line for people.
        reason: String,
    },
    /// No slice of this node can ever hold the job; it has left the queue. Should it arrive again, by another policy say, it
    /// has its former place; that it will not is told by [`Event::Withdrawn`].
    Refuse {
        /// Which.
        job: JobId,
        /// One line for people.
        reason: String,
    },
}

/// What a slice is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SliceState {
    /// Asked for and not yet read back; for a waiting job, unless that went away.
    Creating(Option<JobId>),
    /// No lease, ours to use or destroy.
    Idle,
    /// Assigned to a waiting job whose turn has not come.
    Reserved(JobId),
    /// Leased.
    Busy(JobId),
    /// Asked to go and not yet read back.
    Destroying,
}

/// A slice as the scheduler knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Slice {
    /// Where.
    pub gpu: GpuIndex,
    /// Kind.
    pub profile: ProfileIndex,
    /// Place.
    pub placement: Placement,
    /// Never destroyed.
    pub fixed: bool,
    /// A destroy of it failed, and no job has used it since.
    pub stuck: bool,
    /// What it is doing.
    pub state: SliceState,
}

impl Slice {
    /// Kind and place.
    #[must_use]
    pub fn slot(&self) -> Slot {
        (self.profile, self.placement)
    }

    /// Whether it may be destroyed for another.
    fn is_spare(&self) -> bool {
        self.state == SliceState::Idle && !self.fixed && !self.stuck
    }
}
