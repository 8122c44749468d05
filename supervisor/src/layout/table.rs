//! The state table: all states of one GPU as bit sets over its slots, with edges and reachability.

use std::collections::{BTreeSet, HashMap};

use super::{Misfit, Obstacle, Placement, Profile, ProfileIndex, Rules, Slot};

#[cfg(test)]
mod tests;

/// Index of a state in its [`Table`]. A table and those made from it by [`Table::without`] share indices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct StateIndex(pub(super) usize);

impl StateIndex {
    /// The number of a state: 0 to [`Table::all_states`], not included.
    #[must_use]
    pub fn from_usize(number: usize) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub fn to_usize(self) -> usize {
        self.0
    }
}

/// An edge: creating `slot` leads to state `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) slot: usize,
    pub(super) to: usize,
}

/// Every state of one GPU, with what can still be reached from it.
#[derive(Clone, Debug)]
pub struct Table {
    pub(super) profiles: Vec<Profile>,
    pub(super) rules: Rules,
    pub(super) slots: Vec<Slot>,
    /// What all instances together may take: engines and compute slices of the whole GPU.
    pub(super) budget: Budget,
    pub(super) states: Vec<u64>,
    pub(super) index: HashMap<u64, usize>,
    pub(super) edges: Vec<Vec<Edge>>,
    /// Edges that the driver refused, as state and slot.
    pub(super) refused: BTreeSet<(usize, usize)>,
    /// Full layouts within reach, per state.
    pub(super) reach: Vec<usize>,
    /// States within reach of the empty one, and the edges among them.
    pub(super) live: (usize, usize),
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Budget {
    pub(super) compute: u32,
    pub(super) engines: [u32; 5],
}

impl Table {
    /// The state with no instance.
    pub const EMPTY: StateIndex = StateIndex(0);

    /// The profiles, in the order given.
    #[must_use]
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// One profile.
    ///
    /// # Panics
    /// The index is of another table.
    #[must_use]
    pub fn profile(&self, profile: ProfileIndex) -> &Profile {
        &self.profiles[profile.0]
    }

    /// The profile of that name.
    #[must_use]
    pub fn profile_named(&self, name: &str) -> Option<ProfileIndex> {
        self.profiles
            .iter()
            .position(|p| p.name == name)
            .map(ProfileIndex)
    }

    /// The profile of the whole GPU: most compute slices, then most memory, then no variant.
    #[must_use]
    pub fn full(&self) -> ProfileIndex {
        let key = |p: &Profile| (p.compute, p.memory, !p.is_variant());
        let last = self.profiles.iter().enumerate().rev().max_by_key(|(_, p)| key(p));
        ProfileIndex(last.map_or(0, |(index, _)| index))
    }

    /// States within reach of the empty one, itself included.
    #[must_use]
    pub fn states(&self) -> usize {
        self.live.0
    }

    /// All states, those that refusals have put out of reach included.
    #[must_use]
    pub fn all_states(&self) -> usize {
        self.states.len()
    }

    /// Full layouts within reach of the empty state.
    #[must_use]
    pub fn full_layouts(&self) -> usize {
        self.reach[0]
    }

    /// Creates that lead from one of [`Table::states`] to another.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.live.1
    }

    /// The state in which exactly these slots are taken.
    ///
    /// # Errors
    /// They cannot stand together, or one is no slot of this GPU; the error names which and why.
    pub fn state_of(&self, taken: &[Slot]) -> Result<StateIndex, Misfit> {
        let mut state = 0;
        for &slot in taken {
            let fault = match self.slot_index(slot) {
                None => Some(Obstacle::NoSuchPlace),
                Some(bit) if state >> bit & 1 == 1 => Some(Obstacle::Taken { by: self.named(slot) }),
                Some(bit) => {
                    let fault = self.obstacle(state, bit);
                    state |= 1 << bit;
                    fault
                }
            };
            if let Some(obstacle) = fault {
                return Err(Misfit {
                    slot: self.named(slot),
                    obstacle,
                });
            }
        }
        Ok(StateIndex(self.index[&state]))
    }

