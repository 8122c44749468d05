//! The line with gates: what keeps it from being drawn through start-up, jumps, teeth and plateaus.

use std::collections::VecDeque;

use super::constants::{
    AGREEING_FITS, AGREEMENT, CONFIDENCE, GROWTH_DOUBT, JUMP_SHARE, JUMP_SIGMAS, MIGM_FIRST, REACH,
    SETTLING_SHARE, STEP_SHARE, WINDOW,
};
use super::line::Line;
use super::{Forecast, Law, Observation, Predictor, horizon_or_as_long_again, to_bytes, to_float};

/// A line on the reserved bytes of the last [`WINDOW`] observations.
///
/// Where it leaves [`super::Paper`]: the fit starts again at a jump (which start-up is a run of); a line is
/// drawn only where growth is beyond doubt, goes on and does not slow down; the bound widens with the distance
/// to the horizon; no forecast is below what was seen. Reserved bytes stand for the two lines of the paper:
/// they are what meets the limit, and the ratio of requested to physical bytes is not a line once activations
/// grow faster than the context (docs/design/prediction.md).
#[derive(Clone, Debug, Default)]
pub struct Migm {
    window: VecDeque<(f64, f64)>,
    fit: Line,
    earlier: [Option<Line>; AGREEING_FITS - 1],
    peak: u64,
    /// Where the fit last started.
    since: f64,
    /// Observations of the attempt: so often it was asked whether the job grows.
    asked: f64,
}

impl Migm {
    fn restart(&mut self) {
        self.window.clear();
        self.fit = Line::default();
        self.earlier = Default::default();
    }

    /// Whether `y` at `x` is another regime rather than the next point of this one. Falls are not: a tooth
    /// that starts again would look like fresh growth.
    fn is_jump(&self, x: f64, y: f64) -> bool {
        let Some(&(_, last)) = self.window.back() else {
            return false;
        };
        if self.window.len() < 3 {
            // No scatter is known yet; start-up may fall back too.
            return (y - last).abs() > JUMP_SHARE * last;
        }
        let rise = y - self.fit.at(x).max(last);
        rise > JUMP_SHARE * last && rise > JUMP_SIGMAS * self.fit.sigma()
    }

    fn law(&self) -> Law {
        if !self.fit.rises(1.0 - GROWTH_DOUBT / self.asked) {
            return Law::Flat;
        }
        let half = self.window.len() / 2;
        let points = || self.window.iter().copied();
        // With an odd number the middle point belongs to both halves.
        let before = Line::through(points().take(self.window.len() - half)).slope();
        let after = Line::through(points().skip(half)).slope();
        if before <= STEP_SHARE * after {
            Law::Flat
        } else if after < SETTLING_SHARE * before {
            Law::Settling
        } else {
            Law::Line
        }
    }
}

impl Predictor for Migm {
    fn observe(&mut self, seen: Observation) {
        let y = to_float(seen.reserved);
        self.peak = self.peak.max(seen.reserved);
        self.asked += 1.0;
        if self.is_jump(seen.x, y) {
            self.restart();
        } else if self.window.len() >= MIGM_FIRST {
            self.earlier.rotate_left(1);
            self.earlier[AGREEING_FITS - 2] = Some(self.fit);
        }
        if self.window.is_empty() {
            self.since = seen.x;
        }
        if self.window.len() == WINDOW {
            self.window.pop_front();
        }
        self.window.push_back((seen.x, y));
        self.fit = Line::through(self.window.iter().copied());
    }

