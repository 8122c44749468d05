//! The machine's state, and what each event does to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::Bytes;

use super::change::Place;
use super::gpu::Gpu;
use super::planned::Planned;
use super::rank::Lanes;
use super::shares::Shares;
use super::terms::{Book, Lane};
use super::worth::Kind;
use super::{Action, Event, Facts, GpuIndex, Need, Policy, Slice, SliceState};
use crate::layout::{Slot, StateIndex, Table};

/// The scheduler of one node. Deterministic: the same events at the same times give the same actions.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) policy: Policy,
    pub(super) gpus: BTreeMap<GpuIndex, Gpu>,
    /// What places are worth, one for all GPUs with the same table.
    pub(super) kinds: Vec<Kind>,
    pub(super) slices: BTreeMap<Incarnation, Slice>,
    /// By place. With one user and one priority a place is the number of the arrival: a job that goes on keeps its number, so
    /// it comes before all that never ran. Else places change hands (`rank`).
    pub(super) queue: BTreeMap<u64, Waiting>,
    pub(super) jobs: HashMap<JobId, Known>,
    /// The GPUs that a job may use, where not all.
    pub(super) restricted: HashMap<JobId, BTreeSet<GpuIndex>>,
    /// What users ask for, where it was said.
    pub(super) terms: Book,
    /// Who waits, by user and priority.
    pub(super) lanes: Lanes,
    /// What users have had.
    pub(super) shares: Shares,
    /// The time of this step.
    pub(super) now: f64,
    /// The state in which each create under way was planned.
    pub(super) planned_in: HashMap<Incarnation, StateIndex>,
    /// Where a decider decides; else jobs are served in order.
    pub(super) planned: Option<Planned>,
    /// GPUs that are shared, with the leases on them.
    pub(super) soft: super::soft::Pools,
    /// Where jobs stood that were refused.
    pub(super) refused: HashMap<JobId, Place>,
    pub(super) next_incarnation: u64,
    next_arrival: u64,
}

/// A job in the queue.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) job: JobId,
    pub(super) need: Need,
    /// Memory of the largest slice that it outgrew; 0 when there is none.
    pub(super) outgrown: u64,
    pub(super) seat: Option<Seat>,
    /// For policies that weigh time.
    pub(super) facts: Option<Arc<Facts>>,
    /// The number of its first arrival.
    pub(super) came: u64,
    /// It has had a slice.
    pub(super) ran: bool,
    /// It has run and comes first, where jobs are served in order.
    pub(super) goes_on: bool,
    pub(super) lane: Lane,
    /// Its priority, and what it has gained by waiting.
    pub(super) level: i64,
}

impl Waiting {
    /// The least memory that serves it.
    pub(super) fn least(&self) -> Bytes {
        let outgrown = self.outgrown.saturating_add(u64::from(self.outgrown > 0));
        Bytes(self.need.device_bytes.max(outgrown))
    }
}

/// The slice that a waiting job will get.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) slice: Incarnation,
    pub(super) reason: String,
}

/// A job that waits or runs.
#[derive(Debug)]
pub(super) struct Known {
    /// Its place in the queue, or the one that it had there.
    pub(super) arrival: u64,
    /// The number of its first arrival.
    came: u64,
    pub(super) holds: Option<Incarnation>,
    pub(super) moving: bool,
    outgrown: u64,
    pub(super) note: Option<String>,
}

impl Scheduler {
    /// A scheduler that knows no GPU. Slices that it creates are numbered from `first` on.
    #[must_use]
    pub fn new(policy: Policy, first: Incarnation) -> Self {
        Self {
            policy,
            gpus: BTreeMap::new(),
            kinds: Vec::new(),
            slices: BTreeMap::new(),
            queue: BTreeMap::new(),
            jobs: HashMap::new(),
            restricted: HashMap::new(),
            terms: Book::default(),
            lanes: Lanes::default(),
            shares: Shares::default(),
            now: 0.0,
            planned_in: HashMap::new(),
            planned: None,
            soft: super::soft::Pools::default(),
            refused: HashMap::new(),
            next_incarnation: first.0,
            next_arrival: 0,
        }
    }

