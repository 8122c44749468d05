//! The least makespan of a small batch, proven.
//!
//! What is optimised: all jobs are there at the start, the GPUs are empty, and each job runs once, without a stop, on
//! one slice that holds it, for its work over its speed there. A slice must have been created; what cannot stand
//! beside it must have been destroyed before; creates and destroys take the times of [`Settings`] and follow one
//! another on each GPU. The simulator has the same rules. It adds the shared bus, memory that a policy does not know
//! of, and moves: the first two only delay, so that no policy that moves no running job ends sooner.
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

use super::{Job, Settings, Workload};
use crate::layout::Slot;
use crate::schedule::Wish;

mod assign;
mod floor;
mod sequence;
#[cfg(test)]
mod tests;

use assign::Assign;
use floor::Floor;

/// Most jobs that are looked at.
pub const JOBS: usize = 10;
/// Nodes of both searches: some seconds, where all random batches of [`JOBS`] jobs that were tried take milliseconds.
pub const NODES: u64 = 400_000;
/// What ends less than this earlier, in seconds, is no better.
const CLOSE: f64 = 1e-7;

/// What a search came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The least makespan found, seconds.
    pub makespan: f64,
    /// The GPU and slot of each job there.
    pub places: Vec<(usize, Slot)>,
    /// Whether there is no smaller one.
    pub proven: bool,
    /// Nodes of both searches.
    pub nodes: u64,
}

/// The proven least makespan; `None` when it is not found within [`NODES`], or not looked for.
#[must_use]
pub fn makespan(load: &Workload, settings: &Settings) -> Option<f64> {
    search(load, settings, NODES)
        .filter(|search| search.proven)
        .map(|search| search.makespan)
}

/// Looks for the least makespan with so many nodes; `None` when jobs come late, after others or with a wish, are more than
/// [`JOBS`], or fit nowhere.
#[must_use]
pub fn search(load: &Workload, settings: &Settings, nodes: u64) -> Option<Search> {
    let start = load.start();
    let apart = |job: &Job| job.arrival > start || !job.after.is_empty() || job.terms.wish != Wish::Any;
    if load.jobs.iter().any(apart) || load.jobs.is_empty() || load.jobs.len() > JOBS {
        return None;
    }
    let floor = Floor::new(load, settings.create, settings.destroy)?;
    Assign::new(&floor, nodes).run()
}
