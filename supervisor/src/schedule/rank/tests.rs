//! One test for each rule of the order.

use migm_shared::ids::JobId;

use super::AGE_S;
use crate::schedule::tests::{Node, grants};
use crate::schedule::{Event, Policy, Terms, Wish};

fn of(user: u32, priority: i32) -> Terms {
    Terms {
        user,
        priority,
        wish: Wish::Any,
    }
}

/// One job runs on the whole GPU, so that all that come wait.
fn full() -> Node {
    let mut node = Node::new(Policy::Sequential, &[]);
    node.ask(1000, 0.0, of(99, 0));
    node
}

/// The order in which all that wait get the GPU, each for `seconds`.
fn order(node: &mut Node, seconds: f64) -> Vec<u64> {
    let mut served = Vec::new();
    let mut runs = 1000;
    while node.scheduler.waiting() > 0 {
        node.now += seconds;
        let next = grants(&node.end(runs));
        assert_eq!(next.len(), 1);
        served.extend(&next);
        runs = next[0];
    }
    served
}

#[test]
fn a_higher_priority_goes_first() {
    let mut node = full();
    for (job, priority) in [(1, 0), (2, -1), (3, 2), (4, 0), (5, 2)] {
        node.ask(job, 0.0, of(1, priority));
    }
    assert_eq!(
        node.scheduler.why_waiting(JobId(1)),
        "job 3 comes first (priority 2): no free slice holds 0 B; running jobs must end first"
    );
    assert_eq!(order(&mut node, 10.0), [3, 5, 1, 4, 2]);
}

#[test]
fn a_higher_priority_takes_the_slice_that_is_being_made_for_another() {
    let mut node = Node::new(Policy::Sequential, &[]);
    let (low, high) = (of(1, 0), of(1, 1));
    for (job, terms) in [(1, low), (2, high)] {
        node.step(Event::Terms {
            job: JobId(job),
            terms,
        });
    }
    let need = crate::schedule::Need::default();
    let made = node.step(Event::Arrived { job: JobId(1), need });
    let [crate::schedule::Action::Create { slice, .. }] = made[..] else {
        panic!("{made:?}")
    };
    node.step(Event::Arrived { job: JobId(2), need });
    let granted = node.step(Event::Created { slice });
    assert_eq!(grants(&granted), [2]);
}

#[test]
fn a_running_job_is_not_stopped_for_a_priority() {
    let mut node = full();
    let actions = node.ask(1, 0.0, of(1, 100));
    assert!(actions.is_empty(), "{actions:?}");
}

#[test]
fn a_new_priority_counts_from_then_on() {
    let mut node = full();
    for job in 1..4 {
        node.ask(job, 0.0, of(1, 0));
    }
    node.run(Event::Terms {
        job: JobId(3),
        terms: of(1, 1),
    });
    assert_eq!(order(&mut node, 10.0), [3, 1, 2]);
}

#[test]
fn who_goes_on_comes_first_but_for_a_higher_priority() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.ask(1, 0.0, of(1, 0));
    node.ask(2, 30.0, of(2, 0));
    node.ask(3, 30.0, of(3, 1));
    // Job 2's user has had nothing, and job 1's a slice; still it comes before job 2.
    assert_eq!(grants(&node.again(1, 30.0)), [3]);
    assert_eq!(grants(&node.end(3)), [1]);
    assert_eq!(grants(&node.end(1)), [2]);
}

#[test]
fn users_take_turns_and_each_keeps_his_own_order() {
    let mut node = full();
    for job in 1..5 {
        node.ask(job, 0.0, of(1, 0));
    }
    for job in 5..8 {
        node.ask(job, 0.0, of(2, 0));
    }
    assert_eq!(
        node.scheduler.why_waiting(JobId(2)),
        "job 1 comes first: no free slice holds 0 B; running jobs must end first"
    );
    assert_eq!(order(&mut node, 10.0), [1, 5, 2, 6, 3, 7, 4]);
}

