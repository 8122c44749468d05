//! Tables for people.

use std::fmt::Write;

use migm_shared::units::Bytes;

use super::BatchReport;
use crate::control::Outcome;

/// Rows under a heading, each column as wide as its widest cell.
#[derive(Debug)]
pub struct Table {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty one. A column whose heading starts with `>` is set to the right, as numbers are.
    #[must_use]
    pub fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table as text, a line a row.
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines: Vec<String> = vec![String::new(); self.rows.len() + 1];
        for (column, heading) in self.heading.iter().enumerate() {
            let right = heading.strip_prefix('>');
            let cells: Vec<&str> = std::iter::once(right.unwrap_or(heading))
                .chain(
                    self.rows
                        .iter()
                        .map(|row| row.get(column).map_or("", String::as_str)),
                )
                .collect();
            let width = cells.iter().map(|cell| cell.chars().count()).max().unwrap_or(0);
            for (line, cell) in lines.iter_mut().zip(cells) {
                if column > 0 {
                    line.push_str("  ");
                }
                line.push_str(&if right.is_some() {
                    format!("{cell:>width$}")
                } else {
                    format!("{cell:<width$}")
                });
            }
        }
        lines
            .iter()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect()
    }
}

/// How an outcome is shown.
#[must_use]
pub const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::Signalled => "signalled",
        Outcome::Moved => "moved",
        Outcome::Oom => "out of memory",
        Outcome::Cancelled => "cancelled",
    }
}

/// A batch's report for people: its jobs, then its sums, each with what it is.
#[must_use]
pub fn batch(report: &BatchReport) -> String {
    let mut jobs = Table::new(&[
        "job",
        ">attempt",
        "slice",
        ">start s",
        ">end s",
        "outcome",
        ">peak",
        ">forecast",
    ]);
    for job in &report.jobs {
        for (index, attempt) in job.attempts.iter().enumerate() {
            let is_last = index + 1 == job.attempts.len();
            jobs.row([
                if index == 0 {
                    job.name.clone()
                } else {
                    String::new()
                },
                (index + 1).to_string(),
                super::status::placed(&attempt.profile, attempt.placement, attempt.memory),
                format!("{:.1}", attempt.start),
                attempt.end.map_or_else(|| "-".into(), |end| format!("{end:.1}")),
                attempt.outcome.map_or("runs", outcome).to_owned(),
                if is_last {
                    Bytes(job.peak_bytes).to_string()
                } else {
                    String::new()
                },
                match job.predicted_peak_bytes {
                    Some(predicted) if is_last => Bytes(predicted).to_string(),
                    _ => String::new(),
                },
            ]);
        }
        if job.attempts.is_empty() {
            jobs.row([
                job.name.clone(),
                "-".into(),
                "-".into(),
                "-".into(),
                "-".into(),
                "never ran".into(),
            ]);
        }
    }
    let kind = if report.simulated { "simulated" } else { "measured" };
    let mut sums = Table::new(&["", ">migm", ">baseline", ">ratio", "kind"]);
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
    };
    sums.row([
        "makespan, s".into(),
        number(Some(report.makespan_s), 1),
        number(report.baseline.map(|baseline| baseline.makespan_s), 1),
        number(report.throughput_ratio, 2),
        kind.into(),
    ]);
    sums.row([
        "energy of the whole GPU, J".into(),
        number(report.energy_j, 0),
        number(report.baseline.and_then(|baseline| baseline.energy_j), 0),
        number(report.energy_ratio, 2),
        kind.into(),
    ]);
    let mut text = format!("{}\n", gpu(report));
    text.push_str(&jobs.render());
    text.push('\n');
    text.push_str(&sums.render());
    for job in &report.jobs {
        for why in job.attempts.iter().filter_map(|attempt| attempt.why.as_ref()) {
            let _ = writeln!(text, "{}: {why}", job.name);
        }
    }
    for part in &report.parts {
        let ratio =
            |value: Option<f64>| value.map_or_else(|| "not measured".into(), |value| format!("{value:.2}"));
        let _ = writeln!(
            text,
            "part {}, {}: throughput ratio {}, energy ratio {}",
            part.name,
            count(part.jobs as u64, "job"),
            ratio(part.throughput_ratio),
            ratio(part.energy_ratio)
        );
    }
    let _ = writeln!(
        text,
        "{} out of memory, {}, {} for speed, {} created or destroyed (all counted)",
        count(report.ooms, "attempt"),
        count(report.early_restarts, "early restart"),
        count(report.moves, "move"),
        count(report.reconfigurations, "instance")
    );
    text.push_str("Peaks are reserved bytes, counted at each allocation. Ratios are baseline / migm.\n");
    text
}

pub(super) fn count(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}

fn gpu(report: &BatchReport) -> String {
    if report.simulated {
        format!(
            "{} (simulated, {} wall s per simulated s)",
            report.gpu, report.time_scale
        )
    } else {
        report.gpu.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::summary;
    use super::*;

    #[test]
    fn a_batch_for_people() {
        let report = BatchReport::new(&summary(0.1, 1.0), Some(&summary(0.1, 2.0)));
        insta::assert_snapshot!(batch(&report));
    }

    #[test]
    fn without_a_baseline_no_number_is_made_up() {
        let report = BatchReport::new(&summary(1.0, 1.0), None);
        insta::assert_snapshot!(batch(&report));
    }
}
