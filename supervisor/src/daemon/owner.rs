//! The owner of all state: what a request, a report or an answer of the machine does to it.
//!
//! It does no I/O. Each call may leave orders for the machine thread and outputs for peers, which
//! [`Owner::settle`] hands over after the state file has been written: whoever hears of a grant finds it
//! in the file if this process dies right after.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use migm_shared::ids::{BatchId, Incarnation, JobId};
use migm_shared::report::{Answer, Welcome};
use nix::sys::signal::Signal;

use super::batch::{Batch, NodeFacts};
use super::clear::Clearing;
use super::config::{Config, Told};
use super::connection::Credentials;
use super::costs::Costs;
use super::error::DaemonError;
use super::gpus::{PlacedGpu, Use};
use super::holds::Holds;
use super::job::{Job, Peer};
use super::journal::Journal;
use super::machine::{Order, Watched};
use super::pace::Paces;
use super::slices::{Origin, Slice, stranger};
use super::soft::SoftLeases;
use super::state::{SimulatedState, SliceRecord, State, Step};
use super::trouble::Stuck;
use crate::control::{About, Evidence, JobState, Reply};
use crate::schedule::policy::Choice;
use crate::schedule::{Event, GpuIndex, Need, Policy, PolicyName, Scheduler};

/// Ended jobs that `migm status` still shows.
const ENDED_SHOWN: usize = 256;
/// A private supervisor without clients or jobs ends after this many seconds.
const IDLE_END: f64 = 1.0;
/// So many seconds has the first client of a private supervisor.
const FIRST_CLIENT: f64 = 10.0;

/// What does not change while the supervisor runs, but for what [`Owner::reload`] says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ends with its last client.
    pub private: bool,
    /// How jobs are placed while no batch asks for another way.
    pub policy: PolicyName,
    /// What the command line says of that.
    pub told: Told,
    /// GPUs without instances are shared by jobs.
    pub shared: bool,
    /// Where the configuration is read again.
    pub config_path: Option<PathBuf>,
    /// From the file.
    pub config: Config,
    /// Where it listens.
    pub socket: PathBuf,
    /// Where its state is kept.
    pub state_path: PathBuf,
    /// The interposer, or why there is none.
    pub interposer: Result<PathBuf, String>,
    /// Folders for the loader: the simulated driver's.
    pub library_path: Vec<String>,
    /// The GPUs are simulated.
    pub simulated: bool,
    /// The simulated GPU that is this supervisor's own.
    pub own_simulated: Option<SimulatedState>,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
}

/// What the event loop is to do.
#[derive(Debug)]
pub enum Output {
    /// To a runner or a command.
    Reply(Peer, Box<Reply>),
    /// To a process, with the job's page.
    Welcome(Peer, Welcome, Option<OwnedFd>),
    /// To a process that has asked for more than its job's cap.
    Answer(Peer, Answer),
    /// End a connection, and why.
    Drop(Peer, String),
    /// Tell when this process is gone.
    Watch(u32),
    /// Send a signal to a watched process.
    Signal(u32, Signal),
}

