//! What marks an iteration is found without help, and said with each sample.

use migm_shared::clock::{Clock, Mark};
use migm_shared::report::Sample;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

const ITERATIONS: u64 = 60;

/// The last sample of a program that runs so many iterations of these steps.
fn last_sample(steps: &str, wanted: Option<&str>) -> Sample {
    let peer = Peer::new(Manner::GivesPage);
    let program = Program::linked("rhythm", &[&ITERATIONS.to_string(), steps]).under(&peer);
    match wanted {
        Some(wanted) => program.env("MIGM_ITERATION", wanted).run(),
        None => program.run(),
    };
    eventually("the connection ends", || peer.ended() == 1);
    *peer.samples().last().expect("it allocates")
}

fn assert_marks(steps: &str, mark: Mark, every: u32) {
    let last = last_sample(steps, None);
    assert_eq!(last.clock, Some(Clock { mark, every }), "{steps}: {last:?}");
    assert_eq!(last.iteration, ITERATIONS, "{steps}: {last:?}");
}

#[test]
fn one_wait_an_iteration_is_its_mark() {
    assert_marks("--s", Mark::StreamSync, 1);
}

#[test]
fn three_uneven_waits_an_iteration_are_one() {
    assert_marks("--s.s.s", Mark::StreamSync, 3);
}

#[test]
fn two_kinds_of_waits_are_told_apart() {
    // Once for the context at the end, three times for streams on the way.
    assert_marks("-s.s-sc", Mark::ContextSync, 1);
}

#[test]
fn waits_of_chance_are_no_mark_where_the_loss_is_read_once() {
    assert_marks("?---d", Mark::CopyToHost, 1);
}

#[test]
fn a_copy_in_stream_order_is_one_too() {
    assert_marks("?---a", Mark::CopyToHost, 1);
}

#[test]
fn a_loop_of_graphs_is_marked_by_its_event() {
    // Three graphs and one event an iteration: each has a rhythm, and the rarest is the iteration.
    assert_marks("g-g-g-e", Mark::EventSync, 1);
}

#[test]
fn graphs_alone_mark_too() {
    assert_marks("--g", Mark::GraphLaunch, 1);
}

#[test]
fn the_users_mark_is_taken_at_its_word() {
    let last = last_sample("-s.s-d", Some("stream-sync:2"));
    let clock = Clock {
        mark: Mark::StreamSync,
        every: 2,
    };
    assert_eq!((last.clock, last.iteration), (Some(clock), ITERATIONS));
    let off = last_sample("-d", Some("off"));
    assert_eq!((off.clock, off.iteration), (None, 0));
}
