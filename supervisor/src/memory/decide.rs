//! Whether to move a job on a forecast.

use migm_shared::units::Bytes;
use statrs::distribution::{ContinuousCDF, Normal};

use super::constants::{LEAST_LIKELY, Z};
use super::{Forecast, to_float};

/// Seconds that a relaunch costs beyond the work lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// After a move: making the slice, starting again.
    pub after_move: f64,
    /// After an out-of-memory.
    pub after_oom: f64,
}

/// Where the job stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// The slice's memory by NVML.
    pub slice_bytes: u64,
    /// What the driver charges beyond reserved bytes: context, modules.
    pub unaccounted_bytes: u64,
    /// Seconds of work that a restart now would lose.
    pub work_done: f64,
    /// Costs of the two ways to restart.
    pub costs: Costs,
}

/// What to do, and why: one line for people with all inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Leave the job where it is.
    Stay {
        /// Why.
        reason: String,
    },
    /// Restart it on a slice that holds `need_bytes` of device memory.
    Move {
        /// Upper bound of the forecast plus what the driver charges beyond it.
        need_bytes: u64,
        /// Why.
        reason: String,
    },
}

/// Weighs a forecast against the slice.
///
/// Work is lost either way: a move loses what is done and `after_move`; staying loses, with the probability p
/// that the job runs out, what is done, what it does until then and `after_oom`. The job moves when the
/// second exceeds the first and p is at least [`LEAST_LIKELY`]. p comes from a normal law about the likely
/// peak whose spread is that of the upper bound; the time to run out from the line between now and the
/// horizon, at the pace so far.
#[must_use]
pub fn decide(forecast: &Forecast, situation: &Situation) -> Verdict {
    let limit = situation.slice_bytes.saturating_sub(situation.unaccounted_bytes);
    let figures = format!(
        "forecast {} (at most {}) by {:.0}, at {} by {:.0}; {} free for it in a slice of {}",
        Bytes(forecast.peak),
        Bytes(forecast.high),
        forecast.horizon_used,
        Bytes(forecast.level),
        forecast.now,
        Bytes(limit),
        Bytes(situation.slice_bytes),
    );
    if forecast.high <= limit {
        return Verdict::Stay {
            reason: format!("fits: {figures}"),
        };
    }
    if !forecast.converged {
        return Verdict::Stay {
            reason: format!("not settled yet: {figures}"),
        };
    }
    let likely = probability_above(forecast, limit);
    let full_at = full_at(forecast, limit);
    if full_at > forecast.trusted_to {
        return Verdict::Stay {
            reason: format!("seen for too short a time to be trusted to {full_at:.0}: {figures}"),
        };
    }
    // At the pace so far; nothing is known of the pace at the very start.
    let pace = if forecast.now > 0.0 {
        situation.work_done / forecast.now
    } else {
        0.0
    };
    let until = pace * (full_at - forecast.now);
    let lost = situation.work_done + situation.costs.after_move;
    let at_stake = likely * (situation.work_done + until + situation.costs.after_oom);
    let weighed = format!(
        "{figures}; it runs out with probability {likely:.2}; a move loses {lost:.1} s of work, staying {at_stake:.1} s"
    );
    if likely >= LEAST_LIKELY && at_stake > lost {
        Verdict::Move {
            need_bytes: forecast.high.saturating_add(situation.unaccounted_bytes),
            reason: weighed,
        }
    } else {
        Verdict::Stay { reason: weighed }
    }
}

/// The chance that the peak exceeds `limit`.
fn probability_above(forecast: &Forecast, limit: u64) -> f64 {
    let spread = (to_float(forecast.high) - to_float(forecast.peak)) / Z;
    match Normal::new(to_float(forecast.peak), spread) {
        Ok(law) => law.sf(to_float(limit)),
        // No spread: the forecast is certain.
        Err(_) => f64::from(u8::from(forecast.peak > limit)),
    }
}

/// Where the likely line meets `limit`; the horizon where it does not.
fn full_at(forecast: &Forecast, limit: u64) -> f64 {
    let ahead = forecast.horizon_used - forecast.now;
    let climb = to_float(forecast.peak) - to_float(forecast.level);
    let room = to_float(limit) - to_float(forecast.level);
    let part = if room <= 0.0 {
        0.0
    } else if climb <= room {
        1.0
    } else {
        room / climb
    };
    forecast.now + ahead * part
}

