//! Who of those that wait comes first, and which slices are kept for whom.

use migm_shared::ids::{Incarnation, JobId};

use super::{Node, count, grants, need};
use crate::schedule::{Action, Event, Policy};

#[test]
fn seven_creates_are_asked_for_at_once_and_granted_in_order() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let mut creates = Vec::new();
    for job in 1..=8 {
        let actions = node.step(Event::Arrived {
            job: JobId(job),
            need: need(1.0),
        });
        creates.extend(actions.into_iter().filter_map(|action| match action {
            Action::Create { slice, .. } => Some(slice),
            _ => None,
        }));
    }
    assert_eq!(creates.len(), 7);
    let mut granted = Vec::new();
    for &slice in creates.iter().rev() {
        granted.extend(grants(&node.step(Event::Created { slice })));
    }
    assert_eq!(granted, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(node.scheduler.queue(), [JobId(8)]);
    assert_eq!(
        node.scheduler.why_waiting(JobId(8)),
        "no free slice holds 1.00 GiB; running jobs must end first"
    );
    // The next takes the slice that is freed: nothing is created.
    let actions = node.end(3);
    assert_eq!(grants(&actions), [8]);
    assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 0);
}

#[test]
fn nothing_overtakes_a_job_that_waits_for_room() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 30.0);
    node.arrive(3, 1.0);
    assert_eq!(node.place(3), "none");
    assert_eq!(
        node.scheduler.why_waiting(JobId(3)),
        "job 2 comes first: no free slice holds 30.00 GiB; running jobs must end first"
    );
    let actions = node.end(1);
    assert_eq!(grants(&actions), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
    let actions = node.end(2);
    // Fission: the idle 7g goes for the 1g.
    assert_eq!(count(&actions, |a| matches!(a, Action::Destroy { .. })), 1);
    assert_eq!(node.place(3), "1g.5gb@6");
}

#[test]
fn a_relaunched_job_comes_before_those_that_never_ran() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    node.arrive(8, 1.0);
    let actions = node.again(2, 6.0);
    assert_eq!(grants(&actions), [0; 0]);
    assert_eq!(node.scheduler.queue(), [JobId(2), JobId(8)]);
    // Room for a 2g first, then the other.
    let mut granted = Vec::new();
    for job in [1, 3, 4] {
        granted.extend(grants(&node.end(job)));
    }
    assert_eq!(granted[0], 2);
}

#[test]
fn a_relaunch_takes_back_slices_kept_for_those_behind() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 12.0);
    // Job 3's slice is being created while job 2 ends and wants the whole GPU.
    let actions = node.step(Event::Arrived {
        job: JobId(3),
        need: need(1.0),
    });
    let Action::Create { slice, .. } = actions[0] else {
        panic!("{actions:?}")
    };
    node.again(2, 30.0);
    assert_eq!(node.scheduler.queue(), [JobId(2), JobId(3)]);
    assert!(grants(&node.run(Event::Created { slice })).is_empty());
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
}

#[test]
fn a_slice_being_created_for_a_withdrawn_job_serves_the_next() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=2 {
        node.step(Event::Arrived {
            job: JobId(job),
            need: need(1.0),
        });
    }
    let actions = node.step(Event::Withdrawn { job: JobId(1) });
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(
        grants(&node.step(Event::Created {
            slice: Incarnation(1)
        })),
        [2]
    );
}
