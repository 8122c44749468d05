//! The runner's loop: signals, the supervisor's word and the clock, until the job is over.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::Signal;

use super::attempt::Attempt;
use super::detached::{Detached, Kept};
use super::input::Input;
use super::link::Link;
use super::page::JobPage;
use super::record::{Clock, JobRecord, ReportFile};
use super::signals::{Signals, asks_to_end, shell_status};
use super::terminal::{Terminal, stop};
use super::{JobError, Order, monotonic, say};
use crate::control::{AttemptRecord, Explanation, Grant, JobStatus, Outcome, Request, Submission};
use migm_shared::ids::JobId;

mod attempts;
mod conversation;
mod history;
mod keeping;

/// How long a job that is over waits for the supervisor to take note, wall time.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same where others count on the record, or where another attempt could follow.
const LONG_PATIENCE: Duration = Duration::from_secs(30);
/// A job that waits less is not worth a word.
const QUIET: Duration = Duration::from_secs(1);
/// As much of the command line is told to the supervisor, for display, bytes.
const SHOWN_COMMAND: usize = 16 << 10;

/// Where the job is.
#[derive(Debug)]
enum Stage {
    /// For a grant.
    Waiting,
    /// An attempt lives.
    Running(Box<Attempt>),
    /// The end of an attempt is reported, and the supervisor says how it goes on.
    Reported {
        grant: Box<Grant>,
        ended: Box<Request>,
        /// Another attempt may follow.
        goes_on: bool,
        /// Then the runner waits no longer.
        until: Option<Instant>,
    },
    /// This is the job's exit status.
    Over(i32),
}

/// One job and all that its runner holds for it.
#[derive(Debug)]
struct Runner {
    order: Order,
    page: JobPage,
    input: Input,
    terminal: Terminal,
    signals: Signals,
    link: Link,
    submission: Submission,
    submitted: f64,
    job: Option<JobId>,
    stage: Stage,
    attempts: Vec<AttemptRecord>,
    clock: Option<Clock>,
    last: Option<Box<JobStatus>>,
    /// What is known of the program, and kept of this run.
    history: Option<history::Chronicle>,
    /// What the supervisor has decided on the job, once it is over.
    explained: Option<Box<Explanation>>,
    report: Option<ReportFile>,
    /// The record of a detached job.
    kept: Option<Kept>,
    /// A process that outlives the leader of the attempt, once the user has been told of it.
    left_behind: Option<i32>,
    /// When a user is told that the job waits, until it has been said.
    tell_at: Option<Instant>,
}

/// Runs a job to its end and gives back its exit status as a shell shows it.
///
/// # Errors
/// See [`JobError`]; the job has not run then.
pub fn run(order: Order) -> Result<u8, JobError> {
    Runner::new(order)?.run()
}

/// As [`run`], for a job that is detached: whoever waits for its number hears of it or why there is none, and what
/// becomes of it is kept.
///
/// # Errors
/// As [`run`]; it has been told and kept.
pub fn run_detached(order: Order, detached: Detached) -> Result<u8, JobError> {
    let clock = detached.clock;
    let mut kept = Kept::new(detached);
    match Runner::new(order) {
        Ok(mut runner) => {
            runner.clock = Some(clock);
            runner.kept = Some(kept);
            runner.run()
        }
        Err(error) => {
            kept.over(Err(&error), &[], 0.0, &Clock::REAL, None)
                .map_err(JobError::Keep)?;
            Err(error)
        }
    }
}

fn submission(order: &Order, input: &Input, nonce: u64) -> Submission {
    let mut room = SHOWN_COMMAND;
    let words = order
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    let command = words.take_while(|word| {
        let fits = word.len() <= room;
        room = room.saturating_sub(word.len());
        fits
    });
    Submission {
        name: order.name.clone(),
        command: command.collect(),
        mem: order.mem,
        iterations: order.iterations,
        movable: input.is_repeatable(),
        // Within another job that variable is its slice, and no wish of the user.
        visible_devices: match super::outer_attempt() {
            None => std::env::var("CUDA_VISIBLE_DEVICES").ok(),
            Some(_) => None,
        },
        use_existing: order.use_existing,
        batch: order.batch,
        part: order.part.clone(),
        nonce,
        runner: std::process::id(),
        wishes: order.wishes.clone(),
    }
}

/// Differs between any two jobs: the standard library seeds its hashers from the kernel's random numbers.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

impl Runner {
    fn new(order: Order) -> Result<Self, JobError> {
        let open = |path: &PathBuf| {
            ReportFile::open(path).map_err(|source| JobError::Report {
                path: path.clone(),
                source,
            })
        };
        let report = order.report.as_ref().map(open).transpose()?;
        let nonce = nonce();
        let page = JobPage::create(nonce).map_err(JobError::Page)?;
        let input = Input::take(order.stdin_spool).map_err(JobError::Spool)?;
        // A supervisor started here is a child like any other: only later do orphans become ours too.
        let link = Link::open(&order.wanted)?;
        let signals = Signals::take()?;
        set_child_subreaper(true).map_err(JobError::system("become the parent of orphans"))?;
        Ok(Self {
            submission: submission(&order, &input, nonce),
            submitted: monotonic(),
            terminal: Terminal::find(),
            order,
            page,
            input,
            signals,
            link,
            job: None,
            stage: Stage::Waiting,
            attempts: Vec::new(),
            clock: None,
            last: None,
            history: None,
            explained: None,
            report,
            kept: None,
            left_behind: None,
            tell_at: Some(Instant::now() + QUIET),
        })
    }

