//! Which slice a job gets, and what is refused because there is none.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use super::{Node, count, grants, need, refusals};
use crate::layout::placing::PlacementRule;
use crate::layout::samples;
use crate::schedule::{Action, Event, GpuIndex, Policy};

#[test]
fn an_unknown_need_gets_the_smallest_slice_where_most_stays_open() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.arrive(1, 0.0);
    assert_eq!(node.place(1), "1g.5gb@6");
    let Some(Action::Grant { reason, .. }) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!(
        reason,
        "need unknown: 1g.5gb@6 with 4.75 GiB, created, 12 full layouts stay in reach"
    );
}

#[test]
fn a_hint_gets_the_tightest_slice_and_ties_go_to_more_multiprocessors() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 6.0);
    assert_eq!(node.place(1), "2g.10gb@0");
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 12.0);
    node.arrive(2, 12.0);
    assert_eq!(node.place(1), "4g.20gb@0");
    // The 4g is taken; the 3g has the same memory.
    assert_eq!(node.place(2), "3g.20gb@4");
}

#[test]
fn more_than_any_slice_is_refused_with_the_figures() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.arrive(1, 50.0);
    assert_eq!(
        refusals(&actions),
        ["needs 50.00 GiB; the largest slice to be had here is 7g.40gb with 39.50 GiB"]
    );
    assert!(node.scheduler.queue().is_empty());
}

#[test]
fn foreign_instances_are_worked_around() {
    let mut node = Node::new(Policy::SchemeB, &["1g.5gb@6"]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    assert_eq!(node.scheduler.queue(), [JobId(7)]);
    let refused = refusals(&node.run(Event::Withdrawn { job: JobId(7) }));
    assert!(refused.is_empty());
    let mut node = Node::new(Policy::SchemeB, &["1g.5gb@6"]);
    assert_eq!(
        refusals(&node.arrive(1, 30.0)),
        [
            "needs 30.00 GiB; the largest slice to be had here is 4g.20gb with 19.62 GiB; not to be had: 7g.40gb on \
          GPU 0 (foreign 1g.5gb@6)"
        ]
    );
}

#[test]
fn a_layout_that_is_not_understood_is_left_alone() {
    let mut node = Node::new(Policy::SchemeB, &["7g.40gb@0", "1g.5gb@6"]);
    let refused = refusals(&node.arrive(1, 1.0));
    assert!(
        refused[0].contains("a layout that is not understood: 1g.5gb@6 cannot be placed"),
        "{refused:?}"
    );
}

#[test]
fn a_gpu_that_must_not_be_changed_offers_what_it_has() {
    let table = Arc::new(samples::a100_base().frozen());
    let mut node = Node::new(Policy::SchemeB, &[]);
    let three = table.slot_named("3g.20gb@4").unwrap();
    node.step(Event::Gpu {
        gpu: GpuIndex(0),
        table,
        foreign: Vec::new(),
    });
    node.step(Event::Slice {
        slice: Incarnation(40),
        gpu: GpuIndex(0),
        profile: three.0,
        placement: three.1,
        fixed: true,
        holder: None,
    });
    node.arrive(1, 1.0);
    assert_eq!(node.place(1), "3g.20gb@4");
    node.arrive(2, 1.0);
    assert_eq!(node.scheduler.queue(), [JobId(2)]);
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(
        count(&node.log, |a| matches!(
            a,
            Action::Create { .. } | Action::Destroy { .. }
        )),
        0
    );
}

#[test]
fn sequential_gives_each_job_the_whole_gpu() {
    let mut node = Node::new(Policy::Sequential, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 1.0);
    assert_eq!(
        (node.place(1).as_str(), node.place(2).as_str()),
        ("7g.40gb@0", "none")
    );
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
    assert_eq!(count(&node.log, |a| matches!(a, Action::Create { .. })), 1);
    let actions = node.step(Event::Forecast {
        job: JobId(2),
        need: need(50.0),
    });
    assert!(actions.is_empty());
}

#[test]
fn two_gpus_are_filled_where_least_is_lost() {
    let mut node = Node::new(Policy::SchemeB, &["4g.20gb@0"]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::clone(&node.table),
        foreign: Vec::new(),
    });
    node.arrive(1, 1.0);
    // The other GPU stays whole.
    let slice = node.scheduler.slice_of(JobId(1)).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(0));
}

/// In the order of arrival each could take the place that a later one needs.
#[test]
fn the_jobs_that_wait_are_placed_together() {
    for needs in [
        &[1.0, 1.0, 6.0, 12.0][..],
        &[1.0, 6.0, 1.0, 12.0],
        &[6.0, 1.0, 12.0, 1.0],
        &[6.0, 6.0, 12.0],
        &[1.0, 1.0, 1.0, 1.0, 12.0],
    ] {
        let mut node = Node::new(Policy::SchemeB, &[]);
        // All wait behind a job that holds the whole GPU.
        node.arrive(9, 30.0);
        for (job, &gib) in (1..).zip(needs) {
            node.arrive(job, gib);
            assert_eq!(node.place(job), "none");
        }
        node.end(9);
        let places: Vec<String> = (1..).zip(needs).map(|(job, _)| node.place(job)).collect();
        assert!(!places.contains(&"none".to_owned()), "{needs:?}: {places:?}");
    }
}

#[test]
fn places_follow_what_the_jobs_have_wanted() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    assert_eq!(node.scheduler.kinds[0].name(), "fcr");
    for job in 1..40 {
        node.arrive(job, 1.0);
        node.end(job);
    }
    assert_eq!(node.scheduler.kinds[0].name(), "ours, learning");
}

#[test]
fn a_restricted_job_gets_its_gpus_only() {
    let mut node = Node::new(Policy::SchemeB, &["4g.20gb@0"]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::clone(&node.table),
        foreign: Vec::new(),
    });
    let job = JobId(1);
    node.step(Event::Restricted {
        job,
        gpus: vec![GpuIndex(0)],
    });
    node.arrive(1, 1.0);
    let slice = node.scheduler.slice_of(job).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(0));
    // No move to a slice that it may not use.
    assert!(
        node.step(Event::Forecast {
            job,
            need: need(30.0)
        })
        .is_empty()
    );
    node.step(Event::Restricted {
        job: JobId(2),
        gpus: Vec::new(),
    });
    assert_eq!(
        refusals(&node.arrive(2, 1.0)),
        ["needs 1.00 GiB; no slice can be had on the GPUs that it may use"]
    );
}

#[test]
fn unlike_gpus_each_offer_their_own_tightest() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::new(samples::a30_base()),
        foreign: Vec::new(),
    });
    // 4.75 GiB slices of the A100 first, then the A30's 5.81 GiB ones rather than waiting.
    for job in 1..=11 {
        node.arrive(job, 1.0);
    }
    assert!(node.scheduler.queue().is_empty());
    let slice = node.scheduler.slice_of(JobId(8)).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(1));
}
