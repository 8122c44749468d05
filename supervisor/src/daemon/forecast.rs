//! What a running attempt has told of its memory, and the verdict on it.

use migm_shared::clock::Clock;
use migm_shared::report::Sample;

use crate::control::{Inputs, Stakes, WorkKept};
use crate::memory::{
    Choice, Costs, Judgement, Keeping, Method, Observation, Situation, Track as Series, Verdict, decide,
    judge,
};

/// Seconds that one observation covers where a program passes no iteration marks.
const STEP: f64 = 0.1;

/// The samples of one attempt. They are kept twice, by iteration and by second: whether a program passes
/// iteration marks is not known before it does.
#[derive(Debug)]
pub struct Track {
    by_iteration: Series,
    by_second: Series,
    method: Method,
    /// The process with the most marks. Iterations are one process's, reserved bytes are the job's.
    lead: Option<u32>,
    iteration: u64,
    /// What marks the iterations of the leading process.
    clock: Option<Clock>,
    first_ns: Option<u64>,
}

/// A forecast weighed against the slice.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighed {
    /// The figures that were weighed.
    pub inputs: Inputs,
    /// To stay or to move, with the reason.
    pub verdict: Verdict,
}

/// What a forecast is weighed against.
#[derive(Clone, Copy, Debug, Default)]
pub struct Against {
    /// Iterations that it runs, by the user's word or by earlier runs.
    pub iterations: Option<u64>,
    /// The slice's memory, bytes.
    pub slice: u64,
    /// What the driver charges beyond reserved bytes.
    pub unaccounted: u64,
    /// Seconds since the attempt started, simulated ones where the GPUs are.
    pub work_done: f64,
    /// As many seconds as a relaunch has cost on this node; 0 before the first.
    pub relaunch: f64,
    /// What the program's work survives.
    pub kept: WorkKept,
    /// Reserved bytes that earlier runs of the same command came to.
    pub history_peak: Option<u64>,
}

impl Track {
    /// Nothing told yet.
    #[must_use]
    pub fn new(method: Method) -> Self {
        Self {
            by_iteration: Series::new(method, 1.0),
            by_second: Series::new(method, STEP),
            method,
            lead: None,
            iteration: 0,
            clock: None,
            first_ns: None,
        }
    }

    /// Iteration marks of the leading process.
    #[must_use]
    pub const fn iteration(&self) -> u64 {
        self.iteration
    }

    /// Takes samples of one process, in order of time.
    pub fn add(&mut self, pid: u32, samples: &[Sample]) {
        for sample in samples {
            if self.lead == Some(pid) && sample.clock != self.clock && sample.clock.is_some() {
                self.set_clock(sample);
            }
            if self.lead.is_none() || sample.iteration > self.iteration {
                self.lead = Some(pid);
                self.clock = sample.clock;
                self.iteration = sample.iteration.max(self.iteration);
            }
            let first = *self.first_ns.get_or_insert(sample.time_ns);
            #[expect(clippy::cast_precision_loss, reason = "a job of 2^53 ns runs for 100 days")]
            let seconds = sample.time_ns.saturating_sub(first) as f64 / 1e9;
            // What another process holds belongs to where the leading one is; a late word of the leading one to
            // where that was then.
            let marks = if self.lead == Some(pid) {
                sample.iteration
            } else {
                self.iteration
            };
            // What is allocated after a mark is the next iteration's, and belongs with what that comes to.
            #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
            let iteration = (marks + u64::from(sample.midway)) as f64;
            let at = |x| Observation {
                x,
                requested: sample.allocated.unwrap_or(sample.peak),
                reserved: sample.peak.max(sample.reserved),
                allocated: sample.allocated,
            };
            self.by_iteration.sample(at(iteration));
            self.by_second.sample(at(seconds));
        }
    }

    /// The leading process counts its iterations by another event from here on: what was told by the other one is
    /// of another scale.
    fn set_clock(&mut self, sample: &Sample) {
        if self.clock.is_some() {
            self.by_iteration = Series::new(self.method, 1.0);
        }
        self.clock = sample.clock;
        self.iteration = sample.iteration;
    }

    /// A process is gone. After the leading one the next program of the job starts anew: its iterations
    /// are not a continuation.
    pub fn process_gone(&mut self, pid: u32) {
        if self.lead == Some(pid) {
            *self = Self::new(self.method);
        }
    }

