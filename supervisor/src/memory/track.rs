//! From the samples of one attempt to its observations, its series and its predictor.

use super::series::merge;
use super::{Forecast, Method, Observation, Predictor, Series};

/// The memory of one attempt as it is told, in order of time.
#[derive(Debug)]
pub struct Track {
    bin: f64,
    /// The iteration under way; it is observed when the next begins.
    open: Option<Observation>,
    series: Series,
    predictor: Box<dyn Predictor + Send>,
}

impl Track {
    /// A track whose observations cover `bin` units of `x` each: 1 where `x` counts iterations, the
    /// sampling step where it is in seconds.
    #[must_use]
    pub fn new(method: Method, bin: f64) -> Self {
        Self {
            bin: if bin > 0.0 { bin } else { 1.0 },
            open: None,
            series: Series::default(),
            predictor: method.start(),
        }
    }

    /// Takes one sample; its `reserved` is the peak since the sample before.
    pub fn sample(&mut self, sample: Observation) {
        match &mut self.open {
            Some(open) if (sample.x / self.bin).floor() <= (open.x / self.bin).floor() => {
                let x = open.x.max(sample.x);
                merge(open, sample);
                open.x = x;
            }
            _ => {
                if let Some(done) = self.open.replace(sample) {
                    self.series.push(done);
                    self.predictor.observe(done);
                }
            }
        }
    }

    /// The forecast from the finished observations.
    #[must_use]
    pub fn forecast(&self, horizon: Option<f64>) -> Option<Forecast> {
        self.predictor.forecast(horizon)
    }

    /// The finished observations.
    #[must_use]
    pub fn series(&self) -> &Series {
        &self.series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_an_iteration_counts_and_the_open_one_waits() {
        let mut track = Track::new(Method::Max, 1.0);
        for (x, reserved) in [(0.0, 5), (0.0, 9), (0.0, 2), (1.0, 4), (1.0, 3), (4.0, 100)] {
            track.sample(Observation::reserved_only(x, reserved));
        }
        let entries: Vec<(f64, u64)> = track
            .series()
            .entries()
            .iter()
            .map(|e| (e.x, e.reserved))
            .collect();
        assert_eq!(entries, [(0.0, 9), (1.0, 4)]);
        assert_eq!(track.forecast(None).unwrap().peak, 9);
    }

    #[test]
    fn seconds_are_gathered_into_steps() {
        let mut track = Track::new(Method::Max, 0.5);
        for x in [0.1, 0.2, 0.6, 0.9, 1.4, 1.6] {
            track.sample(Observation::reserved_only(x, 1));
        }
        assert_eq!(
            track.series().entries().iter().map(|e| e.x).collect::<Vec<_>>(),
            [0.2, 0.9, 1.4]
        );
    }

    #[test]
    fn a_sample_from_the_past_is_not_another_iteration() {
        let mut track = Track::new(Method::Max, 1.0);
        track.sample(Observation::reserved_only(7.0, 1));
        track.sample(Observation::reserved_only(6.0, 8));
        track.sample(Observation::reserved_only(8.0, 1));
        assert_eq!(track.series().entries(), [Observation::reserved_only(7.0, 8)]);
    }
}
