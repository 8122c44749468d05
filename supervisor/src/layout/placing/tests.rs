//! The rules against known figures: sequences of creates, and exact acceptance on one GPU.

use std::collections::BTreeSet;

use super::super::{Placement, ProfileIndex, Rules, StateIndex, Table, base, samples};
use super::chain::{acceptance, optimum};
use super::rules::{LowestStart, Rated};
use super::{Demand, DemandValue, PlacementRule, cheapest_of};

const UNIFORM: [f64; 5] = [0.2; 5];
const WITHOUT_7G: [f64; 5] = [0.25, 0.25, 0.25, 0.25, 0.0];
const SMALL: [f64; 5] = [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0, 0.0];
const LOADS: [f64; 4] = [0.5, 0.7, 0.85, 0.95];

/// The plain profiles of the A100, double memory included.
fn a100_plain() -> Table {
    samples::plain(samples::a100_40gb())
}

fn driver(table: &Table) -> Rated {
    Rated::driver(table, &a100_plain()).unwrap()
}

/// Every order of every set of slices that one GPU can hold.
fn sequences(table: &Table) -> BTreeSet<Vec<ProfileIndex>> {
    let mut found = BTreeSet::new();
    let mut open = vec![(Table::EMPTY, Vec::new())];
    while let Some((state, so_far)) = open.pop() {
        for (profile, place, _) in table.placements(state) {
            let mut slots = table.taken(state);
            slots.push((profile, place));
            let mut longer = so_far.clone();
            longer.push(profile);
            open.push((table.state_of(&slots).unwrap(), longer));
        }
        found.insert(so_far);
    }
    // Each order of what stands together counts, also those that no create by create choice has led to.
    let sets: BTreeSet<Vec<ProfileIndex>> = found
        .into_iter()
        .map(|mut sequence| {
            sequence.sort_unstable();
            sequence
        })
        .collect();
    assert_eq!(sets.len(), 38);
    sets.into_iter().flat_map(orders).collect()
}

fn orders(left: Vec<ProfileIndex>) -> Vec<Vec<ProfileIndex>> {
    if left.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, &first) in left.iter().enumerate() {
        if left[..index].contains(&first) {
            continue;
        }
        let mut rest = left.clone();
        rest.remove(index);
        for mut order in orders(rest) {
            order.insert(0, first);
            all.push(order);
        }
    }
    all
}

fn starts<R: PlacementRule>(table: &Table, rule: &R, sequence: &[ProfileIndex]) -> Option<Vec<u32>> {
    let mut state = Table::EMPTY;
    let mut starts = Vec::new();
    for &profile in sequence {
        let create = table.cheapest(rule, state, profile)?;
        starts.push(create.placement.start);
        state = create.to;
    }
    Some(starts)
}

fn failures<R: PlacementRule>(table: &Table, rule: &R) -> usize {
    let all = sequences(table);
    assert_eq!(all.len(), 114);
    all.iter()
        .filter(|sequence| starts(table, rule, sequence).is_none())
        .count()
}

/// HAMi's rule: 1g and 3g from the top, the others from the bottom.
struct HighAndLow(Table);

impl PlacementRule for HighAndLow {
    fn name(&self) -> &'static str {
        "high and low"
    }

    fn cost(&self, from: StateIndex, placement: Placement, to: StateIndex) -> super::Cost {
        let (before, after) = (self.0.taken(from), self.0.taken(to));
        let new = after.iter().find(|slot| !before.contains(slot)).unwrap();
        let high = matches!(self.0.profile(new.0).compute, 1 | 3);
        let start = i64::from(placement.start);
        super::Cost(if high { -start } else { start })
    }
}

#[test]
fn failures_over_all_orders_of_what_one_gpu_can_hold() {
    let table = samples::a100_base();
    assert_eq!(failures(&table, &LowestStart), 27);
    assert_eq!(failures(&table, &HighAndLow(table.clone())), 18);
    assert_eq!(failures(&table, &Rated::reachability(&table)), 16);
    assert_eq!(failures(&table, &driver(&table)), 15);
    let unknown = Demand::unknown(&table).mix();
    assert_eq!(failures(&table, &DemandValue::solve(&table, &unknown, 1)), 14);
}

#[test]
fn a_batch_known_beforehand_never_fails() {
    let table = samples::a100_base();
    for sequence in sequences(&table) {
        let places = table.plan_batch(&[Table::EMPTY], &sequence).unwrap();
        let slots: Vec<_> = sequence
            .iter()
            .zip(&places)
            .map(|(&profile, &(_, place))| (profile, place))
            .collect();
        table.state_of(&slots).unwrap();
    }
}

#[test]
fn a_batch_that_cannot_be_placed_is_told_from_one_that_can() {
    let table = samples::a100_base();
    let [one, three] = ["1g.5gb", "3g.20gb"].map(|name| table.profile_named(name).unwrap());
    assert_eq!(table.plan_batch(&[Table::EMPTY], &[three, three, one]), None);
    let two_gpus = [Table::EMPTY; 2];
    let wanted = [three, three, one, three, three];
    assert_eq!(table.plan_batch(&two_gpus, &wanted), None);
    // First-fit on the first GPU would leave no place for the third 3g.
    let plan = table
        .plan_batch(&two_gpus, &[one, one, three, three, three])
        .unwrap();
    let on_first = plan.iter().filter(|(gpu, _)| *gpu == 0).count();
    assert!(plan.len() == 5 && (1..5).contains(&on_first), "{plan:?}");
    let busy = table.state_of(&[table.slot_named("1g.5gb@6").unwrap()]).unwrap();
    let plan = table.plan_batch(&[busy], &[three]).unwrap();
    assert_eq!((plan[0].0, plan[0].1.start), (0, 0));
}

