//! Which event marks the iterations, judged by the times at which each came.
//!
//! The work of an iteration repeats, so an event that belongs to it comes at even distances: once an iteration,
//! or a few times, and then every so many of it are at even distances. How uneven distances are is said by
//! their mean deviation from the median, over their mean, without the longest sixteenth: a checkpoint, or a machine
//! that was busy. It is 0 for a clockwork and 0.7 for pure chance. For each event the smallest number `every` is
//! looked for at which the distances between an event and the one `every` places later have the least unevenness
//! times `every`: distances without a pattern become more even too when they are added up, but not in that
//! measure.

use migm_shared::clock::{Clock, Mark};

/// The most events of one kind that are taken for one iteration: with more, the one long distance among them would
/// be left out as one of the longest.
const MOST: usize = 12;
/// Iterations that must have been seen.
const PERIODS: usize = 8;
/// More uneven distances are no rhythm.
const EVEN: f64 = 0.5;
/// A number of events is as good as the best if its score is at most this many times as much, or this small.
const AS_GOOD: f64 = 1.25;
/// The current number stays up to this many times: a change costs the supervisor what it knew by iteration.
const GOOD_ENOUGH: f64 = 2.5;
const GOOD: f64 = 0.04;
/// Nothing that comes more often is taken for an iteration while something else is there: ns.
const SHORTEST: u64 = 1_000_000;
/// An event comes with the steps of an iteration if it is at most this many times as frequent as the iteration:
/// a print or a checkpoint every hundred iterations is no iteration.
const STEPS: u64 = 8;

/// What has been found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Choice {
    /// What marks the iterations.
    pub clock: Clock,
    /// How long one takes, in nanoseconds.
    pub period_ns: u64,
    /// How many of them the judgement rests on.
    pub periods: u64,
}

/// The event to go by, from the times (nanoseconds, ascending) at which each has come; `None` while none has a
/// rhythm. Of events that come with the steps of an iteration the rarest is it; of equals the `current` one.
#[must_use]
pub fn choose(seen: &[(Mark, Vec<u64>)], current: Option<Clock>) -> Option<Choice> {
    let mut found: Vec<Choice> = seen
        .iter()
        .filter_map(|(mark, times)| {
            let kept = current.filter(|clock| clock.mark == *mark);
            rhythm(*mark, times, kept.map(|clock| clock.every))
        })
        .collect();
    if found.iter().any(|choice| choice.period_ns >= SHORTEST) {
        found.retain(|choice| choice.period_ns >= SHORTEST);
    }
    let shortest = found.iter().map(|choice| choice.period_ns).min()?;
    let within = |period: u64, limit: u64| period <= limit.saturating_add(limit / 8);
    found.retain(|choice| within(choice.period_ns, shortest.saturating_mul(STEPS)));
    let longest = found.iter().map(|choice| choice.period_ns).max()?;
    found.retain(|choice| within(longest, choice.period_ns));
    let kept = |choice: &&Choice| Some(choice.clock) == current;
    found.iter().find(kept).or(found.first()).copied()
}

/// One way to count an event.
struct Count {
    every: u32,
    uneven: f64,
    period_ns: u64,
}

impl Count {
    fn score(&self) -> f64 {
        self.uneven * f64::from(self.every)
    }
}

