//! Who wants a GPU alone, or a profile, and shared GPUs.

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use super::{CUT, Node};
use crate::layout::samples;
use crate::schedule::{Action, Event, GpuIndex, Terms, Wish};

fn ask(node: &mut Node, job: u64, gib: u64, wish: Wish) -> Vec<Action> {
    let terms = Terms {
        wish,
        ..Default::default()
    };
    node.run(Event::Terms {
        job: JobId(job),
        terms,
    });
    node.arrive(job, gib)
}

#[test]
fn who_wants_a_gpu_alone_gets_all_of_it_and_nobody_joins() {
    let mut node = Node::new(1, CUT);
    node.others.insert(GpuIndex(0), 10 * GIB);
    node.arrive(1, 5);
    ask(&mut node, 2, 5, Wish::Exclusive);
    assert_eq!(node.lease(2), 0);
    let said = node.scheduler.why_waiting(JobId(2));
    assert!(said.starts_with("wants a GPU alone"), "{said}");
    node.arrive(3, 1);
    node.end(1, None);
    assert_eq!((node.lease(2), node.lease(3)), (30, 0), "all of it, and alone");
    let said = node.scheduler.why_waiting(JobId(3));
    assert!(said.contains("has it alone"), "{said}");
    // It gives nothing back, and what others leave is not given out beside it.
    node.enough(2, 3);
    node.arrive(4, 1);
    node.others.insert(GpuIndex(0), 0);
    node.run(Event::Tick);
    assert_eq!((node.lease(2), node.lease(3)), (30, 0));
    node.end(2, None);
    assert_eq!((node.lease(3), node.lease(4)), (1, 1));
}

#[test]
fn who_has_a_gpu_alone_has_it_after_a_restart_too() {
    let mut node = Node::new(1, CUT);
    let terms = Terms {
        wish: Wish::Exclusive,
        ..Terms::default()
    };
    node.run(Event::Terms { job: JobId(1), terms });
    node.run(Event::SoftSlice {
        slice: Incarnation(5),
        gpu: GpuIndex(0),
        memory: 20 * GIB,
        holder: JobId(1),
    });
    node.leases.insert(Incarnation(5), (GpuIndex(0), 20 * GIB));
    node.arrive(2, 1);
    assert_eq!(node.lease(2), 0, "there is room, but not beside it");
    node.end(1, None);
    assert_eq!(node.lease(2), 1);
}

#[test]
fn a_profile_is_not_had_on_a_shared_gpu() {
    let mut node = Node::new(1, CUT);
    let table = std::sync::Arc::new(samples::a30_base());
    let gpu = GpuIndex(1);
    let foreign = Vec::new();
    node.step(Event::Gpu { gpu, table, foreign });
    let actions = ask(&mut node, 1, 1, Wish::Profile("1g.5gb".to_owned()));
    let reason = actions.iter().find_map(|action| match action {
        Action::Refuse { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(
        reason,
        Some(
            "needs 1.00 GiB in a 1g.5gb, as asked for; no GPU that the job may use has profile `1g.5gb`; there are 1g.6gb, 2g.12gb, 4g.24gb"
        )
    );
    // A lease is charged by its part of the GPU.
    let terms = Terms {
        user: 3,
        ..Default::default()
    };
    node.run(Event::Terms { job: JobId(2), terms });
    node.run(Event::Restricted {
        job: JobId(2),
        gpus: vec![GpuIndex(0)],
    });
    node.arrive(2, 10);
    let before = node.scheduler.used().1[&3];
    let from = node.now;
    node.now += 400.0;
    node.run(Event::Tick);
    let used = node.scheduler.used().1[&3] - before;
    let part = used / (node.now - from);
    assert!((part - 0.25).abs() < 0.01, "{part}");
}
