//! Fission and fusion: which idle slices go for a job, and in which order.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use super::{Node, count, grants, need};
use crate::schedule::{Action, Event, GpuIndex, Policy};

#[test]
fn fusion_destroys_the_fewest_idle_slices_and_creates_when_they_are_gone() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    // Slices at 6, 4, 5, 0, 1, 2, 3 in this order; those at 4, 5 and 6 become idle.
    for job in 1..=3 {
        node.end(job);
    }
    let destroys = node.step(Event::Arrived {
        job: JobId(8),
        need: need(15.0),
    });
    let going: Vec<Incarnation> = destroys
        .iter()
        .map(|action| match action {
            Action::Destroy { slice } => *slice,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(going.len(), 3);
    assert_eq!(
        node.scheduler.why_waiting(JobId(8)),
        "waits for 3 idle slices to be removed"
    );
    assert!(node.step(Event::Destroyed { slice: going[0] }).is_empty());
    assert!(node.step(Event::Destroyed { slice: going[2] }).is_empty());
    node.run(Event::Destroyed { slice: going[1] });
    assert_eq!(node.place(8), "3g.20gb@4");
}

/// Idle slices by name on GPU 0, beside job 9 on a busy one; job 8 wants the whole GPU and waits.
fn behind_one_that_waits(busy: &str, idle: &[&str]) -> Node {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for (number, name) in (40..).zip([busy].iter().chain(idle)) {
        let (profile, placement) = node.table.slot_named(name).unwrap();
        node.step(Event::Slice {
            slice: Incarnation(number),
            gpu: GpuIndex(0),
            profile,
            placement,
            fixed: false,
            holder: (number == 40).then_some(JobId(9)),
        });
    }
    node.arrive(8, 30.0);
    assert_eq!(node.scheduler.queue(), [JobId(8)]);
    node
}

#[test]
fn of_two_idle_slices_that_goes_for_which_nobody_waits() {
    for (behind, stays) in [(6.0, "2g.10gb@4"), (12.0, "4g.20gb@0")] {
        let mut node = behind_one_that_waits("1g.5gb@6", &["4g.20gb@0", "2g.10gb@4"]);
        node.arrive(1, 1.0);
        node.arrive(2, behind);
        let actions = node.run(Event::Withdrawn { job: JobId(8) });
        assert_eq!(grants(&actions), [1, 2]);
        assert_eq!(node.place(2), stays);
        assert_eq!(count(&actions, |a| matches!(a, Action::Destroy { .. })), 1);
        assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 1);
    }
}

#[test]
fn an_idle_slice_in_the_way_is_moved_for_the_job_that_waits_for_it() {
    let mut node = behind_one_that_waits("1g.5gb@0", &["2g.10gb@4"]);
    node.arrive(1, 12.0);
    node.arrive(2, 6.0);
    let actions = node.run(Event::Withdrawn { job: JobId(8) });
    assert_eq!(grants(&actions), [1, 2]);
    assert_eq!(
        (node.place(1).as_str(), node.place(2).as_str()),
        ("3g.20gb@4", "2g.10gb@2")
    );
    // Gone before, and made again behind the one that it made room for.
    let kinds: String = actions
        .iter()
        .map(|action| match action {
            Action::Destroy { .. } => '-',
            Action::Create { .. } => '+',
            _ => ' ',
        })
        .collect();
    assert_eq!(kinds.replace(' ', ""), "-++");
}

#[test]
fn what_the_driver_never_makes_beside_a_busy_slice_is_made_in_another_order() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let slot = |name| node.table.slot_named(name).unwrap();
    let (small, three) = (slot("1g.5gb@0"), slot("3g.20gb@4"));
    let alone = node.table.state_of(&[small]).unwrap();
    let less = node.table.without(alone, three);
    node.step(Event::Gpu {
        gpu: GpuIndex(0),
        table: Arc::new(less),
        foreign: Vec::new(),
    });
    node.step(Event::Slice {
        slice: Incarnation(40),
        gpu: GpuIndex(0),
        profile: small.0,
        placement: small.1,
        fixed: false,
        holder: Some(JobId(9)),
    });
    let actions = node.arrive(1, 12.0);
    assert_eq!(node.place(1), "3g.20gb@4");
    assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 2);
}