/// What a connection has shown itself to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Role {
    Unknown,
    /// Asks for the status and nothing else: no reason to stay.
    Onlooker,
    Command,
    Runner(JobId),
    Process(JobId),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub credentials: Credentials,
    pub role: Role,
    /// When it came; monotonic seconds.
    pub since: f64,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Owner {
    pub(super) settings: Settings,
    /// How jobs are placed now.
    pub(super) policy: PolicyName,
    pub(super) scheduler: Scheduler,
    pub(super) gpus: Vec<PlacedGpu>,
    pub(super) slices: BTreeMap<Incarnation, Slice>,
    pub(super) jobs: BTreeMap<JobId, Job>,
    pub(super) batches: BTreeMap<BatchId, Batch>,
    pub(super) clients: HashMap<Peer, Client>,
    /// What runners have said of programs whose jobs have not come yet.
    pub(super) told: HashMap<Peer, About>,
    pub(super) outputs: Vec<Output>,
    pub(super) prompt: Vec<Output>,
    pub(super) orders: Vec<Order>,
    /// Why the state file cannot be written, while it cannot.
    pub(super) write_refused: Option<String>,
    pub(super) soft: SoftLeases,
    /// Orders without an answer that must come before the end.
    pub(super) unanswered: usize,
    pub(super) next_job: u64,
    pub(super) next_slice: u64,
    pub(super) next_batch: u64,
    pub(super) reconfigurations: u64,
    /// Largest unaccounted bytes of any job here: what a context costs on this machine.
    pub(super) context_cost: Option<u64>,
    /// Seconds from the end of an attempt to the start of the next, as last seen.
    pub(super) relaunch: f64,
    /// What changes of slices and moves of jobs cost here.
    pub(super) costs: Costs,
    /// How fast the programs here go.
    pub(super) paces: Paces,
    /// What is known of the commands here, by user and signature, as the last job of each knows it.
    pub(super) evidence: HashMap<(u32, String), Arc<Evidence>>,
    /// When the first and the last of the jobs came that are to be decided on together.
    pub(super) gathering: Option<(f64, f64)>,
    /// Why instances cannot be made, once the driver has said so.
    pub(super) forbidden: Option<String>,
    /// GPUs whose foreign instances are to be used and have not been looked at.
    pub(super) unsurveyed: BTreeSet<usize>,
    /// Slices of ours on GPUs that are not here, by the state file.
    pub(super) absent: Vec<SliceRecord>,
    /// Slices that could not be removed.
    pub(super) stuck: BTreeMap<Incarnation, Stuck>,
    /// Requests to clear that the driver has not answered in full.
    pub(super) clearing: Vec<Clearing>,
    pub(super) holds: Holds,
    pub(super) dirty: bool,
    /// The leased slices are to be measured at once.
    pub(super) watch_changed: bool,
    /// Those that are measured.
    watching: Vec<Watched>,
    /// Jobs of which watchers of their batches are to hear.
    pub(super) changed_jobs: BTreeSet<JobId>,
    /// Jobs that the state file has not, or not as they are.
    pub(super) unwritten: BTreeSet<JobId>,
    pub(super) journal: Journal,
    /// Some job may have no runner.
    pub(super) orphans: bool,
    pub(super) stopping: bool,
    started: f64,
    ticked: f64,
    had_client: bool,
    idle_since: Option<f64>,
}

/// Plans that a policy may try for a batch in one decision: the owner's thread serves nobody meanwhile. Some 50 ms, for
/// batches within 3 to 4 % of the bound.
const SEARCH: u32 = 1_000;

/// What policies that plan may do here.
pub(super) fn choice(time_scale: f64) -> Choice {
    let costs = Costs::new(time_scale);
    Choice {
        fifo: false,
        moves: true,
        search: SEARCH,
        create: costs.create(),
        destroy: costs.destroy(),
    }
}

/// A fresh scheduler of the policy.
fn scheduler(policy: &PolicyName, time_scale: f64, next_slice: u64) -> Scheduler {
    let first = Incarnation(next_slice);
    let named = policy.scheduler(choice(time_scale), first);
    // A policy that would have to be searched for is refused before there is an owner.
    named.unwrap_or_else(|| Scheduler::new(Policy::default(), first))
}

