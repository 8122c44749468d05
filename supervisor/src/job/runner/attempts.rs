//! Attempts of the job: started, stopped, waited for, reported.

use std::time::{Duration, Instant};

use migm_shared::ids::AttemptId;
use nix::sys::signal::{Signal, killpg};
use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus, wait};

use super::{LONG_PATIENCE, PATIENCE, Runner, Stage};
use crate::control::{AttemptRecord, Grant, Outcome, Request};
use crate::job::attempt::{End, Why};
use crate::job::descendants::descendants;
use crate::job::launch::{self, Launch};
use crate::job::signals::shell_status;
use crate::job::{monotonic, say};

impl Runner {
    pub(super) fn start(&mut self, grant: Grant) {
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
            memory: grant.memory,
            for_speed: false,
        });
        if number == 1 {
            let given = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
            if let Some(line) = self.order.environment.unheard(&grant.interposer, given) {
                say(line);
            }
        }
        let stdin = match self.input.for_attempt() {
            Ok(stdin) => stdin,
            Err(error) => {
                say(format_args!("cannot wind standard input back: {error}"));
                return self.report_end(&grant, 125, Outcome::Failed);
            }
        };
        let terminal = self.terminal.offer();
        let page = self.page.path();
        let launch = Launch {
            command: &self.order.command,
            grant: &grant,
            socket: self.link.path(),
            environment: &self.order.environment,
            page: &page,
            element: self.order.wishes.element,
            stdin,
            mask: self.signals.before(),
            terminal,
        };
        match launch::start(launch) {
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

    pub(super) fn stop_attempt(&mut self, id: AttemptId, why: Why) {
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

    /// Takes the status of all children that have one.
    pub(super) fn reap(&mut self) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        let alone = loop {
            match wait(options) {
                Ok(Some((pid, status))) => self.reaped(pid.as_raw_nonzero().get(), status),
                Ok(None) => break false,
                // What is left of a job hangs on a child of this process, as orphans become such: without a child there
                // is nothing. To look through all processes of a machine would take longer than many a job.
                Err(errno) => break errno == Errno::CHILD,
            }
        };
        self.end_if_empty(alone);
    }

    fn reaped(&mut self, pid: i32, status: WaitStatus) {
        if !status.stopped() {
            self.link.reaped(pid.unsigned_abs());
        }
        let Stage::Running(attempt) = &mut self.stage else {
            return;
        };
        if attempt.leader().as_raw() != pid {
            return;
        }
        if status.stopped() {
            self.on_stopped(status);
        } else if let Some(end) = end(status) {
            attempt.leader_ended(end, self.terminal.is_lent());
            self.terminal.take_back(attempt.leader());
        }
    }

    /// The attempt has stopped as a job of a shell does.
    pub(super) fn on_stopped(&mut self, status: WaitStatus) {
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

    /// The attempt is over when its leader has ended and nothing that it left behind lives: `alone` says that this process
    /// has no child.
    fn end_if_empty(&mut self, alone: bool) {
        let Stage::Running(attempt) = &self.stage else {
            return;
        };
        let apart = self.link.child();
        let Some(end) = attempt.end() else {
            return;
        };
        // Twice: a process may fork and end between two entries of one reading of /proc, and its child,
        // then ours, be missed. It is there for the second.
        let left = || [descendants(apart), descendants(apart)].concat();
        if let Some(first) = (!alone).then(left).unwrap_or_default().first() {
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

    pub(super) fn report_end(&mut self, grant: &Grant, status: i32, outcome: Outcome) {
        let number = grant.attempt.attempt;
        let unmet = self.page.unmet_of(number).filter(|_| outcome == Outcome::Oom);
        if let Some(history) = &mut self.history {
            history.attempt_ended(grant, unmet);
        }
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
        let may_go_on = self.input.is_repeatable() && !self.link.is_closed();
        let goes_on = may_go_on && matches!(outcome, Outcome::Moved | Outcome::Oom);
        let patience = match self.order.batch {
            _ if self.link.is_closed() => Duration::ZERO,
            Some(_) => LONG_PATIENCE,
            // Jobs after it may wait for its end, and nobody waits for this process.
            None if self.kept.is_some() => LONG_PATIENCE,
            None => PATIENCE,
        };
        self.stage = Stage::Reported {
            grant: Box::new(grant.clone()),
            ended: Box::new(ended),
            goes_on,
            until: (!goes_on).then(|| Instant::now() + patience),
        };
    }
}

fn end(status: WaitStatus) -> Option<End> {
    let by_signal = status.terminating_signal().map(End::Signal);
    by_signal.or_else(|| status.exit_status().map(End::Exit))
}
