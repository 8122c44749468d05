//! From one deployment to another while all services run.
//!
//! One transition's way:
//!
//! 1. [`Stage::set`] gives both deployments one numbering, checks that their GPUs can be cut so, and fixes each service's
//!    *floor*: the lesser of what was and what will be required, below which it must never get.
//! 2. GPUs of the new deployment are matched to those of the old one so that the most slices stay as they are
//!    (`matching.rs`). What two matched GPUs share costs no step.
//! 3. The `World` plays forward in time. Whatever is safe starts at once (`moves.rs`): a slice is filled as soon as it
//!    is there, by moving an instance that has to go elsewhere (one step) rather than by starting a new one and
//!    stopping the old (two); an instance is stopped as soon as its service keeps its floor without it; a GPU is
//!    recut once, when all that is in the way has left.
//! 4. When nothing runs and nothing is safe, instances wait for one another in a circle. `relief.rs` breaks it at the
//!    least cost: recut in part, stop and start anew where the service can spare it, move to free room, take an
//!    extra GPU, and, if none may be taken, let a service dip, and say so.
//! 5. Each step lists those that it must wait for. Kept in that order, the floors hold however long steps
//!    take. [`replay()`] shows it: it knows nothing of how the steps were found.
//!
//! The four actions, their times and the guarantee are MIG-serving's (arXiv 2109.11067, section 6). Its own order,
//! exchange and compact, is in `exchange.rs` to compare with.

use crate::layout::Slot;

mod exchange;
mod matching;
mod moves;
mod relief;
mod replay;
mod stage;
#[cfg(test)]
mod tests;
mod times;
mod world;

pub use exchange::{Serial, exchange_and_compact};
pub(super) use matching::match_up;
pub use replay::{Broken, Replay, replay};
pub use stage::{Gpu, Instance, Resident, Service, Stage, TransitionError};
pub use times::Times;

use super::deployment::{Deployment, Tables};

/// What a transition may cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long steps take.
    pub times: Times,
    /// Most GPUs beyond those of the larger deployment, all kinds together; `None` for as many as it needs.
    pub max_extra_gpus: Option<usize>,
}

/// What a step does. GPUs are indices into [`Stage::gpus`].
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Starts an instance on a free slice.
    Create {
        /// The GPU.
        gpu: usize,
        /// Its slice.
        slot: Slot,
        /// What is started.
        instance: Instance,
    },
    /// Stops an instance; its slice is free then.
    Delete {
        /// The GPU.
        gpu: usize,
        /// Its slice.
        slot: Slot,
        /// What is stopped.
        instance: Instance,
    },
    /// Starts an instance on a free slice, then stops the one it replaces, which serves until then.
    Migrate {
        /// GPU and slice that it leaves.
        from: (usize, Slot),
        /// GPU and slice that it goes to.
        to: (usize, Slot),
        /// What is moved.
        instance: Instance,
    },
    /// Removes free slices and makes others. What runs elsewhere on the GPU runs on.
    Repartition {
        /// The GPU.
        gpu: usize,
        /// Slices that go.
        removed: Vec<Slot>,
        /// Slices that come.
        made: Vec<Slot>,
    },
}

/// One step of a transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// When it starts if all steps take their time, milliseconds.
    pub start_ms: u64,
    /// When it ends then.
    pub end_ms: u64,
    /// Steps that must have ended before it may start, by index.
    pub after: Vec<usize>,
}

/// The steps from one deployment to another.
#[derive(Clone, Debug)]
pub struct Transition {
    /// GPUs and services in one numbering.
    pub stage: Stage,
    /// None before one that it waits for.
    pub steps: Vec<Step>,
}

impl Transition {
    /// When the last step ends, milliseconds.
    #[must_use]
    pub fn makespan_ms(&self) -> u64 {
        self.steps.iter().map(|step| step.end_ms).max().unwrap_or(0)
    }

    /// GPUs used beyond those of the larger deployment of each kind.
    #[must_use]
    pub fn extra_gpus(&self) -> usize {
        self.stage.gpus.iter().filter(|gpu| gpu.extra).count()
    }
}

/// Finds the steps from one deployment to another.
///
/// # Errors
/// A GPU of either is not known, or its slices cannot stand together.
pub fn transition(
    from: &Deployment,
    to: &Deployment,
    tables: &Tables,
    options: &Options,
) -> Result<Transition, TransitionError> {
    let stage = Stage::set(from, to, tables)?;
    let (steps, extra) = world::World::new(&stage, options).play();
    let mut stage = stage;
    stage.gpus.extend(extra);
    Ok(Transition { stage, steps })
}
