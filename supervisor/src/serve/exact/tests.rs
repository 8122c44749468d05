//! Plans against what they must be: proven on small problems by trying everything, legal and certified on all.

use proptest::prelude::*;

use super::super::fleet::{Fleet, PRICE_UNIT};
use super::super::linear::linear_bound;
use super::super::methods::{METHODS, ParvaGpu};
use super::super::problem::{Point, Rate, Service};
use super::super::{Profiles, Usable, parse_demand};
use super::*;
use crate::layout::{Table, samples};

const EFFORT: Effort<'_> = Effort {
    seed: 1,
    late: &|| false,
};

fn fleet(kinds: &[(&str, &Table, f64, Option<u32>)]) -> Fleet {
    let mut fleet = Fleet::default();
    for &(name, table, price, count) in kinds {
        fleet.add(name, table, price, count).unwrap();
    }
    fleet
}

/// `services` as required rate and rates by size, in whole requests per second; 0 where it cannot run.
fn problem(fleet: Fleet, services: &[(i64, Vec<i64>)]) -> Problem {
    let point = |rate: i64| Point {
        batch: 1,
        processes: 1,
        rate: Rate(rate * 1_000_000),
        latency_s: 0.01,
    };
    let services = services
        .iter()
        .enumerate()
        .map(|(index, (required, rates))| Service {
            name: format!("s{index}"),
            model: "m".into(),
            required: Rate(required * 1_000_000),
            limit_ms: 100,
            points: rates
                .iter()
                .map(|&rate| (rate > 0).then(|| point(rate)))
                .collect(),
        });
    Problem {
        services: services.collect(),
        fleet,
    }
}

fn check(problem: &Problem, tables: &[&Table], solution: &Solution) {
    assert!(solution.plan.satisfies(problem));
    assert!(solution.plan.price(problem) >= solution.lower_bound);
    for gpu in &solution.plan.gpus {
        let slots = gpu.slices.iter().map(|slice| {
            let profile = &problem.fleet.sizes[slice.size].profile;
            (tables[gpu.kind].profile_named(profile).unwrap(), slice.placement)
        });
        tables[gpu.kind].state_of(&slots.collect::<Vec<_>>()).unwrap();
        assert!(!gpu.slices.is_empty());
    }
}

/// Whether these GPUs serve two services: the first takes any part of the slices, the second the rest.
fn serves(capacity: &[u32], services: &[(i64, Vec<i64>)]) -> bool {
    fn try_size(size: usize, left: &mut Vec<u32>, capacity: &[u32], services: &[(i64, Vec<i64>)]) -> bool {
        if size == capacity.len() {
            let sum = |rates: &[i64], counts: &mut dyn Iterator<Item = u32>| -> i64 {
                rates
                    .iter()
                    .zip(counts)
                    .map(|(rate, count)| rate * i64::from(count))
                    .sum()
            };
            let first = sum(&services[0].1, &mut left.iter().copied());
            let second = sum(
                &services[1].1,
                &mut capacity.iter().zip(left.iter()).map(|(all, own)| all - own),
            );
            return first >= services[0].0 && second >= services[1].0;
        }
        (0..=capacity[size]).any(|count| {
            left[size] = count;
            try_size(size + 1, left, capacity, services)
        })
    }
    try_size(0, &mut vec![0; capacity.len()], capacity, services)
}

