//! The event loop in virtual time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use super::run::Knowledge;
use super::{Attempt, End, Outcome, Settings, Workload, bus, parameters};
use crate::layout::Slot;
use crate::schedule::{Action, Event, GpuIndex, Need, Scheduler, Terms};

mod before;

/// What happens at some time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
enum What {
    Arrive(usize),
    Created(Incarnation),
    Destroyed(Incarnation),
    /// The job begins to advance: it has been loaded again after a move.
    Loaded(usize, u64),
    /// The job has run long enough on its slice for its speed there to be known; with the bits of its start.
    Learnt(usize, u64),
    /// The job comes to the next point of its attempt.
    Reached(usize, u64),
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: f64,
    number: u64,
    what: What,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at.total_cmp(&other.at).then(self.number.cmp(&other.number))
    }
}

/// What is to happen at the next point of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Done,
    Oom,
    /// The forecast says it will need so many bytes.
    Forecast(u64),
}

#[derive(Clone, Copy, Debug)]
struct Running {
    gpu: usize,
    slot: Slot,
    start: f64,
    /// Speed alone on its slice.
    alone: f64,
    /// Speed now.
    speed: f64,
    /// Advances since.
    since: f64,
    loading: bool,
    /// Work left when the next point is reached, and what it is.
    next: (f64, Point),
    forecast: bool,
}

#[derive(Clone, Debug, Default)]
struct Live {
    running: Option<Running>,
    left: f64,
    version: u64,
    /// Bytes that it needs, as found out so far.
    need: u64,
    /// It has been moved: it must be loaded before it goes on.
    moved: bool,
    /// When it arrived.
    came: Option<f64>,
    /// Jobs before it that have not ended.
    before: usize,
    /// Jobs after it.
    after: Vec<usize>,
}

