//! Ways from one layout to another: legal at each step, as few as there can be, around what is pinned.

use std::collections::{HashMap, HashSet, VecDeque};

use proptest::prelude::*;

use super::super::{Rules, base, samples};
use super::*;

fn slots(table: &Table, names: &[&str]) -> Vec<Slot> {
    names.iter().map(|name| table.slot_named(name).unwrap()).collect()
}

fn one_more(profile: ProfileIndex, keeping: &[ProfileIndex]) -> Goal<'_> {
    Goal::OneMore { profile, keeping }
}

/// Steps as text: `-1g.5gb@0`, `+2g.10gb@0`.
fn said(table: &Table, found: &Transition) -> Vec<String> {
    let text = |step: &Step| match *step {
        Step::Destroy(slot) => format!("-{}", table.named(slot)),
        Step::Create(slot) => format!("+{}", table.named(slot)),
    };
    found.steps.iter().map(text).collect()
}

/// Every layout on the way is a state, no pinned slot goes, each create has an edge, and what is promised at
/// the end stands there.
fn walk(table: &Table, pinned: &[Slot], idle: &[Slot], found: &Transition) -> Vec<StateIndex> {
    let mut standing: Vec<Slot> = pinned.iter().chain(idle).copied().collect();
    let mut states = vec![table.state_of(&standing).unwrap()];
    for step in &found.steps {
        let before = *states.last().unwrap();
        match *step {
            Step::Destroy(slot) => {
                assert!(!pinned.contains(&slot), "a pinned slot goes");
                let at = standing
                    .iter()
                    .position(|one| *one == slot)
                    .expect("nothing there");
                standing.swap_remove(at);
            }
            Step::Create(slot) => {
                let index = table.slot_index(slot).unwrap();
                assert!(table.after(before, index).is_some(), "no edge");
                standing.push(slot);
            }
        }
        states.push(table.state_of(&standing).unwrap());
    }
    assert_eq!(*states.last().unwrap(), found.to);
    assert_eq!(table.reachable(found.to), found.reachable);
    states
}

/// Steps from a state to every other, by trying everything; nothing of the planner's own code.
fn distances(table: &Table, from: StateIndex, pinned: &[Slot]) -> HashMap<StateIndex, usize> {
    let mut known = HashMap::from([(from, 0)]);
    let mut queue = VecDeque::from([from]);
    while let Some(state) = queue.pop_front() {
        let taken = table.taken(state);
        let fewer = taken.iter().filter(|slot| !pinned.contains(slot)).map(|slot| {
            let rest: Vec<Slot> = taken.iter().copied().filter(|one| one != slot).collect();
            table.state_of(&rest).unwrap()
        });
        let more = table.edges[state.0].iter().map(|edge| StateIndex(edge.to));
        for next in fewer.chain(more).collect::<Vec<_>>() {
            if !known.contains_key(&next) {
                known.insert(next, known[&state] + 1);
                queue.push_back(next);
            }
        }
    }
    known
}

fn split(taken: &[Slot], pins: usize) -> (Vec<Slot>, Vec<Slot>) {
    let is_pinned = |index: &usize| pins >> index & 1 == 1;
    let (pinned, idle): (Vec<usize>, Vec<usize>) = (0..taken.len()).partition(is_pinned);
    let of = |list: Vec<usize>| list.into_iter().map(|index| taken[index]).collect();
    (of(pinned), of(idle))
}

#[test]
fn every_pair_of_base_layouts_takes_the_fewest_steps() {
    let table = samples::a100_base();
    let states: Vec<StateIndex> = (0..298).map(StateIndex).collect();
    let mut pairs = 0;
    for &from in &states {
        let least = distances(&table, from, &[]);
        for &to in &states {
            // Past the reading of slots, which the test with pins takes part in.
            let found = table
                .way_to(table.bitset(from), 0, &[table.bitset(to)], 0, &|to| to)
                .unwrap();
            assert_eq!(found.steps.len(), least[&to], "{from:?} to {to:?}");
            // Legality of the steps is walked in the test with pins, for all starts as well.
            assert_eq!(found.to, to);
            pairs += 1;
        }
    }
    assert_eq!(pairs, 298 * 298);
}

