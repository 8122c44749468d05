//! What people and programs are shown of jobs and batches.
//!
//! 1. The supervisor sums a batch up in wall seconds and NVML's joules ([`BatchSummary`]).
//! 2. [`BatchReport`] turns that into simulated seconds where the GPU is simulated, sets it against a
//!    baseline run of the same batch if there was one, and sums up the parts. It is the JSON document.
//! 3. [`table`] shows the same numbers to people, each with what it is: measured or simulated.

use serde::Serialize;

use crate::control::{BatchSummary, JobStatus, Outcome};
use crate::job::record::{AttemptLine, Clock};

pub mod chart;
pub mod deployment;
pub mod gantt;
mod parts;
pub mod picture;
pub mod progress;
pub mod simulation;
pub mod status;
pub mod table;

/// One job of a batch; times in simulated seconds since the batch's start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobLine {
    /// Name for people.
    pub name: String,
    /// Part of the batch.
    pub part: Option<String>,
    /// Attempts in order.
    pub attempts: Vec<AttemptLine>,
    /// Peak of reserved bytes.
    pub peak_bytes: u64,
    /// The forecast of that which was acted on last, else the first that converged.
    pub predicted_peak_bytes: Option<u64>,
}

/// What a run of the batch took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// From the start to the end of the last job, simulated seconds.
    pub makespan_s: f64,
    /// Energy of the whole GPUs meanwhile, joules; null where there is no counter.
    pub energy_j: Option<f64>,
}

/// A part of the batch on its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartLine {
    /// Its name in the batch.
    pub name: String,
    /// Number of jobs.
    pub jobs: usize,
    /// Baseline makespan / ours.
    pub throughput_ratio: Option<f64>,
    /// Baseline energy / ours.
    pub energy_ratio: Option<f64>,
}

/// The report of a batch. Ratios are baseline / ours, so above 1 is better; null without a baseline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchReport {
    /// GPU model by NVML.
    pub gpu: String,
    /// The GPUs are simulated: seconds and joules are the simulation's.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
    /// In order of submission.
    pub jobs: Vec<JobLine>,
    /// From the start to the end of the last job, simulated seconds.
    pub makespan_s: f64,
    /// Energy of the whole GPUs meanwhile, joules.
    pub energy_j: Option<f64>,
    /// The same batch run another way.
    pub baseline: Option<Cost>,
    /// Baseline makespan / ours.
    pub throughput_ratio: Option<f64>,
    /// Baseline energy / ours.
    pub energy_ratio: Option<f64>,
    /// Parts that were measured on their own.
    pub parts: Vec<PartLine>,
    /// Attempts that ended in out of memory.
    pub ooms: u64,
    /// Attempts moved on a forecast.
    pub early_restarts: u64,
    /// Attempts moved for a better slice.
    pub moves: u64,
    /// GPU instances created plus GPU instances destroyed.
    pub reconfigurations: u64,
}

impl BatchReport {
    /// The report of one run, set against `baseline` if there was one.
    #[must_use]
    pub fn new(ours: &BatchSummary, baseline: Option<&BatchSummary>) -> Self {
        let clock = clock(ours);
        let mine = cost(ours);
        let other = baseline.map(cost);
        Self {
            gpu: ours.gpu.clone(),
            simulated: ours.simulated,
            time_scale: ours.time_scale,
            jobs: ours
                .jobs
                .iter()
                .map(|job| line(job, ours.started, &clock))
                .collect(),
            makespan_s: mine.makespan_s,
            energy_j: mine.energy_j,
            baseline: other,
            throughput_ratio: throughput_ratio(&mine, other.as_ref()),
            energy_ratio: energy_ratio(&mine, other.as_ref()),
            parts: parts(ours),
            ooms: ours.ooms,
            early_restarts: ours.early_restarts,
            moves: ours.moves,
            reconfigurations: ours.reconfigurations,
        }
    }
}

/// Whether every job of the batch was done.
#[must_use]
pub fn all_done(summary: &BatchSummary) -> bool {
    let outcome = |job: &JobStatus| job.attempts.last().and_then(|last| last.outcome);
    summary.jobs.iter().all(|job| outcome(job) == Some(Outcome::Done))
}

fn clock(summary: &BatchSummary) -> Clock {
    Clock {
        simulated: summary.simulated,
        time_scale: summary.time_scale,
    }
}

fn cost(summary: &BatchSummary) -> Cost {
    Cost {
        makespan_s: clock(summary).seconds(summary.makespan),
        energy_j: summary.energy_j,
    }
}

fn line(job: &JobStatus, origin: f64, clock: &Clock) -> JobLine {
    let attempts = job
        .attempts
        .iter()
        .map(|record| AttemptLine::new(record, origin, clock));
    JobLine {
        name: job.name.clone(),
        part: job.part.clone(),
        attempts: attempts.collect(),
        peak_bytes: job.figures.reserved,
        predicted_peak_bytes: job.predicted_peak_bytes,
    }
}

