//! Why a slice cannot be had now: the smallest set of slices that would have to go, whose they are, and when.
//!
//! 1. [`Table::explain`] is given all slices that stand, each with its [`Holding`], and the profile wanted.
//! 2. For each placement of the profile every set of standing slices is tried: which of those whose going
//!    makes the create possible can go soonest, and is smallest.
//! 3. The best of these over all placements is the answer, with [`When`] it comes true.

use std::cmp::Reverse;

use super::table::Table;
use super::{Misfit, Obstacle, Placement, ProfileIndex, Slot, StateIndex};

/// Slices that stand on one GPU, at most, for every set of them to be tried; no known grid holds more than seven.
const MOST: usize = 16;

/// Whose a slice is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Holding {
    /// Ours, without a lease: destroyed when its room is needed.
    Idle,
    /// Leased, until the forecast end where there is one.
    Busy {
        /// Seconds from now.
        ends: Option<f64>,
    },
    /// Not ours; never touched.
    Foreign,
}

/// A slice that stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Kind and place.
    pub slot: Slot,
    /// Whose it is.
    pub holding: Holding,
}

/// When a placement can be had.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// At once: only idle slices have to go, or none.
    Now,
    /// In so many seconds, when the last of the busy slices ends, by forecast.
    In(f64),
    /// When busy slices end, and of some nobody knows when.
    Unknown,
    /// When somebody else removes foreign slices.
    Foreign,
    /// Not even on the empty GPU.
    Never,
}

/// One placement of the profile, and what has to go for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Where.
    pub placement: Placement,
    /// The first rule that a create there breaks now; `None` when it is possible.
    pub obstacle: Option<Obstacle>,
    /// The slices that have to go, as indices into those given; the smallest such set that can go soonest.
    pub blockers: Vec<usize>,
    /// When it can be had.
    pub when: When,
    /// Full layouts in reach once it stands and those have gone; 0 when it never can.
    pub reachable: usize,
}

/// Foreign slices, busy ones without a known end, the last end, busy ones, idle ones: less is sooner.
type Rank = (usize, usize, f64, usize, usize);

impl Table {
    /// Each placement of a profile with what has to go for it, the soonest and smallest first, then that which leaves
    /// most full layouts in reach. The first is the answer; nothing has to go for it when the slice can be created
    /// as things are.
    ///
    /// # Errors
    /// The standing slices cannot stand together.
    pub fn explain(&self, standing: &[Standing], profile: ProfileIndex) -> Result<Vec<Way>, Misfit> {
        let slots: Vec<Slot> = standing.iter().map(|one| one.slot).collect();
        let state = self.state_of(&slots)?;
        let mut ways: Vec<(Rank, Way)> = self
            .slots_of(profile)
            .map(|(slot, placement)| self.way(state, standing, slot, placement))
            .collect();
        ways.sort_by(|(a, one), (b, other)| {
            let place = |way: &Way| (Reverse(way.reachable), way.placement);
            compare(a, b).then_with(|| place(one).cmp(&place(other)))
        });
        Ok(ways.into_iter().map(|(_, way)| way).collect())
    }

    fn way(
        &self,
        state: StateIndex,
        standing: &[Standing],
        slot: usize,
        placement: Placement,
    ) -> (Rank, Way) {
        let standing = &standing[..standing.len().min(MOST)];
        let mut best: Option<(Rank, u32, StateIndex)> = None;
        for set in 0..1_u32 << standing.len() {
            let gone = || members(set, standing).map(|(_, one)| one);
            let rank = rank(gone());
            if best.is_none_or(|(least, ..)| compare(&rank, &least).is_lt())
                && let Some(after) = self.without_these(state, gone(), slot)
            {
                best = Some((rank, set, after));
            }
        }
        let mut way = Way {
            placement,
            obstacle: self.blocked(state, slot),
            blockers: Vec::new(),
            when: When::Never,
            reachable: 0,
        };
        let Some((rank, set, after)) = best else {
            return ((usize::MAX, 0, 0.0, 0, 0), way);
        };
        way.blockers = members(set, standing).map(|(index, _)| index).collect();
        way.reachable = self.reachable(after);
        way.when = match rank {
            (1.., ..) => When::Foreign,
            (0, 1.., ..) => When::Unknown,
            (0, 0, last, 1.., _) => When::In(last),
            _ => When::Now,
        };
        (rank, way)
    }

    /// Where the create leads once these have gone, if it is possible then.
    fn without_these<'a>(
        &self,
        state: StateIndex,
        gone: impl Iterator<Item = &'a Standing>,
        slot: usize,
    ) -> Option<StateIndex> {
        let kept = gone
            .filter_map(|one| self.slot_index(one.slot))
            .fold(self.bitset(state), |set, bit| set & !(1 << bit));
        self.after(StateIndex(*self.index.get(&kept)?), slot)
    }
}

fn members(set: u32, standing: &[Standing]) -> impl Iterator<Item = (usize, &Standing)> {
    standing
        .iter()
        .enumerate()
        .filter(move |(index, _)| set >> index & 1 == 1)
}

