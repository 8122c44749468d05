//! When the work of streams ends that share a slice, wait for each other or for a call.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// 14 multiprocessors and a bus of 100 units a second, both shared evenly.
#[derive(Debug, Default)]
struct Bench {
    sms: AtomicU32,
    copies: AtomicU32,
}

impl Hardware for Bench {
    type Mark = Load;
    type Effect = &'static str;
    type Call = &'static str;

    fn begin(&self, load: Load) -> Load {
        match load {
            Load::Kernel { sms } => self.sms.fetch_add(sms, Ordering::Relaxed),
            Load::Copy => self.copies.fetch_add(1, Ordering::Relaxed),
        };
        load
    }

    fn end(&self, mark: Load) {
        match mark {
            Load::Kernel { sms } => self.sms.fetch_sub(sms, Ordering::Relaxed),
            Load::Copy => self.copies.fetch_sub(1, Ordering::Relaxed),
        };
    }

    fn rate(&self, load: Load) -> f64 {
        match load {
            Load::Kernel { .. } => (14.0 / f64::from(self.sms.load(Ordering::Relaxed))).min(1.0),
            Load::Copy => 100.0 / f64::from(self.copies.load(Ordering::Relaxed)),
        }
    }
}

type Line = Timeline<Bench>;

fn kernel(seconds: f64, sms: u32) -> Work<Bench> {
    Work::Run {
        load: Load::Kernel { sms },
        amount: seconds,
    }
}

fn play(line: &mut Line, now: f64) -> Vec<Due<Bench>> {
    let mut due = Vec::new();
    line.play(now, &mut due);
    due
}

/// Submits a stamp and answers the event.
fn mark(line: &mut Line, lane: LaneId) -> EventId {
    let event = line.open_event();
    line.submit(lane, Work::Stamp(event), Vec::new());
    event
}

fn close(found: Option<f64>, expected: f64) {
    assert!(
        found.is_some_and(|found| (found - expected).abs() < 1e-6),
        "{found:?} is not {expected}"
    );
}

#[test]
fn steps_of_one_lane_follow_each_other_exactly_however_late_they_are_played() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lane = line.open_lane(bench.clone(), 1, Order::Free);
    play(&mut line, 5.0);
    let start = mark(&mut line, lane);
    for _ in 0..1000 {
        line.submit(lane, kernel(0.001, 14), Vec::new());
    }
    let end = mark(&mut line, lane);
    let mut now = 5.0;
    while line.pending(lane) > 0 {
        now += 0.0173;
        play(&mut line, now);
    }
    close(line.stamp(start), 5.0);
    close(line.stamp(end), 6.0);
    assert_eq!(bench.sms.load(Ordering::Relaxed), 0, "each begin has its end");
}

#[test]
fn a_step_that_a_look_ends_by_rounding_does_not_leave_the_next_one_without_a_start() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lane = line.open_lane(bench, 1, Order::Free);
    play(&mut line, 1000.0);
    line.submit(lane, kernel(1.0, 14), Vec::new());
    line.submit(lane, kernel(1.0, 14), Vec::new());
    play(&mut line, 1000.0);
    // Just before the end, but nearer to it than the clock can tell.
    play(&mut line, 1001.0 - 1e-12);
    assert_eq!(line.pending(lane), 1);
    close(line.next_end(), 1002.0);
}

#[test]
fn kernels_that_fill_the_slice_share_it_and_small_ones_do_not_disturb() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lanes: Vec<_> = (0..4)
        .map(|_| line.open_lane(bench.clone(), 1, Order::Free))
        .collect();
    line.submit(lanes[0], kernel(1.0, 7), Vec::new());
    line.submit(lanes[1], kernel(1.0, 7), Vec::new());
    let (small_a, small_b) = (mark(&mut line, lanes[0]), mark(&mut line, lanes[1]));
    play(&mut line, 10.0);
    close(line.stamp(small_a), 1.0);
    close(line.stamp(small_b), 1.0);

    line.submit(lanes[2], kernel(1.0, 14), Vec::new());
    line.submit(lanes[3], kernel(2.0, 14), Vec::new());
    let (short, long) = (mark(&mut line, lanes[2]), mark(&mut line, lanes[3]));
    play(&mut line, 20.0);
    close(line.stamp(short), 12.0);
    close(line.stamp(long), 13.0);
}

