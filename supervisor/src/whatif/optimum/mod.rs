//! The least makespan of a small batch, proven.
//!
//! What is optimised is what [`search`](exact::search) of the policies does: all jobs are there at the start, the GPUs are
//! empty, and each job runs once, without a stop, on one slice that holds it, for its work over its speed there. Creates and
//! destroys take the times of [`Settings`]. The simulator has the same rules. It adds the shared bus, memory that a policy
//! does not know of, and moves: the first two only delay, so that no policy that moves no running job ends sooner.

use super::{Job, Settings, Workload};
use crate::layout::{ProfileIndex, Slot};
use crate::schedule::Wish;
use crate::schedule::policy::optimum as exact;

#[cfg(test)]
mod tests;

pub use exact::JOBS;
/// Nodes of both searches: some seconds, where all random batches of [`JOBS`] jobs that were tried take milliseconds.
pub const NODES: u64 = 400_000;

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
    if load.jobs.iter().any(apart) {
        return None;
    }
    let kinds = load.gpus.iter().map(|gpu| gpu.kind + 1).max().unwrap_or(0);
    let seconds = |job: &Job| (0..kinds).map(|kind| seconds_on(load, job, kind)).collect();
    let gpus = load.gpus.iter().map(|gpu| exact::Gpu {
        kind: gpu.kind,
        table: &gpu.table,
        standing: Vec::new(),
        driver: 0.0,
    });
    let batch = exact::Batch {
        gpus: gpus.collect(),
        jobs: load.jobs.iter().map(seconds).collect(),
        create: settings.create,
        destroy: settings.destroy,
    };
    let found = exact::search(&batch, f64::INFINITY, nodes)?;
    let places = found.places.iter().map(|place| (place.gpu, place.slot));
    found.makespan.is_finite().then_some(Search {
        makespan: found.makespan,
        places: places.collect(),
        proven: found.proven,
        nodes: found.nodes,
    })
}

/// Seconds of a job by profile on a kind of GPU, infinite where it does not fit.
fn seconds_on(load: &Workload, job: &Job, kind: usize) -> Vec<f64> {
    let Some(gpu) = load.gpus.iter().find(|gpu| gpu.kind == kind) else {
        return Vec::new();
    };
    let profiles = (0..gpu.table.profiles().len()).map(ProfileIndex);
    let seconds = profiles.map(|profile| {
        let speed = job.speeds[kind][profile.0];
        let holds = job.memory.peak() <= gpu.table.profile(profile).memory;
        if speed > 0.0 && holds {
            job.work / speed
        } else {
            f64::INFINITY
        }
    });
    seconds.collect()
}
