//! The slots of all GPUs, what excludes what, and how long each job takes where.

use super::{Batch, Gpu};
use crate::layout::{Placement, Slot, StateIndex, Table};

/// Slots of all GPUs together that the bit sets hold.
const MOST_SPOTS: usize = 64;
/// Cliques that are looked at: each is a valid bound, and none is needed.
const MOST_CLIQUES: usize = 64;

/// A set of spots, one bit each.
pub(super) type Spots = u64;

/// A slot of one of the GPUs that holds at least one job, or stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spot {
    pub(super) gpu: usize,
    pub(super) slot: Slot,
}

/// The steps between the states of one GPU, by spot.
#[derive(Debug)]
struct Steps {
    after: Vec<Option<StateIndex>>,
    before: Vec<Option<StateIndex>>,
}

/// One batch on its GPUs.
#[derive(Debug)]
pub(super) struct Floor {
    pub(super) spots: Vec<Spot>,
    /// Seconds of each job on each spot; infinite where it does not fit.
    pub(super) seconds: Vec<Vec<f64>>,
    /// Spots on which each job fits.
    pub(super) fits: Vec<Spots>,
    /// Those that a standing spot can be in the way of: all that cannot stand beside it, and those that the compute
    /// slices and engines of some state do not suffice for while it stands.
    pub(super) blocks: Vec<Spots>,
    /// Sets of spots of which any two exclude each other.
    pub(super) cliques: Vec<Spots>,
    /// The cliques of each spot.
    pub(super) member: Vec<Vec<usize>>,
    /// Spots that stand at the start.
    pub(super) standing: Spots,
    /// Seconds until each spot's first own job could begin, were it standing: 0 but where something runs.
    pub(super) release: Vec<f64>,
    /// Each GPU's state at the start, and when its driver is free.
    pub(super) roots: Vec<(StateIndex, f64)>,
    /// Exchanges of spots that change nothing, each its own inverse.
    pub(super) swaps: Vec<Vec<usize>>,
    /// Seconds to create and to destroy a slice.
    pub(super) create: f64,
    /// See [`Floor::create`].
    pub(super) destroy: f64,
    steps: Vec<Steps>,
}

impl Floor {
    /// `None` when a job fits nowhere, what stands is no state, or there are too many slots.
    pub(super) fn new(batch: &Batch<'_>) -> Option<Self> {
        let gpus = &batch.gpus;
        let seconds_on = |job: &Vec<Vec<f64>>, spot: &Spot| job[gpus[spot.gpu].kind][spot.slot.0.0];
        let mut spots: Vec<Spot> = Vec::new();
        for (gpu, of) in gpus.iter().enumerate() {
            let slots = of.table.steps(Table::EMPTY).map(|(slot, _)| Spot { gpu, slot });
            let stands = |spot: &Spot| of.standing.iter().any(|standing| standing.slot == spot.slot);
            let holds = |spot: &Spot| batch.jobs.iter().any(|job| seconds_on(job, spot).is_finite());
            spots.extend(slots.filter(|spot| stands(spot) || holds(spot)));
        }
        if spots.len() > MOST_SPOTS {
            return None;
        }
        let (mut standing, mut release) = (0, vec![0.0; spots.len()]);
        let mut roots = Vec::new();
        for (gpu, of) in gpus.iter().enumerate() {
            for one in &of.standing {
                let slot = one.slot;
                let spot = spots.iter().position(|spot| *spot == Spot { gpu, slot })?;
                standing |= 1 << spot;
                release[spot] = one.release;
            }
            let slots: Vec<Slot> = of.standing.iter().map(|one| one.slot).collect();
            roots.push((of.table.state_of(&slots).ok()?, of.driver));
        }
        let seconds = batch.jobs.iter();
        let seconds = seconds.map(|job| spots.iter().map(|spot| seconds_on(job, spot)).collect());
        let seconds: Vec<Vec<f64>> = seconds.collect();
        let fits: Vec<Spots> = seconds
            .iter()
            .map(|of| set(of.iter().map(|s| s.is_finite())))
            .collect();
        if fits.contains(&0) {
            return None;
        }
        let excludes = |one: &Spot, other: &Spot| {
            let table = gpus[one.gpu].table;
            one.gpu == other.gpu && one != other && table.state_of(&[one.slot, other.slot]).is_err()
        };
        let conflicts: Vec<Spots> = spots
            .iter()
            .map(|spot| set(spots.iter().map(|other| excludes(spot, other))))
            .collect();
        let mut cliques = Vec::new();
        let all = set(spots.iter().map(|_| true));
        grow_cliques(&conflicts, 0, all, 0, &mut cliques);
        let member = (0..spots.len())
            .map(|spot| {
                (0..cliques.len())
                    .filter(|&k| cliques[k] >> spot & 1 == 1)
                    .collect()
            })
            .collect();
        let steps: Vec<Steps> = (0..gpus.len())
            .map(|gpu| Steps::of(gpus[gpu].table, gpu, &spots))
            .collect();
        let blocks = (0..spots.len())
            .map(|spot| steps[spots[spot].gpu].blocked_by(spot, spots.len()))
            .collect();
        let swaps = swaps(gpus, &spots);
        Some(Self {
            spots,
            seconds,
            fits,
            blocks,
            cliques,
            member,
            standing,
            release,
            roots,
            swaps,
            create: batch.create,
            destroy: batch.destroy,
            steps,
        })
    }

