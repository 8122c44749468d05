//! One run on one slice: what a predictor would have done, seeing at each point only what came before.

use super::decide::{Costs, Judgement, Situation, judge};
use super::{Choice, Forecast, Keeping, Run, Start};

/// The first point at which a job would have been moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warning {
    /// Index of the last observation seen.
    pub index: usize,
    /// Its x.
    pub x: f64,
    /// The forecast it rests on.
    pub forecast: Forecast,
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replay {
    /// The first warning that came before memory ran out.
    pub warning: Option<Warning>,
    /// Index of the observation that does not fit, counted in the run.
    pub crossing: Option<usize>,
    /// The last forecast: at the warning, at the crossing, else at the end.
    pub last: Option<Forecast>,
}

/// Where a run is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct On {
    /// Bytes of the slice.
    pub slice: u64,
    /// The last x, if it is told.
    pub horizon: Option<f64>,
    /// What its work survives.
    pub keeping: Keeping,
    /// What a restart takes, in units of x.
    pub restart: f64,
}

impl On {
    /// A slice of so many bytes for a job that starts from zero, restarts in no time, and tells its last x.
    #[must_use]
    pub const fn slice(slice: u64, horizon: Option<f64>) -> Self {
        Self {
            slice,
            horizon,
            keeping: Keeping::Nothing,
            restart: 0.0,
        }
    }
}

/// Replays the observations of `run` from index `from`. One unit of x is one second of work, and nothing is charged
/// beyond what the run shows: what is scored is the forecast.
#[must_use]
pub fn replay(run: &Run, from: usize, start: Start<'_>, on: On) -> Replay {
    let mut predictor = start();
    let first = run.seen.get(from).map_or(0.0, |seen| seen.x);
    let mut replay = Replay::default();
    for (index, &seen) in run.seen.iter().enumerate().skip(from) {
        if seen.reserved > on.slice {
            replay.crossing = Some(index);
            break;
        }
        predictor.observe(seen);
        let Some(forecast) = predictor.forecast(on.horizon) else {
            continue;
        };
        replay.last = Some(forecast);
        let situation = Situation {
            slice_bytes: on.slice,
            unaccounted_bytes: 0,
            pace: 1.0,
            work_done: seen.x - first,
            costs: Costs {
                relaunch: on.restart,
                reconfiguration: 0.0,
            },
            keeping: on.keeping,
        };
        if let Judgement::Overflows(weighing) = judge(&forecast, &situation)
            && weighing.choice == Choice::Move
        {
            replay.warning = Some(Warning {
                index,
                x: seen.x,
                forecast,
            });
            replay.crossing = run.seen[index..]
                .iter()
                .position(|later| later.reserved > on.slice)
                .map(|after| index + after);
            break;
        }
    }
    replay
}

/// The likely peak of the whole run as seen when this share of it has passed: the largest figure so far while the
/// predictor says nothing yet.
#[must_use]
pub fn predicted_at(run: &Run, start: Start<'_>, share: f64) -> u64 {
    let mut predictor = start();
    let mut top = 0;
    for &seen in run.seen.iter().take_while(|seen| run.share(seen.x) <= share) {
        predictor.observe(seen);
        top = top.max(seen.reserved);
    }
    predictor
        .forecast(Some(run.span().1))
        .map_or(top, |forecast| forecast.peak)
}
