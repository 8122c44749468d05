//! Moldable tasks on a reshaped GPU, after the description of FAR (arXiv 2507.13601): a family of allotments,
//! list schedules with the large and long first, and a local refinement.
//!
//! 1. Every task starts with the slice on which it takes the least share of a GPU times time. The next allotment
//!    of the family gives the task that takes longest its next larger slice, and so on.
//! 2. For each allotment, tasks are listed by the size of their slice, then by length, the largest first, and the
//!    list is scheduled with slices made on demand. The best of the family is kept.
//! 3. While it helps, one task is moved to the front of the list or to a neighbouring slice.
//!
//! Jobs that weigh more than others, by priority or by their user's share, are listed first, and then the weighted sum of all ends is made small.
//!
//! The paper's text was not at hand beyond its abstract and summaries: the order within the lists and the moves of
//! step 3 are our choices. It plans offline; jobs that come later are planned with those that wait.

use super::super::{Board, Decider, Order};
use super::family::{family, refine};
use super::picture::{Kind, is_plain, learn, running, ways};
use super::quick;
use super::shop::{Goal, Shop, Task};

/// The policy.
#[derive(Debug)]
pub struct Far {
    kinds: Vec<Kind>,
    create: f64,
    destroy: f64,
}

/// Evaluations of step 3 at most: more than it takes for 60 jobs.
const EVALUATIONS: u32 = 4_000;

impl Far {
    /// With the seconds to create and to destroy a slice.
    #[must_use]
    pub fn new(create: f64, destroy: f64) -> Self {
        Self {
            kinds: Vec::new(),
            create,
            destroy,
        }
    }
}

impl Decider for Far {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        if board.waiting.is_empty() || !board.gpus.iter().any(super::super::Desk::has_room) {
            return Vec::new();
        }
        learn(&mut self.kinds, board);
        let left = |told: Option<f64>, done: f64| told.unwrap_or_else(|| done.max(1.0));
        if !is_plain(&self.kinds, board) {
            return quick::decide(board, &self.kinds, left, false, true);
        }
        let Some((places, mut tasks, mut names)) = running(board, &self.kinds, self.create, left) else {
            return Vec::new();
        };
        let first = tasks.len();
        // Where some jobs weigh more than others the end of all is not what counts.
        let weights = || {
            board
                .waiting
                .iter()
                .map(|candidate| candidate.facts.weight.to_bits())
        };
        let even = weights().all(|weight| Some(weight) == weights().next());
        for candidate in &board.waiting {
            let work = left(candidate.facts.work, candidate.facts.attained);
            let ways = ways(
                board,
                &self.kinds,
                |kind, table, p| candidate.speed(kind, table, p),
                work,
            );
            if !ways.is_empty() {
                tasks.push(Task {
                    weight: if even { 1.0 } else { candidate.facts.weight },
                    ways,
                    runs: None,
                    held: false,
                });
                names.push(candidate.job);
            }
        }
        let grids: Vec<_> = self.kinds.iter().map(|kind| &kind.grid).collect();
        let goal = if even { Goal::Makespan } else { Goal::Completion };
        let mut shop = Shop::new(&grids, places, tasks, goal);
        shop.create = self.create;
        shop.destroy = self.destroy;
        let (cost, list) = family(&mut shop, &self.kinds, first);
        let (_, best) = refine(&mut shop, cost, list, EVALUATIONS);
        shop.cost(&best, f64::INFINITY);
        let starts = shop.starts.iter().map(|start| {
            let desk = &board.gpus[usize::from(start.gpu)];
            let slot = self.kinds[desk.kind].grid.slot(start.bit);
            Order {
                job: names[usize::from(start.task)],
                gpu: desk.gpu,
                slot: Some(slot),
                reason: format!("{} by the best of a family of lists", desk.table.named(slot)),
            }
        });
        starts.collect()
    }
}
