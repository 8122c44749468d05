//! What a run costs under a policy, from its first attempt to its end.

use super::constants::RESTART_SHARE;
use super::{Keeping, Law, Method, On, Run, Start, replay, to_float};

/// How a job is placed and moved.
#[derive(Clone, Copy)]
#[expect(
    missing_debug_implementations,
    reason = "what makes a predictor is a function"
)]
pub enum Policy<'a> {
    /// By a predictor; after an out-of-memory on the right size.
    Predict(Start<'a>),
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
///
/// Times are shares of the run. A restart takes [`RESTART_SHARE`], whatever ended the attempt before; where work is kept
/// it goes on from there. A job that no size holds does not end.
#[must_use]
pub fn cost(run: &Run, policy: Policy<'_>, sizes: &[u64], horizon: Option<f64>, keeping: Keeping) -> Cost {
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
    let spend = |cost: &mut Cost, share: f64, at: usize| {
        cost.time += share;
        cost.slice_time += share * to_float(sizes[at]) / oracle;
    };
    let share_at = |index: usize| run.share(run.seen[index].x);
    loop {
        let never: Start<'_> = &|| Method::Max.start();
        let start = if let Policy::Predict(start) = policy {
            start
        } else {
            never
        };
        let on = On {
            slice: sizes[at],
            horizon,
            keeping,
            restart: RESTART_SHARE * (run.span().1 - run.span().0),
        };
        let seen = replay(run, from, start, on);
        let began = share_at(from);
        if let Some(warning) = seen.warning
            && at + 1 < sizes.len()
        {
            spend(&mut cost, share_at(warning.index) - began + RESTART_SHARE, at);
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
        cost.ooms += 1;
        if matches!(policy, Policy::Nothing) || at + 1 == sizes.len() {
            spend(&mut cost, share_at(crossing) - began, at);
            return cost;
        }
        spend(&mut cost, share_at(crossing) - began + RESTART_SHARE, at);
        at = match policy {
            Policy::NextSize => at + 1,
            _ => {
                // What was in use and asked for, and what a recognised law says is to come.
                let to_come = seen
                    .last
                    .filter(|forecast| matches!(forecast.law, Law::Line | Law::Convex))
                    .map_or(0, |forecast| forecast.high);
                holding(run.seen[crossing].reserved.max(to_come)).max(at + 1)
            }
        };
        if keeping == Keeping::Always {
            from = crossing;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Observation;
    use super::super::shapes;
    use super::*;
    use migm_shared::units::GIB;

    fn run(shape: &shapes::Shape) -> Run {
        let seen = shape.levels.iter().enumerate();
        Run {
            name: String::new(),
            seen: seen
                .map(|(x, &level)| Observation::reserved_only(shapes::x(x), level))
                .collect(),
        }
    }

    fn of(run: &Run, policy: Policy<'_>, keeping: Keeping) -> Cost {
        let sizes = [5 * GIB, 10 * GIB, 20 * GIB, 40 * GIB];
        cost(run, policy, &sizes, Some(run.span().1), keeping)
    }

    #[test]
    fn the_falsifier_costs_one_oom_and_goes_straight_to_the_right_size() {
        // Flat at 4 GiB, 11 GiB from iteration 50 of 100 on.
        let jump = run(&shapes::jump(4 * GIB, 11 * GIB, 50, 101));
        let migm = of(&jump, Policy::Predict(&|| Method::Migm.start()), Keeping::Nothing);
        assert_eq!((migm.ooms, migm.moves, migm.ended), (1, 0, true));
        assert!((migm.time - (1.5 + RESTART_SHARE)).abs() < 1e-9, "{migm:?}");
        assert_eq!(of(&jump, Policy::NextSize, Keeping::Nothing).ooms, 2);
        let dead = of(&jump, Policy::Nothing, Keeping::Nothing);
        assert_eq!((dead.ooms, dead.ended, dead.time), (1, false, 0.5));
        let oracle = of(&jump, Policy::Oracle, Keeping::Nothing);
        assert_eq!((oracle.time, oracle.slice_time, oracle.ooms), (1.0, 1.0, 0));
        assert_eq!(of(&jump, Policy::Full, Keeping::Nothing).slice_time, 2.0);
    }

    #[test]
    fn kept_work_is_not_done_again() {
        let line = run(&shapes::line(3 * GIB, GIB / 20, 101, 0, 0));
        let predict = Policy::Predict(&|| Method::Migm.start());
        for (keeping, policy, work) in [
            (Keeping::OnMove, Policy::RightSize, 1.41),
            (Keeping::OnMove, predict, 1.0),
            (Keeping::Always, Policy::RightSize, 1.0),
        ] {
            let cost = of(&line, policy, keeping);
            assert!(
                (cost.time - work - RESTART_SHARE).abs() < 1e-9,
                "{keeping:?}: {cost:?}"
            );
        }
    }
}
