//! One attempt: a process tree on one slice, from its start to the judgement on its end.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::descendants::descendants;
use super::signals::{asks_to_end, shell_status};
use crate::control::{Grant, Outcome};

/// After SIGKILL, how long until the job is searched again for processes forked meanwhile.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// How the leading process ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl End {
    /// As a shell shows it.
    #[must_use]
    pub const fn status(self) -> i32 {
        match self {
            Self::Exit(status) => status,
            Self::Signal(signal) => shell_status(signal),
        }
    }
}

/// Why an attempt is being stopped.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Why {
    /// To start again on another slice; the forecast in one line.
    Move(String),
    /// On request.
    Cancel,
}

/// An attempt being stopped.
#[derive(Clone, Debug)]
struct Stop {
    why: Why,
    /// The leader lived when our signal was sent, so its end may be our doing.
    met_leader: bool,
    kill_at: Instant,
}

/// A running attempt.
#[derive(Debug)]
pub struct Attempt {
    /// Its lease.
    pub grant: Grant,
    leader: Pid,
    end: Option<End>,
    stop: Option<Stop>,
    forwarded: Vec<Signal>,
    /// The leader was ended by the terminal's own Ctrl-C or Ctrl-\, which reach it without us.
    by_terminal: bool,
}

impl Attempt {
    /// One whose leader has just been started.
    #[must_use]
    pub const fn new(grant: Grant, leader: Pid) -> Self {
        Self {
            grant,
            leader,
            end: None,
            stop: None,
            forwarded: Vec::new(),
            by_terminal: false,
        }
    }

    /// The process that leads the group.
    #[must_use]
    pub const fn leader(&self) -> Pid {
        self.leader
    }

    /// How the leader ended, once it has.
    #[must_use]
    pub const fn end(&self) -> Option<End> {
        self.end
    }

    /// The leader has ended; `lent` says that its group held the terminal.
    pub fn leader_ended(&mut self, end: End, lent: bool) {
        let typed = [Signal::SIGINT as i32, Signal::SIGQUIT as i32];
        self.by_terminal = lent && matches!(end, End::Signal(signal) if typed.contains(&signal));
        self.end = Some(end);
    }

    /// Passes a signal of the user's on.
    pub fn forward(&mut self, signal: Signal, apart: Option<u32>) {
        // Once each: a terminal that is resized for an hour sends thousands.
        self.forwarded.retain(|known| *known != signal);
        self.forwarded.push(signal);
        self.signal(signal, apart);
    }

    /// To the group while its leader keeps its number from being another's, else to each that is left.
    fn signal(&self, signal: Signal, apart: Option<u32>) {
        if self.end.is_none() {
            let _ = killpg(self.leader, signal);
        } else {
            for process in descendants(apart) {
                process.signal(signal);
            }
        }
    }

    /// Sends `signal` to all of the job and sets the time of SIGKILL. A cancel takes the place of a move
    /// under way, whose time stays.
    pub fn stop(&mut self, why: Why, signal: Signal, grace: Duration, apart: Option<u32>) {
        if let Some(stop) = &mut self.stop {
            if why == Why::Cancel {
                stop.why = why;
            }
            return;
        }
        self.stop = Some(Stop {
            why,
            met_leader: self.end.is_none(),
            kill_at: Instant::now() + grace,
        });
        // Groups of their own get it too: a daemonised process holds the slice like any other. A stopped
        // process acts on a signal only when it goes on.
        self.signal(signal, apart);
        let group = self.leader.as_raw();
        let others = descendants(apart);
        for process in others
            .iter()
            .filter(|process| self.end.is_none() && process.group != group)
        {
            process.signal(signal);
        }
        for process in &others {
            process.signal(Signal::SIGCONT);
        }
    }

    /// Whether it is being stopped.
    #[must_use]
    pub const fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// When [`Attempt::kill_if_due`] has something to do.
    #[must_use]
    pub fn kill_at(&self) -> Option<Instant> {
        self.stop.as_ref().map(|stop| stop.kill_at)
    }

    /// After the grace time, SIGKILL to all of the job, again and again while any of it lives.
    pub fn kill_if_due(&mut self, apart: Option<u32>) {
        let Some(stop) = self.stop.as_mut().filter(|stop| stop.kill_at <= Instant::now()) else {
            return;
        };
        stop.kill_at = Instant::now() + KILL_AGAIN;
        for process in descendants(apart) {
            process.signal(Signal::SIGKILL);
        }
    }

    /// How it ended, when no process of it lives. `unmet` says that it was left with a request that the
    /// driver had answered with out of memory.
    #[must_use]
    pub fn outcome(&self, unmet: bool, done_on_zero: bool) -> Outcome {
        let end = self.end.unwrap_or(End::Exit(0));
        let zero = end == End::Exit(0);
        let by_user = self.by_terminal
            || self
                .forwarded
                .iter()
                .any(|signal| asks_to_end(*signal) || end == End::Signal(*signal as i32));
        match &self.stop {
            _ if by_user && !zero => Outcome::Signalled,
            Some(stop) if stop.why == Why::Cancel => Outcome::Cancelled,
            // It asked to end in the user's name and was told to move: the user's word counts.
            Some(_) if by_user => Outcome::Signalled,
            Some(stop) if !stop.met_leader && !zero && unmet => Outcome::Oom,
            Some(_) if zero && done_on_zero => Outcome::Done,
            Some(_) => Outcome::Moved,
            None if zero => Outcome::Done,
            None if unmet => Outcome::Oom,
            None => Outcome::Failed,
        }
    }

