//! On which GPU a lease is, and GPUs that are lost, adopted or not read.

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use super::{CUT, Node, need, stays};
use crate::layout::samples;
use crate::schedule::{Action, Event, GpuIndex};

#[test]
fn with_a_lost_gpu_its_leases_go_and_who_waits_is_served_elsewhere() {
    let mut node = Node::new(2, CUT);
    let (first, second) = (GpuIndex(0), GpuIndex(1));
    node.arrive(1, 30);
    node.arrive(2, 30);
    let gpu_of = |node: &Node, job| {
        let slice = node.scheduler.slice_of(JobId(job)).unwrap();
        node.leases[&slice].0
    };
    assert_eq!((gpu_of(&node, 1), gpu_of(&node, 2)), (first, second));
    // One waits for room, and one asks for more, when GPU 0 goes.
    node.arrive(3, 20);
    assert_eq!(node.scheduler.queue(), [JobId(3)]);
    let asked = node.step(Event::Raise {
        job: JobId(1),
        need: need(35),
    });
    assert_eq!(asked, [first, second].map(|gpu| Action::Look { gpu }));
    node.run(Event::Lost { gpu: first });
    // One reading comes too late.
    for gpu in [first, second] {
        node.run(node.room(gpu));
    }
    assert_eq!(node.scheduler.slice_of(JobId(1)), None);
    // A question about a lease that is gone is answered, and its job has nothing to give back at its end.
    assert_eq!(stays(&node.raise(1, 35)), 1);
    assert_eq!(node.end(1, None), [Action::Look { gpu: second }]);
    // The other GPU goes on, and no reading is asked of the lost one.
    assert_eq!(gpu_of(&node, 2), second);
    let actions = node.end(2, None);
    assert!(!actions.contains(&Action::Look { gpu: first }), "{actions:?}");
    assert_eq!(gpu_of(&node, 3), second);
    // Back with a lease of a job that ran on.
    node.step(Event::SoftGpu { gpu: first, cut: CUT });
    node.step(Event::SoftSlice {
        slice: Incarnation(70),
        gpu: first,
        memory: 30 * GIB,
        holder: JobId(7),
    });
    node.leases.insert(Incarnation(70), (first, 30 * GIB));
    node.arrive(8, 15);
    assert_eq!(
        gpu_of(&node, 8),
        second,
        "there is no room beside the adopted one"
    );
}

#[test]
fn jobs_spread_over_gpus_that_have_all_been_read() {
    let mut node = Node::new(2, CUT);
    for job in 1..=4 {
        node.arrive(job, 10);
    }
    let on = |node: &Node, job| node.leases[&node.scheduler.slice_of(JobId(job)).unwrap()].0.0;
    assert_eq!([1, 2, 3, 4].map(|job| on(&node, job)), [0, 1, 0, 1]);
}

#[test]
fn a_driver_that_does_not_answer_moves_nobody() {
    let mut node = Node::new(1, CUT);
    node.arrive(1, 10);
    for event in [
        Event::Raise {
            job: JobId(1),
            need: need(12),
        },
        Event::Forecast {
            job: JobId(1),
            need: need(12),
        },
    ] {
        node.step(event);
    }
    let unread = Event::Room {
        gpu: GpuIndex(0),
        room: None,
    };
    let actions = node.scheduler.step(0.0, unread);
    assert_eq!(actions, [Action::Stay { job: JobId(1) }]);
}

#[test]
fn a_slice_of_a_mig_gpu_comes_before_a_soft_one() {
    let mut node = Node::new(1, CUT);
    node.run(Event::Gpu {
        gpu: GpuIndex(7),
        table: std::sync::Arc::new(samples::a100_base()),
        foreign: Vec::new(),
    });
    let actions = node.arrive(1, 30);
    assert!(matches!(actions[0], Action::Create { .. }), "{actions:?}");
    node.arrive(2, 30);
    assert_eq!(node.lease(2), 0, "not before the first has its slice");
    let Action::Create { slice, .. } = actions[0] else {
        unreachable!()
    };
    node.run(Event::Created { slice });
    assert_eq!(node.lease(2), 30);
}

#[test]
fn an_adopted_lease_counts_and_can_grow() {
    let mut node = Node::new(1, CUT);
    let slice = Incarnation(9);
    node.leases.insert(slice, (GpuIndex(0), 20 * GIB));
    node.run(Event::SoftSlice {
        slice,
        gpu: GpuIndex(0),
        memory: 20 * GIB,
        holder: JobId(4),
    });
    node.raise(4, 22);
    assert_eq!(node.lease(4), 22);
    node.arrive(5, 18);
    assert_eq!(node.lease(5), 18);
    assert!(
        node.scheduler.slice_of(JobId(5)).unwrap() > slice,
        "numbers are never used twice"
    );
}
