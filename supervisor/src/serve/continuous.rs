//! Planning beside a deployment that runs: GPUs against steps, by one knob.
//!
//! Jormungandr (SYSTOR 2024) takes, of the ten best configurations for a GPU, the one most like what stands. Here whole plans
//! are compared: for more and more of the running GPUs kept as they are, the most useful first, the rest of the demand is
//! planned anew; new GPUs are labelled so that as much as possible is where it was. The plan with the least
//! `price + keep x steps` is taken, of equals the one with the fewest steps, the steps being those of its transition.

use super::deployment::{Deployment, Tables};
use super::fleet::PRICE_UNIT;
use super::methods::{Effort, Method, PlanError, Solution};
use super::plan::{Plan, PlannedGpu, PlannedSlice};
use super::problem::{Problem, Rate};
use super::transition::{Options, match_up, transition};
use crate::layout::Placement;

/// Numbers of kept GPUs that are tried.
const LEVELS: usize = 12;

/// A plan beside a running deployment.
#[derive(Clone, Debug)]
pub struct Followed {
    /// The plan, with the bound that holds for plans made anew.
    pub solution: Solution,
    /// Steps of the transition to it.
    pub steps: usize,
    /// GPUs taken over as they are.
    pub kept_gpus: usize,
}

/// Plans for a demand beside what runs. `keep` is what a step is worth: so many GPUs of price 1.
///
/// # Errors
/// As the method's.
pub fn follow(
    problem: &Problem,
    current: &Deployment,
    tables: &Tables,
    method: &dyn Method,
    effort: &Effort<'_>,
    keep: f64,
) -> Result<Followed, PlanError> {
    let running: Vec<PlannedGpu> = current
        .gpus
        .iter()
        .filter_map(|gpu| understood(problem, gpu))
        .collect();
    let order = by_use(problem, &running);
    let mut best: Option<(f64, Followed)> = None;
    let mut bound = 0;
    let mut fault = PlanError::Stock;
    let levels = order.len().min(LEVELS);
    for level in 0..=levels {
        if level > 0 && best.is_some() && (effort.late)() {
            break;
        }
        let kept_gpus = order.len() * level / levels.max(1);
        let kept: Vec<PlannedGpu> = order[..kept_gpus]
            .iter()
            .map(|&gpu| running[gpu].clone())
            .collect();
        let rest: Vec<PlannedGpu> = (0..running.len())
            .filter(|gpu| !order[..kept_gpus].contains(gpu))
            .map(|gpu| running[gpu].clone())
            .collect();
        let added = match remainder(problem, &kept) {
            None => Plan::default(),
            Some((smaller, services)) => match method.solve(&smaller, effort) {
                Ok(solution) => {
                    if level == 0 {
                        bound = solution.lower_bound;
                    }
                    renamed(solution.plan, &services)
                }
                Err(error) => {
                    fault = error;
                    continue;
                }
            },
        };
        let mut plan = Plan { gpus: kept };
        plan.gpus.extend(alike(added, &rest).gpus);
        let next = Deployment::of(&plan, problem);
        // A running deployment that cannot be is none to compare with; its transition will say so.
        let steps =
            transition(current, &next, tables, &Options::default()).map_or(0, |found| found.steps.len());
        let cost = plan.price(problem) as f64 / PRICE_UNIT as f64 + keep * steps as f64;
        let followed = Followed {
            solution: Solution {
                lower_bound: bound,
                plan,
            },
            steps,
            kept_gpus,
        };
        // Of plans that weigh the same, the one with the fewest steps.
        let lighter = |(known, other): &(f64, Followed)| (cost, steps) < (*known, other.steps);
        if best.as_ref().is_none_or(lighter) {
            best = Some((cost, followed));
        }
    }
    best.map(|(_, followed)| followed).ok_or(fault)
}

/// A running GPU in the problem's terms, with the slices whose services still run that way. `None` for a kind that is
/// not in the fleet.
fn understood(problem: &Problem, gpu: &super::deployment::DeployedGpu) -> Option<PlannedGpu> {
    let kind = problem
        .fleet
        .kinds
        .iter()
        .position(|kind| kind.name == gpu.kind)?;
    let slices = gpu.slices.iter().filter_map(|slice| {
        let service = problem
            .services
            .iter()
            .position(|service| service.name == slice.service)?;
        let fits = |size: &super::fleet::Size| size.kind == kind && size.profile == slice.profile;
        let size = problem.fleet.sizes.iter().position(fits)?;
        let point = problem.services[service].points[size]?;
        let same = (point.batch, point.processes, point.rate) == (slice.batch, slice.processes, slice.rate);
        same.then_some(PlannedSlice {
            size,
            placement: slice.placement,
            service,
        })
    });
    Some(PlannedGpu {
        kind,
        slices: slices.collect(),
    })
}

