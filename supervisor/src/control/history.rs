//! What a runner knows of its program before it runs: what the user says of it, and what earlier runs came to.

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use super::Outcome;

/// Said before [`Request::Submit`](super::Request::Submit) or `Resume` over the same connection.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct About {
    /// What the program's work survives, by the user's word.
    pub kept: WorkKept,
    /// Earlier runs of the program; `None` where the user keeps no history.
    pub history: Option<Evidence>,
}

/// What a program's work survives: from where it goes on when it is started again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkKept {
    /// Nothing: it begins anew.
    #[default]
    Never,
    /// It saves its work when it is asked to stop.
    OnSignal,
    /// It saves as it goes, and loses next to nothing either way.
    Always,
}

/// Earlier runs of one program with the same arguments but for the numbers in them.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Evidence {
    /// The very command, by all that tells it from others: jobs of one user with the same one are siblings.
    pub signature: String,
    /// The numbers in the arguments of the job at hand, in order.
    pub numbers: Vec<f64>,
    /// One entry for each choice of numbers and content of the program's file.
    pub points: Vec<Point>,
}

/// The runs with one choice of numbers.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub struct Point {
    /// The program's file was what it is now.
    pub same_program: bool,
    /// The numbers in the arguments, in order.
    pub numbers: Vec<f64>,
    /// What they came to.
    pub past: Past,
}

/// What runs of the same program with the same arguments came to.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Past {
    /// How often it ran.
    pub runs: u64,
    /// How often it ended well.
    pub done: u64,
    /// Peaks of the last runs that ended well, oldest first, at most [`Past::KEPT`].
    pub peaks: Vec<PastPeak>,
    /// Reserved bytes that a run since then was seen to need and may not have had: what was in use and asked
    /// for when memory ran out, or the peak of a run that ended otherwise. 0 when there is none.
    pub at_least: u64,
    /// Iterations of the last run that ended well; 0 where it passed no marks.
    pub iterations: u64,
    /// The law that its memory followed for most of the last run that showed any.
    pub law: Option<String>,
    /// How the last run ended.
    pub outcome: Outcome,
    /// How long the last run took on each kind of slice that one ended well on, at most [`Past::KEPT`].
    #[serde(default)]
    pub paces: Vec<PastPace>,
}

/// The memory of one run that ended well. Bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct PastPeak {
    /// Peak of what tensors held, where a framework reported it.
    pub allocated: Option<u64>,
    /// Peak of reserved bytes.
    pub reserved: u64,
    /// Peak of what the driver charged, where it was measured.
    pub device: Option<u64>,
    /// Memory of the slice that it ran on.
    pub slice: u64,
}

/// How long a run took, that ended well on one slice.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct PastPace {
    /// GPU model, as NVML names it.
    pub gpu: String,
    /// Profile of the slice.
    pub profile: String,
    /// The GPU was simulated, and so are the seconds.
    pub simulated: bool,
    /// From the start of its process to its end.
    pub seconds: f64,
    /// Iterations in that time; 0 where it passed no marks, and the seconds are of the whole run.
    pub iterations: u64,
}

impl PastPace {
    fn is_there(&self, other: &Self) -> bool {
        (&self.gpu, &self.profile, self.simulated) == (&other.gpu, &other.profile, other.simulated)
    }
}

impl Past {
    /// So many peaks are kept: enough to see how far runs differ, few enough that a program that has changed
    /// its ways is believed soon.
    pub const KEPT: usize = 8;

    /// Adds what came later. A run that ended well settles what was only a lower bound before it.
    pub fn absorb(&mut self, later: &Self) {
        self.runs = self.runs.saturating_add(later.runs);
        self.done = self.done.saturating_add(later.done);
        if later.done > 0 {
            self.at_least = later.at_least;
            self.iterations = later.iterations;
        } else {
            self.at_least = self.at_least.max(later.at_least);
        }
        self.peaks.extend(&later.peaks);
        let surplus = self.peaks.len().saturating_sub(Self::KEPT);
        self.peaks.drain(..surplus);
        if later.law.is_some() {
            self.law.clone_from(&later.law);
        }
        self.outcome = later.outcome;
        self.paces
            .retain(|pace| !later.paces.iter().any(|new| new.is_there(pace)));
        self.paces.extend(later.paces.iter().cloned());
        let surplus = self.paces.len().saturating_sub(Self::KEPT);
        self.paces.drain(..surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(reserved: u64, outcome: Outcome) -> Past {
        let done = outcome == Outcome::Done;
        Past {
            runs: 1,
            done: u64::from(done),
            peaks: done
                .then_some(PastPeak {
                    allocated: None,
                    reserved,
                    device: None,
                    slice: 100,
                })
                .into_iter()
                .collect(),
            at_least: if done { 0 } else { reserved },
            iterations: if done { 7 } else { 0 },
            law: done.then(|| "line".to_owned()),
            outcome,
            paces: Vec::new(),
        }
    }

    #[test]
    fn a_run_that_ended_well_settles_earlier_lower_bounds_and_not_later_ones() {
        let mut past = run(9, Outcome::Oom);
        past.absorb(&run(5, Outcome::Done));
        assert_eq!((past.at_least, past.peaks.len(), past.runs), (0, 1, 2));
        past.absorb(&run(12, Outcome::Oom));
        past.absorb(&run(11, Outcome::Failed));
        assert_eq!((past.at_least, past.outcome), (12, Outcome::Failed));
        assert_eq!((past.iterations, past.law.as_deref()), (7, Some("line")));
    }

    #[test]
    fn of_each_kind_of_slice_the_last_time_is_kept() {
        let pace = |profile: &str, seconds: f64| PastPace {
            gpu: "A100".into(),
            profile: profile.into(),
            simulated: false,
            seconds,
            iterations: 7,
        };
        let mut past = run(1, Outcome::Done);
        for (profile, seconds) in [("1g.5gb", 9.0), ("7g.40gb", 3.0), ("1g.5gb", 8.0)] {
            past.absorb(&Past {
                paces: vec![pace(profile, seconds)],
                ..run(1, Outcome::Done)
            });
        }
        assert_eq!(past.paces, [pace("7g.40gb", 3.0), pace("1g.5gb", 8.0)]);
        past.absorb(&run(1, Outcome::Oom));
        assert_eq!(past.paces.len(), 2, "a run that ended otherwise took no time");
    }

    #[test]
    fn the_last_peaks_are_kept() {
        let mut past = run(1, Outcome::Done);
        for peak in 2..=20 {
            past.absorb(&run(peak, Outcome::Done));
        }
        let kept: Vec<u64> = past.peaks.iter().map(|peak| peak.reserved).collect();
        assert_eq!(kept, (13..=20).collect::<Vec<_>>());
        assert_eq!(past.done, 20);
    }
}
