//! GPUs that jobs share as soft slices: leases on bytes, of any size, that grow in place.
//!
//! 1. [`Event::SoftGpu`](super::Event::SoftGpu) names such a GPU. What its leases may have together is read anew for each decision:
//!    while a job waits for one or wants to grow, [`Action::Look`] asks for a reading, and the decision is made
//!    when [`Event::Room`](super::Event::Room) brings it. No reading serves two decisions that are apart in time.
//! 2. A waiting job that no slice of a MIG GPU can serve at once gets a lease of exactly what it needs, or, where
//!    that is not known, of the GPU's first size: on the GPU with the fewest leases, of these with the most room. One whose user
//!    wants it alone gets all that an unleased GPU has, and nobody joins it.
//!    [`Action::Lease`] comes right before its [`Action::Grant`].
//! 3. [`Event::Raise`](super::Event::Raise) and [`Event::Forecast`](super::Event::Forecast) make a lease grow: [`Action::Grow`], in whole grains where there is room
//!    for that, else by what is needed. Those that run come before those that wait.
//! 4. Without room, who asked only for more is told so ([`Action::Stay`]), unless another job is on its way out or was told so just now:
//!    then it is asked to wait a moment. Before that, leases give back what their jobs' forecasts do not need
//!    ([`Event::Enough`](super::Event::Enough), [`Action::Shrink`]), and so they do for the first that waits. Who is forecast to need more moves, as from any slice, but never two at once
//!    where the first may make room for the second.

use std::collections::BTreeMap;

use migm_shared::ids::{Incarnation, JobId};

use super::choose::Choice;
use super::machine::{Scheduler, Waiting};
use super::{Action, GpuIndex};

mod growth;
mod shrink;
#[cfg(test)]
mod tests;
mod words;

/// How leases on a GPU are cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Bytes of a lease for a job of which nothing is known.
    pub first: u64,
    /// A lease grows by whole grains of so many bytes, where there is room.
    pub grain: u64,
    /// Leases can grow in place.
    pub grows: bool,
}

/// Bytes of a GPU, as read from the driver.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Room {
    /// What all leases on it may have together now.
    pub now: u64,
    /// What they could have if nobody else were there.
    pub most: u64,
}

/// A lease on bytes.
#[derive(Clone, Copy, Debug)]
struct Lease {
    job: JobId,
    bytes: u64,
    /// The job has not been granted it yet.
    kept: bool,
    /// The job is forecast to need no more than this.
    enough: Option<u64>,
    /// A process of the job was told that there is no more: until then it is taken to be on its way out.
    denied: Option<f64>,
}

impl Lease {
    const fn new(job: JobId, bytes: u64, kept: bool) -> Self {
        Self {
            job,
            bytes,
            kept,
            enough: None,
            denied: None,
        }
    }
}

/// A running job that is to have more.
#[derive(Clone, Copy, Debug, Default)]
struct Wish {
    need: u64,
    /// Until when a process of it waits for an answer.
    asked: Option<f64>,
    /// It may be moved for it.
    forecast: bool,
}

#[derive(Debug)]
struct Pool {
    cut: Cut,
    leases: BTreeMap<Incarnation, Lease>,
    /// The reading that this step may use.
    room: Option<Room>,
    /// The last reading; for words, never for a decision.
    last: Option<Room>,
    /// A reading has been asked for.
    looking: bool,
    wishes: BTreeMap<JobId, Wish>,
}

impl Pool {
    fn leased(&self) -> u64 {
        self.leases.values().map(|lease| lease.bytes).sum()
    }

    fn free(&self) -> u64 {
        self.room.map_or(0, |room| room.now.saturating_sub(self.leased()))
    }

    /// Whether a lease of so many bytes can ever be had, by the last reading.
    fn could_hold(&self, bytes: u64) -> bool {
        self.last.is_none_or(|room| bytes <= room.most)
    }
}

/// All GPUs that are shared.
#[derive(Debug, Default)]
pub(super) struct Pools(BTreeMap<GpuIndex, Pool>);

