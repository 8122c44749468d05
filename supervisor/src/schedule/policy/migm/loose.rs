//! Running jobs of a batch that had better start again elsewhere.
//!
//! A batch is planned with the speeds that are known. When jobs turn out slower on their slices than thought, or
//! nothing is left that could use the rest of a GPU, its end may come earlier if some of the running jobs start
//! again on other slices. Those that end last are let go first, on one GPU or on all; each such set is tried with the
//! ways of several prices.

use super::super::picture::{Kind, number};
use super::super::shop::{List, Shop, Way};
use super::plan::{PRICES, cheapest};

/// A part of the time to the end that letting jobs go must gain, besides the work thrown away: a plan is no better
/// than the speeds that it knows.
const LEAST_GAIN: f64 = 0.02;
/// Jobs let go at once.
const TOGETHER: usize = 14;

/// A running job that could start again.
#[derive(Debug)]
pub(super) struct Loose {
    /// Its task.
    pub(super) task: usize,
    /// Its ways from now on, the cost of the move included.
    pub(super) ways: Vec<Way>,
    /// Seconds of work that it would do again.
    pub(super) lost: f64,
}

/// A plan in which running jobs start again.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) list: List,
    pub(super) cost: f64,
    /// Their tasks.
    pub(super) stops: Vec<usize>,
}

/// The best set of jobs to let go, if any is worth it; in the shop their tasks then wait.
pub(super) fn release(
    shop: &mut Shop<'_>,
    kinds: &[Kind],
    list: &List,
    cost: f64,
    mut loose: Vec<Loose>,
) -> Option<Found> {
    let ends = |shop: &Shop<'_>, task: usize| shop.tasks[task].runs.map_or(0.0, |(_, _, seconds)| seconds);
    let on = |shop: &Shop<'_>, task: usize| shop.tasks[task].runs.map(|(gpu, _, _)| gpu);
    loose.sort_by(|a, b| {
        ends(shop, b.task)
            .total_cmp(&ends(shop, a.task))
            .then(a.task.cmp(&b.task))
    });
    let all: Vec<usize> = (0..loose.len()).collect();
    let mut groups = vec![all.clone()];
    if shop.places.len() > 1 {
        let gpus = 0..shop.places.len();
        groups.extend(gpus.map(|gpu| {
            let here = all.iter().copied();
            here.filter(|&at| on(shop, loose[at].task) == Some(number(gpu)))
                .collect()
        }));
    }
    let mut best: Option<(f64, Found)> = None;
    for group in groups {
        for many in 1..=group.len().min(TOGETHER) {
            let set = &group[..many];
            let lost: f64 = set.iter().map(|&at| loose[at].lost).sum();
            let enough = cost * (1.0 - LEAST_GAIN) - lost;
            let before: Vec<_> = set
                .iter()
                .map(|&at| shop.tasks[loose[at].task].runs.take())
                .collect();
            for &at in set {
                shop.tasks[loose[at].task].ways.clone_from(&loose[at].ways);
            }
            for price in PRICES {
                let mut tried = list.clone();
                for &at in set {
                    tried.way[loose[at].task] = cheapest(&loose[at].ways, kinds, price);
                }
                let first = set.iter().map(|&at| number(loose[at].task));
                tried.order.splice(0..0, first);
                let limit = best.as_ref().map_or(enough, |(net, _)| enough.min(net - lost));
                let cost = shop.cost(&tried, limit);
                if cost < limit {
                    let stops = set.iter().map(|&at| loose[at].task).collect();
                    let list = tried;
                    best = Some((cost + lost, Found { list, cost, stops }));
                }
            }
            for (&at, runs) in set.iter().zip(before) {
                shop.tasks[loose[at].task].runs = runs;
            }
        }
    }
    let (_, found) = best?;
    for one in loose.into_iter().filter(|one| found.stops.contains(&one.task)) {
        shop.tasks[one.task].runs = None;
        shop.tasks[one.task].ways = one.ways;
    }
    Some(found)
}