    /// The state of the spot's GPU after it has been created.
    pub(super) fn with(&self, state: StateIndex, spot: usize) -> Option<StateIndex> {
        let steps = &self.steps[self.spots[spot].gpu];
        steps.after[state.to_usize() * self.spots.len() + spot]
    }

    /// The state of the spot's GPU after it has been destroyed.
    pub(super) fn without(&self, state: StateIndex, spot: usize) -> Option<StateIndex> {
        let steps = &self.steps[self.spots[spot].gpu];
        steps.before[state.to_usize() * self.spots.len() + spot]
    }

    /// Seconds of the clique until what runs there has ended.
    pub(super) fn before(&self, clique: usize) -> f64 {
        let stands = bits(self.cliques[clique] & self.standing).next();
        stands.map_or(0.0, |spot| self.release[spot])
    }

    /// Least seconds of driver work for some spots of a clique, the last one left standing.
    pub(super) fn overhead(&self, clique: usize, spots: Spots) -> f64 {
        let stands = self.cliques[clique] & self.standing;
        let made = (self.cliques[clique] & spots & !stands).count_ones();
        let gone = made.saturating_sub(u32::from(stands == 0));
        self.work(made, gone)
    }

    /// Seconds of driver work for so many creates and destroys.
    pub(super) fn work(&self, creates: u32, destroys: u32) -> f64 {
        f64::from(creates) * self.create + f64::from(destroys) * self.destroy
    }
}

impl Steps {
    fn of(table: &Table, gpu: usize, spots: &[Spot]) -> Self {
        let size = table.all_states() * spots.len();
        let (mut after, mut before) = (vec![None; size], vec![None; size]);
        for state in (0..table.all_states()).map(StateIndex::from_usize) {
            for (slot, next) in table.steps(state) {
                if let Some(spot) = spots.iter().position(|spot| spot.gpu == gpu && spot.slot == slot) {
                    after[state.to_usize() * spots.len() + spot] = Some(next);
                    before[next.to_usize() * spots.len() + spot] = Some(state);
                }
            }
        }
        Self { after, before }
    }

    /// The spots that can be created in some state once this one has gone, and not before.
    fn blocked_by(&self, spot: usize, spots: usize) -> Spots {
        let states = self.before.chunks(spots).zip(self.after.chunks(spots));
        let gone = states.filter_map(|(before, after)| Some((before[spot]?, after)));
        let blocked = gone.map(|(without, with)| {
            let then = &self.after[without.to_usize() * spots..][..spots];
            let others = (0..spots).filter(|&other| other != spot);
            others.fold(0, |set, other| {
                set | u64::from(with[other].is_none() && then[other].is_some()) << other
            })
        });
        blocked.fold(0, |set, more| set | more)
    }
}

/// Bits in ascending order.
pub(super) fn bits(set: Spots) -> impl Iterator<Item = usize> {
    let mut left = set;
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let bit = left.trailing_zeros() as usize;
            left &= left - 1;
            bit
        })
    })
}

fn set(members: impl Iterator<Item = bool>) -> Spots {
    members
        .enumerate()
        .fold(0, |set, (bit, is)| set | u64::from(is) << bit)
}

