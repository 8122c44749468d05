//! The iteration clock: which of the program's events marks its iterations, and how many it has passed.
//!
//! 1. Each event that may be a mark ticks here. Its count goes up; while the clock is being chosen its time is
//!    kept too. That is all that an event costs which is not the mark.
//! 2. Until something is known the first event that came is the mark.
//! 3. The [`Learner`], in the sender thread, looks at the times every now and then and [`choice`] says which event
//!    has the rhythm of an iteration. The counts go back to the first allocation, so the iterations passed so
//!    far are known for any choice.
//! 4. Once the choice has held for a while the learner looks away, and looks again if the mark stops coming
//!    while other events go on: training is over and evaluation begins.
//!
//! `MIGM_ITERATION` sets the mark in place of all this.

pub mod choice;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use migm_shared::clock::{Clock as Iterations, MARKS, Mark, Wanted};

use crate::notes::now_ns;
use choice::{Choice, choose};

/// Times kept of each event: more iterations than the choice needs, of the most events an iteration.
const TIMES: usize = 160;
/// Between two looks at first, and once something has been chosen.
const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// The choice is final after this time and so many iterations; at the latest after the second time.
const LEARN: (Duration, u64, Duration) = (Duration::from_secs(5), 32, Duration::from_secs(120));
/// A mark that has not come for this time and so many iterations has stopped.
const STOPPED: (Duration, u64) = (Duration::from_secs(1), 16);

/// No mark yet.
const NONE: u64 = 0;
/// No mark, by the user's word.
const OFF: u64 = u64::MAX;

/// One event.
#[derive(Debug)]
#[repr(align(64))]
struct Ticks {
    count: AtomicU64,
    times: [AtomicU64; TIMES],
}

/// See the [module](self).
#[derive(Debug)]
pub struct Clock {
    /// Packed: 0 for none, else the event and how many of it make an iteration.
    mark: AtomicU64,
    learning: AtomicBool,
    ticks: [Ticks; MARKS],
}

const fn pack(clock: Iterations) -> u64 {
    (clock.every as u64) << 8 | (clock.mark as u64 + 1)
}

fn unpack(packed: u64) -> Option<Iterations> {
    let place = usize::try_from(packed & 0xff).ok()?.checked_sub(1)?;
    Some(Iterations {
        mark: *Mark::ALL.get(place)?,
        every: u32::try_from(packed >> 8).ok().filter(|every| *every > 0)?,
    })
}

impl Clock {
    /// No event has come.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        Self {
            mark: AtomicU64::new(match wanted {
                Wanted::Auto => NONE,
                Wanted::Off => OFF,
                Wanted::Fixed(clock) => pack(clock),
            }),
            learning: AtomicBool::new(wanted == Wanted::Auto),
            ticks: [const {
                Ticks {
                    count: AtomicU64::new(0),
                    times: [const { AtomicU64::new(0) }; TIMES],
                }
            }; MARKS],
        }
    }

    /// An event has come. If that ends an iteration: how many there are.
    #[inline]
    pub fn tick(&self, event: Mark) -> Option<u64> {
        let ticks = &self.ticks[event as usize];
        let count = ticks.count.fetch_add(1, Relaxed) + 1;
        if self.learning.load(Relaxed) {
            self.note(ticks, count, event);
        }
        let mark = self.mark.load(Relaxed);
        if mark & 0xff != event as u64 + 1 {
            return None;
        }
        match mark >> 8 {
            1 => Some(count),
            every => count.is_multiple_of(every).then(|| count / every),
        }
    }

    #[cold]
    fn note(&self, ticks: &Ticks, count: u64, event: Mark) {
        ticks.times[place(count)].store(now_ns(), Relaxed);
        if self.mark.load(Relaxed) == NONE {
            let first = pack(Iterations {
                mark: event,
                every: 1,
            });
            // Another event may have been faster: it is as good.
            let _ = self.mark.compare_exchange(NONE, first, Relaxed, Relaxed);
        }
    }

    /// What counts as an iteration.
    #[must_use]
    pub fn now(&self) -> Option<Iterations> {
        unpack(self.mark.load(Relaxed)).filter(|_| self.mark.load(Relaxed) != OFF)
    }

    /// Iterations passed.
    #[must_use]
    pub fn iteration(&self) -> u64 {
        self.now()
            .map_or(0, |clock| self.count(clock.mark) / u64::from(clock.every))
    }

    fn count(&self, mark: Mark) -> u64 {
        self.ticks[mark as usize].count.load(Relaxed)
    }

    fn counts(&self) -> [u64; MARKS] {
        Mark::ALL.map(|mark| self.count(mark))
    }

    /// The last times of an event that has come more often than `before`, ascending.
    fn times(&self, mark: Mark, before: u64) -> Vec<u64> {
        let count = self.count(mark);
        // One place is left out: the next event may be writing its time there.
        let oldest = before.max(count.saturating_sub(TIMES as u64 - 1));
        let time = |at: u64| self.ticks[mark as usize].times[place(at)].load(Relaxed);
        let mut times: Vec<u64> = (oldest + 1..=count).map(time).collect();
        times.retain(|time| *time != 0);
        times.sort_unstable();
        times
    }
}

