//! What the paper leaves open, and what the gates of [`super::Migm`] need, each with its reason.
//!
//! | figure | the paper says | here |
//! |---|---|---|
//! | z of the bound | 99 % | 2.326, one-sided: only a peak above the bound hurts |
//! | first forecast | nothing | 4 observations: a line has 2 parameters, so 2 are left for its error |
//! | CONVERGE | named, not defined | 3 successive fits, at the same horizon, within 5 % of the last; [`super::Migm`]: growth recognised |
//! | m per iteration | requested tensor bytes | the same; peak of reserved bytes where no framework reports |
//! | ratio | a line on the inverse reuse ratio | requested / physical, never below 1 |
//! | horizon unknown | not treated | as far again as the job has run; [`super::Migm`]: a quarter further |

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

/// Confidence of the lower bound that decides *whether* to move: a false move costs a whole run, and the question is
/// asked at each observation.
pub const CERTAINTY: f64 = 0.998;
/// Confidence of the upper bound that decides *where to*: too low costs an out-of-memory, too high a larger slice.
pub const UPPER: f64 = 0.96;
/// Points that a stretch is thinned to. The error of a slope falls with the power 3/2 of this; 1 KiB a figure.
pub const POINTS: usize = 64;
/// Observations of a stretch before growth is looked for: a level, a slope, a scatter and a change of slope are
/// read off them.
pub const MIGM_FIRST: usize = 6;
/// Observations from which four quarters can be told apart; with fewer only even increments are growth.
pub const QUARTERS_FROM: usize = 8;
/// CUSUM of what lies beyond the fit, as a share of the level: more is a jump or a fall, and the fit starts again.
pub const JUMP_SHARE: f64 = 0.12;
/// What the CUSUM forgives per observation: this share of the level, and three standard deviations.
pub const DRIFT_SHARE: f64 = 0.01;
/// Growth that began below this share of where it is now is start-up, or the rise of a tooth: what a job holds for
/// good (weights, data) comes first, and caches and leaks come on top of it.
pub const BASE_SHARE: f64 = 0.2;
/// Growth in one observation by more than this share of what the regime began with is start-up as well, or the rise of
/// a tooth.
pub const HASTE: f64 = 0.065;
/// A pause between two samples counts as so many of their usual distance at most: a gap was not seen to be growth.
pub const LONGEST_PAUSE: f64 = 4.0;
/// Growth is news where the level comes within this share of the peak: below, it was held before.
pub const NEWS_SHARE: f64 = 0.98;
/// With no horizon known, [`super::Migm`] looks this many times as far as the job has run. If a job that has lasted
/// this long lasts as long again in one case of two (Lindy's rule), it is there with probability 1 / 1.25 = 0.8 at
/// the time that the forecast says; moving earlier saves no more than it loses.
pub const UNKNOWN_AHEAD: f64 = 1.25;
/// A quarter of a stretch that takes more than this share of its whole rise is a step.
pub const ONE_STEP: f64 = 0.6;
/// Growth in steps is made of so many equal ones at least. Unequal ones count for fewer, by the inverse of the sum of
/// the squares of their shares: the first maxima of a ratchet are few that count.
pub const LEAST_STEPS: f64 = 5.4;
/// The largest step may take this much more of the whole rise than an even one: growth seen in few steps says little
/// of the next.
pub const COARSEST: f64 = 0.2;
/// Later halves that rise at less than this share of the pace of the earlier half are settling.
pub const SETTLING_SHARE: f64 = 0.85;
/// Later halves that rise at more than this multiple of the pace of the earlier half steepen.
pub const STEEPENING_SHARE: f64 = 1.25;
/// Increments that differ by less than this from their middle are one constant increment: a cache of one block a
/// token, an object forgotten a step.
pub const STEADY: f64 = 0.4;
/// Growth is acted on when it meets the limit within this many times the stretch on which it was seen. Ten
/// points tell a line to a hundred; growth seen for a moment and said to last all day is mostly start-up.
pub const REACH: f64 = 60.0;
/// The same for growth that steepens.
pub const STEEP_REACH: f64 = 10.0;
/// The same where all increments are alike.
pub const STEADY_REACH: f64 = 100.0;

/// Below this probability of running out, a job is never moved: the rule on work leaves out the wait for a
/// larger slice and what a larger slice takes from others.
pub const LEAST_LIKELY: f64 = 0.5;
/// Standard errors that a slope must lie above zero to be looked at: enough for the likely figure. Whether to move
/// needs [`CERTAINTY`].
pub const GLANCE: f64 = 1.0;
/// A regime that is not the first is believed when it has lasted this share of all before it: a burst late in a run
/// is mostly over soon.
pub const REGIME_SHARE: f64 = 0.1;
/// Reserved bytes follow the allocated ones when they have risen by this share of what those have.
pub const FOLLOWING_SHARE: f64 = 0.7;
/// CONVERGE of [`super::Migm`]: growth was recognised at so many successive observations.
pub const GROWING_FOR: u32 = 1;
/// What a restart takes in scores, as a share of the run: loading, and making the slice.
pub const RESTART_SHARE: f64 = 0.02;
/// Tensors that grow at less than this share of the pace of reserved bytes do not explain those: they are fragments.
pub const FRAGMENTS_SHARE: f64 = 0.5;
/// With 16 points or more, an unclear rise needs so many standard errors for its line to be the likely figure.
pub const FAINT: f64 = 4.0;