    /// From the submission to the end.
    fn run(mut self) -> Result<u8, JobError> {
        if !self.input.is_repeatable() {
            say(
                "standard input is a pipe, so this job is not relaunched on another slice; --stdin-spool keeps a \
                 copy of the input for that",
            );
        }
        self.history = history::Chronicle::open(&self.order);
        let ended = self.go();
        if ended.is_ok() {
            self.write_report();
            self.write_history();
        }
        // Last: whoever waits for the end finds all else written.
        self.keep_end(ended.as_ref().copied());
        let status = ended?;
        Ok(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
    }

    fn go(&mut self) -> Result<i32, JobError> {
        self.introduce();
        loop {
            if let Stage::Over(status) = self.stage {
                return Ok(status);
            }
            self.keep();
            self.wait()?;
            while let Some(signal) = self.signals.next() {
                self.on_signal(signal);
            }
            while let Some(reply) = self.link.receive() {
                self.on_reply(reply)?;
            }
            self.on_time();
        }
    }

    /// Until something happens or is due.
    fn wait(&self) -> Result<(), JobError> {
        let due = match &self.stage {
            Stage::Running(attempt) => attempt.kill_at(),
            Stage::Reported { until, .. } => *until,
            Stage::Waiting => self.tell_at,
            Stage::Over(_) => return Ok(()),
        };
        let next = due.into_iter().chain(self.link.look_at()).min();
        let limit = next.map_or(PollTimeout::NONE, |next| {
            let left = next.saturating_duration_since(Instant::now());
            PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX)
        });
        let mut files = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        files.extend(
            self.link
                .socket()
                .map(|socket| PollFd::new(socket, PollFlags::POLLIN)),
        );
        match poll(&mut files, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(JobError::system("wait for signals and replies")(errno)),
        }
    }

    fn on_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCHLD {
            return self.reap();
        }
        let apart = self.link.child();
        match &mut self.stage {
            Stage::Running(attempt) => {
                if signal == Signal::SIGCONT {
                    self.terminal.lend_again(attempt.leader());
                }
                attempt.forward(signal, apart);
            }
            Stage::Waiting | Stage::Reported { .. } if signal == Signal::SIGTSTP => {
                stop(nix::unistd::getpid());
            }
            Stage::Waiting | Stage::Reported { goes_on: true, .. } if asks_to_end(signal) => {
                if let Some(job) = self.job {
                    self.link.send(&Request::Cancel { job }, None);
                }
                self.stage = Stage::Over(shell_status(signal as i32));
            }
            Stage::Reported { until, .. } if asks_to_end(signal) => *until = Some(Instant::now()),
            _ => {}
        }
    }

    fn on_time(&mut self) {
        if let Stage::Running(attempt) = &mut self.stage {
            attempt.kill_if_due(self.link.child());
        }
        if self.link.look() {
            self.murmur("a supervisor answers again");
            self.introduce();
        }
        if matches!(self.stage, Stage::Waiting) && self.tell_at.take_if(|at| *at <= Instant::now()).is_some()
        {
            self.murmur(format_args!("waiting for a slice for `{}`", self.order.name));
        }
        let is_down = !self.link.is_up();
        let status = self.attempts.last().and_then(|last| last.status).unwrap_or(125);
        if let Stage::Reported {
            until,
            goes_on,
            ended,
            ..
        } = &mut self.stage
        {
            // A move was the supervisor's wish, so the job waits for the next one as long as it takes. Out
            // of memory is an end of the program's own, which stands if nobody can give it more.
            let own_end = !matches!(
                **ended,
                Request::Ended {
                    outcome: Outcome::Moved,
                    ..
                }
            );
            if *goes_on && own_end && is_down && until.is_none() {
                *until = Some(Instant::now() + LONG_PATIENCE);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                self.stage = Stage::Over(status);
            }
        }
    }

    /// For people at a terminal, or who asked for it.
    fn murmur(&self, line: impl std::fmt::Display) {
        if self.order.verbose || (self.order.batch.is_none() && std::io::stderr().is_terminal()) {
            say(line);
        }
    }

    /// A program that ran keeps its own exit status, also where its figures cannot be written.
    fn write_report(&mut self) {
        let Some(file) = self.report.take() else {
            return;
        };
        let mut figures = self.page.figures();
        let mut predicted = None;
        if let Some(last) = &self.last {
            // What a lease grew to is the supervisor's to tell.
            for (mine, told) in self.attempts.iter_mut().zip(&last.attempts) {
                if mine.slice == told.slice {
                    mine.memory = mine.memory.max(told.memory);
                }
            }
            figures.device = last.figures.device;
            figures.allocated = figures.allocated.or(last.figures.allocated);
            predicted = last.predicted_peak_bytes;
        }
        let clock = self.clock.unwrap_or(Clock::REAL);
        let name = &self.order.name;
        let record = JobRecord::new(name, &self.attempts, self.submitted, &figures, predicted, &clock);
        if let Err(error) = file.write(&record) {
            say(format_args!("cannot write the report: {error}"));
        }
    }
}
