//! Carrying out what a [`Decider`] orders.
//!
//! One order's way:
//!
//! 1. At [`Event::Settled`](super::Event::Settled) the decider sees the [`Board`] and gives orders. Each
//!    order that can be becomes a *seat*: a slot promised to a job.
//! 2. A running job that has a seat elsewhere is asked to move ([`Action::Move`]); when its attempt has ended
//!    it waits like the others, with its seat kept.
//! 3. Idle slices in the way of a seat, by their place or by the driver's rules, are destroyed; when they and the jobs in the way have gone, the slice
//!    is created; when it has been read back, it is leased.
//! 4. A create that the driver refuses takes the seat away. One that it may grant later is not offered to the
//!    decider again until something changes on that GPU; one that it never grants is no step of the GPU's table
//!    any more, and the slot may still be had in another way.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use migm_shared::ids::{Incarnation, JobId};

use super::assign::need_in_words;
use super::board::{Board, Candidate, Decider, Desk, Facts, Held, Order, serves};
use super::machine::Scheduler;
use super::weigh::Told;
use super::{Action, GpuIndex, Need, Slice, SliceState};
use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

mod shared;
#[cfg(test)]
mod tests;
mod words;

/// So many jobs that stand behind it may start while a job is the first in the queue: then it is the only one that the
/// decider is shown until it has a slot. Batches that wait alone are planned as a whole and are spared this.
pub const PASSED_AT_MOST: u32 = 200;

/// What planned policies add to the scheduler's state.
#[derive(Debug)]
pub(super) struct Planned {
    decider: Box<dyn Decider>,
    kind_of: BTreeMap<GpuIndex, usize>,
    facts: HashMap<JobId, Arc<Facts>>,
    runs: HashMap<JobId, Run>,
    seats: BTreeMap<JobId, Promise>,
    /// Promises given so far.
    promised: u64,
    refused: BTreeSet<(GpuIndex, Slot)>,
    /// How many that stood behind it have started while a job was the first in the queue, whatever it did in between.
    passed: HashMap<JobId, u32>,
    /// Something has changed since the decider was asked last.
    changed: bool,
}

/// A slot promised to a job.
#[derive(Clone, Debug)]
struct Promise {
    gpu: GpuIndex,
    slot: Slot,
    reason: String,
    /// Slices are made in the order in which they were promised.
    number: u64,
}

/// How far a running job is.
#[derive(Clone, Copy, Debug)]
struct Run {
    since: f64,
    /// Seconds of work per second, as far as known.
    speed: f64,
    kind: usize,
    profile: ProfileIndex,
    /// When it got its slice.
    granted: f64,
    /// As the job was when it waited.
    need: u64,
    outgrown: u64,
}

static NOTHING_KNOWN: LazyLock<Facts> = LazyLock::new(|| Facts {
    weight: 1.0,
    ..Facts::default()
});

impl Planned {
    fn new(decider: Box<dyn Decider>) -> Self {
        Self {
            decider,
            kind_of: BTreeMap::new(),
            facts: HashMap::new(),
            runs: HashMap::new(),
            seats: BTreeMap::new(),
            promised: 0,
            refused: BTreeSet::new(),
            passed: HashMap::new(),
            changed: false,
        }
    }

    /// What was known is known to the next decider too; what was promised or refused is not.
    pub(super) fn in_place_of(before: Option<Self>, decider: Box<dyn Decider>) -> Self {
        match before {
            None => Self::new(decider),
            Some(before) => Self {
                decider,
                seats: BTreeMap::new(),
                refused: BTreeSet::new(),
                changed: true,
                ..before
            },
        }
    }

    /// A GPU that was there before the decider.
    pub(super) fn meet(&mut self, gpu: GpuIndex, kind: usize) {
        self.kind_of.insert(gpu, kind);
        self.changed = true;
    }

    pub(super) fn runs(&self, job: JobId) -> bool {
        self.runs.contains_key(&job)
    }

    pub(super) fn facts(&self, job: JobId) -> &Facts {
        self.facts.get(&job).map_or(&*NOTHING_KNOWN, |facts| facts)
    }

