//! Whether to act on a forecast: expected work saved against expected work lost.

use super::constants::LEAST_LIKELY;

/// What becomes of a job's work when its process ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Keeping {
    /// It starts from zero, moved or out of memory.
    #[default]
    Nothing,
    /// It saves on the signal that moves it; an out-of-memory loses all since.
    OnMove,
    /// It saves all along: either way next to nothing is lost.
    Always,
}

/// What a decision rests on. Times are seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stakes {
    /// Work so far that is not saved.
    pub work_done: f64,
    /// Until the job ends by itself; infinite where that is not known.
    pub time_left: f64,
    /// Until it runs out of memory, at the likely pace.
    pub time_to_full: f64,
    /// Starting the program again, loading included.
    pub relaunch: f64,
    /// Making the slice.
    pub reconfiguration: f64,
    /// Probability that it runs out of memory before it ends.
    pub overflow: f64,
    /// What its work survives.
    pub keeping: Keeping,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Leave it.
    Stay,
    /// Move it, but not before so many seconds have passed: its work is kept, and may still go on here.
    Wait(f64),
    /// Move it now.
    Move,
}

/// A decision with its inputs, and what either way is expected to cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weighing {
    /// The inputs.
    pub stakes: Stakes,
    /// Expected seconds lost by moving.
    pub moving: f64,
    /// Expected seconds lost by staying.
    pub staying: f64,
    /// The cheaper.
    pub choice: Choice,
}

/// Weighs moving now against staying.
///
/// | work survives | a move loses | running out loses, with probability `overflow` |
/// |---|---|---|
/// | nothing | work done, relaunch, reconfiguration | work done, work until then, relaunch, reconfiguration |
/// | a move | relaunch, reconfiguration | the same as above |
/// | both | relaunch, reconfiguration | relaunch, reconfiguration |
///
/// A job that would run out only after its end is left. Where a move keeps the work it is made as late as it can be:
/// with twice the time that the move takes still to go, so that one forecast that errs by half does not come too late.
#[must_use]
pub fn weigh(stakes: Stakes) -> Weighing {
    let again = stakes.relaunch + stakes.reconfiguration;
    let lost_on_oom = again
        + match stakes.keeping {
            Keeping::Nothing | Keeping::OnMove => stakes.work_done + stakes.time_to_full,
            Keeping::Always => 0.0,
        };
    let moving = again
        + match stakes.keeping {
            Keeping::Nothing => stakes.work_done,
            Keeping::OnMove | Keeping::Always => 0.0,
        };
    let in_time = stakes.time_to_full <= stakes.time_left;
    let staying = if in_time {
        stakes.overflow * lost_on_oom
    } else {
        0.0
    };
    let choice = if stakes.overflow < LEAST_LIKELY || staying <= moving {
        Choice::Stay
    } else if stakes.keeping == Keeping::OnMove && stakes.time_to_full > 2.0 * again {
        Choice::Wait(stakes.time_to_full - 2.0 * again)
    } else {
        Choice::Move
    };
    Weighing {
        stakes,
        moving,
        staying,
        choice,
    }
}

impl std::fmt::Display for Weighing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stakes {
            work_done,
            time_left,
            time_to_full,
            relaunch,
            reconfiguration,
            overflow,
            keeping,
        } = self.stakes;
        let survives = match keeping {
            Keeping::Nothing => "no restart",
            Keeping::OnMove => "a move",
            Keeping::Always => "any restart",
        };
        write!(
            f,
            "it runs out with probability {overflow:.2} in {time_to_full:.1} s"
        )?;
        if time_left.is_finite() {
            write!(f, " of {time_left:.1} s left")?;
        }
        write!(
            f,
            "; {work_done:.1} s of work, which survives {survives}; relaunch {relaunch:.1} s, slice \
             {reconfiguration:.1} s; a move loses {:.1} s, staying {:.1} s",
            self.moving, self.staying
        )?;
        match self.choice {
            Choice::Wait(seconds) => write!(f, "; it moves in {seconds:.1} s"),
            Choice::Stay | Choice::Move => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAKES: Stakes = Stakes {
        work_done: 10.0,
        time_left: 90.0,
        time_to_full: 30.0,
        relaunch: 4.0,
        reconfiguration: 1.0,
        overflow: 0.9,
        keeping: Keeping::Nothing,
    };

    #[test]
    fn work_that_dies_either_way_is_lost_early_rather_than_late() {
        let weighed = weigh(STAKES);
        assert_eq!((weighed.moving, weighed.staying), (15.0, 0.9 * 45.0));
        assert_eq!(weighed.choice, Choice::Move);
        // With most of the work done a move saves little, and loses all.
        let late = weigh(Stakes {
            work_done: 300.0,
            ..STAKES
        });
        assert_eq!(late.choice, Choice::Stay);
    }

    #[test]
    fn a_job_that_saves_on_the_signal_moves_as_late_as_it_can() {
        let saving = Stakes {
            keeping: Keeping::OnMove,
            ..STAKES
        };
        assert_eq!(weigh(saving).choice, Choice::Wait(20.0));
        let close = Stakes {
            time_to_full: 9.0,
            ..saving
        };
        assert_eq!(weigh(close).choice, Choice::Move);
    }

    #[test]
    fn a_job_that_saves_all_along_is_never_moved() {
        for overflow in [0.1, 0.6, 1.0] {
            let kept = Stakes {
                keeping: Keeping::Always,
                overflow,
                ..STAKES
            };
            assert_eq!(weigh(kept).choice, Choice::Stay);
        }
    }

    #[test]
    fn an_overflow_after_the_end_or_an_unlikely_one_is_none() {
        let after = Stakes {
            time_left: 20.0,
            ..STAKES
        };
        assert_eq!((weigh(after).staying, weigh(after).choice), (0.0, Choice::Stay));
        let unlikely = Stakes {
            overflow: 0.4,
            time_to_full: 1_000.0,
            time_left: f64::INFINITY,
            ..STAKES
        };
        assert_eq!(weigh(unlikely).choice, Choice::Stay);
    }

    #[test]
    fn the_line_has_every_input() {
        assert_eq!(
            weigh(STAKES).to_string(),
            "it runs out with probability 0.90 in 30.0 s of 90.0 s left; 10.0 s of work, which survives no restart; \
             relaunch 4.0 s, slice 1.0 s; a move loses 15.0 s, staying 40.5 s"
        );
    }
}
