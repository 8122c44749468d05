//! How fast programs go on the slices of this node.

use std::collections::BTreeMap;

use migm_shared::ids::JobId;

use super::gpus::PlacedGpu;
use super::job::Job;
use super::owner::Owner;
use crate::control::PastPace;
use crate::schedule::GpuIndex;
use crate::schedule::speed::Points;

/// Iterations after which a pace is believed.
const ENOUGH: u64 = 8;
/// And the least wall seconds for them: samples come every 10 ms.
const SPAN: f64 = 0.1;
/// A pace that differs by less, as a share of itself, is no news.
pub(super) const NEWS: f64 = 0.1;

/// The iterations of one attempt, over time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The first mark that was told: what came before it is the program's start.
    first: Option<(f64, u64)>,
    last: (f64, u64),
}

impl Pace {
    /// So many iterations are over now; monotonic seconds.
    pub fn see(&mut self, now: f64, iterations: u64) {
        // Fewer than before: they are counted by another event from here on, or by another process.
        if iterations < self.last.1 {
            *self = Self::default();
        }
        if iterations == 0 || iterations == self.last.1 {
            return;
        }
        self.first.get_or_insert((now, iterations));
        self.last = (now, iterations);
    }

    /// Iterations per wall second.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
    pub fn per_second(&self) -> Option<f64> {
        let (since, before) = self.first?;
        let (seconds, done) = (self.last.0 - since, self.last.1 - before);
        (done >= ENOUGH && seconds >= SPAN).then(|| done as f64 / seconds)
    }
}

/// A user's program, by what tells it from others.
pub(super) type Program = (u32, String);
/// By GPU model and profile.
type Where = (String, String);

/// Iterations per wall second of programs that are here, as their jobs have shown in this supervisor's life.
#[derive(Clone, Debug, Default)]
pub(super) struct Paces(BTreeMap<Program, BTreeMap<Where, f64>>);

impl Paces {
    /// Takes a measurement; true when it is news.
    fn take(&mut self, program: Program, place: Where, pace: f64) -> bool {
        match self.0.entry(program).or_default().entry(place) {
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert(pace);
                true
            }
            std::collections::btree_map::Entry::Occupied(mut known) => {
                let before = *known.get();
                let is_news = (pace - before).abs() > NEWS * before;
                if is_news {
                    known.insert(pace);
                }
                is_news
            }
        }
    }

    pub(super) fn of(&self, program: &Program) -> Option<&BTreeMap<Where, f64>> {
        self.0.get(program)
    }

    pub(super) fn programs(&self) -> impl Iterator<Item = &BTreeMap<Where, f64>> {
        self.0.values()
    }

    /// Forgets programs of which no job is left.
    fn keep(&mut self, alive: impl Fn(&Program) -> bool) {
        self.0.retain(|program, _| alive(program));
    }
}

impl Job {
    /// What tells its program and arguments from others: by the history, where it is kept, else the command.
    pub(super) fn program(&self) -> Program {
        let name = match self.learnt.evidence() {
            Some(known) => known.signature.clone(),
            None => self.submission.command.join("\0"),
        };
        (self.uid, name)
    }

    /// What its runs have taken by its history, on GPUs as real as these: places with paces, in iterations or, where
    /// no marks were passed, in whole runs per wall second.
    pub(super) fn past_paces(&self, simulated: bool, scale: f64) -> Vec<(Where, f64, bool)> {
        let Some(evidence) = self.learnt.evidence() else {
            return Vec::new();
        };
        let same = evidence
            .points
            .iter()
            .find(|point| point.same_program && point.numbers == evidence.numbers);
        let paces = same.into_iter().flat_map(|point| &point.past.paces);
        let paces = paces.filter(|pace| pace.simulated == simulated && pace.seconds > 0.0);
        #[expect(clippy::cast_precision_loss, reason = "iterations are far below 2^53")]
        let pace_of = |pace: &PastPace| {
            let by_marks = pace.iterations > 0;
            let count = if by_marks { pace.iterations as f64 } else { 1.0 };
            let place = (pace.gpu.clone(), pace.profile.clone());
            (place, count / (pace.seconds * scale), by_marks)
        };
        paces.map(pace_of).collect()
    }
}

impl Owner {
    /// The GPU that stands for each of the scheduler's kinds, as far as one is here.
    pub(super) fn kinds(&self) -> Vec<Option<&PlacedGpu>> {
        let mut kinds = vec![None; self.scheduler.kinds()];
        for (index, gpu) in self.gpus.iter().enumerate() {
            let kind = self.scheduler.kind_of(GpuIndex(index));
            if let Some(known) = kind.and_then(|kind| kinds.get_mut(kind)) {
                known.get_or_insert(gpu);
            }
        }
        kinds
    }

