//! The runner's loop: signals, the supervisor's word and the clock, until the job is over.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, killpg};
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::attempt::{self, Attempt, End, Launch, Why};
use super::descendants::descendants;
use super::input::Input;
use super::link::Link;
use super::page::JobPage;
use super::record::{Clock, JobRecord};
use super::signals::{Signals, asks_to_end, shell_status};
use super::terminal::{Terminal, stop};
use super::{JobError, Order, monotonic, say};
use crate::control::{AttemptRecord, Grant, JobStatus, Outcome, Reply, Request, Submission};
use migm_shared::ids::JobId;

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
    report: Option<File>,
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
    let report = order.report.as_ref().map(|path| {
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).open(path);
        file.map_err(|source| JobError::Report {
            path: path.clone(),
            source,
        })
    });
    let report = report.transpose()?;
    let page = JobPage::create().map_err(JobError::Page)?;
    let input = Input::take(order.stdin_spool).map_err(JobError::Spool)?;
    // A supervisor started here is a child like any other: only later do orphans become ours too.
    let link = Link::open(&order.wanted)?;
    let signals = Signals::take()?;
    set_child_subreaper(true).map_err(JobError::system("become the parent of orphans"))?;
    let mut runner = Runner {
        submission: submission(&order, &input),
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
        report,
        left_behind: None,
        tell_at: Some(Instant::now() + QUIET),
    };
    if !runner.input.is_repeatable() {
        say(
            "standard input is a pipe, so this job is not relaunched on another slice; --stdin-spool keeps a \
             copy of the input for that",
        );
    }
    let status = runner.go()?;
    runner.write_report();
    Ok(u8::try_from(status & 0xff).unwrap_or(u8::MAX))
}

fn submission(order: &Order, input: &Input) -> Submission {
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
        visible_devices: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        use_existing: order.use_existing,
        batch: order.batch,
        part: order.part.clone(),
        nonce: nonce(),
        runner: std::process::id(),
    }
}

/// Differs between any two jobs: the standard library seeds its hashers from the kernel's random numbers.
fn nonce() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    RandomState::new().build_hasher().finish()
}

