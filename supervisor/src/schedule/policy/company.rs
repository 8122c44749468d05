//! Running jobs in company: who shares which GPU, in which layout, as jobs come and go.
//!
//! For jobs that keep their work when they are moved. At every event the assignment is improved step by step:
//! a GPU is laid out anew for the jobs on it, a waiting job joins, one job stops for another, one goes to
//! another GPU. A step is taken while it raises the sum over jobs of v s, s being the speed of a job and v the
//! worth of a second of its work.
//!
//! v is the marginal cost of remaining work in the optimum for jobs of speed share^(1 - 1/C) on divisible
//! servers (heSRPT: Berg, Vesilo, Harchol-Balter, Performance 2020): with the jobs ranked from the largest, the
//! i-th has v = (x^C - (x - 1)^C)^(1/C) for x = i / G, and 1 where x is below 1. So the shortest jobs count most
//! when many wait, and all the same when each has a GPU for itself.
//!
//! A move costs the job `move_cost` seconds of its speed, spread over the time that it goes on there.

use std::borrow::Cow;

use migm_shared::ids::JobId;

use super::super::board::serves;
use super::super::{Board, Facts, Order};
use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

/// The exponent C above. 3 did best of 1.3 to 4 on the trace of MISO; the differences are within 3 %.
const CONCAVITY: f64 = 3.0;
/// The cost of a move is spread over at most this many seconds: by then the company has changed.
const HORIZON_S: f64 = 1000.0;
/// A step that moves running jobs must gain this much speed, in units of a largest job's whole GPU.
const LEAST_GAIN: f64 = 0.05;
/// A job stays at least this many times the cost of a move where it is.
const DWELL: f64 = 2.0;
/// Waiting jobs looked at to join, and to take the place of a running one.
const JOINERS: usize = 20;
const REPLACERS: usize = 5;
/// In order of arrival: what each job behind the first adds to its worth.
const PRESSURE: f64 = 0.05;
/// GPUs looked at in one decision, those with a change first.
const WINDOW: usize = 8;
/// The same on a node of more than [`LARGE`] GPUs.
const SMALL_WINDOW: usize = 4;
const LARGE: usize = 32;

/// Multisets of profiles that can stand together, and the states that hold them.
#[derive(Debug)]
pub(super) struct Mixes {
    /// By number of slices: counts of each profile.
    by_size: Vec<Vec<Vec<u8>>>,
    /// States of each number of slices.
    states: Vec<Vec<Vec<Slot>>>,
}

impl Mixes {
    pub(super) fn new(table: &Table) -> Self {
        let mut by_size: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut states: Vec<Vec<Vec<Slot>>> = Vec::new();
        for number in 0..table.all_states() {
            let slots = table.taken(StateIndex::from_usize(number));
            let size = slots.len();
            by_size.resize(by_size.len().max(size + 1), Vec::new());
            states.resize(states.len().max(size + 1), Vec::new());
            let counts = counts(&slots, table.profiles().len());
            if !by_size[size].contains(&counts) {
                by_size[size].push(counts);
            }
            states[size].push(slots);
        }
        Self { by_size, states }
    }
}

fn counts(slots: &[Slot], profiles: usize) -> Vec<u8> {
    let mut counts = vec![0; profiles];
    for slot in slots {
        counts[slot.0.0] += 1;
    }
    counts
}

/// Works out the mixes of the kinds on the board that are not known yet.
pub(super) fn learn(known: &mut Vec<Mixes>, board: &Board<'_>) {
    while let Some(desk) = board.gpus.iter().find(|desk| desk.kind == known.len()) {
        known.push(Mixes::new(desk.table));
    }
}

/// Who may join whom.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Manner {
    /// Whoever gains most.
    Free,
    /// In order of arrival; a job is passed over only while no place for it is worth it.
    InOrder,
    /// As MISO does: strictly in order, onto the GPU with the fewest jobs, all jobs worth the same.
    Miso,
}

