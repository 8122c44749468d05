//! The state of a node, for `migm status`.

use migm_shared::units::Bytes;
use serde::Serialize;

use super::table::Table;
use crate::control::{GpuStatus, JobState, JobStatus, NodeStatus, SliceStatus};
use crate::job::monotonic;

/// The JSON document of `migm status`. Monotonic times of attempts are in seconds of this machine's clock.
#[derive(Debug, Serialize)]
pub struct StatusDocument<'a> {
    gpus: &'a [GpuStatus],
    jobs: &'a [JobStatus],
    simulated: bool,
    time_scale: f64,
    supervisor: u32,
    now: f64,
}

impl<'a> StatusDocument<'a> {
    /// Of what a supervisor has told just before.
    #[must_use]
    pub fn new(node: &'a NodeStatus) -> Self {
        Self {
            gpus: &node.gpus,
            jobs: &node.jobs,
            simulated: node.simulated,
            time_scale: node.time_scale,
            supervisor: node.supervisor,
            now: monotonic(),
        }
    }
}

/// How a state is shown.
#[must_use]
pub const fn state(state: JobState) -> &'static str {
    match state {
        JobState::Held => "held",
        JobState::Waiting => "waiting",
        JobState::Running => "running",
        JobState::Moving => "moving",
        JobState::Ended => "ended",
        JobState::Watched => "watched",
    }
}

/// GPUs with their slices, then jobs, for people.
#[must_use]
pub fn text(node: &NodeStatus) -> String {
    let mut gpus = Table::new(&[">gpu", "model", "mode", "slice", ">memory", "state", "job"]);
    for (index, gpu) in node.gpus.iter().enumerate() {
        let name = if node.simulated {
            format!("{} (simulated)", gpu.name)
        } else {
            gpu.name.clone()
        };
        let lead = |first: bool| match first {
            true => [index.to_string(), name.clone(), gpu.mode.clone()],
            false => [String::new(), String::new(), String::new()],
        };
        if gpu.slices.is_empty() {
            gpus.row(lead(true).into_iter().chain(["none".into()]));
        }
        for (number, slice) in gpu.slices.iter().enumerate() {
            gpus.row(
                lead(number == 0)
                    .into_iter()
                    .chain(slice_cells(slice, &node.jobs)),
            );
        }
    }
    let mut text = gpus.render();
    if node.jobs.is_empty() {
        text.push_str("\nno jobs\n");
        return text;
    }
    let mut jobs = Table::new(&[
        ">job",
        "name",
        "state",
        "slice",
        ">attempt",
        ">reserved peak",
        "note",
    ]);
    for job in &node.jobs {
        let slice = job.attempts.last().filter(|last| last.end.is_none());
        jobs.row([
            job.id.to_string(),
            job.name.clone(),
            state(job.state).to_owned(),
            slice.map_or_else(|| "-".into(), |last| placed(&last.profile, last.placement)),
            job.attempts.len().to_string(),
            Bytes(job.figures.reserved).to_string(),
            job.note.clone().unwrap_or_default(),
        ]);
    }
    text.push('\n');
    text.push_str(&jobs.render());
    text
}

/// A slice by kind and place; bytes of a GPU have none.
pub(super) fn placed(profile: &str, start: u32) -> String {
    match profile {
        "soft" | "whole" => profile.to_owned(),
        _ => format!("{profile}@{start}"),
    }
}

fn slice_cells(slice: &SliceStatus, jobs: &[JobStatus]) -> [String; 4] {
    let holder = slice.job.map(|id| {
        let name = jobs.iter().find(|job| job.id == id).map_or("", |job| &job.name);
        format!("{id} {name}").trim_end().to_owned()
    });
    [
        placed(&slice.profile, slice.start),
        Bytes(slice.memory).to_string(),
        slice.state.clone(),
        holder.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::{attempt, job};
    use super::*;
    use migm_shared::ids::{Incarnation, JobId};

    fn node() -> NodeStatus {
        let slice = |profile: &str, start, size, state: &str, job: Option<u64>| SliceStatus {
            profile: profile.into(),
            start,
            size,
            state: state.into(),
            incarnation: job.map(Incarnation),
            uuid: None,
            memory: u64::from(size) * 5_000_000_000,
            job: job.map(JobId),
        };
        let mut running = job(1, "grow", "mixed", vec![attempt("1g.5gb", 1.0, None, None)]);
        running.state = JobState::Running;
        running.note = Some("9.20 GiB forecast".into());
        let mut waiting = job(2, "flat", "mixed", Vec::new());
        waiting.state = JobState::Waiting;
        let gpu = |name: &str, mode: &str, slices| GpuStatus {
            name: name.into(),
            uuid: format!("GPU-{name}"),
            mode: mode.into(),
            slices,
        };
        NodeStatus {
            gpus: vec![
                gpu(
                    "A100",
                    "mig",
                    vec![
                        slice("1g.5gb", 0, 1, "busy", Some(1)),
                        slice("3g.20gb", 4, 4, "foreign", None),
                    ],
                ),
                gpu("A30", "mig", Vec::new()),
            ],
            jobs: vec![running, waiting],
            simulated: true,
            time_scale: 0.1,
            supervisor: 77,
        }
    }

    #[test]
    fn a_node_for_people() {
        insta::assert_snapshot!(text(&node()));
    }

    #[test]
    fn the_document_has_gpus_with_slices() {
        let node = node();
        let document = serde_json::to_value(StatusDocument::new(&node)).unwrap();
        let slice = &document["gpus"][0]["slices"][0];
        assert_eq!(
            (&slice["profile"], &slice["start"]),
            (&"1g.5gb".into(), &0.into())
        );
        assert_eq!((&slice["state"], &slice["job"]), (&"busy".into(), &1.into()));
        assert_eq!(document["gpus"][1]["mode"], "mig");
    }
}
