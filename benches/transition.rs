//! What a transition plan costs, over all pairs of layouts.
//!
//! `cargo bench --bench transition` prints the median and the 99th percentile in microseconds: for each pair
//! of the 298 base layouts of an A100, for one more of each profile from each of them with every second
//! slice pinned, and for pairs of the 2,319 layouts of all its profiles.

mod gpus;

use std::hint::black_box;
use std::time::Instant;

use migm_supervisor::layout::{Goal, ProfileIndex, Rules, Slot, Table, base};

/// Every layout of a table, by adding one slice after the other.
fn layouts(table: &Table) -> Vec<Vec<Slot>> {
    let mut found: Vec<Vec<Slot>> = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let state = table.state_of(&found[next]).expect("a state");
        let last = found[next].last().copied();
        for (profile, placement, _) in table.placements(state) {
            // In ascending order each layout is met once.
            if last.is_none_or(|last| (profile, placement) > last) {
                let mut more = found[next].clone();
                more.push((profile, placement));
                found.push(more);
            }
        }
        next += 1;
    }
    found
}

fn report(what: &str, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let micro = |index: usize| seconds[index] * 1e6;
    println!(
        "{what:58} {:6} plans   median {:7.2} us   99 % {:7.2} us   worst {:7.2} us",
        seconds.len(),
        micro(seconds.len() / 2),
        micro(seconds.len() * 99 / 100),
        micro(seconds.len() - 1)
    );
}

fn timed(run: impl FnOnce()) -> f64 {
    let start = Instant::now();
    run();
    start.elapsed().as_secs_f64()
}

fn main() {
    let all = gpus::a100();
    let five = Table::build(base(&all), Rules::default()).expect("a table");
    let known = layouts(&five);
    assert_eq!(known.len(), five.states());
    let mut seconds = Vec::new();
    for from in &known {
        for to in &known {
            seconds.push(timed(|| {
                black_box(five.transition(&[], from, Goal::Layout(to)).expect("a way"));
            }));
        }
    }
    report("all pairs of base layouts", seconds);
    for (what, keeping) in [("one more", false), ("one more, idle slices kept", true)] {
        let mut seconds = Vec::new();
        for from in &known {
            let pinned: Vec<Slot> = from.iter().step_by(2).copied().collect();
            let idle: Vec<Slot> = from.iter().skip(1).step_by(2).copied().collect();
            for profile in (0..five.profiles().len()).map(ProfileIndex) {
                let kinds: Vec<ProfileIndex> = match keeping {
                    true => idle.iter().map(|slot| slot.0).collect(),
                    false => Vec::new(),
                };
                let keeping = &kinds;
                let goal = Goal::OneMore { profile, keeping };
                seconds.push(timed(|| {
                    let _ = black_box(five.transition(&pinned, &idle, goal));
                }));
            }
        }
        report(&format!("{what}, half of the slices pinned"), seconds);
    }
    let seven = Table::build(all, Rules::default()).expect("a table");
    let known = layouts(&seven);
    let mut seconds = Vec::new();
    for from in known.iter().step_by(3) {
        for to in known.iter().step_by(5) {
            seconds.push(timed(|| {
                black_box(seven.transition(&[], from, Goal::Layout(to)).expect("a way"));
            }));
        }
    }
    report("pairs of the layouts of all profiles", seconds);
    let small = seven.profile_named("1g.5gb+me").expect("a profile");
    let mut seconds = Vec::new();
    for from in &known {
        let keeping: Vec<ProfileIndex> = from.iter().map(|slot| slot.0).collect();
        let goal = Goal::OneMore {
            profile: small,
            keeping: &keeping,
        };
        seconds.push(timed(|| {
            let _ = black_box(seven.transition(&[], from, goal));
        }));
    }
    report("one more of all profiles, idle slices kept", seconds);
    // A refusal on the way: the search over all states.
    let slot = five.slot_named("3g.20gb@4").expect("a slot");
    let from = [five.slot_named("1g.5gb@0").expect("a slot")];
    let less = five.without(five.state_of(&from).expect("a state"), slot);
    let seconds = (0..1000).map(|_| {
        timed(|| {
            black_box(
                less.transition(&[], &from, Goal::Layout(&[from[0], slot]))
                    .expect("a way"),
            );
        })
    });
    report("a refused create walked round", seconds.collect());
}
