//! What the runner knows of its program from earlier runs, and what it keeps of this one.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Runner;
use crate::control::{
    About, Evidence, Explanation, Figures, Grant, JobStatus, Outcome, Past, PastPace, PastPeak, Unmet,
    WorkKept,
};
use crate::job::history::{self, Entry, History, Signature};
use crate::job::record::Clock;
use crate::job::{Order, explained, say};

/// The part of the history that is this program's.
#[derive(Debug)]
pub(super) struct Chronicle {
    history: History,
    signature: Signature,
    evidence: Evidence,
    /// The last attempt's.
    gpu: String,
    slice: u64,
    /// Reserved bytes that an attempt needed and did not have.
    at_least: u64,
}

impl Chronicle {
    /// Reads what is known. A history that cannot be read is said once and is no reason not to run.
    pub(super) fn open(order: &Order) -> Option<Self> {
        let history = History::new(order.history.clone()?);
        let set = order.environment.settings("");
        let signature = Signature::of(&order.command, |name| {
            let own = std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
            // What the runner sets for the program counts as the user's would.
            let ours = || set.iter().find(|setting| setting.name == name);
            own.or_else(|| ours().map(|setting| setting.value.clone()))
        })?;
        let entries = history
            .family(&signature.family())
            .inspect_err(|error| say(format_args!("{error}; this run starts without it")))
            .unwrap_or_default();
        Some(Self {
            evidence: history::evidence(&signature, entries),
            history,
            signature,
            gpu: String::new(),
            slice: 0,
            at_least: 0,
        })
    }

    /// Takes the end of an attempt.
    pub(super) fn attempt_ended(&mut self, grant: &Grant, unmet: Option<Unmet>) {
        self.gpu.clone_from(&grant.gpu);
        self.slice = grant.memory;
        let needed = unmet.map_or(0, |unmet| unmet.in_use.saturating_add(unmet.asked));
        self.at_least = self.at_least.max(needed);
    }

    /// What this run came to; `None` of a program that has taken no device memory, and asked for none.
    fn past(&self, outcome: Outcome, figures: &Figures) -> Option<Past> {
        let done = outcome == Outcome::Done;
        let at_least = self.at_least.max(figures.reserved);
        let peak = PastPeak {
            allocated: figures.allocated,
            reserved: figures.reserved,
            device: figures.device,
            slice: self.slice,
        };
        (at_least > 0).then(|| Past {
            runs: 1,
            done: u64::from(done),
            peaks: if done { vec![peak] } else { Vec::new() },
            // A run that ended well has had all it needed, whatever an attempt before asked for.
            at_least: if done { 0 } else { at_least },
            iterations: 0,
            law: None,
            outcome,
            paces: Vec::new(),
        })
    }
}

impl Runner {
    /// What the supervisor is told of the program before its job.
    pub(super) fn about(&self) -> Option<About> {
        let history = self.history.as_ref().map(|history| history.evidence.clone());
        // A detached job's runner keeps what was decided on it, history or not.
        let speaks = history.is_some() || self.kept.is_some() || self.order.kept != WorkKept::Never;
        speaks.then_some(About {
            kept: self.order.kept,
            history,
        })
    }

    /// Tells the user why no slice followed, or what would serve the next run better.
    pub(super) fn say_what_it_came_to(&self, status: &JobStatus) {
        let last = self.attempts.last().and_then(|last| last.outcome);
        let advice = self
            .explained
            .as_ref()
            .and_then(|explained| explained.advice.as_ref());
        match (last, &status.note, advice) {
            (Some(Outcome::Oom | Outcome::Moved), Some(note), _) => say(note),
            (_, _, Some(advice)) => self.murmur(advice),
            _ => {}
        }
    }

    /// How long the last attempt took, where it ended well. `None` where only a part of the run was its own, and no marks
    /// tell which.
    fn pace(&self, explained: &Explanation, gpu: &str) -> Option<PastPace> {
        let last = self.attempts.last()?;
        let clock = Clock {
            simulated: explained.simulated,
            time_scale: explained.time_scale,
        };
        let iterations = explained.seen.iterations;
        let is_whole = self.attempts.len() == 1 || self.order.kept == WorkKept::Never;
        let is_told = last.outcome == Some(Outcome::Done) && (is_whole || iterations > 0);
        is_told.then_some(PastPace {
            gpu: gpu.to_owned(),
            profile: last.profile.clone(),
            simulated: clock.simulated,
            seconds: clock.seconds(last.end? - last.start),
            iterations,
        })
    }

    /// Keeps what this run came to. The program keeps its exit status, also where that cannot be written.
    pub(super) fn write_history(&mut self) {
        let Some(chronicle) = self.history.take() else {
            return;
        };
        if let Some(explained) = &self.explained
            && let Err(error) = explained::keep(chronicle.history.path(), explained)
        {
            self.murmur(format_args!("cannot keep what was decided on the job: {error}"));
        }
        let Some(outcome) = self.attempts.last().and_then(|last| last.outcome) else {
            return;
        };
        let mut figures = self.page.figures();
        if let Some(last) = &self.last {
            figures.device = last.figures.device;
            figures.allocated = figures.allocated.or(last.figures.allocated);
        }
        let Some(mut past) = chronicle.past(outcome, &figures) else {
            return;
        };
        let explained = self.explained.as_deref();
        if let Some(explained) = explained {
            past.law.clone_from(&explained.seen.law);
            past.iterations = explained.seen.iterations;
            past.paces = self.pace(explained, &chronicle.gpu).into_iter().collect();
        }
        let simulated = explained.is_some_and(|explained| explained.simulated);
        let today = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let entry = Entry::new(&chronicle.signature, chronicle.gpu, simulated, today, past);
        match chronicle.history.add(&entry) {
            Ok(None) => {}
            Ok(Some(aside)) => say(format_args!(
                "the history was of another version and is now {}",
                aside.display()
            )),
            Err(error) => self.murmur(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::units::GIB;

    fn chronicle(at_least: u64) -> Chronicle {
        Chronicle {
            history: History::new("unused".into()),
            signature: Signature {
                program: "/bin/p".into(),
                words: vec![],
                environment: vec![],
                numbers: vec![],
                content: String::new(),
            },
            evidence: Evidence::default(),
            gpu: String::new(),
            slice: 10 * GIB,
            at_least,
        }
    }

    fn figures(reserved: u64) -> Figures {
        Figures {
            reserved,
            ..Figures::default()
        }
    }

    #[test]
    fn a_run_that_ended_well_after_running_out_is_a_peak_and_no_lower_bound() {
        let past = chronicle(9 * GIB).past(Outcome::Done, &figures(9 * GIB)).unwrap();
        assert_eq!((past.peaks.len(), past.at_least, past.done), (1, 0, 1));
        assert_eq!(past.peaks[0].slice, 10 * GIB);
    }

    #[test]
    fn any_other_end_is_a_lower_bound() {
        let past = chronicle(9 * GIB).past(Outcome::Oom, &figures(4 * GIB)).unwrap();
        assert_eq!((past.peaks.len(), past.at_least, past.done), (0, 9 * GIB, 0));
        let past = chronicle(0).past(Outcome::Signalled, &figures(4 * GIB)).unwrap();
        assert_eq!((past.peaks.len(), past.at_least), (0, 4 * GIB));
    }

    #[test]
    fn a_program_without_device_memory_is_not_kept() {
        assert_eq!(chronicle(0).past(Outcome::Done, &figures(0)), None);
    }
}
