//! List schedules over reshaped GPUs: how long a given order of tasks with given profiles takes.
//!
//! A plan is a list: each task has a place in it and a way to run, which is a profile on a kind of GPU. Whenever
//! something ends, the list is gone through from the front and each task starts whose profile can be made beside
//! what runs, idle slices being reshaped for it. Running jobs stay where they are until they end. One
//! evaluation costs some microseconds, so that thousands of plans can be tried.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

/// What can be created in each state of a table, as small integers.
#[derive(Debug)]
pub(super) struct Grid {
    slots: Vec<Slot>,
    profiles: usize,
    /// Creates of each state and profile: slot and state after it, best first.
    creates: Vec<Vec<(u8, u16)>>,
    /// The state without a slot, by state and slot; the state itself where it is not taken.
    without: Vec<u16>,
    /// Slots that overlap a slot, itself left out.
    overlaps: Vec<u64>,
}

impl Grid {
    pub(super) fn new(table: &Table) -> Self {
        let mut slots: Vec<Slot> = Vec::new();
        for (index, profile) in table.profiles().iter().enumerate() {
            slots.extend(
                profile
                    .placements
                    .iter()
                    .map(|&place| (ProfileIndex(index), place)),
            );
        }
        let states = table.all_states();
        let profiles = table.profiles().len();
        let at = |slot: Slot| slots.iter().position(|known| *known == slot).unwrap_or(0);
        let mut creates = vec![Vec::new(); states * profiles];
        let mut without: Vec<u16> = Vec::new();
        for state in 0..states {
            without.extend(std::iter::repeat_n(small(state), slots.len()));
        }
        for state in 0..states {
            let mut found: Vec<(Slot, StateIndex)> = table.steps(StateIndex::from_usize(state)).collect();
            found.sort_by_key(|&(slot, after)| (Reverse(table.reachable(after)), slot.1));
            for (slot, after) in found {
                let bit = at(slot);
                creates[state * profiles + slot.0.0]
                    .push((u8::try_from(bit).unwrap_or(u8::MAX), small(after.to_usize())));
                without[after.to_usize() * slots.len() + bit] = small(state);
            }
        }
        let mask = |slot: &Slot| {
            let others = slots
                .iter()
                .enumerate()
                .filter(|(_, other)| *other != slot && other.1.overlaps(slot.1));
            others.fold(0_u64, |mask, (bit, _)| mask | 1 << bit)
        };
        let overlaps = slots.iter().map(mask).collect();
        Self {
            slots,
            profiles,
            creates,
            without,
            overlaps,
        }
    }

    pub(super) fn bit(&self, slot: Slot) -> Option<u8> {
        let at = self.slots.iter().position(|known| *known == slot)?;
        u8::try_from(at).ok()
    }

    pub(super) fn slot(&self, bit: u8) -> Slot {
        self.slots[usize::from(bit)]
    }

    fn creates(&self, state: u16, profile: u8) -> &[(u8, u16)] {
        &self.creates[usize::from(state) * self.profiles + usize::from(profile)]
    }

    fn with(&self, state: u16, bit: u8) -> Option<u16> {
        let profile = self.slots[usize::from(bit)].0.0;
        let creates = &self.creates[usize::from(state) * self.profiles + profile];
        creates
            .iter()
            .find(|create| create.0 == bit)
            .map(|create| create.1)
    }

    fn without(&self, state: u16, bit: u8) -> u16 {
        self.without[usize::from(state) * self.slots.len() + usize::from(bit)]
    }
}

fn small(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// A GPU at the moment of planning, with nothing of the tasks on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) kind: u8,
    /// State of what cannot be moved.
    pub(super) state: u16,
    /// Idle slices that stand.
    pub(super) standing: u64,
    /// Seconds until its driver can create or destroy.
    pub(super) driver: f64,
}

/// One way to run a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) kind: u8,
    pub(super) profile: u8,
    /// Seconds to its end.
    pub(super) seconds: f64,
}

/// Something to be run, or that runs.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) weight: f64,
    /// From the least to the most of a GPU, each faster than the one before.
    pub(super) ways: Vec<Way>,
    /// Where it runs: GPU, slot, seconds to its end there.
    pub(super) runs: Option<(u16, u8, f64)>,
    /// It does not start before [`Shop::opens`].
    pub(super) held: bool,
}

/// A plan: the order of the tasks that wait, and the way of each task; [`STAY`] for one that runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct List {
    pub(super) order: Vec<u16>,
    pub(super) way: Vec<u8>,
}

/// The way of a running task.
pub(super) const STAY: u8 = u8::MAX;

/// What a plan is to make small.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Goal {
    /// The end of the last task.
    Makespan,
    /// The weighted sum of all ends.
    Completion,
}

/// A start at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) task: u16,
    pub(super) gpu: u16,
    pub(super) bit: u8,
}