    /// Paces by place as the scheduler counts places.
    pub(super) fn points(kinds: &[Option<&PlacedGpu>], paces: &BTreeMap<Where, f64>) -> Points {
        let mut points = Points::new();
        for (kind, gpu) in kinds.iter().enumerate() {
            let Some(gpu) = gpu else { continue };
            for (profile, known) in gpu.table.profiles().iter().enumerate() {
                let place = (gpu.gpu.name.clone(), known.name.clone());
                if let Some(&pace) = paces.get(&place) {
                    points.insert((kind, profile), pace);
                }
            }
        }
        points
    }

    /// Takes the paces of running jobs, and tells the scheduler where they are news.
    pub(super) fn learn_paces(&mut self, now: f64) {
        let seen: Vec<(Program, Where, f64)> = self
            .jobs
            .values()
            .filter_map(|job| {
                let grant = job.grant.as_ref()?;
                let pace = job.pace.per_second()?;
                Some((job.program(), (grant.gpu.clone(), grant.profile.clone()), pace))
            })
            .collect();
        let mut news = Vec::new();
        for (program, place, pace) in seen {
            if self.paces.take(program.clone(), place, pace) && !news.contains(&program) {
                news.push(program);
            }
        }
        if news.is_empty() {
            return;
        }
        let of_them = |job: &&Job| news.contains(&job.program());
        let jobs: Vec<JobId> = self.jobs.values().filter(of_them).map(|job| job.id).collect();
        for job in jobs {
            self.tell_facts(job, now);
        }
    }

    /// Forgets the paces of programs that have gone with their last job.
    pub(super) fn drop_paces(&mut self) {
        let alive: Vec<Program> = self.jobs.values().map(Job::program).collect();
        self.paces.keep(|program| alive.contains(program));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Evidence, Outcome, Past, Point, Submission};

    #[test]
    fn the_start_of_a_program_is_no_part_of_its_pace() {
        let mut pace = Pace::default();
        pace.see(5.0, 0);
        for step in 1..=10_u32 {
            pace.see(20.0 + f64::from(step), u64::from(step) * 2);
        }
        assert_eq!(pace.per_second(), Some(2.0));
        // Nothing new: the pace is that up to the last mark.
        pace.see(90.0, 20);
        assert_eq!(pace.per_second(), Some(2.0));
    }

    #[test]
    fn few_marks_and_another_clock_give_no_pace() {
        let mut pace = Pace::default();
        for step in 1..=5_u32 {
            pace.see(f64::from(step), u64::from(step));
        }
        assert_eq!(pace.per_second(), None);
        for step in 6..=20_u32 {
            pace.see(f64::from(step), u64::from(step));
        }
        assert!(pace.per_second().is_some());
        pace.see(21.0, 3);
        assert_eq!(pace.per_second(), None);
    }

    #[test]
    fn a_pace_is_news_when_it_is_new_or_differs() {
        let mut paces = Paces::default();
        let program = || (0, "p".to_owned());
        let place = || ("A100".to_owned(), "1g.5gb".to_owned());
        assert!(paces.take(program(), place(), 10.0));
        assert!(!paces.take(program(), place(), 10.5));
        assert!(paces.take(program(), place(), 12.0));
        paces.keep(|_| false);
        assert!(paces.of(&program()).is_none());
    }

    #[test]
    fn of_the_history_the_very_command_counts_on_gpus_as_real_as_these() {
        let pace = |profile: &str, iterations, simulated| PastPace {
            gpu: "A100".into(),
            profile: profile.into(),
            simulated,
            seconds: 20.0,
            iterations,
        };
        let past = Past {
            runs: 1,
            done: 1,
            peaks: Vec::new(),
            at_least: 0,
            iterations: 0,
            law: None,
            outcome: Outcome::Done,
            paces: vec![
                pace("1g.5gb", 100, true),
                pace("2g.10gb", 0, true),
                pace("7g.40gb", 9, false),
            ],
        };
        let point = |number: f64| Point {
            same_program: true,
            numbers: vec![number],
            past: past.clone(),
        };
        let history = Evidence {
            signature: "s".into(),
            numbers: vec![2.0],
            points: vec![point(1.0), point(2.0)],
        };
        let submission = Submission {
            command: vec!["p".into(), "2".into()],
            ..Submission::plain()
        };
        let mut job = Job::new(JobId(1), submission, 7);
        assert_eq!(job.program(), (7, "p\u{0}2".to_owned()));
        assert_eq!(job.past_paces(true, 0.1), []);
        job.learnt.evidence = Some(std::sync::Arc::new(history));
        assert_eq!(job.program(), (7, "s".to_owned()));
        let place = |profile: &str| ("A100".to_owned(), profile.to_owned());
        // 20 simulated seconds are 2 here: 50 iterations a second, and half a run.
        assert_eq!(
            job.past_paces(true, 0.1),
            [(place("1g.5gb"), 50.0, true), (place("2g.10gb"), 0.5, false)]
        );
        assert_eq!(job.past_paces(false, 1.0), [(place("7g.40gb"), 0.45, true)]);
    }
}