/// A job that runs or waits.
#[derive(Debug)]
struct Member<'a> {
    job: JobId,
    facts: &'a Facts,
    left: f64,
    worth: f64,
    /// Speeds by kind and profile.
    speeds: Vec<Cow<'a, [f64]>>,
    /// Where it runs.
    here: Option<(usize, Slot)>,
    movable: bool,
    order: u64,
}

/// A step: the new company of one or two GPUs, and the place in the queue of the job that joins.
struct Step {
    gain: f64,
    changes: Vec<(usize, Vec<usize>, Fit)>,
    joins: Option<usize>,
}

/// The worth of a company's speeds, and each job's profile.
#[derive(Clone, Debug)]
struct Fit {
    worth: f64,
    profiles: Vec<u8>,
}

pub(super) struct Company<'a> {
    board: &'a Board<'a>,
    mixes: &'a [Mixes],
    manner: Manner,
    members: Vec<Member<'a>>,
    running: usize,
    queue: Vec<usize>,
    sets: Vec<Vec<usize>>,
    /// Something is under way there.
    locked: Vec<bool>,
    worth: Vec<f64>,
    plan: Vec<Option<Fit>>,
    window: Vec<usize>,
    /// Seconds that the cost of a move is spread over at most.
    horizon: f64,
}

impl<'a> Company<'a> {
    /// The picture of the board. `changed` are GPUs whose company is not what it was; `turn` chooses among
    /// the others where not all can be looked at.
    pub(super) fn new(
        board: &'a Board<'a>,
        mixes: &'a [Mixes],
        left: impl Fn(Option<f64>, f64) -> f64,
        manner: Manner,
        changed: &[usize],
        turn: usize,
    ) -> Self {
        let gpus = board.gpus.len();
        let tables: Vec<&Table> = (0..mixes.len())
            .filter_map(|kind| board.gpus.iter().find(|desk| desk.kind == kind))
            .map(|desk| desk.table)
            .collect();
        let mut company = Self {
            board,
            mixes,
            manner,
            members: Vec::new(),
            running: 0,
            queue: Vec::new(),
            sets: vec![Vec::new(); gpus],
            locked: vec![false; gpus],
            worth: vec![0.0; gpus],
            plan: vec![None; gpus],
            window: Vec::new(),
            horizon: HORIZON_S,
        };
        for (at, desk) in board.gpus.iter().enumerate() {
            company.locked[at] = desk.busy.is_none() || !desk.lasting.is_empty();
            for held in &desk.held {
                let (Some(job), Some(facts)) = (held.job, held.facts) else {
                    company.locked[at] = true;
                    continue;
                };
                company.locked[at] |= !held.runs;
                company.sets[at].push(company.members.len());
                company.members.push(Member {
                    job,
                    facts,
                    left: left(held.left, held.attained),
                    worth: 0.0,
                    speeds: speeds(facts, &tables, held.need, held.outgrown),
                    here: Some((at, held.slot)),
                    movable: held.runs
                        && facts.keeps_work
                        && !facts.stays
                        && held.ran > DWELL * facts.move_cost,
                    order: 0,
                });
            }
        }
        company.running = company.members.len();
        for candidate in &board.waiting {
            company.members.push(Member {
                job: candidate.job,
                facts: candidate.facts,
                left: left(candidate.facts.work, candidate.facts.attained),
                worth: 0.0,
                speeds: speeds(candidate.facts, &tables, candidate.need, candidate.outgrown),
                here: None,
                movable: true,
                order: candidate.order,
            });
        }
        company.value();
        company.look_ahead();
        company.look_at(changed, turn);
        company
    }