/// Fewest GPUs, by all sets of layouts.
fn fewest(fleet: &Fleet, services: &[(i64, Vec<i64>)]) -> usize {
    fn any(fleet: &Fleet, from: usize, gpus: usize, capacity: &[u32], services: &[(i64, Vec<i64>)]) -> bool {
        if gpus == 0 {
            return serves(capacity, services);
        }
        (from..fleet.layouts.len()).any(|layout| {
            let more = capacity
                .iter()
                .zip(&fleet.layouts[layout].counts)
                .map(|(a, b)| a + b);
            any(fleet, layout, gpus - 1, &more.collect::<Vec<_>>(), services)
        })
    }
    let none = vec![0; fleet.sizes.len()];
    (1..).find(|&gpus| any(fleet, 0, gpus, &none, services)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_set_of_gpus_is_smaller_than_a_proven_plan(
        services in prop::collection::vec((20_i64..220, prop::collection::vec(0_i64..30, 3)), 2),
    ) {
        // Rates grow with the size, and each service runs somewhere.
        let services: Vec<(i64, Vec<i64>)> = services
            .into_iter()
            .map(|(required, mut rates)| {
                rates[2] += 35 + rates[0] + rates[1];
                (required, rates)
            })
            .collect();
        let table = samples::plain(samples::a30_24gb());
        let problem = problem(fleet(&[("a30", &table, 1.0, None)]), &services);
        let solution = Exact.solve(&problem, &EFFORT).unwrap();
        check(&problem, &[&table], &solution);
        let fewest = fewest(&problem.fleet, &services);
        prop_assert_eq!(solution.plan.gpus.len(), fewest);
        prop_assert_eq!(solution.lower_bound, solution.plan.price(&problem), "a small problem is proven");
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn plans_of_mixed_fleets_are_legal_and_no_cheaper_than_their_bound(
        services in prop::collection::vec((1_i64..3_000, prop::collection::vec(0_i64..200, 9)), 1..5),
        stock in 3_u32..40,
    ) {
        let (a100, a30) = (samples::plain(samples::a100_40gb()), samples::plain(samples::a30_24gb()));
        let fleet = fleet(&[("a100", &a100, 1.0, Some(stock)), ("a30", &a30, 0.35, None)]);
        let services: Vec<(i64, Vec<i64>)> = services
            .into_iter()
            .map(|(required, mut rates)| {
                rates[8] += 100;
                (required, rates)
            })
            .collect();
        let problem = problem(fleet, &services);
        // Proofs of fine prices take long: a few nodes are enough here.
        let asked = std::cell::Cell::new(0);
        let late = || asked.replace(asked.get() + 1) > 40;
        let solution = Exact.solve(&problem, &Effort { seed: 1, late: &late }).unwrap();
        check(&problem, &[&a100, &a30], &solution);
        let used = solution.plan.gpus.iter().filter(|gpu| gpu.kind == 0).count();
        prop_assert!(used <= stock as usize);
    }
}

fn carried(profiles: &str, demand: &str, usable: &Usable) -> Problem {
    let table = samples::plain(samples::a100_40gb());
    let profiles = Profiles::parse("profiles", profiles, None).unwrap();
    let demand = parse_demand("demand", demand).unwrap();
    Problem::new(
        fleet(&[("a100", &table, 1.0, None)]),
        &profiles,
        "demand",
        &demand,
        usable,
    )
    .unwrap()
}

const PARVA: &str = include_str!("../../../../examples/serving/parvagpu_profiles.csv");
const SCENARIOS: [&str; 6] = [
    include_str!("../../../../examples/serving/parvagpu_1.csv"),
    include_str!("../../../../examples/serving/parvagpu_2.csv"),
    include_str!("../../../../examples/serving/parvagpu_3.csv"),
    include_str!("../../../../examples/serving/parvagpu_4.csv"),
    include_str!("../../../../examples/serving/parvagpu_5.csv"),
    include_str!("../../../../examples/serving/parvagpu_6.csv"),
];

fn parva(scenario: usize, processes: u32) -> Problem {
    let usable = Usable {
        latency_share_ppm: 450_000,
        max_processes: Some(processes),
        ..Usable::default()
    };
    carried(PARVA, SCENARIOS[scenario], &usable)
}

/// ParvaGPU's own answers are 2, 3, 5, 7, 13 and 16 with up to three processes.
#[test]
fn parvagpus_scenarios_have_these_proven_optima() {
    for (processes, optima) in [(3, [2, 3, 5, 7, 12, 16]), (1, [2, 3, 5, 7, 13, 17])] {
        for (scenario, fewest) in optima.into_iter().enumerate() {
            let problem = parva(scenario, processes);
            let solution = Exact.solve(&problem, &EFFORT).unwrap();
            check(&problem, &[&samples::plain(samples::a100_40gb())], &solution);
            assert_eq!(solution.plan.gpus.len(), fewest, "scenario {}", scenario + 1);
            assert_eq!(
                solution.lower_bound,
                solution.plan.price(&problem),
                "scenario {}",
                scenario + 1
            );
        }
    }
}

/// The plain linear program, in which a service takes parts of slices, is weaker than the bound used.
#[test]
fn the_linear_bounds_of_parvagpus_scenarios() {
    for (scenario, linear) in [0.854, 1.717, 3.568, 5.351, 11.243, 14.674]
        .into_iter()
        .enumerate()
    {
        let problem = parva(scenario, 3);
        let found = linear_bound(&problem).unwrap();
        assert!(
            (found - linear).abs() < 5e-4,
            "scenario {}: {found}",
            scenario + 1
        );
        assert!(found * PRICE_UNIT as f64 <= lower_bound(&problem) as f64);
    }
}

/// As long as this many questions whether it is late take.
fn brief(method: &dyn Method, problem: &Problem, questions: u32) -> Solution {
    let asked = std::cell::Cell::new(0);
    let late = || asked.replace(asked.get() + 1) > questions;
    method.solve(problem, &Effort { seed: 1, late: &late }).unwrap()
}

#[test]
fn our_parvagpu_reaches_what_its_authors_reach() {
    let published = [2, 3, 5, 7, 13, 16];
    for (scenario, gpus) in published.into_iter().enumerate() {
        let problem = parva(scenario, 3);
        let solution = ParvaGpu.solve(&problem, &EFFORT).unwrap();
        check(&problem, &[&samples::plain(samples::a100_40gb())], &solution);
        assert_eq!(solution.plan.gpus.len(), gpus, "scenario {}", scenario + 1);
    }
}

#[test]
fn every_method_serves_all_and_none_beats_the_bound_or_migm() {
    let problem = parva(2, 3);
    for method in METHODS {
        let solution = brief(method, &problem, 60);
        check(&problem, &[&samples::plain(samples::a100_40gb())], &solution);
        assert!(solution.plan.gpus.len() >= 5, "{}", method.name());
    }
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let problem = parva(0, 3);
    for method in METHODS {
        let plan = || brief(method, &problem, 60).plan;
        assert_eq!(plan(), plan(), "{}", method.name());
    }
}

/// A core of forty beside services that have taken their cover: whole GPUs come out near the bound.
#[test]
fn a_problem_too_large_for_the_core_is_within_one_percent_of_its_bound() {
    let table = samples::plain(samples::a30_24gb());
    let services: Vec<(i64, Vec<i64>)> = (0..90)
        .map(|i| (300 + i * 37 % 500, vec![40 + i % 7, 90 + i % 11, 185 + i % 5]))
        .collect();
    let problem = problem(fleet(&[("a30", &table, 1.0, None)]), &services);
    let solution = Exact.solve(&problem, &EFFORT).unwrap();
    check(&problem, &[&table], &solution);
    let (price, bound) = (solution.plan.price(&problem), solution.lower_bound);
    assert!(price <= bound + bound / 100 + PRICE_UNIT, "{price} {bound}");
}

#[test]
fn services_that_are_all_alike_share_their_ties() {
    let table = samples::plain(samples::a100_40gb());
    let services = vec![(150, vec![20, 20, 45, 70, 90, 170]); 60];
    let problem = problem(fleet(&[("a100", &table, 1.0, None)]), &services);
    let solution = Exact.solve(&problem, &EFFORT).unwrap();
    check(&problem, &[&table], &solution);
    let (price, bound) = (solution.plan.price(&problem), solution.lower_bound);
    assert!(price <= bound + bound / 100 + PRICE_UNIT, "{price} {bound}");
}

#[test]
fn a_fleet_that_is_too_small_is_said() {
    let table = samples::plain(samples::a30_24gb());
    let problem = problem(
        fleet(&[("a30", &table, 1.0, Some(2))]),
        &[(1_000, vec![1, 2, 100])],
    );
    for name in ["migm", "greedy", "whole-gpu"] {
        let method = super::super::methods::named(name).unwrap();
        assert_eq!(
            method.solve(&problem, &EFFORT).unwrap_err(),
            PlanError::Stock,
            "{name}"
        );
    }
}

/// Time that is up before the first node leaves the bound, and a plan all the same.
#[test]
fn a_plan_is_made_though_time_is_up() {
    let problem = parva(4, 3);
    let effort = Effort {
        seed: 1,
        late: &|| true,
    };
    let solution = Exact.solve(&problem, &effort).unwrap();
    check(&problem, &[&samples::plain(samples::a100_40gb())], &solution);
}