#[test]
fn who_has_had_less_goes_first_until_it_is_even() {
    let mut node = Node::new(Policy::Sequential, &[]);
    // User 1 has the node for 1000 s, user 2 comes then; jobs take 250 s.
    node.ask(1000, 0.0, of(1, 0));
    for job in 1..4 {
        node.ask(job, 0.0, of(1, 0));
    }
    node.now += 750.0;
    for job in 4..10 {
        node.ask(job, 0.0, of(2, 0));
    }
    let said = node.scheduler.why_waiting(JobId(1));
    assert!(
        said.starts_with("job 4 comes first (its user has had less of the GPUs)"),
        "{said}"
    );
    let served = order(&mut node, 250.0);
    assert_eq!(served[..4], [4, 5, 6, 7], "{served:?}");
    assert!(served[4..7].contains(&1), "{served:?}");
}

#[test]
fn who_comes_first_once_another_is_served_does_not_wait_for_the_next_event() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.ask(1000, 30.0, of(99, 0));
    node.run(Event::Used {
        user: 2,
        seconds: 0.5,
    });
    // The second job of user 1 stands behind that of user 2, who wants all of the GPU, as long as the first one waits.
    for (job, gib, user) in [(1, 4.0, 1), (2, 30.0, 2), (3, 4.0, 1)] {
        node.ask(job, gib, of(user, 0));
    }
    assert_eq!(node.scheduler.queue(), [1, 2, 3].map(JobId));
    assert_eq!(grants(&node.end(1000)), [1, 3]);
}

#[test]
fn what_was_had_before_a_restart_counts() {
    let mut node = full();
    node.ask(1, 0.0, of(1, 0));
    node.ask(2, 0.0, of(2, 0));
    node.run(Event::Used {
        user: 1,
        seconds: 500.0,
    });
    assert_eq!(order(&mut node, 10.0), [2, 1]);
    let (at, used) = node.scheduler.used();
    assert!((at - node.now).abs() < 1e-9);
    assert!(used[&1] > 499.0 && used[&2] < 20.0, "{used:?}");
}

#[test]
fn an_hour_without_service_is_worth_a_level() {
    let mut node = full();
    node.ask(1, 0.0, of(1, 0));
    node.ask(2, 0.0, of(1, 0));
    node.now += 10.0;
    node.ask(3, 0.0, of(1, 1));
    node.now += AGE_S - 20.0;
    node.run(Event::Tick);
    assert_eq!(node.scheduler.queue(), [JobId(3), JobId(1), JobId(2)]);
    // Now job 1 is as high as job 3, and its arrival and its user's turn are before.
    node.now += 15.0;
    node.run(Event::Tick);
    assert_eq!(node.scheduler.queue()[0], JobId(1));
    // With job 1 served, the wait of the lane begins anew: job 2 gains nothing by having come with it.
    let got = grants(&node.end(1000));
    assert_eq!(got, [1]);
    assert_eq!(node.scheduler.queue(), [JobId(3), JobId(2)]);
}

#[test]
fn no_lane_starves_beside_an_endless_stream_of_higher_priority() {
    let mut node = full();
    for job in 1..6 {
        node.ask(job, 0.0, of(1, 0));
    }
    let (mut runs, mut next) = (1000, 2000);
    let mut served: Vec<(u64, f64)> = Vec::new();
    while served.len() < 5 {
        // Two of a higher priority always wait.
        while node.scheduler.waiting() < 7 - served.len() {
            node.ask(next, 0.0, of(2, 2));
            next += 1;
        }
        node.now += 600.0;
        runs = grants(&node.end(runs))[0];
        if runs < 1000 {
            served.push((runs, node.now));
        }
        assert!(node.now < 1e6, "the low ones starve: {served:?}");
    }
    let in_order: Vec<u64> = served.iter().map(|job| job.0).collect();
    assert_eq!(in_order, [1, 2, 3, 4, 5]);
    let mut before = 0.0;
    for (job, at) in served {
        // Two levels, one more where the other lane has aged too, and the run that was under way.
        assert!(
            at - before <= 3.0 * AGE_S + 2.0 * 600.0 + 100.0,
            "job {job} waited {}",
            at - before
        );
        before = at;
    }
}

#[test]
fn one_user_with_one_priority_is_served_by_arrival() {
    let mut node = full();
    for job in 1..50 {
        node.ask(job, 0.0, of(7, 3));
    }
    assert!(node.scheduler.lanes.waiting.len() == 1 && !node.scheduler.lanes.mixed);
    assert_eq!(order(&mut node, 4000.0), (1..50).collect::<Vec<u64>>());
}