/// From every layout, with every one of its slices pinned in turn and with halves of them: to a spread of
/// layouts, each way walked step by step; a stop anywhere leaves just the rest to do.
#[test]
fn with_pins_each_way_is_legal_shortest_and_can_be_stopped_anywhere() {
    let table = samples::a100_base();
    let mut unreachable = 0;
    for from in 0..298 {
        let taken = table.taken(StateIndex(from));
        for pins in [0, 0b1, 0b10, 0b101_0101] {
            let (pinned, idle) = split(&taken, pins);
            let kept: HashSet<Slot> = pinned.iter().copied().collect();
            let least = (from % 16 == 0).then(|| distances(&table, StateIndex(from), &pinned));
            for to in (from % 17..298).step_by(17) {
                let wanted = table.taken(StateIndex(to));
                let found = match table.transition(&pinned, &idle, Goal::Layout(&wanted)) {
                    Ok(found) => found,
                    Err(NoWay::Misfit(_)) => {
                        unreachable += 1;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                let states = walk(&table, &pinned, &idle, &found);
                let end: HashSet<Slot> = table.taken(found.to).into_iter().collect();
                let both: HashSet<Slot> = kept.iter().chain(&wanted).copied().collect();
                assert_eq!(end, both);
                if let Some(least) = &least {
                    assert_eq!(found.steps.len(), least[&found.to]);
                }
                if (from + to) % 5 == 0 {
                    for (done, state) in states.iter().enumerate() {
                        let now = table.taken(*state);
                        let idle: Vec<Slot> = now.into_iter().filter(|one| !kept.contains(one)).collect();
                        let rest = table.transition(&pinned, &idle, Goal::Layout(&wanted)).unwrap();
                        assert_eq!(
                            rest.steps,
                            found.steps[done..],
                            "{from} to {to}, stopped after {done}"
                        );
                    }
                }
            }
        }
    }
    assert!(unreachable > 0, "no pinned slice was ever in the way");
}

#[test]
fn one_more_takes_the_fewest_steps_from_every_base_layout_with_pins() {
    let table = samples::a100_base();
    for from in 0..298 {
        let taken = table.taken(StateIndex(from));
        // Subsets of the slices, thinned out, most in the crowded layouts.
        for pins in (0..1 << taken.len()).step_by(if taken.len() > 4 { 29 } else { 5 }) {
            let (pinned, idle) = split(&taken, pins);
            let least = distances(&table, StateIndex(from), &pinned);
            for profile in (0..5).map(ProfileIndex) {
                let count = |slots: &[Slot]| slots.iter().filter(|slot| slot.0 == profile).count();
                let is_more = |state: &StateIndex| count(&table.taken(*state)) > count(&taken);
                let best = least
                    .iter()
                    .filter(|(state, _)| is_more(state))
                    .map(|(_, steps)| *steps)
                    .min();
                match table.transition(&pinned, &idle, one_more(profile, &[])) {
                    Ok(found) => {
                        walk(&table, &pinned, &idle, &found);
                        assert_eq!(Some(found.steps.len()), best, "{taken:?} {pins:b} {profile:?}");
                    }
                    Err(_) => assert_eq!(best, None, "{taken:?} {pins:b} {profile:?}"),
                }
            }
        }
    }
}

#[test]
fn fission_and_fusion_are_the_simple_cases() {
    let table = samples::a100_base();
    let profile = |name| table.profile_named(name).unwrap();
    let idle = slots(&table, &["7g.40gb@0"]);
    let fission = table
        .transition(&[], &idle, one_more(profile("1g.5gb"), &[]))
        .unwrap();
    assert_eq!(said(&table, &fission), ["-7g.40gb@0", "+1g.5gb@6"]);
    let idle = slots(&table, &["1g.5gb@4", "1g.5gb@5"]);
    let busy = slots(&table, &["3g.20gb@0", "1g.5gb@6"]);
    let fusion = table
        .transition(&busy, &idle, one_more(profile("2g.10gb"), &[]))
        .unwrap();
    assert_eq!(said(&table, &fusion), ["-1g.5gb@4", "-1g.5gb@5", "+2g.10gb@4"]);
}

#[test]
fn an_idle_slice_is_moved_out_of_the_way() {
    let table = samples::a100_base();
    let profile = |name| table.profile_named(name).unwrap();
    // The 1g at 5 splits the upper half; the lower one has a busy 1g and room.
    let busy = slots(&table, &["1g.5gb@0"]);
    let idle = slots(&table, &["1g.5gb@5"]);
    let small = [profile("1g.5gb")];
    let goal = one_more(profile("3g.20gb"), &small);
    let found = table.transition(&busy, &idle, goal).unwrap();
    assert_eq!(found.steps.len(), 3);
    let kinds: Vec<_> = table
        .taken(found.to)
        .iter()
        .map(|slot| table.profile(slot.0).name.clone())
        .collect();
    assert_eq!(kinds, ["1g.5gb", "1g.5gb", "3g.20gb"]);
    walk(&table, &busy, &idle, &found);
    // Room without a move: nothing is moved.
    let idle = slots(&table, &["1g.5gb@1"]);
    let found = table.transition(&busy, &idle, goal).unwrap();
    assert_eq!(said(&table, &found), ["+3g.20gb@4"]);
    // A busy one stays where it is, so there is no way.
    let busy = slots(&table, &["1g.5gb@0", "1g.5gb@5"]);
    assert_eq!(table.transition(&busy, &[], goal), Err(NoWay::NoRoom));
}

#[test]
fn what_is_pinned_in_the_place_of_the_goal_is_named() {
    let table = samples::a100_base();
    let foreign = slots(&table, &["1g.5gb@6"]);
    let wanted = slots(&table, &["3g.20gb@4"]);
    let error = table
        .transition(&foreign, &[], Goal::Layout(&wanted))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "3g.20gb@4 cannot be placed: 1g.5gb@6 is in the way"
    );
}

#[test]
fn creates_come_as_soon_as_their_place_is_free() {
    let table = samples::a100_base();
    let idle = slots(&table, &["1g.5gb@0", "1g.5gb@1", "1g.5gb@4", "1g.5gb@5"]);
    let wanted = slots(&table, &["2g.10gb@0", "2g.10gb@4"]);
    let found = table.transition(&[], &idle, Goal::Layout(&wanted)).unwrap();
    assert_eq!(
        said(&table, &found),
        [
            "-1g.5gb@0",
            "-1g.5gb@1",
            "+2g.10gb@0",
            "-1g.5gb@4",
            "-1g.5gb@5",
            "+2g.10gb@4"
        ]
    );
}

#[test]
fn a_refused_create_is_walked_round() {
    let table = samples::a100_base();
    let wanted = slots(&table, &["3g.20gb@4", "1g.5gb@0"]);
    // Refused as the first of the two, so the other one comes first.
    let less = table.without(Table::EMPTY, wanted[1]);
    let found = less.transition(&[], &[], Goal::Layout(&wanted)).unwrap();
    assert_eq!(said(&table, &found), ["+3g.20gb@4", "+1g.5gb@0"]);
    // Refused while the 1g stands alone: two steps more, and the 1g may even be busy.
    let small = slots(&table, &["1g.5gb@0"]);
    let less = table.without(table.state_of(&small).unwrap(), wanted[0]);
    for (busy, idle) in [(&[][..], &small[..]), (&small, &[])] {
        let found = less.transition(busy, idle, Goal::Layout(&wanted)).unwrap();
        walk(&less, busy, idle, &found);
        assert_eq!(
            found.steps.len(),
            distances(&less, less.state_of(&small).unwrap(), busy)[&found.to]
        );
        assert_eq!(found.steps.len(), 3);
    }
    // The only way into it.
    let whole = slots(&table, &["7g.40gb@0"]);
    let less = table.without(Table::EMPTY, whole[0]);
    assert_eq!(
        less.transition(&[], &small, Goal::Layout(&whole)),
        Err(NoWay::Refused)
    );
}

/// All profiles of three grids, engine budgets included.
fn tables() -> Vec<Table> {
    let grids = [
        samples::a100_40gb(),
        samples::h100_80gb(),
        samples::a30_24gb(),
        samples::rtx_pro_6000(),
    ];
    let all = grids
        .into_iter()
        .map(|profiles| Table::build(profiles, Rules::default()).unwrap());
    let old = Table::build(base(&samples::a100_40gb()), Rules::for_driver(470)).unwrap();
    all.chain([old]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn transitions_over_all_profiles_are_legal_and_no_longer_than_the_difference(
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
        pins in any::<u16>(),
        wanted in any::<prop::sample::Index>(),
    ) {
        use std::sync::LazyLock;
        static TABLES: LazyLock<Vec<Table>> = LazyLock::new(tables);
        for table in TABLES.iter() {
            let from = StateIndex(from.index(table.states.len()));
            let to = table.taken(StateIndex(to.index(table.states.len())));
            let (pinned, idle) = split(&table.taken(from), pins.into());
            if let Ok(found) = table.transition(&pinned, &idle, Goal::Layout(&to)) {
                walk(table, &pinned, &idle, &found);
                let differ = table.bitset(from) ^ table.bitset(found.to);
                prop_assert_eq!(found.steps.len(), differ.count_ones() as usize);
            }
            let profile = ProfileIndex(wanted.index(table.profiles().len()));
            let alone = table.transition(&pinned, &idle, one_more(profile, &[]));
            let kinds: Vec<ProfileIndex> = idle.iter().map(|slot| slot.0).collect();
            let keeping = table.transition(&pinned, &idle, one_more(profile, &kinds));
            if let Ok(found) = &alone {
                walk(table, &pinned, &idle, found);
            }
            if let Ok(found) = &keeping {
                walk(table, &pinned, &idle, found);
                let count = |state: StateIndex| table.taken(state).iter().filter(|slot| slot.0 == profile).count();
                prop_assert_eq!(count(found.to), count(from) + 1);
                prop_assert_eq!(table.taken(found.to).len(), table.taken(from).len() + 1);
                prop_assert!(alone.is_ok_and(|alone| alone.steps.len() <= found.steps.len()));
            }
        }
    }
}
