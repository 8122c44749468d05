//! The state of a node, for `migm status`.

use migm_shared::ids::BatchId;
use migm_shared::units::Bytes;
use serde::Serialize;

use super::picture::{Style, picture};
use super::table::Table;
use crate::control::{GpuStatus, JobState, JobStatus, NodeStatus, PolicyStatus, SliceStatus};
use crate::job::monotonic;
use crate::schedule::PolicyName;

/// The JSON document of `migm status`. Monotonic times of attempts are in seconds of this machine's clock.
#[derive(Debug, Serialize)]
pub struct StatusDocument<'a> {
    gpus: &'a [GpuStatus],
    jobs: &'a [JobStatus],
    simulated: bool,
    time_scale: f64,
    supervisor: u32,
    now: f64,
    /// Which policy serves, where the supervisor tells.
    #[serde(flatten)]
    policy: Option<PolicyDocument>,
}

/// The policy that serves.
#[derive(Debug, Serialize)]
struct PolicyDocument {
    policy: String,
    /// Where the policy has the choice.
    order: Option<String>,
    /// The batch that has asked for it.
    policy_batch: Option<BatchId>,
    /// What serves after that batch, as `--policy` takes it.
    policy_after: Option<String>,
}

impl PolicyDocument {
    fn new(status: &PolicyStatus) -> Self {
        let (policy, order) = in_words(&status.policy);
        Self {
            policy,
            order,
            policy_batch: status.batch,
            policy_after: status.batch.map(|_| status.own.clone()),
        }
    }
}

/// A policy and its order, where it has one.
fn in_words(name: &str) -> (String, Option<String>) {
    match name.parse::<PolicyName>() {
        Ok(name) => (name.word(), name.order().map(|order| order.word().to_owned())),
        // Of a newer supervisor.
        Err(_) => (name.to_owned(), None),
    }
}

/// A line on the policy, for people.
fn policy_line(status: &PolicyStatus) -> String {
    let (policy, order) = in_words(&status.policy);
    let order = order.map_or_else(String::new, |order| format!(", order {order}"));
    let batch = status.batch.map_or_else(String::new, |batch| {
        format!(", for batch {batch}; then {}", status.own)
    });
    format!("policy {policy}{order}{batch}\n")
}

