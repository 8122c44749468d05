//! The baseline that expects nothing beyond what it has seen.

use super::{Forecast, Law, Observation, Predictor, horizon_or_as_long_again};

/// The largest reserved bytes so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Maximum {
    seen: Option<(f64, u64)>,
}

impl Predictor for Maximum {
    fn observe(&mut self, seen: Observation) {
        let before = self.seen.map_or(0, |(_, peak)| peak);
        self.seen = Some((seen.x, before.max(seen.reserved)));
    }

    fn forecast(&self, horizon: Option<f64>) -> Option<Forecast> {
        let (now, peak) = self.seen?;
        Some(Forecast {
            peak,
            low: peak,
            high: peak,
            decides: peak,
            converged: true,
            law: Law::Max,
            horizon_used: horizon_or_as_long_again(horizon, now),
            trusted_to: horizon_or_as_long_again(horizon, now),
            now,
            level: peak,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_so_far() {
        let mut maximum = Maximum::default();
        assert_eq!(maximum.forecast(None), None);
        for (x, reserved) in [(0.0, 5), (1.0, 9), (2.0, 3)] {
            maximum.observe(Observation::reserved_only(x, reserved));
        }
        let forecast = maximum.forecast(None).unwrap();
        assert_eq!((forecast.peak, forecast.high, forecast.horizon_used), (9, 9, 4.0));
    }
}
