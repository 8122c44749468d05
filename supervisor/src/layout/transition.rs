//! The way from one layout to another: which slices go, which are made, and in which order.
//!
//! One reshape:
//!
//! 1. What stands is told as *pinned* slots (busy slices, foreign instances) and *idle* ones. No step ever
//!    touches a pinned slot.
//! 2. A [`Goal`] says what is wanted: exactly these places, these kinds wherever they fit, or one more of a
//!    profile. Of all layouts that meet it the one is taken that the fewest steps lead to, then the one
//!    that is worth most (to the scheduler by its rule of placement, else by the full layouts left in
//!    reach), then the one with the lowest places.
//! 3. The steps are ordered: what is wanted more of first, with the destroys that it waits for; then a create
//!    as soon as its place is free, else the next destroy that a create waits for. Every layout on the way
//!    is a state of the table, and planning again from it gives the steps that are left: so one may stop
//!    after any step and go on, or choose anew, from what stands.
//! 4. The driver may have refused creates. Where the plain order would need one of them, a breadth-first
//!    search over the states finds the shortest way round.
//!
//! A way without refusals has as few steps as can be: whatever stands and is not wanted must go, whatever
//! is wanted and does not stand must be made, and each step does one of these.

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};

use super::table::Table;
use super::{Misfit, ProfileIndex, Slot, StateIndex};

/// One step of a transition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Remove the idle slice there.
    Destroy(Slot),
    /// Make a slice there.
    Create(Slot),
}

/// What a transition is to lead to. Pinned slots stay in any case and need not be named.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// Exactly these slots beside the pinned ones.
    Layout(&'a [Slot]),
    /// So many of each kind beside the pinned ones, wherever they fit.
    Kinds(&'a [ProfileIndex]),
    /// One more of a profile; idle slices may go for it (fission when a larger one goes, fusion when several
    /// smaller do), but those of the kinds named are there afterwards, moved where that makes room.
    OneMore {
        /// Of which one more stands afterwards.
        profile: ProfileIndex,
        /// Kinds of idle slices, as often as they are to be there.
        keeping: &'a [ProfileIndex],
    },
}

/// Ordered steps between two layouts of one GPU.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transition {
    /// In this order, one at a time.
    pub steps: Vec<Step>,
    /// The layout at the end.
    pub to: StateIndex,
    /// Full layouts in reach at the end.
    pub reachable: usize,
}

/// Why there is no transition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoWay {
    /// What stands, or what is wanted beside the pinned slots, is no layout of this GPU.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// No layout that keeps the pinned slots meets the goal.
    #[error("no layout that keeps the busy and foreign slices has room for it")]
    NoRoom,
    /// Every way takes a create that the driver has refused.
    #[error("every way to it takes a create that the driver has refused")]
    Refused,
}

impl Table {
    /// The fewest steps from what stands to a goal; of equal ways the one to the most full layouts in reach.
    ///
    /// # Errors
    /// The goal cannot be met while the pinned slots stay; see [`NoWay`].
    pub fn transition(&self, pinned: &[Slot], idle: &[Slot], goal: Goal<'_>) -> Result<Transition, NoWay> {
        self.transition_by(pinned, idle, goal, &|to| Reverse(self.reachable(to)))
    }

