//! The predictor that migm uses: a law is recognised before anything is extrapolated.
//!
//! One observation's way:
//!
//! 1. A value far from the fit is held back. If the next one is back on the fit it was a spike, and only the peak
//!    remembers it; if not, the regime has changed and the stretch starts again. A CUSUM of what lies beyond the fit
//!    finds changes that come in several steps. Start-up is a run of such changes.
//! 2. The stretch is looked at whole, then its later half, then its last quarter, for a slope that stands out from
//!    the scatter; its [`Shape`](super::shape::Shape) says whether that is growth that goes on. The result is the trend.
//! 3. Growth that began near nothing, or is hasty beside what it began with, is start-up or the rise of a tooth;
//!    growth below what was held before is no news; a burst late in a run is soon over. None is drawn further.
//! 4. CONVERGE: growth is acted on when it was recognised at [`GROWING_FOR`] successive observations.
//! 5. At the horizon a trend gives three figures: the likely one; an upper bound, which says *where to*; and a lower
//!    bound, which says *whether*. The lower one takes off the doubt of the slope, the doubt of the later half alone,
//!    and that of few steps, and reaches no further than a multiple of the stretch it was seen on.
//! 6. Reserved bytes that rise in few large steps over allocated bytes that rise in a line (a caching allocator) take
//!    the line of the allocated ones. Reserved bytes that rise unsteadily over level ones are fragments.

use super::constants::{FOLLOWING_SHARE, GROWING_FOR, MIGM_FIRST, UNKNOWN_AHEAD};
use super::{Forecast, Observation, Predictor, to_bytes, to_float};

mod growth;

use growth::{Growth, Outlook};

/// Two figures of a job, each followed by itself: a leak may be invisible to one of them.
#[derive(Clone, Debug)]
pub struct Migm {
    /// CONVERGE: act when growth was recognised at so many successive observations.
    converge: u32,
    margins: Margins,
    reserved: Growth,
    allocated: Growth,
    now: f64,
    /// Successive observations at which growth was recognised.
    growing_for: u32,
}

impl Default for Migm {
    fn default() -> Self {
        Self::new(GROWING_FOR, Margins::default())
    }
}

/// How wide the bounds are, over what the scatter alone says: 1 unless they are calibrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// Of the lower bound.
    pub lower: f64,
    /// Of the upper bound.
    pub upper: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            lower: 1.0,
            upper: 1.0,
        }
    }
}

impl Migm {
    /// Acts when growth was recognised at so many successive observations, with bounds of this width.
    #[must_use]
    pub fn new(converge: u32, margins: Margins) -> Self {
        Self {
            converge,
            margins,
            reserved: Growth::default(),
            allocated: Growth::default(),
            now: 0.0,
            growing_for: 0,
        }
    }

    fn outlook(&self, horizon: f64) -> Outlook {
        let known = self.allocated.peak > 0.0;
        // A leak outside the framework's allocator is as steady as one inside; fragments come by chance, and end.
        let fragments = known && !self.allocated.rises_with(&self.reserved);
        let reserved = self.reserved.outlook(self.now, horizon, fragments, self.margins);
        if !known || reserved.grows() {
            return reserved;
        }
        let allocated = self.allocated.outlook(self.now, horizon, false, self.margins);
        // Tensors that fill a pool taken before do not take more of the device.
        let follows = self.reserved.stretch.rise() >= FOLLOWING_SHARE * self.allocated.stretch.rise();
        if !follows || !allocated.grows() {
            return reserved;
        }
        let gap = (self.reserved.peak - self.allocated.peak).max(0.0);
        Outlook {
            likely: allocated.likely + gap,
            low: allocated.low + gap,
            high: allocated.high + gap,
            level: reserved.level,
            ..allocated
        }
    }
}

impl Predictor for Migm {
    fn observe(&mut self, seen: Observation) {
        self.now = seen.x;
        self.reserved.observe(seen.x, to_float(seen.reserved));
        if let Some(allocated) = seen.allocated {
            self.allocated.observe(seen.x, to_float(allocated));
        }
        let growing = self.reserved.is_recognised() || self.allocated.is_recognised();
        self.growing_for = if growing {
            self.growing_for.saturating_add(1)
        } else {
            0
        };
    }