    pub(super) fn know(&mut self, job: JobId, facts: Arc<Facts>, now: f64) {
        if let Some(run) = self.runs.get_mut(&job) {
            run.since = now;
            let known = facts
                .speeds
                .get(run.kind)
                .and_then(|speeds| speeds.get(run.profile.0));
            run.speed = known.copied().unwrap_or(run.speed);
        }
        self.facts.insert(job, facts);
        if self.is_overdue(job) && self.runs.contains_key(&job) {
            self.keep(job);
        }
        self.changed = true;
    }

    /// Whether as many have passed a job as may.
    fn is_overdue(&self, job: JobId) -> bool {
        self.passed
            .get(&job)
            .is_some_and(|passed| *passed >= PASSED_AT_MOST)
    }

    /// A job that got its place only when nobody else was shown is not stopped for others: it would be the first again, and
    /// those behind it would wait for as many starts once more.
    fn keep(&mut self, job: JobId) {
        if let Some(facts) = self.facts.get_mut(&job) {
            Arc::make_mut(facts).stays = true;
        }
    }

    pub(super) fn gpu(&mut self, gpu: GpuIndex, kind: usize) {
        self.kind_of.insert(gpu, kind);
        self.freed(gpu);
    }

    /// The GPU has gone, and with it what was promised there.
    pub(super) fn lost(&mut self, gpu: GpuIndex) {
        self.kind_of.remove(&gpu);
        self.seats.retain(|_, promise| promise.gpu != gpu);
        self.freed(gpu);
    }

    /// Something on a GPU has gone or changed: what was refused there may go through.
    pub(super) fn freed(&mut self, gpu: GpuIndex) {
        let kept = self.refused.iter().copied().filter(|(on, _)| *on != gpu);
        self.refused = kept.collect();
        self.changed = true;
    }

    pub(super) fn touch(&mut self) {
        self.changed = true;
    }

    /// A job may have stayed long enough where it is, or done so much that another should come first.
    pub(super) fn time_passes(&mut self, somebody_waits: bool) {
        let moves = || {
            let mut running = self.runs.keys().map(|job| self.facts(*job));
            running.any(|facts| facts.keeps_work && !facts.stays)
        };
        self.changed |= somebody_waits || moves();
    }

    pub(super) fn known(&self, job: JobId) -> Option<Arc<Facts>> {
        self.facts.get(&job).cloned()
    }

    pub(super) fn waits(&mut self, job: JobId) {
        self.runs.remove(&job);
        self.changed = true;
    }

    /// The job is over or was withdrawn.
    pub(super) fn over(&mut self, job: JobId) {
        self.facts.remove(&job);
        self.runs.remove(&job);
        self.seats.remove(&job);
        self.passed.remove(&job);
        self.changed = true;
    }

    /// The only profiles that the decider uses on a GPU, if not all.
    pub(super) fn offers(&self, gpu: GpuIndex, table: &Table) -> Option<Vec<ProfileIndex>> {
        self.decider.offers(gpu, table)
    }

    pub(super) fn drop_seat(&mut self, job: JobId) {
        self.changed |= self.seats.remove(&job).is_some();
    }

    /// Nobody is promised that slot any more.
    pub(super) fn unpromise(&mut self, gpu: GpuIndex, slot: Slot) {
        self.seats
            .retain(|_, promise| promise.gpu != gpu || promise.slot != slot);
        self.changed = true;
    }

    /// The slot is not to be had until something on the GPU has changed.
    pub(super) fn refuse(&mut self, gpu: GpuIndex, slot: Slot) {
        self.unpromise(gpu, slot);
        self.refused.insert((gpu, slot));
    }
}

impl Scheduler {
    /// A scheduler that knows no GPU and asks `decider` at every [`Event::Settled`](super::Event::Settled).
    #[must_use]
    pub fn with_decider(decider: Box<dyn Decider>, first: Incarnation) -> Self {
        let mut scheduler = Self::new(super::Policy::SchemeB, first);
        scheduler.planned = Some(Planned::new(decider));
        scheduler
    }

