//! What a batch shows while it runs: bars at a terminal, else a line for each change. On standard error.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use migm_shared::ids::JobId;
use migm_shared::units::Bytes;

use super::status::state;
use super::table::outcome;
use crate::control::{JobState, JobStatus};
use crate::job::batch::News;

/// See the [module](self).
#[derive(Debug)]
pub struct Progress {
    bars: Option<Bars>,
    said: BTreeMap<JobId, String>,
    ended: u64,
    simulated: &'static str,
}

#[derive(Debug)]
struct Bars {
    all: MultiProgress,
    sum: ProgressBar,
    jobs: BTreeMap<JobId, ProgressBar>,
}

impl Progress {
    /// Bars if standard error is a terminal.
    #[must_use]
    pub fn new() -> Self {
        let bars = std::io::stderr().is_terminal().then(|| {
            let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
            let sum = all.add(ProgressBar::new(0));
            sum.set_style(style("jobs {wide_bar} {pos}/{len} {msg}"));
            Bars {
                all,
                sum,
                jobs: BTreeMap::new(),
            }
        });
        Self {
            bars,
            said: BTreeMap::new(),
            ended: 0,
            simulated: "",
        }
    }

    /// Shows what has happened.
    pub fn show(&mut self, news: &News<'_>) {
        match news {
            News::Node(node) => {
                self.simulated = if node.simulated { "simulated " } else { "" };
                let models: Vec<&str> = node.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
                self.line(&format!("batch on {}{}", self.simulated, models.join(", ")));
            }
            News::Started { jobs } => {
                self.line(&format!("{} started", super::table::count(*jobs as u64, "job")));
                if let Some(bars) = &self.bars {
                    bars.sum.set_length(*jobs as u64);
                }
            }
            News::Job(job) => self.job(job),
        }
    }

    /// Takes the bars away.
    pub fn end(self) {
        if let Some(bars) = self.bars {
            // A terminal that has gone needs no clearing.
            let _ = bars.all.clear();
        }
    }

    fn line(&self, line: &str) {
        match &self.bars {
            Some(bars) => {
                let _ = bars.all.println(format!("migm: {line}"));
            }
            None => crate::job::say(line),
        }
    }

    fn job(&mut self, job: &JobStatus) {
        let line = describe(job);
        let before = self.said.insert(job.id, line.clone());
        let is_new = before.as_ref() != Some(&line);
        let ends = job.state == JobState::Ended;
        if ends && is_new {
            self.ended += 1;
        }
        let Some(bars) = &mut self.bars else {
            if is_new {
                crate::job::say(format_args!("{}: {line}", job.name));
            }
            return;
        };
        bars.sum.set_position(self.ended);
        if ends {
            if let Some(bar) = bars.jobs.remove(&job.id) {
                bar.finish_and_clear();
            }
            if is_new {
                let _ = bars.all.println(format!("migm: {}: {line}", job.name));
            }
            return;
        }
        if matches!(job.state, JobState::Held | JobState::Waiting) {
            return;
        }
        let bar = bars.jobs.entry(job.id).or_insert_with(|| {
            let bar = bars.all.add(ProgressBar::new(job.iterations.unwrap_or(0)));
            bar.set_style(style(if job.iterations.is_some() {
                "  {prefix} {bar:20} {pos}/{len} {msg}"
            } else {
                "  {prefix} {spinner} {msg}"
            }));
            bar.set_prefix(job.name.clone());
            bar
        });
        bar.set_position(job.iteration);
        let peak = match job.figures.reserved {
            0 => String::new(),
            bytes => format!(", {} reserved at most", Bytes(bytes)),
        };
        bar.set_message(format!("{line}{peak}"));
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are in this file; with a fault in one the plain style shows the same.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What a change is worth a line for: state, slice, outcome; not each byte.
fn describe(job: &JobStatus) -> String {
    let slice = |last: &crate::control::AttemptRecord| {
        super::status::placed(&last.profile, last.placement, last.memory)
    };
    match (job.state, job.attempts.last()) {
        (JobState::Running, Some(last)) => format!("runs on {}", slice(last)),
        (JobState::Moving, Some(last)) => {
            let why = last
                .why
                .as_deref()
                .or(job.note.as_deref())
                .unwrap_or("on a forecast");
            format!("moves from {}: {why}", slice(last))
        }
        (JobState::Ended, last) => {
            let ended = last.and_then(|last| last.outcome).map_or("ended", outcome);
            last.map_or_else(|| ended.to_owned(), |last| format!("{ended} on {}", slice(last)))
        }
        (other, _) => state(other).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attempt, job};
    use super::*;
    use crate::control::Outcome;

    #[test]
    fn a_change_of_bytes_alone_is_no_new_line() {
        let mut one = job(1, "grow", "p", vec![attempt("1g.5gb", 0.0, None, None)]);
        one.state = JobState::Running;
        let before = describe(&one);
        one.figures.reserved += 1;
        one.iteration += 1;
        assert_eq!(describe(&one), before);
        assert_eq!(before, "runs on 1g.5gb@2");
    }

    #[test]
    fn a_move_and_an_end_say_where_and_why() {
        let moved = attempt("1g.5gb", 0.0, Some(1.0), Some(Outcome::Moved));
        let mut one = job(1, "grow", "p", vec![moved]);
        one.state = JobState::Moving;
        assert_eq!(
            describe(&one),
            "moves from 1g.5gb@2: 9.00 GiB forecast, 4.75 GiB there"
        );
        one.attempts
            .push(attempt("2g.10gb", 1.0, Some(2.0), Some(Outcome::Done)));
        one.state = JobState::Ended;
        assert_eq!(describe(&one), "done on 2g.10gb@2");
    }
}