    /// Takes one event and says what is to be done, in order. `now` is in seconds of a clock that does not
    /// go back.
    pub fn step(&mut self, now: f64, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut read = None;
        self.now = now;
        match event {
            Event::Gpu { gpu, table, foreign } => self.announced(gpu, table, foreign),
            Event::Slice {
                slice,
                gpu,
                profile,
                placement,
                fixed,
                holder,
            } => {
                let state = holder.map_or(SliceState::Idle, SliceState::Busy);
                let known = Slice {
                    gpu,
                    profile,
                    placement,
                    fixed,
                    stuck: false,
                    state,
                };
                self.adopt(slice, known, holder, now);
            }
            Event::SoftGpu { gpu, cut } => self.soft_gpu(gpu, cut),
            Event::SoftSlice {
                slice,
                gpu,
                memory,
                holder,
            } => self.adopt_lease(slice, gpu, memory, holder),
            Event::Room { gpu, room } => {
                read = Some(gpu);
                self.room(now, gpu, room, &mut actions);
            }
            Event::Raise { job, need } => self.raise(now, job, need.device_bytes, &mut actions),
            Event::Enough { job, need } => {
                self.enough(job, need.device_bytes);
                self.needs(job, need.device_bytes);
            }
            Event::Shrunk { job, memory } => self.shrunk(job, memory),
            Event::Restricted { job, gpus } => {
                self.restricted.insert(job, gpus.into_iter().collect());
            }
            Event::Terms { job, terms } => self.set_terms(job, terms),
            Event::Used { user, seconds } => {
                self.shares.tell(now, user, seconds);
                self.lanes.touch();
            }
            Event::Facts { job, facts } => {
                if let Some(planned) = &mut self.planned {
                    planned.know(job, Arc::clone(&facts), now);
                    let arrival = self.jobs.get(&job).map(|known| known.arrival);
                    if let Some(waiting) = arrival.and_then(|arrival| self.queue.get_mut(&arrival)) {
                        waiting.facts = Some(facts);
                    }
                }
            }
            Event::Arrived { job, need } => self.arrived(job, need),
            Event::Ended { job, again } => self.ended(job, again, true),
            Event::Moved { job, need } => self.ended(job, Some(need), false),
            Event::Withdrawn { job } => self.withdrawn(job),
            Event::Forecast { job, need } => self.forecast(job, need, &mut actions),
            Event::Created { slice } => self.created(slice),
            Event::CreateFailed { slice, illegal } => self.create_failed(slice, illegal, now),
            Event::Destroyed { slice } => self.destroyed(slice),
            Event::DestroyFailed { slice } => self.destroy_failed(slice),
            Event::Vanished { slice } => self.gone(slice),
            Event::Lost { gpu } => self.lost(gpu),
            Event::Policy { policy, choice } => self.serve_by(&policy, choice),
            Event::Tick => self.tick(now),
            // Those served in order have been, at each event.
            Event::Settled if self.planned.is_none() => return actions,
            Event::Settled => {
                self.rank();
                if !self.has_news() {
                    // No time that must pass either: nothing is decided, and no GPU read again.
                    return actions;
                }
                self.ask_decider(now, &mut actions);
            }
        }
        if self.planned.is_some() {
            self.pursue(now, &mut actions);
            self.serve_shared(&mut actions);
        } else {
            self.rank();
            self.serve(&mut actions);
            // Once one is served, another may come first than who stood behind him.
            while self.rank() {
                self.serve(&mut actions);
            }
        }
        self.look(read, &mut actions);
        actions
    }