fn place(count: u64) -> usize {
    usize::try_from(count % TIMES as u64).unwrap_or(0)
}

/// What the sender thread knows of the clock.
#[derive(Debug)]
pub struct Learner {
    /// Counts when it began to look.
    before: [u64; MARKS],
    began_ns: u64,
    look_ns: u64,
    choice: Option<Choice>,
    /// The mark's count when it was last seen to have changed, all others' together, and when that was.
    last: (u64, u64, u64),
}

impl Learner {
    /// Begins to look.
    #[must_use]
    pub fn new(clock: &Clock, now_ns: u64) -> Self {
        Self {
            before: clock.counts(),
            began_ns: now_ns,
            look_ns: now_ns,
            choice: None,
            last: (0, 0, now_ns),
        }
    }

    /// One round of the sender.
    pub fn round(&mut self, clock: &Clock, now_ns: u64) {
        if clock.learning.load(Relaxed) {
            if now_ns >= self.look_ns {
                self.look(clock, now_ns);
            }
        } else if self.choice.is_some() && self.has_stopped(clock, now_ns) {
            *self = Self::new(clock, now_ns);
            clock.learning.store(true, Relaxed);
        }
    }

    fn look(&mut self, clock: &Clock, now_ns: u64) {
        let seen: Vec<(Mark, Vec<u64>)> = Mark::ALL
            .into_iter()
            .zip(self.before)
            .map(|(mark, before)| (mark, clock.times(mark, before)))
            .collect();
        if let Some(choice) = choose(&seen, clock.now()) {
            clock.mark.store(pack(choice.clock), Relaxed);
            self.choice = Some(choice);
        }
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let pause = if self.choice.is_some() { LOOKS.1 } else { LOOKS.0 };
        self.look_ns = now_ns + nanoseconds(pause);
        let looked = now_ns.saturating_sub(self.began_ns);
        let passed = self.choice.map_or(0, |choice| looked / choice.period_ns);
        if (looked >= nanoseconds(LEARN.0) && passed >= LEARN.1) || looked >= nanoseconds(LEARN.2) {
            clock.learning.store(false, Relaxed);
            self.last = (0, 0, now_ns);
        }
    }

