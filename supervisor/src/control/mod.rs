//! Control frames: how runners and commands talk with the supervisor.
//!
//! One job's conversation, over one connection held by its runner:
//!
//! 1. Runner: [`Request::About`], where something is known of the program, and [`Request::Submit`], with the job's counter page as a file descriptor.
//!    Supervisor: [`Reply::Accepted`], then, when a slice is free, [`Reply::Grant`].
//! 2. Runner starts the attempt: [`Request::Started`].
//! 3. Supervisor, if the forecast says so: [`Reply::Move`]. The runner signals its process group, waits
//!    the grace time and kills; it stops an attempt for no other reason than this, [`Reply::Cancel`] or a
//!    signal of its own.
//! 4. No process of the attempt lives: [`Request::Ended`]. The supervisor answers with the next
//!    [`Reply::Grant`] where the job goes on, or with [`Reply::Finished`].
//!
//! When the supervisor dies, jobs go on. The runner connects to the next one and says
//! [`Request::Resume`] with the lease it holds. When the runner dies, the supervisor keeps the slice until
//! no process of the job lives.
//!
//! Times are `CLOCK_MONOTONIC` in seconds, which all processes of a machine share and which survives a
//! restart of the supervisor.

use bincode::{Decode, Encode};
use migm_shared::frame::Message;
use migm_shared::ids::{AttemptId, BatchId, Incarnation, JobId};
use serde::{Deserialize, Serialize};

pub mod client;
mod explain;
mod history;
pub mod paths;
pub mod start;
mod wishes;

pub use explain::{Decision, Explanation, Inputs, Seen, Stakes, Verdict};
pub use history::{About, Evidence, Past, PastPace, PastPeak, Point, WorkKept};
pub use wishes::{After, Element, ShownId, Wishes};

/// What the user asked for, as far as the supervisor must know it. It never runs the command.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Submission {
    /// Name for people; need not be unique.
    pub name: String,
    /// The command line, for display and history.
    pub command: Vec<String>,
    /// Bytes of device memory that the user says it needs.
    pub mem: Option<u64>,
    /// Iterations that the user says it runs: the forecast's horizon.
    pub iterations: Option<u64>,
    /// Whether the job may be stopped and started again. False when its standard input is a pipe.
    pub movable: bool,
    /// The user's `CUDA_VISIBLE_DEVICES`, which restricts the choice.
    pub visible_devices: Option<String>,
    /// Idle foreign slices may be used.
    pub use_existing: bool,
    /// The batch that the job belongs to.
    pub batch: Option<BatchId>,
    /// Part of the batch that the report sums up apart.
    pub part: Option<String>,
    /// Drawn by the runner; see [`AttemptId`].
    pub nonce: u64,
    /// The runner's pid.
    pub runner: u32,
    /// What else the user asks for.
    #[serde(default)]
    pub wishes: Wishes,
}

#[cfg(test)]
impl Submission {
    /// One of which nothing is said.
    pub(crate) fn plain() -> Self {
        Self {
            name: "job".into(),
            command: Vec::new(),
            mem: None,
            iterations: None,
            movable: true,
            visible_devices: None,
            use_existing: false,
            batch: None,
            part: None,
            nonce: 1,
            runner: 1,
            wishes: Wishes::default(),
        }
    }
}

/// The right of one job to one slice, and what its processes need to find it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Grant {
    /// The attempt that this grant is for.
    pub attempt: AttemptId,
    /// Our number for the slice.
    pub slice: Incarnation,
    /// Name of the GPU model as NVML prints it.
    pub gpu: String,
    /// UUID of the GPU.
    pub gpu_uuid: String,
    /// Profile name as the driver prints it (`1g.5gb`), or, on a GPU without MIG, `soft` for bytes of it and `whole`.
    pub profile: String,
    /// First unit of the placement; 0 on a GPU without MIG.
    pub start: u32,
    /// The slice's memory by NVML, in bytes; that of a soft slice is its cap, and grows.
    pub memory: u64,
    /// Value for `CUDA_VISIBLE_DEVICES`: a MIG or GPU UUID.
    pub visible_device: String,
    /// Further environment of the attempt, set as given.
    pub environment: Vec<(String, String)>,
    /// Folders to put in front of `LD_LIBRARY_PATH`: the simulated driver's, else none.
    pub library_path: Vec<String>,
    /// The interposer that fits this supervisor; the runner preloads it.
    pub interposer: String,
    /// Why this slice: one line for people.
    pub reason: String,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Exit status 0.
    Done,
    /// Another exit status, or a signal that nobody here sent.
    Failed,
    /// Ended by a signal that the user sent through the runner.
    Signalled,
    /// Stopped on a forecast or for speed, to start again on another slice.
    Moved,
    /// Ended badly after an out-of-memory answer that was not made good.
    Oom,
    /// Stopped on request.
    Cancelled,
}

