//! A job's observations, thinned as they grow in number so that a job never takes more than 4 KiB.

use super::Observation;

/// Observations kept: 96 of 40 bytes are 3,840.
const CAPACITY: usize = 96;

/// What was observed of one attempt, whole in time and bounded in size: each entry stands for `stride`
/// observations and has the largest figures among them.
#[derive(Clone, Debug)]
pub struct Series {
    kept: Vec<Observation>,
    stride: u64,
    /// Observations merged into the last entry so far.
    in_last: u64,
    total: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            kept: Vec::with_capacity(CAPACITY),
            stride: 1,
            in_last: 0,
            total: 0,
        }
    }
}

impl Series {
    /// Adds the next observation. When all places are taken, neighbours are merged and the stride doubles.
    pub fn push(&mut self, next: Observation) {
        self.total += 1;
        if self.in_last > 0
            && self.in_last < self.stride
            && let Some(last) = self.kept.last_mut()
        {
            merge(last, next);
            self.in_last += 1;
            return;
        }
        if self.kept.len() == CAPACITY {
            for pair in 0..CAPACITY / 2 {
                let mut both = self.kept[2 * pair];
                merge(&mut both, self.kept[2 * pair + 1]);
                self.kept[pair] = both;
            }
            self.kept.truncate(CAPACITY / 2);
            self.stride *= 2;
        }
        self.kept.push(next);
        self.in_last = 1;
    }

    /// The entries in order of `x`.
    #[must_use]
    pub fn entries(&self) -> &[Observation] {
        &self.kept
    }

    /// How many observations an entry stands for; the last may stand for fewer.
    #[must_use]
    pub fn stride(&self) -> u64 {
        self.stride
    }

    /// How many observations were pushed.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Largest reserved bytes observed.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.kept.iter().map(|entry| entry.reserved).max().unwrap_or(0)
    }
}

/// `later` into `kept`: the later place, the larger figures.
pub(super) fn merge(kept: &mut Observation, later: Observation) {
    kept.x = later.x;
    kept.requested = kept.requested.max(later.requested);
    kept.reserved = kept.reserved.max(later.reserved);
    kept.allocated = kept.allocated.max(later.allocated);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_observations_fit_in_4_kib_and_keep_the_peak() {
        let mut series = Series::default();
        for x in 0..1_000_000_u32 {
            let reserved = if x == 777_777 { 9_000 } else { u64::from(x % 1_000) };
            series.push(Observation::reserved_only(f64::from(x), reserved));
        }
        let bytes = size_of::<Series>() + series.kept.capacity() * size_of::<Observation>();
        assert!(bytes <= 4096, "{bytes}");
        assert_eq!((series.peak(), series.total()), (9_000, 1_000_000));
        assert!(series.entries().is_sorted_by_key(|entry| entry.x));
        assert_eq!(series.entries().last().unwrap().x, 999_999.0);
        assert!(series.entries().len() > CAPACITY / 2);
    }

    #[test]
    fn few_observations_are_kept_as_they_are() {
        let mut series = Series::default();
        for x in 0..96_u32 {
            series.push(Observation::reserved_only(f64::from(x), u64::from(x)));
        }
        assert_eq!((series.entries().len(), series.stride()), (96, 1));
        series.push(Observation::reserved_only(96.0, 96));
        assert_eq!((series.entries().len(), series.stride()), (49, 2));
        assert_eq!(series.entries()[0], Observation::reserved_only(1.0, 1));
    }
}
