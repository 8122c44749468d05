//! Every GPU cut the same way: the baselines of MIG-serving's figure 9.

use super::super::exact::lower_bound;
use super::super::fleet::{Fleet, Layout};
use super::super::plan::Plan;
use super::super::problem::{Problem, Service};
use super::config::View;
use super::{Effort, Method, PlanError, Solution};

/// How every GPU is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Uniform {
    /// Not at all: a service on a GPU.
    Whole,
    /// Into the smallest slices; a service that does not run on these has its smallest that it runs on.
    Smallest,
    /// Into slices of different sizes, 4-2-1 on an A100, with one service on a GPU.
    Mix,
}

impl Method for Uniform {
    fn name(&self) -> &'static str {
        match self {
            Self::Whole => "whole-gpu",
            Self::Smallest => "smallest",
            Self::Mix => "mix",
        }
    }

    fn solve(&self, problem: &Problem, _: &Effort<'_>) -> Result<Solution, PlanError> {
        let view = View::new(problem, self.name())?;
        let fleet = &problem.fleet;
        let mut wanted = vec![vec![0; fleet.sizes.len()]; problem.services.len()];
        let mut plan = Plan::default();
        match self {
            Self::Smallest => {
                for (own, service) in wanted.iter_mut().zip(&problem.services) {
                    let able = (0..fleet.sizes.len()).filter(|&size| service.rate(size) > 0);
                    let smallest =
                        able.min_by_key(|&size| (fleet.sizes[size].compute, fleet.sizes[size].memory));
                    let size = smallest.unwrap_or(fleet.kinds[0].whole);
                    own[size] = pieces(service, service.rate(size));
                }
                for size in 0..fleet.sizes.len() {
                    let of_size = |own: &Vec<u32>| {
                        let mut only = vec![0; own.len()];
                        only[size] = own[size];
                        only
                    };
                    let own: Vec<Vec<u32>> = wanted.iter().map(of_size).collect();
                    let total: u32 = own.iter().map(|counts| counts[size]).sum();
                    if let (true, Some(layout)) = (total > 0, most_of(fleet, size)) {
                        let gpus = total.div_ceil(layout.counts[size]) as usize;
                        plan.gpus.extend(Plan::fill(&vec![layout; gpus], &own).gpus);
                    }
                }
            }
            Self::Whole | Self::Mix => {
                let layout = if *self == Self::Mix {
                    mixed(fleet)
                } else {
                    most_of(fleet, fleet.kinds[0].whole)
                };
                for (index, service) in problem.services.iter().enumerate() {
                    let Some(layout) = layout else { break };
                    let rate = layout.slots.iter().map(|&(size, _)| service.rate(size)).sum();
                    if rate == 0 {
                        return Err(PlanError::Unable {
                            service: service.name.clone(),
                            method: self.name(),
                        });
                    }
                    let gpus = pieces(service, rate);
                    for (size, count) in wanted[index].iter_mut().enumerate() {
                        if service.rate(size) > 0 {
                            *count = layout.counts[size] * gpus;
                        }
                    }
                    let mut own = vec![vec![0; fleet.sizes.len()]; problem.services.len()];
                    own[index].clone_from(&wanted[index]);
                    plan.gpus
                        .extend(Plan::fill(&vec![layout; gpus as usize], &own).gpus);
                }
            }
        }
        view.check_stock(&plan)?;
        Ok(Solution {
            plan,
            lower_bound: lower_bound(problem),
        })
    }
}

fn pieces(service: &Service, rate: i64) -> u32 {
    let needed = (service.required.0 - 1) / rate.max(1) + 1;
    u32::try_from(needed).unwrap_or(u32::MAX)
}

/// The layout with the most slices of a size.
fn most_of(fleet: &Fleet, size: usize) -> Option<&Layout> {
    let holding = fleet.layouts.iter().filter(|layout| layout.counts[size] > 0);
    holding.reduce(|best, next| {
        if next.counts[size] > best.counts[size] {
            next
        } else {
            best
        }
    })
}

/// The layout with the most different sizes, then the most compute slices, then the fewest slices.
fn mixed(fleet: &Fleet) -> Option<&Layout> {
    fleet.layouts.iter().max_by_key(|layout| {
        let mut computes: Vec<u32> = layout
            .slots
            .iter()
            .map(|&(size, _)| fleet.sizes[size].compute)
            .collect();
        let total: u32 = computes.iter().sum();
        computes.dedup();
        let memory: u64 = layout
            .slots
            .iter()
            .map(|&(size, _)| fleet.sizes[size].memory)
            .sum();
        (
            computes.len(),
            total,
            std::cmp::Reverse(layout.slots.len()),
            std::cmp::Reverse(memory),
        )
    })
}