/// The tasks, the GPUs, and room to evaluate plans in.
#[derive(Debug)]
pub(super) struct Shop<'a> {
    pub(super) grids: &'a [&'a Grid],
    pub(super) places: Vec<Place>,
    pub(super) tasks: Vec<Task>,
    /// Seconds to create and to destroy a slice.
    pub(super) create: f64,
    pub(super) destroy: f64,
    /// Tasks start in the order of the list only.
    pub(super) strict: bool,
    pub(super) goal: Goal,
    /// Seconds until held tasks may start.
    pub(super) opens: f64,
    now: Vec<Place>,
    driver: Vec<f64>,
    ends: BinaryHeap<Reverse<(u64, u16, u8)>>,
    pending: Vec<u16>,
    /// Starts at time 0 of the plan evaluated last.
    pub(super) starts: Vec<Start>,
    /// How often a place was looked for.
    #[cfg(test)]
    looked: std::cell::Cell<usize>,
}

impl<'a> Shop<'a> {
    pub(super) fn new(grids: &'a [&'a Grid], places: Vec<Place>, tasks: Vec<Task>, goal: Goal) -> Self {
        Self {
            grids,
            now: places.clone(),
            driver: vec![0.0; places.len()],
            places,
            tasks,
            create: 0.0,
            destroy: 0.0,
            strict: false,
            goal,
            opens: 0.0,
            ends: BinaryHeap::new(),
            pending: Vec::new(),
            starts: Vec::new(),
            #[cfg(test)]
            looked: std::cell::Cell::default(),
        }
    }

    /// The cost of a plan; infinite when it leads nowhere. A plan that is seen to cost more than `limit` is
    /// given up: its cost is infinite too.
    pub(super) fn cost(&mut self, list: &List, limit: f64) -> f64 {
        self.now.clone_from(&self.places);
        let driver = self.driver.iter_mut().zip(&self.places);
        driver.for_each(|(driver, place)| *driver = place.driver);
        self.ends.clear();
        self.starts.clear();
        self.pending.clear();
        let (mut sum, mut last) = (0.0, 0.0_f64);
        for task in &self.tasks {
            let Some((gpu, bit, seconds)) = task.runs else {
                continue;
            };
            let place = &mut self.now[usize::from(gpu)];
            let Some(after) = self.grids[usize::from(place.kind)].with(place.state, bit) else {
                return f64::INFINITY;
            };
            place.state = after;
            self.ends.push(Reverse((key(seconds), gpu, bit)));
            sum += task.weight * seconds;
            last = last.max(seconds);
        }
        self.pending.extend_from_slice(&list.order);
        let mut time = 0.0;
        loop {
            let mut held = false;
            if !self.pending.is_empty() {
                let mut kept = 0;
                let mut stopped = false;
                // What has no room now has none after further starts either.
                let mut full = Full::default();
                for at in 0..self.pending.len() {
                    let index = self.pending[at];
                    let way = list.way[usize::from(index)];
                    let wanted = self.tasks[usize::from(index)].ways[usize::from(way)];
                    let early = time < self.opens && self.tasks[usize::from(index)].held;
                    let chosen = if early || stopped || full.has(wanted) {
                        None
                    } else {
                        self.place(wanted)
                    };
                    match chosen {
                        Some((gpu, bit, after)) => {
                            let end = self.start(wanted, gpu, bit, after, time);
                            let task = &self.tasks[usize::from(index)];
                            sum += task.weight * end;
                            last = last.max(end);
                            if time == 0.0 {
                                self.starts.push(Start {
                                    task: index,
                                    gpu,
                                    bit,
                                });
                            }
                        }
                        None => {
                            stopped = self.strict;
                            held |= early;
                            if !early {
                                full.add(wanted);
                            }
                            self.pending[kept] = index;
                            kept += 1;
                        }
                    }
                }
                self.pending.truncate(kept);
            }
            let now = match self.goal {
                Goal::Makespan => last,
                Goal::Completion => sum,
            };
            if now > limit {
                return f64::INFINITY;
            }
            if self.pending.is_empty() {
                break;
            }
            let next = self.ends.peek().map(|Reverse(next)| f64::from_bits(next.0));
            if held && next.is_none_or(|next| next > self.opens) {
                time = self.opens;
                continue;
            }
            let Some(Reverse((end, gpu, bit))) = self.ends.pop() else {
                // Nothing runs and nothing fits.
                return f64::INFINITY;
            };
            time = f64::from_bits(end);
            self.free(gpu, bit);
            while let Some(&Reverse((other, gpu, bit))) = self.ends.peek() {
                if other != end {
                    break;
                }
                self.ends.pop();
                self.free(gpu, bit);
            }
        }
        match self.goal {
            // Among equal ends the plan that is done with most jobs early.
            Goal::Makespan => last + 1e-6 * sum,
            Goal::Completion => sum,
        }
    }

    fn free(&mut self, gpu: u16, bit: u8) {
        let place = &mut self.now[usize::from(gpu)];
        place.state = self.grids[usize::from(place.kind)].without(place.state, bit);
        place.standing |= 1 << bit;
    }

    /// Where a task can start now: a standing slice of its kind anywhere, else the first GPU with room.
    fn place(&self, wanted: Way) -> Option<(u16, u8, u16)> {
        #[cfg(test)]
        self.looked.set(self.looked.get() + 1);
        let mut made = None;
        for (gpu, place) in self.now.iter().enumerate() {
            if place.kind != wanted.kind {
                continue;
            }
            let creates = self.grids[usize::from(place.kind)].creates(place.state, wanted.profile);
            if let Some(&(bit, after)) = creates.iter().find(|(bit, _)| place.standing >> bit & 1 == 1) {
                return Some((small(gpu), bit, after));
            }
            if made.is_none()
                && let Some(&(bit, after)) = creates.first()
            {
                made = Some((small(gpu), bit, after));
            }
        }
        made
    }

    fn start(&mut self, wanted: Way, gpu: u16, bit: u8, after: u16, time: f64) -> f64 {
        let place = &mut self.now[usize::from(gpu)];
        place.state = after;
        let mut begin = time;
        if place.standing >> bit & 1 == 0 {
            let gone = place.standing & self.grids[usize::from(place.kind)].overlaps[usize::from(bit)];
            let driver = &mut self.driver[usize::from(gpu)];
            begin = driver.max(time) + self.create + self.destroy * f64::from(gone.count_ones());
            *driver = begin;
            place.standing &= !gone;
        }
        place.standing &= !(1 << bit);
        let end = begin + wanted.seconds;
        self.ends.push(Reverse((key(end), gpu, bit)));
        end
    }
}