    fn forecast(&self, horizon: Option<f64>) -> Option<Forecast> {
        let &(now, _) = self.window.back()?;
        if self.window.len() < MIGM_FIRST {
            return None;
        }
        let horizon_used = horizon_or_as_long_again(horizon, now);
        let law = self.law();
        // Without growth the line says nothing of later.
        let far = if law == Law::Line { horizon_used } else { now };
        let centre = |fit: &Line| {
            if law == Law::Line {
                fit.at(horizon_used)
            } else {
                to_float(self.peak)
            }
        };
        let likely = centre(&self.fit);
        let margin = self.fit.quantile(CONFIDENCE) * self.fit.error_at(far);
        let agrees =
            |fit: &Option<Line>| fit.is_some_and(|f| (centre(&f) - likely).abs() <= AGREEMENT * likely);
        Some(Forecast {
            peak: to_bytes(likely).max(self.peak),
            low: to_bytes(likely - margin).max(self.peak),
            high: to_bytes(self.fit.at(far) + margin).max(self.peak),
            converged: law != Law::Settling && self.earlier.iter().all(agrees),
            law,
            horizon_used,
            trusted_to: now + REACH * (now - self.since),
            now,
            level: to_bytes(self.fit.at(now)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::shapes::{self, Shape};
    use super::*;
    use migm_shared::units::GIB;

    fn run(shape: &Shape, upto: usize) -> Migm {
        let mut migm = Migm::default();
        for (x, level) in shape.levels.iter().take(upto).enumerate() {
            migm.observe(Observation::reserved_only(shapes::x(x), *level));
        }
        migm
    }

    #[test]
    fn a_constant_forecasts_itself() {
        let forecast = run(&shapes::flat(4 * GIB, 50, 0, 0), 50)
            .forecast(Some(1e6))
            .unwrap();
        assert_eq!(
            (forecast.peak, forecast.high, forecast.law),
            (4 * GIB, 4 * GIB, Law::Flat)
        );
    }

    #[test]
    fn a_jump_is_not_extrapolated() {
        let shape = shapes::jump(4 * GIB, 9 * GIB, 50, 100);
        for upto in 1..=100 {
            let Some(forecast) = run(&shape, upto).forecast(Some(100.0)) else {
                continue;
            };
            let seen = if upto > 50 { 9 * GIB } else { 4 * GIB };
            assert_eq!((forecast.high, forecast.law), (seen, Law::Flat), "after {upto}");
        }
        // The four observations from the jump on say nothing yet.
        assert!(run(&shape, 54).forecast(Some(100.0)).is_none());
    }

    #[test]
    fn one_small_step_is_not_growth() {
        for at in 1..80 {
            let shape = shapes::jump(3800 << 20, 4200 << 20, at, 100);
            for upto in 1..=100 {
                let forecast = run(&shape, upto).forecast(Some(10_000.0));
                let quiet = forecast.is_none_or(|f| f.law != Law::Line || !f.converged);
                assert!(quiet, "step at {at}, after {upto}: {forecast:?}");
            }
        }
    }

    #[test]
    fn fits_that_still_change_are_not_acted_on() {
        // The slope of t^2 grows by an eighth from the seventh point to the eighth.
        let forecast = run(&shapes::convex(2 * GIB, 8 << 20, 100), 8)
            .forecast(Some(99.0))
            .unwrap();
        assert_eq!((forecast.law, forecast.converged), (Law::Line, false));
    }

    #[test]
    fn a_staircase_is_growth() {
        // A cache that takes a page of 128 MiB every fourth iteration.
        let levels = (0..100).map(|t| 2 * GIB + (t / 4) * (128 << 20)).collect();
        let forecast = run(&Shape { levels }, 24).forecast(Some(99.0)).unwrap();
        assert_eq!((forecast.law, forecast.converged), (Law::Line, true));
        assert!(
            (4.9..5.6).contains(&(to_float(forecast.peak) / to_float(GIB))),
            "{forecast:?}"
        );
    }

    #[test]
    fn levelling_off_is_seen() {
        let shape = shapes::saturating(4 * GIB, 5.0, 100);
        for upto in 1..=100 {
            let forecast = run(&shape, upto).forecast(Some(100.0));
            assert!(
                forecast.is_none_or(|f| f.law != Law::Line),
                "after {upto}: {forecast:?}"
            );
        }
    }

    #[test]
    fn one_spike_leaves_no_trace_but_the_peak() {
        let mut levels = vec![3 * GIB; 30];
        levels[12] = 6 * GIB;
        let migm = run(&Shape { levels }, 30);
        let forecast = migm.forecast(Some(1_000.0)).unwrap();
        assert_eq!(
            (forecast.peak, forecast.law, forecast.level),
            (6 * GIB, Law::Flat, 3 * GIB)
        );
    }

    #[test]
    fn the_bound_holds_at_the_end_and_is_tight() {
        // 2 GiB and 64 MiB an iteration with 4 MiB of jitter; the last of 100 iterations is the peak.
        let mut under = 0;
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for seed in 0..400 {
            let shape = shapes::line(2 * GIB, 64 << 20, 100, 4 << 20, seed);
            let forecast = run(&shape, 10).forecast(Some(99.0)).unwrap();
            assert!(
                forecast.converged && forecast.law == Law::Line,
                "seed {seed}: {forecast:?}"
            );
            let ratio = to_float(forecast.high) / to_float(shape.peak());
            under += u32::from(ratio < 1.0);
            least = least.min(ratio);
            most = most.max(ratio);
        }
        assert!(under <= 400 / 20, "{under} of 400 under the peak");
        assert!(least > 0.97 && most < 1.05, "{least} .. {most}");
    }
}
