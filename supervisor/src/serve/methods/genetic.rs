//! MIG-serving in full (arXiv 2109.11067, 5.4): the greedy plan first, then a genetic algorithm over plans.
//!
//! - Crossover: some random GPUs of a plan are erased, and what they served is given by the slow algorithm
//!   ([`super::tree`]), to which so small a problem is no burden.
//! - Mutation: two slices of the same size that run different services swap them. The number of GPUs stays.
//! - The best plans of parents and children go on. It ends when its time is spent, or after ten rounds without a
//!   better plan.
//!
//! The paper gives neither the number of plans nor how many GPUs are erased: these are ours.

use super::super::exact::lower_bound;
use super::super::problem::Problem;
use super::config::{Config, View};
use super::greedy::Greedy;
use super::tree::Walker;
use super::{Effort, Method, PlanError, Solution};

/// Plans that go on.
const PLANS: usize = 6;
/// Rounds without a better plan after which it ends.
const ROUNDS: u32 = 10;
/// Most GPUs that a crossover erases.
const ERASED: usize = 8;
/// Walks of the slow algorithm in a crossover.
const WALKS: u32 = 100;
/// Swaps of a mutation.
const SWAPS: usize = 8;

/// Greedy, then a genetic algorithm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Genetic;

impl Method for Genetic {
    fn name(&self) -> &'static str {
        "ga"
    }

    fn solve(&self, problem: &Problem, effort: &Effort<'_>) -> Result<Solution, PlanError> {
        let view = View::new(problem, self.name())?;
        let mut walker = Walker::new(&view, effort.seed);
        let mut random = fastrand::Rng::with_seed(effort.seed);
        let mut plans = vec![Greedy::MIG_SERVING.complete(&view, &mut view.required())];
        let (mut best, mut idle) = (plans[0].len(), 0);
        while idle < ROUNDS && !(effort.late)() {
            for parent in 0..plans.len() {
                let mut swapped = plans[parent].clone();
                swap(&view, &mut swapped, &mut random);
                let child = erase_and_refill(&view, swapped, &mut walker, &mut random, effort);
                plans.push(child);
            }
            // Of equals the older.
            plans.sort_by_key(Vec::len);
            plans.truncate(PLANS);
            idle = if plans[0].len() < best { 0 } else { idle + 1 };
            best = plans[0].len();
        }
        Ok(Solution {
            plan: view.plan(&plans[0])?,
            lower_bound: lower_bound(problem),
        })
    }
}

fn erase_and_refill(
    view: &View<'_>,
    mut plan: Vec<Config>,
    walker: &mut Walker<'_>,
    random: &mut fastrand::Rng,
    effort: &Effort<'_>,
) -> Vec<Config> {
    random.shuffle(&mut plan);
    let erased = random.usize(1..=ERASED.min(plan.len()));
    plan.truncate(plan.len() - erased);
    let lacking = view.left(&plan);
    plan.extend(walker.shortest(&lacking, WALKS, effort));
    plan
}

/// Swaps services between slices of the same size. Only one of the two GPUs may then be erased, so a swap that
/// leaves the pair where it is changes nothing but who stands beside whom.
fn swap(view: &View<'_>, plan: &mut [Config], random: &mut fastrand::Rng) {
    for _ in 0..SWAPS {
        let (one, other) = (random.usize(..plan.len()), random.usize(..plan.len()));
        let slots = |gpu: usize, plan: &[Config]| view.problem.fleet.layouts[plan[gpu].layout].slots.clone();
        let (ours, theirs) = (slots(one, plan), slots(other, plan));
        let from = random.usize(..ours.len());
        let Some(to) = (0..theirs.len())
            .find(|&to| theirs[to].0 == ours[from].0 && plan[other].services[to] != plan[one].services[from])
        else {
            continue;
        };
        let moved = plan[one].services[from];
        plan[one].services[from] = plan[other].services[to];
        plan[other].services[to] = moved;
    }
}
