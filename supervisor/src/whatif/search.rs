//! The best static mix: one layout for each GPU that never changes, found by trying.

use std::collections::BTreeSet;

use super::run::{Run, simulate};
use super::{Settings, Workload};
use crate::layout::{ProfileIndex, Slot, Table};
use crate::schedule::policy::{Fixed, Rule};

/// Places profiles together on an empty GPU, largest first.
#[must_use]
pub fn place(table: &Table, profiles: &[ProfileIndex]) -> Option<Vec<Slot>> {
    let mut wanted: Vec<usize> = profiles.iter().map(|profile| profile.0).collect();
    wanted.sort_unstable();
    let layouts = full_layouts(table);
    let mut subset = layouts.into_iter().filter_map(|layout| {
        // The wanted ones out of a full layout.
        let mut left = wanted.clone();
        let mut kept = Vec::new();
        for slot in layout {
            if let Some(at) = left.iter().position(|&profile| profile == slot.0.0) {
                left.swap_remove(at);
                kept.push(slot);
            }
        }
        left.is_empty().then_some(kept)
    });
    subset.next()
}

/// One full layout for each multiset of profiles, in a fixed order.
#[must_use]
pub fn full_layouts(table: &Table) -> Vec<Vec<Slot>> {
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut found = Vec::new();
    let mut stack = vec![Table::EMPTY];
    let mut met: BTreeSet<crate::layout::StateIndex> = BTreeSet::new();
    while let Some(state) = stack.pop() {
        if !met.insert(state) {
            continue;
        }
        if table.is_full(state) {
            let slots = table.taken(state);
            let mut profiles: Vec<usize> = slots.iter().map(|slot| slot.0.0).collect();
            profiles.sort_unstable();
            if seen.insert(profiles) {
                found.push(slots);
            }
        }
        stack.extend(table.steps(state).map(|(_, after)| after));
    }
    found.sort_by_key(|slots| {
        let mut profiles: Vec<usize> = slots.iter().map(|slot| slot.0.0).collect();
        profiles.sort_unstable();
        (slots.len(), profiles)
    });
    found
}

/// The static layouts and rule with the least mean completion time: the best of all equal mixes, then one
/// GPU changed at a time until none helps.
#[must_use]
pub fn best_static(load: &Workload, settings: &Settings) -> (Vec<Vec<Slot>>, Rule) {
    let layouts: Vec<Vec<Vec<Slot>>> = load.gpus.iter().map(|gpu| full_layouts(&gpu.table)).collect();
    let cost = |choice: &[usize], rule: Rule| {
        let chosen = choice.iter().zip(&layouts).map(|(&index, of)| of[index].clone());
        let run = Run::Planned(Box::new(Fixed::new(chosen.collect(), rule)));
        let outcome = simulate(load, run, settings, false);
        // A mix that cannot run a job is none.
        let undone = outcome
            .completions
            .iter()
            .filter(|seconds| !seconds.is_finite())
            .count();
        (undone, outcome.mean_completion)
    };
    let less = |a: (usize, f64), b: (usize, f64)| a.0 < b.0 || (a.0 == b.0 && a.1 < b.1 - 1e-9);
    let mut best: Option<((usize, f64), Vec<usize>, Rule)> = None;
    for rule in [Rule::Fastest, Rule::Smallest] {
        let most = layouts.iter().map(Vec::len).max().unwrap_or(0);
        let equal = (0..most).map(|index| {
            layouts
                .iter()
                .map(|of| index.min(of.len() - 1))
                .collect::<Vec<_>>()
        });
        let mut tried: Vec<((usize, f64), Vec<usize>)> =
            equal.map(|choice| (cost(&choice, rule), choice)).collect();
        tried.sort_by(|a, b| a.0.0.cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)));
        let Some((mut least, mut choice)) = tried.first().cloned() else {
            continue;
        };
        // Equal GPUs are alike: the first of each run of equal choices stands for all.
        for _ in 0..2 * choice.len() {
            let mut improved = None;
            for at in 0..choice.len() {
                if (0..at)
                    .any(|other| choice[other] == choice[at] && load.gpus[other].kind == load.gpus[at].kind)
                {
                    continue;
                }
                for index in 0..layouts[at].len() {
                    let mut other = choice.clone();
                    other[at] = index;
                    let cost = cost(&other, rule);
                    if less(cost, least) {
                        least = cost;
                        improved = Some(other);
                    }
                }
            }
            match improved {
                Some(better) => choice = better,
                None => break,
            }
        }
        if best.as_ref().is_none_or(|(cost, _, _)| less(least, *cost)) {
            best = Some((least, choice, rule));
        }
    }
    let (choice, rule) = best.map_or_else(
        || (vec![0; layouts.len()], Rule::Fastest),
        |best| (best.1, best.2),
    );
    let chosen = choice.iter().zip(&layouts).map(|(&index, of)| of[index].clone());
    (chosen.collect(), rule)
}