    fn tick(&mut self, now: f64) {
        let due = self.gpus.iter().filter(|(_, gpu)| gpu.is_due(now));
        let due: Vec<GpuIndex> = due.map(|(&index, _)| index).collect();
        for gpu in due {
            self.changed(gpu);
        }
        let waits = !self.queue.is_empty();
        if let Some(planned) = &mut self.planned {
            planned.time_passes(waits);
        }
    }

    fn announced(&mut self, gpu: GpuIndex, table: Arc<Table>, foreign: Vec<Slot>) {
        let kind = self.kinds.iter().position(|kind| kind.is_of(&table));
        let kind = kind.unwrap_or_else(|| {
            self.kinds.push(Kind::new(Arc::clone(&table)));
            self.kinds.len() - 1
        });
        if self.gpus.get(&gpu).is_none_or(|known| known.kind != kind) {
            self.kinds[kind].joined();
        }
        if let Some(planned) = &mut self.planned {
            planned.gpu(gpu, kind);
        }
        let offered = self.planned.as_ref();
        let offered = offered.and_then(|planned| planned.offers(gpu, &table));
        let mut known = Gpu::new(table, foreign, kind);
        known.offered = offered;
        self.gpus.insert(gpu, known);
    }

    fn adopt(&mut self, number: Incarnation, slice: Slice, holder: Option<JobId>, now: f64) {
        let profiles = self
            .gpus
            .get(&slice.gpu)
            .map_or(0, |gpu| gpu.table.profiles().len());
        if slice.profile.0 >= profiles || self.slices.contains_key(&number) {
            return;
        }
        self.next_incarnation = self.next_incarnation.max(number.0 + 1);
        self.slices.insert(number, slice);
        if let Some(job) = holder {
            self.adopt_holder(number, job);
            self.adopt_run(&slice, job, now);
        }
    }

    /// A job that runs on a slice already.
    pub(super) fn adopt_holder(&mut self, slice: Incarnation, job: JobId) {
        let arrival = self.draw_arrival();
        let known = Known {
            arrival,
            came: arrival,
            holds: Some(slice),
            moving: false,
            outgrown: 0,
            note: None,
        };
        self.jobs.insert(job, known);
        self.charge(job);
    }

    fn draw_arrival(&mut self) -> u64 {
        self.next_arrival += 1;
        self.next_arrival
    }

    /// Whether the user lets the job use this GPU.
    pub(super) fn may_use(&self, job: JobId, gpu: GpuIndex) -> bool {
        self.restricted.get(&job).is_none_or(|gpus| gpus.contains(&gpu))
    }

    /// The job is over.
    pub(super) fn forget(&mut self, job: JobId) {
        self.jobs.remove(&job);
        self.refused.remove(&job);
        self.charge(job);
        self.restricted.remove(&job);
        self.terms.forget(job);
        if let Some(planned) = &mut self.planned {
            planned.over(job);
        }
    }

    fn arrived(&mut self, job: JobId, need: Need) {
        if self.jobs.contains_key(&job) {
            return;
        }
        let place = self.refused.remove(&job).unwrap_or_else(|| {
            let arrival = self.draw_arrival();
            Place {
                arrival,
                came: arrival,
                ran: false,
            }
        });
        let known = Known {
            arrival: place.arrival,
            came: place.came,
            holds: None,
            moving: false,
            outgrown: 0,
            note: None,
        };
        self.jobs.insert(job, known);
        self.enqueue(place.arrival, job, need, 0, place.ran);
    }

    fn enqueue(&mut self, arrival: u64, job: JobId, need: Need, outgrown: u64, ran: bool) {
        if let Some(planned) = &mut self.planned {
            planned.waits(job);
        }
        // Those behind wait for this job: slices kept for them could be the ones it waits for.
        self.unseat_from(arrival);
        // Deciders place by themselves.
        let in_order = self.planned.is_none();
        let lane = self.terms.lane(job);
        let waiting = Waiting {
            job,
            need,
            outgrown,
            seat: None,
            facts: self.planned.as_ref().and_then(|planned| planned.known(job)),
            came: self.jobs.get(&job).map_or(arrival, |known| known.came),
            ran,
            goes_on: in_order && ran,
            lane,
            level: i64::from(lane.priority),
        };
        if in_order {
            let (wish, whole) = (self.terms.wish(job), self.policy == Policy::Sequential);
            self.kinds
                .iter_mut()
                .for_each(|kind| kind.wanted(waiting.least(), whole, wish));
        }
        self.join_queue(arrival, waiting);
    }

