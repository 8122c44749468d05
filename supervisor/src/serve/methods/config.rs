//! One GPU as the published methods choose it: a layout, and a service for each of its slices.

use super::super::exact::useful_sizes;
use super::super::plan::{Plan, PlannedSlice};
use super::super::problem::Problem;
use super::PlanError;

/// A GPU: a layout of the fleet, and who runs on each of its slots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Config {
    pub(super) layout: usize,
    /// As the layout's slots.
    pub(super) services: Vec<Option<usize>>,
}

/// The problem as these methods see it: one kind of GPU, and utilities: what share of its demand a slice of a
/// size gives a service.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) problem: &'a Problem,
    /// Layouts to choose from.
    pub(super) layouts: Vec<usize>,
    /// By service and size.
    pub(super) utility: Vec<Vec<f64>>,
}

/// What each service still lacks, millionths of requests per second; not below 0.
pub(super) type Lacking = Vec<i64>;

impl<'a> View<'a> {
    pub(super) fn new(problem: &'a Problem, method: &'static str) -> Result<Self, PlanError> {
        if problem.fleet.kinds.len() != 1 {
            return Err(PlanError::OneKind { method });
        }
        let utility = |service: &super::super::problem::Service| {
            let share = |size: usize| service.rate(size) as f64 / service.required.0 as f64;
            (0..problem.fleet.sizes.len()).map(share).collect()
        };
        Ok(Self {
            problem,
            layouts: problem.fleet.largest(&useful_sizes(problem)),
            utility: problem.services.iter().map(utility).collect(),
        })
    }

    pub(super) fn required(&self) -> Lacking {
        self.problem
            .services
            .iter()
            .map(|service| service.required.0)
            .collect()
    }

    /// The share of its demand that a service lacks.
    pub(super) fn share(&self, lacking: &[i64], service: usize) -> f64 {
        lacking[service] as f64 / self.problem.services[service].required.0 as f64
    }

    fn served(&self, config: &Config) -> impl Iterator<Item = (usize, i64)> + '_ {
        let slots = self.problem.fleet.layouts[config.layout].slots.iter();
        let services = config.services.clone().into_iter();
        slots
            .zip(services)
            .filter_map(|(&(size, _), service)| Some((service?, self.problem.services[service?].rate(size))))
    }

    /// Takes what a GPU serves from what is lacking.
    pub(super) fn serve(&self, config: &Config, lacking: &mut [i64]) {
        for (service, rate) in self.served(config) {
            lacking[service] = (lacking[service] - rate).max(0);
        }
    }

    /// What a set of GPUs leaves lacking.
    pub(super) fn left(&self, configs: &[Config]) -> Lacking {
        let mut lacking = self.required();
        for config in configs {
            self.serve(config, &mut lacking);
        }
        lacking
    }

    /// How much of the lacking shares a GPU gives, no service more than it lacks.
    pub(super) fn gain(&self, config: &Config, lacking: &[i64]) -> f64 {
        let mut left = lacking.to_vec();
        self.serve(config, &mut left);
        (0..left.len())
            .map(|service| self.share(lacking, service) - self.share(&left, service))
            .sum()
    }

    /// Fills a layout slot by slot, largest first: each takes the service of `among` that gains most there, by
    /// the share it lacks; at most `most` services in all.
    pub(super) fn fill(&self, layout: usize, among: &[usize], most: usize, lacking: &[i64]) -> Config {
        let mut left = lacking.to_vec();
        let mut chosen: Vec<usize> = Vec::new();
        let slots = &self.problem.fleet.layouts[layout].slots;
        let services = slots
            .iter()
            .map(|&(size, _)| {
                let full = chosen.len() >= most;
                let open = among
                    .iter()
                    .copied()
                    .filter(|service| !full || chosen.contains(service));
                let gain = |service: usize| self.share(&left, service).min(self.utility[service][size]);
                let best = open
                    .map(|service| (gain(service), service))
                    .filter(|(gain, _)| *gain > 0.0);
                // Of equals the first.
                let (_, service) = best.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
                left[service] = (left[service] - self.problem.services[service].rate(size)).max(0);
                if !chosen.contains(&service) {
                    chosen.push(service);
                }
                Some(service)
            })
            .collect();
        Config { layout, services }
    }

    /// Services that lack something.
    pub(super) fn unsatisfied(lacking: &[i64]) -> Vec<usize> {
        (0..lacking.len())
            .filter(|&service| lacking[service] > 0)
            .collect()
    }

    pub(super) fn plan(&self, configs: &[Config]) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        for config in configs {
            let layout = &self.problem.fleet.layouts[config.layout];
            let slices = layout.slots.iter().zip(&config.services);
            let slices = slices.filter_map(|(&(size, placement), &service)| {
                Some(PlannedSlice {
                    size,
                    placement,
                    service: service?,
                })
            });
            plan.push(layout.kind, slices.collect());
        }
        self.check_stock(&plan)?;
        Ok(plan)
    }

    pub(super) fn check_stock(&self, plan: &Plan) -> Result<(), PlanError> {
        let count = self.problem.fleet.kinds[0].count;
        match count.is_some_and(|count| plan.gpus.len() > count as usize) {
            true => Err(PlanError::Stock),
            false => Ok(()),
        }
    }
}