/// Sequences of creates in the MIG user guide and in published transcripts.
#[test]
fn the_drivers_choice_is_that_of_transcripts() {
    let table = samples::a100_base();
    let rule = driver(&table);
    let go = |names: &[&str]| {
        let wanted = names.iter().map(|name| table.profile_named(name).unwrap());
        starts(&table, &rule, &wanted.collect::<Vec<_>>())
    };
    let (one, two, three, four) = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb");
    assert_eq!(go(&[one; 7]), Some(vec![6, 4, 5, 0, 1, 2, 3]));
    assert_eq!(go(&[three, three]), Some(vec![4, 0]));
    assert_eq!(go(&[one, two, four]), Some(vec![6, 4, 0]));
    assert_eq!(go(&[two, one, one, one, one, one]), Some(vec![4, 6, 0, 1, 2, 3]));
    assert_eq!(go(&[three, one, two, one]), Some(vec![4, 0, 2, 1]));
    assert_eq!(go(&[one, one, two, three]), None);
}

#[test]
fn the_driver_rule_knows_variants_by_their_place() {
    let table = Table::build(samples::a100_40gb(), Rules::default()).unwrap();
    let rule = driver(&table);
    let media = table.profile_named("1g.5gb+me").unwrap();
    assert_eq!(
        table
            .cheapest(&rule, Table::EMPTY, media)
            .unwrap()
            .placement
            .start,
        6
    );
    assert!(Rated::driver(&samples::a30_base(), &table).is_err());
}

#[test]
fn ours_is_within_a_tenth_of_a_point_of_the_optimum_on_one_gpu() {
    let table = samples::a100_base();
    for mix in [UNIFORM, WITHOUT_7G, SMALL] {
        let ours = DemandValue::solve(&table, &mix, 1);
        for load in LOADS {
            let best = optimum(&table, &mix, load);
            let own = acceptance(&table, &ours, &mix, load).jobs;
            let first_fit = acceptance(&table, &LowestStart, &mix, load).jobs;
            assert!(
                own <= best + 1e-6,
                "{mix:?} {load}: {own} above the optimum {best}"
            );
            assert!(own >= best - 0.001, "{mix:?} {load}: {own} of {best}");
            assert!(own >= first_fit, "{mix:?} {load}: {own}, first-fit {first_fit}");
        }
    }
}

#[test]
fn the_value_on_one_gpu_is_that_of_the_decision_process() {
    // A30: no chance for ties to hide behind, two rules agree in every state.
    let table = samples::a30_base();
    let mix = [0.5, 0.3, 0.2];
    let own = acceptance(&table, &DemandValue::solve(&table, &mix, 1), &mix, 0.85).jobs;
    assert!((own - optimum(&table, &mix, 0.85)).abs() < 1e-6);
}

#[test]
fn gpus_compete_by_loss_and_ties_go_to_the_first() {
    let table = samples::a100_base();
    let ours = DemandValue::solve(&table, &[0.5, 0.0, 0.0, 0.0, 0.5], 2);
    let one = table.profile_named("1g.5gb").unwrap();
    let used = table.state_of(&[table.slot_named("1g.5gb@6").unwrap()]).unwrap();
    // A second small one joins the first and leaves the other GPU whole.
    let (gpu, _) = cheapest_of(&table, &ours, &[Table::EMPTY, used], one).unwrap();
    assert_eq!(gpu, 1);
    let (gpu, _) = cheapest_of(&table, &ours, &[Table::EMPTY; 3], one).unwrap();
    assert_eq!(gpu, 0);
    // First-fit does not look further than the first with room.
    let (gpu, create) = cheapest_of(&table, &LowestStart, &[Table::EMPTY, used], one).unwrap();
    assert_eq!((gpu, create.placement.start), (0, 0));
    let full = table.state_of(&[table.slot_named("7g.40gb@0").unwrap()]).unwrap();
    assert_eq!(cheapest_of(&table, &ours, &[full, full], one), None);
}

#[test]
fn a_table_without_creates_and_a_profile_without_demand_are_no_trouble() {
    let frozen = samples::a100_base().frozen();
    let ours = DemandValue::solve(&frozen, &UNIFORM, 1);
    assert_eq!(frozen.cheapest(&ours, Table::EMPTY, ProfileIndex(0)), None);
    let table = samples::a100_base();
    let none = DemandValue::solve(&table, &[0.0; 5], 4);
    assert!(table.cheapest(&none, Table::EMPTY, ProfileIndex(4)).is_some());
}

#[test]
fn fragmentation_counts_blocked_places_that_the_free_slices_would_hold() {
    let table = Table::build(base(&samples::a30_24gb()), Rules::default()).unwrap();
    let mfi = Rated::fragmentation(&table);
    let small = table.profile_named("1g.6gb").unwrap();
    let at = |start: u32| table.state_of(&[(small, Placement { start, size: 1 })]).unwrap();
    // 1g@0 blocks itself (1) and the half 0..2 (2); the whole no longer fits by size.
    let cost = mfi.cost(Table::EMPTY, Placement { start: 0, size: 1 }, at(0));
    assert_eq!(cost, super::Cost::of(3.0));
    // The second beside it blocks only itself; one in the other half blocks that half too.
    let second = |start: u32| {
        let slots = [0, start].map(|start| (small, Placement { start, size: 1 }));
        mfi.cost(
            at(0),
            Placement { start, size: 1 },
            table.state_of(&slots).unwrap(),
        )
    };
    assert_eq!(
        (second(1), second(2)),
        (super::Cost::of(1.0), super::Cost::of(3.0))
    );
}
