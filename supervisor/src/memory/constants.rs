//! What the paper leaves open, and what the gates of [`super::Migm`] need, each with its reason.
//!
//! | figure | the paper says | here |
//! |---|---|---|
//! | z of the bound | 99 % | 2.326, one-sided: only a peak above the bound hurts |
//! | first forecast | nothing | 4 observations: a line has 2 parameters, so 2 are left for its error |
//! | CONVERGE | named, not defined | 3 successive fits, at the same horizon, within 5 % of the last |
//! | m per iteration | requested tensor bytes | the same; peak of reserved bytes where no framework reports |
//! | ratio | a line on the inverse reuse ratio | requested / physical, never below 1 |
//! | horizon unknown | not treated | as far again as the job has run |

/// Probability that one observation stays below a bound.
pub const CONFIDENCE: f64 = 0.99;
/// Standard normal quantile of [`CONFIDENCE`], one-sided. The two-sided value, 2.576, would bound a dip too.
pub const Z: f64 = 2.326_347_874_040_841;
/// Observations before [`super::Paper`] forecasts. With [`AGREEING_FITS`] the first forecast that is acted on
/// comes at observation 6, where the paper's Qwen2 example is flagged.
pub const PAPER_FIRST: usize = 4;
/// So many successive fits must agree before a forecast is acted on.
pub const AGREEING_FITS: usize = 3;
/// How far apart they may be, as a share of the last.
pub const AGREEMENT: f64 = 0.05;

/// Observations since the last restart of the fit before [`super::Migm`] forecasts: a level, a slope, a
/// scatter and a change of slope are read off them.
pub const MIGM_FIRST: usize = 5;
/// Observations that the fit of [`super::Migm`] looks back on. The error of a slope falls with the power 3/2
/// of this; beyond it a late change of pace would be seen too late. 1 KiB a job.
pub const WINDOW: usize = 64;
/// A rise from one observation to the next by more than this share of the level is a jump or start-up, not
/// growth: the fit starts again. A decoder whose cache grows by a quarter of all its memory per step is flagged
/// once it is large enough that the step is less than that.
pub const JUMP_SHARE: f64 = 0.25;
/// And it must stand out this many times from the scatter about the line.
pub const JUMP_SIGMAS: f64 = 6.0;
/// Doubt that is left when a slope is called growth, divided by how often the question was asked (Bonferroni):
/// it is asked at every observation, and a long flat job must not be found to grow by asking often enough.
pub const GROWTH_DOUBT: f64 = 0.001;
/// When the later half of the window rises at less than this share of the pace of the earlier half, the
/// growth is settling.
pub const SETTLING_SHARE: f64 = 0.9;
/// When the earlier half of the window rises at less than this share of the pace of the later half, the rise
/// is one step and not growth. Growth with the square of x keeps a third.
pub const STEP_SHARE: f64 = 0.2;
/// Growth is acted on when it meets the limit within this many times the stretch on which it was seen. Ten
/// points tell a line to a hundred; growth seen for a moment and said to last all day is mostly start-up.
pub const REACH: f64 = 10.0;

/// Below this probability of running out, a job is never moved: the rule on work leaves out the wait for a
/// larger slice and what a larger slice takes from others.
pub const LEAST_LIKELY: f64 = 0.5;