    /// With `outgrew`, the slice that the job had was too small for it.
    fn ended(&mut self, job: JobId, again: Option<Need>, outgrew: bool) {
        let Some(known) = self.jobs.get_mut(&job) else {
            return;
        };
        if self.queue.contains_key(&known.arrival) {
            return;
        }
        let held = known.holds.take();
        let slice = held.and_then(|number| self.slices.get_mut(&number));
        let mut had = held.and_then(|number| self.soft.free(number)).unwrap_or(0);
        if let Some(slice) = slice {
            slice.state = SliceState::Idle;
            let on = slice.gpu;
            had = self.gpus[&on].table.profile(slice.profile).memory;
            self.changed(on);
        }
        self.charge(job);
        let Some(need) = again else {
            self.forget(job);
            return;
        };
        let Some(known) = self.jobs.get_mut(&job) else {
            return;
        };
        if outgrew {
            known.outgrown = known.outgrown.max(had);
        }
        known.moving = false;
        known.note = None;
        let (arrival, outgrown) = (known.arrival, known.outgrown);
        self.enqueue(arrival, job, need, outgrown, true);
        // A place promised for the former need may be too small for this one.
        if outgrew || !self.has_large_enough_seat(job, need, outgrown) {
            self.drop_seat(job);
        }
    }

    fn withdrawn(&mut self, job: JobId) {
        let Some(arrival) = self.jobs.get(&job).map(|known| known.arrival) else {
            // It never arrived, and what was said of it before is of no more use.
            self.forget(job);
            return;
        };
        if !self.queue.contains_key(&arrival) {
            return;
        }
        self.unseat_from(arrival);
        self.leave_queue(arrival, false);
        self.forget(job);
    }

    fn forecast(&mut self, job: JobId, need: Need, actions: &mut Vec<Action>) {
        self.needs(job, need.device_bytes);
        if self.forecast_lease(job, need) {
            return;
        }
        let Some(slice) = self.slice_of(job).and_then(|number| self.slices.get(&number)) else {
            return;
        };
        let table = &self.gpus[&slice.gpu].table;
        let memory = table.profile(slice.profile).memory;
        let name = table.named(slice.slot());
        let larger = self.could_hold(job, need.device_bytes, memory);
        let wish = self.wish_in_words(job);
        let Some(known) = self.jobs.get_mut(&job) else {
            return;
        };
        if known.moving || need.device_bytes <= memory {
            return;
        }
        let reason = format!(
            "forecast need {} exceeds {name} with {}",
            Bytes(need.device_bytes),
            Bytes(memory)
        );
        if larger {
            known.moving = true;
            known.note = Some(reason.clone());
            actions.push(Action::Move {
                job,
                for_speed: false,
                reason,
            });
        } else {
            // A running job is not given up on a forecast: it may be wrong.
            known.note = Some(format!("{reason}; no slice here holds it{wish}, so it stays"));
        }
    }

    fn created(&mut self, number: Incarnation) {
        let Some(slice) = self.slices.get_mut(&number) else {
            return;
        };
        let SliceState::Creating(job) = slice.state else {
            return;
        };
        slice.state = job.map_or(SliceState::Idle, SliceState::Reserved);
        self.planned_in.remove(&number);
        let on = slice.gpu;
        if let Some(gpu) = self.gpus.get_mut(&on) {
            gpu.succeeded();
        }
        self.changed(on);
    }

