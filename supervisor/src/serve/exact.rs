//! migm's own method: column generation for the bound, branch and price for the plan.
//!
//! 1. Sizes that no service is best on anywhere, and layouts that hold less than another, are left out.
//! 2. The prices of the sizes are found ([`Master::price_out`]). Their bound, rounded up, is what the plan is
//!    measured against.
//! 3. At these prices nearly every service has one cheapest cover: it takes it. Only as many services as there
//!    are sizes need more than one, so those with the closest choice are left open: the core.
//! 4. [`Branching`] finds whole GPUs and covers for the core beside what the others take. A small problem is all
//!    core, and the answer is proven; a large one is measured within 0.1 % of the bound.

use super::branch::{Branching, round_up};
use super::cover::{Demand, Search};
use super::master::{Column, Master, Node, Pool, Priced, Prices};
use super::methods::{Effort, Method, PlanError, Solution};
use super::plan::Plan;
use super::problem::Problem;

#[cfg(test)]
mod tests;

/// Up to so many services all are in the core.
const CORE: usize = 40;
/// Groups of services while the prices of a large problem are sought.
const GROUPS: usize = 40;
/// Services of a large problem that the linear program may still move.
const CLOSEST: usize = 400;
/// Nodes of the search.
const NODES: u32 = 300;

/// The default method.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exact;

impl Method for Exact {
    fn name(&self) -> &'static str {
        "migm"
    }

    fn solve(&self, problem: &Problem, effort: &Effort<'_>) -> Result<Solution, PlanError> {
        let shape = Shape::of(problem);
        let mut search = Search::default();
        let root = shape.bound(&mut search);
        let step = problem.fleet.price_step();
        let lower_bound = round_up(root.bound, step);
        let small = problem.services.len() <= CORE;
        let (core, taken) = if small {
            ((0..problem.services.len()).collect(), Vec::new())
        } else {
            shape.settle(&root, &mut search)
        };
        let master = shape.core(&core, &taken);
        let mut pool = Pool::new(core.len(), core.len());
        let node = Node::root(&master);
        let mut branching = Branching::new(&master, &mut pool, &mut search, effort.late);
        (branching.step, branching.goal, branching.nodes) = (step, lower_bound, NODES);
        // A plan at once, so that there is one when time runs out.
        if let Some((_, covers)) = master.evaluate(&node, &mut root.prices.clone(), branching.search) {
            let whole = |counts: Vec<u32>| counts.into_iter().map(i64::from).collect();
            branching.offer(covers.into_iter().map(whole).collect());
        }
        let least = branching.explore(node, root.prices.clone());
        let Some(found) = branching.best else {
            return Err(PlanError::Stock);
        };
        let mut wanted: Vec<Vec<u32>> = vec![Vec::new(); problem.services.len()];
        let spread = |counts: &[i64]| shape.spread(counts);
        for (service, counts) in &taken {
            wanted[*service] = spread(counts);
        }
        for (service, counts) in core.iter().zip(&found.covers) {
            wanted[*service] = spread(counts);
        }
        let layouts = shape.layouts.iter().zip(&found.gpus);
        let layouts: Vec<_> = layouts
            .flat_map(|(&layout, &count)| std::iter::repeat_n(&problem.fleet.layouts[layout], count as usize))
            .collect();
        let plan = Plan::fill(&layouts, &wanted);
        // What the search has proven holds for the whole problem only if all of it was searched.
        Ok(Solution {
            lower_bound: if small {
                lower_bound.max(least)
            } else {
                lower_bound
            },
            plan,
        })
    }
}

/// What no plan is cheaper than, in price units.
#[must_use]
pub fn lower_bound(problem: &Problem) -> i64 {
    let root = Shape::of(problem).bound(&mut Search::default());
    round_up(root.bound, problem.fleet.price_step())
}

/// The problem without what no plan needs.
struct Shape {
    master: Master,
    /// Sizes that take part, as indices into the fleet.
    sizes: Vec<usize>,
    all_sizes: usize,
    /// Layouts that take part, one for each column.
    layouts: Vec<usize>,
}

/// Prices and bound of the whole problem.
struct Root {
    bound: i64,
    prices: Prices,
}

impl Shape {
    fn of(problem: &Problem) -> Self {
        let fleet = &problem.fleet;
        let used = useful_sizes(problem);
        let sizes: Vec<usize> = (0..used.len()).filter(|&size| used[size]).collect();
        let layouts = fleet.largest(&used);
        let columns = layouts.iter().map(|&layout| {
            let layout = &fleet.layouts[layout];
            Column {
                kind: layout.kind,
                price: fleet.kinds[layout.kind].price,
                counts: sizes.iter().map(|&size| i64::from(layout.counts[size])).collect(),
            }
        });
        let demands = problem.services.iter().map(|service| Demand {
            required: service.required.0,
            rates: sizes.iter().map(|&size| service.rate(size)).collect(),
        });
        Self {
            master: Master {
                sizes: sizes.len(),
                columns: columns.collect(),
                stock: fleet.kinds.iter().map(|kind| kind.count).collect(),
                demands: demands.collect(),
                base: vec![0; sizes.len()],
            },
            sizes,
            all_sizes: fleet.sizes.len(),
            layouts,
        }
    }

