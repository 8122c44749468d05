//! Why a service has the slices that it has: every point of its profile with the reason why it counts or not, and what binds.

use super::fleet::SizeIndex;
use super::input::{ProfileRow, Profiles};
use super::plan::Plan;
use super::points::Usable;
use super::problem::{Problem, Rate};

/// Why a point counts on a size of slice, or does not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The service runs at this one.
    Best,
    /// It would do, and serves less, or as much and slower.
    Worse,
    /// Its latency is not below the limit.
    Slow,
    /// Its processes do not fit in the slice's memory.
    Memory,
    /// It takes more processes than are allowed.
    Processes,
}

/// A point on a size of slice.
#[derive(Clone, Debug)]
pub struct Considered {
    /// The size.
    pub size: SizeIndex,
    /// The point.
    pub row: ProfileRow,
    /// Why it counts or not.
    pub verdict: Verdict,
    /// Slices of that size that run the service at that point.
    pub slices: usize,
}

/// Why a service has its slices.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// All points on all sizes, in the order of sizes and of the file.
    pub considered: Vec<Considered>,
    /// What must be served.
    pub required: Rate,
    /// What the plan serves.
    pub planned: Rate,
    /// What it would serve without the least of its slices.
    pub without_least: Rate,
}

/// Explains one service of a plan.
#[must_use]
pub fn explain(
    problem: &Problem,
    profiles: &Profiles,
    usable: &Usable,
    plan: &Plan,
    service: usize,
) -> Explanation {
    let own = &problem.services[service];
    let slices = || {
        plan.gpus
            .iter()
            .flat_map(|gpu| &gpu.slices)
            .filter(|slice| slice.service == service)
    };
    let mut considered = Vec::new();
    for (size, slice) in problem.fleet.sizes.iter().enumerate() {
        let kind = &problem.fleet.kinds[slice.kind].name;
        let mut rows: Vec<(&ProfileRow, Verdict)> = profiles
            .of(&own.model)
            .unwrap_or_default()
            .iter()
            .filter_map(|row| Some((row, usable.verdict(row, slice, kind, own.limit_ms)?)))
            .collect();
        // The point that the problem has, once.
        let best = own.points[size].and_then(|point| {
            rows.iter().position(|(row, verdict)| {
                *verdict == Verdict::Worse
                    && (row.batch, row.processes, row.rate) == (point.batch, point.processes, point.rate)
            })
        });
        if let Some(best) = best {
            rows[best].1 = Verdict::Best;
        }
        considered.extend(rows.into_iter().map(|(row, verdict)| Considered {
            size,
            row: row.clone(),
            verdict,
            slices: match verdict {
                Verdict::Best => slices().filter(|slice| slice.size == size).count(),
                _ => 0,
            },
        }));
    }
    let planned: i64 = slices().map(|slice| own.rate(slice.size)).sum();
    let least = slices().map(|slice| own.rate(slice.size)).min().unwrap_or(0);
    Explanation {
        considered,
        required: own.required,
        planned: Rate(planned),
        without_least: Rate(planned - least),
    }
}
