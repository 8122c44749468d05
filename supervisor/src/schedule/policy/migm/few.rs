//! A batch of which few jobs are left to start: the schedule that ends first, by the search of [`optimum`].
//!
//! List schedules start what fits; they leave no slice idle for a job that is to have more. Where few enough jobs wait to look at all
//! schedules, the best one is followed instead, if it ends before the best list. It is looked for again at each decision, from
//! what runs by then.

use migm_shared::ids::JobId;

use super::super::super::{Board, Candidate, Order};
use super::super::optimum::{self, Batch, Gpu, Place, Search, Standing};
use super::super::picture::{LEAST_LEFT_S, coming};
use super::Choice;
use super::remaining::Remaining;
use crate::layout::ProfileIndex;

/// The schedule of the jobs that wait.
#[derive(Debug)]
pub(super) struct Few {
    jobs: Vec<JobId>,
    search: Search,
}

impl Few {
    /// Looks for what ends before `beat` seconds. `None` where there are too many jobs or slots to look, or it is not known how much
    /// work is left in each job.
    pub(super) fn look(board: &Board<'_>, remaining: &Remaining, choice: &Choice, beat: f64) -> Option<Self> {
        let waiting = || {
            board
                .waiting
                .iter()
                .map(|candidate| (candidate.job, seconds(board, remaining, candidate)))
        };
        // A slice is not left idle for an end that is a guess.
        let held = board.gpus.iter().flat_map(|desk| &desk.held);
        let known = held.map(|held| held.left.is_some());
        let mut known = known.chain(
            board
                .waiting
                .iter()
                .map(|candidate| candidate.facts.work.is_some()),
        );
        if board.waiting.len() > optimum::JOBS || !known.all(|known| known) {
            return None;
        }
        // Those that fit nowhere wait for something else.
        let fits = |seconds: &Vec<Vec<f64>>| seconds.iter().flatten().any(|seconds| seconds.is_finite());
        let (jobs, seconds) = waiting().filter(|(_, seconds)| fits(seconds)).unzip();
        let batch = Batch {
            gpus: gpus(board, remaining, choice),
            jobs: seconds,
            create: choice.create,
            destroy: choice.destroy,
        };
        let search = optimum::search(&batch, beat, u64::from(choice.search))?;
        Some(Self { jobs, search })
    }

    /// Whether nothing ends before it, or before what was to beat.
    pub(super) fn is_proven(&self) -> bool {
        self.search.proven
    }

    /// Whether it ends before what was to beat.
    pub(super) fn is_found(&self) -> bool {
        !self.search.places.is_empty()
    }

    pub(super) fn makespan(&self) -> f64 {
        self.search.makespan
    }

    /// The jobs with their places, as they begin.
    pub(super) fn in_order(&self) -> Vec<(JobId, Place)> {
        let places = self.jobs.iter().copied().zip(self.search.places.iter().copied());
        let mut order: Vec<(JobId, Place)> = places.collect();
        order.sort_by(|a, b| a.1.begin.total_cmp(&b.1.begin).then(a.0.cmp(&b.0)));
        order
    }

    /// What is to start now.
    pub(super) fn orders(&self, board: &Board<'_>) -> Vec<Order> {
        let starts = self.in_order().into_iter().filter(|(_, place)| place.at_once);
        let order = |(job, place): (JobId, Place)| {
            let desk = &board.gpus[place.gpu];
            Order {
                job,
                gpu: desk.gpu,
                slot: Some(place.slot),
                reason: format!(
                    "{} by the schedule of {} jobs that ends first",
                    desk.table.named(place.slot),
                    self.jobs.len()
                ),
            }
        };
        starts.map(order).collect()
    }
}

/// Seconds of a waiting job by kind of GPU and profile.
fn seconds(board: &Board<'_>, remaining: &Remaining, candidate: &Candidate<'_>) -> Vec<Vec<f64>> {
    let left = remaining.of(candidate.facts.work, candidate.facts.attained);
    let kinds = board.gpus.iter().map(|desk| desk.kind + 1).max().unwrap_or(0);
    let of = |kind: usize| {
        let Some(desk) = board.gpus.iter().find(|desk| desk.kind == kind) else {
            return Vec::new();
        };
        let profiles = (0..desk.table.profiles().len()).map(ProfileIndex);
        let speeds = profiles.map(|profile| candidate.speed(kind, desk.table, profile));
        speeds
            .map(|speed| if speed > 0.0 { left / speed } else { f64::INFINITY })
            .collect()
    };
    (0..kinds).map(of).collect()
}

/// The GPUs with what runs, is coming, or stands idle there.
fn gpus<'a>(board: &'a Board<'_>, remaining: &Remaining, choice: &Choice) -> Vec<Gpu<'a>> {
    let gpu = |desk: &'a super::super::super::Desk<'_>| {
        let driver = coming(desk) * choice.create;
        let idle = desk.idle.iter().map(|&slot| Standing { slot, release: 0.0 });
        let held = desk.held.iter().map(|held| {
            let left = remaining.of(held.left, held.attained);
            let speed = held
                .facts
                .map_or(0.0, |facts| facts.speed(desk.kind, desk.table, held.slot.0));
            let wait = if held.runs { 0.0 } else { driver };
            Standing {
                slot: held.slot,
                release: wait + (left / speed.max(1e-6)).max(LEAST_LEFT_S),
            }
        });
        Gpu {
            kind: desk.kind,
            table: desk.table,
            standing: idle.chain(held).collect(),
            driver,
        }
    };
    board.gpus.iter().map(gpu).collect()
}
