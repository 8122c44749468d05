//! MISO (Li et al., SoCC 2022): jobs join the GPU with the fewest jobs, which is then laid out anew for the
//! largest sum of speeds.
//!
//! On a node of which parts cannot be changed, jobs take what there is, in order. Our choices, where the paper has more or says less: the speeds are those of the board, so that there is no
//! profiling phase under MPS; the queue is strictly in order; a new layout that moves jobs must gain a
//! twentieth of a GPU, and a job that has just been moved is left alone for twice the cost of its move. Jobs
//! that do not keep their work are not moved.

use super::super::{Board, Decider, Order};
use super::company::{self, Company, Manner, Mixes};
use super::picture::{Kind, is_plain, learn};
use super::quick;

/// The policy.
#[derive(Debug, Default)]
pub struct Miso {
    kinds: Vec<Kind>,
    mixes: Vec<Mixes>,
}

impl Decider for Miso {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        company::learn(&mut self.mixes, board);
        let left = |told: Option<f64>, done: f64| told.unwrap_or_else(|| done.max(1.0));
        learn(&mut self.kinds, board);
        if !is_plain(&self.kinds, board) {
            return quick::decide(board, &self.kinds, left, true, false);
        }
        let all: Vec<usize> = (0..board.gpus.len()).collect();
        Company::new(board, &self.mixes, left, Manner::Miso, &all, 0).settle()
    }
}