    /// Something on a GPU has changed: what was refused there may go through.
    fn changed(&mut self, on: GpuIndex) {
        if let Some(gpu) = self.gpus.get_mut(&on) {
            gpu.changed();
        }
        if let Some(planned) = &mut self.planned {
            planned.freed(on);
        }
    }

    fn create_failed(&mut self, number: Incarnation, illegal: bool, now: f64) {
        let Some(&slice) = self.slices.get(&number) else {
            return;
        };
        let SliceState::Creating(job) = slice.state else {
            return;
        };
        let planned = self.planned_in.remove(&number);
        self.slices.remove(&number);
        let states: Vec<StateIndex> = planned.into_iter().chain(self.standing(slice.gpu)).collect();
        if let Some(gpu) = self.gpus.get_mut(&slice.gpu) {
            gpu.refuse(&states, slice.slot(), illegal, now);
        }
        if let Some(planned) = &mut self.planned {
            if illegal {
                planned.unpromise(slice.gpu, slice.slot());
            } else {
                planned.refuse(slice.gpu, slice.slot());
            }
        }
        if let Some(arrival) = job.and_then(|job| self.jobs.get(&job)).map(|known| known.arrival) {
            self.unseat_from(arrival);
        }
    }

    fn destroyed(&mut self, number: Incarnation) {
        if self
            .slices
            .get(&number)
            .is_some_and(|slice| slice.state == SliceState::Destroying)
        {
            self.gone(number);
        }
    }

    /// A slice is no more, by our wish or without us.
    fn gone(&mut self, number: Incarnation) {
        let Some(slice) = self.slices.remove(&number) else {
            return;
        };
        self.planned_in.remove(&number);
        self.changed(slice.gpu);
        match slice.state {
            SliceState::Reserved(job) | SliceState::Creating(Some(job)) => {
                if let Some(arrival) = self.jobs.get(&job).map(|known| known.arrival) {
                    self.unseat_from(arrival);
                }
            }
            SliceState::Busy(job) => {
                if let Some(known) = self.jobs.get_mut(&job) {
                    known.holds = None;
                    known.note = Some("its slice has gone".to_owned());
                }
                self.charge(job);
            }
            SliceState::Idle | SliceState::Destroying | SliceState::Creating(None) => {}
        }
    }

    /// A GPU is no more: those that were to get a slice there wait again.
    fn lost(&mut self, gpu: GpuIndex) {
        let there = self.slices.iter().filter(|(_, slice)| slice.gpu == gpu);
        for number in there.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.gone(number);
        }
        self.gpus.remove(&gpu);
        if let Some(planned) = &mut self.planned {
            planned.lost(gpu);
        }
        for job in self.soft.lost(gpu) {
            let Some(known) = self.jobs.get_mut(&job) else {
                continue;
            };
            known.holds = None;
            let arrival = known.arrival;
            self.charge(job);
            if self.queue.contains_key(&arrival) {
                self.unseat_from(arrival);
            }
        }
    }

    fn destroy_failed(&mut self, number: Incarnation) {
        let Some(slice) = self.slices.get_mut(&number) else {
            return;
        };
        if slice.state == SliceState::Destroying {
            slice.state = SliceState::Idle;
            slice.stuck = true;
            if let Some(planned) = &mut self.planned {
                planned.touch();
            }
        }
    }

    /// How many slices are on their way out.
    pub(super) fn going(&self) -> usize {
        let going = self
            .slices
            .values()
            .filter(|slice| slice.state == SliceState::Destroying);
        going.count()
    }

    pub(super) fn set_state(&mut self, number: Incarnation, state: SliceState) {
        if let Some(slice) = self.slices.get_mut(&number) {
            slice.state = state;
        }
    }

    /// The state of a GPU with all that stands or is being made on it.
    pub(super) fn standing(&self, gpu: GpuIndex) -> Option<StateIndex> {
        let slots: Vec<Slot> = self.on(gpu).collect();
        self.gpus[&gpu].table.state_of(&slots).ok()
    }
}