    /// The verdict on the forecast, if there is one. A job whose iterations are known is judged by them
    /// alone; another by its marks if it has passed any, else by the clock.
    #[must_use]
    pub fn weigh(&self, against: Against) -> Option<Weighed> {
        #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
        let horizon = against.iterations.map(|count| count as f64);
        let forecast = if horizon.is_some() || self.iteration > 0 {
            self.by_iteration.forecast(horizon)
        } else {
            self.by_second.forecast(None)
        }?;
        let situation = Situation {
            slice_bytes: against.slice,
            unaccounted_bytes: against.unaccounted,
            // At the pace so far; nothing is known of it at the very start.
            pace: if forecast.now > 0.0 {
                against.work_done / forecast.now
            } else {
                0.0
            },
            work_done: against.work_done,
            costs: Costs {
                relaunch: against.relaunch,
                // What was measured of a relaunch has the making of the slice in it.
                reconfiguration: 0.0,
            },
            keeping: match against.kept {
                WorkKept::Never => Keeping::Nothing,
                WorkKept::OnSignal => Keeping::OnMove,
                WorkKept::Always => Keeping::Always,
            },
        };
        let stakes = match judge(&forecast, &situation) {
            Judgement::Overflows(weighing) => Some(Stakes {
                overflow: weighing.stakes.overflow,
                time_to_full: weighing.stakes.time_to_full,
                time_left: weighing.stakes.time_left,
                moving: weighing.moving,
                staying: weighing.staying,
                wait: match weighing.choice {
                    Choice::Wait(seconds) => Some(seconds),
                    Choice::Stay | Choice::Move => None,
                },
            }),
            Judgement::Fits | Judgement::Unsettled | Judgement::Doubtful => None,
        };
        let inputs = Inputs {
            slice: against.slice,
            unaccounted: against.unaccounted,
            level: forecast.level,
            x: forecast.now,
            horizon: forecast.horizon_used,
            trusted_to: forecast.trusted_to,
            peak: forecast.peak,
            low: forecast.low,
            high: forecast.high,
            settled: forecast.converged,
            law: format!("{:?}", forecast.law).to_lowercase(),
            work_done: against.work_done,
            relaunch: against.relaunch,
            kept: against.kept,
            stakes,
            history_peak: against.history_peak,
        };
        Some(Weighed {
            verdict: decide(&forecast, &situation),
            inputs,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::clock::Mark;
    use migm_shared::units::{GIB, MIB};

    fn sample(iteration: u64, reserved: u64) -> Sample {
        Sample {
            time_ns: (iteration + 1) * 50_000_000,
            iteration,
            reserved,
            peak: reserved,
            ..Sample::default()
        }
    }

    const AGAINST: Against = Against {
        iterations: Some(100),
        slice: 4864 * MIB,
        unaccounted: 434 * MIB,
        work_done: 1.0,
        relaunch: 0.0,
        kept: WorkKept::Never,
        history_peak: None,
    };

    #[test]
    fn a_grower_is_moved_before_it_is_full() {
        let mut track = Track::new(Method::Migm);
        let moved = (0..100).find(|&at| {
            track.add(7, &[sample(at, 2 * GIB + at * 64 * MIB)]);
            let against = Against {
                work_done: f64::from(u32::try_from(at).unwrap()) * 0.05,
                ..AGAINST
            };
            matches!(track.weigh(against), Some(Weighed { verdict: Verdict::Move { need_bytes, .. }, .. }) if need_bytes > 8 * GIB)
        });
        assert!(moved.is_some_and(|at| at < 37), "{moved:?}");
    }

    #[test]
    fn samples_of_a_second_process_do_not_turn_the_iterations_back() {
        let mut track = Track::new(Method::Max);
        track.add(1, &[sample(5, GIB)]);
        track.add(2, &[sample(1, 2 * GIB)]);
        assert_eq!(track.iteration(), 5);
        track.process_gone(2);
        assert_eq!(track.iteration(), 5);
        track.process_gone(1);
        assert_eq!(track.iteration(), 0);
    }

    #[test]
    fn another_clock_starts_the_iterations_anew() {
        let mut track = Track::new(Method::Max);
        let by = |mark, every, at, reserved| Sample {
            clock: Some(Clock { mark, every }),
            ..sample(at, reserved)
        };
        for at in 0..30 {
            track.add(1, &[by(Mark::StreamSync, 1, at, 9 * GIB)]);
        }
        for at in 10..20 {
            track.add(1, &[by(Mark::StreamSync, 3, at, GIB)]);
        }
        assert_eq!(track.iteration(), 19);
        assert_eq!(track.weigh(AGAINST).map(|weighed| weighed.inputs.peak), Some(GIB));
        // Another process has its own clock, and does not lead.
        track.add(2, &[by(Mark::CopyToHost, 1, 5, GIB)]);
        assert_eq!(track.iteration(), 19);
    }

    /// The sender looks every 10 ms, also in the midst of an iteration that has just allocated. Counted with the
    /// iteration before, such a sample looks like an early step, and a straight line like a noisy one.
    #[test]
    fn a_sample_in_the_midst_of_an_iteration_does_not_bend_the_line() {
        let mut track = Track::new(Method::Migm);
        for at in 0..20 {
            track.add(7, &[sample(at, 4 * GIB + at * 16 * MIB)]);
            if at % 3 == 0 {
                let early = Sample {
                    midway: true,
                    ..sample(at, 4 * GIB + (at + 1) * 16 * MIB)
                };
                track.add(7, &[early]);
            }
        }
        let weighed = track.weigh(AGAINST).unwrap();
        let exact = 4 * GIB + 100 * 16 * MIB;
        assert!(
            weighed.inputs.peak.abs_diff(exact) < MIB,
            "{} for {exact}",
            weighed.inputs.peak
        );
        let Verdict::Move { need_bytes, .. } = weighed.verdict else {
            panic!("{weighed:?}")
        };
        let bound = need_bytes - AGAINST.unaccounted;
        assert!(bound.abs_diff(exact) < 64 * MIB, "{bound} for {exact}");
    }

    /// Frames as they may come: lost, twice, or after later ones. `None` where the job is not moved.
    fn moved_at(levels: &[u64], slice: u64, seed: u64) -> Option<u64> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut told: Vec<(u64, Sample)> = Vec::new();
        for (at, &level) in (0..).zip(levels) {
            if draw(10) < 3 {
                continue;
            }
            let late = if draw(10) < 2 { draw(5) } else { 0 };
            told.push((at + late, sample(at, level)));
            if draw(10) < 3 {
                told.push((at + draw(4), sample(at, level)));
            }
        }
        told.sort_by_key(|(comes, _)| *comes);
        let mut track = Track::new(Method::Migm);
        told.into_iter().find_map(|(comes, sample)| {
            track.add(7, &[sample]);
            let against = Against {
                slice,
                work_done: f64::from(u32::try_from(comes).unwrap()) * 0.05,
                ..AGAINST
            };
            let is_move = track
                .weigh(against)
                .is_some_and(|weighed| matches!(weighed.verdict, Verdict::Move { .. }));
            is_move.then_some(comes)
        })
    }

    #[test]
    fn samples_lost_doubled_and_late_make_no_false_move() {
        let flat: Vec<u64> = (0..100).map(|at| 3 * GIB + at % 3 * MIB).collect();
        let fits: Vec<u64> = (0..100).map(|at| 3 * GIB + at * 12 * MIB).collect();
        let jump: Vec<u64> = (0..100).map(|at| if at < 50 { GIB } else { 4 * GIB }).collect();
        let ramp: Vec<u64> = (0..100).map(|at: u64| GIB + at.min(3) * GIB).collect();
        for seed in 1..=50 {
            for (name, levels) in [("flat", &flat), ("fits", &fits), ("jump", &jump), ("ramp", &ramp)] {
                assert_eq!(moved_at(levels, AGAINST.slice, seed), None, "{name}, seed {seed}");
            }
        }
    }

    #[test]
    fn samples_lost_doubled_and_late_hide_no_overflow() {
        // Full at iteration 89.
        let grows: Vec<u64> = (0..100).map(|at| 3 * GIB + at * 15 * MIB).collect();
        for seed in 1..=50 {
            let at = moved_at(&grows, AGAINST.slice, seed);
            assert!(at.is_some_and(|at| at < 60), "seed {seed}: {at:?}");
        }
    }

    #[test]
    fn without_marks_the_clock_counts() {
        let mut track = Track::new(Method::Max);
        for at in 0..20 {
            track.add(
                1,
                &[Sample {
                    iteration: 0,
                    ..sample(at, GIB)
                }],
            );
        }
        let against = Against {
            iterations: None,
            ..AGAINST
        };
        assert_eq!(track.weigh(against).map(|weighed| weighed.inputs.peak), Some(GIB));
    }
}