    /// Worth of each job, the order of the queue, and what stands is worth.
    fn value(&mut self) {
        let mut ranked: Vec<usize> = (0..self.members.len()).collect();
        ranked.sort_by(|&a, &b| {
            self.members[b]
                .left
                .total_cmp(&self.members[a].left)
                .then(a.cmp(&b))
        });
        let gpus = count(self.board.gpus.len());
        for (rank, &index) in ranked.iter().enumerate() {
            let x = (count(rank + 1) / gpus).max(1.0);
            let member = &mut self.members[index];
            member.worth = match self.manner {
                Manner::Miso => 1.0,
                _ => {
                    member.facts.weight
                        * (x.powf(CONCAVITY) - (x - 1.0).powf(CONCAVITY)).powf(1.0 / CONCAVITY)
                }
            };
        }
        let mut queue: Vec<usize> = (self.running..self.members.len()).collect();
        let members = &self.members;
        if self.manner != Manner::Free {
            // A job that has run before and was stopped comes before all that never ran.
            let level = |index: usize| self.board.waiting[index - self.running].level;
            queue.sort_by_key(|&index| {
                let member = &members[index];
                (level(index), member.facts.attained <= 0.0, member.order)
            });
        } else {
            let urgency = |index: usize| members[index].left / members[index].facts.weight.max(1e-9);
            queue.sort_by(|&a, &b| urgency(a).total_cmp(&urgency(b)).then(a.cmp(&b)));
        }
        self.queue = queue;
        for (at, set) in self.sets.iter().enumerate() {
            let kind = self.board.gpus[at].kind;
            let worth = set.iter().map(|&index| {
                let member = &self.members[index];
                member
                    .here
                    .map_or(0.0, |(_, slot)| member.worth * member.speeds[kind][slot.0.0])
            });
            self.worth[at] = worth.sum();
        }
    }