/// The device bytes that an attempt needs which ended after a request that could not be met.
#[must_use]
pub fn after_oom(in_use: u64, asked: u64, unaccounted: u64) -> u64 {
    in_use.saturating_add(asked).saturating_add(unaccounted)
}

#[cfg(test)]
mod tests {
    use super::super::{Law, Method, Observation, shapes};
    use super::*;
    use migm_shared::units::GIB;

    const CONTEXT: u64 = 434 << 20;

    fn situation(slice: u64, work_done: f64) -> Situation {
        Situation {
            slice_bytes: slice,
            unaccounted_bytes: CONTEXT,
            work_done,
            costs: Costs::default(),
        }
    }

    /// Iteration at which a job of this shape is first moved off a slice, one second an iteration.
    fn moved_at(shape: &shapes::Shape, slice: u64, horizon: Option<f64>) -> Option<usize> {
        moved_by(Method::Migm, shape, slice, horizon)
    }

    fn moved_by(method: Method, shape: &shapes::Shape, slice: u64, horizon: Option<f64>) -> Option<usize> {
        let mut predictor = method.start();
        for (index, &level) in shape.levels.iter().enumerate() {
            if level > slice - CONTEXT {
                return None;
            }
            predictor.observe(Observation::reserved_only(shapes::x(index), level));
            let Some(forecast) = predictor.forecast(horizon) else {
                continue;
            };
            if let Verdict::Move { .. } = decide(&forecast, &situation(slice, shapes::x(index))) {
                return Some(index);
            }
        }
        None
    }

    const SMALL: u64 = 4864 << 20;
    const LAST: Option<f64> = Some(99.0);

    #[test]
    fn a_growing_cache_is_moved_within_ten_iterations() {
        for seed in 0..50 {
            let shape = shapes::line(2 * GIB, 64 << 20, 100, 2 << 20, seed);
            let at = moved_at(&shape, SMALL, LAST);
            assert!(at.is_some_and(|at| at <= 10), "seed {seed}: {at:?}");
        }
    }

    #[test]
    fn a_fast_growing_cache_is_moved_before_it_runs_out() {
        // A quarter of the start in each iteration: full at iteration 13.
        let at = moved_at(&shapes::line(GIB, 256 << 20, 100, 1 << 20, 3), SMALL, LAST);
        assert!(at.is_some_and(|at| at <= 9), "{at:?}");
    }

    #[test]
    fn a_growing_cache_that_fits_is_left_alone() {
        for seed in 0..50 {
            let shape = shapes::line(2 * GIB, 16 << 20, 100, 2 << 20, seed);
            assert_eq!(moved_at(&shape, SMALL, LAST), None, "seed {seed}");
        }
    }

    #[test]
    fn a_flat_job_is_never_moved() {
        for seed in 0..50 {
            // Up to 1 % of jitter, and close to the limit.
            let shape = shapes::flat(4300 << 20, 1_000, 20 << 20, seed);
            assert_eq!(moved_at(&shape, SMALL, Some(999.0)), None, "seed {seed}");
            assert_eq!(moved_at(&shape, SMALL, None), None, "seed {seed}");
        }
    }

    #[test]
    fn a_jump_gives_no_warning() {
        let shape = shapes::jump(4 * GIB, 9 * GIB, 50, 100);
        assert_eq!(moved_at(&shape, SMALL, LAST), None);
        // On a slice that holds both levels it is left alone as well.
        assert_eq!(moved_at(&shape, 20096 << 20, LAST), None);
    }

    #[test]
    fn a_convex_job_is_moved_before_it_runs_out() {
        // 2 GiB and 0.8 MiB t^2: full at iteration 54.
        let shape = shapes::convex(2 * GIB, 800 << 10, 100);
        let at = moved_at(&shape, SMALL, LAST);
        assert!(at.is_some_and(|at| (5..45).contains(&at)), "{at:?}");
    }

