//! One stretch of growth: the observations since the fit last started, thinned so that 64 points always span it.

use super::constants::{LONGEST_PAUSE, POINTS};
use super::line::Line;

/// The points of one figure since its last restart.
///
/// When all places are taken, neighbours are merged (the later x, the larger y) and the stride doubles: a slow
/// leak is seen over its whole length, where a window of the latest points would show noise.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    points: Vec<(f64, f64)>,
    stride: u32,
    /// Observations merged into the last point so far.
    in_last: u32,
    seen: u32,
    fit: Line,
}

impl Default for Stretch {
    fn default() -> Self {
        Self {
            points: Vec::with_capacity(POINTS),
            stride: 1,
            in_last: 0,
            seen: 0,
            fit: Line::default(),
        }
    }
}

impl Stretch {
    pub(super) fn clear(&mut self) {
        self.points.clear();
        (self.stride, self.in_last, self.seen) = (1, 0, 0);
        self.fit = Line::default();
    }

    pub(super) fn push(&mut self, x: f64, y: f64) {
        self.seen = self.seen.saturating_add(1);
        if self.in_last > 0
            && self.in_last < self.stride
            && let Some(last) = self.points.last_mut()
        {
            *last = (x, last.1.max(y));
            self.in_last += 1;
        } else {
            if self.points.len() == POINTS {
                for pair in 0..POINTS / 2 {
                    let ((_, a), (x, b)) = (self.points[2 * pair], self.points[2 * pair + 1]);
                    self.points[pair] = (x, a.max(b));
                }
                self.points.truncate(POINTS / 2);
                self.stride = self.stride.saturating_mul(2);
            }
            self.points.push((x, y));
            self.in_last = 1;
        }
        self.fit = Line::through(self.points.iter().copied());
    }

    /// Observations since the restart.
    pub(super) const fn seen(&self) -> u32 {
        self.seen
    }

    /// The line through all points.
    pub(super) const fn fit(&self) -> &Line {
        &self.fit
    }

    pub(super) fn last(&self) -> Option<(f64, f64)> {
        self.points.last().copied()
    }

    /// From the first point to the largest y.
    pub(super) fn rise(&self) -> f64 {
        let first = self.points.first().map_or(0.0, |&(_, y)| y);
        self.points
            .iter()
            .fold(0.0, |rise: f64, &(_, y)| rise.max(y - first))
    }

    /// The last `1 / share` of the points.
    pub(super) fn part(&self, share: usize) -> Part<'_> {
        let n = self.points.len();
        Part::new(&self.points[n - n / share..], self.stride)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.points.capacity() * size_of::<(f64, f64)>()
    }
}

/// Successive points of a stretch, and the line through them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part<'a> {
    pub(super) points: &'a [(f64, f64)],
    pub(super) fit: Line,
    stride: u32,
}

impl<'a> Part<'a> {
    pub(super) fn new(points: &'a [(f64, f64)], stride: u32) -> Self {
        Self {
            points,
            fit: Line::through(points.iter().copied()),
            stride,
        }
    }

    /// The x of the first point.
    pub(super) fn since(&self) -> f64 {
        self.points.first().map_or(0.0, |&(x, _)| x)
    }

    /// Units of x from one point to the next.
    pub(super) fn spacing(&self) -> f64 {
        let last = self.points.last().map_or(0.0, |&(x, _)| x);
        #[expect(clippy::cast_precision_loss, reason = "at most 64 points")]
        let steps = (self.points.len().max(2) - 1) as f64;
        (last - self.since()) / steps
    }

    /// Units of x from one observation to the next.
    pub(super) fn step(&self) -> f64 {
        self.spacing() / f64::from(self.stride)
    }

    /// How much x it was seen over: a pause counts for a few samples.
    pub(super) fn covered(&self) -> f64 {
        let longest = LONGEST_PAUSE * self.spacing();
        self.points
            .windows(2)
            .map(|pair| (pair[1].0 - pair[0].0).min(longest))
            .sum()
    }

    /// The line through the last `1 / share` of the points.
    pub(super) fn last_line(&self, share: usize) -> Line {
        let n = self.points.len();
        Line::through(self.points[n - n / share..].iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stretch_keeps_its_start_its_length_and_its_peaks() {
        let mut stretch = Stretch::default();
        for x in 0..10_000_u32 {
            let y = if x == 7_777 { 9.0 } else { 1.0 };
            stretch.push(f64::from(x), y);
        }
        let whole = stretch.part(1);
        assert_eq!((stretch.seen(), stretch.last().unwrap().0), (10_000, 9_999.0));
        assert!(whole.points.len() > POINTS / 2 && whole.points.len() <= POINTS);
        assert_eq!(stretch.rise(), 8.0);
        assert!(whole.since() < 256.0, "{}", whole.since());
        assert!((whole.step() - 1.0).abs() < 0.1, "{}", whole.step());
        assert!(stretch.bytes() <= 1_200, "{}", stretch.bytes());
    }

    #[test]
    fn a_pause_is_not_time_in_which_growth_was_seen() {
        let mut stretch = Stretch::default();
        for x in [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 90.0] {
            stretch.push(x, x);
        }
        let covered = stretch.part(1).covered();
        assert!((covered - 48.0).abs() < 1e-9, "{covered}");
    }
}
