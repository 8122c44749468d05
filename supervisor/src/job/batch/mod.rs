//! A batch: jobs that are released together and measured together.
//!
//! 1. The batch is opened with a supervisor, by a policy of its own if it names one, which numbers it and tells of each change from there on.
//! 2. One runner process a job is started, `migm run --batch ID`, in the order of the file. The next one
//!    waits until the supervisor has told of the one before, so that the order of submission is the file's, but for jobs
//!    that come after later ones: these are first. Each is told the numbers of those before it, and of its array.
//! 3. The batch is started: makespan and energy count from here. Jobs with an arrival time follow then.
//! 4. Signals to the batch go to all its runners, and through them to the jobs.
//! 5. When the supervisor says that all jobs have ended, its summary is the result.
//!
//! A supervisor that dies meanwhile is looked for as a runner does, and asked about the batch by number.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use migm_shared::ids::{BatchId, JobId};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::Pid;
use rustix::process::{WaitOptions, wait};

use super::array::words;
use super::link::Link;
use super::record::Clock;
use super::signals::{Signals, asks_to_end};
use super::{JobError, monotonic, say, terminal};
use crate::control::start::Wanted;
use crate::control::{BatchSummary, Element, JobStatus, NodeStatus, Reply, Request};

pub mod order;
pub mod spec;

pub use spec::{BatchSpec, Before, JobSpec, SpecError};

/// The longest wait between two looks at runners and arrivals.
const LOOK: Duration = Duration::from_millis(100);
/// How often people are shown changes in bytes and iterations, of which the supervisor does not tell.
const REFRESH: Duration = Duration::from_millis(500);
/// When all runners have ended, how long until the summary is asked for.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// And how long it may take.
const SUMMARY_LIMIT: Duration = Duration::from_secs(60);

/// How a batch is run.
#[derive(Clone, Debug)]
pub struct BatchOptions {
    /// The `migm` to start runners with.
    pub migm: PathBuf,
    /// Which supervisor.
    pub wanted: Wanted,
    /// Where the jobs' standard output goes.
    pub output: Output,
}

/// Where the jobs' standard output goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Output {
    /// To ours.
    Inherit,
    /// To standard error, because ours is for one document.
    Stderr,
    /// Nowhere.
    Discard,
}

/// What happens meanwhile, for those who show it.
#[derive(Debug)]
pub enum News<'a> {
    /// The machine, once, before the first job.
    Node(&'a NodeStatus),
    /// A job has changed.
    Job(&'a JobStatus),
    /// The batch has started with so many jobs, those that arrive later included.
    Started {
        /// Number of jobs.
        jobs: usize,
    },
}

/// Why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// No supervisor, or no system call.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The supervisor does not serve it by the policy that it names.
    #[error("{0}")]
    Policy(String),
    /// A runner cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// The supervisor refuses the batch.
    #[error("{0}")]
    Refused(String),
    /// A runner ended before the supervisor had its job.
    #[error("job `{job}` was not accepted (its runner ended with {status}), so the batch is not started")]
    NotAccepted {
        /// Its name.
        job: String,
        /// How the runner ended.
        status: ExitStatus,
    },
    /// A signal came before the batch had started.
    #[error("interrupted by {0} before the batch had started")]
    Interrupted(Signal),
    /// All runners have ended, and no summary comes.
    #[error("all jobs have ended, but the supervisor sends no summary of the batch")]
    NoSummary,
}

impl From<crate::control::start::StartError> for BatchError {
    fn from(error: crate::control::start::StartError) -> Self {
        Self::Job(error.into())
    }
}

struct Runner {
    job: String,
    child: Child,
    ended: Option<ExitStatus>,
}

struct Batch<'a> {
    spec: &'a BatchSpec,
    options: &'a BatchOptions,
    watch: &'a mut dyn FnMut(&News<'_>),
    signals: Signals,
    link: Link,
    id: Option<BatchId>,
    clock: Option<Clock>,
    /// All that are there from the start have been accepted.
    begins: bool,
    accepted: BTreeSet<JobId>,
    /// The last that was accepted.
    newest: Option<JobId>,
    /// Numbers of the batch's jobs, by their place in the file.
    ids: Vec<Option<JobId>>,
    /// Numbers of its arrays, by their place in the file, and one that has just come.
    arrays: BTreeMap<usize, JobId>,
    opened: Option<JobId>,
    /// Somebody looks on.
    for_people: bool,
    refreshed: Instant,
    runners: Vec<Runner>,
    /// Where those that have not ended stand, by pid.
    alive: BTreeMap<u32, usize>,
    summary: Option<BatchSummary>,
    interrupted: Option<Signal>,
    refused: Option<String>,
}

