//! Which profiles are wanted: learnt from arrivals, the old ones fading.

use super::super::{ProfileIndex, Table};

/// Arrivals over which a count fades to a third: long enough to tell a mix from chance, short enough to follow a
/// change of what users run within some hundred jobs.
const MEMORY: f64 = 200.0;
/// How many arrivals what is believed before anything is seen counts for.
const PRIOR: f64 = 10.0;

/// How often each profile of one GPU is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    counts: Vec<f64>,
    /// Shares believed at first.
    prior: Vec<f64>,
}

impl Demand {
    /// Nothing is known of the jobs: each profile as often as it has placements, small ones most.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a table has at most 64 slots")]
    pub fn unknown(table: &Table) -> Self {
        let places = || {
            table
                .profiles()
                .iter()
                .map(|profile| profile.placements.len() as f64)
        };
        let total: f64 = places().sum();
        Self {
            counts: vec![0.0; table.profiles().len()],
            prior: places().map(|places| places / total).collect(),
        }
    }

    /// A slice of this profile was wanted. Another table's profile is left out.
    pub fn seen(&mut self, profile: ProfileIndex) {
        if profile.0 >= self.counts.len() {
            return;
        }
        self.counts
            .iter_mut()
            .for_each(|count| *count *= 1.0 - 1.0 / MEMORY);
        self.counts[profile.0] += 1.0;
    }

    /// Shares of the profiles, 1 in all.
    #[must_use]
    pub fn mix(&self) -> Vec<f64> {
        let total = self.counts.iter().sum::<f64>() + PRIOR;
        let both = self.counts.iter().zip(&self.prior);
        both.map(|(count, prior)| (count + prior * PRIOR) / total)
            .collect()
    }

    /// How far two mixes are apart: the share of arrivals that would have to change, 0 to 1.
    #[must_use]
    pub fn distance(one: &[f64], other: &[f64]) -> f64 {
        let apart = one.iter().zip(other).map(|(a, b)| (a - b).abs());
        apart.sum::<f64>() / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;

    #[test]
    fn the_unknown_mix_goes_by_places_and_learning_moves_it() {
        let mut demand = Demand::unknown(&samples::a30_base());
        assert_eq!(demand.mix(), [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0]);
        for _ in 0..1000 {
            demand.seen(ProfileIndex(2));
        }
        assert!(demand.mix()[2] > 0.95, "{:?}", demand.mix());
        demand.seen(ProfileIndex(9));
        assert!((demand.mix().iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn old_arrivals_fade() {
        let mut demand = Demand::unknown(&samples::a30_base());
        (0..500).for_each(|_| demand.seen(ProfileIndex(0)));
        (0..500).for_each(|_| demand.seen(ProfileIndex(1)));
        assert!(demand.mix()[1] > 0.85, "{:?}", demand.mix());
    }

    #[test]
    fn the_distance_of_mixes_is_a_share() {
        assert!((Demand::distance(&[1.0, 0.0], &[0.0, 1.0]) - 1.0).abs() < 1e-12);
        assert!((Demand::distance(&[0.5, 0.5], &[0.75, 0.25]) - 0.25).abs() < 1e-12);
    }
}
