//! The straight line of MIGM (arXiv 2508.18556, section 3.2), pure.

use std::collections::VecDeque;

use super::constants::{AGREEING_FITS, AGREEMENT, PAPER_FIRST, Z};
use super::line::Line;
use super::{Forecast, Law, Observation, Predictor, horizon_or_as_long_again, to_bytes, to_float};

/// Two lines: requested bytes m = a t + b, and the inverse reuse ratio requested / physical. The peak at the
/// horizon T is (a T + b + z sigma) / ratio(T).
///
/// Physical bytes are allocated ones where a framework reports them, as in the paper, else reserved ones.
/// Start-up and jumps are part of the fit: that is the paper's method, and its weakness.
#[derive(Clone, Debug)]
pub struct Paper {
    reading: Reading,
    converge: Converge,
    now: f64,
    seen: usize,
    /// Requested bytes so far.
    sum: f64,
    fit: Fit,
    /// The fits before this one, oldest first.
    earlier: VecDeque<Fit>,
}

/// What m is: the paper does not say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reading {
    /// Bytes requested in the iteration.
    #[default]
    PerIteration,
    /// All bytes requested up to the iteration: then the inverse ratio grows with it, and its line has a use.
    Cumulative,
}

/// When the published forecast is acted on: the paper names a predicate CONVERGE and does not define it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Converge {
    /// So many successive fits agree at the same horizon; at most 8, and 1 acts on each.
    pub fits: usize,
    /// Within this share of the last.
    pub within: f64,
}

impl Default for Converge {
    fn default() -> Self {
        Self {
            fits: AGREEING_FITS,
            within: AGREEMENT,
        }
    }
}

impl Default for Paper {
    fn default() -> Self {
        Self::new(Reading::default(), Converge::default())
    }
}