    fn has_stopped(&mut self, clock: &Clock, now_ns: u64) -> bool {
        let Some(choice) = self.choice else { return false };
        let all: u64 = clock.counts().iter().sum();
        let mark = clock.count(choice.clock.mark);
        if mark != self.last.0 {
            self.last = (mark, all, now_ns);
            return false;
        }
        let silent = now_ns.saturating_sub(self.last.2);
        let long = choice.period_ns.saturating_mul(STOPPED.1);
        all != self.last.1 && silent > long && u128::from(silent) > STOPPED.0.as_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Puts events at times of the test's choice, as [`Clock::tick`] does at the time it is.
    fn tick_at(clock: &Clock, mark: Mark, time_ns: u64) {
        clock.tick(mark);
        let ticks = &clock.ticks[mark as usize];
        ticks.times[place(ticks.count.load(Relaxed))].store(time_ns, Relaxed);
    }

    #[test]
    fn the_first_event_is_the_mark_until_more_is_known() {
        let clock = Clock::new(Wanted::Auto);
        assert_eq!((clock.now(), clock.iteration()), (None, 0));
        assert_eq!(clock.tick(Mark::CopyToHost), Some(1));
        assert_eq!(clock.tick(Mark::StreamSync), None);
        assert_eq!(clock.tick(Mark::CopyToHost), Some(2));
        assert_eq!(clock.iteration(), 2);
    }

    #[test]
    fn the_users_word_holds() {
        let fixed = Iterations {
            mark: Mark::GraphLaunch,
            every: 3,
        };
        let clock = Clock::new(Wanted::Fixed(fixed));
        let ticks: Vec<_> = (0..6).map(|_| clock.tick(Mark::GraphLaunch)).collect();
        assert_eq!(ticks, [None, None, Some(1), None, None, Some(2)]);
        assert_eq!(clock.tick(Mark::StreamSync), None);
        let off = Clock::new(Wanted::Off);
        assert_eq!(Mark::ALL.map(|mark| off.tick(mark)), [None; MARKS]);
        assert_eq!((off.now(), off.iteration()), (None, 0));
    }

    #[test]
    fn an_event_that_never_comes_is_never_the_mark() {
        let clock = Clock::new(Wanted::Auto);
        let mut learner = Learner::new(&clock, 0);
        // Waits of no rhythm: nothing is chosen, and nothing else takes their place.
        for n in 1..=40 {
            tick_at(&clock, Mark::StreamSync, n * n * n * MS);
        }
        learner.round(&clock, 70_000 * MS);
        assert_eq!(clock.count(Mark::NvtxRange), 0);
        assert_eq!(clock.now().map(|clock| clock.mark), Some(Mark::StreamSync));
    }

    #[test]
    fn iterations_of_a_late_choice_go_back_to_the_start() {
        let clock = Clock::new(Wanted::Auto);
        let mut learner = Learner::new(&clock, 0);
        for n in 1..=40 {
            tick_at(&clock, Mark::StreamSync, n * 50 * MS);
            tick_at(&clock, Mark::StreamSync, n * 50 * MS + 2 * MS);
        }
        assert_eq!(clock.iteration(), 80);
        learner.round(&clock, 2100 * MS);
        let found = Iterations {
            mark: Mark::StreamSync,
            every: 2,
        };
        assert_eq!((clock.now(), clock.iteration()), (Some(found), 40));
    }

    #[test]
    fn another_phase_of_the_program_gets_another_clock() {
        let clock = Clock::new(Wanted::Auto);
        let mut learner = Learner::new(&clock, 0);
        for n in 1..=100 {
            tick_at(&clock, Mark::EventSync, n * 60 * MS);
        }
        learner.round(&clock, 6000 * MS);
        assert!(!clock.learning.load(Relaxed), "it has held");
        learner.round(&clock, 6010 * MS);
        for n in 1..=100 {
            tick_at(&clock, Mark::CopyToHost, 6010 * MS + n * 60 * MS);
        }
        assert_eq!(clock.now().map(|clock| clock.mark), Some(Mark::EventSync));
        learner.round(&clock, 12_010 * MS);
        assert!(clock.learning.load(Relaxed), "the mark has stopped coming");
        for n in 1..=20 {
            tick_at(&clock, Mark::CopyToHost, 12_010 * MS + n * 60 * MS);
        }
        learner.round(&clock, 13_300 * MS);
        assert_eq!(clock.now().map(|clock| clock.mark), Some(Mark::CopyToHost));
    }

    #[test]
    fn more_events_than_places_keep_the_last_ones() {
        let clock = Clock::new(Wanted::Auto);
        for n in 1..=1000 {
            tick_at(&clock, Mark::ContextSync, n);
        }
        let times = clock.times(Mark::ContextSync, 0);
        assert_eq!((times.len(), times.last()), (TIMES - 1, Some(&1000)));
        assert_eq!(clock.times(Mark::ContextSync, 990).first(), Some(&991));
    }
}
