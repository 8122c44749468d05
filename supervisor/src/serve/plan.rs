//! A plan: which GPUs there are, how each is cut, and what runs on each slice.

use super::fleet::{Layout, SizeIndex};
use super::problem::{Problem, Rate};
use crate::layout::Placement;

/// One slice that serves.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedSlice {
    /// Its size.
    pub size: SizeIndex,
    /// Where it sits.
    pub placement: Placement,
    /// Index of the service that runs on it, at the service's point for this size.
    pub service: usize,
}

/// One GPU with the slices that serve. What its layout has beyond them is free.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedGpu {
    /// Index of its kind.
    pub kind: usize,
    /// By placement.
    pub slices: Vec<PlannedSlice>,
}

/// GPUs in the order they are numbered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// One entry for each GPU.
    pub gpus: Vec<PlannedGpu>,
}

impl Plan {
    /// What all GPUs cost, in price units.
    #[must_use]
    pub fn price(&self, problem: &Problem) -> i64 {
        self.gpus
            .iter()
            .map(|gpu| problem.fleet.kinds[gpu.kind].price)
            .sum()
    }

    /// What each service gets.
    #[must_use]
    pub fn served(&self, problem: &Problem) -> Vec<Rate> {
        let mut served = vec![Rate(0); problem.services.len()];
        for slice in self.gpus.iter().flat_map(|gpu| &gpu.slices) {
            served[slice.service].0 += problem.services[slice.service].rate(slice.size);
        }
        served
    }

    /// Whether each service gets what it requires.
    #[must_use]
    pub fn satisfies(&self, problem: &Problem) -> bool {
        let served = self.served(problem);
        served
            .iter()
            .zip(&problem.services)
            .all(|(rate, service)| *rate >= service.required)
    }

    /// Hands out the slices of GPUs cut by these layouts. `wanted[service][size]` slices are taken in the order
    /// of the services, so that a service's slices lie together; a layout without any taken is left out.
    pub(super) fn fill(layouts: &[&Layout], wanted: &[Vec<u32>]) -> Self {
        let sizes = layouts.first().map_or(0, |layout| layout.counts.len());
        // Per size, who still wants how many, last first.
        let mut queues: Vec<Vec<(usize, u32)>> = vec![Vec::new(); sizes];
        for (service, counts) in wanted.iter().enumerate().rev() {
            for (size, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                queues[size].push((service, count));
            }
        }
        let mut plan = Self::default();
        for layout in layouts {
            let mut slices = Vec::new();
            for &(size, placement) in &layout.slots {
                let Some((service, left)) = queues[size].last_mut() else {
                    continue;
                };
                let service = *service;
                *left -= 1;
                if *left == 0 {
                    queues[size].pop();
                }
                slices.push(PlannedSlice {
                    size,
                    placement,
                    service,
                });
            }
            plan.push(layout.kind, slices);
        }
        plan
    }

    /// Adds a GPU, unless nothing runs on it.
    pub(super) fn push(&mut self, kind: usize, mut slices: Vec<PlannedSlice>) {
        if !slices.is_empty() {
            slices.sort_by_key(|slice| slice.placement);
            self.gpus.push(PlannedGpu { kind, slices });
        }
    }
}
