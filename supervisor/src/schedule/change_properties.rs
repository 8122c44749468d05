//! Random runs with changes of policy in between: the rules of [`World`](super::world::World) hold, each policy's own while it
//! serves, and nothing is lost by a change.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;
use proptest::prelude::*;

use super::world::{MACHINES, POLICIES, Turn, World, play, policy, turn_or_policy};
use super::*;
use crate::layout::samples;

fn scheduler(which: u8) -> Scheduler {
    let (policy, choice) = policy(which);
    policy.scheduler(choice, Incarnation(1)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_when_the_policy_changes(
        first in 0..POLICIES,
        machine in 0..MACHINES,
        turns in proptest::collection::vec(turn_or_policy(), 1..80),
        speaks in any::<bool>(),
    ) {
        let run = || play(scheduler(first), machine, speaks, &turns);
        prop_assert_eq!(run(), run(), "the same events give the same actions");
    }
}

fn change(scheduler: &mut Scheduler, which: u8) -> Vec<Action> {
    let (policy, choice) = policy(which);
    let mut actions = scheduler.step(1.0, Event::Policy { policy, choice });
    actions.extend(scheduler.step(1.0, Event::Settled));
    actions
}

fn node(which: u8) -> Scheduler {
    let mut scheduler = scheduler(which);
    let table = Arc::new(samples::a100_base());
    let event = Event::Gpu {
        gpu: GpuIndex(0),
        table,
        foreign: Vec::new(),
    };
    scheduler.step(0.0, event);
    scheduler
}

fn arrive(scheduler: &mut Scheduler, job: u64, gib: u64) -> Vec<Action> {
    let device_bytes = gib * GIB;
    let need = Need { device_bytes };
    let job = JobId(job);
    let mut actions = scheduler.step(0.5, Event::Arrived { job, need });
    actions.extend(scheduler.step(0.5, Event::Settled));
    actions
}

/// A change to a policy that cuts other slices refuses who does not fit; back under the first, he stands where he stood.
#[test]
fn who_is_refused_by_one_policy_has_his_place_under_the_next() {
    let mut scheduler = node(0);
    // The whole GPU is taken, so that all wait.
    let actions = arrive(&mut scheduler, 1, 30);
    let [Action::Create { slice, .. }] = actions[..] else {
        panic!("{actions:?}")
    };
    scheduler.step(0.1, Event::Created { slice });
    for (job, gib) in [(2, 4), (3, 18), (4, 4)] {
        arrive(&mut scheduler, job, gib);
    }
    let refused = change(&mut scheduler, 9);
    assert!(
        matches!(&refused[..], [Action::Refuse { job: JobId(3), .. }]),
        "{refused:?}"
    );
    assert_eq!(scheduler.queue(), [2, 4].map(JobId));
    change(&mut scheduler, 0);
    arrive(&mut scheduler, 3, 18);
    assert_eq!(scheduler.queue(), [2, 3, 4].map(JobId));
    // One that is given up has none.
    change(&mut scheduler, 9);
    scheduler.step(1.0, Event::Withdrawn { job: JobId(3) });
    change(&mut scheduler, 0);
    arrive(&mut scheduler, 3, 18);
    assert_eq!(scheduler.queue(), [2, 4, 3].map(JobId));
}

/// A job of which nothing is known but its need comes.
fn comes(gib: u64) -> Turn {
    Turn::Arrive(super::world::Arrival {
        gib,
        work: 1,
        kept: false,
        known: false,
        terms: Terms::default(),
    })
}

/// One that was served before its turn by a decider goes on behind the first, for which a slice is being made.
#[test]
fn who_overtook_under_a_decider_goes_on_behind_who_has_a_slice_kept() {
    let turns = [
        Turn::Policy { which: 2 },
        comes(20),
        comes(0),
        Turn::Answer { which: 1, how: 0 },
        Turn::Policy { which: 0 },
        Turn::End {
            which: 0,
            again: Some(0),
        },
    ];
    play(scheduler(0), 3, false, &turns);
}

/// `far` met a GPU from whose table a refusal had taken a step, planned nothing, and all waited for ever.
#[test]
fn what_was_refused_under_one_policy_is_no_wall_for_the_next() {
    for next in 0..POLICIES {
        let refused = Turn::Answer { which: 0, how: 241 };
        let turns = [
            comes(12),
            Turn::Policy { which: 1 },
            refused,
            comes(20),
            comes(20),
            Turn::Policy { which: next },
        ];
        play(scheduler(0), 2, false, &turns);
    }
}

/// A slice that is being made for a job when the policy changes is neither lost nor made twice.
#[test]
fn a_slice_under_way_serves_whoever_comes_first_by_the_next_policy() {
    for next in [0, 2, 3, 6] {
        let mut scheduler = node(0);
        let actions = arrive(&mut scheduler, 1, 30);
        let [Action::Create { slice, .. }] = actions[..] else {
            panic!("{actions:?}")
        };
        let again = change(&mut scheduler, next);
        assert!(again.is_empty(), "policy {next}: {again:?}");
        let granted = scheduler.step(2.0, Event::Created { slice });
        assert!(
            matches!(granted[..], [Action::Grant { job: JobId(1), slice: got, .. }] if got == slice),
            "policy {next}: {granted:?}"
        );
    }
}

#[test]
fn a_policy_that_must_be_searched_for_changes_nothing() {
    let mut scheduler = node(0);
    let (_, choice) = policy(0);
    let policy = PolicyName::BestStatic;
    assert!(scheduler.step(1.0, Event::Policy { policy, choice }).is_empty());
    assert!(scheduler.planned.is_none());
}

#[test]
fn use_is_charged_over_a_change() {
    let mut world = World::new(scheduler(0), 0, true);
    let arrival = super::world::Arrival {
        gib: 4,
        work: 100,
        kept: true,
        known: true,
        terms: Terms {
            user: 1,
            ..Terms::default()
        },
    };
    world.arrive(&arrival);
    world.answer_all();
    world.now += 100.0;
    world.change_policy(2);
    world.now += 100.0;
    world.step(Event::Tick);
    world.check_bills();
    let (_, used) = world.scheduler.used();
    assert!(used[&1] > 20.0, "{used:?}");
}

/// A process that waits for more of a soft slice is answered, whatever the policy is by then.
#[test]
fn a_lease_grows_over_a_change() {
    const GPU: GpuIndex = GpuIndex(0);
    for (first, next) in [(0, 6), (6, 0), (2, 3)] {
        let mut scheduler = scheduler(first);
        let cut = soft::Cut {
            first: 4 * GIB,
            grain: GIB,
            grows: true,
        };
        scheduler.step(0.0, Event::SoftGpu { gpu: GPU, cut });
        let asked = arrive(&mut scheduler, 1, 4);
        assert_eq!(asked, [Action::Look { gpu: GPU }]);
        let room = Some(soft::Room {
            now: 40 * GIB,
            most: 40 * GIB,
        });
        let granted = scheduler.step(0.6, Event::Room { gpu: GPU, room });
        assert!(
            matches!(
                granted[..],
                [Action::Lease { .. }, Action::Grant { job: JobId(1), .. }]
            ),
            "{granted:?}"
        );
        let job = JobId(1);
        let device_bytes = 6 * GIB;
        let need = Need { device_bytes };
        let asked = scheduler.step(0.7, Event::Raise { job, need });
        assert_eq!(asked, [Action::Look { gpu: GPU }]);
        let changed = change(&mut scheduler, next);
        assert!(changed.is_empty(), "{first} to {next}: {changed:?}");
        let grown = scheduler.step(1.1, Event::Room { gpu: GPU, room });
        assert!(
            matches!(grown[..], [Action::Grow { job: JobId(1), memory, .. }] if memory >= 6 * GIB),
            "{first} to {next}: {grown:?}"
        );
    }
}
