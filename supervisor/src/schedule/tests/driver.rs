//! What the driver refuses, what stands there already, and events that fit nothing.

use migm_shared::ids::{Incarnation, JobId};

use super::{Node, grants, need, refusals};
use crate::layout::{Placement, ProfileIndex};
use crate::schedule::{Action, Event, GpuIndex, Policy};

#[test]
fn an_adopted_slice_is_used_and_numbers_go_on_after_it() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let at = |name| node.table.slot_named(name).unwrap();
    let (busy, idle) = (at("2g.10gb@0"), at("1g.5gb@3"));
    for (number, slot, holder) in [(70, busy, Some(JobId(5))), (71, idle, None)] {
        node.step(Event::Slice {
            slice: Incarnation(number),
            gpu: GpuIndex(0),
            profile: slot.0,
            placement: slot.1,
            fixed: false,
            holder,
        });
    }
    node.arrive(6, 1.0);
    assert_eq!(
        (node.place(5).as_str(), node.place(6).as_str()),
        ("2g.10gb@0", "1g.5gb@3")
    );
    let actions = node.arrive(7, 1.0);
    assert!(matches!(
        actions[0],
        Action::Create {
            slice: Incarnation(72),
            ..
        }
    ));
    // The adopted job goes on like any other.
    assert_eq!(grants(&node.again(5, 11.0)), [5]);
}

#[test]
fn an_illegal_create_is_not_asked_for_again_in_that_state() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.step(Event::Arrived {
        job: JobId(1),
        need: need(1.0),
    });
    let Action::Create { slice, placement, .. } = actions[0] else {
        panic!("{actions:?}")
    };
    let actions = node.step(Event::CreateFailed { slice, illegal: true });
    let Action::Create {
        placement: second, ..
    } = actions[0]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((placement.start, second.start), (6, 0));
}

#[test]
fn a_passing_refusal_waits_for_a_change_or_a_pause() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(9, 1.0);
    let create = |actions: &[Action]| match actions {
        [Action::Create { slice, .. }, ..] => *slice,
        other => panic!("{other:?}"),
    };
    let slice = create(
        &node
            .step(Event::Arrived {
                job: JobId(1),
                need: need(35.0),
            })
            .into_iter()
            .chain(node.step(Event::Ended {
                job: JobId(9),
                again: None,
            }))
            .flat_map(|action| match action {
                Action::Destroy { slice } => node.step(Event::Destroyed { slice }),
                other => vec![other],
            })
            .collect::<Vec<_>>(),
    );
    assert!(
        node.step(Event::CreateFailed {
            slice,
            illegal: false
        })
        .is_empty()
    );
    assert!(
        node.scheduler
            .why_waiting(JobId(1))
            .starts_with("the driver refused")
    );
    let slice = create(&node.step(Event::Tick));
    assert!(
        node.step(Event::CreateFailed {
            slice,
            illegal: false
        })
        .is_empty()
    );
    assert!(node.step(Event::Tick).is_empty(), "the pause has doubled");
    let slice = create(&node.step(Event::Tick));
    node.step(Event::Created { slice });
    assert_eq!(node.place(1), "7g.40gb@0");
}

#[test]
fn a_slice_that_cannot_be_removed_stays_usable() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.end(1);
    let actions = node.step(Event::Arrived {
        job: JobId(2),
        need: need(35.0),
    });
    let Action::Destroy { slice } = actions[0] else {
        panic!("{actions:?}")
    };
    let refused = refusals(&node.step(Event::DestroyFailed { slice }));
    assert!(
        refused[0].ends_with("7g.40gb on GPU 0 (1g.5gb@6, which cannot be removed)"),
        "{refused:?}"
    );
    node.arrive(3, 1.0);
    assert_eq!(node.place(3), "1g.5gb@6");
    // Used since, so it may be tried again.
    node.end(3);
    node.arrive(4, 35.0);
    assert_eq!(node.place(4), "7g.40gb@0");
}

#[test]
fn stray_events_change_nothing() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    let stray = Incarnation(99);
    let before = format!("{:?}", node.scheduler.slices().collect::<Vec<_>>());
    for event in [
        Event::Created { slice: stray },
        Event::CreateFailed {
            slice: stray,
            illegal: true,
        },
        Event::Destroyed { slice: stray },
        Event::DestroyFailed { slice: stray },
        Event::Vanished { slice: stray },
        Event::Created {
            slice: Incarnation(1),
        },
        Event::DestroyFailed {
            slice: Incarnation(1),
        },
        Event::Destroyed {
            slice: Incarnation(1),
        },
        Event::Slice {
            slice: Incarnation(50),
            gpu: GpuIndex(7),
            profile: ProfileIndex(0),
            placement: Placement { start: 0, size: 1 },
            fixed: false,
            holder: None,
        },
        Event::Slice {
            slice: Incarnation(50),
            gpu: GpuIndex(0),
            profile: ProfileIndex(9),
            placement: Placement { start: 0, size: 1 },
            fixed: false,
            holder: None,
        },
        Event::Ended {
            job: JobId(9),
            again: None,
        },
        Event::Withdrawn { job: JobId(1) },
        Event::Withdrawn { job: JobId(9) },
        Event::Arrived {
            job: JobId(1),
            need: need(9.0),
        },
        Event::Forecast {
            job: JobId(9),
            need: need(9.0),
        },
        Event::Tick,
    ] {
        assert!(node.step(event.clone()).is_empty(), "{event:?}");
    }
    assert_eq!(
        format!("{:?}", node.scheduler.slices().collect::<Vec<_>>()),
        before
    );
}