fn rank<'a>(gone: impl Iterator<Item = &'a Standing>) -> Rank {
    let (mut foreign, mut unknown, mut last, mut busy, mut idle) = (0, 0, 0.0_f64, 0, 0);
    for one in gone {
        match one.holding {
            Holding::Idle => idle += 1,
            Holding::Foreign => foreign += 1,
            Holding::Busy { ends } => {
                busy += 1;
                match ends {
                    Some(ends) => last = last.max(ends),
                    None => unknown += 1,
                }
            }
        }
    }
    (foreign, unknown, last, busy, idle)
}

fn compare(a: &Rank, b: &Rank) -> std::cmp::Ordering {
    (a.0, a.1)
        .cmp(&(b.0, b.1))
        .then_with(|| a.2.total_cmp(&b.2))
        .then_with(|| (a.3, a.4).cmp(&(b.3, b.4)))
}

#[cfg(test)]
mod tests {
    use super::super::{Rules, samples};
    use super::*;

    const UNTIL_90: Holding = Holding::Busy { ends: Some(90.0) };
    const UNTIL_30: Holding = Holding::Busy { ends: Some(30.0) };
    const BUSY: Holding = Holding::Busy { ends: None };

    fn first(table: &Table, standing: &[(&str, Holding)], wanted: &str) -> (u32, Vec<usize>, When) {
        let standing: Vec<Standing> = standing
            .iter()
            .map(|&(name, holding)| Standing {
                slot: table.slot_named(name).unwrap(),
                holding,
            })
            .collect();
        let ways = table
            .explain(&standing, table.profile_named(wanted).unwrap())
            .unwrap();
        let best = ways[0].clone();
        (best.placement.start, best.blockers, best.when)
    }

    #[test]
    fn idle_slices_go_before_busy_ones_and_those_before_foreign_ones() {
        let table = samples::a100_base();
        let ask = |low, high| first(&table, &[("1g.5gb@0", low), ("1g.5gb@4", high)], "3g.20gb");
        assert_eq!(ask(BUSY, Holding::Idle), (4, vec![1], When::Now));
        assert_eq!(ask(UNTIL_90, UNTIL_30), (4, vec![1], When::In(30.0)));
        assert_eq!(ask(UNTIL_90, BUSY), (0, vec![0], When::In(90.0)));
        assert_eq!(ask(BUSY, Holding::Foreign), (0, vec![0], When::Unknown));
        let foreign = ask(Holding::Foreign, Holding::Foreign);
        assert_eq!((foreign.1.len(), foreign.2), (1, When::Foreign));
    }

    #[test]
    fn the_smallest_set_is_named_and_not_all_that_stand() {
        let table = samples::a100_base();
        let standing = [
            ("1g.5gb@0", BUSY),
            ("1g.5gb@1", BUSY),
            ("1g.5gb@2", BUSY),
            ("2g.10gb@4", BUSY),
        ];
        assert_eq!(first(&table, &standing, "3g.20gb"), (4, vec![3], When::Unknown));
        let whole = first(&table, &standing, "7g.40gb");
        assert_eq!(whole, (0, vec![0, 1, 2, 3], When::Unknown));
    }

    #[test]
    fn the_last_of_several_ends_counts() {
        let table = samples::a100_base();
        let standing = [
            ("1g.5gb@4", UNTIL_30),
            ("1g.5gb@5", UNTIL_90),
            ("4g.20gb@0", BUSY),
        ];
        assert_eq!(
            first(&table, &standing, "3g.20gb"),
            (4, vec![0, 1], When::In(90.0))
        );
    }

    #[test]
    fn what_is_possible_has_nothing_in_the_way() {
        let table = samples::a100_base();
        let best = first(&table, &[("4g.20gb@0", BUSY)], "3g.20gb");
        assert_eq!(best, (4, vec![], When::Now));
    }

    /// A slice elsewhere on the grid can hold the engine that is wanted.
    #[test]
    fn an_engine_is_freed_by_the_slice_that_has_it() {
        let table = Table::build(samples::a30_24gb(), Rules::default()).unwrap();
        let standing = [("1g.6gb@0", BUSY), ("1g.6gb+me@1", BUSY)];
        assert_eq!(
            first(&table, &standing, "2g.12gb+me"),
            (2, vec![1], When::Unknown)
        );
    }

    #[test]
    fn a_create_that_the_driver_never_allows_is_never_had() {
        let table = samples::a100_base();
        let seven = table.slot_named("7g.40gb@0").unwrap();
        let refused = table.without(Table::EMPTY, seven);
        let best = first(&refused, &[("1g.5gb@0", Holding::Idle)], "7g.40gb");
        assert_eq!(best, (0, vec![], When::Never));
    }

    #[test]
    fn the_answer_makes_room_for_every_profile_in_every_state() {
        let table = samples::a30_base();
        for state in table.indices() {
            let slots = table.taken(state);
            let standing: Vec<Standing> = slots
                .iter()
                .map(|&slot| Standing { slot, holding: BUSY })
                .collect();
            for profile in 0..table.profiles().len() {
                let ways = table.explain(&standing, ProfileIndex(profile)).unwrap();
                let best = &ways[0];
                let kept = (0..slots.len()).filter(|index| !best.blockers.contains(index));
                let mut after: Vec<Slot> = kept.map(|index| slots[index]).collect();
                after.push((ProfileIndex(profile), best.placement));
                table.state_of(&after).unwrap();
                let possible = table.edges_of(state, ProfileIndex(profile)).next().is_some();
                assert_eq!(best.blockers.is_empty(), possible);
            }
        }
    }
}
