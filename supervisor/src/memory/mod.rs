//! What a running job's memory will come to, and whether to move the job for it.
//!
//! One job's way through this room:
//!
//! 1. The daemon feeds each sample to the job's [`Track`]. Samples of one iteration (or of one second,
//!    where a job has no iterations) become one [`Observation`]: its peak counts.
//! 2. The [`Predictor`] takes each finished observation: [`Paper`] is the straight line of MIGM (arXiv
//!    2508.18556), [`Migm`] recognises a law before it draws a line, [`Maximum`] says that what was seen is
//!    what will be.
//! 3. [`Predictor::forecast`] gives the peak up to the horizon with its bounds, and whether the forecast
//!    has settled.
//! 4. [`judge`] sets it against the slice, and [`weigh()`] the work expected to be saved against the work lost;
//!    [`decide()`] puts both into one line. After an out-of-memory that ended an attempt, [`after_oom`] gives the need.
//!
//! How good that is is measured here as well, on runs whose end is known: [`runs`] reads them from a log and
//! [`generate`] makes them up; [`replay()`] shows a predictor their prefix, [`cost()`] plays them to their end, and
//! [`score()`] sums up.
//!
//! Figures are reserved bytes until [`decide()`] adds what the driver charges beyond them (context, modules).
//! Every number that the paper leaves open is fixed in [`constants`], with the reason.

use std::str::FromStr;

mod announced;
pub mod constants;
mod cost;
mod decide;
pub mod generate;
#[cfg(test)]
mod goals;
mod line;
mod maximum;
mod migm;
mod paper;
mod replay;
mod score;
mod series;
mod shape;
#[cfg(test)]
mod shapes;
mod stretch;
mod trace;
mod track;
mod weigh;

pub use announced::announced;
pub use cost::{Cost, Policy, cost, ladder};
pub use decide::{Costs, Judgement, Situation, Verdict, after_oom, decide, judge};
pub use maximum::Maximum;
pub use migm::{Margins, Migm};
pub use paper::{Converge, Paper, Reading};
pub use replay::{On, Replay, Warning, predicted_at, replay};
pub use score::{Score, Track as ScoreTrack, errors, policy_cost, quantile, score, score_on_sizes};
pub use series::Series;
pub use trace::{Run, TraceError, runs};
pub use track::Track;
pub use weigh::{Choice, Keeping, Stakes, Weighing, weigh};

/// Makes a predictor that has seen nothing.
pub type Start<'a> = &'a dyn Fn() -> Box<dyn Predictor + Send>;

/// What one iteration (or second) of a job did to its memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// Iteration number, or seconds since the attempt started.
    pub x: f64,
    /// Bytes that the program's tensors asked for, by a framework's report; equal to `reserved` where no
    /// framework reports, so that the reuse ratio is 1.
    pub requested: u64,
    /// Largest reserved bytes meanwhile. Not the bytes at the end of the iteration: the peak within is what
    /// meets the limit.
    pub reserved: u64,
    /// Largest bytes held by tensors, where a framework reports it.
    pub allocated: Option<u64>,
}

impl Observation {
    /// An observation of a job whose framework reports nothing.
    #[must_use]
    pub fn reserved_only(x: f64, reserved: u64) -> Self {
        Self {
            x,
            requested: reserved,
            reserved,
            allocated: None,
        }
    }
}

/// The shape a forecast rests on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Law {
    /// What was seen is what will be.
    Max,
    /// No growth that stands out from the noise.
    Flat,
    /// It seems to grow, and has not been seen for long enough.
    Unclear,
    /// It grows, each time by less: no line is drawn through it.
    Settling,
    /// Growth along a straight line.
    Line,
    /// Growth that becomes faster: a line is a lower bound of it.
    Convex,
}