impl Pools {
    /// Whether no GPU is shared.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&mut self, slice: Incarnation) -> Option<(GpuIndex, &mut Pool)> {
        let mut pools = self.0.iter_mut();
        let found = pools.find(|(_, pool)| pool.leases.contains_key(&slice));
        found.map(|(&gpu, pool)| (gpu, pool))
    }

    /// Where a lease is, and its bytes.
    pub(super) fn lease(&self, slice: Incarnation) -> Option<(GpuIndex, u64)> {
        let leases = self.0.iter().map(|(&gpu, pool)| (gpu, pool.leases.get(&slice)));
        leases
            .into_iter()
            .find_map(|(gpu, lease)| Some((gpu, lease?.bytes)))
    }

    /// A GPU is no more; the jobs that had or were to have leases on it.
    pub(super) fn lost(&mut self, gpu: GpuIndex) -> Vec<JobId> {
        let pool = self.0.remove(&gpu);
        pool.map_or_else(Vec::new, |pool| {
            pool.leases.values().map(|lease| lease.job).collect()
        })
    }

    /// Takes a lease back; its bytes, if it was one.
    pub(super) fn free(&mut self, slice: Incarnation) -> Option<u64> {
        let (_, pool) = self.of(slice)?;
        let lease = pool.leases.remove(&slice)?;
        pool.wishes.remove(&lease.job);
        Some(lease.bytes)
    }

    /// A lease that was kept for a waiting job and is not granted after all.
    pub(super) fn release(&mut self, slice: Incarnation) {
        if self.is_kept(slice) {
            self.free(slice);
        }
    }

    /// The part of what leases on its GPU can have that a lease has; all of it while that is not known.
    pub(super) fn part(&self, slice: Incarnation) -> f64 {
        let mut pools = self.0.values();
        let found = pools.find_map(|pool| Some((pool.last?.most, pool.leases.get(&slice)?.bytes)));
        #[expect(clippy::cast_precision_loss, reason = "a part of a GPU")]
        let part = found.map_or(1.0, |(most, bytes)| bytes as f64 / most.max(1) as f64);
        part.min(1.0)
    }

    /// Whether a lease is kept for a waiting job.
    pub(super) fn is_kept(&self, slice: Incarnation) -> bool {
        let mut pools = self.0.values();
        pools.any(|pool| pool.leases.get(&slice).is_some_and(|lease| lease.kept))
    }
}

/// What the shared GPUs have for a waiting job.
pub(super) enum Offer {
    Now(GpuIndex, u64),
    Later,
    Never,
}

impl Scheduler {
    pub(super) fn soft_gpu(&mut self, gpu: GpuIndex, cut: Cut) {
        let pool = Pool {
            cut,
            leases: BTreeMap::new(),
            room: None,
            last: None,
            looking: false,
            wishes: BTreeMap::new(),
        };
        self.soft.0.entry(gpu).or_insert(pool).cut = cut;
    }

    /// A lease that a running job holds already.
    pub(super) fn adopt_lease(&mut self, slice: Incarnation, gpu: GpuIndex, bytes: u64, job: JobId) {
        let Some(pool) = self.soft.0.get_mut(&gpu) else {
            return;
        };
        pool.leases.entry(slice).or_insert(Lease::new(job, bytes, false));
        self.next_incarnation = self.next_incarnation.max(slice.0 + 1);
        self.adopt_holder(slice, job);
    }

    /// A reading is there. `None`: the driver does not tell, so nothing is given out now.
    pub(super) fn room(&mut self, now: f64, gpu: GpuIndex, room: Option<Room>, actions: &mut Vec<Action>) {
        let Some(pool) = self.soft.0.get_mut(&gpu) else {
            return;
        };
        pool.looking = false;
        pool.room = Some(room.unwrap_or_default());
        let before = pool.last.map_or(0, |last| last.most);
        // While a process ends its memory is nobody's for a moment: a job is not refused for that.
        let room = room.map(|room| Room {
            most: room.most.max(before),
            ..room
        });
        pool.last = room.or(pool.last);
        if room.is_none() {
            // Nobody is moved because the driver did not answer.
            pool.wishes.values_mut().for_each(|wish| wish.forecast = false);
        }
        let known = self
            .soft
            .0
            .get(&gpu)
            .filter(|pool| pool.last.map(|last| last.most) != Some(before));
        let jobs = known.into_iter().flat_map(|pool| pool.leases.values());
        for job in jobs.map(|lease| lease.job).collect::<Vec<_>>() {
            self.charge(job);
        }
        self.grow(now, gpu, actions);
        self.make_room(gpu, actions);
    }

    /// How a waiting job is served: by a slice of a MIG GPU if it can have one at once, else by a soft slice.
    pub(super) fn choose(&self, waiting: &Waiting) -> Choice {
        let hard = self.choose_slice(waiting);
        // The room that removed slices make is for this job.
        let at_once = matches!(hard, Choice::Take { .. } | Choice::Make { .. }) || self.going() > 0;
        if self.soft.0.is_empty() || at_once {
            return hard;
        }
        match (self.offer(waiting), hard) {
            (Offer::Now(gpu, bytes), _) => Choice::Lease { gpu, bytes },
            (Offer::Never, Choice::Wait) if self.gpus.is_empty() => Choice::Never {
                reason: self.why_never(waiting),
            },
            (Offer::Later, _) => Choice::Wait,
            (Offer::Never, hard) => hard,
        }
    }

    /// The waiting job that a reading is for.
    fn first_for_a_lease(&self) -> Option<JobId> {
        if self.planned.is_some() {
            return self.first_shared();
        }
        let first = self.queue.values().find(|waiting| waiting.seat.is_none());
        first.map(|waiting| waiting.job)
    }