impl Owner {
    /// Takes what was found and recovered. `slices` are those of ours that are there.
    #[must_use]
    pub fn new(
        settings: Settings,
        gpus: Vec<PlacedGpu>,
        slices: BTreeMap<Incarnation, Slice>,
        state: State,
        now: f64,
    ) -> Self {
        let soft = SoftLeases::new(&settings.config);
        let mut owner = Self {
            policy: settings.policy.clone(),
            scheduler: scheduler(&settings.policy, settings.time_scale, state.next_slice),
            costs: Costs::new(settings.time_scale),
            paces: Paces::default(),
            evidence: HashMap::new(),
            gathering: None,
            settings,
            gpus,
            slices,
            jobs: BTreeMap::new(),
            batches: BTreeMap::new(),
            clients: HashMap::new(),
            told: HashMap::new(),
            outputs: Vec::new(),
            prompt: Vec::new(),
            orders: Vec::new(),
            write_refused: None,
            soft,
            unanswered: 0,
            next_job: state.next_job,
            next_slice: state.next_slice,
            next_batch: state.next_batch,
            reconfigurations: state.reconfigurations,
            context_cost: None,
            relaunch: 0.0,
            forbidden: None,
            unsurveyed: BTreeSet::new(),
            absent: Vec::new(),
            stuck: BTreeMap::new(),
            clearing: Vec::new(),
            holds: Holds::default(),
            dirty: true,
            watch_changed: false,
            watching: Vec::new(),
            changed_jobs: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            journal: Journal::default(),
            orphans: true,
            stopping: false,
            started: now,
            ticked: now,
            had_client: false,
            idle_since: None,
        };
        let is_here = |record: &SliceRecord| owner.gpus.iter().any(|gpu| gpu.gpu.uuid == record.gpu_uuid);
        owner.absent = state
            .slices
            .into_iter()
            .filter(|record| !is_here(record))
            .collect();
        let is_left = |slice: &Slice| slice.origin == Origin::Left;
        owner.stuck = owner
            .slices
            .iter()
            .filter(|(_, slice)| is_left(slice))
            .map(|(number, _)| (*number, Stuck::half_done()))
            .collect();
        owner.context_cost = state.jobs.iter().filter_map(|job| job.unaccounted).max();
        owner.batches = state
            .batches
            .into_iter()
            .map(|record| (record.id, Batch::recovered(record)))
            .collect();
        owner.jobs = state
            .jobs
            .into_iter()
            .map(|record| (record.id, Job::recovered(record, now)))
            .collect();
        owner.check_claims();
        let at = state.used.at.unwrap_or(now).min(now);
        for (user, seconds) in state.used.by_user {
            owner.step(at, Event::Used { user, seconds });
        }
        owner.add_whole_gpus();
        owner.adopt_leases();
        owner.find_leases();
        owner.feed(now);
        owner
    }

    /// Each GPU without instances is one slice; one that a job still holds keeps its number.
    fn add_whole_gpus(&mut self) {
        for (index, gpu) in self.gpus.iter().enumerate() {
            if gpu.used != Use::Whole || gpu.aside.is_some() {
                continue;
            }
            let held = self
                .jobs
                .values()
                .filter_map(|job| job.grant.as_ref())
                .find(|grant| grant.gpu_uuid == gpu.gpu.uuid && grant.visible_device == gpu.gpu.uuid);
            let number = held.map_or_else(
                || {
                    self.next_slice += 1;
                    Incarnation(self.next_slice - 1)
                },
                |grant| grant.slice,
            );
            self.slices.insert(number, Slice::whole(index, gpu));
        }
    }

    /// Gives recovered jobs the slices that they hold.
    fn find_leases(&mut self) {
        for job in self.jobs.values_mut() {
            let Some(grant) = &job.grant else { continue };
            match self.slices.get_mut(&grant.slice) {
                Some(slice) => slice.job = Some(job.id),
                None => {
                    tracing::warn!(job = %job.id, slice = %grant.slice, "the slice of a running job is gone")
                }
            }
        }
    }

