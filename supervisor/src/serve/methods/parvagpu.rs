//! ParvaGPU's segments (SC 2024, arXiv 2409.14447), from its description.
//!
//! 1. A service is cut into segments of the size on which it serves most per compute slice; what remains goes to
//!    the smallest size that serves it.
//! 2. Segments are placed by size, largest first, each on the first GPU that has room. Of the sizes with more than
//!    two compute slices a GPU takes one each: the authors place a 3g at the fifth slice only, so that what is
//!    beside it can be filled.
//! 3. A GPU with at most four compute slices taken is dissolved if what it serves, cut into segments of one and
//!    two compute slices, has room on the others, first fit; those with the least taken first.
//!
//! Room is judged by what a GPU holds, not by where it sits, so the order of placements that the authors give is
//! not needed beyond that.

use super::super::exact::lower_bound;
use super::super::problem::Problem;
use super::config::{Config, View};
use super::{Effort, Method, PlanError, Solution};

/// Segments and first fit.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParvaGpu;

/// GPUs with more compute slices taken are left as they are.
const DISSOLVED: u32 = 4;
/// Segments of dissolved GPUs have at most so many compute slices.
const SMALL: u32 = 2;

/// What runs on one GPU, as size and service.
type Gpu = Vec<(usize, usize)>;

impl Method for ParvaGpu {
    fn name(&self) -> &'static str {
        "parvagpu"
    }

    fn solve(&self, problem: &Problem, _: &Effort<'_>) -> Result<Solution, PlanError> {
        let view = View::new(problem, self.name())?;
        let mut segments = Vec::new();
        for service in 0..problem.services.len() {
            segments.extend(cut(
                problem,
                service,
                problem.services[service].required.0,
                u32::MAX,
            ));
        }
        let mut gpus = Vec::new();
        place(problem, &mut gpus, segments);
        while dissolve(problem, &mut gpus) {}
        let configs: Vec<Config> = gpus.iter().filter_map(|gpu| config(problem, gpu)).collect();
        Ok(Solution {
            plan: view.plan(&configs)?,
            lower_bound: lower_bound(problem),
        })
    }
}

/// Segments that serve so much, of at most so many compute slices where the service runs on such.
fn cut(problem: &Problem, service: usize, mut required: i64, most: u32) -> Vec<(usize, usize)> {
    let (fleet, rates) = (&problem.fleet, &problem.services[service]);
    let able = |most: u32| -> Vec<usize> {
        (0..fleet.sizes.len())
            .filter(|&size| rates.rate(size) > 0 && fleet.sizes[size].compute <= most)
            .collect()
    };
    let mut sizes = able(most);
    if sizes.is_empty() {
        sizes = able(u32::MAX);
    }
    sizes.sort_by_key(|&size| (fleet.sizes[size].compute, fleet.sizes[size].memory));
    let per_slice = |size: usize| rates.rate(size) as f64 / f64::from(fleet.sizes[size].compute);
    let best = sizes.iter().copied().reduce(|best, next| {
        if per_slice(next) > per_slice(best) {
            next
        } else {
            best
        }
    });
    let mut segments = Vec::new();
    let Some(best) = best else { return segments };
    while required >= rates.rate(best) {
        segments.push((best, service));
        required -= rates.rate(best);
    }
    if required > 0 {
        let enough = sizes.iter().copied().find(|&size| rates.rate(size) >= required);
        segments.push((enough.unwrap_or(best), service));
    }
    segments
}

/// First fit, largest first.
fn place(problem: &Problem, gpus: &mut Vec<Gpu>, mut segments: Vec<(usize, usize)>) {
    let fleet = &problem.fleet;
    segments
        .sort_by_key(|&(size, _)| std::cmp::Reverse((fleet.sizes[size].compute, fleet.sizes[size].memory)));
    for segment in segments {
        let is_alone = |gpu: &Gpu| {
            fleet.sizes[segment.0].compute <= SMALL || gpu.iter().all(|&(size, _)| size != segment.0)
        };
        let room = |gpu: &&mut Gpu| is_alone(gpu) && layout_of(problem, gpu, Some(segment.0)).is_some();
        match gpus.iter_mut().find(room) {
            Some(gpu) => gpu.push(segment),
            None => gpus.push(vec![segment]),
        }
    }
}

/// A layout that holds what is on a GPU and one slice more.
fn layout_of(problem: &Problem, gpu: &Gpu, more: Option<usize>) -> Option<usize> {
    let mut counts = vec![0; problem.fleet.sizes.len()];
    for size in gpu.iter().map(|&(size, _)| size).chain(more) {
        counts[size] += 1;
    }
    problem.fleet.layouts.iter().position(|layout| {
        layout
            .counts
            .iter()
            .zip(&counts)
            .all(|(held, count)| held >= count)
    })
}

/// Dissolves one GPU, if there is one whose services have room elsewhere.
fn dissolve(problem: &Problem, gpus: &mut Vec<Gpu>) -> bool {
    let fleet = &problem.fleet;
    let taken = |gpu: &Gpu| {
        gpu.iter()
            .map(|&(size, _)| fleet.sizes[size].compute)
            .sum::<u32>()
    };
    let mut order: Vec<usize> = (0..gpus.len())
        .filter(|&gpu| taken(&gpus[gpu]) <= DISSOLVED)
        .collect();
    order.sort_by_key(|&gpu| (taken(&gpus[gpu]), std::cmp::Reverse(gpu)));
    for dissolved in order {
        let mut others = gpus.clone();
        others.remove(dissolved);
        let mut lacking: Vec<i64> = problem
            .services
            .iter()
            .map(|service| service.required.0)
            .collect();
        for &(size, service) in others.iter().flatten() {
            lacking[service] -= problem.services[service].rate(size);
        }
        let segments = (0..lacking.len()).flat_map(|service| cut(problem, service, lacking[service], SMALL));
        place(problem, &mut others, segments.collect());
        if others.len() < gpus.len() {
            *gpus = others;
            return true;
        }
    }
    false
}

fn config(problem: &Problem, gpu: &Gpu) -> Option<Config> {
    let layout = layout_of(problem, gpu, None)?;
    let mut left = gpu.clone();
    let services = problem.fleet.layouts[layout].slots.iter().map(|&(size, _)| {
        let index = left.iter().position(|&(own, _)| own == size)?;
        Some(left.swap_remove(index).1)
    });
    Some(Config {
        layout,
        services: services.collect(),
    })
}