/// The maximal cliques (Bron and Kerbosch, CACM 1973, without pivot: the graphs are small).
fn grow_cliques(conflicts: &[Spots], clique: Spots, more: Spots, seen: Spots, found: &mut Vec<Spots>) {
    if more == 0 && seen == 0 {
        found.push(clique);
    }
    let (mut more, mut seen) = (more, seen);
    while more != 0 && found.len() < MOST_CLIQUES {
        let spot = more.trailing_zeros() as usize;
        let beside = conflicts[spot];
        grow_cliques(conflicts, clique | 1 << spot, more & beside, seen & beside, found);
        more &= !(1 << spot);
        seen |= 1 << spot;
    }
}

/// Exchanges of two blocks of one GPU's grid, or of two GPUs, that map slots to slots and states to states.
fn swaps(gpus: &[Gpu<'_>], spots: &[Spot]) -> Vec<Vec<usize>> {
    let mut found = Vec::new();
    for (gpu, of) in gpus.iter().enumerate() {
        let same = |other: usize| gpus[other].kind == of.kind && std::ptr::eq(gpus[other].table, of.table);
        if let Some(next) = (gpu + 1..gpus.len()).find(|&other| same(other)) {
            let other = |spot: &Spot| match spot.gpu {
                on if on == gpu => Spot { gpu: next, ..*spot },
                on if on == next => Spot { gpu, ..*spot },
                _ => *spot,
            };
            found.extend(images(spots, |spot| Some(other(spot))));
        }
        let own = spots.iter().filter(|spot| spot.gpu == gpu);
        let units = own
            .map(|spot| spot.slot.1.start + spot.slot.1.size)
            .max()
            .unwrap_or(0);
        for size in 1..=units / 2 {
            for first in 0..=units - 2 * size {
                for second in first + size..=units - size {
                    let unit = |unit: u32| match unit {
                        unit if (first..first + size).contains(&unit) => unit + second - first,
                        unit if (second..second + size).contains(&unit) => unit - (second - first),
                        unit => unit,
                    };
                    let image = |spot: &Spot| exchanged(spot, gpu, unit);
                    let swap = images(spots, image);
                    found.extend(swap.filter(|_| keeps_states(of.table, gpu, spots, image)));
                }
            }
        }
    }
    found
}

/// The slot on the units that its own are exchanged for; `None` when these are apart.
fn exchanged(spot: &Spot, gpu: usize, unit: impl Fn(u32) -> u32) -> Option<Spot> {
    if spot.gpu != gpu {
        return Some(*spot);
    }
    let Placement { start, size } = spot.slot.1;
    let images = || (start..start + size).map(&unit);
    let (least, most) = (images().min()?, images().max()?);
    let place = Placement { start: least, size };
    (most - least + 1 == size).then_some(Spot {
        gpu,
        slot: (spot.slot.0, place),
    })
}

/// Each spot's image as a spot; `None` when one has none or nothing changes.
fn images(spots: &[Spot], image: impl Fn(&Spot) -> Option<Spot>) -> Option<Vec<usize>> {
    let at = |spot: &Spot| {
        let image = image(spot)?;
        spots.iter().position(|other| *other == image)
    };
    let all: Vec<usize> = spots.iter().map(at).collect::<Option<_>>()?;
    all.iter()
        .enumerate()
        .any(|(from, to)| from != *to)
        .then_some(all)
}

/// Whether every state of the spots is exchanged for one that leaves as many of them open.
fn keeps_states(table: &Table, gpu: usize, spots: &[Spot], image: impl Fn(&Spot) -> Option<Spot>) -> bool {
    let known = |slot: &Slot| spots.contains(&Spot { gpu, slot: *slot });
    let open = |state| table.steps(state).filter(|(slot, _)| known(slot)).count();
    let mut states = (0..table.all_states()).map(StateIndex::from_usize);
    states.all(|state| {
        let taken = table.taken(state);
        if !taken.iter().all(known) {
            return true;
        }
        let images = taken
            .into_iter()
            .map(|slot| Some(image(&Spot { gpu, slot })?.slot));
        let mapped: Option<Vec<Slot>> = images.collect();
        let after = mapped.and_then(|slots| table.state_of(&slots).ok());
        after.is_some_and(|after| open(after) == open(state))
    })
}
