//! What a [`Decider`] sees, and what it may ask for.
//!
//! A decider decides which job gets which slot; everything else (destroying what is in the way, creating,
//! leasing, asking a running job to move) is the machine's, in `planned`. So the same decider runs in the
//! daemon and in virtual time, and no decider can lease a slice twice or touch a foreign one.

use std::collections::BTreeSet;
use std::sync::Arc;

use migm_shared::ids::JobId;

use super::GpuIndex;
use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

/// What is known of a job beyond its memory need.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// For each kind of GPU (see [`Desk::kind`]) and profile: seconds of work done in a second there, in units
    /// of [`Facts::work`]; 0 where the job does not fit. Empty when nothing is known: then a prior is used.
    pub speeds: Vec<Arc<[f64]>>,
    /// Seconds of work left, measured on the whole GPU; `None` when unknown.
    pub work: Option<f64>,
    /// Seconds of work done so far.
    pub attained: f64,
    /// Weight of the job's waiting against that of others; 1 is usual.
    pub weight: f64,
    /// Whether a move keeps the work done so far.
    pub keeps_work: bool,
    /// It is not to be stopped for others: it could not be started again, or is on its way out.
    pub stays: bool,
    /// Seconds that a move costs the job, work lost left out.
    pub move_cost: f64,
    /// The job came with all others of its batch, so that the batch's end counts, not the job's own.
    pub in_batch: bool,
    /// The program, by a number, where its speeds are a guess: none has been seen on less than a whole GPU.
    pub unseen: Option<u64>,
}

impl Facts {
    /// Seconds of work per second on a profile; 0 where the job does not fit or is too large.
    ///
    /// Without measurements: between proportional to the compute slices and no loss at all, as training jobs
    /// on an A100 are in the mean (square root of the share).
    #[must_use]
    pub fn speed(&self, kind: usize, table: &Table, profile: ProfileIndex) -> f64 {
        match self.speeds.get(kind) {
            Some(speeds) => speeds.get(profile.0).copied().unwrap_or(0.0),
            None => share(table, profile).sqrt(),
        }
    }
}

/// The part of a GPU that a profile takes: of its compute slices or of its memory grid, whichever is more.
///
/// The small profiles leave part of the grid unused when they fill the GPU (seven 1g on a grid of eight), so
/// that compute counts for them.
#[must_use]
pub fn share(table: &Table, profile: ProfileIndex) -> f64 {
    let whole = table.profile(table.full());
    let own = table.profile(profile);
    let size = |profile: &crate::layout::Profile| profile.placements.first().map_or(1, |place| place.size);
    let compute = f64::from(own.compute) / f64::from(whole.compute.max(1));
    let grid = f64::from(size(own)) / f64::from(size(whole).max(1));
    compute.max(grid)
}

/// Whether a slice of so many bytes will do for a job: it holds its need, and is larger than each that the job outgrew.
pub(super) const fn serves(memory: u64, need: u64, outgrown: u64) -> bool {
    memory >= need && memory > outgrown
}

/// A slot that is taken.
#[derive(Clone, Debug)]
pub struct Held<'a> {
    /// The slot.
    pub slot: Slot,
    /// By which job; `None` for a foreign instance, or one of ours that cannot go.
    pub job: Option<JobId>,
    /// What is known of the job.
    pub facts: Option<&'a Facts>,
    /// Device bytes that the job needs.
    pub need: u64,
    /// Memory of the largest slice that it outgrew.
    pub outgrown: u64,
    /// Seconds of work left, if known.
    pub left: Option<f64>,
    /// Seconds of work done by it so far.
    pub attained: f64,
    /// Seconds since it has that slice.
    pub ran: f64,
    /// It runs there and no move of it is under way.
    pub runs: bool,
}

impl Held<'_> {
    /// Seconds of work per second of its job on a profile; 0 where that cannot run, or nothing is known of it.
    pub(super) fn speed(&self, kind: usize, table: &Table, profile: ProfileIndex) -> f64 {
        let facts = self
            .facts
            .filter(|_| serves(table.profile(profile).memory, self.need, self.outgrown));
        facts.map_or(0.0, |facts| facts.speed(kind, table, profile))
    }

    /// By nobody who can go.
    pub(super) fn foreign(slot: Slot) -> Self {
        Self {
            slot,
            job: None,
            facts: None,
            need: 0,
            outgrown: 0,
            left: None,
            attained: 0.0,
            ran: 0.0,
            runs: false,
        }
    }
}

/// One GPU.
#[derive(Clone, Debug)]
pub struct Desk<'a> {
    /// Which.
    pub gpu: GpuIndex,
    /// GPUs with the same profiles are of the same kind; kinds are numbered as they first appear.
    pub kind: usize,
    /// Its states.
    pub table: &'a Table,
    /// What is taken: running jobs, slots promised to jobs, foreign instances.
    pub held: Vec<Held<'a>>,
    /// Slices of ours without a lease: they may be used as they are, or go.
    pub idle: Vec<Slot>,
    /// The same, but they cannot go.
    pub lasting: Vec<Slot>,
    /// The state of [`Desk::held`]; `None` when what stands is no state of the table.
    pub busy: Option<StateIndex>,
    /// Slots that the driver refused of late.
    pub refused: Vec<Slot>,
}

