//! What the jobs want on each kind of GPU, and what its states are worth to them.

use std::sync::Arc;

use migm_shared::units::Bytes;

use crate::layout::placing::rules::Rated;
use crate::layout::placing::{Cost, Demand, Learned, PlacementRule};
use crate::layout::{Placement, ProfileIndex, StateIndex, Table};

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

    /// Whether a GPU with that table is of this kind.
    pub(super) fn is_of(&self, table: &Table) -> bool {
        self.table.is_like(table)
    }

    /// One more GPU of this kind.
    pub(super) fn joined(&mut self) {
        self.gpus += 1;
        if let Rule::Learned(learned) = &mut self.rule {
            learned.share_among(&self.table, self.gpus);
        }
    }

    /// A job needs so much memory. `whole` when it gets a whole GPU whatever it needs.
    pub(super) fn wanted(&mut self, need: Bytes, whole: bool) {
        let tightest = match whole {
            true => Some(self.table.full()),
            false => self.table.tightest(need.0).first().copied(),
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

impl Kind {
    /// Of the creates of a profile that `table`, this kind's less what its driver refuses, has in a state: that after
    /// which most of the jobs that follow find a place, and of those the cheapest. With the full layouts
    /// left in reach.
    pub(super) fn best(
        &self,
        table: &Table,
        state: StateIndex,
        profile: ProfileIndex,
        following: &[Vec<ProfileIndex>],
    ) -> Option<(Cost, Placement, usize)> {
        let creates = table.creates(self, state, profile);
        let best = creates.min_by_key(|create| {
            let placed = table.longest_prefix(create.to, following);
            (following.len() - placed, *create)
        })?;
        Some((best.cost, best.placement, table.reachable(best.to)))
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
            kind.wanted(Bytes(0), false);
        }
        assert_eq!(kind.name(), "ours, learning");
        kind.joined();
        // More than any slice has: nothing is learnt from it.
        kind.wanted(Bytes(u64::MAX), false);
        assert_eq!(kind.arrivals, FEW);
    }
}