/// The parts named in the batch, without ratios: nothing has measured them apart.
fn parts(ours: &BatchSummary) -> Vec<PartLine> {
    let mut parts: Vec<PartLine> = Vec::new();
    for name in ours.jobs.iter().filter_map(|job| job.part.as_ref()) {
        match parts.iter_mut().find(|part| part.name == *name) {
            Some(part) => part.jobs += 1,
            None => parts.push(PartLine {
                name: name.clone(),
                jobs: 1,
                throughput_ratio: None,
                energy_ratio: None,
            }),
        }
    }
    parts
}

fn throughput_ratio(ours: &Cost, baseline: Option<&Cost>) -> Option<f64> {
    ratio(
        Some(ours.makespan_s),
        baseline.map(|baseline| baseline.makespan_s),
    )
}

fn energy_ratio(ours: &Cost, baseline: Option<&Cost>) -> Option<f64> {
    ratio(ours.energy_j, baseline.and_then(|baseline| baseline.energy_j))
}

fn ratio(ours: Option<f64>, baseline: Option<f64>) -> Option<f64> {
    let ratio = baseline? / ours?;
    ratio.is_finite().then_some(ratio)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control::{AttemptRecord, Figures, JobState};
    use migm_shared::ids::{BatchId, Incarnation, JobId};

    pub(crate) fn attempt(
        profile: &str,
        start: f64,
        end: Option<f64>,
        outcome: Option<Outcome>,
    ) -> AttemptRecord {
        AttemptRecord {
            profile: profile.into(),
            slice: Incarnation(1),
            placement: 2,
            start,
            end,
            outcome,
            status: outcome.map(|outcome| if outcome == Outcome::Done { 0 } else { 143 }),
            why: (outcome == Some(Outcome::Moved)).then(|| "9.00 GiB forecast, 4.75 GiB there".into()),
            memory: 0,
            for_speed: false,
        }
    }

    pub(crate) fn job(id: u64, name: &str, part: &str, attempts: Vec<AttemptRecord>) -> JobStatus {
        JobStatus {
            id: JobId(id),
            name: name.into(),
            state: JobState::Ended,
            attempts,
            figures: Figures {
                reserved: 9_000_000_000,
                allocations: 50,
                frees: 50,
                ..Figures::default()
            },
            predicted_peak_bytes: (id == 1).then_some(9_200_000_000),
            iteration: 0,
            iterations: None,
            part: Some(part.into()),
            note: None,
            user: 0,
            since: 0.0,
            wishes: crate::control::Wishes::default(),
        }
    }

    pub(crate) fn summary(scale: f64, stretch: f64) -> BatchSummary {
        let moved = attempt("1g.5gb", 100.0, Some(101.0), Some(Outcome::Moved));
        let done = attempt("3g.20gb", 101.0, Some(102.5), Some(Outcome::Done));
        let small = attempt("1g.5gb", 100.0, Some(104.0), Some(Outcome::Done));
        BatchSummary {
            batch: BatchId(1),
            started: 100.0,
            makespan: 4.0 * stretch,
            energy_j: Some(1000.0 * stretch),
            reconfigurations: 5,
            ooms: 0,
            early_restarts: 1,
            moves: 0,
            jobs: vec![
                job(1, "grow", "mixed", vec![moved, done]),
                job(2, "flat", "small", vec![small]),
            ],
            gpu: "NVIDIA A100-SXM4-40GB".into(),
            simulated: true,
            time_scale: scale,
        }
    }

    #[test]
    fn seconds_are_the_simulations_and_joules_are_as_told() {
        let report = BatchReport::new(&summary(0.1, 1.0), Some(&summary(0.1, 2.0)));
        assert_eq!(report.makespan_s, 40.0);
        assert_eq!(report.energy_j, Some(1000.0));
        let times: Vec<_> = report.jobs[0]
            .attempts
            .iter()
            .map(|line| (line.start, line.end))
            .collect();
        assert_eq!(times, [(0.0, Some(10.0)), (10.0, Some(25.0))]);
        assert_eq!(
            (report.throughput_ratio, report.energy_ratio),
            (Some(2.0), Some(2.0))
        );
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio() {
        let report = BatchReport::new(&summary(1.0, 1.0), None);
        assert_eq!((report.throughput_ratio, report.energy_ratio), (None, None));
        assert_eq!(report.parts.len(), 2);
        assert_eq!(report.parts[1].throughput_ratio, None);
    }

    #[test]
    fn the_document() {
        let report = BatchReport::new(&summary(0.1, 1.0), Some(&summary(0.1, 2.0)));
        insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
    }
}
