//! Whether to move a job on a forecast.

use migm_shared::units::Bytes;
use statrs::distribution::{ContinuousCDF, Normal};

use super::constants::Z;
use super::weigh::{Choice, Keeping, Stakes, Weighing, weigh};
use super::{Forecast, to_float};

/// Seconds that a restart costs beyond the work lost, by a move or after an out-of-memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Starting the program again, loading included.
    pub relaunch: f64,
    /// Making the slice.
    pub reconfiguration: f64,
}

/// Where the job stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Situation {
    /// The slice's memory by NVML.
    pub slice_bytes: u64,
    /// What the driver charges beyond reserved bytes: context, modules.
    pub unaccounted_bytes: u64,
    /// Seconds that one unit of x takes.
    pub pace: f64,
    /// Seconds of it that are not saved anywhere.
    pub work_done: f64,
    /// What a restart costs.
    pub costs: Costs,
    /// What its work survives.
    pub keeping: Keeping,
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

/// A forecast against a slice, before it is put into words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judgement {
    /// Even the upper bound fits.
    Fits,
    /// It may not fit, and the forecasts do not agree yet.
    Unsettled,
    /// It may not fit, and what decides does.
    Doubtful,
    /// It will not fit; whether that is worth a move.
    Overflows(Weighing),
}

/// Bytes of the slice that are left for what the forecast counts.
fn room(situation: &Situation) -> u64 {
    situation.slice_bytes.saturating_sub(situation.unaccounted_bytes)
}

/// Judges a forecast: separate from acting on it, which is [`weigh`]'s.
#[must_use]
pub fn judge(forecast: &Forecast, situation: &Situation) -> Judgement {
    let limit = room(situation);
    if forecast.high <= limit {
        return Judgement::Fits;
    }
    if !forecast.converged {
        return Judgement::Unsettled;
    }
    if forecast.decides <= limit {
        return Judgement::Doubtful;
    }
    let full_at = forecast.full_at(limit).unwrap_or(forecast.horizon_used);
    Judgement::Overflows(weigh(Stakes {
        work_done: situation.work_done,
        time_left: situation.pace * (forecast.horizon_used - forecast.now),
        time_to_full: situation.pace * (full_at - forecast.now),
        relaunch: situation.costs.relaunch,
        reconfiguration: situation.costs.reconfiguration,
        // A predictor that decides by its upper bound takes it for the peak.
        overflow: if forecast.decides == forecast.high {
            1.0
        } else {
            forecast.probability_above(limit)
        },
        keeping: situation.keeping,
    }))
}

/// Weighs a forecast against the slice: a job moves when what decides by its predictor does not fit, and a move costs
/// less than staying ([`weigh`]).
#[must_use]
pub fn decide(forecast: &Forecast, situation: &Situation) -> Verdict {
    let figures = format!(
        "forecast {} to {} by {:.0}, at {} by {:.0}; {} free for it in a slice of {}",
        Bytes(forecast.decides.min(forecast.peak)),
        Bytes(forecast.high),
        forecast.horizon_used,
        Bytes(forecast.level),
        forecast.now,
        Bytes(room(situation)),
        Bytes(situation.slice_bytes),
    );
    let stay = |why: &str| Verdict::Stay {
        reason: format!("{why}: {figures}"),
    };
    match judge(forecast, situation) {
        Judgement::Fits => stay("fits"),
        Judgement::Unsettled => stay("not settled yet"),
        Judgement::Doubtful => stay("may fit"),
        Judgement::Overflows(weighing) => {
            let reason = format!("{figures}; {weighing}");
            if weighing.choice == Choice::Move {
                Verdict::Move {
                    need_bytes: forecast.high.saturating_add(situation.unaccounted_bytes),
                    reason,
                }
            } else {
                Verdict::Stay { reason }
            }
        }
    }
}

impl Forecast {
    /// The chance that the peak exceeds `limit`: a normal law about the likely peak with the spread of the upper bound.
    #[must_use]
    pub fn probability_above(&self, limit: u64) -> f64 {
        let spread = (to_float(self.high) - to_float(self.peak)) / Z;
        match Normal::new(to_float(self.peak), spread) {
            Ok(law) => law.sf(to_float(limit)),
            // No spread: the forecast is certain.
            Err(_) => f64::from(u8::from(self.peak > limit)),
        }
    }

    /// The x where the likely line meets `limit`; `None` where it does not before the horizon.
    #[must_use]
    pub fn full_at(&self, limit: u64) -> Option<f64> {
        self.meets(limit, self.peak)
    }

    /// The interval of [`Self::full_at`]: by the upper bound and by the lower one.
    #[must_use]
    pub fn full_between(&self, limit: u64) -> (Option<f64>, Option<f64>) {
        (self.meets(limit, self.high), self.meets(limit, self.low))
    }

