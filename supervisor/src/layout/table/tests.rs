//! The published figures, and the table against the written rules.

use std::time::Instant;

use super::super::{LayoutError, Profile, Rules, base, samples};
use super::*;

/// One row: states, full layouts, edges; then the same two counts with places left out of account.
type Row = (usize, usize, usize, usize, usize);

fn counts(profiles: Vec<Profile>, rules: Rules) -> Row {
    let table = Table::build(profiles, rules).unwrap();
    let states = || (0..table.states.len()).map(StateIndex);
    let multisets = |states: &mut dyn Iterator<Item = StateIndex>| {
        let kinds = states.map(|state| table.taken(state).iter().map(|slot| slot.0).collect::<Vec<_>>());
        kinds.collect::<BTreeSet<_>>().len()
    };
    let full = &mut states().filter(|state| table.edges[state.0].is_empty());
    (
        table.states(),
        table.full_layouts(),
        table.edges(),
        multisets(&mut states()),
        multisets(full),
    )
}

/// Row by row the table of counts computed from NVIDIA's placements; 19 and, before R510, 18 full layouts are
/// NVIDIA's own figures.
#[test]
fn published_counts_of_each_grid() {
    let a100 = samples::a100_40gb;
    let rtx = samples::rtx_pro_6000;
    let with = |extra: &str| {
        let five = base(&a100());
        let kept = a100().into_iter().filter(|p| five.contains(p) || p.name == extra);
        kept.collect::<Vec<_>>()
    };
    let without_gfx = rtx().into_iter().filter(|p| !p.name.ends_with("+gfx")).collect();
    let newest = Rules::default;
    let before_r510 = || Rules::for_driver(470);
    for (what, profiles, rules, row) in [
        ("7x8 base", base(&a100()), newest(), (298, 19, 1005, 38, 14)),
        (
            "7x8 base, R470",
            base(&a100()),
            before_r510(),
            (297, 18, 1003, 37, 13),
        ),
        (
            "double memory",
            with("1g.10gb"),
            newest(),
            (723, 78, 2585, 78, 38),
        ),
        (
            "media engines",
            with("1g.5gb+me"),
            newest(),
            (1089, 67, 4123, 64, 24),
        ),
        ("7x8 all, A100", a100(), newest(), (2319, 239, 9129, 128, 64)),
        (
            "7x8 all, H100",
            samples::h100_80gb(),
            newest(),
            (2319, 239, 9129, 128, 64),
        ),
        (
            "A30 base",
            base(&samples::a30_24gb()),
            newest(),
            (26, 5, 51, 10, 4),
        ),
        ("RTX base", base(&rtx()), newest(), (26, 5, 51, 10, 4)),
        ("A30 all", samples::a30_24gb(), newest(), (76, 17, 171, 20, 8)),
        ("RTX without gfx", without_gfx, newest(), (304, 97, 817, 57, 27)),
        ("RTX all", rtx(), newest(), (717, 302, 2112, 115, 64)),
    ] {
        assert_eq!(counts(profiles, rules), row, "{what}");
    }
}

/// NVML's count is wrong on the A30 (mig-parted keeps a table of its own for that GPU).
#[test]
fn counts_follow_from_places_and_engines() {
    let table = Table::build(samples::a30_24gb(), Rules::default()).unwrap();
    let most = |name: &str| {
        let profile = table.profile_named(name).unwrap();
        let of = |state| {
            table
                .taken(StateIndex(state))
                .iter()
                .filter(|slot| slot.0 == profile)
                .count()
        };
        (0..table.states()).map(of).max().unwrap()
    };
    assert_eq!(
        ["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"].map(most),
        [4, 1, 2, 1, 1]
    );
}

#[test]
fn reachability_after_the_first_instance() {
    let table = samples::a100_base();
    for (slot, reachable) in [
        ("1g.5gb@6", 12),
        ("1g.5gb@0", 6),
        ("2g.10gb@0", 6),
        ("3g.20gb@4", 6),
        ("3g.20gb@0", 3),
        ("4g.20gb@0", 3),
        ("7g.40gb@0", 1),
    ] {
        let state = table.state_of(&[table.slot_named(slot).unwrap()]).unwrap();
        assert_eq!(table.reachable(state), reachable, "{slot}");
    }
}

#[test]
fn seven_small_ones_go_where_most_stays_open() {
    let table = samples::a100_base();
    let small = table.profile_named("1g.5gb").unwrap();
    let best = |taken: &[Slot]| {
        let creates = table.placements(table.state_of(taken).unwrap()).into_iter();
        let own = creates.filter(|create| create.0 == small);
        own.map(|(_, place, reachable)| (place, reachable))
            .min_by_key(|&(place, reachable)| (std::cmp::Reverse(reachable), place))
    };
    let mut taken = Vec::new();
    let mut seen = Vec::new();
    while let Some((place, reachable)) = best(&taken) {
        taken.push((small, place));
        seen.push((place.start, reachable));
    }
    assert_eq!(seen, [(6, 12), (4, 6), (5, 6), (0, 2), (1, 2), (2, 1), (3, 1)]);
}

