//! Building a table: every state, every edge, and what each state can still reach.

use std::collections::{BTreeSet, HashMap};

use super::table::{Budget, Edge, Table};
use super::{Profile, ProfileIndex, Rules, Slot, StateIndex};

/// Bits of a state; more slots than this are refused.
const MAX_SLOTS: usize = 64;
/// More states than any known GPU has (2,319), few enough to build in a second.
const MAX_STATES: usize = 1 << 16;

/// Why no table can be built.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LayoutError {
    /// There is nothing to place.
    #[error("no profile has a placement")]
    Empty,
    /// Two profiles could not be told apart.
    #[error("two profiles are called `{0}`")]
    SameName(String),
    /// A placement of no units.
    #[error("profile {profile} has a placement of size 0 at {start}")]
    NoSize {
        /// Its name.
        profile: String,
        /// Where.
        start: u32,
    },
    /// The bit set is too small.
    #[error("{0} placements are more than the {MAX_SLOTS} that a state can hold")]
    TooManySlots(usize),
    /// The placements hardly exclude each other.
    #[error("the profiles have more than {MAX_STATES} states")]
    TooManyStates,
    /// Two tables that should be of one GPU.
    #[error("the tables are of different GPUs")]
    NotAlike,
}

impl Table {
    /// All states of a GPU with these profiles. A [`ProfileIndex`] counts in the order given.
    ///
    /// # Errors
    /// The profiles cannot be those of one GPU, or are too many for the table.
    pub fn build(profiles: Vec<Profile>, rules: Rules) -> Result<Self, LayoutError> {
        for (index, profile) in profiles.iter().enumerate() {
            if profiles[..index].iter().any(|other| other.name == profile.name) {
                return Err(LayoutError::SameName(profile.name.clone()));
            }
            if let Some(place) = profile.placements.iter().find(|place| place.size == 0) {
                return Err(LayoutError::NoSize {
                    profile: profile.name.clone(),
                    start: place.start,
                });
            }
        }
        let slots: Vec<Slot> = profiles
            .iter()
            .enumerate()
            .flat_map(|(index, profile)| {
                profile
                    .placements
                    .iter()
                    .map(move |&place| (ProfileIndex(index), place))
            })
            .collect();
        if slots.is_empty() {
            return Err(LayoutError::Empty);
        }
        if slots.len() > MAX_SLOTS {
            return Err(LayoutError::TooManySlots(slots.len()));
        }
        let mut table = Self {
            budget: Budget::of_whole_gpu(&profiles),
            profiles,
            rules,
            slots,
            states: Vec::new(),
            index: HashMap::new(),
            edges: Vec::new(),
            refused: BTreeSet::new(),
            reach: Vec::new(),
            live: (0, 0),
        };
        table.find_states()?;
        table.link();
        Ok(table)
    }

    /// Each part of a state is a state, so adding slots in ascending order meets every state once.
    fn find_states(&mut self) -> Result<(), LayoutError> {
        let count = self.slots.len();
        // Most pairs exclude each other: they are sorted out by one mask.
        let excludes: Vec<u64> = (0..count)
            .map(|slot| {
                let others = (0..count).filter(|&other| self.obstacle(1 << other, slot).is_some());
                others.fold(0, |mask, other| mask | 1 << other)
            })
            .collect();
        self.states.push(0);
        let mut next = 0;
        while next < self.states.len() {
            let state = self.states[next];
            let above = (u64::BITS - state.leading_zeros()) as usize;
            for (slot, mask) in excludes.iter().enumerate().skip(above) {
                if state & mask == 0 && self.obstacle(state, slot).is_none() {
                    self.states.push(state | 1 << slot);
                }
            }
            if self.states.len() > MAX_STATES {
                return Err(LayoutError::TooManyStates);
            }
            next += 1;
        }
        // Ascending by number of instances: every edge leads to a later index.
        self.states
            .sort_unstable_by_key(|state| (state.count_ones(), *state));
        self.index = self
            .states
            .iter()
            .enumerate()
            .map(|(index, &state)| (state, index))
            .collect();
        Ok(())
    }

    /// Edges from the states and the refusals, then reachability from the edges.
    fn link(&mut self) {
        self.edges = (0..self.states.len())
            .map(|from| {
                let state = self.states[from];
                let free = (0..self.slots.len()).filter(|slot| state >> slot & 1 == 0);
                free.filter_map(|slot| {
                    let to = *self.index.get(&(state | 1 << slot))?;
                    (!self.refused.contains(&(from, slot))).then_some(Edge { slot, to })
                })
                .collect()
            })
            .collect();
        self.measure();
    }

    fn measure(&mut self) {
        let total = self.states.len();
        let full: Vec<usize> = (0..total).filter(|&state| self.edges[state].is_empty()).collect();
        let words = full.len().div_ceil(64);
        let mut sets = vec![0_u64; total * words];
        for (bit, &state) in full.iter().enumerate() {
            sets[state * words + bit / 64] |= 1 << (bit % 64);
        }
        for from in (0..total).rev() {
            let (head, tail) = sets.split_at_mut((from + 1) * words);
            let own = &mut head[from * words..];
            for edge in &self.edges[from] {
                let offset = (edge.to - from - 1) * words;
                for (word, other) in own.iter_mut().zip(&tail[offset..offset + words]) {
                    *word |= other;
                }
            }
        }
        let count = |state: usize| {
            sets[state * words..(state + 1) * words]
                .iter()
                .map(|w| w.count_ones() as usize)
        };
        self.reach = (0..total).map(|state| count(state).sum()).collect();
        let mut live = vec![false; total];
        live[0] = true;
        let mut edges = 0;
        for from in 0..total {
            if live[from] {
                edges += self.edges[from].len();
                for edge in &self.edges[from] {
                    live[edge.to] = true;
                }
            }
        }
        self.live = (live.iter().filter(|live| **live).count(), edges);
    }

    /// The same GPU with one create taken out because its driver refused it in that state.
    #[must_use]
    pub fn without(&self, state: StateIndex, slot: Slot) -> Self {
        let mut table = self.clone();
        if let Some(slot) = self.slot_index(slot) {
            table.refused.insert((state.0, slot));
            table.edges[state.0].retain(|edge| edge.slot != slot);
            table.measure();
        }
        table
    }

    /// The same states without any edge: a GPU whose instances may be used and not changed.
    #[must_use]
    pub fn frozen(&self) -> Self {
        let mut table = self.clone();
        table.edges.iter_mut().for_each(Vec::clear);
        table.measure();
        table
    }
}

impl Budget {
    /// What the profiles with the most compute slices take: they are the whole GPU.
    fn of_whole_gpu(profiles: &[Profile]) -> Self {
        let compute = profiles.iter().map(|p| p.compute).max().unwrap_or(0);
        let mut engines = [0; 5];
        for profile in profiles.iter().filter(|p| p.compute == compute) {
            for (most, own) in engines.iter_mut().zip(profile.engines) {
                *most = own.max(*most);
            }
        }
        Self { compute, engines }
    }
}