    #[test]
    fn a_leak_of_unknown_horizon_is_moved_with_as_long_again_to_go() {
        for seed in 0..50 {
            // 1 GiB and 4 MiB an iteration with 4 MiB of jitter: full after 850.
            let shape = shapes::line(GIB, 4 << 20, 2_000, 4 << 20, seed);
            let at = moved_at(&shape, SMALL, None);
            assert!(
                at.is_some_and(|at| (350..500).contains(&at)),
                "seed {seed}: {at:?}"
            );
        }
    }

    #[test]
    fn teeth_are_not_growth() {
        for period in [2, 3, 4, 5, 6] {
            let shape = shapes::teeth(2 * GIB, 2 * GIB, period, 200);
            assert_eq!(moved_at(&shape, SMALL, Some(199.0)), None, "period {period}");
            assert_eq!(moved_at(&shape, SMALL, None), None, "period {period}");
        }
    }

    #[test]
    fn start_up_is_not_growth() {
        for steps in 1..=10 {
            let shape = shapes::ramp(4 * GIB, steps, 100);
            assert_eq!(moved_at(&shape, SMALL, LAST), None, "ramp of {steps}");
        }
        // The paper's line falls for it.
        assert!(moved_by(Method::Paper, &shapes::ramp(4 * GIB, 12, 100), SMALL, LAST).is_some());
    }

    #[test]
    fn the_maximum_never_moves() {
        let shape = shapes::line(2 * GIB, 64 << 20, 100, 0, 0);
        assert_eq!(moved_by(Method::Max, &shape, SMALL, LAST), None);
    }

    fn forecast(peak: u64, high: u64) -> Forecast {
        Forecast {
            peak,
            low: peak,
            high,
            converged: true,
            law: Law::Line,
            horizon_used: 100.0,
            trusted_to: 100.0,
            now: 10.0,
            level: 2 * GIB,
        }
    }

    #[test]
    fn the_need_is_the_bound_and_the_context_and_the_reason_has_the_inputs() {
        let verdict = decide(&forecast(8 * GIB, 9 * GIB), &situation(SMALL, 10.0));
        let Verdict::Move { need_bytes, reason } = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(need_bytes, 9 * GIB + CONTEXT);
        assert_eq!(
            reason,
            "forecast 8.00 GiB (at most 9.00 GiB) by 100, at 2.00 GiB by 10; 4.33 GiB free for it in a slice of \
             4.75 GiB; it runs out with probability 1.00; a move loses 10.0 s of work, staying 44.9 s"
        );
    }

    #[test]
    fn a_move_that_costs_more_than_it_saves_is_not_made() {
        let dear = Situation {
            costs: Costs {
                after_move: 100.0,
                after_oom: 20.0,
            },
            ..situation(SMALL, 10.0)
        };
        assert!(matches!(
            decide(&forecast(8 * GIB, 9 * GIB), &dear),
            Verdict::Stay { .. }
        ));
    }

    #[test]
    fn growth_seen_for_a_moment_is_not_trusted_to_the_end_of_a_long_run() {
        // Full at iteration 37 of 2,000: in reach as soon as three fits agree. At a tenth of the pace full at
        // 397, which is eleven times 36.1.
        let at = |step| moved_at(&shapes::line(2 * GIB, step, 2_000, 0, 0), SMALL, Some(1_999.0));
        assert_eq!(at(64 << 20), Some(6));
        assert_eq!(at(6 << 20), Some(37));
    }

    #[test]
    fn an_unlikely_overflow_is_waited_out() {
        let verdict = decide(&forecast(4 * GIB, 5 * GIB), &situation(SMALL, 0.1));
        assert!(
            matches!(&verdict, Verdict::Stay { reason } if reason.contains("probability 0.2")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_forecast_that_has_not_settled_moves_nothing() {
        let loose = Forecast {
            converged: false,
            ..forecast(8 * GIB, 9 * GIB)
        };
        assert!(
            matches!(decide(&loose, &situation(SMALL, 1.0)), Verdict::Stay { reason } if reason.starts_with("not settled"))
        );
    }

    #[test]
    fn what_was_in_use_and_what_was_asked_are_both_needed() {
        assert_eq!(after_oom(4 * GIB, 5 * GIB, CONTEXT), 9 * GIB + CONTEXT);
        assert_eq!(after_oom(u64::MAX, 1, 1), u64::MAX);
    }
}
