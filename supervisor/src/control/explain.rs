//! Why a job is where it is: what was decided on it, on which figures.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::{JobStatus, WorkKept};

/// All that was decided on one job.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Explanation {
    /// The job as it is.
    pub status: JobStatus,
    /// What the size of its first slice rests on, one line.
    pub start: String,
    /// Decisions in order. The first and the last are kept; `left_out` in between are not.
    pub decisions: Vec<Decision>,
    /// Decisions that are no more kept.
    pub left_out: u64,
    /// When it was submitted; monotonic seconds.
    pub submitted: f64,
    /// What its last attempt has been seen to do.
    pub seen: Seen,
    /// What would serve its next run better, one line.
    pub advice: Option<String>,
    /// The GPUs are simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
}

impl Explanation {
    /// So many of the first decisions are kept: how it began explains much of what follows.
    pub const FIRST: usize = 16;
    /// And so many of the last.
    pub const LAST: usize = 48;
}

/// What an attempt has been seen to do.
#[derive(Clone, Debug, Default, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Seen {
    /// Iteration marks of its leading process.
    pub iterations: u64,
    /// The law that its memory followed for most of the attempt.
    pub law: Option<String>,
}

/// One decision. Repeated without a change, it is kept once, with the last figures.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Decision {
    /// When it was taken first; monotonic seconds.
    pub first: f64,
    /// When it was taken last.
    pub last: f64,
    /// How often in a row.
    pub times: u64,
    /// The attempt that it is about, from 1.
    pub attempt: u32,
    /// What was decided.
    pub verdict: Verdict,
    /// Why, one line.
    pub reason: String,
    /// The figures that were weighed, where a forecast was.
    pub inputs: Option<Inputs>,
}

/// What can be decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The need that the first slice must meet.
    Size,
    /// A slice was leased to it.
    Grant,
    /// It stays where it is.
    Stay,
    /// It moves, before it runs out of memory.
    Move,
    /// It would have to move and cannot.
    Cannot,
    /// Its soft slice is to grow in place.
    Grow,
    /// It ran out of memory and starts again on a slice that holds what it needed.
    Relaunch,
    /// No slice holds it.
    Refuse,
}

impl Verdict {
    /// As it is shown.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Size => "size",
            Self::Grant => "grant",
            Self::Stay => "stay",
            Self::Move => "move",
            Self::Cannot => "cannot",
            Self::Grow => "grow",
            Self::Relaunch => "relaunch",
            Self::Refuse => "refuse",
        }
    }
}

/// What a forecast was weighed on. Bytes are reserved bytes but for `slice`; `x` is in iterations where the
/// job marks them, else in wall seconds of the attempt; times are in seconds, simulated ones where the GPUs are.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Inputs {
    /// The slice's memory by NVML.
    pub slice: u64,
    /// What the driver charges beyond reserved bytes.
    pub unaccounted: u64,
    /// Bytes at `x`.
    pub level: u64,
    /// Where the attempt is.
    pub x: f64,
    /// Up to where the forecast goes.
    pub horizon: f64,
    /// Up to where its law may be trusted.
    pub trusted_to: f64,
    /// The most likely peak up to the horizon.
    pub peak: u64,
    /// Its lower bound.
    pub low: u64,
    /// Its upper bound.
    pub high: u64,
    /// The last few forecasts agree.
    pub settled: bool,
    /// What the forecast rests on.
    pub law: String,
    /// Work that a restart now would lose.
    pub work_done: f64,
    /// What a relaunch costs beyond that work.
    pub relaunch: f64,
    /// What its work survives.
    pub kept: WorkKept,
    /// What a move and staying would cost; `None` where the forecast does not say that it runs out.
    pub stakes: Option<Stakes>,
    /// Peak of reserved bytes that earlier runs of the same command came to; `None` without such.
    pub history_peak: Option<u64>,
}

/// The cost of a move against that of staying, by [`memory::weigh`](crate::memory::weigh()). Seconds, simulated ones
/// where the GPUs are.
#[derive(Clone, Copy, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Stakes {
    /// Probability that it runs out of memory before it ends.
    pub overflow: f64,
    /// Until it does, at the pace so far.
    pub time_to_full: f64,
    /// Until it ends, at the pace so far.
    pub time_left: f64,
    /// Expected loss by a move.
    pub moving: f64,
    /// Expected loss by staying.
    pub staying: f64,
    /// A move is worth it, and more so after this time: what is done until then is kept.
    pub wait: Option<f64>,
}