    fn bound(&self, search: &mut Search) -> Root {
        let node = Node::root(&self.master);
        let mut pool = Pool::new(self.master.demands.len(), GROUPS);
        let first = self.master.first_prices();
        match self.master.price_out(&node, &mut pool, &first, i64::MAX, search) {
            Priced::Bounded { bound, prices } => Root { bound, prices },
            // Every service has a cover when nothing is limited.
            Priced::Infeasible => Root {
                bound: 0,
                prices: first,
            },
        }
    }

    /// Services left open, and what each of the others takes.
    fn settle(&self, root: &Root, search: &mut Search) -> (Vec<usize>, Vec<(usize, Vec<i64>)>) {
        let choices = self.choices(&root.prices, search);
        let mut order: Vec<usize> = (0..choices.len()).collect();
        order.sort_by_key(|&service| {
            choices[service]
                .get(1)
                .map_or(i64::MAX, |second| second.0 - choices[service][0].0)
        });
        let cheapest = |service: usize| (service, choices[service][0].1.clone());
        let closest = order.len().min(CLOSEST);
        let mut taken: Vec<(usize, Vec<i64>)> = order[closest..]
            .iter()
            .map(|&service| cheapest(service))
            .collect();
        let open = &order[..closest];
        let master = self.core(open, &taken);
        let mut pool = Pool::new(open.len(), open.len());
        for (index, &service) in open.iter().enumerate() {
            for (_, counts) in &choices[service] {
                pool.add(index, counts.clone());
            }
        }
        let mixture = master.primal(&Node::root(&master), &pool);
        // Mixed ones first, then the closest.
        let mixed = |index: usize| {
            mixture
                .as_ref()
                .is_some_and(|mixture| mixture.covers[index].len() > 1)
        };
        let mut ranked: Vec<usize> = (0..open.len()).collect();
        ranked.sort_by_key(|&index| (!mixed(index), index));
        let (core, rest) = ranked.split_at(ranked.len().min(CORE));
        taken.extend(rest.iter().map(|&index| {
            let own = mixture
                .as_ref()
                .and_then(|mixture| mixture.covers[index].iter().max_by(|a, b| a.1.total_cmp(&b.1)));
            own.map_or_else(
                || cheapest(open[index]),
                |(counts, _)| (open[index], counts.clone()),
            )
        }));
        (core.iter().map(|&index| open[index]).collect(), taken)
    }

    /// The covers that are cheapest at these prices or at prices near them, by service, each with what it costs
    /// at these; cheapest first.
    fn choices(&self, prices: &Prices, search: &mut Search) -> Vec<Vec<(i64, Vec<i64>)>> {
        let mut near = vec![prices.sizes.clone()];
        for size in 0..self.master.sizes {
            for part in [1_000, 100] {
                for sign in [1, -1] {
                    let mut moved = prices.sizes.clone();
                    moved[size] += sign * (moved[size] / part);
                    near.push(moved);
                }
            }
        }
        let mut choices = Vec::with_capacity(self.master.demands.len());
        for demand in &self.master.demands {
            let mut own: Vec<(i64, Vec<i64>)> = Vec::new();
            for prices_near in &near {
                let Some(cover) = search.cheapest(demand, prices_near, &[]) else {
                    continue;
                };
                let counts: Vec<i64> = cover.counts.iter().map(|&count| i64::from(count)).collect();
                if own.iter().all(|(_, known)| *known != counts) {
                    let cost = counts
                        .iter()
                        .zip(&prices.sizes)
                        .map(|(count, price)| count * price)
                        .sum();
                    own.push((cost, counts));
                }
            }
            own.sort();
            choices.push(own);
        }
        choices
    }

    fn core(&self, core: &[usize], taken: &[(usize, Vec<i64>)]) -> Master {
        let mut master = self.master.clone();
        master.demands = core
            .iter()
            .map(|&service| self.master.demands[service].clone())
            .collect();
        for (_, counts) in taken {
            for (total, count) in master.base.iter_mut().zip(counts) {
                *total += count;
            }
        }
        master
    }

    /// Counts over all sizes of the fleet.
    fn spread(&self, counts: &[i64]) -> Vec<u32> {
        let mut all = vec![0; self.all_sizes];
        for (&size, &count) in self.sizes.iter().zip(counts) {
            all[size] = u32::try_from(count).unwrap_or(u32::MAX);
        }
        all
    }
}

/// Sizes that some service runs on, less those that a smaller one serves as well: where each layout with one
/// would hold at least as many of the other instead.
pub(super) fn useful_sizes(problem: &Problem) -> Vec<bool> {
    let fleet = &problem.fleet;
    let mut used: Vec<bool> = (0..fleet.sizes.len())
        .map(|size| problem.services.iter().any(|service| service.rate(size) > 0))
        .collect();
    for size in 0..used.len() {
        let replaced = (0..used.len()).any(|other| {
            other != size
                && used[other]
                && used[size]
                && fleet.sizes[size].kind == fleet.sizes[other].kind
                && problem
                    .services
                    .iter()
                    .all(|service| service.rate(other) >= service.rate(size))
                && fleet
                    .layouts
                    .iter()
                    .filter(|layout| layout.counts[size] > 0)
                    .all(|layout| {
                        let mut swapped = layout.counts.clone();
                        swapped[other] += swapped[size];
                        swapped[size] = 0;
                        let holds = |rival: &super::fleet::Layout| {
                            rival.counts.iter().zip(&swapped).all(|(a, b)| a >= b)
                        };
                        fleet.layouts.iter().any(holds)
                    })
        });
        if replaced {
            used[size] = false;
        }
    }
    used
}