    /// Asks the decider and notes its orders.
    pub(super) fn ask_decider(&mut self, now: f64, actions: &mut Vec<Action>) {
        let Some(mut planned) = self.planned.take() else {
            return;
        };
        if planned.changed {
            planned.changed = false;
            self.refuse_hopeless(&mut planned, actions);
            // A node of shared GPUs alone has nothing that a decider decides on.
            let orders = match self.gpus.is_empty() {
                true => Vec::new(),
                false => planned.ask(self, now),
            };
            for order in orders {
                self.promise(&mut planned, order, actions);
            }
        }
        self.planned = Some(planned);
    }

    /// Jobs that no slice of this node can ever hold leave the queue.
    fn refuse_hopeless(&mut self, planned: &mut Planned, actions: &mut Vec<Action>) {
        let largest = self.gpus.iter().map(|(&on, gpu)| {
            let offered = self.offered(on).into_iter();
            offered
                .map(|profile| gpu.table.profile(profile).memory)
                .max()
                .unwrap_or(0)
        });
        let Some(largest) = largest.max() else {
            return;
        };
        // Where all can be made, the largest slice settles it; else each job is looked at.
        let plain = self.restricted.is_empty()
            && self
                .gpus
                .values()
                .all(|gpu| gpu.foreign.is_empty() && gpu.is_whole() && gpu.offered.is_none())
            && !self.slices.values().any(|slice| slice.fixed || slice.stuck);
        let hopeless = |job: JobId, need: u64, outgrown: u64| {
            let large = need > largest || outgrown >= largest;
            let looked_at = large || !plain || *self.terms.wish(job) != super::Wish::Any;
            looked_at && !self.could_hold(job, need, outgrown)
        };
        let gone: Vec<u64> = self
            .queue
            .iter()
            .filter(|(_, waiting)| hopeless(waiting.job, waiting.need.device_bytes, waiting.outgrown))
            .map(|(&arrival, _)| arrival)
            .collect();
        for arrival in gone {
            let reason = self.why_never(&self.queue[&arrival]);
            if let Some(waiting) = self.leave_queue(arrival, false) {
                planned.over(waiting.job);
                self.refuse(arrival, &waiting, reason, actions);
            }
        }
    }

    /// Turns an order into a seat, if it can be.
    fn promise(&mut self, planned: &mut Planned, order: Order, actions: &mut Vec<Action>) {
        let may = match order.slot {
            Some((profile, _)) => self.may_have(order.job, order.gpu, profile),
            None => true,
        };
        if !may {
            return;
        }
        let Some(known) = self.jobs.get_mut(&order.job) else {
            return;
        };
        if planned.seats.contains_key(&order.job) || !planned.kind_of.contains_key(&order.gpu) {
            return;
        }
        if known.holds.is_some() {
            if known.moving || planned.facts(order.job).stays {
                return;
            }
            known.moving = true;
            known.note = Some(order.reason.clone());
            actions.push(Action::Move {
                job: order.job,
                for_speed: true,
                reason: order.reason.clone(),
            });
        }
        if let Some(slot) = order.slot {
            planned.promised += 1;
            let promise = Promise {
                gpu: order.gpu,
                slot,
                reason: order.reason,
                number: planned.promised,
            };
            planned.seats.insert(order.job, promise);
        }
    }

    /// Does what the seats need: leases, destroys, creates.
    pub(super) fn pursue(&mut self, now: f64, actions: &mut Vec<Action>) {
        let Some(mut planned) = self.planned.take() else {
            return;
        };
        let seats = planned.seats.iter().map(|(job, seat)| (*job, seat.clone()));
        let mut seats: Vec<(JobId, Promise)> = seats.collect();
        seats.sort_by_key(|(_, seat)| seat.number);
        if !seats.is_empty() {
            let mut standing: BTreeMap<GpuIndex, Vec<(Incarnation, Slice)>> = BTreeMap::new();
            for (&number, slice) in &mut self.slices {
                planned.take_back(slice);
                standing.entry(slice.gpu).or_default().push((number, *slice));
            }
            for (job, seat) in seats {
                let there = standing.entry(seat.gpu).or_default();
                self.serve_seat(&mut planned, there, now, job, &seat, actions);
            }
        }
        self.planned = Some(planned);
    }

