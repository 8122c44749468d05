//! Our rule with the demand learnt as jobs arrive.

use super::super::{Placement, ProfileIndex, StateIndex, Table};
use super::{Cost, Demand, DemandValue, PlacementRule};

/// The rule is made anew when this share of the arrivals would have to change for the mix that it was made for.
const MOVED: f64 = 0.1;

/// [`DemandValue`] for the mix of the arrivals seen lately.
#[derive(Clone, Debug)]
pub struct Learned {
    demand: Demand,
    gpus: usize,
    made_for: Vec<f64>,
    value: DemandValue,
}

impl Learned {
    /// For one of `gpus` GPUs with this table; no arrival seen.
    #[must_use]
    pub fn new(table: &Table, gpus: usize) -> Self {
        Self::from(table, Demand::unknown(table), gpus)
    }

    /// For one of `gpus` GPUs with this table and what has been seen.
    #[must_use]
    pub fn from(table: &Table, demand: Demand, gpus: usize) -> Self {
        let made_for = demand.mix();
        let value = DemandValue::solve(table, &made_for, gpus);
        Self {
            demand,
            gpus,
            made_for,
            value,
        }
    }

    /// A slice of this profile was wanted. Makes the rule anew, some milliseconds of work, when the mix has moved.
    pub fn seen(&mut self, table: &Table, profile: ProfileIndex) {
        self.demand.seen(profile);
        let mix = self.demand.mix();
        if Demand::distance(&mix, &self.made_for) > MOVED {
            self.value = DemandValue::solve(table, &mix, self.gpus);
            self.made_for = mix;
        }
    }

    /// There are so many GPUs with this table now.
    pub fn share_among(&mut self, table: &Table, gpus: usize) {
        if gpus != self.gpus {
            *self = Self::from(table, self.demand.clone(), gpus);
        }
    }

    /// The shares that the rule was made for.
    #[must_use]
    pub fn made_for(&self) -> &[f64] {
        &self.made_for
    }
}

impl PlacementRule for Learned {
    fn name(&self) -> &'static str {
        "ours, learning"
    }

    fn cost(&self, from: StateIndex, placement: Placement, to: StateIndex) -> Cost {
        self.value.cost(from, placement, to)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::samples;
    use super::*;

    #[test]
    fn the_rule_follows_the_arrivals() {
        let table = samples::a30_base();
        let mut learned = Learned::new(&table, 1);
        assert_eq!(learned.made_for(), Demand::unknown(&table).mix());
        let first = learned.made_for().to_vec();
        learned.seen(&table, ProfileIndex(0));
        assert_eq!(learned.made_for(), first, "one arrival says little");
        (0..50).for_each(|_| learned.seen(&table, ProfileIndex(1)));
        assert!(learned.made_for()[1] > 0.7, "{:?}", learned.made_for());
        assert!(Demand::distance(learned.made_for(), &learned.demand.mix()) <= MOVED);
    }
}
