//! migm.
use std::collections::HashMap;
use migm_shared::ids::JobId;
use super::super::{Board, Order, Strategy, share};
use super::shop::*;
use super::local::*;
use crate::layout::{ProfileIndex, Table};

/// Options.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice { 
    /// Arrival order.
    pub fifo: bool,
    /// Moves.
    pub moves: bool,
    /// Evaluations.
    pub search: u32 }

/// The default policy.
#[derive(Debug)]
pub struct Migm { choice: Choice, grids: Vec<Grid>, keys: Vec<usize>, shares: Vec<Vec<f64>>, round: u64, warm: HashMap<JobId, (f64, u8)>, mixes: Vec<super::flow::Mixes> }

fn env(name: &str, d: f64) -> f64 { std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(d) }

impl Migm {
    /// With options.
    pub fn new(choice: Choice) -> Self { Self { choice, grids: vec![], keys: vec![], shares: vec![], round: 0, warm: HashMap::new(), mixes: vec![] } }
    fn learn_tables(&mut self, board: &Board<'_>) {
        for desk in &board.gpus {
            let key = std::ptr::from_ref::<Table>(desk.table) as usize;
            while self.grids.len() <= desk.kind { self.grids.push(Grid::new(desk.table)); self.mixes.push(super::flow::Mixes::new(desk.table)); self.keys.push(key);
                self.shares.push((0..desk.table.profiles().len()).map(|p| share(desk.table, ProfileIndex(p))).collect()); }
        }
    }
}

