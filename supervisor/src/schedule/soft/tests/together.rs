//! Jobs that ask for more at the same time, or while another leaves.

use super::{CUT, Node, moves, stays};
use crate::schedule::Event;

/// The one that leaves makes the room that the other waits for.
#[test]
fn who_asks_waits_a_moment_for_a_job_that_leaves() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(moves(&node.forecast(2, 30)), [2]);
    let actions = node.raise(1, 25);
    assert_eq!((stays(&actions), node.lease(1)), (0, 20), "no answer yet");
    node.end(2, Some(30));
    assert_eq!(node.lease(1), 25);
    assert_eq!(node.lease(2), 0);
}

/// The one that is refused will end, and so need the other not.
#[test]
fn of_two_that_ask_at_once_one_is_refused() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(stays(&node.raise(1, 22)), 1);
    assert_eq!(stays(&node.raise(2, 22)), 0);
    node.end(1, Some(22));
    assert_eq!(node.lease(2), 22);
    node.now += 10.0;
    assert_eq!(stays(&node.raise(2, 60)), 1, "more than there is");
}

/// The one that moves makes the room that the other needs.
#[test]
fn of_two_that_are_forecast_at_once_one_moves() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    assert_eq!(moves(&node.forecast(2, 30)), [2]);
    assert!(moves(&node.forecast(1, 30)).is_empty());
    assert!(moves(&node.end(2, Some(30))).is_empty());
    assert_eq!((node.lease(1), node.lease(2)), (30, 0));
}

#[test]
fn who_asks_does_not_wait_longer_than_the_interposer() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 20);
    node.arrive(2, 20);
    node.forecast(2, 30);
    assert_eq!(stays(&node.raise(1, 25)), 0);
    node.now = 2.0;
    assert_eq!(stays(&node.run(Event::Tick)), 1);
}