/// Runs a batch to its end. The process must have one thread: signals are taken out of the ordinary way.
///
/// # Errors
/// See [`BatchError`]. Failed jobs are no error: the summary tells of them.
pub fn run(
    spec: &BatchSpec,
    options: &BatchOptions,
    watch: &mut dyn FnMut(&News<'_>),
) -> Result<BatchSummary, BatchError> {
    let link = Link::open(&options.wanted)?;
    let signals = Signals::take()?;
    let mut batch = Batch {
        spec,
        options,
        watch,
        signals,
        link,
        id: None,
        clock: None,
        begins: false,
        accepted: BTreeSet::new(),
        newest: None,
        ids: vec![None; spec.jobs.len()],
        arrays: BTreeMap::new(),
        opened: None,
        for_people: std::io::stderr().is_terminal(),
        refreshed: Instant::now(),
        runners: Vec::new(),
        alive: BTreeMap::new(),
        summary: None,
        interrupted: None,
        refused: None,
    };
    let ended = batch.run();
    if ended.is_err() {
        batch.signal_runners(Signal::SIGTERM);
        batch.wait_for_runners();
    }
    batch.signals.give_back();
    ended
}

impl Batch<'_> {
    fn run(&mut self) -> Result<BatchSummary, BatchError> {
        self.open();
        while self.id.is_none() || self.clock.is_none() {
            self.turn()?;
            self.check_not_interrupted()?;
        }
        let spec = self.spec;
        let (first, mut later): (Vec<usize>, Vec<usize>) = order::in_order(&spec.jobs)
            .into_iter()
            .partition(|job| spec.jobs[*job].arrival <= 0.0);
        for job in first {
            self.submit(job)?;
        }
        self.begins = true;
        self.start();
        let started = monotonic();
        (self.watch)(&News::Started {
            jobs: spec.jobs.len(),
        });
        let arrival = |job: usize| spec.jobs[job].arrival;
        later.sort_by(|a, b| arrival(*a).total_cmp(&arrival(*b)));
        let mut later = later.into_iter().peekable();
        let (mut all_ended_at, mut asked_again) = (None, false);
        loop {
            self.turn()?;
            let scale = self.clock.map_or(1.0, |clock| clock.time_scale);
            while let Some(job) = later.next_if(|job| started + arrival(*job) * scale <= monotonic()) {
                if self.interrupted.is_none() {
                    self.submit_late(job)?;
                }
            }
            if later.peek().is_some() && self.interrupted.is_none() {
                // What the supervisor sums up before the last arrival is not the batch.
                self.summary = None;
                continue;
            }
            let is_whole = |summary: &BatchSummary| summary.jobs.len() >= self.runners.len();
            if let Some(summary) = self.summary.take_if(|summary| is_whole(summary)) {
                self.wait_for_runners();
                return Ok(summary);
            }
            if self.alive.is_empty() {
                // A runner may have ended without a job; then the summary has fewer and is as good as it
                // gets.
                let since = *all_ended_at.get_or_insert_with(Instant::now);
                let is_recent = |summary: &BatchSummary| summary.jobs.len() >= self.accepted.len();
                if let Some(summary) = self.summary.take_if(|summary| is_recent(summary)) {
                    return Ok(summary);
                }
                // The one that came may have been of before the last arrival.
                if since.elapsed() > ASK_AGAIN && !asked_again {
                    asked_again = true;
                    if let Some(batch) = self.id {
                        self.link.send(&Request::WatchBatch { batch }, None);
                    }
                }
                if since.elapsed() > SUMMARY_LIMIT {
                    return Err(BatchError::NoSummary);
                }
            }
        }
    }

    /// Lets the jobs go. A batch that has started already is none the worse for it.
    fn start(&mut self) {
        if let Some(batch) = self.id {
            self.link.send(&Request::StartBatch { batch }, None);
        }
    }

    /// Waits a moment for replies, signals and ends of runners, and takes note of them.
    fn turn(&mut self) -> Result<(), BatchError> {
        {
            let limit = PollTimeout::try_from(LOOK).unwrap_or(PollTimeout::ZERO);
            let mut files = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            files.extend(
                self.link
                    .socket()
                    .map(|socket| PollFd::new(socket, PollFlags::POLLIN)),
            );
            match poll(&mut files, limit) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(JobError::system("wait for signals and replies")(errno).into()),
            }
        }
        while let Some(signal) = self.signals.next() {
            self.on_signal(signal);
        }
        while self.refused.is_none()
            && let Some(reply) = self.link.receive()
        {
            self.on_reply(reply);
        }
        if self.for_people && self.clock.is_some() && self.refreshed.elapsed() >= REFRESH {
            self.refreshed = Instant::now();
            self.link.send(&Request::Status, None);
        }
        if self.link.look() {
            match self.id {
                Some(batch) => {
                    self.link.send(&Request::WatchBatch { batch }, None);
                    // The one before may have died of it, or before it heard of it.
                    if self.begins {
                        self.start();
                    }
                }
                None => self.open(),
            }
        }
        let by_policy = self.id.is_none() && self.options.wanted.policy.is_some();
        match self.refused.take() {
            None => Ok(()),
            Some(reason) if by_policy => Err(BatchError::Policy(reason)),
            Some(reason) => Err(BatchError::Refused(reason)),
        }
    }

    fn open(&mut self) {
        let name = self.spec.name.clone();
        match self.options.wanted.policy.clone() {
            // Nothing is shown of a batch that is refused for its policy.
            Some(policy) => {
                self.link.send(&Request::OpenBatchBy { name, policy }, None);
                self.link.send(&Request::Status, None);
            }
            None => {
                self.link.send(&Request::Status, None);
                self.link.send(&Request::OpenBatch { name }, None);
            }
        }
    }

    fn on_reply(&mut self, reply: Reply) {
        match reply {
            Reply::BatchOpened { batch } => self.id = Some(batch),
            Reply::Status(node) if self.clock.is_none() => {
                self.clock = Some(Clock {
                    simulated: node.simulated,
                    time_scale: node.time_scale,
                });
                (self.watch)(&News::Node(&node));
            }
            Reply::Status(node) => {
                for job in node.jobs.iter().filter(|job| self.accepted.contains(&job.id)) {
                    (self.watch)(&News::Job(job));
                }
            }
            Reply::BatchJob(job) => {
                if self.accepted.insert(job.id) {
                    self.newest = Some(job.id);
                }
                (self.watch)(&News::Job(&job));
            }
            Reply::ArrayOpened { array } => self.opened = Some(array),
            Reply::BatchEnded(summary) => self.summary = Some(*summary),
            Reply::Refused { reason } => self.refused = Some(reason),
            _ => {}
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        match signal {
            Signal::SIGCHLD => self.reap(),
            Signal::SIGWINCH => {}
            Signal::SIGTSTP => {
                self.signal_runners(signal);
                terminal::stop(nix::unistd::getpid());
            }
            signal => {
                if asks_to_end(signal) {
                    self.interrupted = Some(signal);
                }
                self.signal_runners(signal);
            }
        }
    }

    /// Takes the status of all children that have one: many runners may have ended for one signal.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            self.link.reaped(pid);
            if let Some(runner) = self.alive.remove(&pid).and_then(|at| self.runners.get_mut(at)) {
                runner.ended = Some(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }

    fn signal_runners(&self, signal: Signal) {
        for pid in self.alive.keys() {
            // Not reaped yet, so the number is still this runner's.
            if let Ok(pid) = i32::try_from(*pid) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }

    fn check_not_interrupted(&self) -> Result<(), BatchError> {
        self.interrupted
            .map_or(Ok(()), |signal| Err(BatchError::Interrupted(signal)))
    }

    /// Starts a job's runner, and returns when the supervisor has the job.
    fn submit(&mut self, job: usize) -> Result<(), BatchError> {
        self.newest = None;
        self.spawn(job)?;
        while self.newest.is_none() {
            self.turn()?;
            self.check_not_interrupted()?;
            if let Some(status) = self.runners.last().and_then(|runner| runner.ended) {
                let job = self.spec.jobs[job].name.clone();
                return Err(BatchError::NotAccepted { job, status });
            }
        }
        self.ids[job] = self.newest;
        Ok(())
    }

    /// As [`submit`](Self::submit), while others run: a job that is not accepted is its own loss, and that of those after
    /// it.
    fn submit_late(&mut self, job: usize) -> Result<(), BatchError> {
        let missing = self.spec.jobs[job]
            .after
            .iter()
            .find(|before| self.ids[before.job].is_none());
        if let Some(before) = missing {
            say(format_args!(
                "job `{}` is left out: `{}`, which it comes after, was not accepted",
                self.spec.jobs[job].name, self.spec.jobs[before.job].name
            ));
            return Ok(());
        }
        self.newest = None;
        self.spawn(job)?;
        let ended = |runners: &[Runner]| runners.last().is_some_and(|runner| runner.ended.is_some());
        while self.newest.is_none() && self.interrupted.is_none() && !ended(&self.runners) {
            self.turn()?;
        }
        self.ids[job] = self.newest;
        Ok(())
    }

    /// The number of an array. Its jobs wait for nothing but the batch: they need no word of their own to begin.
    fn array(&mut self, table: usize) -> Result<JobId, BatchError> {
        if let Some(array) = self.arrays.get(&table) {
            return Ok(*array);
        }
        self.opened = None;
        let mut asked = false;
        let array = loop {
            if !self.link.is_up() {
                asked = false;
            } else if !std::mem::replace(&mut asked, true) {
                self.link.send(&Request::OpenArray, None);
            }
            self.turn()?;
            self.check_not_interrupted()?;
            if let Some(array) = self.opened.take() {
                break array;
            }
        };
        self.link.send(&Request::StartArray { array }, None);
        self.arrays.insert(table, array);
        Ok(array)
    }

    fn spawn(&mut self, index: usize) -> Result<(), BatchError> {
        let job = &self.spec.jobs[index];
        let array = job.element.map(|place| self.array(place.table)).transpose()?;
        let mut command = Command::new(&self.options.migm);
        command.arg("run").arg("--name").arg(&job.name);
        if let Some(batch) = self.id {
            command.arg("--batch").arg(batch.to_string());
        }
        if let Some(part) = &job.part {
            command.arg("--part").arg(part);
        }
        if let Some(mem) = job.mem {
            command.arg("--mem").arg(mem.to_string());
        }
        if let Some(iterations) = job.iterations {
            command.arg("--iterations").arg(iterations.to_string());
        }
        if job.priority != 0 {
            command.arg(format!("--priority={}", job.priority));
        }
        if let Some(profile) = &job.profile {
            command.arg("--profile").arg(profile);
        }
        if job.exclusive {
            command.arg("--exclusive");
        }
        for device in &job.devices {
            command.arg("--device").arg(device.to_string());
        }
        for before in &job.after {
            let Some(id) = self.ids[before.job] else { continue };
            let option = if before.any {
                "--after-any-job"
            } else {
                "--after-job"
            };
            command.arg(option).arg(id.to_string());
        }
        if let (Some(place), Some(array)) = (job.element, array) {
            let element = Element {
                array,
                index: place.index,
                count: place.count,
                at_once: place.at_once,
            };
            command.arg("--element").arg(words(&element));
        }
        command.arg("--").args(&job.command);
        // A group of its own: Ctrl-C comes to the batch alone, which passes it on once.
        command
            .envs(&job.env)
            .env("MIGM_SOCKET", self.link.path())
            .stdin(Stdio::null())
            .process_group(0);
        match self.options.output {
            Output::Inherit => {}
            Output::Stderr => {
                command.stdout(stderr().map_err(|source| self.cannot_spawn(source))?);
            }
            Output::Discard => {
                command.stdout(Stdio::null());
            }
        }
        let mask = *self.signals.before();
        let unblock = move || {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
            Ok(())
        };
        // SAFETY: between fork and exec the closure calls sigprocmask alone, which signal-safety(7) lists,
        // and it allocates nothing.
        unsafe { command.pre_exec(unblock) };
        let child = command.spawn().map_err(|source| self.cannot_spawn(source))?;
        self.alive.insert(child.id(), self.runners.len());
        self.runners.push(Runner {
            job: job.name.clone(),
            child,
            ended: None,
        });
        Ok(())
    }

    fn cannot_spawn(&self, source: std::io::Error) -> BatchError {
        BatchError::Spawn {
            program: self.options.migm.clone(),
            source,
        }
    }

    /// Each has reported its job's end and goes within a moment.
    fn wait_for_runners(&mut self) {
        for at in std::mem::take(&mut self.alive).into_values() {
            let runner = &mut self.runners[at];
            if runner.child.wait().is_err() {
                say(format_args!(
                    "the runner of job `{}` was waited for by another",
                    runner.job
                ));
            }
        }
    }
}

fn stderr() -> std::io::Result<Stdio> {
    Ok(std::io::stderr().as_fd().try_clone_to_owned()?.into())
}
