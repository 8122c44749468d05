//! A least-squares line that takes one point at a time.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The line y = slope x + base through the points so far, with its scatter. Sums are about the means
/// (Welford), so long runs and large bytes lose no digits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    sxx: f64,
    sxy: f64,
    syy: f64,
}

impl Line {
    pub(super) fn through(points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let mut line = Self::default();
        for (x, y) in points {
            line.push(x, y);
        }
        line
    }

    pub(super) fn push(&mut self, x: f64, y: f64) {
        self.count += 1.0;
        let (dx, dy) = (x - self.mean_x, y - self.mean_y);
        self.mean_x += dx / self.count;
        self.mean_y += dy / self.count;
        self.sxx += dx * (x - self.mean_x);
        self.syy += dy * (y - self.mean_y);
        self.sxy += dx * (y - self.mean_y);
    }

    /// 0 while all points share one x.
    pub(super) fn slope(&self) -> f64 {
        if self.sxx > 0.0 { self.sxy / self.sxx } else { 0.0 }
    }

    pub(super) fn at(&self, x: f64) -> f64 {
        self.mean_y + self.slope() * (x - self.mean_x)
    }

    fn freedom(&self) -> f64 {
        self.count - 2.0
    }

    /// Standard deviation of the points about the line; 0 with fewer than three.
    pub(super) fn sigma(&self) -> f64 {
        if self.freedom() <= 0.0 {
            return 0.0;
        }
        let rest = self.syy - self.slope() * self.sxy;
        // What rounding leaves of a perfect fit is no scatter.
        let rounding = 1e-12 * (self.syy + self.mean_y * self.mean_y);
        if rest > rounding {
            (rest / self.freedom()).sqrt()
        } else {
            0.0
        }
    }

    /// Standard error of one further point at `x`: the scatter, and how little is known of the line there.
    pub(super) fn error_at(&self, x: f64) -> f64 {
        if self.sxx <= 0.0 {
            return self.sigma();
        }
        let far = (x - self.mean_x).powi(2) / self.sxx;
        self.sigma() * (1.0 + 1.0 / self.count + far).sqrt()
    }

    /// How many standard errors a point at the bound of a one-sided interval of this confidence lies away.
    pub(super) fn quantile(&self, confidence: f64) -> f64 {
        StudentsT::new(0.0, 1.0, self.freedom().max(1.0)).map_or(f64::INFINITY, |t| t.inverse_cdf(confidence))
    }

    /// Whether the slope is above zero with this confidence.
    pub(super) fn rises(&self, confidence: f64) -> bool {
        let slope = self.slope();
        if slope <= 0.0 || self.freedom() <= 0.0 {
            return false;
        }
        slope > self.quantile(confidence) * self.sigma() / self.sxx.sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_textbook_line() {
        let line = Line::through([(1.0, 2.0), (2.0, 3.0), (3.0, 5.0), (4.0, 6.0)]);
        assert!((line.slope() - 1.4).abs() < 1e-12);
        assert!((line.at(0.0) - 0.5).abs() < 1e-12);
        // Residuals 0.1, -0.3, 0.3, -0.1: their squares sum to 0.2, over 2 degrees of freedom.
        assert!((line.sigma() - 0.1_f64.sqrt()).abs() < 1e-12);
        let error = 0.1_f64.sqrt() * (1.0_f64 + 0.25 + 7.5 * 7.5 / 5.0).sqrt();
        assert!((line.error_at(10.0) - error).abs() < 1e-12);
        // Student's t for 2 degrees of freedom at 0.99.
        assert!((line.quantile(0.99) - 6.964_557).abs() < 1e-5);
    }

    #[test]
    fn a_constant_of_any_size_has_no_scatter_and_does_not_rise() {
        for level in [0.0, 1.0, 4.3e9, 1.5e11] {
            let line = Line::through((0..1_000).map(|x| (f64::from(x), level)));
            assert_eq!((line.slope(), line.sigma()), (0.0, 0.0), "{level}");
            assert!(!line.rises(0.5));
        }
    }

    #[test]
    fn points_at_one_x_have_no_slope() {
        let line = Line::through([(3.0, 1.0), (3.0, 2.0), (3.0, 9.0)]);
        assert_eq!(line.slope(), 0.0);
        assert_eq!(line.at(100.0), 4.0);
    }

    #[test]
    fn a_late_start_on_the_x_axis_changes_nothing() {
        let near = Line::through((0..10).map(|x| (f64::from(x), f64::from(x * x))));
        let far = Line::through((0..10).map(|x| (f64::from(x) + 1e7, f64::from(x * x))));
        assert!((near.at(20.0) - far.at(1e7 + 20.0)).abs() < 1e-6);
        assert!((near.sigma() - far.sigma()).abs() < 1e-6);
    }
}