    /// With few who wait, the time until as many GPUs are empty: by then each could have a place of its own and nobody
    /// would have moved.
    fn look_ahead(&mut self) {
        if self.manner == Manner::Miso || self.queue.is_empty() || self.queue.len() > self.sets.len() {
            return;
        }
        let end = |member: &Member<'_>| {
            let (at, slot) = member.here?;
            let speed = member.speeds[self.board.gpus[at].kind][slot.0.0];
            Some(member.left / speed.max(1e-9))
        };
        let last = |set: &Vec<usize>| {
            let ends = set.iter().filter_map(|&index| end(&self.members[index]));
            ends.fold(0.0, f64::max)
        };
        let mut empty: Vec<f64> = self.sets.iter().map(last).collect();
        empty.sort_by(f64::total_cmp);
        self.horizon = empty[self.queue.len() - 1].clamp(1.0, HORIZON_S);
    }

    fn look_at(&mut self, changed: &[usize], turn: usize) {
        let gpus = self.board.gpus.len();
        let most = if self.manner == Manner::Miso {
            gpus
        } else if gpus > LARGE {
            SMALL_WINDOW
        } else {
            WINDOW
        };
        let others = (0..gpus).map(|offset| (turn + offset) % gpus);
        for at in changed.iter().copied().chain(others) {
            if self.window.len() < most && !self.locked[at] && !self.window.contains(&at) {
                self.window.push(at);
            }
        }
    }

    /// Improves the assignment as far as single steps do, and gives the orders for it.
    pub(super) fn settle(mut self) -> Vec<Order> {
        while let Some(step) = self.best_step() {
            for (at, set, fit) in step.changes {
                self.sets[at] = set;
                self.worth[at] = fit.worth;
                self.plan[at] = Some(fit);
            }
            if let Some(place) = step.joins {
                self.queue.remove(place);
            }
        }
        self.orders()
    }

    fn best_step(&self) -> Option<Step> {
        let mut best = None;
        for &at in &self.window {
            let set = self.sets[at].clone();
            self.consider(&mut best, LEAST_GAIN, 0.0, vec![(at, set)], None);
        }
        match self.manner {
            Manner::Free => {
                for (place, &joins) in self.queue.iter().take(JOINERS).enumerate() {
                    for &at in &self.window {
                        self.consider(
                            &mut best,
                            1e-9,
                            0.0,
                            vec![(at, with(&self.sets[at], joins))],
                            Some(place),
                        );
                    }
                }
            }
            Manner::InOrder => self.join_in_order(&mut best),
            Manner::Miso => {
                self.join_fewest(&mut best);
                return best;
            }
        }
        if best.is_none() {
            self.go_elsewhere(&mut best);
        }
        if best.is_none() && self.manner == Manner::Free {
            self.replace(&mut best);
        }
        best
    }

    /// The first in the queue for which there is a place that is worth it.
    fn join_in_order(&self, best: &mut Option<Step>) {
        let behind: f64 = self
            .queue
            .iter()
            .skip(1)
            .map(|&index| self.members[index].worth)
            .sum();
        let bonus = PRESSURE * behind / count(self.board.gpus.len());
        for (place, &joins) in self.queue.iter().take(JOINERS).enumerate() {
            for &at in &self.window {
                self.consider(
                    best,
                    1e-9,
                    bonus,
                    vec![(at, with(&self.sets[at], joins))],
                    Some(place),
                );
            }
            if best.as_ref().is_some_and(|step| step.joins.is_some()) {
                return;
            }
        }
    }

    /// The first in the queue joins the GPU with the fewest jobs that can take it.
    fn join_fewest(&self, best: &mut Option<Step>) {
        let Some(&joins) = self.queue.first() else {
            return;
        };
        let mut by_size = self.window.clone();
        by_size.sort_by_key(|&at| (self.sets[at].len(), at));
        for at in by_size {
            let before = best.as_ref().is_some_and(|step| step.joins.is_some());
            if !before {
                let changes = vec![(at, with(&self.sets[at], joins))];
                self.consider(best, f64::NEG_INFINITY, f64::from(u16::MAX), changes, Some(0));
            }
        }
    }

    fn go_elsewhere(&self, best: &mut Option<Step>) {
        for &from in &self.window {
            for place in 0..self.sets[from].len() {
                let goes = self.sets[from][place];
                if !self.members[goes].movable {
                    continue;
                }
                let mut less = self.sets[from].clone();
                less.remove(place);
                for &to in self.window.iter().filter(|&&to| to != from) {
                    let changes = vec![(from, less.clone()), (to, with(&self.sets[to], goes))];
                    self.consider(best, LEAST_GAIN, 0.0, changes, None);
                }
            }
        }
    }

    /// A running job stops and a waiting one takes its place.
    fn replace(&self, best: &mut Option<Step>) {
        for &at in &self.window {
            for place in 0..self.sets[at].len() {
                let stops = self.sets[at][place];
                let member = &self.members[stops];
                let Some((on, slot)) = member.here else { continue };
                if !member.movable {
                    continue;
                }
                let speed = member.speeds[self.board.gpus[on].kind][slot.0.0];
                let lost = member.worth * speed * member.facts.move_cost;
                for (rank, &joins) in self.queue.iter().take(REPLACERS).enumerate() {
                    let mut set = self.sets[at].clone();
                    set[place] = joins;
                    // What the stop costs must be won back while the other runs.
                    let loss = lost / self.members[joins].left.clamp(1.0, HORIZON_S);
                    self.consider(best, LEAST_GAIN, -loss, vec![(at, set)], Some(rank));
                }
            }
        }
    }

    /// Keeps the change if it gains more than `least` and than the best so far.
    fn consider(
        &self,
        best: &mut Option<Step>,
        least: f64,
        extra: f64,
        sets: Vec<(usize, Vec<usize>)>,
        joins: Option<usize>,
    ) {
        let mut gain = extra;
        let mut changes = Vec::with_capacity(sets.len());
        for (at, set) in sets {
            let Some(fit) = self.fit(&set, at) else { return };
            gain += fit.worth - self.worth[at];
            changes.push((at, set, fit));
        }
        let better = gain > least && best.as_ref().is_none_or(|step| gain > step.gain + 1e-12);
        // A mix may stand only where a job is that cannot go.
        let stands =
            |(at, set, fit): &(usize, Vec<usize>, Fit)| self.slots(*at, set, &fit.profiles).is_some();
        if better && changes.iter().all(stands) {
            *best = Some(Step { gain, changes, joins });
        }
    }

    /// The best layout for jobs together on a GPU; `None` when there is none for all.
    fn fit(&self, set: &[usize], at: usize) -> Option<Fit> {
        let kind = self.board.gpus[at].kind;
        let mixes = self.mixes[kind].by_size.get(set.len())?;
        let profiles = self.board.gpus[at].table.profiles().len();
        let mut values = Vec::with_capacity(set.len() * profiles);
        for &index in set {
            let member = &self.members[index];
            values.extend((0..profiles).map(|profile| {
                let speed = member.speeds[kind].get(profile).copied().unwrap_or(0.0);
                let stays = member
                    .here
                    .is_some_and(|(on, slot)| on == at && slot.0.0 == profile);
                if speed <= 0.0 || (!stays && !member.movable) {
                    f64::NEG_INFINITY
                } else if stays {
                    member.worth * speed
                } else {
                    let moves =
                        f64::from(member.here.is_some()) + f64::from(self.moves_on(member, kind, speed));
                    member.worth * speed * (1.0 - moves * self.part_lost(member, speed))
                }
            }));
        }
        let mut search = Assignment {
            values: &values,
            profiles,
            jobs: set.len(),
            pick: vec![0; set.len()],
            best: None,
        };
        for mix in mixes {
            search.assign(0, &mut mix.clone(), 0.0);
        }
        search.best
    }

    /// A job that goes to less than its best, though it could have a place of its own before it ends, will move there.
    fn moves_on(&self, member: &Member<'_>, kind: usize, speed: f64) -> bool {
        let soon = self.horizon < HORIZON_S.min(member.left / speed);
        soon && member.speeds[kind].iter().any(|&other| other > speed)
    }

    /// The part of its coming seconds that a job loses by a move.
    fn part_lost(&self, member: &Member<'_>, speed: f64) -> f64 {
        let goes_on = (member.left / speed.max(1e-9)).clamp(1.0, self.horizon);
        member.facts.move_cost / goes_on
    }

    fn orders(&self) -> Vec<Order> {
        let mut orders = Vec::new();
        let placed: std::collections::BTreeSet<usize> = self.sets.iter().flatten().copied().collect();
        for index in (0..self.running).filter(|index| !placed.contains(index)) {
            let member = &self.members[index];
            let Some((at, _)) = member.here else { continue };
            orders.push(Order {
                job: member.job,
                gpu: self.board.gpus[at].gpu,
                slot: None,
                reason: "shorter jobs are worth more in its place".to_owned(),
            });
        }
        for (at, fit) in self.plan.iter().enumerate() {
            if let Some(fit) = fit {
                self.lay_out(at, &fit.profiles, &mut orders);
            }
        }
        orders
    }

    /// The slots at which most jobs stay where they are, then most idle slices; `None` when one that cannot go would have to.
    fn slots(&self, at: usize, set: &[usize], profiles: &[u8]) -> Option<&[Slot]> {
        let desk = &self.board.gpus[at];
        let mut wanted = vec![0; desk.table.profiles().len()];
        for &profile in profiles {
            wanted[usize::from(profile)] += 1;
        }
        let fitting = self.mixes[desk.kind].states[profiles.len()]
            .iter()
            .filter(|slots| {
                counts(slots, wanted.len()) == wanted && !slots.iter().any(|slot| desk.refused.contains(slot))
            });
        let kept = |slots: &[Slot]| {
            let mut kept = 0;
            for (&index, &profile) in set.iter().zip(profiles) {
                match self.stays(index, at, profile) {
                    Some(slot) if slots.contains(&slot) => kept += 16,
                    _ if !self.members[index].movable => return None,
                    _ => {}
                }
            }
            Some(kept + slots.iter().filter(|slot| desk.idle.contains(slot)).count())
        };
        let best = fitting
            .filter_map(|slots| Some((kept(slots)?, slots)))
            .max_by_key(|found| found.0);
        best.map(|(_, slots)| &slots[..])
    }

    /// Where a job runs, if that is on such a slice of that GPU.
    fn stays(&self, index: usize, at: usize, profile: u8) -> Option<Slot> {
        let here = self.members[index].here;
        here.filter(|&(on, slot)| on == at && slot.0.0 == usize::from(profile))
            .map(|(_, slot)| slot)
    }

    /// Orders for one GPU.
    fn lay_out(&self, at: usize, profiles: &[u8], orders: &mut Vec<Order>) {
        let desk = &self.board.gpus[at];
        let set = &self.sets[at];
        let Some(slots) = self.slots(at, set, profiles) else {
            return;
        };
        let mut free: Vec<Slot> = slots.to_vec();
        let mut go = Vec::new();
        for (&index, &profile) in set.iter().zip(profiles) {
            match self.stays(index, at, profile) {
                Some(slot) if free.contains(&slot) => free.retain(|other| *other != slot),
                _ => go.push((index, profile)),
            }
        }
        for (index, profile) in go {
            let Some(place) = free.iter().position(|slot| slot.0.0 == usize::from(profile)) else {
                continue;
            };
            let slot = free.remove(place);
            let member = &self.members[index];
            orders.push(Order {
                job: member.job,
                gpu: desk.gpu,
                slot: Some(slot),
                reason: format!(
                    "{} in a company of {}: {:.2} of its full speed",
                    desk.table.named(slot),
                    set.len(),
                    member.speeds[desk.kind][slot.0.0]
                ),
            });
        }
    }
}