impl Runner {
    fn go(&mut self) -> Result<i32, JobError> {
        self.introduce();
        loop {
            if let Stage::Over(status) = self.stage {
                return Ok(status);
            }
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

    /// Tells a supervisor that has just been found all about the job.
    fn introduce(&mut self) {
        let Some(job) = self.job else {
            let request = Request::Submit(self.submission.clone());
            self.link.send(&request, Some(self.page.as_fd()));
            self.ask_for_clock();
            return;
        };
        let (grant, pid) = match &self.stage {
            Stage::Running(attempt) => (Some(attempt.grant.clone()), Some(attempt.leader())),
            Stage::Reported { grant, .. } => (Some((**grant).clone()), None),
            Stage::Waiting | Stage::Over(_) => (None, None),
        };
        let mut attempts = self.attempts.clone();
        // The supervisor that heard of this end may have died of it: the next one hears of it below.
        if let (Stage::Reported { .. }, Some(last)) = (&self.stage, attempts.last_mut()) {
            last.end = None;
            last.outcome = None;
            last.status = None;
        }
        let resume = Request::Resume {
            submission: self.submission.clone(),
            job,
            grant,
            attempts,
            pid: pid.and_then(|pid| u32::try_from(pid.as_raw()).ok()),
        };
        self.link.send(&resume, Some(self.page.as_fd()));
        if let Stage::Reported {
            ended,
            goes_on,
            until,
            ..
        } = &mut self.stage
        {
            self.link.send(ended, None);
            if *goes_on {
                *until = None;
            }
        }
        self.ask_for_clock();
    }

    /// The report needs to know how simulated time runs.
    fn ask_for_clock(&mut self) {
        if self.report.is_some() && self.clock.is_none() {
            self.link.send(&Request::Status, None);
        }
    }

    fn on_reply(&mut self, reply: Reply) -> Result<(), JobError> {
        match reply {
            Reply::Accepted { job, notice } => {
                self.job = Some(job);
                if let Some(notice) = notice.filter(|_| self.order.batch.is_none()) {
                    say(notice);
                }
            }
            Reply::Grant(grant) => match self.stage {
                Stage::Waiting | Stage::Reported { goes_on: true, .. } => self.start(grant),
                // Said again after a resume, or to a job that does not go on.
                _ => {}
            },
            Reply::Move { attempt, reason } => self.stop_attempt(attempt, Why::Move(reason)),
            Reply::Cancel {
                attempt: Some(attempt),
            } => self.stop_attempt(attempt, Why::Cancel),
            Reply::Cancel { attempt: None } => match self.stage {
                Stage::Waiting | Stage::Reported { .. } => self.end_without_more(JobError::Cancelled)?,
                Stage::Running(_) | Stage::Over(_) => {}
            },
            Reply::Finished(status) => {
                // Of a job that still runs only the job itself can say that it is over.
                if !matches!(self.stage, Stage::Running(_)) {
                    self.end_without_more(JobError::Refused("the job is over".into()))?;
                    self.last = Some(status);
                }
            }
            Reply::Refused { reason } => {
                if matches!(self.stage, Stage::Running(_)) {
                    say(format_args!("{reason}; the job goes on without a supervisor"));
                    self.link.close();
                } else {
                    if !self.attempts.is_empty() {
                        say(&reason);
                    }
                    self.end_without_more(JobError::Refused(reason))?;
                }
            }
            Reply::Status(node) => {
                self.clock = Some(Clock {
                    simulated: node.simulated,
                    time_scale: node.time_scale,
                });
            }
            Reply::BatchOpened { .. } | Reply::BatchJob(_) | Reply::BatchEnded(_) | Reply::Done => {}
        }
        Ok(())
    }

    /// The job is over with the status of its last attempt; without one, for the given reason.
    fn end_without_more(&mut self, reason: JobError) -> Result<(), JobError> {
        let status = self.attempts.last().and_then(|last| last.status).ok_or(reason)?;
        self.stage = Stage::Over(status);
        Ok(())
    }

    fn start(&mut self, grant: Grant) {
        if !self.attempts.is_empty() {
            self.page.next_attempt();
        }
        let number = self.attempts.len() + 1;
        self.murmur(format_args!(
            "attempt {number} on {} at {} of {}: {}",
            grant.profile, grant.start, grant.gpu, grant.reason
        ));
        self.attempts.push(AttemptRecord {
            profile: grant.profile.clone(),
            slice: grant.slice,
            placement: grant.start,
            start: monotonic(),
            end: None,
            outcome: None,
            status: None,
            why: None,
        });
        let stdin = match self.input.for_attempt() {
            Ok(stdin) => stdin,
            Err(error) => {
                say(format_args!("cannot wind standard input back: {error}"));
                return self.report_end(&grant, 125, Outcome::Failed);
            }
        };
        let terminal = self.terminal.offer();
        let launch = Launch {
            command: &self.order.command,
            grant: &grant,
            socket: self.link.path(),
            stdin,
            mask: self.signals.before(),
            terminal,
        };
        match attempt::start(launch) {
            Ok(attempt) => {
                if terminal.is_some() {
                    self.terminal.note_lent();
                }
                let pid = u32::try_from(attempt.leader().as_raw()).unwrap_or(0);
                let started = Request::Started {
                    attempt: grant.attempt,
                    pid,
                };
                self.link.send(&started, None);
                self.stage = Stage::Running(Box::new(attempt));
            }
            Err(error) => {
                say(&error);
                self.report_end(&grant, error.status(), Outcome::Failed);
            }
        }
    }

    fn stop_attempt(&mut self, id: migm_shared::ids::AttemptId, why: Why) {
        let Stage::Running(attempt) = &mut self.stage else {
            return;
        };
        let is_move = matches!(why, Why::Move(_));
        // A word about an earlier attempt, or a move of what could not start again.
        if attempt.grant.attempt != id || (is_move && !self.input.is_repeatable()) {
            return;
        }
        let line = match &why {
            Why::Move(reason) => format!("the job moves to another slice: {reason}"),
            Why::Cancel => "the job is cancelled".to_owned(),
        };
        attempt.stop(why, self.order.signal, self.order.grace, self.link.child());
        self.murmur(line);
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

    /// Takes the status of all children that have one.
    fn reap(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = wait(options) {
            let pid = pid.as_raw_nonzero().get();
            if !status.stopped() {
                self.link.reaped(pid.unsigned_abs());
            }
            let Stage::Running(attempt) = &mut self.stage else {
                continue;
            };
            if attempt.leader().as_raw() != pid {
                continue;
            }
            if status.stopped() {
                self.on_stopped(status);
            } else if let Some(end) = end(status) {
                attempt.leader_ended(end, self.terminal.is_lent());
                self.terminal.take_back(attempt.leader());
            }
        }
        self.end_if_empty();
    }

    /// The attempt has stopped as a job of a shell does.
    fn on_stopped(&mut self, status: WaitStatus) {
        let Stage::Running(attempt) = &self.stage else {
            return;
        };
        let group = attempt.leader();
        let signal = status
            .stopping_signal()
            .and_then(|number| Signal::try_from(number).ok());
        let wants_terminal = matches!(signal, Some(Signal::SIGTTIN | Signal::SIGTTOU));
        // Without a terminal no shell would continue the runner.
        if !self.terminal.exists() {
            return;
        }
        // Stopped by a signal to it alone, it is somebody's own doing and no Ctrl-Z.
        if signal == Some(Signal::SIGSTOP) && !self.terminal.is_lent() {
            return;
        }
        let lent = wants_terminal && self.terminal.lend(group);
        // One that is to end must not be waited for.
        if !lent && !attempt.is_stopping() {
            self.terminal.stop_with_attempt(group);
            self.terminal.lend_again(group);
        }
        let _ = killpg(group, Signal::SIGCONT);
    }

    /// The attempt is over when its leader has ended and nothing that it left behind lives.
    fn end_if_empty(&mut self) {
        let Stage::Running(attempt) = &self.stage else {
            return;
        };
        let apart = self.link.child();
        let Some(end) = attempt.end() else {
            return;
        };
        // Twice: a process may fork and end between two entries of one reading of /proc, and its child,
        // then ours, be missed. It is there for the second.
        let left = [descendants(apart), descendants(apart)].concat();
        if let Some(first) = left.first() {
            if self.left_behind.replace(first.pid).is_none() {
                self.murmur(format_args!(
                    "the program has ended, and its slice is kept while process {} that it has left lives",
                    first.pid
                ));
            }
            return;
        }
        self.left_behind = None;
        let number = attempt.grant.attempt.attempt;
        let outcome = attempt.outcome(self.page.unmet_of(number).is_some(), self.order.done_on_zero);
        if let Some(last) = self.attempts.last_mut() {
            last.why = attempt.why();
        }
        let status = match (outcome, end) {
            // The program ends well when stopped, but the user's signal left its work undone.
            (Outcome::Signalled, End::Exit(0)) => {
                let signal = attempt.asked_to_end().unwrap_or(Signal::SIGTERM);
                shell_status(signal as i32)
            }
            _ => end.status(),
        };
        let grant = attempt.grant.clone();
        self.report_end(&grant, status, outcome);
    }

    fn report_end(&mut self, grant: &Grant, status: i32, outcome: Outcome) {
        let number = grant.attempt.attempt;
        let unmet = self.page.unmet_of(number).filter(|_| outcome == Outcome::Oom);
        if let Some(last) = self.attempts.last_mut() {
            last.end = Some(monotonic());
            last.outcome = Some(outcome);
            last.status = Some(status);
            if let Some(unmet) = unmet {
                last.why = Some(format!(
                    "{} bytes asked for with {} in use",
                    unmet.asked, unmet.in_use
                ));
            }
        }
        self.page.clear_dead();
        let ended = Request::Ended {
            attempt: grant.attempt,
            status,
            outcome,
            figures: self.page.figures(),
            unmet,
        };
        self.link.send(&ended, None);
        let goes_on = matches!(outcome, Outcome::Moved | Outcome::Oom) && self.input.is_repeatable();
        let patience = if self.order.batch.is_some() {
            LONG_PATIENCE
        } else {
            PATIENCE
        };
        self.stage = Stage::Reported {
            grant: Box::new(grant.clone()),
            ended: Box::new(ended),
            goes_on,
            until: (!goes_on).then(|| Instant::now() + patience),
        };
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
            figures.device = last.figures.device;
            figures.allocated = figures.allocated.or(last.figures.allocated);
            predicted = last.predicted_peak_bytes;
        }
        let clock = self.clock.unwrap_or(Clock::REAL);
        let name = &self.order.name;
        let record = JobRecord::new(name, &self.attempts, self.submitted, &figures, predicted, &clock);
        let written = serde_json::to_string_pretty(&record)
            .map_err(std::io::Error::from)
            .and_then(|text| writeln!(&file, "{text}"));
        if let Err(error) = written {
            say(format_args!("cannot write the report: {error}"));
        }
    }
}

fn end(status: WaitStatus) -> Option<End> {
    let by_signal = status.terminating_signal().map(End::Signal);
    by_signal.or_else(|| status.exit_status().map(End::Exit))
}