/// What is kept of an attempt.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Profile name.
    pub profile: String,
    /// Our number for the slice.
    pub slice: Incarnation,
    /// First unit of the placement.
    pub placement: u32,
    /// When its process started; monotonic seconds.
    pub start: f64,
    /// When its last process had ended; `None` while it runs.
    pub end: Option<f64>,
    /// `None` while it runs.
    pub outcome: Option<Outcome>,
    /// Exit status as a shell shows it: 128 + n for signal n.
    pub status: Option<i32>,
    /// Why it was moved, or what was asked when memory ran out.
    pub why: Option<String>,
    /// Bytes of the slice; of a soft slice the most that its lease had. 0 where it is not known.
    #[serde(default)]
    pub memory: u64,
    /// It was asked to move for a better slice, and not because it outgrew the one it had.
    #[serde(default)]
    pub for_speed: bool,
}

/// A job's memory figures at its end or so far. Bytes and counts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Figures {
    /// Peak of what tensors hold, where a framework reports it.
    pub allocated: Option<u64>,
    /// Peak of reserved bytes, from the counter page.
    pub reserved: u64,
    /// Peak of what the driver charges: reserved plus the largest unaccounted part seen.
    pub device: Option<u64>,
    /// Device allocations that succeeded, over all attempts.
    pub allocations: u64,
    /// Frees of such allocations.
    pub frees: u64,
}

/// What the last attempt left unmet: asked and in use, in bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Unmet {
    /// Bytes asked for.
    pub asked: u64,
    /// Reserved bytes of the job at that moment.
    pub in_use: u64,
}

/// From a runner or a command.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[expect(
    clippy::large_enum_variant,
    reason = "a request lives for one send, and a box would be in each reader's way"
)]
pub enum Request {
    /// A new job; its counter page comes along.
    Submit(Submission),
    /// A job of an earlier supervisor, with the lease it holds; its counter page comes along.
    Resume {
        /// As submitted.
        submission: Submission,
        /// Its id with the earlier supervisor.
        job: JobId,
        /// The lease held; `None` while it waited for one.
        grant: Option<Grant>,
        /// Attempts so far; the last without an end runs on.
        attempts: Vec<AttemptRecord>,
        /// Process id of the running attempt.
        pid: Option<u32>,
    },
    /// The attempt's process runs.
    Started {
        /// The attempt.
        attempt: AttemptId,
        /// Its process, which leads its process group.
        pid: u32,
    },
    /// No process of the attempt lives.
    Ended {
        /// The attempt.
        attempt: AttemptId,
        /// Exit status as a shell shows it.
        status: i32,
        /// How it ended, by the runner's rules.
        outcome: Outcome,
        /// Memory figures so far.
        figures: Figures,
        /// The unmet request, when `outcome` is [`Outcome::Oom`].
        unmet: Option<Unmet>,
    },
    /// The state of everything, once.
    Status,
    /// Stop a job.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// Jobs submitted with this batch wait until it starts. The connection hears of each change.
    OpenBatch {
        /// Name for people.
        name: String,
    },
    /// Release the batch's jobs in order of submission; energy and makespan count from here.
    StartBatch {
        /// Which.
        batch: BatchId,
    },
    /// Hear of a batch again, after a reconnect.
    WatchBatch {
        /// Which.
        batch: BatchId,
    },
    /// End the supervisor: its idle slices are removed unless jobs run.
    Shutdown,
    /// Remove idle slices of ours; answered when the driver has.
    Clear {
        /// NVML's index of the GPU; `None` for all.
        device: Option<u32>,
    },
    /// How many memory slices each GPU has; to draw layouts to scale.
    Grids,
    /// What is known of the program whose job comes next. [`Reply::Explained`] comes before
    /// [`Reply::Finished`] then.
    About(About),
    /// What was decided on a job, and why.
    Explain {
        /// Which.
        job: JobId,
    },
    /// A number for an array of jobs, which this connection starts runners for. They are held until it says
    /// [`Request::StartArray`], and withdrawn if it goes before that.
    OpenArray,
    /// All jobs of the array have been submitted.
    StartArray {
        /// Which.
        array: JobId,
    },
    /// As [`OpenBatch`](Self::OpenBatch), with the policy that is to serve from the batch's start until it is over.
    OpenBatchBy {
        /// Name for people.
        name: String,
        /// As `--policy` takes it.
        policy: String,
    },
    /// Which policy serves.
    Policy,
}

