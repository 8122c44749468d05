//! The problem: services to serve, kinds of GPU to serve them with, and the best operating point of each
//! service on each size of slice.

use std::fmt;

use super::fleet::Fleet;

/// Requests per second, in millionths, so that sums of rates are exact.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd)]
pub struct Rate(pub i64);

/// More than any cluster serves, and few enough that sums over a million slices stay exact in 64 bits.
const MOST_RPS: f64 = 1e9;

impl Rate {
    /// Rounds to millionths. `None` for what is no number above 0, or above 10^9.
    #[must_use]
    pub fn from_rps(rps: f64) -> Option<Self> {
        let micro = (rps * 1e6).round();
        #[expect(clippy::cast_possible_truncation, reason = "between 1 and 10^15")]
        (micro >= 1.0 && rps <= MOST_RPS).then_some(Self(micro as i64))
    }

    /// Requests per second.
    #[must_use]
    pub fn rps(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.rps())
    }
}

/// How a service runs on a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Requests in a batch.
    pub batch: u32,
    /// Processes that share the slice under MPS.
    pub processes: u32,
    /// What all of them together serve.
    pub rate: Rate,
    /// Latency of a request, seconds.
    pub latency_s: f64,
}

/// A model to be served, at a rate and within a latency.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name in the demand.
    pub name: String,
    /// The model whose profile it has.
    pub model: String,
    /// What must be served.
    pub required: Rate,
    /// Latency limit, whole milliseconds.
    pub limit_ms: u32,
    /// Best point by [`SizeIndex`](super::SizeIndex); `None` where the service cannot run within its limit.
    pub points: Vec<Option<Point>>,
}

impl Service {
    /// What one slice of a size serves, 0 where the service cannot run there.
    #[must_use]
    pub fn rate(&self, size: usize) -> i64 {
        self.points[size].map_or(0, |point| point.rate.0)
    }
}

/// Services and the fleet to serve them with. Each service runs on at least one size.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The kinds of GPU and what they can be cut into.
    pub fleet: Fleet,
    /// In the order of the demand.
    pub services: Vec<Service>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_above_zero_and_exact_in_millionths() {
        assert_eq!(Rate::from_rps(39.917), Some(Rate(39_917_000)));
        for rps in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-9, 2e9] {
            assert_eq!(Rate::from_rps(rps), None, "{rps}");
        }
    }
}
