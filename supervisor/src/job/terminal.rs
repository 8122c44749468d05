//! The terminal, lent to the attempt as a shell lends it to a job.
//!
//! The attempt's process group is not the runner's, so on a terminal it would stop at its first read, and
//! Ctrl-C would not reach it. While an attempt runs in the foreground its group holds the terminal; when it
//! stops, the runner takes the terminal back and stops too, so that the shell sees its own job stop.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::fd::{AsRawFd, RawFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp};

/// The controlling terminal.
#[derive(Debug)]
pub struct Terminal {
    tty: Option<File>,
    at_once: bool,
    lent: bool,
}

impl Terminal {
    /// Looks for it. With a pipe as standard input the terminal stays with the whole pipeline, and the
    /// runner forwards what the terminal sends; the attempt gets it when it tries to use it.
    #[must_use]
    pub fn find() -> Self {
        Self {
            tty: OpenOptions::new().read(true).write(true).open("/dev/tty").ok(),
            at_once: std::io::stdin().is_terminal(),
            lent: false,
        }
    }

    /// Whether there is one.
    #[must_use]
    pub const fn exists(&self) -> bool {
        self.tty.is_some()
    }

    /// The descriptor that an attempt is to take the foreground of as it starts.
    #[must_use]
    pub fn offer(&self) -> Option<RawFd> {
        let tty = self.tty.as_ref().filter(|_| self.at_once && self.is_ours())?;
        Some(tty.as_raw_fd())
    }

    /// The attempt has taken what was offered.
    pub fn note_lent(&mut self) {
        self.lent = true;
    }

    /// Whether the attempt's group has been given the foreground.
    #[must_use]
    pub const fn is_lent(&self) -> bool {
        self.lent
    }

    /// Gives the foreground to the group, if the runner has it to give. Whether it did.
    pub fn lend(&mut self, group: Pid) -> bool {
        if let Some(tty) = self.tty.as_ref().filter(|_| self.is_ours()) {
            self.lent = tcsetpgrp(tty, group).is_ok();
            return self.lent;
        }
        false
    }

    /// As [`Terminal::lend`], after the shell's `fg`, where standard input is the terminal.
    pub fn lend_again(&mut self, group: Pid) {
        if self.at_once {
            self.lend(group);
        }
    }

    /// Takes the foreground back from the group. SIGTTOU is blocked in a runner, so this stops nobody.
    pub fn take_back(&mut self, group: Pid) {
        if let Some(tty) = self.tty.as_ref().filter(|_| self.lent) {
            // Another than the group may hold it: the shell, if it has moved us to the background.
            if tcgetpgrp(tty) == Ok(group) {
                let _ = tcsetpgrp(tty, getpgrp());
            }
        }
        self.lent = false;
    }

    /// Stops the runner because its attempt has stopped, and returns when it is continued. With the
    /// terminal lent, Ctrl-Z has reached the attempt alone, so the rest of the runner's pipeline is stopped
    /// too.
    pub fn stop_with_attempt(&mut self, group: Pid) {
        let target = if self.lent { Pid::from_raw(0) } else { getpid() };
        self.take_back(group);
        stop(target);
    }

    fn is_ours(&self) -> bool {
        self.tty
            .as_ref()
            .is_some_and(|tty| tcgetpgrp(tty) == Ok(getpgrp()))
    }
}

/// Stops this process, and with 0 its whole group. By SIGTSTP, because the kernel ignores that one where
/// no shell could ever continue us.
pub fn stop(target: Pid) {
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTSTP);
    if kill(target, Signal::SIGTSTP).is_ok() {
        let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&stop), None);
        let _ = sigprocmask(SigmaskHow::SIG_BLOCK, Some(&stop), None);
    }
}
