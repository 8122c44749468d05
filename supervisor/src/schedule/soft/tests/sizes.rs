//! How large a lease is, how it grows, and who moves or is refused because it cannot.

use migm_shared::ids::JobId;
use migm_shared::units::GIB;

use super::super::Room;
use super::{CUT, Cut, Node, moves, need, stays};
use crate::schedule::{Action, Event, GpuIndex};

#[test]
fn a_lease_is_what_the_job_needs_or_the_first_size() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 7);
    node.arrive(2, 0);
    assert_eq!((node.lease(1), node.lease(2)), (7, 5));
    let actions = node.arrive(3, 29);
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Grant { .. })),
        "41 of 40"
    );
    assert_eq!(
        node.scheduler.why_waiting(JobId(3)),
        "no room for a soft slice of 29.00 GiB: GPU 0 has 40.00 GiB for them, 12.00 GiB of it leased and 0 B more held \
         by others"
    );
    node.end(2, None);
    assert_eq!(node.lease(3), 29);
}

#[test]
fn a_lease_grows_in_grains_and_by_what_is_needed_where_there_is_no_more() {
    let mut node = Node::new(
        1,
        Cut {
            grain: 4 * GIB,
            ..CUT
        },
    );
    node.arrive(1, 5);
    node.raise(1, 6);
    assert_eq!(node.lease(1), 8);
    node.arrive(2, 29);
    node.raise(1, 10);
    assert_eq!(node.lease(1), 11, "all there is");
    assert_eq!(stays(&node.raise(1, 12)), 1);
    assert_eq!(node.lease(1), 11);
}

#[test]
fn what_others_hold_is_read_at_each_decision() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.others.insert(GpuIndex(0), 25 * GIB);
    assert_eq!(stays(&node.raise(1, 16)), 1);
    assert!(
        moves(&node.forecast(1, 16)) == [1],
        "more than others leave it now, and not than there can be"
    );
    node.end(1, Some(16));
    assert_eq!(node.lease(1), 0);
    node.others.insert(GpuIndex(0), 0);
    node.run(Event::Tick);
    assert_eq!(node.lease(1), 16);
}

#[test]
fn a_forecast_grows_the_lease_and_moves_the_job_only_without_room() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.arrive(2, 10);
    assert!(moves(&node.forecast(1, 25)).is_empty());
    assert_eq!(node.lease(1), 25);
    assert_eq!(moves(&node.forecast(2, 25)), [2]);
    assert!(moves(&node.forecast(2, 26)).is_empty(), "told once");
    node.end(2, Some(25));
    assert_eq!(node.lease(2), 0, "it waits");
    node.end(1, None);
    assert_eq!(node.lease(2), 25);
}

#[test]
fn more_than_the_gpu_has_moves_nobody_and_is_refused_to_who_waits() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    assert!(moves(&node.forecast(1, 41)).is_empty());
    assert!(
        node.scheduler
            .note(JobId(1))
            .unwrap()
            .ends_with("no slice here holds it, so it stays")
    );
    let actions = node.end(1, Some(41));
    let reason = actions.iter().find_map(|action| match action {
        Action::Refuse { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(
        reason,
        Some("needs 41.00 GiB; the largest slice to be had here is a soft slice with 40.00 GiB")
    );
}

/// A program's own limit looks like a slice too small. Leases that crept up would relaunch it without end.
#[test]
fn who_fails_again_and_again_is_given_all_there_is_and_then_up() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 0);
    let mut had = vec![node.lease(1)];
    let refused = loop {
        let actions = node.end(1, Some(1));
        if node.lease(1) == 0 {
            break actions;
        }
        had.push(node.lease(1));
        assert!(had.len() < 10, "{had:?}");
    };
    assert_eq!(had, [5, 10, 20, 40]);
    assert!(
        refused
            .iter()
            .any(|action| matches!(action, Action::Refuse { job, .. } if *job == JobId(1))),
        "{refused:?}"
    );
}

/// A process that ends is listed no more while its memory is still in use: no reason to refuse who waits.
#[test]
fn memory_that_is_nobodys_for_a_moment_refuses_nobody() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    node.step(Event::Arrived {
        job: JobId(2),
        need: need(35),
    });
    let (gpu, now, most) = (GpuIndex(0), 10 * GIB, 20 * GIB);
    let room = Some(Room { now, most });
    let actions = node.step(Event::Room { gpu, room });
    assert!(actions.is_empty(), "{actions:?}");
    node.end(1, None);
    assert_eq!(node.lease(2), 35);
}

#[test]
fn leases_that_the_mps_server_limits_do_not_grow() {
    let mut node = Node::new(1, Cut { grows: false, ..CUT });
    node.arrive(1, 10);
    assert_eq!(stays(&node.raise(1, 11)), 1);
    assert_eq!(moves(&node.forecast(1, 11)), [1]);
}
