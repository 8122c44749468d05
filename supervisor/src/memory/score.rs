//! How good a predictor is on runs whose end is known.

use serde::Serialize;

use super::constants::RESTART_SHARE;
use super::{
    Keeping, On, Policy, Run, Start, announced, cost, ladder, predicted_at, replay, to_bytes, to_float,
};

/// What is asked of a predictor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Track {
    /// Slices that runs overflow, over their peak.
    pub over: f64,
    /// Slices that runs fit, over their peak.
    pub fit: f64,
    /// It is told the last x of the run.
    pub horizon_known: bool,
    /// What restarts lose.
    pub keeping: Keeping,
}

impl Default for Track {
    fn default() -> Self {
        Self {
            over: 0.8,
            fit: 1.05,
            horizon_known: true,
            keeping: Keeping::Nothing,
        }
    }
}

/// What a predictor came to on a set of runs. Shares are fractions of 1; `None` where there is nothing to take the
/// median of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Median of |likely peak / peak - 1| when 5 % of the run has passed.
    pub median_error_5: Option<f64>,
    /// At 10 %.
    pub median_error_10: Option<f64>,
    /// At 20 %.
    pub median_error_20: Option<f64>,
    /// Overflows without a warning.
    pub missed: usize,
    /// Those of them that a trend announced.
    pub missed_avoidable: usize,
    /// Overflows that a trend announced.
    pub runs_avoidable: usize,
    /// Moves off slices that hold the run.
    pub false_restarts: usize,
    /// Runs on slices they overflow.
    pub runs_over: usize,
    /// Runs on slices that hold them.
    pub runs_fit: usize,
    /// Median share of the time to the overflow that is left at the warning; 0 for a miss.
    pub lead_median: Option<f64>,
    /// The same among the overflows that a trend announced.
    pub lead_median_avoidable: Option<f64>,
    /// Mean time over the oracle's, over both kinds of slices.
    pub cost: f64,
    /// Mean slice size times time over the oracle's.
    pub slice_cost: f64,
}

/// Scores a predictor on one track.
#[must_use]
pub fn score(runs: &[Run], start: Start<'_>, track: Track) -> Score {
    let mut score = Score {
        runs_over: runs.len(),
        runs_fit: runs.len(),
        ..Score::default()
    };
    let (mut leads, mut announced_leads) = (Vec::new(), Vec::new());
    for run in runs {
        let peak = to_float(run.peak());
        let horizon = track.horizon_known.then(|| run.span().1);
        let on = |share: f64| {
            let on = On {
                keeping: track.keeping,
                restart: RESTART_SHARE * (run.span().1 - run.span().0),
                ..On::slice(to_bytes(peak * share), horizon)
            };
            replay(run, 0, start, on)
        };
        let over = on(track.over);
        let lead = match (over.warning, over.crossing) {
            (Some(warning), Some(crossing)) => {
                let full = run.share(run.seen[crossing].x);
                if full > 0.0 {
                    1.0 - run.share(warning.x) / full
                } else {
                    0.0
                }
            }
            _ => 0.0,
        };
        leads.push(lead);
        score.missed += usize::from(over.warning.is_none());
        let levels: Vec<u64> = run.seen.iter().map(|seen| seen.reserved).collect();
        if announced(&levels, to_bytes(peak * track.over)) == Some(true) {
            score.runs_avoidable += 1;
            score.missed_avoidable += usize::from(over.warning.is_none());
            announced_leads.push(lead);
        }
        score.false_restarts += usize::from(on(track.fit).warning.is_some());
        for share in [track.over, track.fit] {
            let sizes = ladder(to_bytes(peak * share), run.peak());
            let cost = cost(run, Policy::Predict(start), &sizes, horizon, track.keeping);
            score.cost += cost.time;
            score.slice_cost += cost.slice_time;
        }
    }
    let plays = to_float(2 * runs.len().max(1) as u64);
    score.cost /= plays;
    score.slice_cost /= plays;
    (score.lead_median, score.lead_median_avoidable) = (median(leads), median(announced_leads));
    let error = |share| median(errors(runs, start, share));
    (score.median_error_5, score.median_error_10, score.median_error_20) =
        (error(0.05), error(0.1), error(0.2));
    score
}

/// The slices of real MIG memory sizes on either side of each peak: runs overflow the one below and fit the one above.
/// A run outside their range is left out; `near` keeps only peaks within 10 % of one of them.
#[must_use]
pub fn score_on_sizes(runs: &[Run], start: Start<'_>, sizes: &[u64], near: bool) -> Score {
    let mut score = Score::default();
    for run in runs {
        let peak = to_float(run.peak());
        let below = sizes.iter().copied().filter(|&size| size < run.peak()).max();
        let above = sizes.iter().copied().filter(|&size| size >= run.peak()).min();
        let is_near = |size: u64| !near || (to_float(size) / peak - 1.0).abs() <= 0.1;
        let horizon = Some(run.span().1);
        if let Some(size) = below.filter(|&size| is_near(size)) {
            score.runs_over += 1;
            let over = replay(run, 0, start, On::slice(size, horizon));
            score.missed += usize::from(over.warning.is_none());
            let levels: Vec<u64> = run.seen.iter().map(|seen| seen.reserved).collect();
            if announced(&levels, size) == Some(true) {
                score.runs_avoidable += 1;
                score.missed_avoidable += usize::from(over.warning.is_none());
            }
        }
        if let Some(size) = above.filter(|&size| is_near(size)) {
            score.runs_fit += 1;
            let fit = replay(run, 0, start, On::slice(size, horizon));
            score.false_restarts += usize::from(fit.warning.is_some());
        }
        let ladder: Vec<u64> = sizes
            .iter()
            .copied()
            .filter(|&size| size >= below.unwrap_or(0))
            .collect();
        if !ladder.is_empty() {
            let cost = cost(run, Policy::Predict(start), &ladder, horizon, Keeping::Nothing);
            score.cost += cost.time;
            score.slice_cost += cost.slice_time;
        }
    }
    let plays = to_float(runs.len().max(1) as u64);
    score.cost /= plays;
    score.slice_cost /= plays;
    score
}

/// |likely peak / peak - 1| of each run when this share of it has passed.
#[must_use]
pub fn errors(runs: &[Run], start: Start<'_>, share: f64) -> Vec<f64> {
    let error =
        |run: &Run| (to_float(predicted_at(run, start, share)) / to_float(run.peak().max(1)) - 1.0).abs();
    runs.iter().map(error).collect()
}

/// The value at this share of the sorted ones, by the nearest rank.
#[must_use]
pub fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank among a few thousand"
    )]
    let rank = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(rank).copied()
}

fn median(values: Vec<f64>) -> Option<f64> {
    quantile(values, 0.5)
}

/// Mean time over the oracle's of a policy without a predictor, over the slices of `track`.
#[must_use]
pub fn policy_cost(runs: &[Run], policy: Policy<'_>, track: Track) -> f64 {
    let mut sum = 0.0;
    for run in runs {
        for share in [track.over, track.fit] {
            let sizes = ladder(to_bytes(to_float(run.peak()) * share), run.peak());
            sum += cost(run, policy, &sizes, Some(run.span().1), track.keeping).time;
        }
    }
    sum / to_float(2 * runs.len().max(1) as u64)
}