    /// The last of the user's signals that asked it to end.
    #[must_use]
    pub fn asked_to_end(&self) -> Option<Signal> {
        self.forwarded
            .iter()
            .rev()
            .copied()
            .find(|signal| asks_to_end(*signal))
    }

    /// What is kept of why it ended.
    #[must_use]
    pub fn why(&self) -> Option<String> {
        match self.stop.as_ref().map(|stop| &stop.why) {
            Some(Why::Move(reason)) => Some(reason.clone()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::ids::{AttemptId, Incarnation, JobId};

    fn grant() -> Grant {
        Grant {
            attempt: AttemptId {
                job: JobId(1),
                attempt: 1,
                nonce: 1,
            },
            slice: Incarnation(1),
            gpu: String::new(),
            gpu_uuid: String::new(),
            profile: "1g.5gb".into(),
            start: 0,
            memory: 1,
            visible_device: "MIG-1".into(),
            environment: Vec::new(),
            library_path: Vec::new(),
            interposer: String::new(),
            reason: String::new(),
        }
    }

    fn ended(end: End, stop: Option<(Why, bool)>, forwarded: &[Signal]) -> Attempt {
        Attempt {
            grant: grant(),
            leader: Pid::from_raw(i32::MAX),
            end: Some(end),
            stop: stop.map(|(why, met_leader)| Stop {
                why,
                met_leader,
                kill_at: Instant::now(),
            }),
            forwarded: forwarded.to_vec(),
            by_terminal: false,
        }
    }

    fn moved() -> Option<(Why, bool)> {
        Some((Why::Move("forecast".into()), true))
    }

    #[test]
    fn outcomes_by_the_rules() {
        let term = Signal::SIGTERM;
        let usr1 = Signal::SIGUSR1;
        let cancel = Some((Why::Cancel, true));
        let late = Some((Why::Move(String::new()), false));
        let cases = [
            (ended(End::Exit(0), None, &[]), false, Outcome::Done),
            // Programs ask, fail, free and go on.
            (ended(End::Exit(0), None, &[]), true, Outcome::Done),
            (ended(End::Exit(1), None, &[]), false, Outcome::Failed),
            (ended(End::Exit(1), None, &[]), true, Outcome::Oom),
            (ended(End::Signal(6), None, &[]), true, Outcome::Oom),
            (ended(End::Signal(15), None, &[]), false, Outcome::Failed),
            (ended(End::Signal(15), None, &[term]), false, Outcome::Signalled),
            (ended(End::Exit(3), None, &[term]), true, Outcome::Signalled),
            (ended(End::Exit(0), None, &[term]), false, Outcome::Done),
            (ended(End::Exit(1), None, &[usr1]), false, Outcome::Failed),
            (ended(End::Signal(10), None, &[usr1]), false, Outcome::Signalled),
            (ended(End::Signal(15), moved(), &[]), false, Outcome::Moved),
            (ended(End::Signal(9), moved(), &[]), true, Outcome::Moved),
            (ended(End::Exit(0), moved(), &[]), false, Outcome::Moved),
            (ended(End::Exit(0), moved(), &[term]), false, Outcome::Signalled),
            (ended(End::Exit(143), moved(), &[term]), false, Outcome::Signalled),
            (ended(End::Exit(1), late.clone(), &[]), true, Outcome::Oom),
            (ended(End::Exit(0), late, &[]), true, Outcome::Moved),
            (
                ended(End::Signal(15), cancel.clone(), &[]),
                true,
                Outcome::Cancelled,
            ),
            (ended(End::Exit(0), cancel, &[]), false, Outcome::Cancelled),
        ];
        for (attempt, unmet, outcome) in cases {
            assert_eq!(
                attempt.outcome(unmet, false),
                outcome,
                "{attempt:?}, unmet: {unmet}"
            );
        }
        assert_eq!(
            ended(End::Exit(0), moved(), &[]).outcome(false, true),
            Outcome::Done
        );
        assert_eq!(
            ended(End::Exit(1), moved(), &[]).outcome(false, true),
            Outcome::Moved
        );
    }

    #[test]
    fn ctrl_c_on_a_lent_terminal_is_the_users_signal() {
        let mut attempt = ended(End::Exit(0), None, &[]);
        attempt.leader_ended(End::Signal(2), true);
        assert_eq!(attempt.outcome(false, false), Outcome::Signalled);
        attempt.leader_ended(End::Signal(2), false);
        assert_eq!(attempt.outcome(false, false), Outcome::Failed);
    }
}