/// The peak of a job's memory from its start to a horizon, in reserved bytes (allocated bytes by [`Paper`]
/// where a framework reports them).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// The most likely peak.
    pub peak: u64,
    /// Lower bound at [`constants::CONFIDENCE`], one-sided.
    pub low: u64,
    /// Upper bound at [`constants::CONFIDENCE`], one-sided: what a slice must hold.
    pub high: u64,
    /// What must exceed the limit before the job is moved: the lower bound by [`Migm`], the upper one by [`Paper`].
    pub decides: u64,
    /// The last few forecasts agree; before that nothing is done on them.
    pub converged: bool,
    /// What it rests on.
    pub law: Law,
    /// The horizon: as given, else as far again as the job has run.
    pub horizon_used: f64,
    /// Up to here the law may be acted on; beyond, it has been seen for too short a time.
    pub trusted_to: f64,
    /// Where the job is: the last `x`.
    pub now: f64,
    /// Bytes at `now` by the same law.
    pub level: u64,
}

/// Learns from one attempt's observations, in order of `x`.
pub trait Predictor: std::fmt::Debug {
    /// Takes the next observation.
    fn observe(&mut self, observation: Observation);

    /// The peak up to `horizon`, in units of `x`; `None` while there is too little to go on.
    ///
    /// With no horizon known, it looks as far ahead as the job has run: a job that has lasted this long is
    /// expected to last as long again (Lindy's rule, the median of a scale-free prior on the length).
    fn forecast(&self, horizon: Option<f64>) -> Option<Forecast>;
}

/// The horizon of a job that is at `now`: never behind it.
fn horizon_or_as_long_again(horizon: Option<f64>, now: f64) -> f64 {
    horizon.unwrap_or(2.0 * now).max(now)
}

/// The predictors by name.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Method {
    /// [`Paper`].
    Paper,
    /// [`Paper`] by [`Reading::Cumulative`].
    PaperCumulative,
    /// [`Maximum`].
    Max,
    /// [`Migm`].
    #[default]
    Migm,
}

/// The name is no predictor.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no predictor; there are paper, paper-cumulative, max and migm")]
pub struct UnknownMethod(String);

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        match text {
            "paper" => Ok(Self::Paper),
            "paper-cumulative" => Ok(Self::PaperCumulative),
            "max" => Ok(Self::Max),
            "migm" => Ok(Self::Migm),
            _ => Err(UnknownMethod(text.to_owned())),
        }
    }
}

impl Method {
    /// As it is given.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::PaperCumulative => "paper-cumulative",
            Self::Max => "max",
            Self::Migm => "migm",
        }
    }

    /// A predictor that has seen nothing.
    #[must_use]
    pub fn start(self) -> Box<dyn Predictor + Send> {
        match self {
            Self::Paper => Box::new(Paper::default()),
            Self::PaperCumulative => Box::new(Paper::new(Reading::Cumulative, Converge::default())),
            Self::Max => Box::new(Maximum::default()),
            Self::Migm => Box::new(Migm::default()),
        }
    }
}

/// Bytes as a float for the fits: exact to 2^53, far beyond any device.
#[expect(clippy::cast_precision_loss, reason = "device memory is far below 2^53 bytes")]
fn to_float(bytes: u64) -> f64 {
    bytes as f64
}

/// Back to bytes, rounded up; below zero is zero, beyond `u64` is its maximum.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float to an integer saturates, and a bound of no meaning (NaN) becomes 0"
)]
fn to_bytes(value: f64) -> u64 {
    value.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_by_name() {
        assert_eq!("paper".parse(), Ok(Method::Paper));
        assert_eq!(
            "line".parse::<Method>().unwrap_err().to_string(),
            "`line` is no predictor; there are paper, paper-cumulative, max and migm"
        );
    }

    #[test]
    fn an_unknown_horizon_is_as_long_again() {
        assert_eq!(horizon_or_as_long_again(None, 10.0), 20.0);
        assert_eq!(horizon_or_as_long_again(Some(50.0), 10.0), 50.0);
        // A job that runs beyond what the user said is still running.
        assert_eq!(horizon_or_as_long_again(Some(5.0), 10.0), 10.0);
    }
}
