//! Leases that give back what their jobs do not need.

use migm_shared::ids::JobId;
use migm_shared::units::GIB;

use super::{CUT, Node, moves, stays};
use crate::schedule::{Action, Event};

#[test]
fn a_lease_gives_back_what_its_forecast_does_not_need_when_another_job_waits() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 15);
    assert!(node.enough(1, 12).is_empty(), "nobody waits");
    assert_eq!(node.lease(1), 20);
    // Five are free, eight more can be had.
    node.arrive(3, 14);
    assert_eq!(
        (node.lease(3), node.scheduler.queue().len()),
        (0, 1),
        "more than can be had"
    );
    assert_eq!(node.lease(1), 20, "so nothing is taken");
    node.run(Event::Withdrawn { job: JobId(3) });
    node.arrive(4, 13);
    assert_eq!((node.lease(1), node.lease(4)), (12, 13));
}

#[test]
fn what_is_held_stays_and_is_not_asked_for_again() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 30);
    node.enough(1, 10);
    node.held.insert(JobId(1), 28 * GIB);
    let actions = node.arrive(2, 20);
    let shrinks = |actions: &[Action]| {
        let shrinks = actions
            .iter()
            .filter(|action| matches!(action, Action::Shrink { .. }));
        shrinks.count()
    };
    assert_eq!((shrinks(&actions), node.lease(1), node.lease(2)), (1, 28, 0));
    assert_eq!(shrinks(&node.run(Event::Tick)), 0);
    // By the next forecast it can.
    node.held.clear();
    assert_eq!(shrinks(&node.enough(1, 11)), 1);
    assert_eq!((node.lease(1), node.lease(2)), (11, 20));
}

#[test]
fn who_grows_gets_what_others_do_not_need_before_it_has_to_move() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 15);
    node.enough(2, 6);
    let actions = node.forecast(1, 30);
    assert_eq!(moves(&actions), [0; 0]);
    assert_eq!((node.lease(1), node.lease(2)), (30, 6));
    // A process that asks is served so too.
    node.end(1, None);
    node.arrive(3, 30);
    node.enough(3, 20);
    let actions = node.raise(2, 12);
    assert_eq!(stays(&actions), 0);
    assert_eq!((node.lease(3), node.lease(2)), (20, 12));
}
