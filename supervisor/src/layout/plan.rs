//! Which idle slices to destroy for one create.

use std::cmp::Reverse;

use super::table::Table;
use super::{Placement, ProfileIndex, Slot};

/// More idle slices than any grid holds; subsets beyond this are not searched.
const MAX_IDLE: usize = 16;

/// How to make room for one slice: fission when a larger idle slice goes, fusion when several smaller do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Indices into the idle slots given.
    pub destroy: Vec<usize>,
    /// Where to create the profile once they are gone.
    pub placement: Placement,
    /// Full layouts in reach of the state that results.
    pub reachable: usize,
}

impl Table {
    /// The way to a slice of `profile` while `pinned` slots stay: the fewest idle slots destroyed, then the
    /// most full layouts in reach, then the lowest start. `None` when no set of idle slots makes room, or
    /// the slots given are no state of this GPU.
    ///
    /// Every subset of the idle slots is tried, smallest first: at most 2^7 on a grid of seven.
    #[must_use]
    pub fn plan_for(&self, pinned: &[Slot], idle: &[Slot], profile: ProfileIndex) -> Option<Plan> {
        let idle = &idle[..idle.len().min(MAX_IDLE)];
        let standing: Vec<Slot> = pinned.iter().chain(idle).copied().collect();
        let all = self.bitset(self.state_of(&standing).ok()?);
        let bits: Vec<u64> = idle
            .iter()
            .filter_map(|&slot| self.slot_index(slot).map(|bit| 1 << bit))
            .collect();
        for fewest in 0..=idle.len() {
            let sets = (0..1_u32 << idle.len()).filter(|set| set.count_ones() as usize == fewest);
            let ways = sets.flat_map(|set| {
                let gone = (0..bits.len())
                    .filter(|index| set >> index & 1 == 1)
                    .fold(0, |gone, index| gone | bits[index]);
                // Part of a state is a state.
                let edges = self.index.get(&(all & !gone)).map(|&state| &self.edges[state]);
                let to = edges.into_iter().flatten().filter_map(|edge| {
                    let (kind, placement) = self.slots[edge.slot];
                    (kind == profile).then_some((Reverse(self.reach[edge.to]), placement))
                });
                to.map(move |(reachable, placement)| (reachable, placement, set))
            });
            if let Some((Reverse(reachable), placement, set)) = ways.min() {
                return Some(Plan {
                    destroy: (0..idle.len()).filter(|index| set >> index & 1 == 1).collect(),
                    placement,
                    reachable,
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::{StateIndex, samples};
    use super::*;
    use proptest::prelude::*;

    fn slots(table: &Table, names: &[&str]) -> Vec<Slot> {
        names.iter().map(|name| table.slot_named(name).unwrap()).collect()
    }

    fn plan(pinned: &[&str], idle: &[&str], profile: &str) -> Option<(Vec<usize>, u32, usize)> {
        let table = samples::a100_base();
        let profile = table.profile_named(profile).unwrap();
        let plan = table.plan_for(&slots(&table, pinned), &slots(&table, idle), profile)?;
        Some((plan.destroy, plan.placement.start, plan.reachable))
    }

    #[test]
    fn free_ground_is_used_before_anything_is_destroyed() {
        assert_eq!(plan(&[], &["2g.10gb@0"], "1g.5gb"), Some((vec![], 6, 4)));
    }

    #[test]
    fn fission_splits_an_idle_slice() {
        assert_eq!(plan(&[], &["7g.40gb@0"], "1g.5gb"), Some((vec![0], 6, 12)));
    }

    #[test]
    fn fusion_takes_the_fewest_idle_slices() {
        let idle = ["1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "2g.10gb@4"];
        // 3g@4 costs one idle slice, 3g@0 three.
        assert_eq!(plan(&["1g.5gb@3"], &idle, "3g.20gb").unwrap().0, [3]);
        assert_eq!(plan(&["1g.5gb@6"], &idle, "3g.20gb").unwrap().0, [0, 1, 2]);
    }

    #[test]
    fn pinned_slices_can_make_it_impossible() {
        assert_eq!(plan(&["1g.5gb@6"], &["1g.5gb@0"], "7g.40gb"), None);
        assert_eq!(plan(&["1g.5gb@2", "1g.5gb@6"], &[], "3g.20gb"), None);
    }

    #[test]
    fn slots_that_are_no_state_give_no_plan() {
        assert_eq!(plan(&["7g.40gb@0", "1g.5gb@6"], &[], "1g.5gb"), None);
    }

    #[test]
    fn a_refused_create_is_not_planned_again() {
        let table = samples::a100_base();
        let small = table.profile_named("1g.5gb").unwrap();
        let at_six = table.slot_named("1g.5gb@6").unwrap();
        let less = table.without(Table::EMPTY, at_six);
        let plan = less.plan_for(&[], &[], small).unwrap();
        assert_ne!(plan.placement, at_six.1);
    }

    proptest! {
        #[test]
        fn a_plan_keeps_pinned_slices_and_ends_in_a_state(
            state in 0_usize..298,
            pins in any::<u16>(),
            wanted in 0_usize..5,
        ) {
            let table = samples::a100_base();
            let taken = table.taken(StateIndex(state));
            let (mut pinned, mut idle) = (Vec::new(), Vec::new());
            for (index, slot) in taken.into_iter().enumerate() {
                if pins >> index & 1 == 1 { pinned.push(slot) } else { idle.push(slot) }
            }
            let profile = ProfileIndex(wanted);
            let everything_gone = table.best_placement(table.state_of(&pinned).unwrap(), profile);
            let plan = table.plan_for(&pinned, &idle, profile);
            prop_assert_eq!(plan.is_some(), everything_gone.is_some());
            if let Some(plan) = plan {
                let left = (0..idle.len()).filter(|index| !plan.destroy.contains(index));
                let mut after = pinned.clone();
                after.extend(left.map(|index| idle[index]));
                after.push((profile, plan.placement));
                let after = table.state_of(&after).unwrap();
                prop_assert_eq!(table.reachable(after), plan.reachable);
                // Sparing any one of them leaves no room at that place.
                for spared in &plan.destroy {
                    let mut standing = pinned.clone();
                    let kept = (0..idle.len()).filter(|i| i == spared || !plan.destroy.contains(i));
                    standing.extend(kept.map(|index| idle[index]));
                    standing.push((profile, plan.placement));
                    prop_assert!(table.state_of(&standing).is_err());
                }
            }
        }
    }
}
