//! How good predictors are on runs whose end is known.

use super::decide::after_oom;
use super::{Keeping, Method, Run, announced, predicted_at, replay, to_float};

/// How a job is placed and moved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Policy {
    /// By a predictor; after an out-of-memory on the right size.
    Predict(Method),
    /// It dies of its first out-of-memory.
    Nothing,
    /// After each out-of-memory on the next size.
    NextSize,
    /// After an out-of-memory on the size that holds what was in use and asked for.
    RightSize,
    /// On the largest from the start.
    Full,
    /// On the right one from the start.
    Oracle,
}

/// What one run cost under a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Time over the time of the oracle.
    pub time: f64,
    /// Slice size times time over that of the oracle.
    pub slice_time: f64,
    /// Moves on a forecast.
    pub moves: u32,
    /// Attempts that ended out of memory.
    pub ooms: u32,
    /// It came to its end.
    pub ended: bool,
}

/// The sizes of slices from `first` up, each twice the one before, as MIG's are; the last holds `peak`.
#[must_use]
pub fn ladder(first: u64, peak: u64) -> Vec<u64> {
    let mut sizes = vec![first.max(1)];
    while sizes.last().is_some_and(|&last| last < peak) || sizes.len() < 4 {
        sizes.push(sizes.last().map_or(1, |last| last.saturating_mul(2)));
    }
    sizes
}

/// Plays `run` from the smallest of `sizes` to its end.
#[must_use]
pub fn cost(run: &Run, policy: Policy, sizes: &[u64], horizon: Option<f64>, keeping: Keeping) -> Cost {
    let peak = run.peak();
    let holding = |need: u64| {
        sizes
            .iter()
            .position(|&size| size >= need)
            .unwrap_or(sizes.len() - 1)
    };
    let right = holding(peak);
    let mut cost = Cost::default();
    let mut at = match policy {
        Policy::Full => sizes.len() - 1,
        Policy::Oracle => right,
        _ => 0,
    };
    // Index from which the work is still to be done.
    let mut from = 0;
    let oracle = to_float(sizes[right]);
    let mut spend = |cost: &mut Cost, share: f64, at: usize| {
        cost.time += share;
        cost.slice_time += share * to_float(sizes[at]) / oracle;
    };
    let share_at = |index: usize| run.share(run.seen[index].x);
    loop {
        let method = if let Policy::Predict(method) = policy {
            method
        } else {
            Method::Max
        };
        let seen = replay(run, from, method, sizes[at], horizon, keeping);
        let began = share_at(from);
        if let Some(warning) = seen.warning
            && at + 1 < sizes.len()
        {
            spend(&mut cost, share_at(warning.index) - began, at);
            cost.moves += 1;
            at = holding(warning.forecast.high).max(at + 1);
            if keeping != Keeping::Nothing {
                from = warning.index;
            }
            continue;
        }
        let Some(crossing) = seen.crossing else {
            spend(&mut cost, 1.0 - began, at);
            cost.ended = true;
            return cost;
        };
        spend(&mut cost, share_at(crossing) - began, at);
        cost.ooms += 1;
        if policy == Policy::Nothing || at + 1 == sizes.len() {
            return cost;
        }
        at = match policy {
            Policy::NextSize => at + 1,
            _ => {
                let asked = run.seen[crossing].reserved;
                let to_come = seen
                    .last
                    .filter(|forecast| matches!(forecast.law, super::Law::Line | super::Law::Convex))
                    .map_or(0, |forecast| forecast.high);
                holding(after_oom(asked, 0, 0).max(to_come)).max(at + 1)
            }
        };
        if keeping == Keeping::Always {
            from = crossing;
        }
    }
}
