//! One test for each rule of wishes, on the base profiles of an A100-40GB.

use migm_shared::ids::JobId;

use crate::schedule::tests::{Node, grants, need, refusals};
use crate::schedule::{Event, Policy, Terms, Wish};

fn wish(wish: Wish) -> Terms {
    Terms {
        wish,
        ..Terms::default()
    }
}

fn profile(name: &str) -> Terms {
    wish(Wish::Profile(name.to_owned()))
}

#[test]
fn a_profile_asked_for_is_what_the_job_gets() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.ask(1, 1.0, profile("3g.20gb"));
    assert!(node.place(1).starts_with("3g.20gb"), "{}", node.place(1));
    node.ask(2, 1.0, profile("3g.20gb"));
    assert!(node.place(2).starts_with("3g.20gb"));
    // The third waits for one of the two, though smaller slices would hold it.
    node.ask(3, 1.0, profile("3g.20gb"));
    assert_eq!(node.place(3), "none");
    assert_eq!(
        node.scheduler.why_waiting(JobId(3)),
        "no free slice holds 1.00 GiB in a 3g.20gb, as asked for; running jobs must end first"
    );
    assert_eq!(grants(&node.end(1)), [3]);
}

#[test]
fn who_outgrows_the_profile_asked_for_is_refused_and_not_moved() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.ask(1, 1.0, profile("1g.5gb"));
    let actions = node.run(Event::Forecast {
        job: JobId(1),
        need: need(8.0),
    });
    assert!(actions.is_empty(), "{actions:?}");
    let note = node.scheduler.note(JobId(1)).unwrap_or_default();
    assert!(
        note.ends_with("no slice here holds it in a 1g.5gb, as asked for, so it stays"),
        "{note}"
    );
    assert_eq!(
        refusals(&node.again(1, 8.0)),
        [
            "needs 8.00 GiB in a 1g.5gb, as asked for; the largest slice to be had here is 1g.5gb with 4.75 GiB"
        ]
    );
}

#[test]
fn a_need_beyond_the_profile_asked_for_is_refused_at_once() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    assert_eq!(
        refusals(&node.ask(1, 12.0, profile("2g.10gb"))),
        [
            "needs 12.00 GiB in a 2g.10gb, as asked for; the largest slice to be had here is 2g.10gb with 9.75 GiB"
        ]
    );
}

#[test]
fn a_profile_that_is_not_here_is_refused_with_those_that_are() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    assert_eq!(
        refusals(&node.ask(1, 0.0, profile("2g.12gb"))),
        [
            "needs a slice in a 2g.12gb, as asked for; no GPU that the job may use has profile `2g.12gb`; there are 1g.5gb, 2g.10gb, \
             4g.20gb, 3g.20gb, 7g.40gb"
        ]
    );
}

#[test]
fn a_profile_for_which_others_leave_no_room_is_refused_with_them() {
    let mut node = Node::new(Policy::SchemeB, &["3g.20gb@4"]);
    let refused = refusals(&node.ask(1, 0.0, profile("7g.40gb")));
    assert_eq!(
        refused,
        [
            "needs a slice in a 7g.40gb, as asked for; no slice can be had here; not to be had: 7g.40gb on GPU 0 (foreign \
             3g.20gb@4)"
        ]
    );
}

#[test]
fn sequential_gives_no_profile_but_the_whole() {
    let mut node = Node::new(Policy::Sequential, &[]);
    let refused = refusals(&node.ask(1, 0.0, profile("1g.5gb")));
    assert_eq!(
        refused,
        [
            "needs a slice in a 1g.5gb, as asked for; no GPU that the job may use has profile `1g.5gb`; there are 7g.40gb"
        ]
    );
    node.ask(2, 0.0, profile("7g.40gb"));
    assert_eq!(node.place(2), "7g.40gb@0");
}

#[test]
fn exclusive_is_the_whole_gpu_when_all_others_have_gone() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.ask(2, 1.0, wish(Wish::Exclusive));
    node.arrive(3, 1.0);
    assert_eq!((node.place(2), node.place(3)), ("none".into(), "none".into()));
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
    assert_eq!(grants(&node.end(2)), [3]);
}

#[test]
fn exclusive_is_refused_beside_what_is_not_ours() {
    let mut node = Node::new(Policy::SchemeB, &["1g.5gb@0"]);
    let refused = refusals(&node.ask(1, 0.0, wish(Wish::Exclusive)));
    assert_eq!(
        refused,
        [
            "needs a slice on a GPU of its own, as asked for; no slice can be had here; not to be had: 7g.40gb on GPU 0 \
             (foreign 1g.5gb@0)"
        ]
    );
}
