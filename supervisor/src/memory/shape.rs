//! What a part of a stretch looks like, given that its slope stands out from zero.

use super::constants::{
    COARSEST, LEAST_STEPS, ONE_STEP, QUARTERS_FROM, SETTLING_SHARE, STEADY, STEEPENING_SHARE,
};
use super::line::Line;
use super::stretch::Part;

/// A recognised shape.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Shape {
    /// No growth that goes on: one step, or up and down.
    Level,
    /// It rises, too little beside its scatter or in too few steps to say how.
    Unclear,
    /// It rises, each time by less.
    Settling {
        /// Bytes a unit of x over the later half.
        pace: f64,
    },
    /// It rises in a straight line, or in even steps along one.
    Line {
        /// Share of the slope that is in doubt because it was seen in few steps; 0 where it is smooth.
        coarse: f64,
        /// Each increment is like the others, within [`STEADY`].
        steady: bool,
    },
    /// It rises, each time by more.
    Steepening {
        /// As for a line.
        coarse: f64,
    },
}

/// How a part rises from one point to the next.
struct Increments {
    /// The largest rise from one record to the next.
    largest: f64,
    /// How many equal rises all of them amount to: the square of their sum over the sum of their squares.
    steps: f64,
    /// All increments are positive and alike.
    steady: bool,
}