    /// The fewest steps from what stands to a goal; of equal ways the one whose last state costs least.
    ///
    /// # Errors
    /// The goal cannot be met while the pinned slots stay; see [`NoWay`].
    pub fn transition_by<K: Ord + Copy>(
        &self,
        pinned: &[Slot],
        idle: &[Slot],
        goal: Goal<'_>,
        cost: &dyn Fn(StateIndex) -> K,
    ) -> Result<Transition, NoWay> {
        let standing: Vec<Slot> = pinned.iter().chain(idle).copied().collect();
        let from = self.bitset(self.state_of(&standing)?);
        let kept = self.bitset(self.state_of(pinned)?);
        match goal {
            Goal::Layout(slots) => {
                let wanted = slots.iter().filter(|slot| !pinned.contains(slot));
                let all: Vec<Slot> = pinned.iter().chain(wanted).copied().collect();
                let to = self.state_of(&all)?;
                self.way_to(from, kept, &[self.bitset(to)], 0, cost)
            }
            Goal::Kinds(wanted) => {
                let goals = self.layouts_of(kept, &self.counts(wanted)?, usize::eq);
                self.way_to(from, kept, &goals, 0, cost)
            }
            Goal::OneMore { profile, keeping } => {
                let have = self.counts(&idle.iter().map(|slot| slot.0).collect::<Vec<_>>())?;
                let mut wanted = self.counts(keeping)?;
                let count = wanted.get_mut(profile.0).ok_or(NoWay::NoRoom)?;
                // One that stands is not destroyed for one to be made: that is none more.
                *count = have[profile.0];
                let all_there = have.iter().zip(&wanted).all(|(have, wanted)| have >= wanted);
                wanted[profile.0] += 1;
                // Free ground: no way is shorter than one create.
                let now = self.state_of(&standing)?;
                let mut goals: Vec<u64> = Vec::new();
                if all_there {
                    goals.extend(self.edges_of(now, profile).map(|edge| self.states[edge.to]));
                }
                if goals.is_empty() && (!idle.is_empty() || !self.refused.is_empty()) {
                    goals = self.layouts_of(kept, &wanted, usize::ge);
                }
                self.way_to(from, kept, &goals, self.mask_of(profile), cost)
            }
        }
    }

    /// How often each profile is in a list.
    fn counts(&self, kinds: &[ProfileIndex]) -> Result<Vec<usize>, NoWay> {
        let mut counts = vec![0_usize; self.profiles().len()];
        for kind in kinds {
            *counts.get_mut(kind.0).ok_or(NoWay::NoRoom)? += 1;
        }
        Ok(counts)
    }

    /// The slots of a profile as bits.
    fn mask_of(&self, profile: ProfileIndex) -> u64 {
        self.slots_of(profile).fold(0, |mask, (slot, _)| mask | 1 << slot)
    }

    /// The layouts that hold the slots `kept`, and beside them of each kind a number that compares so with the
    /// wanted one.
    fn layouts_of(&self, kept: u64, wanted: &[usize], compare: fn(&usize, &usize) -> bool) -> Vec<u64> {
        // A kind as a mask, so that counting it is one instruction.
        let masks: Vec<(u64, usize)> = wanted
            .iter()
            .enumerate()
            .map(|(kind, &count)| (self.mask_of(ProfileIndex(kind)) & !kept, count))
            .collect();
        let is_it = |state: &u64| {
            state & kept == kept
                && masks
                    .iter()
                    .all(|(mask, count)| compare(&((state & mask).count_ones() as usize), count))
        };
        self.states.iter().copied().filter(is_it).collect()
    }

    /// The shortest way to one of these layouts; a create among `first` comes as early as it can.
    fn way_to<K: Ord + Copy>(
        &self,
        from: u64,
        kept: u64,
        goals: &[u64],
        first: u64,
        cost: &dyn Fn(StateIndex) -> K,
    ) -> Result<Transition, NoWay> {
        let steps_to = |to: u64| (from ^ to).count_ones();
        let Some(fewest) = goals.iter().map(|&to| steps_to(to)).min() else {
            return Err(NoWay::NoRoom);
        };
        let nearest = goals.iter().filter(|to| steps_to(**to) == fewest);
        let mut nearest: Vec<(K, u64)> = nearest
            .filter_map(|&to| Some((cost(self.state(to)?), to)))
            .collect();
        nearest.sort_unstable();
        let straight = nearest.iter().find_map(|&(_, to)| {
            let steps = self.straight(from, to, first);
            Some((to, steps.or_else(|| self.straight(from, to, 0))?))
        });
        let found = straight.or_else(|| self.round_about(from, kept, goals, cost));
        let (to, steps) = found.ok_or(NoWay::Refused)?;
        let to = self.state(to).ok_or(NoWay::Refused)?;
        Ok(Transition {
            steps,
            to,
            reachable: self.reachable(to),
        })
    }

