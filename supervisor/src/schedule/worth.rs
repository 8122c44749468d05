//! What the jobs want on each kind of GPU, and what its states are worth to them.

use std::sync::Arc;

use migm_shared::units::Bytes;

use super::Wish;
use crate::layout::placing::rules::Rated;
use crate::layout::placing::{Cost, Demand, Learned, PlacementRule};
use crate::layout::{Placement, StateIndex, Table};

/// Arrivals before which the demand is as good as unknown, and the paper's rule decides.
const FEW: usize = 16;

/// The GPUs with one table.
#[derive(Debug)]
pub(super) struct Kind {
    table: Arc<Table>,
    gpus: usize,
    arrivals: usize,
    rule: Rule,
}

#[derive(Debug)]
enum Rule {
    /// Most full layouts in reach, while little has been seen.
    Reachability { rated: Rated, demand: Demand },
    /// Fewest jobs lost of those to come.
    Learned(Box<Learned>),
}

impl Kind {
    pub(super) fn new(table: Arc<Table>) -> Self {
        Self {
            gpus: 0,
            arrivals: 0,
            rule: Rule::Reachability {
                rated: Rated::reachability(&table),
                demand: Demand::unknown(&table),
            },
            table,
        }
    }

    /// The states of its GPUs.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Whether a GPU with that table is of this kind.
    pub(super) fn is_of(&self, table: &Table) -> bool {
        self.table.is_like(table)
    }

    /// What jobs have wanted so far is no guide any more.
    pub(super) fn forget_demand(&mut self) {
        *self = Self {
            gpus: self.gpus,
            ..Self::new(Arc::clone(&self.table))
        };
    }

    /// One more GPU of this kind.
    pub(super) fn joined(&mut self) {
        self.gpus += 1;
        if let Rule::Learned(learned) = &mut self.rule {
            learned.share_among(&self.table, self.gpus);
        }
    }

    /// A job needs so much memory in a slice that its user wants. `whole` when it gets a whole GPU whatever it needs.
    pub(super) fn wanted(&mut self, need: Bytes, whole: bool, wish: &Wish) {
        let tightest = match whole {
            true => Some(self.table.full()),
            false => {
                let fit = self.table.tightest(need.0);
                fit.into_iter().find(|&profile| wish.admits(&self.table, profile))
            }
        };
        let Some(profile) = tightest else { return };
        self.arrivals += 1;
        match &mut self.rule {
            Rule::Learned(learned) => learned.seen(&self.table, profile),
            Rule::Reachability { demand, .. } => {
                demand.seen(profile);
                if self.arrivals >= FEW {
                    let learned = Learned::from(&self.table, demand.clone(), self.gpus);
                    self.rule = Rule::Learned(Box::new(learned));
                }
            }
        }
    }
}

impl Kind {
    /// What is lost of a state's worth, by going to another by any steps: both rules rate states, and not places.
    pub(super) fn loss(&self, from: StateIndex, to: StateIndex) -> Cost {
        let nowhere = Placement { start: 0, size: 0 };
        self.cost(from, nowhere, to)
    }
}

impl PlacementRule for Kind {
    fn name(&self) -> &'static str {
        match &self.rule {
            Rule::Reachability { rated, .. } => rated.name(),
            Rule::Learned(learned) => learned.name(),
        }
    }

    fn cost(&self, from: StateIndex, placement: Placement, to: StateIndex) -> Cost {
        match &self.rule {
            Rule::Reachability { rated, .. } => rated.cost(from, placement, to),
            Rule::Learned(learned) => learned.cost(from, placement, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::samples;

    #[test]
    fn the_paper_decides_until_the_demand_is_known() {
        let mut kind = Kind::new(Arc::new(samples::a30_base()));
        kind.joined();
        for arrival in 0..FEW {
            assert_eq!(kind.name(), "fcr", "after {arrival}");
            kind.wanted(Bytes(0), false, &Wish::Any);
        }
        assert_eq!(kind.name(), "ours, learning");
        kind.joined();
        // More than any slice has: nothing is learnt from it.
        kind.wanted(Bytes(u64::MAX), false, &Wish::Any);
        assert_eq!(kind.arrivals, FEW);
    }

    #[test]
    fn who_asks_for_a_profile_is_demand_for_it() {
        let table = Arc::new(samples::a100_base());
        let profile = table.tightest(8 << 30)[0];
        let name = table.profile(profile).name.clone();
        let learnt = |need: Bytes, wish: Wish| {
            let mut kind = Kind::new(Arc::clone(&table));
            kind.joined();
            (0..2 * FEW).for_each(|_| kind.wanted(need, false, &wish));
            let places = table.steps(Table::EMPTY);
            let costs = places.map(|(slot, to)| kind.cost(Table::EMPTY, slot.1, to));
            costs.collect::<Vec<_>>()
        };
        let asked = learnt(Bytes(0), Wish::Profile(name));
        assert_eq!(asked, learnt(Bytes(8 << 30), Wish::Any));
        assert_ne!(asked, learnt(Bytes(0), Wish::Any));
        assert_eq!(
            learnt(Bytes(0), Wish::Exclusive),
            learnt(Bytes(30 << 30), Wish::Any)
        );
    }
}