    pub(super) fn offer(&self, waiting: &Waiting) -> Offer {
        if self.policy == super::Policy::Sequential {
            return Offer::Never;
        }
        let mut offer = Offer::Never;
        let mut best: Option<(_, GpuIndex, u64)> = None;
        for (&gpu, pool) in self
            .soft
            .0
            .iter()
            .filter(|(gpu, _)| self.may_use(waiting.job, **gpu))
        {
            let want = lease_for(waiting, pool);
            if !self.may_share(waiting.job) || !pool.could_hold(want) {
                continue;
            }
            offer = Offer::Later;
            if pool.room.is_some() && want <= pool.free() && self.may_join(waiting.job, pool) {
                // Who wants to be alone gets all there is.
                let want = match self.terms.is_exclusive(waiting.job) {
                    true => pool.free(),
                    false => want,
                };
                let rank = (
                    std::cmp::Reverse(pool.leases.len()),
                    pool.free(),
                    std::cmp::Reverse(gpu),
                );
                if best.is_none_or(|(other, ..)| rank > other) {
                    best = Some((rank, gpu, want));
                }
            }
        }
        // Of several GPUs none is taken before all have been read.
        match best.filter(|_| !self.is_looking(waiting.job)) {
            Some((_, gpu, want)) => Offer::Now(gpu, want),
            None => offer,
        }
    }

    /// Whether a soft slice can be what the job's user asks for: a profile is a slice of a MIG GPU.
    fn may_share(&self, job: JobId) -> bool {
        !matches!(self.terms.wish(job), super::Wish::Profile(_))
    }

    /// Whether a job may be beside those on a GPU: nobody is beside one that wants to be alone.
    fn may_join(&self, job: JobId, pool: &Pool) -> bool {
        let alone = self.terms.is_exclusive(job);
        let mut others = pool.leases.values();
        !others.any(|lease| alone || self.terms.is_exclusive(lease.job))
    }

    fn is_looking(&self, job: JobId) -> bool {
        let mut mine = self.soft.0.iter().filter(|(gpu, _)| self.may_use(job, **gpu));
        mine.any(|(_, pool)| pool.room.is_none())
    }

    /// Keeps a lease for a waiting job.
    pub(super) fn keep_lease(&mut self, gpu: GpuIndex, bytes: u64, job: JobId) -> Incarnation {
        let slice = Incarnation(self.next_incarnation);
        self.next_incarnation += 1;
        if let Some(pool) = self.soft.0.get_mut(&gpu) {
            pool.leases.insert(slice, Lease::new(job, bytes, true));
        }
        slice
    }

    /// A kept lease is granted: announced to the daemon, which has not heard of it.
    pub(super) fn grant_lease(&mut self, slice: Incarnation) -> Option<Action> {
        let (gpu, pool) = self.soft.of(slice)?;
        let lease = pool.leases.get_mut(&slice)?;
        lease.kept = false;
        let memory = lease.bytes;
        Some(Action::Lease { slice, gpu, memory })
    }

    /// The end of a step: asks for readings where somebody waits for one, and lets those made go stale. The step
    /// that a reading began does not ask for another on the same GPU: what it could not serve waits for a change.
    pub(super) fn look(&mut self, read: Option<GpuIndex>, actions: &mut Vec<Action>) {
        let first = self.first_for_a_lease();
        let wanted: Vec<GpuIndex> = self
            .soft
            .0
            .iter()
            .filter(|(gpu, pool)| {
                let waits = first.is_some_and(|job| self.may_use(job, **gpu) && self.may_share(job));
                Some(**gpu) != read && !pool.looking && (waits || !pool.wishes.is_empty())
            })
            .map(|(&gpu, _)| gpu)
            .collect();
        let all_read = self.soft.0.values().all(|pool| !pool.looking);
        for (gpu, pool) in &mut self.soft.0 {
            if read.is_none() && wanted.contains(gpu) {
                pool.looking = true;
                pool.room = None;
                actions.push(Action::Look { gpu: *gpu });
            } else if all_read {
                pool.room = None;
            }
        }
    }

    /// The lease to try for a job that failed in one of so many bytes although all it needs fits in there.
    #[must_use]
    pub fn larger_lease(&self, job: JobId, had: u64) -> u64 {
        larger(had, self.largest_lease(job).unwrap_or(0))
    }

    /// The largest soft slice that the job could ever get.
    #[must_use]
    pub fn largest_lease(&self, job: JobId) -> Option<u64> {
        if self.policy == super::Policy::Sequential || !self.may_share(job) {
            return None;
        }
        let mine = self.soft.0.iter().filter(|(gpu, _)| self.may_use(job, **gpu));
        mine.map(|(_, pool)| pool.last.map_or(u64::MAX, |room| room.most))
            .max()
    }
}

/// Bytes of the lease that a waiting job gets: what it needs, or, where that fits in what it failed in, the
/// [next size](larger).
fn lease_for(waiting: &Waiting, pool: &Pool) -> u64 {
    match (waiting.need.device_bytes, waiting.outgrown) {
        (0, 0) => pool.cut.first,
        (need, had) if need > had => need,
        (_, had) => larger(had, pool.last.map_or(u64::MAX, |room| room.most)),
    }
}

/// The next size after a lease of so many bytes: twice as much, up to all there is. Sizes that crept up would relaunch
/// without end a program that sets itself a limit.
fn larger(had: u64, most: u64) -> u64 {
    had.saturating_mul(2).min(most).max(had.saturating_add(1))
}