impl Paper {
    /// By this reading of m, with this CONVERGE.
    #[must_use]
    pub fn new(reading: Reading, converge: Converge) -> Self {
        Self {
            reading,
            converge,
            now: 0.0,
            seen: 0,
            sum: 0.0,
            fit: Fit::default(),
            earlier: VecDeque::with_capacity(converge.fits.min(8)),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Fit {
    requested: Line,
    inverse_ratio: Line,
}

impl Fit {
    /// Physical bytes at `x`, `sigmas` above the line of the requested ones.
    fn physical(&self, x: f64, sigmas: f64) -> f64 {
        let requested = self.requested.at(x) + sigmas * self.requested.sigma();
        // Below 1 a ratio has no meaning: nothing is reused less than not at all.
        requested / self.inverse_ratio.at(x).max(1.0)
    }
}

impl Predictor for Paper {
    fn observe(&mut self, seen: Observation) {
        if self.seen >= PAPER_FIRST {
            if self.earlier.len() + 1 >= self.converge.fits.min(8) {
                self.earlier.pop_front();
            }
            if self.converge.fits > 1 {
                self.earlier.push_back(self.fit);
            }
        }
        let physical = seen.allocated.unwrap_or(seen.reserved);
        self.sum += to_float(seen.requested);
        let requested = match self.reading {
            Reading::PerIteration => to_float(seen.requested),
            Reading::Cumulative => self.sum,
        };
        self.fit.requested.push(seen.x, requested);
        if physical > 0 {
            let ratio = requested / to_float(physical);
            self.fit.inverse_ratio.push(seen.x, ratio.max(1.0));
        }
        self.now = seen.x;
        self.seen += 1;
    }

    fn forecast(&self, horizon: Option<f64>) -> Option<Forecast> {
        if self.seen < PAPER_FIRST {
            return None;
        }
        let horizon_used = horizon_or_as_long_again(horizon, self.now);
        let high = self.fit.physical(horizon_used, Z);
        let agrees = |fit: &Fit| (fit.physical(horizon_used, Z) - high).abs() <= self.converge.within * high;
        Some(Forecast {
            peak: to_bytes(self.fit.physical(horizon_used, 0.0)),
            low: to_bytes(self.fit.physical(horizon_used, -Z)),
            high: to_bytes(high),
            decides: to_bytes(high),
            converged: self.earlier.len() + 1 >= self.converge.fits.min(8) && self.earlier.iter().all(agrees),
            law: Law::Line,
            horizon_used,
            trusted_to: horizon_used,
            now: self.now,
            level: to_bytes(self.fit.physical(self.now, 0.0)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::units::GIB;

    #[test]
    fn the_bound_is_z_sigma_over_the_line() {
        let mut paper = Paper::default();
        for (x, level) in [(1.0, 200), (2.0, 300), (3.0, 500), (4.0, 600)] {
            assert_eq!(paper.forecast(Some(10.0)), None);
            paper.observe(Observation::reserved_only(x, level));
        }
        let forecast = paper.forecast(Some(10.0)).unwrap();
        // The line of `line::tests`, a hundredfold: 50 + 140 x, sigma 100 sqrt(0.1).
        assert_eq!(forecast.peak, 1450);
        assert_eq!(forecast.high, to_bytes(1450.0 + 2.326_347_874 * 31.622_776_6));
        assert!(!forecast.converged);
    }

    #[test]
    fn three_fits_within_five_percent_converge_at_the_sixth_observation() {
        let mut paper = Paper::default();
        for x in 0..6_u32 {
            let seen = paper.forecast(Some(100.0)).is_some_and(|f| f.converged);
            assert!(!seen, "before observation {x}");
            paper.observe(Observation::reserved_only(
                f64::from(x),
                2 * GIB + u64::from(x) * GIB / 16,
            ));
        }
        let forecast = paper.forecast(Some(100.0)).unwrap();
        assert!(forecast.converged);
        assert_eq!(forecast.peak, 2 * GIB + 100 * GIB / 16);
    }

    #[test]
    fn fits_that_disagree_have_not_converged() {
        let mut paper = Paper::default();
        for (x, level) in [
            (1.0, 200),
            (2.0, 300),
            (3.0, 500),
            (4.0, 600),
            (5.0, 1_500),
            (6.0, 100),
        ] {
            paper.observe(Observation::reserved_only(x, level));
        }
        assert!(!paper.forecast(Some(10.0)).unwrap().converged);
    }

    #[test]
    fn growing_reuse_lowers_the_physical_peak() {
        // Requests grow by 100 a step from 1000; each step reuses more, 1/ratio = 1 + 0.1 x.
        let mut paper = Paper::default();
        for x in 0..8_u32 {
            let requested = 1_000 + 100 * u64::from(x);
            let allocated = to_bytes(to_float(requested) / (1.0 + 0.1 * f64::from(x)));
            paper.observe(Observation {
                x: f64::from(x),
                requested,
                reserved: 4_000,
                allocated: Some(allocated),
            });
        }
        let forecast = paper.forecast(Some(50.0)).unwrap();
        assert!((995..=1_010).contains(&forecast.peak), "{forecast:?}");
    }

    /// With 100 bytes requested in each iteration over a constant 1,000: both lines of the cumulative reading rise, and
    /// their quotient is the constant.
    #[test]
    fn the_cumulative_reading_divides_one_growing_line_by_another() {
        let mut paper = Paper::new(Reading::Cumulative, Converge::default());
        for x in 0..20_u32 {
            paper.observe(Observation {
                x: f64::from(x),
                requested: 2_000,
                reserved: 1_000,
                allocated: Some(1_000),
            });
        }
        let forecast = paper.forecast(Some(500.0)).unwrap();
        assert!(forecast.peak.abs_diff(1_000) <= 1, "{forecast:?}");
    }

    #[test]
    fn a_looser_converge_acts_sooner() {
        let first = |fits, within| {
            let mut paper = Paper::new(Reading::PerIteration, Converge { fits, within });
            (0..50_u32).find(|&x| {
                paper.observe(Observation::reserved_only(f64::from(x), 1_000 + u64::from(x * x)));
                paper.forecast(Some(100.0)).is_some_and(|f| f.converged)
            })
        };
        assert_eq!(first(1, 0.0), Some(3));
        assert!(first(3, 0.2) < first(3, 0.05), "{:?}", first(3, 0.05));
    }

    #[test]
    fn the_pure_line_extrapolates_start_up() {
        let mut paper = Paper::default();
        for x in 0..6_u32 {
            paper.observe(Observation::reserved_only(f64::from(x), u64::from(x) * GIB / 2));
        }
        let forecast = paper.forecast(Some(100.0)).unwrap();
        assert!(forecast.converged && forecast.high >= 50 * GIB, "{forecast:?}");
    }
}