impl Part<'_> {
    /// What it looks like.
    pub(super) fn shape(&self) -> Shape {
        let n = self.points.len();
        let increments = self.increments();
        if n < QUARTERS_FROM {
            // Too few for quarters: only increments that are all alike, and go on, are growth.
            return if increments.steady && self.last_line(2).slope() > SETTLING_SHARE * self.fit.slope() {
                self.bend(0.0, true)
            } else {
                Shape::Unclear
            };
        }
        let tops = self.quarters();
        let rise = tops[3] - tops[0];
        let steps = [tops[1] - tops[0], tops[2] - tops[1], tops[3] - tops[2]];
        if steps
            .iter()
            .any(|&step| step > ONE_STEP * rise && step > 3.0 * self.fit.sigma())
        {
            return Shape::Level;
        }
        if steps.iter().any(|&step| step <= 0.0 || step > ONE_STEP * rise) {
            return Shape::Unclear;
        }
        let coarse = self.coarseness(increments.largest);
        if coarse > COARSEST || increments.steps < LEAST_STEPS {
            return Shape::Unclear;
        }
        // New maxima of a series without a trend come ever more rarely: like the logarithm of how many there were.
        if !increments.steady && self.logarithm().sigma() < self.fit.sigma() {
            return Shape::Settling {
                pace: self.last_line(2).slope().max(0.0),
            };
        }
        match self.bend(coarse, increments.steady) {
            // Each quarter rises by more than the one before, or it was one late step.
            Shape::Steepening { .. } if steps[0] >= steps[1] || steps[1] >= steps[2] => Shape::Unclear,
            shape => shape,
        }
    }

    /// The maxima of the four quarters that end at the last point; an odd rest at the start is left out.
    fn quarters(&self) -> [f64; 4] {
        let n = self.points.len();
        let quarter = n / 4;
        std::array::from_fn(|k| {
            let from = n - (4 - k) * quarter;
            let points = &self.points[from..from + quarter];
            points.iter().fold(0.0, |top: f64, &(_, y)| top.max(y))
        })
    }

    /// How much more of the rise the largest step takes than an even one; what the scatter explains is no step.
    fn coarseness(&self, largest: f64) -> f64 {
        let first = self.points.first().map_or(0.0, |&(_, y)| y);
        let rise = self
            .points
            .iter()
            .fold(0.0, |rise: f64, &(_, y)| rise.max(y - first));
        #[expect(clippy::cast_precision_loss, reason = "at most 64 points")]
        let even = 1.0 / (self.points.len() - 1) as f64;
        ((largest - 2.0 * self.fit.sigma()).max(0.0) / rise - even).clamp(0.0, 1.0)
    }

    /// The line over the logarithm of how far each point lies from the first.
    fn logarithm(&self) -> Line {
        let (since, spacing) = (self.since(), self.spacing());
        let place = |x: f64| ((x - since) / spacing + 1.0).ln();
        Line::through(self.points.iter().map(|&(x, y)| (place(x), y)))
    }

    /// Whether the later half is as steep as the earlier.
    fn bend(&self, coarse: f64, steady: bool) -> Shape {
        let n = self.points.len();
        let earlier = Line::through(self.points[..n - n / 2].iter().copied());
        let later = self.last_line(2);
        let (before, after) = (earlier.slope(), later.slope());
        let doubt = earlier.slope_error().hypot(later.slope_error());
        if after < SETTLING_SHARE * before - doubt {
            Shape::Settling { pace: after.max(0.0) }
        } else if after < SETTLING_SHARE * before - doubt / 2.0 {
            Shape::Unclear
        } else if after > STEEPENING_SHARE * before + 3.0 * doubt {
            Shape::Steepening { coarse }
        } else {
            Shape::Line { coarse, steady }
        }
    }

    fn increments(&self) -> Increments {
        let mut record = self.points.first().map_or(0.0, |&(_, y)| y);
        let (mut largest, mut sum, mut squares) = (0.0_f64, 0.0, 0.0);
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for pair in self.points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            if y1 > record {
                largest = largest.max(y1 - record);
                sum += y1 - record;
                squares += (y1 - record).powi(2);
                record = y1;
            }
            if x1 > x0 {
                let pace = (y1 - y0) / (x1 - x0);
                (least, most) = (least.min(pace), most.max(pace));
            }
        }
        let middle = f64::midpoint(least, most);
        Increments {
            largest,
            steps: if squares > 0.0 { sum * sum / squares } else { 0.0 },
            steady: least > 0.0 && (most - least) / 2.0 <= STEADY * middle,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(levels: impl IntoIterator<Item = f64>) -> Shape {
        let points: Vec<(f64, f64)> = levels
            .into_iter()
            .zip(0..)
            .map(|(y, x)| (f64::from(x), y))
            .collect();
        Part::new(&points, 1).shape()
    }

    #[test]
    fn a_line_and_even_stairs_are_lines() {
        let line = shape((0..30).map(|x| 100.0 + f64::from(x)));
        assert_eq!(
            line,
            Shape::Line {
                coarse: 0.0,
                steady: true
            }
        );
        let stairs = shape((0..40).map(|x| 100.0 + 5.0 * f64::from(x / 5)));
        assert!(
            matches!(stairs, Shape::Line { steady: false, coarse } if coarse > 0.01),
            "{stairs:?}"
        );
    }

    #[test]
    fn few_points_are_a_line_only_where_all_increments_are_alike() {
        let even = shape([100.0, 101.0, 102.1, 103.0, 104.1, 105.1]);
        assert!(matches!(even, Shape::Line { steady: true, .. }), "{even:?}");
        assert_eq!(shape([100.0, 103.0, 103.5, 104.5, 104.6, 107.0]), Shape::Unclear);
        assert_eq!(shape([100.0, 105.0, 108.7, 111.5, 113.6, 115.2]), Shape::Unclear);
    }

    #[test]
    fn one_step_is_none() {
        for at in 5..28 {
            let seen = shape((0..32).map(|x| if x < at { 100.0 } else { 120.0 }));
            assert!(
                matches!(seen, Shape::Level | Shape::Unclear),
                "step at {at}: {seen:?}"
            );
        }
    }

    #[test]
    fn few_unequal_steps_are_the_first_records_of_a_ratchet() {
        let steps = [0, 0, 1, 1, 1, 9, 9, 9, 11, 11, 11, 11, 18, 18, 18, 18, 27, 27];
        let seen = shape(steps.map(|step| 100.0 + f64::from(step)));
        assert!(matches!(seen, Shape::Unclear | Shape::Level), "{seen:?}");
    }

    #[test]
    fn curves_bend_the_way_they_bend() {
        let square = shape((0..40).map(|x| 100.0 + f64::from(x * x) / 10.0));
        assert!(matches!(square, Shape::Steepening { .. }), "{square:?}");
        let root = shape((0..40).map(|x| 100.0 + f64::from(x).sqrt()));
        assert!(matches!(root, Shape::Settling { pace } if pace > 0.0), "{root:?}");
        let record = shape((0..40).map(|x| 100.0 + (f64::from(x) + 1.0).ln()));
        assert!(matches!(record, Shape::Settling { .. }), "{record:?}");
    }
}
