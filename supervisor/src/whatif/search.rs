//! The best static mix: one layout for each GPU that never changes, found by trying.

use super::run::{Run, simulate};
use super::{Settings, Workload};
use crate::layout::Slot;
use crate::schedule::policy::{Fixed, Rule};

pub use crate::schedule::policy::full_layouts;

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