impl Desk<'_> {
    /// Whether anything could be placed here.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let free = |slot: &Slot| !self.held.iter().any(|held| held.slot.1.overlaps(slot.1));
        self.lasting.iter().any(free) || self.busy.is_some_and(|busy| !self.table.is_full(busy))
    }

    /// The slots that a profile could have beside what is held: standing ones, which may not be makeable again, and
    /// creates.
    #[must_use]
    pub fn slots_for(&self, profile: ProfileIndex) -> Vec<Slot> {
        let clear = |slot: &Slot, others: &[Slot]| !others.iter().any(|other| other.1.overlaps(slot.1));
        let held: Vec<Slot> = self.held.iter().map(|held| held.slot).collect();
        let standing = self.lasting.iter().chain(&self.idle).copied();
        let standing = standing.filter(|slot| slot.0 == profile && clear(slot, &held));
        let creates = self.busy.into_iter().flat_map(|busy| self.table.steps(busy));
        let creates = creates
            .map(|(slot, _)| slot)
            .filter(|slot| slot.0 == profile && !self.refused.contains(slot) && clear(slot, &self.lasting))
            .filter(|slot| !self.idle.contains(slot));
        standing.chain(creates).collect()
    }

    /// The slot to use for a profile beside what is held: one that stands already, else the one that keeps
    /// most full layouts in reach.
    #[must_use]
    pub fn slot_for(&self, profile: ProfileIndex) -> Option<Slot> {
        let reach = |slot: Slot| {
            let after = self.busy.and_then(|busy| self.table.with(busy, slot));
            after.map_or(0, |after| self.table.reachable(after))
        };
        self.slots_for(profile).into_iter().min_by_key(|&slot| {
            let stands = self.lasting.contains(&slot) || self.idle.contains(&slot);
            (!stands, std::cmp::Reverse(reach(slot)), slot.1)
        })
    }

    /// Whether a profile could be had here if every job had ended.
    #[must_use]
    pub fn can_ever(&self, profile: ProfileIndex) -> bool {
        if self
            .held
            .iter()
            .any(|held| held.slot.0 == profile && held.job.is_some())
        {
            return true;
        }
        let foreign: Vec<Slot> = self
            .held
            .iter()
            .filter(|held| held.job.is_none())
            .map(|held| held.slot)
            .collect();
        let empty = Self {
            held: Vec::new(),
            busy: self.table.state_of(&foreign).ok(),
            ..self.clone()
        };
        !empty.slots_for(profile).is_empty()
    }

    /// Takes a slot for a job in this picture, so that the next choice sees it taken.
    pub fn take(&mut self, slot: Slot, job: JobId) {
        self.busy = self.busy.and_then(|busy| {
            self.table.with(busy, slot).or_else(|| {
                let mut slots = self.table.taken(busy);
                slots.push(slot);
                self.table.state_of(&slots).ok()
            })
        });
        self.held.push(Held {
            job: Some(job),
            ..Held::foreign(slot)
        });
    }

    /// Jobs that run or are about to.
    pub fn jobs(&self) -> impl Iterator<Item = &Held<'_>> {
        self.held.iter().filter(|held| held.job.is_some())
    }
}

/// A job that waits and has been promised nothing.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// Which.
    pub job: JobId,
    /// Its place in the queue: the number of its arrival, where users and priorities do not differ.
    pub order: u64,
    /// How many of the levels of priority on the board are above its own.
    pub level: u32,
    /// Device bytes; 0 when unknown.
    pub need: u64,
    /// Memory of the largest slice that it outgrew.
    pub outgrown: u64,
    /// What is known of it.
    pub facts: &'a Facts,
    /// The GPUs that it may use, where not all.
    pub only: Option<&'a BTreeSet<GpuIndex>>,
}

impl Candidate<'_> {
    /// Whether its user lets it use this GPU.
    #[must_use]
    pub fn may_use(&self, gpu: GpuIndex) -> bool {
        self.only.is_none_or(|only| only.contains(&gpu))
    }

    /// Seconds of work per second on a profile; 0 where the job cannot run.
    #[must_use]
    pub fn speed(&self, kind: usize, table: &Table, profile: ProfileIndex) -> f64 {
        if !serves(table.profile(profile).memory, self.need, self.outgrown) {
            return 0.0;
        }
        self.facts.speed(kind, table, profile)
    }
}

/// All that a decider may look at.
#[derive(Debug)]
pub struct Board<'a> {
    /// Seconds.
    pub now: f64,
    /// By index.
    pub gpus: Vec<Desk<'a>>,
    /// In the order of the queue.
    pub waiting: Vec<Candidate<'a>>,
    /// Not all that wait are shown: the first has been passed too often.
    pub partial: bool,
    /// Some job may use some GPUs only.
    pub restricted: bool,
}

/// A job is to have a slot: a waiting one starts there, a running one moves there. Without a slot, a running one
/// stops and waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// Which.
    pub job: JobId,
    /// Where.
    pub gpu: GpuIndex,
    /// On what.
    pub slot: Option<Slot>,
    /// One line for people.
    pub reason: String,
}

/// Decides who gets which slot.
pub trait Decider: std::fmt::Debug + Send {
    /// The orders to carry out now. Slots ordered must not overlap those held, but for those of jobs that the
    /// same orders move; an order that cannot be is dropped, and the job asked about again.
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order>;

    /// The only profiles that it ever uses on a GPU with these states, if not all that the driver makes: a job that
    /// none of them holds is refused.
    fn offers(&self, gpu: GpuIndex, table: &Table) -> Option<Vec<ProfileIndex>> {
        let _ = (gpu, table);
        None
    }
}