/// Builds the answer from the written rules alone, over every subset of the 18 base slots.
#[test]
fn all_subsets_agree_with_the_written_rules() {
    let profiles = base(&samples::a100_40gb());
    let table = Table::build(profiles.clone(), Rules::default()).unwrap();
    let slots: Vec<Slot> = (0..profiles.len())
        .flat_map(|p| {
            profiles[p]
                .placements
                .iter()
                .map(move |&at| (ProfileIndex(p), at))
        })
        .collect();
    let chosen = |set: u32| (0..slots.len()).filter(move |bit| set >> bit & 1 == 1);
    let legal = |set: u32| {
        let mut units = [false; 8];
        let mut compute = 0;
        for bit in chosen(set) {
            let (profile, at) = slots[bit];
            compute += profiles[profile.0].compute;
            for unit in at.start..at.start + at.size {
                if std::mem::replace(&mut units[unit as usize], true) {
                    return false;
                }
            }
        }
        compute <= 7
    };
    let sets: Vec<u32> = (0..1_u32 << slots.len()).filter(|&set| legal(set)).collect();
    let full: Vec<u32> = sets
        .iter()
        .copied()
        .filter(|set| (0..slots.len()).all(|bit| set >> bit & 1 == 1 || !legal(set | 1 << bit)))
        .collect();
    assert_eq!(sets.len(), table.states());
    for &set in &sets {
        let taken: Vec<Slot> = chosen(set).map(|bit| slots[bit]).collect();
        let state = table.state_of(&taken).unwrap();
        let reach = full.iter().filter(|&&layout| layout & set == set).count();
        assert_eq!(table.reachable(state), reach, "{taken:?}");
        let mut creates: Vec<Slot> = table.placements(state).iter().map(|c| (c.0, c.1)).collect();
        let mut expected: Vec<Slot> = (0..slots.len())
            .filter(|bit| set >> bit & 1 == 0 && legal(set | 1 << bit))
            .map(|bit| slots[bit])
            .collect();
        creates.sort_unstable();
        expected.sort_unstable();
        assert_eq!(creates, expected, "{taken:?}");
    }
}

#[test]
fn refused_creates_leave_the_table_of_an_old_driver() {
    let table = samples::a100_base();
    let four = table.slot_named("4g.20gb@0").unwrap();
    let three = table.slot_named("3g.20gb@4").unwrap();
    let after_four = table.state_of(&[four]).unwrap();
    let once = table.without(after_four, three);
    assert_eq!(once.edges(), 1004);
    let both = once.without(table.state_of(&[three]).unwrap(), four);
    assert_eq!(
        (both.states(), both.full_layouts(), both.edges()),
        (297, 18, 1003)
    );
    assert!(
        both.placements(after_four)
            .iter()
            .all(|create| (create.0, create.1) != three)
    );
}

#[test]
fn a_frozen_gpu_has_states_and_no_creates() {
    let table = samples::a100_base().frozen();
    let slot = table.slot_named("3g.20gb@4").unwrap();
    let state = table.state_of(&[slot]).unwrap();
    assert!(table.placements(state).is_empty());
    assert_eq!(table.taken(state), [slot]);
}

#[test]
fn ties_of_memory_go_to_more_multiprocessors() {
    let table = samples::a100_base();
    let names = |bytes| {
        table
            .tightest(bytes)
            .iter()
            .map(|p| table.profile(*p).name.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(0), ["1g.5gb", "2g.10gb", "4g.20gb", "3g.20gb", "7g.40gb"]);
    assert_eq!(names(10 << 30), ["4g.20gb", "3g.20gb", "7g.40gb"]);
    assert_eq!(names(40 << 30), [""; 0]);
    assert_eq!(table.profile(table.full()).name, "7g.40gb");
}

#[test]
fn impossible_gpus_are_refused_with_the_reason() {
    let mut free = samples::a100_40gb();
    free.truncate(1);
    free[0].placements = (0..70).map(|start| Placement { start, size: 1 }).collect();
    assert_eq!(
        Table::build(free.clone(), Rules::default()).unwrap_err(),
        LayoutError::TooManySlots(70)
    );
    free[0].placements.truncate(40);
    free[0].compute = 0;
    free[0].engines = [0; 5];
    assert_eq!(
        Table::build(free.clone(), Rules::default()).unwrap_err(),
        LayoutError::TooManyStates
    );
    free[0].placements = vec![Placement { start: 3, size: 0 }];
    assert_eq!(
        Table::build(free, Rules::default()).unwrap_err().to_string(),
        "profile 1g.5gb has a placement of size 0 at 3"
    );
    assert_eq!(
        Table::build(Vec::new(), Rules::default()).unwrap_err(),
        LayoutError::Empty
    );
}

/// The bound is generous for an unoptimised build on a loaded machine; the bench has the figure.
#[test]
fn the_largest_table_is_built_at_once() {
    let start = Instant::now();
    Table::build(samples::a100_40gb(), Rules::default()).unwrap();
    assert!(start.elapsed().as_secs_f64() < 1.0, "{:?}", start.elapsed());
}
