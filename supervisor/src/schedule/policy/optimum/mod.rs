//! The earliest end of a small batch, proven.
//!
//! What is optimised: all jobs are there at the start, and each runs once, without a stop, on one slice that holds it, for
//! its seconds there. Slices may stand, and run something that ends by itself. Others must have been created; what cannot
//! stand beside them must have been destroyed before; creates and destroys follow one another on each GPU.
//!
//! 1. `floor` lists the slots of all GPUs, which pairs cannot stand together, and the *cliques* of that: of each
//!    clique's slots only one stands at any time, so that their jobs, creates and destroys follow one another.
//! 2. `assign` gives each job a slot, by depth-first branch and bound. Three bounds cut: the time of the fullest
//!    clique; a slot that would make it too long for a job; and a Lagrangian one: with prices l_K >= 0 of the cliques
//!    that sum to 1, no end is before the sum of l_K times clique K's time, so that each job yet without a slot adds
//!    at least its least time x price. The prices are improved by mirror ascent on the way down. Slots that a
//!    symmetry of the GPU exchanges are tried once, and equal jobs in one order.
//! 3. For each assignment that is left, `sequence` finds the best order of creates and destroys, by branch and
//!    bound again. A slot may stand several times, each time with some of its jobs. Nothing is left out but what an
//!    exchange of neighbours shows to be no better.
//!
//! The method for step 2 is standard for unrelated machines (Lagrangian bound after Martello, Soumis and Toth, Discrete
//! Applied Mathematics 1997); cliques in the place of machines are ours.

use crate::layout::{Placement, ProfileIndex, Slot, Table};

mod assign;
mod floor;
mod sequence;
#[cfg(test)]
mod tests;

use assign::Assign;
use floor::Floor;

/// Most jobs that are looked at.
pub const JOBS: usize = 10;
/// What ends less than this earlier, in seconds, is no better.
const CLOSE: f64 = 1e-7;

/// Jobs to be run, and what stands on the GPUs.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The GPUs.
    pub gpus: Vec<Gpu<'a>>,
    /// Of each job its seconds by kind of GPU and profile; infinite where it cannot run.
    pub jobs: Vec<Vec<Vec<f64>>>,
    /// Seconds to create a slice.
    pub create: f64,
    /// Seconds to destroy one.
    pub destroy: f64,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct Gpu<'a> {
    /// Its kind, as in [`Batch::jobs`].
    pub kind: usize,
    /// Its states. GPUs that share one are alike.
    pub table: &'a Table,
    /// Slices that stand, or will before any other is made.
    pub standing: Vec<Standing>,
    /// Seconds until the driver can create or destroy.
    pub driver: f64,
}

/// A slice that stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The slot.
    pub slot: Slot,
    /// Seconds until what runs there has ended; 0 where nothing does.
    pub release: f64,
}

/// Where and when a job runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The GPU.
    pub gpu: usize,
    /// The slot.
    pub slot: Slot,
    /// Seconds until it begins.
    pub begin: f64,
    /// It waits for no job: at most for creates, and destroys of what is idle.
    pub at_once: bool,
}

impl Default for Place {
    fn default() -> Self {
        Self {
            gpu: 0,
            slot: (ProfileIndex(0), Placement { start: 0, size: 0 }),
            begin: 0.0,
            at_once: false,
        }
    }
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The earliest end found, seconds; the one to beat where nothing ends before it.
    pub makespan: f64,
    /// The place of each job there; none where nothing ends before the one to beat.
    pub places: Vec<Place>,
    /// Whether nothing ends earlier.
    pub proven: bool,
    /// Nodes of both searches.
    pub nodes: u64,
}

/// Looks for the schedule that ends first, and before `beat`, with so many nodes; `None` when there are more than [`JOBS`],
/// or none, one fits nowhere, or there are too many slots.
#[must_use]
pub fn search(batch: &Batch<'_>, beat: f64, nodes: u64) -> Option<Search> {
    if batch.jobs.is_empty() || batch.jobs.len() > JOBS {
        return None;
    }
    let floor = Floor::new(batch)?;
    Some(Assign::new(&floor, beat, nodes).run())
}