fn rhythm(mark: Mark, times: &[u64], kept: Option<u32>) -> Option<Choice> {
    let most = times.len().saturating_sub(1) / PERIODS;
    let counts: Vec<Count> = (1..=most.min(MOST))
        .filter_map(|every| count(times, every))
        .collect();
    let best = counts.iter().map(Count::score).reduce(f64::min)?;
    let limit = (best * AS_GOOD).max(GOOD);
    let stays = |count: &&Count| {
        let even = count.score() <= best * GOOD_ENOUGH && count.uneven <= EVEN;
        Some(count.every) == kept && even
    };
    let found = counts
        .iter()
        .find(stays)
        .or_else(|| counts.iter().find(|count| count.score() <= limit))?;
    (found.uneven <= EVEN && found.period_ns > 0).then(|| Choice {
        clock: Clock {
            mark,
            every: found.every,
        },
        period_ns: found.period_ns,
        periods: (times.len() as u64 - 1) / u64::from(found.every),
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds of a few minutes, below 2^53"
)]
fn count(times: &[u64], every: usize) -> Option<Count> {
    let mut spans: Vec<u64> = times
        .windows(every + 1)
        .map(|window| window[every].saturating_sub(window[0]))
        .collect();
    spans.sort_unstable();
    spans.truncate(spans.len() - spans.len() / 16);
    let period_ns = *spans.get(spans.len() / 2)?;
    let sum: u64 = spans.iter().sum();
    let deviation: u64 = spans.iter().map(|span| span.abs_diff(period_ns)).sum();
    Some(Count {
        every: u32::try_from(every).ok()?,
        uneven: deviation as f64 / sum.max(1) as f64,
        period_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A small generator, so that the noise is the same in each run.
    struct Noise(u64);

    impl Noise {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % limit
        }
    }

    /// Events at these distances, over and over, each distance off by up to a tenth.
    fn times(distances: &[u64], count: usize, seed: u64) -> Vec<u64> {
        let mut noise = Noise(seed);
        let mut now = 0;
        let mut next = |distance: &u64| {
            now += distance * 95 / 100 + noise.below(distance / 10 + 1);
            now
        };
        distances.iter().cycle().take(count).map(&mut next).collect()
    }

    /// The same on a busy machine: one distance in four is longer, by up to half of the whole iteration.
    fn busy(distances: &[u64], count: usize, seed: u64) -> Vec<u64> {
        let iteration: u64 = distances.iter().sum();
        let mut noise = Noise(seed);
        let mut late = 0;
        let mut delayed = |time: u64| {
            if noise.below(4) == 0 {
                late += noise.below(iteration / 2);
            }
            time + late
        };
        times(distances, count, seed + 1000)
            .into_iter()
            .map(&mut delayed)
            .collect()
    }

    fn chosen(seen: &[(Mark, Vec<u64>)]) -> Option<Clock> {
        choose(seen, None).map(|choice| choice.clock)
    }

    fn clock(mark: Mark, every: u32) -> Option<Clock> {
        Some(Clock { mark, every })
    }

    #[test]
    fn an_event_once_an_iteration_is_taken_as_it_is() {
        for seed in 1..50 {
            let seen = [(Mark::StreamSync, times(&[20 * MS], 64, seed))];
            assert_eq!(chosen(&seen), clock(Mark::StreamSync, 1), "seed {seed}");
        }
    }

    #[test]
    fn a_few_uneven_events_an_iteration_are_counted_together() {
        for distances in [
            &[2 * MS, 2 * MS, 60 * MS][..],
            &[MS, 40 * MS],
            &[20 * MS, 20 * MS, 60 * MS, MS],
            &[MS, MS, MS, MS, MS, MS, MS, MS, MS, MS, 90 * MS],
        ] {
            for seed in 1..50 {
                let seen = [(Mark::StreamSync, times(distances, 100, seed))];
                let every = u32::try_from(distances.len()).unwrap();
                assert_eq!(
                    chosen(&seen),
                    clock(Mark::StreamSync, every),
                    "{distances:?}, seed {seed}"
                );
            }
        }
    }

    #[test]
    fn a_busy_machine_hides_no_rhythm() {
        for distances in [&[20 * MS][..], &[MS, MS, 21 * MS], &[MS, 40 * MS]] {
            let mut right = 0;
            for seed in 1..=100 {
                let seen = [(Mark::StreamSync, busy(distances, 150, seed))];
                let every = u32::try_from(distances.len()).unwrap();
                right += u32::from(chosen(&seen) == clock(Mark::StreamSync, every));
            }
            assert!(right >= 95, "{distances:?}: {right} of 100");
        }
    }

    #[test]
    fn a_checkpoint_now_and_then_hides_no_rhythm() {
        let mut late = 0;
        let mut saving = |(index, time): (usize, u64)| {
            late += if index % 50 == 49 { 5000 * MS } else { 0 };
            time + late
        };
        let steady = times(&[20 * MS], 150, 4);
        let seen = [(
            Mark::StreamSync,
            steady.into_iter().enumerate().map(&mut saving).collect(),
        )];
        assert_eq!(chosen(&seen), clock(Mark::StreamSync, 1));
    }

    #[test]
    fn an_event_at_random_is_no_clock() {
        let mut noise = Noise(3);
        let mut now = 0;
        let mut next = |_| {
            // The product of two is far more often small than large, as the distances of chance are.
            now += noise.below(1000) * noise.below(1000) * 100 + 1;
            now
        };
        let random: Vec<u64> = (0..127).map(&mut next).collect();
        assert_eq!(chosen(&[(Mark::StreamSync, random.clone())]), None);
        let seen = [
            (Mark::StreamSync, random),
            (Mark::CopyToHost, times(&[50 * MS], 40, 5)),
        ];
        assert_eq!(chosen(&seen), clock(Mark::CopyToHost, 1));
    }

    #[test]
    fn of_the_steps_of_an_iteration_the_rarest_is_it() {
        let seen = [
            (Mark::GraphLaunch, times(&[10 * MS], 120, 1)),
            (Mark::CopyToHost, times(&[40 * MS], 30, 2)),
        ];
        assert_eq!(chosen(&seen), clock(Mark::CopyToHost, 1));
    }

    #[test]
    fn a_print_every_hundred_iterations_is_none() {
        let seen = [
            (Mark::StreamSync, times(&[10 * MS], 127, 1)),
            (Mark::CopyToHost, times(&[1000 * MS], 12, 2)),
        ];
        assert_eq!(chosen(&seen), clock(Mark::StreamSync, 1));
    }

    #[test]
    fn a_torrent_of_copies_is_none_while_something_slower_is_there() {
        let torrent = (Mark::CopyToHost, times(&[MS / 100], 127, 1));
        let seen = [torrent.clone(), (Mark::StreamSync, times(&[90 * MS], 20, 2))];
        assert_eq!(chosen(&seen), clock(Mark::StreamSync, 1));
        assert_eq!(chosen(&[torrent]), clock(Mark::CopyToHost, 1));
    }

    #[test]
    fn few_events_decide_nothing() {
        assert_eq!(chosen(&[(Mark::StreamSync, times(&[MS], PERIODS, 1))]), None);
        assert!(chosen(&[(Mark::StreamSync, times(&[MS], PERIODS + 1, 1))]).is_some());
    }

    #[test]
    fn a_clock_that_keeps_time_is_not_changed_for_a_little() {
        let current = clock(Mark::StreamSync, 1);
        for seed in 1..=200 {
            let seen = [(Mark::StreamSync, busy(&[20 * MS], 40, seed))];
            let kept = choose(&seen, current).map(|choice| choice.clock);
            assert!(kept.is_none() || kept == current, "seed {seed}: {kept:?}");
        }
        let seen = [(Mark::StreamSync, times(&[2 * MS, 2 * MS, 60 * MS], 100, 1))];
        let changed = choose(&seen, current).map(|choice| choice.clock);
        assert_eq!(changed, clock(Mark::StreamSync, 3));
    }

    #[test]
    fn of_two_that_come_together_the_current_one_stays() {
        let seen = [
            (Mark::StreamSync, times(&[10 * MS], 60, 1)),
            (Mark::CopyToHost, times(&[10 * MS], 60, 2)),
        ];
        let current = clock(Mark::CopyToHost, 1);
        assert_eq!(choose(&seen, current).map(|choice| choice.clock), current);
        assert_eq!(chosen(&seen), clock(Mark::StreamSync, 1));
    }
}