#[test]
fn two_copies_take_twice_as_long_as_one() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let one = line.open_lane(bench.clone(), 1, Order::Free);
    let two = line.open_lane(bench, 1, Order::Free);
    line.submit(
        one,
        Work::Run {
            load: Load::Copy,
            amount: 100.0,
        },
        Vec::new(),
    );
    line.submit(
        two,
        Work::Run {
            load: Load::Copy,
            amount: 100.0,
        },
        Vec::new(),
    );
    let event = mark(&mut line, two);
    assert!({
        play(&mut line, 0.5);
        line.is_shared()
    });
    play(&mut line, 9.0);
    close(line.stamp(event), 2.0);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let legacy = line.open_lane(bench.clone(), 1, Order::Legacy);
    let blocking = line.open_lane(bench.clone(), 1, Order::Blocking);
    let free = line.open_lane(bench.clone(), 1, Order::Free);
    let elsewhere = line.open_lane(bench, 2, Order::Blocking);
    line.submit(blocking, Work::Pause(1.0), Vec::new());
    line.submit(legacy, Work::Pause(1.0), Vec::new());
    line.submit(free, Work::Pause(0.25), Vec::new());
    line.submit(elsewhere, Work::Pause(0.25), Vec::new());
    line.submit(blocking, Work::Pause(1.0), Vec::new());
    let ends = [legacy, free, elsewhere, blocking].map(|lane| mark(&mut line, lane));
    play(&mut line, 9.0);
    for (event, expected) in ends.into_iter().zip([3.0, 0.25, 0.25, 3.0]) {
        close(line.stamp(event), expected);
    }
}

#[test]
fn a_wait_on_an_event_of_another_lane_holds_what_follows() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let first = line.open_lane(bench.clone(), 1, Order::Free);
    let second = line.open_lane(bench, 1, Order::Free);
    line.submit(first, Work::Pause(2.0), Vec::new());
    let event = mark(&mut line, first);
    let after = line.recorded(event).into_iter().collect();
    line.submit(second, Work::Wait, after);
    line.submit(second, Work::Pause(1.0), Vec::new());
    let end = mark(&mut line, second);
    play(&mut line, 2.5);
    assert_eq!(line.stamp(end), None);
    play(&mut line, 4.0);
    close(line.stamp(end), 3.0);
}

#[test]
fn an_event_recorded_again_forgets_its_first_time() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lane = line.open_lane(bench, 1, Order::Free);
    let event = mark(&mut line, lane);
    line.submit(lane, Work::Pause(1.0), Vec::new());
    line.submit(lane, Work::Stamp(event), Vec::new());
    play(&mut line, 0.5);
    assert_eq!(
        line.stamp(event),
        None,
        "the first record is no longer the event's"
    );
    play(&mut line, 2.0);
    close(line.stamp(event), 1.0);
}

#[test]
fn a_call_holds_its_lane_until_it_is_finished() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lane = line.open_lane(bench, 1, Order::Free);
    line.submit(lane, Work::Effect("given"), Vec::new());
    line.submit(lane, Work::Call("called"), Vec::new());
    let end = mark(&mut line, lane);
    let due = play(&mut line, 1.0);
    assert!(matches!(due[0], Due::Effect("given")), "{due:?}");
    let Due::Call("called", ticket) = due[1] else {
        panic!("{due:?}")
    };
    play(&mut line, 3.0);
    assert_eq!(line.stamp(end), None);
    line.finish(ticket);
    line.finish(ticket);
    play(&mut line, 3.0);
    close(line.stamp(end), 3.0);
}

#[test]
fn a_closed_lane_plays_what_it_has_and_is_then_done() {
    let (mut line, bench) = (Line::new(), Arc::new(Bench::default()));
    let lane = line.open_lane(bench.clone(), 1, Order::Free);
    let ticket = line.submit(lane, kernel(1.0, 14), Vec::new()).unwrap();
    line.close_lane(lane);
    play(&mut line, 0.5);
    assert!(!line.is_done(ticket));
    assert_eq!(bench.sms.load(Ordering::Relaxed), 14);
    play(&mut line, 1.5);
    assert!(line.is_done(ticket));
    assert!(line.submit(lane, Work::Wait, Vec::new()).is_none());
}