impl Message for Request {
    const CHANNEL: u16 = 3;
    const LIMIT: usize = 256 << 10;
}

/// From the supervisor.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub enum Reply {
    /// The job has a number.
    Accepted {
        /// The number.
        job: JobId,
        /// A line for people on how jobs are placed here, if there is something to say (no MIG, say).
        notice: Option<String>,
    },
    /// It cannot be done, and why; for a job this ends it.
    Refused {
        /// One line for people.
        reason: String,
    },
    /// Start the next attempt.
    Grant(Grant),
    /// Stop the attempt and report its end as moved.
    Move {
        /// The attempt.
        attempt: AttemptId,
        /// Forecast against slice, one line for people.
        reason: String,
    },
    /// Stop the attempt and report its end as cancelled.
    Cancel {
        /// The attempt; `None` when the job was still waiting.
        attempt: Option<AttemptId>,
    },
    /// The job is over; the final record.
    Finished(Box<JobStatus>),
    /// The answer to [`Request::Status`].
    Status(Box<NodeStatus>),
    /// The batch is open.
    BatchOpened {
        /// Its number.
        batch: BatchId,
    },
    /// A job of the watched batch changed.
    BatchJob(Box<JobStatus>),
    /// All jobs of the watched batch have ended.
    BatchEnded(Box<BatchSummary>),
    /// Understood; nothing more to say.
    Done,
    /// The answer to [`Request::Clear`].
    Cleared {
        /// Slices that were removed.
        removed: u32,
        /// Those that are not for it (busy, foreign), each with its reason.
        kept: Vec<String>,
        /// Those that the driver did not remove, each with its reason.
        failed: Vec<String>,
    },
    /// The answer to [`Request::Grids`], in the order of the GPUs of the status.
    Grids(Vec<u32>),
    /// What was decided on a job, and why.
    Explained(Box<Explanation>),
    /// The array has a number.
    ArrayOpened {
        /// The number.
        array: JobId,
    },
    /// The job, which has no slice, is cancelled for a reason other than somebody's request.
    Withdrawn {
        /// One line for people.
        reason: String,
        /// Nobody has been told that there is such a job: nothing of it is to be kept.
        unheard: bool,
    },
    /// The answer to [`Request::Policy`].
    Policy(PolicyStatus),
}

impl Message for Reply {
    const CHANNEL: u16 = 4;
    // Some hundred bytes for each job of a node.
    const LIMIT: usize = 16 << 20;
}

/// Where a job is.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits for something else than a slice: the start of its batch, jobs before it, others of its array.
    Held,
    /// Waits for a slice.
    Waiting,
    /// Has a lease.
    Running,
    /// Has been told to stop and start again elsewhere.
    Moving,
    /// Over.
    Ended,
    /// A process preloaded by hand: accounted and forecast, never stopped by a lease.
    Watched,
}

/// A job as the supervisor sees it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct JobStatus {
    /// Number.
    pub id: JobId,
    /// Name.
    pub name: String,
    /// State.
    pub state: JobState,
    /// Attempts in order.
    pub attempts: Vec<AttemptRecord>,
    /// Memory so far.
    pub figures: Figures,
    /// The forecast of the peak of reserved bytes that was acted on last, else the first that converged; if
    /// there was one.
    pub predicted_peak_bytes: Option<u64>,
    /// Iteration marks of the running attempt.
    pub iteration: u64,
    /// As submitted.
    pub iterations: Option<u64>,
    /// As submitted.
    pub part: Option<String>,
    /// The last decision or the reason it waits, one line.
    pub note: Option<String>,
    /// Whose it is: a user id.
    pub user: u32,
    /// When it came to be where it is; monotonic seconds.
    pub since: f64,
    /// As submitted.
    pub wishes: Wishes,
}

