//! Programs of which nothing has been seen on part of a GPU: few of their jobs start at first.
//!
//! The speeds of such a program on slices are a guess, and each of its jobs that starts there is at risk: where the guess is
//! wrong it starts again elsewhere or, if it is shorter than that takes, drags on. What is put at risk at once is kept to a
//! small part of the work of all the program's jobs; the others wait until the first have shown their speed. So a wrong guess
//! costs a batch little, and a right one a moment in which other programs' jobs may start.

use std::collections::{BTreeMap, HashMap, HashSet};

use migm_shared::ids::JobId;

use super::super::super::Board;
use crate::schedule::speed::LEARN_S;

/// Part of the work of a program's jobs that those which start at first may put at risk. Where a move costs 30 s, thirty jobs of
/// 30 s begin with three, and a hundred, or thirty of 70 s, with as many as a GPU has slices. A twentieth costs a batch of equal
/// jobs that are as fast as thought 3 %.
const RISK: f64 = 0.1;

/// Knows which programs have been tried.
#[derive(Debug, Default)]
pub(super) struct Explore {
    /// When the first job of each program that nothing is known of has started.
    begun: HashMap<u64, f64>,
}

impl Explore {
    /// The waiting jobs that are to wait for others of their program. Of each program the longest go first. Jobs of unknown work
    /// wait for nobody.
    pub(super) fn held(&mut self, board: &Board<'_>) -> HashSet<JobId> {
        let mut programs: BTreeMap<u64, Program> = BTreeMap::new();
        for held in board.gpus.iter().flat_map(|desk| &desk.held) {
            if let Some(facts) = held.facts
                && let (Some(program), Some(left)) = (facts.unseen, held.left)
            {
                self.begun.entry(program).or_insert(board.now);
                let program = programs.entry(program).or_default();
                program.work += left;
                program.risk += facts.move_cost.min(left);
            }
        }
        for candidate in &board.waiting {
            let facts = candidate.facts;
            if let (Some(program), Some(left)) = (facts.unseen, facts.work) {
                let program = programs.entry(program).or_default();
                program.work += left;
                program
                    .waiting
                    .push((left, candidate.job, facts.move_cost.min(left)));
            }
        }
        self.begun.retain(|program, _| programs.contains_key(program));
        // After that long its speed has been told, if it can be.
        let is_tried = |begun: &f64| board.now - begun >= LEARN_S;
        programs.retain(|program, _| !self.begun.get(program).is_some_and(is_tried));
        programs.into_values().flat_map(Program::held).collect()
    }
}

/// The jobs of one program.
#[derive(Debug, Default)]
struct Program {
    /// Seconds of work that is left in all of them.
    work: f64,
    /// Seconds at risk in those that run.
    risk: f64,
    /// Of those that wait: work left, and seconds at risk if it starts.
    waiting: Vec<(f64, JobId, f64)>,
}

impl Program {
    /// Those beyond what may be put at risk; one may always start.
    fn held(mut self) -> Vec<JobId> {
        self.waiting
            .sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut held = Vec::new();
        for (_, job, seconds) in self.waiting {
            let others = self.risk > 0.0;
            self.risk += seconds;
            if others && self.risk > RISK * self.work {
                held.push(job);
            }
        }
        held
    }
}
