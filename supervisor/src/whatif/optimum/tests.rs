//! The optimum beside a search through all orders, and above and below what bounds and policies say.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::parameters::{self, Power};
use super::super::{Gpu, Job, Memory, Run, bounds, simulate};
use super::*;
use crate::layout::{Placement, Table, samples};

const POLICIES: [&str; 8] = [
    "sequential",
    "static:1g+1g",
    "scheme-a",
    "scheme-b",
    "far",
    "mfi",
    "miso",
    "migm",
];

fn load(table: Table, gpus: usize, jobs: &[(f64, Vec<f64>)]) -> Workload {
    let gpu = Gpu {
        table: Arc::new(table),
        kind: 0,
        power: Power::A100,
    };
    let job = |(work, speeds): &(f64, Vec<f64>)| Job::plain(*work, speeds);
    Workload {
        gpus: vec![gpu; gpus],
        jobs: jobs.iter().map(job).collect(),
        batch: true,
    }
}

/// Speeds that rise with the profile, the smallest ones perhaps too small.
fn job(profiles: usize, shortest: f64) -> impl Strategy<Value = (f64, Vec<f64>)> {
    let steps = prop::collection::vec(0.0..1.0_f64, profiles - 1);
    (shortest..20.0 * shortest, steps, 0..profiles).prop_map(move |(work, steps, small)| {
        let mut speeds = vec![1.0; profiles];
        for at in (0..profiles - 1).rev() {
            speeds[at] = speeds[at + 1] * (0.25 + 0.75 * steps[at]);
        }
        speeds[..small / 2].fill(0.0);
        (work, speeds)
    })
}

fn proven(load: &Workload) -> f64 {
    let found = search(load, &Settings::default(), u64::MAX).unwrap();
    assert!(found.proven);
    // Jobs that lie over the same unit of a grid follow one another.
    for (gpu, unit) in (0..load.gpus.len()).flat_map(|gpu| (0..8).map(move |unit| (gpu, unit))) {
        let unit = Placement { start: unit, size: 1 };
        let over = load.jobs.iter().zip(&found.places);
        let over = over.filter(|(_, place)| place.0 == gpu && place.1.1.overlaps(unit));
        let seconds = over.map(|(job, place)| job.work / job.speeds[0][place.1.0.0]);
        assert!(seconds.sum::<f64>() < found.makespan);
    }
    found.makespan
}

/// The linear program's bound, the optimum and every policy, in this order. A job that is moved for speed loses its
/// work, so that each policy's schedule is one without moves and some lost time.
fn in_order(load: &Workload) {
    let least = proven(load);
    let bound = bounds::makespan(load).unwrap();
    assert!(bound <= least + 1e-6, "bound {bound}, optimum {least}");
    let settings = Settings {
        work_kept: false,
        search: 200,
        ..Settings::default()
    };
    for policy in POLICIES {
        let outcome = simulate(
            load,
            Run::named(policy, load, &settings).unwrap(),
            &settings,
            false,
        );
        if outcome.completions.iter().all(|seconds| seconds.is_finite()) {
            let ends = outcome.makespan;
            assert!(least <= ends + 1e-6, "optimum {least}, {policy} {ends}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn bound_optimum_and_policies_are_in_order_on_an_a100(jobs in (0.3..60.0_f64).prop_flat_map(|shortest| prop::collection::vec(job(5, shortest), 1..=7))) {
        in_order(&load(samples::a100_base(), 1, &jobs));
    }

    #[test]
    fn bound_optimum_and_policies_are_in_order_on_an_a30(jobs in (0.3..60.0_f64).prop_flat_map(|shortest| prop::collection::vec(job(3, shortest), 1..=8))) {
        in_order(&load(samples::a30_base(), 1, &jobs));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn bound_optimum_and_policies_are_in_order_with_ten_jobs(jobs in (1.0..60.0_f64).prop_flat_map(|shortest| prop::collection::vec(job(5, shortest), 10))) {
        in_order(&load(samples::a100_base(), 1, &jobs));
    }

    #[test]
    fn bound_optimum_and_policies_are_in_order_on_two_gpus(jobs in (1.0..60.0_f64).prop_flat_map(|shortest| prop::collection::vec(job(5, shortest), 2..=7))) {
        in_order(&load(samples::a100_base(), 2, &jobs));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// What is lost is that it destroys nothing ahead of need.
    #[test]
    fn the_default_policy_ends_a_small_batch_with_its_optimum(jobs in prop::collection::vec(job(5, 30.0), 1..=8)) {
        let load = load(samples::a100_base(), 1, &jobs);
        let least = proven(&load);
        let settings = Settings { work_kept: false, ..Settings::default() };
        let run = Run::named("migm", &load, &settings).unwrap();
        let ends = simulate(&load, run, &settings, false).makespan;
        prop_assert!(ends <= 1.03 * least, "{ends}, optimum {least}");
    }
}

#[test]
fn equal_jobs_fill_the_slices_one_after_the_other() {
    let equal = |jobs: usize| load(samples::a100_base(), 1, &vec![(100.0, vec![1.0; 5]); jobs]);
    // The last of seven slices has waited for seven creates.
    assert!((proven(&equal(7)) - (100.0 + 7.0 * parameters::CREATE_S)).abs() < 1e-6);
    // Slices stay: the eighth job follows the first.
    let two = 200.0 + parameters::CREATE_S;
    assert!((proven(&equal(8)) - two).abs() < 1e-6);
    let found = search(&equal(10), &Settings::default(), NODES).unwrap();
    assert!(found.proven, "{found:?}");
}

#[test]
fn memory_that_outgrows_a_slice_rules_it_out() {
    let mut load = load(samples::a100_base(), 1, &[(100.0, vec![1.0; 5])]);
    load.jobs[0].memory = Memory::flat(30 << 30);
    load.jobs[0].speeds = vec![vec![2.0, 2.0, 2.0, 2.0, 1.0].as_slice().into()];
    assert!((proven(&load) - (100.0 + parameters::CREATE_S)).abs() < 1e-9);
}

#[test]
fn nothing_is_said_where_it_is_not_looked_for_or_not_proven() {
    let ten = vec![(100.0, vec![0.3, 0.5, 0.7, 0.8, 1.0]); 10];
    let mut late = load(samples::a100_base(), 1, &ten);
    assert_eq!(
        search(&late, &Settings::default(), 1).map(|found| found.proven),
        None
    );
    assert_eq!(
        search(&late, &Settings::default(), 40).map(|found| found.proven),
        Some(false)
    );
    let settings = Settings::default();
    late.jobs[3].arrival = 1.0;
    assert_eq!(makespan(&late, &settings), None);
    let eleven = load(samples::a100_base(), 1, &vec![(1.0, vec![1.0; 5]); 11]);
    assert_eq!(makespan(&eleven, &settings), None);
    assert_eq!(
        makespan(&load(samples::a100_base(), 1, &[(1.0, vec![0.0; 5])]), &settings),
        None
    );
}
