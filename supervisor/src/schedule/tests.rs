//! One test for each rule of the scheduler, on the base profiles of an A100-40GB; a file for each part of the story.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use super::{Action, Event, GpuIndex, Need, Policy, Scheduler, Terms};
use crate::layout::{Table, samples};

mod driver;
mod order;
mod outgrown;
mod place;
mod reshape;

/// A scheduler of whose actions each is answered at once, as by a driver that never fails.
pub(super) struct Node {
    pub(super) scheduler: Scheduler,
    table: Arc<Table>,
    pub(super) now: f64,
    log: Vec<Action>,
}

impl Node {
    pub(super) fn new(policy: Policy, foreign: &[&str]) -> Self {
        let table = Arc::new(samples::a100_base());
        let foreign = foreign
            .iter()
            .map(|name| table.slot_named(name).unwrap())
            .collect();
        let mut node = Self {
            scheduler: Scheduler::new(policy, Incarnation(1)),
            table: Arc::clone(&table),
            now: 0.0,
            log: Vec::new(),
        };
        node.step(Event::Gpu {
            gpu: GpuIndex(0),
            table,
            foreign,
        });
        node
    }

    /// One event, not answered.
    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        self.now += 1.0;
        let actions = self.scheduler.step(self.now, event);
        self.log.extend(actions.clone());
        actions
    }

    /// One event, and creates and destroys answered until none is left.
    pub(super) fn run(&mut self, event: Event) -> Vec<Action> {
        let mut all = self.step(event);
        let mut next = 0;
        while next < all.len() {
            let answer = match all[next] {
                Action::Create { slice, .. } => Some(Event::Created { slice }),
                Action::Destroy { slice } => Some(Event::Destroyed { slice }),
                _ => None,
            };
            next += 1;
            if let Some(answer) = answer {
                all.extend(self.step(answer));
            }
        }
        all
    }

    pub(super) fn arrive(&mut self, job: u64, gib: f64) -> Vec<Action> {
        self.run(Event::Arrived {
            job: JobId(job),
            need: need(gib),
        })
    }

    /// A job comes with these terms.
    pub(super) fn ask(&mut self, job: u64, gib: f64, terms: Terms) -> Vec<Action> {
        let mut all = self.run(Event::Terms {
            job: JobId(job),
            terms,
        });
        all.extend(self.arrive(job, gib));
        all
    }

    pub(super) fn end(&mut self, job: u64) -> Vec<Action> {
        self.run(Event::Ended {
            job: JobId(job),
            again: None,
        })
    }

    pub(super) fn again(&mut self, job: u64, gib: f64) -> Vec<Action> {
        self.run(Event::Ended {
            job: JobId(job),
            again: Some(need(gib)),
        })
    }

    /// The slot a job runs on, as `1g.5gb@6`.
    pub(super) fn place(&self, job: u64) -> String {
        match self.scheduler.slice_of(JobId(job)) {
            Some(slice) => self.table.named(self.scheduler.slice(slice).unwrap().slot()),
            None => "none".to_owned(),
        }
    }
}

pub(super) fn need(gib: f64) -> Need {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive figures"
    )]
    let device_bytes = (gib * GIB as f64) as u64;
    Need { device_bytes }
}

pub(super) fn grants(actions: &[Action]) -> Vec<u64> {
    let jobs = actions.iter().filter_map(|action| match action {
        Action::Grant { job, .. } => Some(job.0),
        _ => None,
    });
    jobs.collect()
}

fn count(actions: &[Action], wanted: fn(&Action) -> bool) -> usize {
    actions.iter().filter(|action| wanted(action)).count()
}

pub(super) fn refusals(actions: &[Action]) -> Vec<String> {
    let reasons = actions.iter().filter_map(|action| match action {
        Action::Refuse { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    reasons.collect()
}