    /// The next step for one seat; `there` is what stands on its GPU and is kept up to date.
    fn serve_seat(
        &mut self,
        planned: &mut Planned,
        there: &mut Vec<(Incarnation, Slice)>,
        now: f64,
        job: JobId,
        seat: &Promise,
        actions: &mut Vec<Action>,
    ) {
        let exact = there.iter_mut().find(|(_, slice)| slice.slot() == seat.slot);
        if let Some((number, slice)) = exact {
            // A job whose slice has vanished holds none and may still run.
            let known = self.jobs.get(&job);
            let waits = known.is_some_and(|known| self.queue.contains_key(&known.arrival));
            let free = match slice.state {
                SliceState::Idle => true,
                SliceState::Reserved(holder) => holder == job,
                _ => false,
            };
            if free && waits {
                slice.state = SliceState::Busy(job);
                let number = *number;
                planned.seats.remove(&job);
                self.lease(planned, number, now, job, seat, actions);
            } else if let SliceState::Busy(holder) = slice.state
                && !self.jobs.get(&holder).is_some_and(|known| known.moving)
            {
                // Whoever is there stays: the order cannot be.
                planned.drop_seat(job);
            }
            return;
        }
        let conflicts = |other: &Slice| other.slot().1.overlaps(seat.slot.1);
        let mut clear = true;
        for (number, slice) in there.iter_mut().filter(|(_, slice)| conflicts(slice)) {
            clear = false;
            if planned.may_go(slice) {
                slice.state = SliceState::Destroying;
                self.set_state(*number, SliceState::Destroying);
                actions.push(Action::Destroy { slice: *number });
            } else if let SliceState::Busy(holder) = slice.state
                && !self.jobs.get(&holder).is_some_and(|known| known.moving)
            {
                // Whoever is there stays: the order cannot be.
                planned.drop_seat(job);
                return;
            } else if slice.fixed || slice.stuck {
                planned.drop_seat(job);
                return;
            }
        }
        if !clear {
            return;
        }
        let gpu = &self.gpus[&seat.gpu];
        let state_of = |slices: &mut dyn Iterator<Item = &Slice>| {
            let ours = slices.map(Slice::slot);
            let slots: Vec<Slot> = gpu.foreign.iter().copied().chain(ours).collect();
            gpu.table.state_of(&slots).ok()
        };
        let admits =
            |state: Option<StateIndex>| state.is_some_and(|state| gpu.table.with(state, seat.slot).is_some());
        let state = state_of(&mut there.iter().map(|(_, slice)| slice));
        if !admits(state) {
            // Not by place, but by compute slices, engines or a refusal: perhaps of what is idle or goes already.
            let goes = |slice: &Slice| slice.state == SliceState::Destroying || planned.may_go(slice);
            let mut stays = there.iter().map(|(_, slice)| slice).filter(|slice| !goes(slice));
            if !there.iter().any(|(_, slice)| goes(slice)) || !admits(state_of(&mut stays)) {
                planned.refuse(seat.gpu, seat.slot);
                return;
            }
            for (number, slice) in there.iter_mut().filter(|(_, slice)| planned.may_go(slice)) {
                slice.state = SliceState::Destroying;
                self.set_state(*number, SliceState::Destroying);
                actions.push(Action::Destroy { slice: *number });
            }
            return;
        }
        let number = Incarnation(self.next_incarnation);
        self.next_incarnation += 1;
        let slice = Slice {
            gpu: seat.gpu,
            profile: seat.slot.0,
            placement: seat.slot.1,
            fixed: false,
            stuck: false,
            state: SliceState::Creating(Some(job)),
        };
        self.planned_in.extend(state.map(|state| (number, state)));
        self.slices.insert(number, slice);
        there.push((number, slice));
        actions.push(Action::Create {
            slice: number,
            gpu: seat.gpu,
            profile: seat.slot.0,
            placement: seat.slot.1,
        });
    }

    /// Whether what a job is promised, if anything, holds it.
    pub(super) fn has_large_enough_seat(&self, job: JobId, need: Need, outgrown: u64) -> bool {
        let seat = self.planned.as_ref().and_then(|planned| planned.seats.get(&job));
        seat.is_none_or(|seat| {
            let memory = self.gpus[&seat.gpu].table.profile(seat.slot.0).memory;
            serves(memory, need.device_bytes, outgrown)
        })
    }