fn with(set: &[usize], joins: usize) -> Vec<usize> {
    let mut more = Vec::with_capacity(set.len() + 1);
    more.extend_from_slice(set);
    more.push(joins);
    more
}

fn speeds<'a>(facts: &'a Facts, tables: &[&Table], need: u64, outgrown: u64) -> Vec<Cow<'a, [f64]>> {
    let of = |(kind, table): (usize, &&Table)| {
        let holds = |profile: usize| serves(table.profiles()[profile].memory, need, outgrown);
        let profiles = 0..table.profiles().len();
        match facts.speeds.get(kind) {
            Some(known)
                if profiles
                    .clone()
                    .all(|p| holds(p) || known.get(p).is_none_or(|speed| *speed <= 0.0)) =>
            {
                Cow::Borrowed(&known[..])
            }
            _ => {
                let speed = |p: usize| {
                    if holds(p) {
                        facts.speed(kind, table, ProfileIndex(p))
                    } else {
                        0.0
                    }
                };
                Cow::Owned(profiles.map(speed).collect())
            }
        }
    };
    tables.iter().enumerate().map(of).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a number of jobs or GPUs")]
fn count(number: usize) -> f64 {
    number as f64
}

/// All ways to give the slices of a mix to the jobs: at most a few dozen.
struct Assignment<'a> {
    values: &'a [f64],
    profiles: usize,
    jobs: usize,
    pick: Vec<u8>,
    best: Option<Fit>,
}

impl Assignment<'_> {
    fn assign(&mut self, job: usize, left: &mut [u8], worth: f64) {
        if job == self.jobs {
            if self.best.as_ref().is_none_or(|best| worth > best.worth) {
                let profiles = self.pick.clone();
                self.best = Some(Fit { worth, profiles });
            }
            return;
        }
        for profile in 0..self.profiles {
            let value = self.values[job * self.profiles + profile];
            if left[profile] > 0 && value > f64::NEG_INFINITY {
                left[profile] -= 1;
                self.pick[job] = u8::try_from(profile).unwrap_or(u8::MAX);
                self.assign(job + 1, left, worth + value);
                left[profile] += 1;
            }
        }
    }
}