    /// The slots taken in a state.
    #[must_use]
    pub fn taken(&self, state: StateIndex) -> Vec<Slot> {
        self.bits(self.states[state.0])
            .map(|slot| self.slots[slot])
            .collect()
    }

    /// Every full layout, as the slots taken in it; on a table from which nothing was taken out.
    pub fn layouts(&self) -> impl Iterator<Item = Vec<Slot>> + '_ {
        let full = (0..self.states.len()).map(StateIndex);
        full.filter(|state| self.edges[state.0].is_empty())
            .map(|state| self.taken(state))
    }

    /// How many full layouts can still be reached: the paper's fcr.
    #[must_use]
    pub fn reachable(&self, state: StateIndex) -> usize {
        self.reach[state.0]
    }

    /// Every create that is possible in a state, with the reachability after it.
    #[must_use]
    pub fn placements(&self, state: StateIndex) -> Vec<(ProfileIndex, Placement, usize)> {
        let edges = self.edges[state.0].iter();
        edges
            .map(|edge| {
                let (profile, placement) = self.slots[edge.slot];
                (profile, placement, self.reach[edge.to])
            })
            .collect()
    }

    /// Whether a create of a profile is possible in a state.
    #[must_use]
    pub fn has_room(&self, state: StateIndex, profile: ProfileIndex) -> bool {
        self.edges_of(state, profile).next().is_some()
    }

    /// Every create that is possible in a state, with the state after it.
    pub fn steps(&self, state: StateIndex) -> impl Iterator<Item = (Slot, StateIndex)> + '_ {
        let edges = self.edges[state.0].iter();
        edges.map(|edge| (self.slots[edge.slot], StateIndex(edge.to)))
    }

    /// The state after one create; `None` where it is not possible.
    #[must_use]
    pub fn with(&self, state: StateIndex, slot: Slot) -> Option<StateIndex> {
        self.steps(state)
            .find(|(known, _)| *known == slot)
            .map(|(_, after)| after)
    }

    /// Whether nothing more can be created.
    #[must_use]
    pub fn is_full(&self, state: StateIndex) -> bool {
        self.edges[state.0].is_empty()
    }

    /// Profiles that hold this many bytes, least memory first, then most multiprocessors, then plain ones
    /// before variants.
    #[must_use]
    pub fn tightest(&self, bytes: u64) -> Vec<ProfileIndex> {
        let mut fit: Vec<usize> = (0..self.profiles.len())
            .filter(|&index| self.profiles[index].memory >= bytes)
            .collect();
        fit.sort_by_key(|&index| {
            let p = &self.profiles[index];
            (p.memory, std::cmp::Reverse(p.sms), p.is_variant())
        });
        fit.into_iter().map(ProfileIndex).collect()
    }

    /// Where the edge of this create leads, if the create is possible there.
    pub(super) fn after(&self, state: StateIndex, slot: usize) -> Option<StateIndex> {
        let edge = self.edges[state.0].iter().find(|edge| edge.slot == slot)?;
        Some(StateIndex(edge.to))
    }

    pub(super) fn slot_index(&self, slot: Slot) -> Option<usize> {
        self.slots.iter().position(|known| *known == slot)
    }

    pub(super) fn slots_of(&self, profile: ProfileIndex) -> impl Iterator<Item = (usize, Placement)> {
        let slots = self
            .slots
            .iter()
            .enumerate()
            .filter(move |(_, slot)| slot.0 == profile);
        slots.map(|(index, slot)| (index, slot.1))
    }

    pub(super) fn bits(&self, state: u64) -> impl Iterator<Item = usize> + use<> {
        (0..self.slots.len()).filter(move |slot| state >> slot & 1 == 1)
    }

    pub(super) fn bitset(&self, state: StateIndex) -> u64 {
        self.states[state.0]
    }

    pub(super) fn slot(&self, index: usize) -> Slot {
        self.slots[index]
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn budget(&self) -> Budget {
        self.budget
    }

    pub(super) fn is_refused(&self, state: StateIndex, slot: usize) -> bool {
        self.refused.contains(&(state.0, slot))
    }
}