pub(super) struct Engine<'a> {
    load: &'a Workload,
    settings: &'a Settings,
    scheduler: Scheduler,
    knowledge: Knowledge,
    due: BinaryHeap<Reverse<Due>>,
    number: u64,
    now: f64,
    jobs: Vec<Live>,
    on: Vec<Vec<usize>>,
    driver: Vec<f64>,
    slots: HashMap<Incarnation, (usize, Slot)>,
    watts: Vec<f64>,
    measured: Vec<f64>,
    record: bool,
    ended: usize,
    outcome: Outcome,
    /// Longest decision in wall time is measured by the caller, who sees each step.
    watch: &'a mut dyn FnMut(&mut Scheduler, f64, Event) -> Vec<Action>,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        load: &'a Workload,
        settings: &'a Settings,
        scheduler: Scheduler,
        record: bool,
        watch: &'a mut dyn FnMut(&mut Scheduler, f64, Event) -> Vec<Action>,
    ) -> Self {
        let mut engine = Self {
            load,
            settings,
            scheduler,
            knowledge: Knowledge::new(load, settings),
            due: BinaryHeap::new(),
            number: 0,
            now: load.start(),
            jobs: load
                .jobs
                .iter()
                .map(|job| Live {
                    left: job.work,
                    need: job.told,
                    ..Live::default()
                })
                .collect(),
            on: vec![Vec::new(); load.gpus.len()],
            driver: vec![0.0; load.gpus.len()],
            slots: HashMap::new(),
            watts: vec![0.0; load.gpus.len()],
            measured: vec![load.start(); load.gpus.len()],
            record,
            ended: 0,
            outcome: Outcome {
                completions: vec![f64::NAN; load.jobs.len()],
                watts: vec![Vec::new(); load.gpus.len()],
                ..Outcome::default()
            },
            watch,
        };
        for (index, job) in load.jobs.iter().enumerate() {
            engine.at(job.arrival, What::Arrive(index));
            engine.jobs[index].before = job.after.len();
            for before in &job.after {
                engine.jobs[before.job].after.push(index);
            }
        }
        engine
    }

    fn at(&mut self, at: f64, what: What) {
        self.number += 1;
        let number = self.number;
        self.due.push(Reverse(Due { at, number, what }));
    }

    pub(super) fn run(mut self) -> Outcome {
        for (index, gpu) in self.load.gpus.iter().enumerate() {
            let table = Arc::clone(&gpu.table);
            self.tell(Event::Gpu {
                gpu: GpuIndex(index),
                table,
                foreign: Vec::new(),
            });
        }
        while let Some(Reverse(next)) = self.due.pop() {
            self.now = next.at;
            self.happen(next.what);
            while self.due.peek().is_some_and(|Reverse(other)| other.at <= self.now) {
                if let Some(Reverse(next)) = self.due.pop() {
                    self.happen(next.what);
                }
            }
            self.tell(Event::Settled);
            if self.ended == self.jobs.len() {
                break;
            }
        }
        self.finish()
    }

    fn finish(mut self) -> Outcome {
        let start = self.load.start();
        let last = self
            .outcome
            .attempts
            .iter()
            .map(|attempt| attempt.end)
            .fold(start, f64::max);
        self.outcome.makespan = last - start;
        let idle: f64 = self.load.gpus.iter().map(|gpu| gpu.power.idle).sum();
        self.outcome.energy = self.outcome.active_energy + idle * self.outcome.makespan;
        let done: Vec<(f64, f64)> = self
            .outcome
            .completions
            .iter()
            .zip(&self.load.jobs)
            .filter(|(seconds, _)| seconds.is_finite())
            .map(|(&seconds, job)| (seconds, seconds / job.work))
            .collect();
        #[expect(clippy::cast_precision_loss, reason = "a number of jobs")]
        let count = done.len().max(1) as f64;
        self.outcome.mean_completion = done.iter().map(|job| job.0).sum::<f64>() / count;
        self.outcome.max_slowdown = done.iter().map(|job| job.1).fold(0.0, f64::max);
        self.outcome
            .attempts
            .sort_by(|a, b| a.start.total_cmp(&b.start).then(a.job.cmp(&b.job)));
        self.outcome
    }

    /// Tells the scheduler and carries out what it answers.
    fn tell(&mut self, event: Event) {
        let actions = (self.watch)(&mut self.scheduler, self.now, event);
        let mut again = false;
        for action in actions {
            again |= self.carry_out(action);
        }
        if again {
            self.tell(Event::Settled);
        }
    }

    /// True when it has freed something at once.
    fn carry_out(&mut self, action: Action) -> bool {
        match action {
            Action::Create {
                slice,
                gpu,
                profile,
                placement,
            } => {
                self.slots.insert(slice, (gpu.0, (profile, placement)));
                self.outcome.reconfigurations += 1;
                let done = self.driver[gpu.0].max(self.now) + self.settings.create;
                self.driver[gpu.0] = done;
                self.at(done, What::Created(slice));
            }
            Action::Destroy { slice } => {
                let gpu = self.slots[&slice].0;
                self.outcome.reconfigurations += 1;
                let done = self.driver[gpu].max(self.now) + self.settings.destroy;
                self.driver[gpu] = done;
                self.at(done, What::Destroyed(slice));
            }
            Action::Grant { job, slice, .. } => self.start(index(job), slice),
            Action::Move { job, .. } => {
                self.move_away(index(job));
                return true;
            }
            // Of soft slices, which the simulated node has none of.
            Action::Look { .. }
            | Action::Lease { .. }
            | Action::Grow { .. }
            | Action::Shrink { .. }
            | Action::Stay { .. } => {}
            Action::Refuse { job, .. } => self.refused(index(job)),
        }
        false
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Arrive(job) => {
                let live = &mut self.jobs[job];
                if live.before > 0 || live.came.is_some() {
                    return;
                }
                live.came = Some(self.now);
                let facts = self.knowledge.facts(&self.load.jobs[job], self.jobs[job].left);
                self.tell(Event::Facts { job: id(job), facts });
                let device_bytes = self.jobs[job].need;
                let need = Need { device_bytes };
                let terms = self.load.jobs[job].terms.clone();
                if terms != Terms::default() {
                    self.tell(Event::Terms { job: id(job), terms });
                }
                self.tell(Event::Arrived { job: id(job), need });
            }
            What::Created(slice) => self.tell(Event::Created { slice }),
            What::Destroyed(slice) => {
                self.slots.remove(&slice);
                self.tell(Event::Destroyed { slice });
            }
            What::Loaded(job, version) => {
                if self.jobs[job].version == version
                    && let Some(running) = &mut self.jobs[job].running
                {
                    running.loading = false;
                    let gpu = running.gpu;
                    self.settle(gpu);
                }
            }
            What::Learnt(job, start) => {
                if let Some(running) = self.jobs[job].running
                    && running.start.to_bits() == start
                {
                    self.advance(running.gpu);
                    self.learn(job, &running);
                }
            }
            What::Reached(job, version) => {
                if self.jobs[job].version == version {
                    self.reached(job);
                }
            }
        }
    }

    fn start(&mut self, job: usize, slice: Incarnation) {
        let (gpu, slot) = self.slots[&slice];
        let spec = &self.load.jobs[job];
        let kind = self.load.gpus[gpu].kind;
        let alone = spec.speeds[kind].get(slot.0.0).copied().unwrap_or(0.0);
        let live = &mut self.jobs[job];
        live.version += 1;
        let loading = live.moved;
        let mut running = Running {
            gpu,
            slot,
            start: self.now,
            alone,
            speed: 0.0,
            since: self.now,
            loading,
            next: (0.0, Point::Done),
            forecast: false,
        };
        running.next = next_point(
            spec,
            live.left,
            alone,
            self.load.gpus[gpu].table.profile(slot.0).memory,
            Some(self.settings),
        );
        live.running = Some(running);
        live.moved = false;
        let version = live.version;
        self.on[gpu].push(job);
        if self.settings.learn {
            let wait = if loading { self.settings.move_cost } else { 0.0 };
            self.at(
                self.now + wait + parameters::LEARN_S,
                What::Learnt(job, self.now.to_bits()),
            );
        }
        if loading {
            self.at(self.now + self.settings.move_cost, What::Loaded(job, version));
        }
        self.settle(gpu);
    }

    /// Everyone on a GPU advances to now and gets the speed of the new company.
    fn settle(&mut self, gpu: usize) {
        self.advance(gpu);
        let active: Vec<usize> = self.on[gpu]
            .iter()
            .copied()
            .filter(|&job| self.jobs[job].running.is_some_and(|running| !running.loading))
            .collect();
        let alone: Vec<(f64, f64)> = active
            .iter()
            .map(|&job| {
                let speed = self.jobs[job].running.map_or(0.0, |running| running.alone);
                (speed, self.load.jobs[job].bus)
            })
            .collect();
        let speeds = bus::together(&alone);
        let power = self.load.gpus[gpu].power;
        let mut watts = 0.0;
        for (&job, &speed) in active.iter().zip(&speeds) {
            watts += power.busy * self.load.jobs[job].active * speed;
            let live = &mut self.jobs[job];
            let Some(running) = &mut live.running else {
                continue;
            };
            #[expect(clippy::float_cmp, reason = "an unchanged speed is the same figure")]
            if running.speed == speed && running.since < self.now {
                continue;
            }
            running.speed = speed;
            live.version += 1;
            let version = live.version;
            let due = match running.next.1 {
                // It does not fit: what it loads at its start is too much already.
                Point::Oom if speed <= 0.0 => self.now + parameters::DOOMED_S,
                _ => self.now + (live.left - running.next.0).max(0.0) / speed,
            };
            running.since = self.now;
            self.at(due, What::Reached(job, version));
        }
        self.watts[gpu] = watts;
        if self.record {
            self.outcome.watts[gpu].push((self.now, power.idle + watts));
        }
    }

    fn advance(&mut self, gpu: usize) {
        let seconds = self.now - self.measured[gpu];
        self.measured[gpu] = self.now;
        self.outcome.active_energy += self.watts[gpu] * seconds;
        for &job in &self.on[gpu] {
            let live = &mut self.jobs[job];
            if let Some(running) = &mut live.running
                && !running.loading
            {
                live.left -= seconds * running.speed;
            }
        }
    }

    fn reached(&mut self, job: usize) {
        let Some(running) = self.jobs[job].running else {
            return;
        };
        self.advance(running.gpu);
        let work = self.load.jobs[job].work;
        match running.next.1 {
            Point::Done => {
                self.stop(job, End::Done);
                self.jobs[job].left = 0.0;
                self.ended += 1;
                self.outcome.completions[job] = self.now - self.jobs[job].came.unwrap_or(self.now);
                // Its time shows its speed, if it was told how much work that was.
                if self.settings.learn && self.settings.remaining_known {
                    self.learn(job, &running);
                }
                self.over(job);
                self.tell(Event::Ended {
                    job: id(job),
                    again: None,
                });
            }
            Point::Oom => {
                self.stop(job, End::Oom);
                self.outcome.ooms += 1;
                let memory = self.load.gpus[running.gpu].table.profile(running.slot.0).memory;
                // The allocation that failed tells what is needed at this point.
                let done = 1.0 - self.jobs[job].left / work;
                let asked = self.load.jobs[job]
                    .memory
                    .steps
                    .iter()
                    .rev()
                    .find(|step| step.0 <= done + 1e-9);
                let need = asked.map_or(0, |step| step.1).max(memory + 1);
                self.restart(job, need);
            }
            Point::Forecast(need) => {
                let live = &mut self.jobs[job];
                live.need = need;
                if let Some(running) = &mut live.running {
                    running.forecast = true;
                    let memory = self.load.gpus[running.gpu].table.profile(running.slot.0).memory;
                    running.next = next_point(&self.load.jobs[job], live.left, running.alone, memory, None);
                    running.since = f64::NEG_INFINITY;
                    running.speed = f64::NAN;
                }
                self.settle(running.gpu);
                let need = Need { device_bytes: need };
                self.tell(Event::Forecast { job: id(job), need });
            }
        }
    }

    /// Takes the job off its slice.
    fn stop(&mut self, job: usize, how: End) {
        let Some(running) = self.jobs[job].running else {
            return;
        };
        self.advance(running.gpu);
        self.jobs[job].running = None;
        self.jobs[job].version += 1;
        self.on[running.gpu].retain(|&other| other != job);
        self.outcome.attempts.push(Attempt {
            job,
            gpu: running.gpu,
            slot: running.slot,
            start: running.start,
            end: self.now,
            how,
        });
        self.settle(running.gpu);
    }

    /// The speed of a job on its slice is known now, for all jobs of its program.
    fn learn(&mut self, job: usize, running: &Running) {
        let spec = &self.load.jobs[job];
        let kind = self.load.gpus[running.gpu].kind;
        if !self.knowledge.ran(spec, kind, running.slot.0, running.alone) {
            return;
        }
        for other in 0..self.jobs.len() {
            let same = &self.load.jobs[other];
            let here = self.jobs[other].came.is_some() && self.outcome.completions[other].is_nan();
            if here && same.program == spec.program {
                if let Some(gpu) = self.jobs[other].running.map(|running| running.gpu) {
                    self.advance(gpu);
                }
                let facts = self.knowledge.facts(same, self.jobs[other].left.max(0.0));
                self.tell(Event::Facts {
                    job: id(other),
                    facts,
                });
            }
        }
    }

    /// Begins again from nothing on a larger slice.
    fn restart(&mut self, job: usize, need: u64) {
        self.jobs[job].left = self.load.jobs[job].work;
        self.jobs[job].need = need;
        let facts = self.knowledge.facts(&self.load.jobs[job], self.jobs[job].left);
        self.tell(Event::Facts { job: id(job), facts });
        let again = Some(Need { device_bytes: need });
        self.tell(Event::Ended { job: id(job), again });
    }

    fn move_away(&mut self, job: usize) {
        let Some(running) = self.jobs[job].running else {
            return;
        };
        if running.forecast {
            self.stop(job, End::Outgrowing);
            self.outcome.early_restarts += 1;
            let need = self.jobs[job].need;
            self.restart(job, need);
            return;
        }
        self.stop(job, End::Moved);
        self.outcome.moves += 1;
        self.jobs[job].moved = true;
        if !(self.settings.work_kept && self.load.jobs[job].checkpoints) {
            self.jobs[job].left = self.load.jobs[job].work;
        }
        let facts = self.knowledge.facts(&self.load.jobs[job], self.jobs[job].left);
        self.tell(Event::Facts { job: id(job), facts });
        let need = Need {
            device_bytes: self.jobs[job].need,
        };
        self.tell(Event::Moved { job: id(job), need });
    }
}

/// The next point of an attempt with `left` work to do: out of memory, a forecast of that (none without `forecasts`), or
/// the end.
fn next_point(
    job: &super::Job,
    left: f64,
    speed: f64,
    memory: u64,
    forecasts: Option<&Settings>,
) -> (f64, Point) {
    if speed <= 0.0 {
        return (left, Point::Oom);
    }
    let Some(full_at) = job.memory.exceeds(memory) else {
        return (0.0, Point::Done);
    };
    let work_left = |part: f64| (job.work * (1.0 - part)).min(left);
    if let Some(settings) = forecasts
        && let Some((part, need)) = super::run::first_warning(job, memory, settings)
        && work_left(part) < left
    {
        return (work_left(part), Point::Forecast(need));
    }
    (work_left(full_at), Point::Oom)
}

fn id(job: usize) -> JobId {
    JobId(job as u64 + 1)
}

fn index(job: JobId) -> usize {
    usize::try_from(job.0 - 1).unwrap_or(usize::MAX)
}
