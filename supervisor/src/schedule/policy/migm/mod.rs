//! The default policy: jobs on the slices that are best for all of them together.
//!
//! One decision's way:
//!
//! 1. A batch, all of it known from the start, is planned as a whole: `plan` searches among list schedules
//!    for the earliest end, and later decisions follow the plan, looking again only a little.
//! 2. Jobs that come one by one and keep their work when moved share the GPUs in changing company
//!    (`company`); their mean completion time is what counts.
//! 3. Where running jobs must stay, `plan` searches for the least mean completion time of all that wait,
//!    given when the running ones end.
//! 4. Where that would be too many jobs and GPUs to search, or searching is off, a `quick` choice is made:
//!    shortest first, each on the slice of the least time and price.
//!
//! Search is by a fixed number of evaluations, not by a clock, so that the same board gives the same orders.

use super::super::{Board, Decider, Order};
use super::picture::{Kind, is_plain, learn};
use super::quick;

mod explore;
mod few;
mod local;
mod loose;
mod plan;
mod remaining;

use super::company::{self, Company, Manner, Mixes};
use plan::Planner;
use remaining::Remaining;

/// Beyond this many waiting jobs times GPUs the quick choice is made.
const TOO_MANY: usize = 4_000;

/// What the policy may do.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Jobs are taken in order of arrival; one is passed over only while no place for it is worth it.
    pub fifo: bool,
    /// Jobs that keep their work may be moved.
    pub moves: bool,
    /// Plans tried for a batch; 0 turns search off altogether.
    pub search: u32,
    /// Seconds to create and to destroy a slice.
    pub create: f64,
    /// See [`Choice::create`].
    pub destroy: f64,
}

/// The default policy.
#[derive(Debug)]
pub struct Migm {
    choice: Choice,
    kinds: Vec<Kind>,
    mixes: Vec<Mixes>,
    planner: Planner,
    remaining: Remaining,
    /// Jobs on each GPU at the last decision, as a number.
    last: Vec<u64>,
    turn: usize,
}

impl Migm {
    /// With these options.
    #[must_use]
    pub fn new(choice: Choice) -> Self {
        Self {
            choice,
            kinds: Vec::new(),
            mixes: Vec::new(),
            planner: Planner::default(),
            remaining: Remaining::default(),
            last: Vec::new(),
            turn: 0,
        }
    }

    fn learn_kinds(&mut self, board: &Board<'_>) {
        learn(&mut self.kinds, board);
        company::learn(&mut self.mixes, board);
    }

    /// GPUs whose jobs are not those of the last decision.
    fn changed(&mut self, board: &Board<'_>) -> Vec<usize> {
        let now: Vec<u64> = board
            .gpus
            .iter()
            .map(|desk| {
                let jobs = desk.held.iter().filter_map(|held| held.job);
                jobs.fold(0, |sum: u64, job| {
                    sum.wrapping_add((job.0 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
                })
            })
            .collect();
        let changed = (0..now.len())
            .filter(|&at| self.last.get(at) != Some(&now[at]))
            .collect();
        self.last = now;
        changed
    }
}

impl Decider for Migm {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        self.remaining.look(board);
        let room = board.gpus.iter().any(super::super::Desk::has_room);
        let running = || {
            board
                .gpus
                .iter()
                .flat_map(|desk| desk.held.iter().filter_map(|held| held.facts))
        };
        let mut all = board
            .waiting
            .iter()
            .map(|candidate| candidate.facts)
            .chain(running());
        let batch = all.all(|facts| facts.in_batch);
        let moves =
            self.choice.moves && self.choice.search > 0 && !batch && running().any(|facts| facts.keeps_work);
        // In a batch, jobs may start again elsewhere when something has been learnt or has ended.
        let loose = self.choice.moves && self.choice.search > 0 && batch;
        if !moves && !loose && (!room || board.waiting.is_empty()) {
            return Vec::new();
        }
        self.learn_kinds(board);
        self.turn += 1;
        let many = board.waiting.len() * board.gpus.len() > TOO_MANY;
        if many || self.choice.search == 0 || !is_plain(&self.kinds, board) {
            let left = |told, done| self.remaining.of(told, done);
            return quick::decide(board, &self.kinds, left, self.choice.fifo, batch);
        }
        if moves {
            let changed = self.changed(board);
            let manner = if self.choice.fifo {
                Manner::InOrder
            } else {
                Manner::Free
            };
            let left = |told, done| self.remaining.of(told, done);
            return Company::new(board, &self.mixes, left, manner, &changed, self.turn).settle();
        }
        self.planner
            .decide(board, &self.kinds, &self.remaining, &self.choice, batch)
    }
}
