//! Where a new slice goes: rules that rate every possible create, and the choice by one of them.
//!
//! One create's way through this room:
//!
//! 1. A [`PlacementRule`] is made once for a [`Table`]: it rates every state, so that a decision only compares.
//!    [`rules`] has those of others to compare with; [`DemandValue`] is ours.
//! 2. [`Demand`] counts which profiles arrive, the old ones fading. From that mix [`DemandValue::solve`] finds
//!    what each state is worth: how many of the jobs to come it lets in. [`Learned`] does so as they come.
//! 3. [`Table::cheapest`] walks the edges of one state and takes the create of least [`Cost`];
//!    [`cheapest_of`] does so over many GPUs, whose costs compete.
//! 4. When all that is wanted is known beforehand, [`Table::plan_batch`] finds places for all of it, if
//!    there are any.
//!
//! [`chain`] says exactly what a rule achieves on one GPU, and what the best rule would.

use super::table::Edge;
use super::{Placement, ProfileIndex, StateIndex, Table};

mod batch;
pub mod chain;
mod demand;
mod learned;
pub mod rules;
#[cfg(test)]
mod tests;
mod value;

pub use demand::Demand;
pub use learned::Learned;
pub use value::DemandValue;

/// What a create costs by some rule, in millionths of the rule's own unit. Whole numbers, so that states which are
/// alike compare equal and ties go to the lowest start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Cost(pub i64);

impl Cost {
    /// Of a figure in the rule's unit, rounded.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "rounded first; a cast from floating point stops at the ends of the range"
    )]
    #[must_use]
    pub fn of(units: f64) -> Self {
        Self((units * 1e6).round() as i64)
    }
}

/// Rates creates; made for one table and asked about its states only.
pub trait PlacementRule {
    /// As tables print it.
    fn name(&self) -> &'static str;

    /// What it costs to go from one state to another by creating at `placement`; the least wins.
    fn cost(&self, from: StateIndex, placement: Placement, to: StateIndex) -> Cost;

    /// Whether several GPUs compete by cost. Otherwise the first that has room is taken.
    fn compares_gpus(&self) -> bool {
        true
    }
}

/// A create that a rule has chosen. Creates compare by cost, then place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Create {
    /// By the rule that chose.
    pub cost: Cost,
    /// Where.
    pub placement: Placement,
    /// The state it leads to.
    pub to: StateIndex,
}

impl Table {
    /// The create of a profile that costs least, ties to the lowest start; `None` when there is none.
    #[must_use]
    pub fn cheapest<R: PlacementRule + ?Sized>(
        &self,
        rule: &R,
        state: StateIndex,
        profile: ProfileIndex,
    ) -> Option<Create> {
        self.creates(rule, state, profile).min()
    }

    /// Every create of a profile in a state, with what it costs.
    pub fn creates<R: PlacementRule + ?Sized>(
        &self,
        rule: &R,
        state: StateIndex,
        profile: ProfileIndex,
    ) -> impl Iterator<Item = Create> {
        self.edges_of(state, profile).map(move |edge| {
            let (placement, to) = (self.slot(edge.slot).1, StateIndex(edge.to));
            Create {
                cost: rule.cost(state, placement, to),
                placement,
                to,
            }
        })
    }

    /// Whether both are of GPUs with the same profiles, places and creates.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.profiles == other.profiles
            && (self.states(), self.edges()) == (other.states(), other.edges())
            && self.rules == other.rules
    }

    /// The state after the instance at that place has gone; `None` when it is not there.
    #[must_use]
    pub fn less(&self, state: StateIndex, profile: ProfileIndex, placement: Placement) -> Option<StateIndex> {
        let slot = self.slot_index((profile, placement))?;
        let set = self.bitset(state);
        let rest = (set >> slot & 1 == 1).then_some(set & !(1 << slot))?;
        self.index.get(&rest).map(|&index| StateIndex(index))
    }

    /// Edges that create a profile.
    pub(super) fn edges_of(&self, state: StateIndex, profile: ProfileIndex) -> impl Iterator<Item = &Edge> {
        self.edges[state.0]
            .iter()
            .filter(move |edge| self.slots[edge.slot].0 == profile)
    }

    /// States by index, those out of reach included.
    pub(super) fn indices(&self) -> impl Iterator<Item = StateIndex> + use<> {
        (0..self.states.len()).map(StateIndex)
    }

    /// Memory units of the grid: the end of the furthest placement.
    pub(super) fn units(&self) -> u32 {
        let ends = self.slots.iter().map(|(_, place)| place.start + place.size);
        ends.max().unwrap_or(0)
    }
}

/// The create of least cost over GPUs of one table, ties to the first GPU; by a rule that does not compare
/// GPUs the cheapest on the first that has room. The number is the GPU's in `states`.
#[must_use]
pub fn cheapest_of<R: PlacementRule + ?Sized>(
    table: &Table,
    rule: &R,
    states: &[StateIndex],
    profile: ProfileIndex,
) -> Option<(usize, Create)> {
    let creates = states
        .iter()
        .enumerate()
        .filter_map(|(gpu, &state)| Some((gpu, table.cheapest(rule, state, profile)?)));
    if rule.compares_gpus() {
        creates.min_by_key(|(_, create)| create.cost)
    } else {
        { creates }.next()
    }
}
