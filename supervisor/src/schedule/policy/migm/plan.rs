//! Plans by search: a list of all jobs that wait, given when the running ones end.

use std::collections::{HashMap, HashSet};

use migm_shared::ids::JobId;

use super::super::super::{Board, Held, Order};
use super::super::family::{family, refine};
use super::super::picture::{Kind, number, running, ways};
use super::super::shop::{Goal, List, STAY, Shop, Task, Way};
use super::Choice;
use super::explore::Explore;
use super::few::Few;
use super::local::{Dice, improve};
use super::loose::{self, Loose};
use super::remaining::Remaining;
use crate::layout::{ProfileIndex, Table};
use crate::schedule::speed::LEARN_S;

/// Prices of a GPU's time at which the first lists are made.
pub(super) const PRICES: [f64; 7] = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0];
/// Jobs that are planned at once; the others wait behind them.
const AHEAD: usize = 200;
/// Plans tried for jobs that come one by one, at each event.
const ONLINE: u32 = 300;
/// Part of a batch's search that is spent again at each later event.
const AGAIN: u32 = 30;
/// The same when running jobs start again elsewhere.
const ANEW: u32 = 6;
/// An evaluation takes time by the number of jobs: so many get the full budget, more get fewer evaluations.
const FULL_BUDGET: u32 = 60;
/// Where annealing starts, as a part of the cost; see [`improve`].
const HEAT: f64 = 0.003;

/// Remembers its last list, from which the next search starts.
#[derive(Debug, Default)]
pub(super) struct Planner {
    round: u64,
    last: HashMap<JobId, (usize, u8)>,
    /// The last board was a batch.
    batch: bool,
    explore: Explore,
}

impl Planner {
    pub(super) fn decide(
        &mut self,
        board: &Board<'_>,
        kinds: &[Kind],
        remaining: &Remaining,
        choice: &Choice,
        batch: bool,
    ) -> Vec<Order> {
        let Some((places, mut tasks, mut names)) =
            running(board, kinds, choice.create, |told, done| remaining.of(told, done))
        else {
            return Vec::new();
        };
        let held = if batch {
            self.explore.held(board)
        } else {
            HashSet::new()
        };
        let first = tasks.len();
        let mut order: Vec<(f64, u16)> = Vec::new();
        for candidate in board.waiting.iter() {
            let left = remaining.of(candidate.facts.work, candidate.facts.attained);
            let ways = ways(
                board,
                kinds,
                |kind, table, profile| candidate.speed(kind, table, profile),
                left,
            );
            if ways.is_empty() {
                continue;
            }
            order.push((left / candidate.facts.weight.max(1e-9), number(tasks.len())));
            tasks.push(Task {
                weight: candidate.facts.weight,
                ways,
                runs: None,
                held: held.contains(&candidate.job),
            });
            names.push(candidate.job);
        }
        if !choice.fifo {
            let sign = if batch { -1.0 } else { 1.0 };
            order.sort_by(|a, b| (sign * a.0).total_cmp(&(sign * b.0)).then(a.1.cmp(&b.1)));
        }
        let all = order.len() <= AHEAD;
        order.truncate(AHEAD);
        let order: Vec<u16> = order.into_iter().map(|entry| entry.1).collect();
        let grids: Vec<_> = kinds.iter().map(|kind| &kind.grid).collect();
        let goal = if batch { Goal::Makespan } else { Goal::Completion };
        let mut shop = Shop::new(&grids, places, tasks, goal);
        shop.create = choice.create;
        shop.destroy = choice.destroy;
        shop.strict = choice.fifo;
        shop.opens = LEARN_S;
        let fresh = !batch
            || !self.batch
            || order
                .iter()
                .any(|&task| !self.last.contains_key(&names[usize::from(task)]));
        let mut best = List::default();
        let mut least = f64::INFINITY;
        for price in PRICES {
            let list = List {
                order: order.clone(),
                way: priced(&shop, kinds, price),
            };
            let cost = shop.cost(&list, f64::INFINITY);
            if cost < least || best.way.is_empty() {
                (best, least) = (list, cost);
            }
        }
        // The family's lists leave out none, and so are none of those sought where some are beyond the look ahead.
        if batch && fresh && all && !choice.fifo {
            let (cost, list) = family(&mut shop, kinds, first);
            let (cost, list) = refine(&mut shop, cost, list, choice.search / 3);
            if cost < least {
                (best, least) = (list, cost);
            }
        }
        let again = self.remembered(&best, &names, &shop);
        let cost = shop.cost(&again, f64::INFINITY);
        if cost < least {
            (best, least) = (again, cost);
        }
        let mut few = if batch && !choice.fifo && held.is_empty() {
            Few::look(board, remaining, choice, least)
        } else {
            None
        };
        let mut budget = match (batch, fresh) {
            _ if few.as_ref().is_some_and(Few::is_proven) => 0,
            (false, _) => ONLINE.min(choice.search),
            (true, true) => choice.search,
            (true, false) => choice.search / AGAIN,
        };
        let mut stops: Vec<usize> = Vec::new();
        if batch && choice.moves {
            let loose = loose_ends(board, kinds, remaining, &names);
            let ends = few.as_ref().map_or(least, Few::makespan);
            if let Some(found) = loose::release(&mut shop, kinds, &best, ends, loose) {
                (best, least, stops) = (found.list, found.cost, found.stops);
                few = None;
                budget = budget.max(choice.search / ANEW);
            }
        }
        self.round += 1;
        let jobs = u32::try_from(best.order.len()).unwrap_or(u32::MAX);
        least = improve(
            &mut shop,
            &mut best,
            least,
            budget.saturating_mul(FULL_BUDGET) / jobs.max(FULL_BUDGET),
            HEAT,
            &mut Dice::new(self.round),
        );
        shop.cost(&best, f64::INFINITY);
        self.batch = batch;
        self.last.clear();
        for (rank, &task) in best.order.iter().enumerate() {
            let task = usize::from(task);
            self.last.insert(names[task], (rank, best.way[task]));
        }
        if let Some(few) = few.filter(|few| few.is_found() && few.makespan() < least) {
            self.follow(&few, board, &names, &shop);
            return few.orders(board);
        }
        let starts = shop.starts.iter().map(|start| {
            let desk = &board.gpus[usize::from(start.gpu)];
            let slot = kinds[desk.kind].grid.slot(start.bit);
            Order {
                job: names[usize::from(start.task)],
                gpu: desk.gpu,
                slot: Some(slot),
                reason: match best.order.len() {
                    1 => format!("{} by a plan for it alone", desk.table.named(slot)),
                    jobs => format!("{} by a plan for {jobs} jobs", desk.table.named(slot)),
                },
            }
        });
        let mut orders: Vec<Order> = starts.collect();
        for task in stops {
            let job = names[task];
            if orders.iter().all(|order| order.job != job)
                && let Some(desk) = board
                    .gpus
                    .iter()
                    .find(|desk| desk.jobs().any(|held| held.job == Some(job)))
            {
                orders.push(Order {
                    job,
                    gpu: desk.gpu,
                    slot: None,
                    reason: "the batch ends earlier when it starts again later".to_owned(),
                });
            }
        }
        orders
    }

