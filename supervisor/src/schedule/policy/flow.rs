//! Running jobs share the GPUs and are moved as the company changes.

use migm_shared::ids::JobId;

use super::super::{Board, Order};
use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

/// Multisets of profiles that can stand together, and states that hold them.
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
        for s in 0..table.all_states() {
            let slots = table.taken(StateIndex::from_usize(s));
            let n = slots.len();
            if by_size.len() <= n { by_size.resize(n + 1, vec![]); states.resize(n + 1, vec![]); }
            let mut c = vec![0_u8; table.profiles().len()];
            for s in &slots { c[s.0.0] += 1; }
            if !by_size[n].contains(&c) { by_size[n].push(c); }
            states[n].push(slots);
        }
        Self { by_size, states }
    }
}

#[derive(Clone, Debug)]
struct Item<'a> { job: JobId, left: f64, v: f64, speeds: Vec<Vec<f64>>, cur: Option<(usize, Slot)>, cost: f64, movable: bool, order: u64, facts: &'a super::super::Facts, }

fn env(name: &str, d: f64) -> f64 { std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(d) }

pub(super) fn decide(board: &Board<'_>, mixes: &[Mixes], fifo: bool) -> Vec<Order> {
    let g = board.gpus.len();
    let mut items: Vec<Item<'_>> = vec![];
    let mut sets: Vec<Vec<usize>> = vec![vec![]; g];
    let mut locked = vec![false; g];
    let kinds: Vec<&Table> = (0..mixes.len()).map(|k| board.gpus.iter().find(|d| d.kind == k).unwrap().table).collect();
    for (at, desk) in board.gpus.iter().enumerate() {
        for h in &desk.held {
            let (Some(job), Some(facts)) = (h.job, h.facts) else { locked[at] = true; continue };
            if !h.runs { locked[at] = true; }
            let speeds = kinds.iter().enumerate().map(|(k, t)| (0..t.profiles().len()).map(|p| if t.profile(ProfileIndex(p)).memory < h.need { 0.0 } else { facts.speed(k, t, ProfileIndex(p)) }).collect()).collect();
            sets[at].push(items.len());
            items.push(Item { job, left: h.left.unwrap_or(h.attained.max(600.0)), v: 0.0, speeds, cur: Some((at, h.slot)), cost: facts.move_cost, movable: h.runs && facts.keeps_work, order: 0, facts });
        }
    }
    let nrun = items.len();
    for c in &board.waiting {
        let speeds = kinds.iter().enumerate().map(|(k, t)| (0..t.profiles().len()).map(|p| c.speed(k, t, ProfileIndex(p))).collect()).collect();
        items.push(Item { job: c.job, left: c.facts.work.unwrap_or(c.facts.attained.max(600.0)), v: 0.0, speeds, cur: None, cost: 0.0, movable: true, order: c.order, facts: c.facts });
    }
    // ranks: largest first
    let mut by: Vec<usize> = (0..items.len()).collect();
    by.sort_by(|a, b| items[*b].left.total_cmp(&items[*a].left));
    let c = env("C", 3.0);
    for (r, &i) in by.iter().enumerate() {
        let x = ((r + 1) as f64 / g as f64).max(1.0);
        items[i].v = items[i].facts.weight * (x.powf(c) - (x - 1.0).powf(c)).powf(1.0 / c);
    }
    let mut queue: Vec<usize> = (nrun..items.len()).collect();
    if fifo { queue.sort_by(|a, b| (items[*a].facts.attained <= 0.0).cmp(&(items[*b].facts.attained <= 0.0)).then(items[*a].order.cmp(&items[*b].order))); } else { queue.sort_by(|a, b| items[*a].left.total_cmp(&items[*b].left)); }
    let horizon = env("H", 1000.0);
    let ev = |set: &[usize], at: usize| -> Option<(f64, Vec<u8>)> { best_mix(&items, set, at, board, mixes, horizon) };
    let mut value: Vec<f64> = (0..g).map(|at| if locked[at] { 0.0 } else { current(&items, &sets[at], at, board) }).collect();
    let mut plan: Vec<Option<Vec<u8>>> = vec![None; g];
    let top = env("TOP", 20.0) as usize;
    let eps = env("EPS", 0.05);
    loop {
        let mut best: Option<(f64, Vec<(usize, Vec<usize>, f64, Vec<u8>)>, Option<usize>)> = None;
        for at in 0..g {
            if locked[at] { continue; }
            // relayout
            if let Some((v, p)) = ev(&sets[at], at) {
                let gain = v - value[at];
                if gain > eps && best.as_ref().is_none_or(|b| gain > b.0 + 1e-12) { best = Some((gain, vec![(at, sets[at].clone(), v, p)], None)); }
            }
        }
        if fifo {
            let bonus = env("BONUS", 0.05) * queue.iter().skip(1).map(|&i| items[i].v).sum::<f64>() / g as f64;
            for (qi, &j) in queue.iter().enumerate() {
                let mut feasible = false;
                for at in 0..g { if locked[at] { continue; }
                    let mut s = sets[at].clone(); s.push(j);
                    if let Some((v, p)) = ev(&s, at) {
                        feasible = true;
                        let gain = v - value[at] + bonus;
                        if gain > 1e-9 && best.as_ref().is_none_or(|b| gain > b.0 + 1e-12) { best = Some((gain, vec![(at, s, v, p)], Some(qi))); }
                    }
                }
                if best.as_ref().is_some_and(|b| b.2.is_some()) || (feasible && env("SKIP", 1.0) == 0.0) || qi > 20 { break; }
            }
        } else {
        for at in 0..g {
            if locked[at] { continue; }
            for (qi, &j) in queue.iter().take(top).enumerate() {
                let mut s = sets[at].clone(); s.push(j);
                if let Some((v, p)) = ev(&s, at) {
                    let gain = v - value[at];
                    if gain > 1e-9 && best.as_ref().is_none_or(|b| gain > b.0 + 1e-12) { best = Some((gain, vec![(at, s, v, p)], Some(qi))); }
                }
            }
        }
        }
        if best.is_none() {
            for from in 0..g { if locked[from] { continue; }
                for k in 0..sets[from].len() {
                    let j = sets[from][k]; if !items[j].movable { continue; }
                    let mut less = sets[from].clone(); less.remove(k);
                    let Some((v0, p0)) = ev(&less, from) else { continue };
                    for at in 0..g { if locked[at] || at == from { continue; }
                        let mut s = sets[at].clone(); s.push(j);
                        if let Some((v, p)) = ev(&s, at) {
                            let gain = v + v0 - value[at] - value[from];
                            if gain > eps && best.as_ref().is_none_or(|b| gain > b.0 + 1e-12) { best = Some((gain, vec![(from, less.clone(), v0, p0.clone()), (at, s, v, p)], None)); }
                        }
                    }
                }
            }
        }
        if best.is_none() && !fifo && env("SUSP", 1.0) > 0.0 {
            for at in 0..g { if locked[at] { continue; }
                for k in 0..sets[at].len() {
                    let e = sets[at][k]; if !items[e].movable || e >= nrun { continue; }
                    for (qi, &j) in queue.iter().take(if fifo { 1 } else { env("TOPS", 5.0) as usize }).enumerate() {
                        if items[j].cur.is_some() { continue; }
                        let mut s = sets[at].clone(); s[k] = j;
                        if let Some((v, p)) = ev(&s, at) {
                            let it = &items[e]; let c = it.cur.unwrap(); let sp = it.speeds[board.gpus[c.0].kind][c.1.0.0];
                            let loss = it.v * sp * it.cost / (it.left / sp).min(horizon).max(1.0);
                            let mut gain = v - value[at] - loss;
                            if fifo { gain += env("BONUS", 0.05) * queue[1..].iter().map(|&i| items[i].v).sum::<f64>() / g as f64; }
                            if gain > eps && best.as_ref().is_none_or(|b| gain > b.0 + 1e-12) { best = Some((gain, vec![(at, s, v, p)], Some(qi))); }
                        }
                    }
                }
            }
        }
        let Some((_, changes, q)) = best else { break };
        for (at, s, v, p) in changes { sets[at] = s; value[at] = v; plan[at] = Some(p); }
        if let Some(q) = q { queue.remove(q); }
    }
    let mut orders = vec![];
    for i in 0..nrun { let (at, _) = items[i].cur.unwrap(); if !locked[at] && !sets.iter().any(|s| s.contains(&i)) { orders.push(Order { job: items[i].job, gpu: board.gpus[at].gpu, slot: None, reason: String::new() }); } }
    for at in 0..g {
        let Some(profiles) = &plan[at] else { continue };
        let desk = &board.gpus[at];
        // the state with these profiles that keeps most
        let mut want = vec![0_u8; desk.table.profiles().len()];
        for &p in profiles { want[p as usize] += 1; }
        let here = |i: usize, p: u8| items[i].cur.filter(|c| c.0 == at && c.1.0.0 == p as usize).map(|c| c.1);
        let mut bestp: Option<(i32, &Vec<Slot>)> = None;
        for slots in &mixes[desk.kind].states[profiles.len()] {
            let mut c = vec![0_u8; want.len()]; for s in slots { c[s.0.0] += 1; }
            if c != want { continue; }
            let mut ok = true; let mut keep = 0;
            for (k, &i) in sets[at].iter().enumerate() {
                if let Some(s) = here(i, profiles[k]) { if slots.contains(&s) { keep += 100; } else if !items[i].movable { ok = false; } }
                else if !items[i].movable { ok = false; }
            }
            for s in slots { if desk.idle.contains(s) { keep += 1; } if desk.refused.contains(s) { ok = false; } }
            if ok && bestp.is_none_or(|b| keep > b.0) { bestp = Some((keep, slots)); }
        }
        let Some((_, slots)) = bestp else { continue };
        let mut free: Vec<Slot> = slots.clone();
        let mut rest = vec![];
        for (k, &i) in sets[at].iter().enumerate() {
            match here(i, profiles[k]) { Some(s) if free.contains(&s) => free.retain(|x| *x != s), _ => rest.push((i, profiles[k])) }
        }
        for (i, p) in rest {
            let k = free.iter().position(|s| s.0.0 == p as usize).unwrap();
            let slot = free.remove(k);
            orders.push(Order { job: items[i].job, gpu: desk.gpu, slot: Some(slot), reason: String::new() });
        }
    }
    let _ = items.first().map(|i| i.order);
    orders
}

