//! A demo's report: parts that ran one after the other, each as a batch of its own, on ours and on a
//! baseline. Only so can a part's energy be told from that of the rest.

use super::{BatchReport, PartLine, clock, cost, energy_ratio, line, throughput_ratio};
use crate::control::BatchSummary;

impl BatchReport {
    /// The sums over all parts, and each part's own ratios. Attempts count from the start of the first part;
    /// the time between two parts, in which nothing runs, is left out. `None` without parts.
    #[must_use]
    pub fn of_parts(ours: &[(&str, BatchSummary)], baseline: &[(&str, BatchSummary)]) -> Option<Self> {
        let mut report = Self::new(&joined(ours)?, Some(&joined(baseline)?));
        report.jobs.clear();
        report.parts.clear();
        let mut before = 0.0;
        for (name, summary) in ours {
            let clock = clock(summary);
            let origin = summary.started - before;
            report
                .jobs
                .extend(summary.jobs.iter().map(|job| line(job, origin, &clock)));
            before += summary.makespan;
            let mine = cost(summary);
            let other = baseline
                .iter()
                .find(|(other, _)| other == name)
                .map(|(_, other)| cost(other));
            report.parts.push(PartLine {
                name: (*name).to_owned(),
                jobs: summary.jobs.len(),
                throughput_ratio: throughput_ratio(&mine, other.as_ref()),
                energy_ratio: energy_ratio(&mine, other.as_ref()),
            });
        }
        Some(report)
    }
}

/// One summary with the sums of all. An energy that one part lacks is not known for the whole.
fn joined(parts: &[(&str, BatchSummary)]) -> Option<BatchSummary> {
    let mut parts = parts.iter().map(|(_, summary)| summary);
    let mut sum = parts.next()?.clone();
    for part in parts {
        sum.makespan += part.makespan;
        sum.energy_j = sum.energy_j.zip(part.energy_j).map(|(a, b)| a + b);
        sum.reconfigurations += part.reconfigurations;
        sum.ooms += part.ooms;
        sum.early_restarts += part.early_restarts;
        sum.moves += part.moves;
        sum.jobs.extend(part.jobs.iter().cloned());
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::super::tests::summary;
    use super::*;

    #[test]
    fn parts_are_summed_and_kept_apart() {
        let ours = [("small", summary(0.5, 1.0)), ("mixed", summary(0.5, 2.0))];
        let baseline = [("small", summary(0.5, 4.0)), ("mixed", summary(0.5, 2.0))];
        let report = BatchReport::of_parts(&ours, &baseline).unwrap();
        assert_eq!(report.makespan_s, 24.0);
        assert_eq!(report.energy_j, Some(3000.0));
        assert_eq!(report.baseline.unwrap().makespan_s, 48.0);
        assert_eq!(report.throughput_ratio, Some(2.0));
        assert_eq!(report.energy_ratio, Some(2.0));
        let ratios: Vec<_> = report
            .parts
            .iter()
            .map(|part| (part.jobs, part.throughput_ratio))
            .collect();
        assert_eq!(ratios, [(2, Some(4.0)), (2, Some(1.0))]);
        assert_eq!((report.reconfigurations, report.early_restarts), (10, 2));
        // The second part's first attempt starts when the first part has ended: 4 wall seconds, 8 simulated.
        assert_eq!(report.jobs[0].attempts[0].start, 0.0);
        assert_eq!(report.jobs[2].attempts[0].start, 8.0);
    }

    #[test]
    fn a_missing_counter_is_not_zero_joules() {
        let mut without = summary(1.0, 1.0);
        without.energy_j = None;
        let ours = [("a", summary(1.0, 1.0)), ("b", without)];
        let report = BatchReport::of_parts(&ours, &ours).unwrap();
        assert_eq!((report.energy_j, report.energy_ratio), (None, None));
    }
}