    /// Remembers a schedule as the list that comes next to it.
    fn follow(&mut self, few: &Few, board: &Board<'_>, names: &[JobId], shop: &Shop<'_>) {
        for (rank, (job, place)) in few.in_order().into_iter().enumerate() {
            let (kind, profile) = (board.gpus[place.gpu].kind, place.slot.0.0);
            let is_there = |way: &Way| (usize::from(way.kind), usize::from(way.profile)) == (kind, profile);
            let task = names.iter().position(|name| *name == job);
            let way = task.and_then(|task| shop.tasks[task].ways.iter().position(is_there));
            if let Some(known) = self.last.get_mut(&job) {
                known.0 = rank;
                known.1 = way.and_then(|way| u8::try_from(way).ok()).unwrap_or(known.1);
            }
        }
    }

    /// The list of the last round, with what is new at its place by length.
    fn remembered(&self, fresh: &List, names: &[JobId], shop: &Shop<'_>) -> List {
        let mut list = fresh.clone();
        for (task, name) in names.iter().enumerate() {
            if shop.tasks[task].runs.is_none()
                && let Some(&(_, way)) = self.last.get(name)
                && usize::from(way) < shop.tasks[task].ways.len()
            {
                list.way[task] = way;
            }
        }
        if !shop.strict {
            let mut rank = 0;
            let mut ranked: Vec<(usize, u16)> = Vec::new();
            for &task in &fresh.order {
                rank = self
                    .last
                    .get(&names[usize::from(task)])
                    .map_or(rank, |known| known.0);
                ranked.push((rank, task));
            }
            ranked.sort_by_key(|entry| entry.0);
            list.order = ranked.into_iter().map(|entry| entry.1).collect();
        }
        list
    }
}

/// For each task that waits the way of the least time and price.
fn priced(shop: &Shop<'_>, kinds: &[Kind], price: f64) -> Vec<u8> {
    let way = |task: &Task| match task.runs {
        Some(_) => STAY,
        None => cheapest(&task.ways, kinds, price),
    };
    shop.tasks.iter().map(way).collect()
}

/// The way of the least time and price.
pub(super) fn cheapest(ways: &[Way], kinds: &[Kind], price: f64) -> u8 {
    let cost = |way: &Way| {
        let share = kinds[usize::from(way.kind)].shares[usize::from(way.profile)];
        way.seconds * (1.0 + price * share)
    };
    let best = ways
        .iter()
        .enumerate()
        .min_by(|a, b| cost(a.1).total_cmp(&cost(b.1)));
    best.map_or(0, |(index, _)| u8::try_from(index).unwrap_or(u8::MAX))
}

/// The running jobs that could start again elsewhere, in the order of their tasks, with what that costs.
fn loose_ends(board: &Board<'_>, kinds: &[Kind], remaining: &Remaining, names: &[JobId]) -> Vec<Loose> {
    let held = board.gpus.iter().flat_map(|desk| &desk.held);
    let running: HashMap<JobId, &Held<'_>> = held.filter_map(|held| Some((held.job?, held))).collect();
    let loose = |(task, name): (usize, &JobId)| {
        let held = running.get(name).filter(|held| held.runs)?;
        let facts = held.facts.filter(|facts| !facts.stays)?;
        // What would be done again is never weighed against a guess.
        if !facts.keeps_work && held.left.is_none() {
            return None;
        }
        let left = remaining.of(held.left, held.attained);
        let lost = if facts.keeps_work { 0.0 } else { held.attained };
        let speed = |kind: usize, table: &Table, profile: ProfileIndex| held.speed(kind, table, profile);
        let mut ways = ways(board, kinds, speed, left + lost);
        for way in &mut ways {
            way.seconds += facts.move_cost;
        }
        (!ways.is_empty()).then_some(Loose { task, ways, lost })
    };
    names.iter().enumerate().filter_map(loose).collect()
}