    pub(super) fn drop_seat(&mut self, job: JobId) {
        if let Some(planned) = &mut self.planned {
            planned.drop_seat(job);
        }
    }

    /// A running job needs so much, as far as known now: no order gives it less.
    pub(super) fn needs(&mut self, job: JobId, bytes: u64) {
        let Some(planned) = &mut self.planned else { return };
        if let Some(run) = planned.runs.get_mut(&job)
            && run.need != bytes
        {
            run.need = bytes;
            planned.changed = true;
        }
    }

    /// A job runs on a slice already. Until more is known of it, it may need all of that slice.
    pub(super) fn adopt_run(&mut self, slice: &Slice, job: JobId, now: f64) {
        let Some(planned) = &mut self.planned else { return };
        let Some(&kind) = planned.kind_of.get(&slice.gpu) else {
            return;
        };
        let table = &self.gpus[&slice.gpu].table;
        let run = Run {
            since: now,
            speed: planned.facts(job).speed(kind, table, slice.profile),
            kind,
            profile: slice.profile,
            granted: now,
            need: table.profile(slice.profile).memory,
            outgrown: 0,
        };
        planned.runs.insert(job, run);
        planned.changed = true;
    }

    fn lease(
        &mut self,
        planned: &mut Planned,
        slice: Incarnation,
        now: f64,
        job: JobId,
        seat: &Promise,
        actions: &mut Vec<Action>,
    ) {
        let kind = planned.kind_of[&seat.gpu];
        let speed = planned
            .facts(job)
            .speed(kind, &self.gpus[&seat.gpu].table, seat.slot.0);
        let mut reason = seat.reason.clone();
        if let Some(place) = self.jobs.get(&job).map(|known| known.arrival) {
            let waited = self.leave_queue(place, true);
            if let Some(waited) = &waited {
                reason = format!("{}: {reason}", need_in_words(waited));
            }
            if let Some((&first, waiting)) = self.queue.first_key_value() {
                *planned.passed.entry(waiting.job).or_default() += u32::from(place > first);
            }
            if planned.is_overdue(job) {
                planned.keep(job);
            }
            let run = Run {
                since: now,
                speed,
                kind,
                profile: seat.slot.0,
                granted: now,
                need: waited.as_ref().map_or(0, |waiting| waiting.need.device_bytes),
                outgrown: waited.as_ref().map_or(0, |waiting| waiting.outgrown),
            };
            planned.runs.insert(job, run);
        }
        self.hand_over(job, slice, reason, actions);
    }
}

impl Planned {
    /// Whether a slice is idle and promised to nobody.
    fn may_go(&self, slice: &Slice) -> bool {
        let promised = |seat: &Promise| (seat.gpu, seat.slot) == (slice.gpu, slice.slot());
        slice.is_spare() && !self.seats.values().any(promised)
    }

    /// A slice made for a job that has no seat there any more is nobody's.
    fn take_back(&self, slice: &mut Slice) {
        let kept = |job: &JobId| {
            let seat = self.seats.get(job);
            seat.is_some_and(|seat| (seat.gpu, seat.slot) == (slice.gpu, slice.slot()))
        };
        match slice.state {
            SliceState::Creating(Some(job)) if !kept(&job) => slice.state = SliceState::Creating(None),
            SliceState::Reserved(job) if !kept(&job) => slice.state = SliceState::Idle,
            _ => {}
        }
    }

    /// Builds the board and asks the decider.
    fn ask(&mut self, scheduler: &Scheduler, now: f64) -> Vec<Order> {
        let mut decider = std::mem::replace(&mut self.decider, Box::new(Absent));
        let told = scheduler.told(self);
        let orders = decider.decide(&self.board(scheduler, &told, now));
        self.decider = decider;
        orders
    }

