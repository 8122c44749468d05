//! Transitions between drawn deployments: the floors hold, whatever the steps' times, and the end is what was asked for.

use proptest::prelude::*;

use super::super::deployment::{DeployedGpu, DeployedSlice, Served};
use super::super::problem::Rate;
use super::*;
use crate::layout::{Placement, samples};

fn tables() -> Tables {
    let a100 = samples::plain(samples::a100_40gb());
    let a30 = samples::plain(samples::a30_24gb());
    Tables::from([("a100-40gb".to_owned(), a100), ("a30-24gb".to_owned(), a30)])
}

fn slice(profile: &str, start: u32, size: u32, service: &str) -> DeployedSlice {
    let compute: i64 = profile.split('g').next().unwrap().parse().unwrap();
    // Large slices serve a little less per compute slice.
    let rate = Rate(compute * (10_000_000 - 100_000 * compute));
    DeployedSlice {
        placement: Placement { start, size },
        profile: profile.to_owned(),
        service: service.to_owned(),
        batch: 1,
        processes: 1,
        rate,
    }
}

/// Services that require `share` of what they get.
fn deployment(gpus: Vec<(&str, Vec<DeployedSlice>)>, share: f64) -> Deployment {
    let gpus = gpus.into_iter().map(|(kind, mut slices)| {
        slices.sort();
        DeployedGpu {
            kind: kind.to_owned(),
            slices,
        }
    });
    let mut deployment = Deployment {
        services: Vec::new(),
        gpus: gpus.collect(),
    };
    let mut names: Vec<&str> = deployment
        .gpus
        .iter()
        .flat_map(|gpu| &gpu.slices)
        .map(|slice| slice.service.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let required = |name: &str| Rate::from_rps(deployment.served(name).rps() * share).unwrap();
    let services = names.iter().map(|&name| Served {
        name: name.to_owned(),
        required: required(name),
    });
    deployment.services = services.collect();
    deployment
}

fn seven(services: &[&str]) -> Vec<DeployedSlice> {
    (0..)
        .zip(services)
        .map(|(start, service)| slice("1g.5gb", start, 1, service))
        .collect()
}

fn plan(from: &Deployment, to: &Deployment, most: Option<usize>) -> (Transition, Replay) {
    let options = Options {
        max_extra_gpus: most,
        ..Options::default()
    };
    let found = transition(from, to, &tables(), &options).unwrap();
    let seen = replay(&found, |step| step.end_ms - step.start_ms).unwrap();
    (found, seen)
}

#[test]
fn equal_gpus_cost_no_step_however_they_are_numbered() {
    let one = vec![slice("4g.20gb", 0, 4, "a"), slice("3g.20gb", 4, 4, "b")];
    let two = seven(&["a"; 7]);
    let from = deployment(vec![("a100-40gb", one.clone()), ("a100-40gb", two.clone())], 1.0);
    let to = deployment(vec![("a100-40gb", two), ("a100-40gb", one)], 1.0);
    let (found, seen) = plan(&from, &to, Some(0));
    assert_eq!((found.steps.len(), seen.makespan_ms), (0, 0));
}

#[test]
fn an_instance_that_only_changes_its_place_is_moved_and_not_started_anew() {
    let from = deployment(vec![("a100-40gb", vec![slice("2g.10gb", 0, 2, "a")])], 1.0);
    let to = deployment(vec![("a100-40gb", vec![slice("2g.10gb", 4, 2, "a")])], 1.0);
    let (found, seen) = plan(&from, &to, Some(0));
    let kinds: Vec<bool> = found
        .steps
        .iter()
        .map(|step| matches!(step.action, Action::Migrate { .. }))
        .collect();
    assert_eq!(kinds, [false, true]);
    assert_eq!(seen.makespan_ms, 50_000 + 30_400);
    assert_eq!(seen.min_satisfaction, 1.0);
}

#[test]
fn two_full_gpus_that_trade_places_need_one_extra_or_a_dip() {
    let whole = |service: &str| vec![slice("7g.40gb", 0, 8, service)];
    // Half of a GPU each: neither service can spare an instance.
    let from = deployment(
        vec![
            (
                "a100-40gb",
                vec![slice("4g.20gb", 0, 4, "a"), slice("3g.20gb", 4, 4, "b")],
            ),
            (
                "a100-40gb",
                vec![slice("4g.20gb", 0, 4, "c"), slice("3g.20gb", 4, 4, "d")],
            ),
        ],
        1.0,
    );
    let to = deployment(
        vec![
            (
                "a100-40gb",
                vec![slice("4g.20gb", 0, 4, "a"), slice("3g.20gb", 4, 4, "d")],
            ),
            (
                "a100-40gb",
                vec![slice("4g.20gb", 0, 4, "c"), slice("3g.20gb", 4, 4, "b")],
            ),
        ],
        1.0,
    );
    let (found, seen) = plan(&from, &to, None);
    assert_eq!(
        (found.extra_gpus(), seen.most_gpus, seen.min_satisfaction),
        (1, 3, 1.0)
    );
    let (found, seen) = plan(&from, &to, Some(0));
    assert_eq!(
        (found.extra_gpus(), seen.most_gpus, seen.min_satisfaction),
        (0, 2, 0.0)
    );
    // A GPU that the new plan gives up is room enough.
    let mut more = from.clone();
    more.gpus.push(DeployedGpu {
        kind: "a100-40gb".into(),
        slices: whole("e"),
    });
    more.services.push(Served {
        name: "e".into(),
        required: Rate(1),
    });
    let (found, seen) = plan(&more, &to, Some(0));
    assert_eq!((found.extra_gpus(), seen.min_satisfaction), (0, 1.0));
}

#[test]
fn a_service_that_can_spare_an_instance_needs_no_extra_gpu() {
    let from = deployment(vec![("a100-40gb", seven(&["a"; 7]))], 0.3);
    let to = deployment(vec![("a100-40gb", vec![slice("7g.40gb", 0, 8, "a")])], 0.0001);
    let (found, seen) = plan(&from, &to, Some(1));
    assert!(seen.min_satisfaction >= 1.0);
    let full = deployment(vec![("a100-40gb", vec![slice("7g.40gb", 0, 8, "a")])], 1.0);
    assert!(found.steps.len() >= 9);
    // With all of it required, the new instance has to come first, and there is no room for it.
    let from = deployment(vec![("a100-40gb", seven(&["a"; 7]))], 1.0);
    let (found, seen) = plan(&from, &full, Some(0));
    assert_eq!(found.extra_gpus(), 0);
    assert!(seen.min_satisfaction < 1.0);
    let (_, seen) = plan(&from, &full, None);
    assert!(seen.min_satisfaction >= 1.0);
}

#[test]
fn slices_that_cannot_stand_together_are_refused_with_their_gpu() {
    let good = deployment(vec![("a100-40gb", seven(&["a"; 7]))], 1.0);
    let bad = deployment(
        vec![(
            "a100-40gb",
            vec![slice("4g.20gb", 0, 4, "a"), slice("2g.10gb", 2, 2, "a")],
        )],
        1.0,
    );
    let said = |from, to| {
        transition(from, to, &tables(), &Options::default())
            .unwrap_err()
            .to_string()
    };
    assert!(
        said(&good, &bad).starts_with("the deployment to reach: GPU 0: "),
        "{}",
        said(&good, &bad)
    );
    let mut unknown = good.clone();
    unknown.gpus[0].kind = "b9".into();
    assert_eq!(
        said(&unknown, &good),
        "the deployment to start from: GPU 0: b9 is not known"
    );
}

/// A GPU: which of its kind's layouts, and for each slice a service, or none.
type Drawn = (bool, prop::sample::Index, Vec<u8>);

fn drawn(gpus: &[Drawn], share: f64) -> Deployment {
    let tables = tables();
    let gpus = gpus.iter().map(|(small, layout, services)| {
        let kind = if *small { "a30-24gb" } else { "a100-40gb" };
        let table = &tables[kind];
        let layouts: Vec<Vec<crate::layout::Slot>> = table.layouts().collect();
        let slots = layouts[layout.index(layouts.len())].iter().zip(services);
        let slices = slots
            .filter(|(_, service)| **service < 5)
            .map(|((profile, place), service)| {
                slice(
                    &table.profile(*profile).name,
                    place.start,
                    place.size,
                    &format!("s{service}"),
                )
            });
        (kind, slices.collect::<Vec<_>>())
    });
    deployment(gpus.filter(|(_, slices)| !slices.is_empty()).collect(), share)
}

fn some_gpus() -> impl Strategy<Value = Vec<Drawn>> {
    let gpu = (
        prop::bool::weighted(0.2),
        any::<prop::sample::Index>(),
        prop::collection::vec(0_u8..6, 7),
    );
    prop::collection::vec(gpu, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn no_service_gets_less_than_its_floor_whatever_the_steps_take(
        old in some_gpus(),
        new in some_gpus(),
        shares in (0.2_f64..1.0, 0.2_f64..1.0),
        seed in any::<u64>(),
    ) {
        let (from, to) = (drawn(&old, shares.0), drawn(&new, shares.1));
        let (found, seen) = plan(&from, &to, None);
        prop_assert!(seen.min_satisfaction >= 1.0, "{}", seen.min_satisfaction);
        prop_assert_eq!(seen.makespan_ms, found.makespan_ms());
        // Steps may be slow or fast, each on its own.
        for round in 0..2_u64 {
            let mut random = fastrand::Rng::with_seed(seed ^ round);
            let times: Vec<u64> = found.steps.iter().map(|_| random.u64(1..100_000)).collect();
            let length = |step: &Step| {
                let index = found.steps.iter().position(|own| std::ptr::eq(own, step));
                times[index.unwrap_or(0)]
            };
            let seen = replay(&found, length).unwrap();
            prop_assert!(seen.min_satisfaction >= 1.0, "{}", seen.min_satisfaction);
        }
    }

    #[test]
    fn without_extra_gpus_a_transition_ends_all_the_same(old in some_gpus(), new in some_gpus()) {
        let (found, seen) = plan(&drawn(&old, 1.0), &drawn(&new, 1.0), Some(0));
        prop_assert_eq!(found.extra_gpus(), 0);
        prop_assert!(seen.most_gpus <= found.stage.gpus.len());
    }
}

#[test]
fn the_replay_sees_a_step_that_comes_too_early() {
    let from = deployment(vec![("a100-40gb", seven(&["a"; 7]))], 1.0);
    let to = deployment(
        vec![("a100-40gb", seven(&["a", "a", "a", "b", "b", "b", "b"]))],
        1.0,
    );
    let (found, _) = plan(&from, &to, None);
    for step in 0..found.steps.len() {
        let mut early = found.clone();
        if std::mem::take(&mut early.steps[step].after).is_empty() {
            continue;
        }
        // A step that waits for nothing starts at once, where its slice is not free yet.
        assert!(
            replay(&early, |step| step.end_ms - step.start_ms).is_err(),
            "step {step}"
        );
    }
}

#[test]
fn the_serial_order_ends_with_the_same_instances() {
    let from = deployment(
        vec![("a100-40gb", seven(&["a"; 7])), ("a100-40gb", seven(&["b"; 7]))],
        0.5,
    );
    let to = deployment(
        vec![("a100-40gb", seven(&["a", "a", "a", "b", "b", "b", "b"]))],
        0.5,
    );
    let stage = Stage::set(&from, &to, &tables()).unwrap();
    let cost = exchange_and_compact(&stage, Times::default());
    assert_eq!((cost.creates, cost.deletes), (0, 7));
    assert_eq!(cost.makespan_ms, 7 * 38_000 + 3 * 48_000);
}