fn current(items: &[Item<'_>], set: &[usize], at: usize, board: &Board<'_>) -> f64 {
    set.iter().map(|&i| { let it = &items[i]; let k = board.gpus[at].kind; it.v * it.speeds[k][it.cur.unwrap().1.0.0] }).sum()
}

fn best_mix(items: &[Item<'_>], set: &[usize], at: usize, board: &Board<'_>, mixes: &[Mixes], horizon: f64) -> Option<(f64, Vec<u8>)> {
    let kind = board.gpus[at].kind;
    let n = set.len();
    if n == 0 { return Some((0.0, vec![])); }
    let mixes = mixes[kind].by_size.get(n)?;
    let np = items[set[0]].speeds[kind].len();
    let mut val = [[f64::NEG_INFINITY; 16]; 16];
    for (a, &i) in set.iter().enumerate() {
        let it = &items[i];
        for p in 0..np {
            let s = it.speeds[kind][p];
            let stays = it.cur.is_some_and(|c| c.0 == at && c.1.0.0 == p);
            if s <= 0.0 || (!it.movable && !stays) { continue; }
            let f = if stays || it.cur.is_none() { 1.0 } else { let t = (it.left / s).min(horizon).max(1.0); 1.0 - it.cost / t };
            val[a][p] = it.v * s * f;
        }
    }
    let mut best: Option<(f64, Vec<u8>)> = None;
    let mut pick = vec![0_u8; n];
    for mix in mixes { let mut counts = mix.clone(); rec(&val, 0, n, np, &mut counts, 0.0, &mut pick, &mut best); }
    best
}

fn rec(val: &[[f64; 16]; 16], a: usize, n: usize, np: usize, counts: &mut [u8], sum: f64, pick: &mut Vec<u8>, best: &mut Option<(f64, Vec<u8>)>) {
    if a == n { if best.as_ref().is_none_or(|b| sum > b.0) { *best = Some((sum, pick.clone())); } return; }
    for p in 0..np { if counts[p] > 0 && val[a][p] > f64::NEG_INFINITY { counts[p] -= 1; pick[a] = p as u8; rec(val, a + 1, n, np, counts, sum + val[a][p], pick, best); counts[p] += 1; } }
}
