//! A least-squares line that takes one point at a time.

use std::sync::LazyLock;

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::constants::{CERTAINTY, CONFIDENCE, POINTS, UPPER};

/// Student's t at the confidences in use, by degrees of freedom: inverting it takes longer than all else that an
/// observation asks for.
struct Quantiles(Vec<f64>);

impl Quantiles {
    fn at(confidence: f64) -> Self {
        let by_freedom = |freedom: u32| {
            StudentsT::new(0.0, 1.0, f64::from(freedom.max(1)))
                .map_or(f64::INFINITY, |law| law.inverse_cdf(confidence))
        };
        let most = u32::try_from(POINTS).unwrap_or(u32::MAX);
        Self((0..=most).map(by_freedom).collect())
    }

    /// Beyond the table the law is all but normal, and its last entry errs on the wide side.
    fn get(&self, freedom: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small whole number from a count"
        )]
        let index = freedom.max(0.0) as usize;
        self.0
            .get(index)
            .or(self.0.last())
            .copied()
            .unwrap_or(f64::INFINITY)
    }
}

static CONFIDENT: LazyLock<Quantiles> = LazyLock::new(|| Quantiles::at(CONFIDENCE));
static CERTAIN: LazyLock<Quantiles> = LazyLock::new(|| Quantiles::at(CERTAINTY));
static ABOVE: LazyLock<Quantiles> = LazyLock::new(|| Quantiles::at(UPPER));

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

    /// Standard error of the slope; 0 with fewer than three points.
    pub(super) fn slope_error(&self) -> f64 {
        if self.sxx > 0.0 {
            self.sigma() / self.sxx.sqrt()
        } else {
            0.0
        }
    }

    /// Standard error of the line itself at `x`, without the scatter of a further point about it.
    pub(super) fn line_error_at(&self, x: f64) -> f64 {
        if self.sxx <= 0.0 {
            return self.sigma();
        }
        self.sigma() * (1.0 / self.count + (x - self.mean_x).powi(2) / self.sxx).sqrt()
    }

    /// Standard errors to the bound of a one-sided interval at [`CONFIDENCE`].
    pub(super) fn confident(&self) -> f64 {
        CONFIDENT.get(self.freedom())
    }

    /// The same at [`CERTAINTY`].
    pub(super) fn certain(&self) -> f64 {
        CERTAIN.get(self.freedom())
    }

    /// The same at [`UPPER`].
    pub(super) fn above(&self) -> f64 {
        ABOVE.get(self.freedom())
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
        assert!((line.confident() - 6.964_557).abs() < 1e-5);
    }

    #[test]
    fn a_constant_of_any_size_has_no_scatter_and_does_not_rise() {
        for level in [0.0, 1.0, 4.3e9, 1.5e11] {
            let line = Line::through((0..1_000).map(|x| (f64::from(x), level)));
            assert_eq!((line.slope(), line.sigma()), (0.0, 0.0), "{level}");
            assert_eq!(line.slope_error(), 0.0);
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