    /// Where the line from the level now to `end` at the horizon meets `limit`.
    fn meets(&self, limit: u64, end: u64) -> Option<f64> {
        if end <= limit {
            return None;
        }
        let climb = to_float(end) - to_float(self.level);
        let room = (to_float(limit) - to_float(self.level)).max(0.0);
        let part = if climb > 0.0 { (room / climb).min(1.0) } else { 1.0 };
        Some(self.now + (self.horizon_used - self.now) * part)
    }
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
            pace: 1.0,
            work_done,
            costs: Costs::default(),
            keeping: Keeping::Nothing,
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
    fn growth_by_a_quarter_of_the_base_is_start_up() {
        let hasty = shapes::line(GIB, 256 << 20, 100, 1 << 20, 3);
        assert_eq!(moved_at(&hasty, SMALL, LAST), None);
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
    fn a_leak_of_unknown_horizon_is_moved_with_a_fifth_of_its_time_to_go() {
        for seed in 0..50 {
            // 1 GiB and 4 MiB an iteration with 4 MiB of jitter: full after 850.
            let shape = shapes::line(GIB, 4 << 20, 2_000, 4 << 20, seed);
            let at = moved_at(&shape, SMALL, None);
            assert!(
                at.is_some_and(|at| (640..720).contains(&at)),
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

    fn forecast(low: u64, peak: u64, high: u64) -> Forecast {
        Forecast {
            peak,
            low,
            high,
            decides: low,
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
        let verdict = decide(&forecast(7 * GIB, 8 * GIB, 9 * GIB), &situation(SMALL, 10.0));
        let Verdict::Move { need_bytes, reason } = verdict else {
            panic!("{verdict:?}")
        };
        assert_eq!(need_bytes, 9 * GIB + CONTEXT);
        assert_eq!(
            reason,
            "forecast 7.00 GiB to 9.00 GiB by 100, at 2.00 GiB by 10; 4.33 GiB free for it in a slice of 4.75 GiB; \
             it runs out with probability 1.00 in 34.9 s of 90.0 s left; 10.0 s of work, which survives no restart; \
             relaunch 0.0 s, slice 0.0 s; a move loses 10.0 s, staying 44.9 s"
        );
    }

    #[test]
    fn the_lower_bound_decides_whether() {
        let verdict = decide(&forecast(4 * GIB, 6 * GIB, 9 * GIB), &situation(SMALL, 10.0));
        assert!(
            matches!(&verdict, Verdict::Stay { reason } if reason.starts_with("may fit")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_move_that_costs_more_than_it_saves_is_not_made() {
        // Nearly all of the work is done, and the end is near.
        let late = Situation {
            work_done: 9_000.0,
            ..situation(SMALL, 0.0)
        };
        let near = Forecast {
            peak: 4_500 << 20,
            high: 4_600 << 20,
            ..forecast(4_440 << 20, 0, 0)
        };
        let verdict = decide(&near, &late);
        assert!(
            matches!(&verdict, Verdict::Stay { reason } if reason.contains("a move loses 9000.0 s")),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_job_that_saves_on_the_signal_waits() {
        let saving = Situation {
            keeping: Keeping::OnMove,
            costs: Costs {
                relaunch: 4.0,
                reconfiguration: 1.0,
            },
            ..situation(SMALL, 10.0)
        };
        let verdict = decide(&forecast(7 * GIB, 8 * GIB, 9 * GIB), &saving);
        assert!(
            matches!(&verdict, Verdict::Stay { reason } if reason.ends_with("it moves in 24.9 s")),
            "{verdict:?}"
        );
    }

    #[test]
    fn growth_seen_for_a_moment_is_not_trusted_to_the_end_of_a_long_run() {
        // Full at iteration 37 of 100,000: in reach at once. At a thousandth of the pace full at 37,248, which
        // even increments are trusted to from iteration 369 on.
        let at = |step| moved_at(&shapes::line(2 * GIB, step, 100_000, 0, 0), SMALL, Some(99_999.0));
        assert_eq!(at(64 << 20), Some(5));
        assert!(
            at(64 << 10).is_some_and(|at| (369..420).contains(&at)),
            "{:?}",
            at(64 << 10)
        );
    }

    #[test]
    fn when_it_is_full_is_told_with_an_interval() {
        let forecast = forecast(6 * GIB, 8 * GIB, 10 * GIB);
        assert_eq!(forecast.full_at(4 * GIB), Some(40.0));
        assert_eq!(forecast.full_between(4 * GIB), (Some(32.5), Some(55.0)));
        assert_eq!(forecast.full_between(7 * GIB).1, None);
        assert_eq!(forecast.full_at(8 * GIB), None);
    }

    #[test]
    fn a_forecast_that_has_not_settled_moves_nothing() {
        let loose = Forecast {
            converged: false,
            ..forecast(7 * GIB, 8 * GIB, 9 * GIB)
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