    /// The way that undoes nothing: `None` where this order of its creates meets a refused one. Those among
    /// `first` come first, and creates are taken as early as they can be, so that a stop on the way leaves as
    /// much standing as it can.
    fn straight(&self, from: u64, to: u64, first: u64) -> Option<Vec<Step>> {
        let (mut now, mut gone, mut coming) = (from, from & !to, to & !from);
        let mut steps = Vec::with_capacity((gone | coming).count_ones() as usize);
        while gone | coming != 0 {
            let sought = match coming & first {
                0 => coming,
                some => some,
            };
            let next = ones(sought).find(|&slot| self.follow(now, Step::Create(self.slots[slot])).is_some());
            if let Some(slot) = next {
                steps.push(Step::Create(self.slots[slot]));
                now |= 1 << slot;
                coming &= !(1 << slot);
                continue;
            }
            let slot = self.next_to_go(gone, sought)?;
            steps.push(Step::Destroy(self.slots[slot]));
            now &= !(1 << slot);
            gone &= !(1 << slot);
        }
        Some(steps)
    }

    /// The slot whose going brings a create nearest: one in the way of the create that the fewest hinder.
    fn next_to_go(&self, gone: u64, coming: u64) -> Option<usize> {
        let hinder = |slot: usize| {
            let place = self.slots[slot].1;
            ones(gone).filter(move |&other| self.slots[other].1.overlaps(place))
        };
        let nearest = ones(coming)
            .map(|slot| (hinder(slot).count(), slot))
            .filter(|(count, _)| *count > 0)
            .min();
        // Without an overlap it is engines or compute slices that are short: any that goes gives some.
        nearest
            .and_then(|(_, slot)| hinder(slot).next())
            .or_else(|| ones(gone).next())
    }

    /// Breadth first over the states: the nearest goal, and among the nearest the one that costs least.
    fn round_about<K: Ord + Copy>(
        &self,
        from: u64,
        kept: u64,
        goals: &[u64],
        cost: &dyn Fn(StateIndex) -> K,
    ) -> Option<(u64, Vec<Step>)> {
        let goals: HashSet<u64> = goals.iter().copied().collect();
        // By state: how far it is, and the step that led to it from another.
        let mut depths: Vec<Option<usize>> = vec![None; self.states.len()];
        let mut came_by: Vec<Option<(StateIndex, Step)>> = vec![None; self.states.len()];
        let start = self.state(from)?;
        depths[start.0] = Some(0);
        let mut queue = VecDeque::from([start]);
        let mut best: Option<(usize, K, u64)> = None;
        while let Some(state) = queue.pop_front() {
            let (now, depth) = (self.bitset(state), depths[state.0]?);
            if best.is_some_and(|(least, ..)| depth > least) {
                break;
            }
            if goals.contains(&now) {
                let this = (depth, cost(state), now);
                best = Some(best.map_or(this, |known| known.min(this)));
                continue;
            }
            let destroys = ones(now & !kept).filter_map(|slot| {
                let next = self.state(now & !(1 << slot))?;
                Some((next, Step::Destroy(self.slots[slot])))
            });
            let creates = self.edges[state.0].iter();
            let creates = creates.map(|edge| (StateIndex(edge.to), Step::Create(self.slots[edge.slot])));
            for (next, step) in destroys.chain(creates) {
                if depths[next.0].is_none() {
                    depths[next.0] = Some(depth + 1);
                    came_by[next.0] = Some((state, step));
                    queue.push_back(next);
                }
            }
        }
        let (.., to) = best?;
        let (mut steps, mut at) = (Vec::new(), self.state(to)?);
        while let Some((before, step)) = came_by[at.0] {
            steps.push(step);
            at = before;
        }
        steps.reverse();
        Some((to, steps))
    }

    /// The set of slots after a step, if the table allows the step there.
    fn follow(&self, now: u64, step: Step) -> Option<u64> {
        match step {
            Step::Destroy(slot) => {
                let bit = 1 << self.slot_index(slot)?;
                (now & bit != 0).then_some(now & !bit)
            }
            Step::Create(slot) => {
                let to = self.after(self.state(now)?, self.slot_index(slot)?)?;
                Some(self.bitset(to))
            }
        }
    }

    fn state(&self, bits: u64) -> Option<StateIndex> {
        self.index.get(&bits).map(|&index| StateIndex(index))
    }
}

/// The bits that are set, ascending.
fn ones(bits: u64) -> impl Iterator<Item = usize> {
    let next = |rest: &u64| {
        let rest = rest & (rest - 1);
        (rest != 0).then_some(rest)
    };
    std::iter::successors((bits != 0).then_some(bits), next).map(|rest| rest.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests;
