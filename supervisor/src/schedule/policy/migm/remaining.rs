//! How much work is left in a job, known or not.

use std::collections::BTreeMap;

use migm_shared::ids::JobId;

use super::super::super::Board;

/// Seconds of work that a job has in the mean, before any has been seen to end. Assumed.
const FIRST_GUESS_S: f64 = 1000.0;

/// Learns from jobs that end what is left in those whose work nobody has told.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// Work done by each job on the last board.
    seen: BTreeMap<JobId, f64>,
    ended: f64,
    total: f64,
}

impl Remaining {
    /// Takes in a board: jobs that are not on it any more have ended, unless some are left out.
    pub(super) fn look(&mut self, board: &Board<'_>) {
        if board.partial {
            return;
        }
        let held = board.gpus.iter().flat_map(|desk| &desk.held);
        let running = held.filter_map(|held| Some((held.job?, held.attained, held.left.is_none())));
        let waiting = board.waiting.iter();
        let waiting = waiting.map(|waits| (waits.job, waits.facts.attained, waits.facts.work.is_none()));
        let unknown = running
            .chain(waiting)
            .filter(|job| job.2)
            .map(|job| (job.0, job.1));
        let now: BTreeMap<JobId, f64> = unknown.collect();
        for (job, done) in &self.seen {
            if !now.contains_key(job) {
                self.ended += 1.0;
                self.total += done;
            }
        }
        self.seen = now;
    }

    /// Seconds of work left: as told, else what jobs have in the mean, and at least half as much again as the
    /// job has done (a job that has lasted long is likely to last).
    pub(super) fn of(&self, told: Option<f64>, attained: f64) -> f64 {
        told.unwrap_or_else(|| {
            let mean = (self.total + FIRST_GUESS_S) / (self.ended + 1.0);
            (mean - attained).max(0.5 * attained).max(1.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Candidate, Facts};

    #[test]
    fn jobs_that_a_board_leaves_out_have_not_ended() {
        let facts = Facts::default();
        let waits = |number: u64| Candidate {
            job: JobId(number),
            order: number,
            level: 0,
            need: 0,
            outgrown: 0,
            facts: &facts,
            only: None,
        };
        let board = |waiting, partial| Board {
            now: 0.0,
            gpus: Vec::new(),
            waiting,
            partial,
            restricted: false,
        };
        let mut remaining = Remaining::default();
        let before = remaining.of(None, 0.0);
        let unchanged = |remaining: &Remaining| (remaining.of(None, 0.0) - before).abs() < 1e-9;
        remaining.look(&board(vec![waits(1), waits(2), waits(3)], false));
        remaining.look(&board(vec![waits(1)], true));
        remaining.look(&board(vec![waits(1), waits(2), waits(3)], false));
        assert!(unchanged(&remaining), "{} s", remaining.of(None, 0.0));
        remaining.look(&board(vec![waits(1)], false));
        assert!(!unchanged(&remaining), "two have ended");
    }
}
