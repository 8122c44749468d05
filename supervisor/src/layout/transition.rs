//! The way from one layout to another: which slices go, which are made, and in which order.
//!
//! One reshape:
//!
//! 1. What stands is told as *pinned* slots (busy slices, foreign instances) and *idle* ones. No step ever
//!    touches a pinned slot.
//! 2. A [`Goal`] says what is wanted: exactly these places, these kinds wherever they fit, or one more of a
//!    profile. Of all layouts that meet it the one is taken that the fewest steps lead to, then the one
//!    that keeps the most full layouts in reach, then the one with the lowest places.
//! 3. The steps are ordered: a create as soon as its place is free, else the next destroy that a create
//!    waits for. Every layout on the way is a state of the table, and planning again from it gives the
//!    steps that are left: so one may stop after any step and go on, or choose anew, from what stands.
//! 4. The driver may have refused creates. Where the plain order would need one of them, a breadth-first
//!    search over the states finds the shortest way round.
//!
//! A way without refusals has as few steps as can be: whatever stands and is not wanted must go, whatever
//! is wanted and does not stand must be made, and each step does one of these.

use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

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
    /// One more of a profile; idle slices may go for it.
    OneMore(ProfileIndex),
    /// One more of a profile, and of each idle slice one of its kind, moved where that makes room.
    OneMoreKeepingIdle(ProfileIndex),
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
    /// The fewest steps from what stands to a goal.
    ///
    /// # Errors
    /// The goal cannot be met while the pinned slots stay; see [`NoWay`].
    pub fn transition(&self, pinned: &[Slot], idle: &[Slot], goal: Goal<'_>) -> Result<Transition, NoWay> {
        let standing: Vec<Slot> = pinned.iter().chain(idle).copied().collect();
        let from = self.bitset(self.state_of(&standing)?);
        let kept = self.bitset(self.state_of(pinned)?);
        let mut kinds: Vec<ProfileIndex> = idle.iter().map(|slot| slot.0).collect();
        match goal {
            Goal::Layout(slots) => {
                let wanted = slots.iter().filter(|slot| !pinned.contains(slot));
                let all: Vec<Slot> = pinned.iter().chain(wanted).copied().collect();
                let to = self.state_of(&all)?;
                self.way_to(from, kept, &[self.bitset(to)])
            }
            Goal::Kinds(wanted) => self.way_to(from, kept, &self.layouts_of(kept, wanted)),
            Goal::OneMoreKeepingIdle(profile) => {
                kinds.push(profile);
                self.way_to(from, kept, &self.layouts_of(kept, &kinds))
            }
            Goal::OneMore(profile) => {
                // One that stands is not destroyed for one to be made: that is none more.
                let (same, other): (Vec<Slot>, Vec<Slot>) = idle.iter().partition(|slot| slot.0 == profile);
                let stay = [pinned, &same].concat();
                let plan = self.plan_for(&stay, &other, profile).ok_or(NoWay::NoRoom)?;
                let gone = plan.destroy.iter().map(|&index| other[index]);
                let mut steps: Vec<Step> = gone.map(Step::Destroy).collect();
                steps.push(Step::Create((profile, plan.placement)));
                let now = steps.iter().try_fold(from, |now, step| self.follow(now, *step));
                let to = now.and_then(|now| self.state(now)).ok_or(NoWay::Refused)?;
                Ok(Transition {
                    steps,
                    to,
                    reachable: plan.reachable,
                })
            }
        }
    }

    /// The layouts that hold the slots `kept` and beside them exactly these kinds.
    fn layouts_of(&self, kept: u64, kinds: &[ProfileIndex]) -> Vec<u64> {
        let mut wanted = vec![0_usize; self.profiles().len()];
        for kind in kinds {
            match wanted.get_mut(kind.0) {
                Some(count) => *count += 1,
                None => return Vec::new(),
            }
        }
        // A state as a mask for each profile, so that counting a kind is one instruction.
        let mut masks = vec![0_u64; wanted.len()];
        for (bit, slot) in self.slots.iter().enumerate() {
            masks[slot.0.0] |= 1 << bit;
        }
        let most = kept.count_ones() as usize + kinds.len();
        let is_it = |state: u64| {
            state & kept == kept
                && state.count_ones() as usize == most
                && masks
                    .iter()
                    .zip(&wanted)
                    .all(|(mask, count)| (state & !kept & mask).count_ones() as usize == *count)
        };
        self.states
            .iter()
            .copied()
            .filter(|state| is_it(*state))
            .collect()
    }

    /// The shortest way to one of these layouts.
    fn way_to(&self, from: u64, kept: u64, goals: &[u64]) -> Result<Transition, NoWay> {
        let rank = |to: u64| {
            let reachable = self.state(to).map_or(0, |state| self.reachable(state));
            ((from ^ to).count_ones(), Reverse(reachable), to)
        };
        let mut ranked: Vec<_> = goals.iter().map(|&to| rank(to)).collect();
        ranked.sort_unstable();
        let Some(&(fewest, ..)) = ranked.first() else {
            return Err(NoWay::NoRoom);
        };
        let nearest = ranked.iter().take_while(|goal| goal.0 == fewest);
        let straight = nearest
            .into_iter()
            .find_map(|goal| Some((goal.2, self.straight(from, goal.2)?)));
        let found = straight.or_else(|| self.round_about(from, kept, goals));
        let (to, steps) = found.ok_or(NoWay::Refused)?;
        let to = self.state(to).ok_or(NoWay::Refused)?;
        Ok(Transition {
            steps,
            to,
            reachable: self.reachable(to),
        })
    }

    /// The way that undoes nothing: `None` where each order of its creates meets a refused one. Creates are
    /// taken as early as they can be, so that a stop on the way leaves as much standing as it can.
    fn straight(&self, from: u64, to: u64) -> Option<Vec<Step>> {
        let (mut now, mut gone, mut coming) = (from, from & !to, to & !from);
        let mut steps = Vec::with_capacity((gone | coming).count_ones() as usize);
        while gone | coming != 0 {
            let next = ones(coming).find(|&slot| self.follow(now, Step::Create(self.slots[slot])).is_some());
            if let Some(slot) = next {
                steps.push(Step::Create(self.slots[slot]));
                now |= 1 << slot;
                coming &= !(1 << slot);
                continue;
            }
            let slot = self.next_to_go(gone, coming)?;
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

    /// Breadth first over the states: the nearest goal, and among the nearest the one with the most full
    /// layouts in reach.
    fn round_about(&self, from: u64, kept: u64, goals: &[u64]) -> Option<(u64, Vec<Step>)> {
        let mut came_by: HashMap<u64, Option<(u64, Step)>> = HashMap::from([(from, None)]);
        let mut depths = HashMap::from([(from, 0_usize)]);
        let mut queue = VecDeque::from([from]);
        let mut best: Option<(usize, Reverse<usize>, u64)> = None;
        while let Some(now) = queue.pop_front() {
            let depth = depths[&now];
            if best.is_some_and(|(least, ..)| depth > least) {
                break;
            }
            if goals.contains(&now) {
                let reachable = self.state(now).map_or(0, |state| self.reachable(state));
                let found = (depth, Reverse(reachable), now);
                best = Some(best.map_or(found, |known| known.min(found)));
                continue;
            }
            let destroys = ones(now & !kept).map(|slot| Step::Destroy(self.slots[slot]));
            let state = self.state(now)?;
            let creates = self.edges[state.0]
                .iter()
                .map(|edge| Step::Create(self.slots[edge.slot]));
            for step in destroys.chain(creates) {
                let Some(next) = self.follow(now, step) else {
                    continue;
                };
                if let std::collections::hash_map::Entry::Vacant(new) = came_by.entry(next) {
                    new.insert(Some((now, step)));
                    depths.insert(next, depth + 1);
                    queue.push_back(next);
                }
            }
        }
        let (.., to) = best?;
        let (mut steps, mut at) = (Vec::new(), to);
        while let Some((before, step)) = came_by[&at] {
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