    fn board<'a>(&'a self, scheduler: &'a Scheduler, told: &'a Told, now: f64) -> Board<'a> {
        let mut gpus: Vec<Desk<'a>> = Vec::with_capacity(scheduler.gpus.len());
        let mut place: Vec<usize> = Vec::new();
        for (&gpu, state) in &scheduler.gpus {
            place.resize(place.len().max(gpu.0 + 1), usize::MAX);
            place[gpu.0] = gpus.len();
            let foreign = state.foreign.iter().map(|&slot| Held::foreign(slot));
            gpus.push(Desk {
                gpu,
                kind: self.kind_of.get(&gpu).copied().unwrap_or(0),
                table: &state.table,
                held: foreign.collect(),
                idle: Vec::new(),
                lasting: Vec::new(),
                busy: None,
                refused: Vec::new(),
            });
        }
        for slice in scheduler.slices.values() {
            let desk = &mut gpus[place[slice.gpu.0]];
            match slice.state {
                SliceState::Busy(job) => {
                    let moving = scheduler.jobs.get(&job).is_some_and(|known| known.moving);
                    // What moves away is no longer in the way: its seat holds the new place.
                    if !moving || !self.seats.contains_key(&job) {
                        desk.held.push(self.held(told, slice.slot(), job, now, !moving));
                    }
                }
                SliceState::Idle if slice.fixed || slice.stuck => desk.lasting.push(slice.slot()),
                SliceState::Idle => desk.idle.push(slice.slot()),
                // Seats below speak for those that are being made.
                SliceState::Creating(_) | SliceState::Reserved(_) | SliceState::Destroying => {}
            }
        }
        for (&job, seat) in &self.seats {
            let held = self.held(told, seat.slot, job, now, false);
            gpus[place[seat.gpu.0]].held.push(held);
        }
        for &(gpu, slot) in &self.refused {
            gpus[place[gpu.0]].refused.push(slot);
        }
        for desk in &mut gpus {
            desk.busy = state_of(desk);
        }
        let restricted = !scheduler.restricted.is_empty();
        let waiting = scheduler.queue.iter();
        let waiting =
            waiting.filter(|(_, waiting)| self.seats.is_empty() || !self.seats.contains_key(&waiting.job));
        let waiting = waiting.map(|(&order, waiting)| Candidate {
            job: waiting.job,
            order,
            need: waiting.need.device_bytes,
            outgrown: waiting.outgrown,
            level: told.below(waiting.level),
            facts: told
                .facts(waiting.job)
                .unwrap_or_else(|| waiting.facts.as_deref().unwrap_or(&NOTHING_KNOWN)),
            only: if restricted {
                scheduler.restricted.get(&waiting.job)
            } else {
                None
            },
        });
        let mut waiting: Vec<Candidate<'_>> = waiting.collect();
        let partial = waiting.first().is_some_and(|first| self.is_overdue(first.job))
            && waiting.len() > 1
            && !waiting.iter().all(|candidate| candidate.facts.in_batch);
        if partial {
            waiting.truncate(1);
        }
        Board {
            now,
            gpus,
            waiting,
            partial,
            restricted,
        }
    }

    fn held<'a>(&'a self, told: &'a Told, slot: Slot, job: JobId, now: f64, runs: bool) -> Held<'a> {
        let facts = told.facts(job).unwrap_or_else(|| self.facts(job));
        let run = self.runs.get(&job);
        let ran = run.map_or(0.0, |run| now - run.granted);
        let done = run.map_or(0.0, |run| (now - run.since).max(0.0) * run.speed);
        Held {
            slot,
            job: Some(job),
            facts: Some(facts),
            need: run.map_or(0, |run| run.need),
            outgrown: run.map_or(0, |run| run.outgrown),
            left: facts.work.map(|work| (work - done).max(0.0)),
            attained: facts.attained + done,
            ran,
            runs,
        }
    }
}

fn state_of(desk: &Desk<'_>) -> Option<StateIndex> {
    let mut state = crate::layout::Table::EMPTY;
    for held in &desk.held {
        state = match desk.table.with(state, held.slot) {
            Some(after) => after,
            // An edge may be refused on this way and not on another.
            None => {
                let slots: Vec<Slot> = desk.held.iter().map(|held| held.slot).collect();
                return desk.table.state_of(&slots).ok();
            }
        };
    }
    Some(state)
}

/// Stands in while the decider is being asked.
#[derive(Debug)]
struct Absent;

impl Decider for Absent {
    fn decide(&mut self, _: &Board<'_>) -> Vec<Order> {
        Vec::new()
    }
}