impl<'a> StatusDocument<'a> {
    /// Of what a supervisor has told just before.
    #[must_use]
    pub fn new(node: &'a NodeStatus, policy: Option<&PolicyStatus>) -> Self {
        Self {
            gpus: &node.gpus,
            jobs: &node.jobs,
            simulated: node.simulated,
            time_scale: node.time_scale,
            supervisor: node.supervisor,
            now: monotonic(),
            policy: policy.map(PolicyDocument::new),
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

/// The policy, GPUs as pictures, their slices, then jobs, for people. `grids` are the memory slices of each GPU; where
/// they are not known, the picture ends with the last slice.
#[must_use]
pub fn text(node: &NodeStatus, grids: &[u32], policy: Option<&PolicyStatus>, style: Style) -> String {
    let name = |id| {
        let job = node.jobs.iter().find(|job| job.id == id);
        job.map_or_else(String::new, |job| job.name.clone())
    };
    let mut text = policy.map_or_else(String::new, policy_line);
    for (index, gpu) in node.gpus.iter().enumerate() {
        let simulated = if node.simulated { " (simulated)" } else { "" };
        text.push_str(&format!("GPU {index}  {}{simulated}  {}\n", gpu.name, gpu.mode));
        if let Some(hint) = hint(&gpu.mode) {
            text.push_str(&format!("  {hint}\n"));
        }
        let units = grids.get(index).copied().unwrap_or(1);
        text.push_str(&picture(gpu, units, style, name));
        text.push('\n');
    }
    let mut slices = Table::new(&[">gpu", "slice", ">memory", "state", "job"]);
    let mut any = false;
    for (index, gpu) in node.gpus.iter().enumerate() {
        for slice in &gpu.slices {
            any = true;
            slices.row(std::iter::once(index.to_string()).chain(slice_cells(slice, &node.jobs)));
        }
    }
    if any {
        text.push_str(&slices.render());
    } else {
        text.push_str("no slices\n");
    }
    if node.jobs.is_empty() {
        text.push_str("\nno jobs\n");
        return text;
    }
    let mut jobs = Table::new(&[">job", "name", "state", "slice", ">attempt", ">reserved peak"]);
    for alike in node.jobs.chunk_by(are_alike) {
        let job = &alike[0];
        let slice = job.attempts.last().filter(|last| last.end.is_none());
        jobs.row([
            together(alike),
            short(&job.name),
            state(job.state).to_owned(),
            slice.map_or_else(
                || "-".into(),
                |last| placed(&last.profile, last.placement, last.memory),
            ),
            job.attempts.len().to_string(),
            Bytes(job.figures.reserved).to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&jobs.render());
    // Notes are sentences: in a column of their own they would make every line long.
    for alike in node.jobs.chunk_by(are_alike) {
        if let Some(note) = alike[0].note.as_deref().filter(|note| !note.is_empty()) {
            text.push_str(&wrapped(&format!("{}: {note}", together(alike))));
        }
    }
    text
}

/// Whether two jobs of an array both have their turn to come: thousands are one line.
fn are_alike(one: &JobStatus, other: &JobStatus) -> bool {
    let waits = |job: &JobStatus| {
        let element = job.wishes.element?;
        let waits = matches!(job.state, JobState::Held | JobState::Waiting) && job.attempts.is_empty();
        waits.then_some((element.array, job.user, job.state))
    };
    waits(one).is_some_and(|first| Some(first) == waits(other))
}

/// The number of a job, or the numbers of several that stand together.
fn together(jobs: &[JobStatus]) -> String {
    match jobs {
        [first, .., last] => format!("{}-{}", first.id, last.id),
        _ => jobs[0].id.to_string(),
    }
}

/// What a mode that hinders asks for.
#[must_use]
pub fn hint(mode: &str) -> Option<&'static str> {
    match mode {
        "mig-pending" => Some("a change of its MIG mode waits for a reset: `migm node list` says how"),
        "lost" => Some("the driver has lost it: it needs a reset or a reboot; looked at again by itself"),
        "needs-reset" => {
            Some("the driver does nothing with it before a reset or a reboot; looked at again by itself")
        }
        "failing" => Some("it cannot be read and is put aside; looked at again by itself"),
        _ => None,
    }
}

/// In lines of at most eighty columns where words allow it, those after the first indented.
pub(crate) fn wrapped(sentence: &str) -> String {
    const WIDTH: usize = 80;
    let (mut text, mut column) = (String::new(), 0);
    for word in sentence.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push_str("\n   ");
            column = 3;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += length;
    }
    text + "\n"
}

pub(crate) fn short(name: &str) -> String {
    const LONGEST: usize = 24;
    if name.chars().count() <= LONGEST {
        return name.to_owned();
    }
    let kept: String = name.chars().take(LONGEST - 1).collect();
    format!("{kept}~")
}

/// A slice by kind and place, a soft one by its bytes.
pub(super) fn placed(profile: &str, start: u32, memory: u64) -> String {
    match profile {
        "soft" if memory > 0 => format!("soft {}", Bytes(memory)),
        "soft" | "whole" => profile.to_owned(),
        _ => format!("{profile}@{start}"),
    }
}

fn slice_cells(slice: &SliceStatus, jobs: &[JobStatus]) -> [String; 4] {
    let holder = slice.job.map(|id| {
        let name = jobs.iter().find(|job| job.id == id).map_or("", |job| &job.name);
        short(format!("{id} {name}").trim_end())
    });
    [
        placed(&slice.profile, slice.start, 0),
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
            ends_s: None,
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
        insta::assert_snapshot!(text(&node(), &[8, 4], None, Style::Plain));
    }

    #[test]
    fn the_policy_and_for_whom_it_serves() {
        let mut status = PolicyStatus {
            policy: "migm:fifo".into(),
            batch: None,
            own: "migm:fifo".into(),
        };
        assert_eq!(policy_line(&status), "policy migm, order fifo\n");
        let document =
            |status: &PolicyStatus| serde_json::to_value(StatusDocument::new(&node(), Some(status))).unwrap();
        let own = document(&status);
        assert_eq!((&own["policy"], &own["order"]), (&"migm".into(), &"fifo".into()));
        assert!(own["policy_batch"].is_null() && own["policy_after"].is_null());
        status.policy = "static:4g+3g".into();
        status.batch = Some(BatchId(3));
        assert_eq!(
            policy_line(&status),
            "policy static:4g+3g, for batch 3; then migm:fifo\n"
        );
        let lent = document(&status);
        assert_eq!(
            (&lent["policy_batch"], &lent["policy_after"]),
            (&3.into(), &"migm:fifo".into())
        );
        assert!(lent["order"].is_null());
    }

    #[test]
    fn long_notes_are_wrapped() {
        let note = wrapped(&format!("12: {}", "waits for GPU 1 ".repeat(12)));
        assert!(
            note.lines().count() > 1 && note.lines().all(|line| line.len() <= 80),
            "{note}"
        );
        assert_eq!(wrapped("1: short"), "1: short\n");
    }

    #[test]
    fn the_document_has_gpus_with_slices() {
        let node = node();
        let document = serde_json::to_value(StatusDocument::new(&node, None)).unwrap();
        let slice = &document["gpus"][0]["slices"][0];
        assert_eq!(
            (&slice["profile"], &slice["start"]),
            (&"1g.5gb".into(), &0.into())
        );
        assert_eq!((&slice["state"], &slice["job"]), (&"busy".into(), &1.into()));
        assert_eq!(document["gpus"][1]["mode"], "mig");
    }
}