/// Running GPUs of which the demand needs something, the one with most in use first, each beside those before it.
fn by_use(problem: &Problem, running: &[PlannedGpu]) -> Vec<usize> {
    let mut need: Vec<i64> = problem
        .services
        .iter()
        .map(|service| service.required.0)
        .collect();
    let mut left: Vec<usize> = (0..running.len()).collect();
    let mut order = Vec::new();
    let mut stock: Vec<Option<u32>> = problem.fleet.kinds.iter().map(|kind| kind.count).collect();
    loop {
        let used = |gpu: usize| {
            let mut need = need.clone();
            let slices = running[gpu].slices.iter();
            slices
                .map(|slice| {
                    let rate = problem.services[slice.service].rate(slice.size);
                    let taken = rate.min(need[slice.service]).max(0);
                    need[slice.service] -= taken;
                    let compute = f64::from(problem.fleet.sizes[slice.size].compute);
                    if rate > 0 {
                        taken as f64 / rate as f64 * compute
                    } else {
                        0.0
                    }
                })
                .sum::<f64>()
        };
        let best = left.iter().enumerate().map(|(at, &gpu)| (used(gpu), at));
        let best = best.filter(|&(used, at)| used > 0.0 && stock[running[left[at]].kind] != Some(0));
        let Some((_, at)) = best.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1))) else {
            return order;
        };
        let gpu = left.remove(at);
        if let Some(count) = &mut stock[running[gpu].kind] {
            *count -= 1;
        }
        for slice in &running[gpu].slices {
            need[slice.service] -= problem.services[slice.service].rate(slice.size);
        }
        order.push(gpu);
    }
}

/// What is left to plan beside GPUs that are kept, and which services it has. `None` where nothing is.
fn remainder(problem: &Problem, kept: &[PlannedGpu]) -> Option<(Problem, Vec<usize>)> {
    let served = Plan { gpus: kept.to_vec() }.served(problem);
    let mut smaller = problem.clone();
    let mut numbers = Vec::new();
    smaller.services.clear();
    for (index, service) in problem.services.iter().enumerate() {
        let lacking = service.required.0 - served[index].0;
        if lacking > 0 {
            let mut service = service.clone();
            service.required = Rate(lacking);
            smaller.services.push(service);
            numbers.push(index);
        }
    }
    for (index, kind) in smaller.fleet.kinds.iter_mut().enumerate() {
        let used = kept.iter().filter(|gpu| gpu.kind == index).count();
        kind.count = kind
            .count
            .map(|count| count.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX)));
    }
    (!numbers.is_empty()).then_some((smaller, numbers))
}

fn renamed(mut plan: Plan, services: &[usize]) -> Plan {
    for slice in plan.gpus.iter_mut().flat_map(|gpu| &mut gpu.slices) {
        slice.service = services[slice.service];
    }
    plan
}

/// The slots of a planned GPU, at a running GPU's placements where that has as many of each size.
fn arranged(planned: &PlannedGpu, running: &PlannedGpu) -> Vec<(usize, Placement)> {
    let mut left: Vec<&PlannedSlice> = running.slices.iter().collect();
    let there = planned.slices.iter().map(|slice| {
        let at = left.iter().position(|other| other.size == slice.size)?;
        Some((slice.size, left.remove(at).placement))
    });
    there.collect::<Option<Vec<_>>>().unwrap_or_else(|| {
        planned
            .slices
            .iter()
            .map(|slice| (slice.size, slice.placement))
            .collect()
    })
}

/// A slice of a planned GPU, and the service that runs there already, if it can stay.
type Label = (usize, Placement, Option<usize>);

