//! The state table: all states of one GPU as bit sets over its slots, with edges and reachability.

use std::collections::{BTreeSet, HashMap};

use super::{Misfit, Obstacle, Placement, Profile, ProfileIndex, Rules, Slot};

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
}

/// Index of a state in its [`Table`]. A table and those made from it by [`Table::without`] share indices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct StateIndex(pub(super) usize);

/// An edge: creating `slot` leads to state `to`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) slot: usize,
    pub(super) to: usize,
}

/// Every state of one GPU, with what can still be reached from it.
#[derive(Clone, Debug)]
pub struct Table {
    profiles: Vec<Profile>,
    rules: Rules,
    slots: Vec<Slot>,
    /// What all instances together may take: engines and compute slices of the whole GPU.
    budget: Budget,
    states: Vec<u64>,
    index: HashMap<u64, usize>,
    edges: Vec<Vec<Edge>>,
    /// Edges that the driver refused, as state and slot.
    refused: BTreeSet<(usize, usize)>,
    /// Full layouts within reach, per state.
    reach: Vec<usize>,
    /// States within reach of the empty one, and the edges among them.
    live: (usize, usize),
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Budget {
    pub(super) compute: u32,
    pub(super) engines: [u32; 5],
}

impl Table {
    /// The state with no instance.
    pub const EMPTY: StateIndex = StateIndex(0);

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
        let mut excludes = vec![0_u64; count];
        for slot in 0..count {
            for other in (0..count).filter(|&other| self.obstacle(1 << other, slot).is_some()) {
                excludes[slot] |= 1 << other;
            }
        }
        self.states.push(0);
        let mut next = 0;
        while next < self.states.len() {
            let state = self.states[next];
            let above = (u64::BITS - state.leading_zeros()) as usize;
            for slot in above..count {
                if state & excludes[slot] == 0 && self.obstacle(state, slot).is_none() {
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

    /// The create of a profile that keeps the most full layouts in reach, ties to the lowest start; with
    /// the reachability after it.
    #[must_use]
    pub fn best_placement(&self, state: StateIndex, profile: ProfileIndex) -> Option<(Placement, usize)> {
        let creates = self
            .placements(state)
            .into_iter()
            .filter(|create| create.0 == profile);
        creates
            .map(|(_, placement, reachable)| (placement, reachable))
            .min_by_key(|&(placement, reachable)| (std::cmp::Reverse(reachable), placement))
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

#[cfg(test)]
mod tests {
    use super::super::{base, samples};
    use super::*;
    use std::time::Instant;

    fn counts(profiles: Vec<Profile>, rules: Rules) -> (usize, usize, usize) {
        let table = Table::build(profiles, rules).unwrap();
        (table.states(), table.full_layouts(), table.edges())
    }

    #[test]
    fn published_counts_of_each_grid() {
        let newest = Rules::default;
        let a100 = samples::a100_40gb();
        let some = |names: &[&str]| {
            let kept = a100
                .iter()
                .filter(|p| !p.is_variant() || names.contains(&p.name.as_str()));
            let kept = kept.filter(|p| p.name != "1g.10gb" || names.contains(&"1g.10gb"));
            kept.cloned().collect::<Vec<_>>()
        };
        assert_eq!(counts(base(&a100), newest()), (298, 19, 1005));
        assert_eq!(counts(base(&a100), Rules::for_driver(470)), (297, 18, 1003));
        assert_eq!(counts(some(&["1g.10gb"]), newest()), (723, 78, 2585));
        assert_eq!(counts(some(&["1g.5gb+me"]), newest()), (1089, 67, 4123));
        assert_eq!(counts(a100.clone(), newest()), (2319, 239, 9129));
        assert_eq!(counts(samples::h100_80gb(), newest()), (2319, 239, 9129));
        assert_eq!(counts(base(&samples::a30_24gb()), newest()), (26, 5, 51));
        assert_eq!(counts(samples::a30_24gb(), newest()), (76, 17, 171));
        assert_eq!(counts(base(&samples::rtx_pro_6000()), newest()), (26, 5, 51));
        assert_eq!(counts(samples::rtx_pro_6000(), newest()), (717, 302, 2112));
    }

    /// NVML's count is wrong on the A30 (mig-parted keeps a table of its own for that GPU).
    #[test]
    fn counts_follow_from_places_and_engines() {
        let table = Table::build(samples::a30_24gb(), Rules::default()).unwrap();
        let most = |name: &str| {
            let profile = table.profile_named(name).unwrap();
            let of = |state| {
                table
                    .taken(StateIndex(state))
                    .iter()
                    .filter(|slot| slot.0 == profile)
                    .count()
            };
            (0..table.states()).map(of).max().unwrap()
        };
        assert_eq!(
            ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"].map(most),
            [4, 1, 2, 1, 1]
        );
    }

    #[test]
    fn reachability_after_the_first_instance() {
        let table = samples::a100_base();
        for (slot, reachable) in [
            ("1g.5gb@6", 12),
            ("1g.5gb@0", 6),
            ("2g.10gb@0", 6),
            ("3g.20gb@4", 6),
            ("3g.20gb@0", 3),
            ("4g.20gb@0", 3),
            ("7g.40gb@0", 1),
        ] {
            let state = table.state_of(&[table.slot_named(slot).unwrap()]).unwrap();
            assert_eq!(table.reachable(state), reachable, "{slot}");
        }
    }

    #[test]
    fn seven_small_ones_go_where_most_stays_open() {
        let table = samples::a100_base();
        let small = table.profile_named("1g.5gb").unwrap();
        let mut taken = Vec::new();
        let mut seen = Vec::new();
        while let Some((place, reachable)) = table.best_placement(table.state_of(&taken).unwrap(), small) {
            taken.push((small, place));
            seen.push((place.start, reachable));
        }
        assert_eq!(seen, [(6, 12), (4, 6), (5, 6), (0, 2), (1, 2), (2, 1), (3, 1)]);
    }

    /// Builds the answer from the written rules alone, over every subset of the 18 base slots.
    #[test]
    fn all_subsets_agree_with_the_written_rules() {
        let profiles = base(&samples::a100_40gb());
        let table = Table::build(profiles.clone(), Rules::default()).unwrap();
        let slots: Vec<Slot> = (0..profiles.len())
            .flat_map(|p| {
                profiles[p]
                    .placements
                    .iter()
                    .map(move |&at| (ProfileIndex(p), at))
            })
            .collect();
        let chosen = |set: u32| (0..slots.len()).filter(move |bit| set >> bit & 1 == 1);
        let legal = |set: u32| {
            let mut units = [false; 8];
            let mut compute = 0;
            for bit in chosen(set) {
                let (profile, at) = slots[bit];
                compute += profiles[profile.0].compute;
                for unit in at.start..at.start + at.size {
                    if std::mem::replace(&mut units[unit as usize], true) {
                        return false;
                    }
                }
            }
            compute <= 7
        };
        let sets: Vec<u32> = (0..1_u32 << slots.len()).filter(|&set| legal(set)).collect();
        let full: Vec<u32> = sets
            .iter()
            .copied()
            .filter(|set| (0..slots.len()).all(|bit| set >> bit & 1 == 1 || !legal(set | 1 << bit)))
            .collect();
        assert_eq!(sets.len(), table.states());
        for &set in &sets {
            let taken: Vec<Slot> = chosen(set).map(|bit| slots[bit]).collect();
            let state = table.state_of(&taken).unwrap();
            let reach = full.iter().filter(|&&layout| layout & set == set).count();
            assert_eq!(table.reachable(state), reach, "{taken:?}");
            let mut creates: Vec<Slot> = table.placements(state).iter().map(|c| (c.0, c.1)).collect();
            let mut expected: Vec<Slot> = (0..slots.len())
                .filter(|bit| set >> bit & 1 == 0 && legal(set | 1 << bit))
                .map(|bit| slots[bit])
                .collect();
            creates.sort_unstable();
            expected.sort_unstable();
            assert_eq!(creates, expected, "{taken:?}");
        }
    }

    #[test]
    fn refused_creates_leave_the_table_of_an_old_driver() {
        let table = samples::a100_base();
        let four = table.slot_named("4g.20gb@0").unwrap();
        let three = table.slot_named("3g.20gb@4").unwrap();
        let after_four = table.state_of(&[four]).unwrap();
        let once = table.without(after_four, three);
        assert_eq!(once.edges(), 1004);
        let both = once.without(table.state_of(&[three]).unwrap(), four);
        assert_eq!(
            (both.states(), both.full_layouts(), both.edges()),
            (297, 18, 1003)
        );
        assert!(
            both.placements(after_four)
                .iter()
                .all(|create| (create.0, create.1) != three)
        );
    }

    #[test]
    fn a_frozen_gpu_has_states_and_no_creates() {
        let table = samples::a100_base().frozen();
        let slot = table.slot_named("3g.20gb@4").unwrap();
        let state = table.state_of(&[slot]).unwrap();
        assert!(table.placements(state).is_empty());
        assert_eq!(table.taken(state), [slot]);
    }

    #[test]
    fn ties_of_memory_go_to_more_multiprocessors() {
        let table = samples::a100_base();
        let names = |bytes| {
            table
                .tightest(bytes)
                .iter()
                .map(|p| table.profile(*p).name.as_str())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(0), ["1g.5gb", "2g.10gb", "4g.20gb", "3g.20gb", "7g.40gb"]);
        assert_eq!(names(10 << 30), ["4g.20gb", "3g.20gb", "7g.40gb"]);
        assert_eq!(names(40 << 30), [""; 0]);
        assert_eq!(table.profile(table.full()).name, "7g.40gb");
    }

    #[test]
    fn impossible_gpus_are_refused_with_the_reason() {
        let mut free = samples::a100_40gb();
        free.truncate(1);
        free[0].placements = (0..70).map(|start| Placement { start, size: 1 }).collect();
        assert_eq!(
            Table::build(free.clone(), Rules::default()).unwrap_err(),
            LayoutError::TooManySlots(70)
        );
        free[0].placements.truncate(40);
        free[0].compute = 0;
        free[0].engines = [0; 5];
        assert_eq!(
            Table::build(free.clone(), Rules::default()).unwrap_err(),
            LayoutError::TooManyStates
        );
        free[0].placements = vec![Placement { start: 3, size: 0 }];
        assert_eq!(
            Table::build(free, Rules::default()).unwrap_err().to_string(),
            "profile 1g.5gb has a placement of size 0 at 3"
        );
        assert_eq!(
            Table::build(Vec::new(), Rules::default()).unwrap_err(),
            LayoutError::Empty
        );
    }

    /// The bound is generous for an unoptimised build on a loaded machine; the bench has the figure.
    #[test]
    fn the_largest_table_is_built_at_once() {
        let start = Instant::now();
        Table::build(samples::a100_40gb(), Rules::default()).unwrap();
        assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
    }
}