impl JobStatus {
    /// Its number as people see it.
    #[must_use]
    pub fn shown_id(&self) -> ShownId {
        ShownId(self.id, self.wishes.element)
    }

    /// How it ended, in words after its name, unless it ended well: `Err("failed with 3")`. Of a job that has not
    /// ended it says nothing of use.
    ///
    /// # Errors
    /// It did not end well.
    pub fn ended_well(&self) -> Result<(), String> {
        let Some(last) = self.attempts.last() else {
            let why = self.note.as_deref().unwrap_or("it did not run");
            // Down a line of jobs the first cause counts.
            let cause = why.split_once(" was cancelled: ").map_or(why, |(_, cause)| cause);
            return Err(format!("was cancelled: {cause}"));
        };
        let status = last
            .status
            .map_or_else(|| "an unknown status".to_owned(), |status| status.to_string());
        match last.outcome {
            Some(Outcome::Done) => Ok(()),
            Some(Outcome::Cancelled) => Err("was cancelled".to_owned()),
            Some(Outcome::Oom) => Err(format!("ran out of memory and ended with {status}")),
            Some(Outcome::Signalled) => Err(format!("was ended by a signal, with {status}")),
            Some(Outcome::Failed | Outcome::Moved) | None => Err(format!("failed with {status}")),
        }
    }
}

/// A slice as the supervisor sees it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct SliceStatus {
    /// Profile name, or `soft` or `whole`.
    pub profile: String,
    /// First unit of the placement.
    pub start: u32,
    /// Units of the placement.
    pub size: u32,
    /// `busy`, `idle`, `stuck` (idle, and somebody keeps it from being removed), `foreign`, `creating` or
    /// `destroying`.
    pub state: String,
    /// Our number; `None` for a foreign one.
    pub incarnation: Option<Incarnation>,
    /// MIG UUID, where the driver has told it.
    pub uuid: Option<String>,
    /// Memory by NVML, bytes.
    pub memory: u64,
    /// Who holds it.
    pub job: Option<JobId>,
    /// Seconds until that job ends at its pace so far; `None` where it is not known how many iterations it runs.
    pub ends_s: Option<f64>,
}

/// A GPU as the supervisor sees it.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct GpuStatus {
    /// Model name by NVML.
    pub name: String,
    /// UUID.
    pub uuid: String,
    /// `mig`, `soft` or `whole` (MIG off or absent) or what hinders: `mig-pending`, `lost`, `needs-reset`, `failing`.
    pub mode: String,
    /// Its slices by start.
    pub slices: Vec<SliceStatus>,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct NodeStatus {
    /// GPUs by index.
    pub gpus: Vec<GpuStatus>,
    /// Jobs by number, the last ended ones included.
    pub jobs: Vec<JobStatus>,
    /// The GPUs are simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second; 1 on a real GPU.
    pub time_scale: f64,
    /// Pid of the supervisor.
    pub supervisor: u32,
}

/// Which policy serves. Names are as `--policy` takes them.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct PolicyStatus {
    /// The one that serves now.
    pub policy: String,
    /// The batch that has asked for it; `None` where it is the supervisor's own.
    pub batch: Option<BatchId>,
    /// The supervisor's own, which serves after that batch.
    pub own: String,
}

/// A batch at its end. Wall seconds; NVML joules.
#[derive(Clone, Debug, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct BatchSummary {
    /// Number.
    pub batch: BatchId,
    /// When it started; monotonic wall seconds.
    pub started: f64,
    /// From the start to the end of the last job, wall seconds.
    pub makespan: f64,
    /// What the GPUs' energy counters gained meanwhile, whole GPUs; `None` where there is no counter.
    pub energy_j: Option<f64>,
    /// Instances created plus instances destroyed meanwhile.
    pub reconfigurations: u64,
    /// Attempts that ended in OOM.
    pub ooms: u64,
    /// Attempts moved on a forecast.
    pub early_restarts: u64,
    /// Attempts moved for a better slice.
    pub moves: u64,
    /// Its jobs in order of submission.
    pub jobs: Vec<JobStatus>,
    /// Model name of the first GPU.
    pub gpu: String,
    /// The GPUs are simulated.
    pub simulated: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
}