/// The same GPUs and instances, labelled so that as many as possible are where they run.
fn alike(plan: Plan, running: &[PlannedGpu]) -> Plan {
    // Per size, who wants how many.
    let mut open: std::collections::BTreeMap<(usize, usize), usize> = std::collections::BTreeMap::new();
    for slice in plan.gpus.iter().flat_map(|gpu| &gpu.slices) {
        *open.entry((slice.size, slice.service)).or_default() += 1;
    }
    let runs = |gpu: &PlannedGpu, (size, placement): (usize, Placement)| {
        let mut slices = gpu.slices.iter();
        slices
            .find(|slice| (slice.size, slice.placement) == (size, placement))
            .map(|slice| slice.service)
    };
    let kept = |old: usize, new: usize| {
        let (old, new) = (&running[old], &plan.gpus[new]);
        if old.kind != new.kind {
            return 0;
        }
        let services = arranged(new, old)
            .into_iter()
            .filter_map(|slot| Some((slot.0, runs(old, slot)?)));
        services
            .map(|key| if open.contains_key(&key) { 100 } else { 1 })
            .sum()
    };
    // Numbers that are all different: equal GPUs are for the labels to say.
    let old: Vec<usize> = (0..running.len()).collect();
    let new: Vec<usize> = (running.len()..running.len() + plan.gpus.len()).collect();
    let pairs = match_up(&old, &new, kept);
    let mut labelled: Vec<(usize, Vec<Label>)> = Vec::new();
    for (gpu, pair) in plan.gpus.iter().zip(pairs) {
        let pair = pair
            .map(|pair| &running[pair])
            .filter(|running| running.kind == gpu.kind);
        let slots = match pair {
            Some(running) => arranged(gpu, running),
            None => gpu
                .slices
                .iter()
                .map(|slice| (slice.size, slice.placement))
                .collect(),
        };
        let slots = slots.into_iter().map(|slot| {
            let service = pair.and_then(|running| runs(running, slot)).filter(|&service| {
                let left = open.get_mut(&(slot.0, service)).filter(|left| **left > 0);
                left.map(|left| *left -= 1).is_some()
            });
            (slot.0, slot.1, service)
        });
        labelled.push((gpu.kind, slots.collect()));
    }
    let mut alike = Plan::default();
    for (kind, slots) in labelled {
        let slices = slots.into_iter().filter_map(|(size, placement, service)| {
            let service = service.or_else(|| {
                let mut own = open.range_mut((size, 0)..=(size, usize::MAX));
                own.find(|(_, left)| **left > 0).map(|(key, left)| {
                    *left -= 1;
                    key.1
                })
            })?;
            Some(PlannedSlice {
                size,
                placement,
                service,
            })
        });
        alike.push(kind, slices.collect());
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::super::input::{Profiles, parse_demand};
    use super::super::{Exact, Fleet, Usable};
    use super::*;
    use crate::layout::samples;

    const PROFILES: &str = "model,compute_slices,batch,mps_processes,throughput_per_process_rps,latency_s\n\
        a,1,1,1,10,0.01\na,3,1,1,33,0.01\na,7,1,1,75,0.01\nb,1,1,1,9,0.01\nb,2,1,1,21,0.01\nb,4,1,1,44,0.01\n";

    fn tables() -> Tables {
        Tables::from([("k".to_owned(), samples::plain(samples::a100_40gb()))])
    }

    fn problem(a: u32, b: u32) -> Problem {
        let mut fleet = Fleet::default();
        fleet.add("k", &tables()["k"], 1.0, None).unwrap();
        let profiles = Profiles::parse("p", PROFILES, None).unwrap();
        let demand = format!("model,required_rps,slo_latency_ms\na,{a},100\nb,{b},100\n");
        let rows = parse_demand("d", &demand).unwrap();
        Problem::new(fleet, &profiles, "d", &rows, &Usable::default()).unwrap()
    }

    fn next(current: &Deployment, a: u32, b: u32, keep: f64) -> (Followed, Problem) {
        let problem = problem(a, b);
        let effort = Effort {
            seed: 1,
            late: &|| false,
        };
        let followed = follow(&problem, current, &tables(), &Exact, &effort, keep).unwrap();
        assert!(followed.solution.plan.satisfies(&problem));
        (followed, problem)
    }

    #[test]
    fn the_same_demand_costs_no_step() {
        let (first, problem) = next(&Deployment::default(), 700, 500, 0.0);
        let current = Deployment::of(&first.solution.plan, &problem);
        let (again, _) = next(&current, 700, 500, 0.0);
        assert_eq!(
            (again.steps, again.solution.plan.gpus.len()),
            (0, first.solution.plan.gpus.len())
        );
    }

    #[test]
    fn the_knob_trades_gpus_against_steps() {
        let (first, start) = next(&Deployment::default(), 1400, 1000, 0.0);
        let current = Deployment::of(&first.solution.plan, &start);
        let mut last = (usize::MAX, 0);
        for keep in [0.0, 0.05, 0.2, 1.0] {
            let (found, _) = next(&current, 500, 1100, keep);
            let now = (found.steps, found.solution.plan.gpus.len());
            assert!(
                now.0 <= last.0 && now.1 >= last.1,
                "{now:?} after {last:?} at {keep}"
            );
            last = now;
        }
        let (fewest, _) = next(&Deployment::default(), 500, 1100, 0.0);
        let (cheap, _) = next(&current, 500, 1100, 0.0);
        assert_eq!(cheap.solution.plan.gpus.len(), fewest.solution.plan.gpus.len());
    }
}