impl Strategy for Migm {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        if board.waiting.is_empty() && !(self.choice.moves && board.gpus.iter().any(|d| d.has_room())) { return Vec::new(); }
        if !self.choice.moves && board.gpus.iter().all(|d| !d.has_room()) { return Vec::new(); }
        self.learn_tables(board);
        self.round += 1;
        if self.choice.moves && env("FLOW", 1.0) > 0.0 { return super::flow::decide(board, &self.mixes, self.choice.fifo); }
        let mut tasks: Vec<Task> = Vec::new();
        let mut names = Vec::new();
        let mut movable: Vec<u16> = vec![];
        let mut places = Vec::new();
        let mut batch = false;
        for (g, desk) in board.gpus.iter().enumerate() {
            let grid = &self.grids[desk.kind];
            let mut state = Table::EMPTY;
            for h in desk.held.iter().filter(|h| h.job.is_none()) { if let Some(s) = desk.table.with(state, h.slot) { state = s; } }
            let mut standing = 0; for s in &desk.idle { standing |= 1 << grid.bit(*s).unwrap(); }
            places.push(Place { kind: desk.kind as u8, state: state.to_usize() as u16, standing });
            for h in desk.jobs() {
                let facts = h.facts.unwrap();
                batch |= facts.in_batch;
                let left = h.left.unwrap_or(h.attained.max(1000.0));
                let s = facts.speed(desk.kind, desk.table, h.slot.0);
                let secs = left / s.max(1e-9);
                let mut options = vec![];
                let can = self.choice.moves && h.runs;
                if can {
                    let work = if facts.keeps_work { left } else { left + h.attained };
                    options = opts(&self.shares, board, |k, t, p| if t.profile(p).memory < h.need { 0.0 } else { facts.speed(k, t, p) }, work, facts.move_cost);
                }
                if can { movable.push(tasks.len() as u16); }
                tasks.push(Task { weight: facts.weight, options, runs: Some((g as u16, grid.bit(h.slot).unwrap(), secs)) });
                names.push(h.job.unwrap());
            }
        }
        let nrun = tasks.len();
        let mut work = vec![0.0; nrun];
        for c in board.waiting.iter() {
            let left = c.facts.work.unwrap_or(c.facts.attained.max(1000.0));
            batch |= c.facts.in_batch;
            let options = opts(&self.shares, board, |k, t, p| c.speed(k, t, p), left, 0.0);
            if options.is_empty() { continue; }
            work.push(left);
            tasks.push(Task { weight: c.facts.weight, options, runs: None });
            names.push(c.job);
        }
        let n = tasks.len();
        let goal = if batch { Goal::Makespan } else { Goal::Completion };
        let mut shop = Shop::new(&self.grids, places, tasks, goal);
        shop.create = 0.32; shop.destroy = 0.21; shop.strict = self.choice.fifo;
        let mut order: Vec<u16> = (nrun as u16..n as u16).collect();
        if !self.choice.fifo { order.sort_by(|a, b| {let w = |x: u16| work[x as usize]; if batch { w(*b).total_cmp(&w(*a)) } else { w(*a).total_cmp(&w(*b)) } }); }
        order.splice(0..0, movable.iter().copied());
        let mut best: Option<(f64, List)> = None;
        for lambda in [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0] {
            let option = (0..n).map(|i| if i < nrun { STAY } else {
                let o = &shop.tasks[i].options;
                (0..o.len()).min_by(|a, b| { let c = |i: usize| o[i].seconds * (1.0 + lambda * self.shares[o[i].kind as usize][o[i].profile as usize]); c(*a).total_cmp(&c(*b)) }).unwrap() as u8 }).collect();
            let list = List { order: order.clone(), option };
            let cost = shop.cost(&list, f64::INFINITY);
            if best.as_ref().is_none_or(|b| cost < b.0) { best = Some((cost, list)); }
        }
        // warm start
        if self.round > 1 {
            let (_, mut list) = best.clone().unwrap();
            for i in nrun..n { if let Some(w) = self.warm.get(&names[i]) { if (w.1 as usize) < shop.tasks[i].options.len() { list.option[i] = w.1; } } }
            if !self.choice.fifo {
                let mut rank: Vec<(f64, u16)> = vec![];
                let mut last = -1.0;
                for &i in &list.order { if (i as usize) < nrun { continue; } let r = self.warm.get(&names[i as usize]).map_or(last, |w| w.0); last = r; rank.push((r, i)); }
                rank.sort_by(|a, b| a.0.total_cmp(&b.0));
                list.order = movable.iter().copied().chain(rank.iter().map(|x| x.1)).collect();
            }
            let cost = shop.cost(&list, f64::INFINITY);
            if cost < best.as_ref().unwrap().0 { best = Some((cost, list)); }
        }
        let Some((cost, mut list)) = best else { return vec![] };
        let mut dice = Dice::new(self.round);
        let budget = if batch { self.choice.search } else { env("EVALS", 300.0) as u32 };
        let heat = if batch { env("HEATB", 0.01) } else { env("HEAT", 0.001) };
        improve(&mut shop, &mut list, cost, budget, heat, &movable, &mut dice);
        shop.cost(&list, f64::INFINITY);
        self.warm.clear();
        for (r, &i) in list.order.iter().enumerate() { if i as usize >= nrun { self.warm.insert(names[i as usize], (r as f64, list.option[i as usize])); } }
        shop.starts.iter().map(|s| { let desk = &board.gpus[s.gpu as usize]; Order { job: names[s.task as usize], gpu: desk.gpu, slot: Some(self.grids[desk.kind].slot(s.bit)), reason: String::new() } }).collect()
    }
}

fn opts(shares: &[Vec<f64>], board: &Board<'_>, speed: impl Fn(usize, &Table, ProfileIndex) -> f64, work: f64, extra: f64) -> Vec<Option_> {
    let mut out: Vec<Option_> = vec![];
    for (k, sh) in shares.iter().enumerate() {
        let table = board.gpus.iter().find(|d| d.kind == k).unwrap().table;
        let mut ps: Vec<(f64, f64, usize)> = (0..sh.len()).map(|p| (sh[p], speed(k, table, ProfileIndex(p)), p)).filter(|x| x.1 > 0.0).collect();
        ps.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut top = 0.0;
        for (_, s, p) in ps { if s > top { top = s; out.push(Option_ { kind: k as u8, profile: p as u8, seconds: work / s + extra }); } }
    }
    out
}