    /// Tells a fresh scheduler of all slices, then of the jobs that wait. What users have had is told as of the time when it
    /// was known, and slices as held since then.
    pub(super) fn feed(&mut self, now: f64) {
        let (at, used) = self.scheduler.used();
        let then = if used.is_empty() { now } else { at.min(now) };
        self.scheduler = scheduler(&self.policy, self.settings.time_scale, self.next_slice);
        for (user, seconds) in used {
            self.step(then, Event::Used { user, seconds });
        }
        for index in 0..self.gpus.len() {
            self.tell_gpu(index, then);
        }
        // Those that run on may have to move.
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.restrict(job, then);
        }
        let there: Vec<Event> = self
            .slices
            .iter()
            .filter(|(_, slice)| slice.step == Step::Ready && self.gpus[slice.gpu].aside.is_none())
            .map(|(number, slice)| Self::slice_event(*number, slice))
            .collect();
        for event in there {
            self.step(then, event);
        }
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tell_facts(job, now);
            self.tell_need(job, now);
        }
        self.queue_waiting(now);
    }

    /// Puts a job into the scheduler's queue. Where slices of others are used, that waits for the first
    /// look at them: before it there seems to be none, now and for ever.
    pub(super) fn queue(&mut self, job: JobId, now: f64) {
        if !self.unsurveyed.is_empty() {
            return;
        }
        let Some(known) = self.jobs.get(&job) else { return };
        let need = Need {
            device_bytes: known.need,
        };
        self.restrict(job, now);
        self.tell_facts(job, now);
        self.step(now, Event::Arrived { job, need });
    }

    /// Tells the scheduler of the GPUs that a job may use, where not all, and of what its user asks for.
    pub(super) fn restrict(&mut self, job: JobId, now: f64) {
        let Some(known) = self.jobs.get(&job).filter(|job| job.state != JobState::Ended) else {
            return;
        };
        let terms = known.terms();
        let usable = self.usable(&known.submission);
        if let Ok(Some(gpus)) = usable {
            self.step(now, Event::Restricted { job, gpus });
        }
        self.step(now, Event::Terms { job, terms });
    }

    /// Queues all jobs that wait and have a runner; those that the scheduler knows are not changed by it.
    pub(super) fn queue_waiting(&mut self, now: f64) {
        let waiting: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.state == JobState::Waiting && job.runner.is_some())
            .map(|job| job.id)
            .collect();
        for job in waiting {
            self.queue(job, now);
        }
    }

    pub(super) fn slice_event(number: Incarnation, slice: &Slice) -> Event {
        if let (Origin::Soft, Some(holder)) = (slice.origin, slice.job) {
            return Event::SoftSlice {
                slice: number,
                gpu: GpuIndex(slice.gpu),
                memory: slice.memory,
                holder,
            };
        }
        Event::Slice {
            slice: number,
            gpu: GpuIndex(slice.gpu),
            profile: slice.slot.0,
            placement: slice.slot.1,
            fixed: slice.origin != Origin::Ours,
            holder: slice.job.or_else(|| slice.taken.then(|| stranger(number))),
        }
    }

    /// Tells the scheduler of a GPU and of what stands on it that no job gets.
    pub(super) fn tell_gpu(&mut self, index: usize, now: f64) {
        let gpu = &self.gpus[index];
        if gpu.aside.is_some() {
            return;
        }
        if gpu.used == Use::Soft {
            let cut = self.soft.settings.cut(gpu.gpu.memory);
            let gpu = GpuIndex(index);
            return self.step(now, Event::SoftGpu { gpu, cut });
        }
        let mut foreign = match gpu.used {
            Use::Reshaped => gpu.foreign_slots(),
            Use::Existing | Use::Whole | Use::Soft => Vec::new(),
        };
        // What nobody gets and takes room all the same.
        let left = |(number, slice): &(&Incarnation, &Slice)| {
            slice.gpu == index && (slice.origin == Origin::Left || self.is_clearing(**number))
        };
        foreign.extend(self.slices.iter().filter(left).map(|(_, slice)| slice.slot));
        let event = Event::Gpu {
            gpu: GpuIndex(index),
            table: gpu.table.clone(),
            foreign,
        };
        self.step(now, event);
    }

    /// Lets the scheduler take events, and does what it says, until it says no more.
    pub(super) fn step(&mut self, now: f64, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            if self.stopping {
                return;
            }
            tracing::trace!(?event, "scheduler");
            for action in self.scheduler.step(now, event) {
                self.act(now, action, &mut events);
            }
        }
    }

    /// A connection is there.
    pub fn connected(&mut self, peer: Peer, credentials: Credentials, now: f64) {
        let role = Role::Unknown;
        let client = Client {
            credentials,
            role,
            since: now,
        };
        self.clients.insert(peer, client);
        self.had_client = true;
    }

    /// Whether somebody has come who has not said yet what for.
    #[must_use]
    pub fn has_newcomer(&self) -> bool {
        self.clients.values().any(|client| client.role == Role::Unknown)
    }

    /// A connection is gone.
    pub fn closed(&mut self, peer: Peer, now: f64) {
        let Some(client) = self.clients.remove(&peer) else {
            return;
        };
        self.told.remove(&peer);
        self.unwatch_batches(peer);
        self.drop_arrays_of(peer, now);
        match client.role {
            Role::Runner(id) => self.runner_gone(id, peer, now),
            // Its processes are watched by pid: a fork keeps a connection open, and an exec ends it early.
            Role::Process(id) if client.credentials.pid == 0 => self.forget(id, 0, now),
            _ => {}
        }
    }

    /// A process that was watched is gone.
    pub fn process_gone(&mut self, pid: u32, now: f64) {
        let on: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.processes.contains_key(&pid))
            .map(|job| job.id)
            .collect();
        for id in on {
            self.forget(id, pid, now);
        }
    }

    /// To the runner of a job, if it is there.
    pub(super) fn tell_runner(&mut self, id: JobId, reply: Reply) {
        if let Some(peer) = self.jobs.get(&id).and_then(|job| job.runner) {
            self.reply(peer, reply);
        }
    }

    pub(super) fn reply(&mut self, peer: Peer, reply: Reply) {
        self.outputs.push(Output::Reply(peer, Box::new(reply)));
    }

    pub(super) fn refuse(&mut self, peer: Peer, reason: impl Into<String>) {
        let reason = reason.into();
        self.reply(peer, Reply::Refused { reason });
    }

    /// What the state file keeps of a job has changed: it goes there with the next change that must not be lost.
    pub(super) fn note_down(&mut self, id: JobId) {
        self.unwritten.insert(id);
    }

    /// A job's state changed: it goes into the state file, and its batch's watcher hears of it.
    pub(super) fn changed(&mut self, id: JobId) {
        self.dirty = true;
        self.note_down(id);
        self.changed_jobs.insert(id);
    }

    /// A job is over.
    pub(super) fn finish(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.state = JobState::Ended;
        job.figures = job.figures_now();
        job.page = None;
        job.grant = None;
        job.came = now;
        self.holds.note_end(job);
        let status = job.status();
        self.tell_learnt(id);
        tracing::info!(job = %id, name = status.name, attempts = status.attempts.len(), "job is over");
        self.tell_runner(id, Reply::Finished(Box::new(status)));
        self.changed(id);
        let batch = self.jobs.get(&id).and_then(|job| job.submission.batch);
        if let Some(batch) = batch {
            self.check_batch(batch, now);
        }
        self.drop_old();
    }

    /// Forgets the oldest ended jobs, but none of a batch that goes on.
    fn drop_old(&mut self) {
        let old: Vec<JobId> = self
            .jobs
            .values()
            .filter(|job| job.state == JobState::Ended)
            .filter(|job| {
                job.submission
                    .batch
                    .is_none_or(|batch| !self.batches.contains_key(&batch))
            })
            .map(|job| job.id)
            .collect();
        for id in &old[..old.len().saturating_sub(ENDED_SHOWN)] {
            self.jobs.remove(id);
        }
        if old.len() > ENDED_SHOWN {
            self.drop_paces();
            self.drop_evidence();
        }
    }

    pub(super) fn facts(&self) -> NodeFacts {
        NodeFacts {
            gpu: self
                .gpus
                .first()
                .map_or_else(String::new, |gpu| gpu.gpu.name.clone()),
            simulated: self.settings.simulated,
            time_scale: self.settings.time_scale,
            reconfigurations: self.reconfigurations,
        }
    }

    /// What need not wait for the state file: a process that says hello waits for its page within a call of
    /// the user's program.
    pub fn prompt(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.prompt)
    }

    /// Writes the state file if anything in it changed, then gives the orders and outputs out.
    ///
    /// # Errors
    /// The file cannot be written; nothing is given out then, and all is kept for the next call.
    pub fn settle(&mut self) -> Result<(Vec<Order>, Vec<Output>), DaemonError> {
        for id in std::mem::take(&mut self.changed_jobs) {
            let Some(job) = self.jobs.get(&id) else { continue };
            let watcher = job
                .submission
                .batch
                .and_then(|batch| self.batches.get(&batch)?.watcher);
            if let Some(peer) = watcher {
                let status = Box::new(job.status());
                self.reply(peer, Reply::BatchJob(status));
            }
        }
        if self.dirty || self.watch_changed {
            self.watch_leased();
        }
        if self.dirty {
            let written = self.write_state();
            self.write_refused = written.as_ref().err().map(ToString::to_string);
            if written.is_err() {
                self.answer_onlookers();
            }
            written?;
        }
        self.raise_caps();
        Ok((
            std::mem::take(&mut self.orders),
            std::mem::take(&mut self.outputs),
        ))
    }

    /// Has the leased slices measured. Each order has all of them read at once, so it is given only where there is a reason.
    fn watch_leased(&mut self) {
        let holders = self
            .slices
            .values()
            .filter_map(|slice| self.jobs.get(&slice.job?));
        let mut watched: Vec<Watched> = holders.filter_map(|job| self.watched(job)).collect();
        watched.sort_by_key(|one| one.job);
        let is_same = |(one, other): (&Watched, &Watched)| one.is_same(other);
        let known = watched.len() == self.watching.len() && watched.iter().zip(&self.watching).all(is_same);
        if !known || self.watch_changed {
            self.orders.push(Order::Watch(watched.clone()));
        }
        (self.watching, self.watch_changed) = (watched, false);
    }

    fn watched(&self, job: &Job) -> Option<Watched> {
        let slice = self.slices.get(&job.grant.as_ref()?.slice)?;
        Some(Watched {
            job: job.id,
            attempt: job.attempt().attempt,
            device: match slice.origin {
                Origin::Soft => self.shared_device(job, slice),
                _ => slice.device(&self.gpus)?,
            },
            page: job.page.clone()?,
        })
    }

    /// What time alone brings about. Wanted every second or so, and each tenth of it while the owner
    /// [is pressed](Self::is_pressed). `true` when nobody needs
    /// this supervisor any more: unless somebody has come meanwhile, [`stop`](Self::stop) it.
    pub fn beat(&mut self, now: f64) -> bool {
        self.look_for_orphans(now);
        self.call_off_abandoned_batches(now);
        if now - self.ticked >= 1.0 {
            self.ticked = now;
            self.release_stuck(now);
            if self.plans() {
                self.learn_paces(now);
            }
            self.step(now, Event::Tick);
        }
        if !self.settings.private || self.stopping {
            return false;
        }
        // Somebody who looks at the status every second is no reason to stay, and all start by being unknown.
        let needed = |client: &Client| match client.role {
            Role::Onlooker => false,
            Role::Unknown => now - client.since >= IDLE_END,
            Role::Command | Role::Runner(_) | Role::Process(_) => true,
        };
        let busy =
            self.clients.values().any(needed) || self.jobs.values().any(|job| job.state != JobState::Ended);
        if busy || !self.had_client && now - self.started < FIRST_CLIENT {
            self.idle_since = None;
            return false;
        }
        now - *self.idle_since.get_or_insert(now) >= IDLE_END
    }

    /// Begins the end: idle slices of ours go, busy ones stay for the next supervisor.
    pub fn stop(&mut self) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        self.dirty = true;
        let idle: Vec<Incarnation> = self
            .slices
            .iter()
            .filter(|(_, slice)| {
                slice.origin == Origin::Ours && slice.step == Step::Ready && slice.job.is_none()
            })
            .map(|(number, _)| *number)
            .collect();
        for number in idle {
            self.order_destroy(number);
        }
    }

    /// Whether the end has begun.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether the end is reached.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.stopping && self.unanswered == 0
    }

    /// Whether time alone may bring something about soon: an end, or a slice whose runner has gone.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        let may_end = self.settings.private && self.clients.is_empty();
        self.stopping || self.dirty || may_end || self.orphans
    }
}