    fn forecast(&self, horizon: Option<f64>) -> Option<Forecast> {
        if self.reserved.peak == 0.0 {
            return None;
        }
        let horizon_used = horizon.unwrap_or(UNKNOWN_AHEAD * self.now).max(self.now);
        let outlook = self.outlook(horizon_used);
        let peak = self.reserved.peak;
        let likely = outlook.likely.max(peak);
        let low = outlook.low.max(peak);
        let settled = self.reserved.stretch.part(1).points.len() >= MIGM_FIRST;
        Some(Forecast {
            peak: to_bytes(likely),
            low: to_bytes(low),
            high: to_bytes(outlook.high.max(likely)),
            decides: to_bytes(low),
            converged: settled && (!outlook.grows() || self.growing_for >= self.converge),
            law: outlook.law,
            horizon_used,
            trusted_to: outlook.trusted_to,
            now: self.now,
            level: to_bytes(outlook.level),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::stretch::Stretch;
    use super::super::{Law, shapes};
    use super::*;
    use migm_shared::units::{GIB, MIB};

    fn run(shape: &shapes::Shape, upto: usize) -> Migm {
        let mut migm = Migm::default();
        for (x, level) in shape.levels.iter().take(upto).enumerate() {
            migm.observe(Observation::reserved_only(shapes::x(x), *level));
        }
        migm
    }

    /// Never acted on at any point, up to a horizon ten times as far.
    fn stays_silent(shape: &shapes::Shape, what: &str) {
        let mut migm = Migm::default();
        let horizon = shapes::x(10 * shape.levels.len());
        for (x, level) in shape.levels.iter().enumerate() {
            migm.observe(Observation::reserved_only(shapes::x(x), *level));
            let forecast = migm.forecast(Some(horizon)).unwrap();
            let seen = shape.levels[..=x].iter().copied().max().unwrap();
            assert_eq!(forecast.decides, seen, "{what}, after {x}: {forecast:?}");
        }
    }

    #[test]
    fn a_job_takes_no_more_than_4_kib() {
        let mut migm = Migm::default();
        for x in 0..10_000_u32 {
            migm.observe(Observation {
                x: f64::from(x),
                requested: 1,
                reserved: GIB + u64::from(x) * MIB,
                allocated: Some(GIB),
            });
        }
        let heap = |figure: &Growth| figure.stretch.bytes() - size_of::<Stretch>();
        let bytes = size_of::<Migm>() + heap(&migm.reserved) + heap(&migm.allocated);
        assert!(bytes <= 4096, "{bytes}");
    }

    #[test]
    fn a_constant_forecasts_itself() {
        let forecast = run(&shapes::flat(4 * GIB, 50, 0, 0), 50)
            .forecast(Some(1e6))
            .unwrap();
        assert_eq!(
            (forecast.peak, forecast.high, forecast.law, forecast.converged),
            (4 * GIB, 4 * GIB, Law::Flat, true)
        );
    }

    #[test]
    fn jumps_and_steps_are_not_extrapolated() {
        stays_silent(&shapes::jump(4 * GIB, 9 * GIB, 50, 100), "jump");
        for at in 1..80 {
            stays_silent(&shapes::jump(3800 << 20, 4200 << 20, at, 100), "step");
        }
    }

    #[test]
    fn start_up_and_teeth_are_not_extrapolated() {
        for steps in 1..=40 {
            stays_silent(&shapes::ramp(4 * GIB, steps, 100), "ramp");
        }
        for period in 2..=15 {
            stays_silent(&shapes::teeth(2 * GIB, 2 * GIB, period, 200), "teeth");
        }
    }

    #[test]
    fn levelling_off_is_seen() {
        for scale in [2.0, 5.0, 20.0] {
            stays_silent(&shapes::saturating(4 * GIB, scale, 100), "saturating");
        }
    }

    #[test]
    fn a_staircase_is_growth() {
        // A cache that takes a page of 128 MiB every fourth iteration.
        let levels = (0..100).map(|t| 2 * GIB + (t / 4) * (128 << 20)).collect();
        let forecast = run(&shapes::Shape { levels }, 40).forecast(Some(99.0)).unwrap();
        assert_eq!((forecast.law, forecast.converged), (Law::Line, true));
        assert!(
            (4.9..5.6).contains(&(to_float(forecast.peak) / to_float(GIB))),
            "{forecast:?}"
        );
    }

    #[test]
    fn growth_that_steepens_has_a_line_as_its_lower_bound() {
        let shape = shapes::convex(2 * GIB, 800 << 10, 100);
        for upto in 30..100 {
            let forecast = run(&shape, upto).forecast(Some(99.0)).unwrap();
            assert_eq!(forecast.law, Law::Convex, "after {upto}");
            assert!(
                forecast.low <= shape.peak() && forecast.high >= shape.peak() / 100 * 99,
                "after {upto}: {forecast:?} for {}",
                shape.peak()
            );
        }
    }

    #[test]
    fn one_spike_leaves_no_trace_but_the_peak() {
        let mut levels: Vec<u64> = (0..60).map(|x| 3 * GIB + x * 16 * MIB).collect();
        let exact = to_float(3 * GIB + 59 * 16 * MIB);
        levels[12] = 4 * GIB;
        let forecast = run(&shapes::Shape { levels }, 60).forecast(Some(59.0)).unwrap();
        assert_eq!(forecast.peak, 4 * GIB);
        assert!(
            (to_float(forecast.level) / exact - 1.0).abs() < 1e-3,
            "{forecast:?}"
        );
    }

    #[test]
    fn a_leak_that_starts_late_is_seen() {
        let levels = (0..400_u64)
            .map(|x| 4 * GIB + x.saturating_sub(200) * 8 * MIB)
            .collect();
        let forecast = run(&shapes::Shape { levels }, 300).forecast(Some(399.0)).unwrap();
        assert!(matches!(forecast.law, Law::Line | Law::Convex), "{forecast:?}");
        assert!(forecast.decides > 5 * GIB, "{forecast:?}");
    }

    /// Blocks that the allocator keeps are taken in large pieces; what the tensors hold says when the next is due.
    #[test]
    fn few_large_reserved_steps_take_the_line_of_the_allocated_bytes() {
        let seen = |x: u32| {
            let allocated = 4 * GIB + u64::from(x) * 40 * MIB;
            Observation {
                x: f64::from(x),
                requested: allocated,
                reserved: allocated.next_multiple_of(512 * MIB),
                allocated: Some(allocated),
            }
        };
        let (mut both, mut reserved) = (Migm::default(), Migm::default());
        for x in 0..30 {
            both.observe(seen(x));
            reserved.observe(Observation::reserved_only(f64::from(x), seen(x).reserved));
        }
        let alone = reserved.forecast(Some(99.0)).unwrap();
        assert_eq!(alone.decides, seen(29).reserved, "{alone:?}");
        let forecast = both.forecast(Some(99.0)).unwrap();
        let end = seen(99).reserved;
        assert!(
            forecast.decides.abs_diff(end) < 512 * MIB,
            "{forecast:?} for {end}"
        );
    }

    #[test]
    fn a_pool_that_fills_takes_no_more_of_the_device() {
        let mut migm = Migm::default();
        for x in 0..60_u32 {
            migm.observe(Observation {
                x: f64::from(x),
                requested: 0,
                reserved: 30 * GIB,
                allocated: Some(10 * GIB + u64::from(x) * 128 * MIB),
            });
            assert_eq!(migm.forecast(Some(1e4)).unwrap().decides, 30 * GIB);
        }
    }

    #[test]
    fn a_leak_outside_the_allocator_is_seen() {
        let mut migm = Migm::default();
        for x in 0..40_u32 {
            migm.observe(Observation {
                x: f64::from(x),
                requested: 0,
                reserved: 3 * GIB + u64::from(x) * 2 * MIB,
                allocated: Some(GIB),
            });
        }
        let forecast = migm.forecast(Some(1_000.0)).unwrap();
        assert!(forecast.decides > 4 * GIB, "{forecast:?}");
    }

    #[test]
    fn the_bound_holds_at_the_end_and_is_tight() {
        // 2 GiB and 64 MiB an iteration with 4 MiB of jitter; the last of 100 iterations is the peak.
        let mut under = 0;
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for seed in 0..400 {
            let shape = shapes::line(2 * GIB, 64 << 20, 100, 4 << 20, seed);
            let forecast = run(&shape, 10).forecast(Some(99.0)).unwrap();
            let ratio = to_float(forecast.high) / to_float(shape.peak());
            under += u32::from(ratio < 1.0);
            least = least.min(ratio);
            most = most.max(ratio);
        }
        assert!(under <= 400 / 10, "{under} of 400 under the peak");
        assert!(least > 0.96 && most < 1.05, "{least} .. {most}");
    }
}
