//! One run on one slice: what a predictor would have done, seeing at each point only what came before.

use super::decide::{Costs, Judgement, Situation, judge};
use super::{Choice, Forecast, Keeping, Method, Run};

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

/// Replays the observations of `run` from index `from` on a slice of `slice` bytes.
///
/// One unit of x is one second of work, a restart itself takes no time, and nothing is charged beyond what the run
/// shows: what is scored is the forecast.
#[must_use]
pub fn replay(
    run: &Run,
    from: usize,
    method: Method,
    slice: u64,
    horizon: Option<f64>,
    keeping: Keeping,
) -> Replay {
    let mut predictor = method.start();
    let (first, _) = run.span();
    let mut replay = Replay::default();
    for (index, &seen) in run.seen.iter().enumerate().skip(from) {
        if seen.reserved > slice {
            replay.crossing = Some(index);
            break;
        }
        predictor.observe(seen);
        let Some(forecast) = predictor.forecast(horizon) else {
            continue;
        };
        replay.last = Some(forecast);
        let situation = Situation {
            slice_bytes: slice,
            unaccounted_bytes: 0,
            pace: 1.0,
            work_done: seen.x - first,
            costs: Costs::default(),
            keeping,
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
                .position(|later| later.reserved > slice)
                .map(|after| index + after);
            break;
        }
    }
    replay
}

/// The likely peak of the whole run as seen when this share of it has passed: the largest figure so far while the
/// predictor says nothing yet.
#[must_use]
pub fn predicted_at(run: &Run, method: Method, share: f64) -> u64 {
    let mut predictor = method.start();
    let mut top = 0;
    for &seen in run.seen.iter().take_while(|seen| run.share(seen.x) <= share) {
        predictor.observe(seen);
        top = top.max(seen.reserved);
    }
    predictor
        .forecast(Some(run.span().1))
        .map_or(top, |forecast| forecast.peak)
}