/// Profiles, by kind of GPU, that have no room; those beyond the first eight kinds and profiles are looked for each time.
#[derive(Clone, Copy, Debug, Default)]
struct Full(u64);

impl Full {
    fn bit(wanted: Way) -> u64 {
        if wanted.kind < 8 && wanted.profile < 8 {
            1 << (wanted.kind * 8 + wanted.profile)
        } else {
            0
        }
    }

    fn add(&mut self, wanted: Way) {
        self.0 |= Self::bit(wanted);
    }

    fn has(self, wanted: Way) -> bool {
        self.0 & Self::bit(wanted) != 0
    }
}

/// Times are at least 0, where the order of the bits is that of the numbers.
fn key(seconds: f64) -> u64 {
    seconds.max(0.0).to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::samples;

    #[test]
    fn a_full_gpu_is_not_searched_for_every_task_that_waits() {
        let grid = Grid::new(&samples::a100_base());
        let task = Task {
            weight: 1.0,
            ways: vec![Way {
                kind: 0,
                profile: 0,
                seconds: 10.0,
            }],
            runs: None,
            held: false,
        };
        let empty = Place {
            kind: 0,
            state: small(Table::EMPTY.to_usize()),
            standing: 0,
            driver: 0.0,
        };
        let grids = [&grid];
        let mut shop = Shop::new(&grids, vec![empty], vec![task; 105], Goal::Makespan);
        let list = List {
            order: (0..105).collect(),
            way: vec![0; 105],
        };
        let cost = shop.cost(&list, f64::INFINITY);
        assert!((150.0..151.0).contains(&cost), "fifteen rounds of seven: {cost}");
        // Each start, and once in each round that nothing more fits.
        assert!(shop.looked.get() <= 105 + 15, "{} looks", shop.looked.get());
    }

    #[test]
    fn a_held_task_leaves_its_place_to_others_until_the_shop_opens_for_it() {
        let grid = Grid::new(&samples::a100_base());
        let task = |profile: u8, seconds: f64, held: bool| Task {
            weight: 1.0,
            ways: vec![Way {
                kind: 0,
                profile,
                seconds,
            }],
            runs: None,
            held,
        };
        let empty = Place {
            kind: 0,
            state: small(Table::EMPTY.to_usize()),
            standing: 0,
            driver: 0.0,
        };
        let grids = [&grid];
        // The whole GPU for 10 s, and two small ones: the whole is held, and follows them.
        let tasks = vec![task(4, 10.0, true), task(0, 3.0, false), task(0, 3.0, false)];
        let mut shop = Shop::new(&grids, vec![empty], tasks, Goal::Makespan);
        let list = List {
            order: vec![0, 1, 2],
            way: vec![0; 3],
        };
        let mut ends = |opens: f64| {
            shop.opens = opens;
            let end = shop.cost(&list, f64::INFINITY);
            (
                end.round(),
                shop.starts.iter().map(|start| start.task).collect::<Vec<_>>(),
            )
        };
        assert_eq!(ends(0.0), (13.0, vec![0]));
        assert_eq!(ends(2.0), (13.0, vec![1, 2]));
        assert_eq!(ends(20.0), (30.0, vec![1, 2]));
    }
}
