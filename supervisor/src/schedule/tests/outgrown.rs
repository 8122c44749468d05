//! A job that needs more than its slice has, by a forecast or by how its attempt ended.

use migm_shared::ids::JobId;

use super::{Node, need, refusals};
use crate::schedule::{Action, Event, Policy};

#[test]
fn a_forecast_moves_a_job_to_the_slice_that_holds_it() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    let forecast = |gib| Event::Forecast {
        job: JobId(1),
        need: need(gib),
    };
    assert!(node.step(forecast(4.7)).is_empty());
    let actions = node.step(forecast(8.0));
    assert_eq!(
        actions,
        [Action::Move {
            job: JobId(1),
            for_speed: false,
            reason: "forecast need 8.00 GiB exceeds 1g.5gb@6 with 4.75 GiB".into()
        }]
    );
    assert!(node.step(forecast(8.1)).is_empty(), "told once");
    assert_eq!(node.place(1), "1g.5gb@6", "it holds its slice until it has ended");
    node.again(1, 8.0);
    // Beside the idle 1g@6, this place leaves most open.
    assert_eq!(node.place(1), "2g.10gb@4");
}

#[test]
fn a_job_never_gets_the_size_it_outgrew() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    // The figure after the OOM would fit the slice that was too small.
    node.again(1, 4.0);
    assert_eq!(node.place(1), "2g.10gb@4");
    node.again(1, 0.0);
    assert_eq!(node.place(1), "4g.20gb@0", "not the 3g of the same memory later");
    node.again(1, 4.0);
    assert_eq!(node.place(1), "7g.40gb@0");
    assert_eq!(
        refusals(&node.again(1, 39.0)),
        ["needs more than the 39.50 GiB it had; the largest slice to be had here is 7g.40gb with 39.50 GiB"]
    );
}

#[test]
fn a_running_job_that_no_slice_will_hold_stays() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    let actions = node.step(Event::Forecast {
        job: JobId(1),
        need: need(50.0),
    });
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(
        node.scheduler.note(JobId(1)),
        Some("forecast need 50.00 GiB exceeds 1g.5gb@6 with 4.75 GiB; no slice here holds it, so it stays")
    );
}

#[test]
fn a_vanished_slice_does_not_count_as_outgrown() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    let slice = node.scheduler.slice_of(JobId(1)).unwrap();
    node.step(Event::Vanished { slice });
    assert_eq!(node.scheduler.note(JobId(1)), Some("its slice has gone"));
    node.again(1, 1.0);
    assert_eq!(node.place(1), "1g.5gb@6");
}
