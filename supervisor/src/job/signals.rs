//! The signals of a runner, taken one by one from a file instead of at any instant.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::JobError;

/// Passed on to the attempt.
pub const FORWARDED: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Whether the signal asks a program to end.
#[must_use]
pub const fn asks_to_end(signal: Signal) -> bool {
    matches!(
        signal,
        Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT
    )
}

/// Exit status as a shell shows the end by a signal.
#[must_use]
pub const fn shell_status(signal: i32) -> i32 {
    128 + signal
}

/// Reads a signal's name or number: `TERM`, `SIGTERM`, `15`.
///
/// # Errors
/// One line that names what was given.
pub fn parse(given: &str) -> Result<Signal, String> {
    let wrong = || format!("`{given}` is no signal; give a name such as TERM or USR1, or a number");
    if let Ok(number) = given.parse::<i32>() {
        return Signal::try_from(number).map_err(|_| wrong());
    }
    let name = given.to_ascii_uppercase();
    let name = if name.starts_with("SIG") {
        name
    } else {
        format!("SIG{name}")
    };
    name.parse().map_err(|_| wrong())
}

/// Signals wait here while they are blocked everywhere else.
#[derive(Debug)]
pub struct Signals {
    file: SignalFd,
    before: SigSet,
}

impl Signals {
    /// Blocks the forwarded signals, SIGCHLD and SIGTTOU. To be called before the process has a second
    /// thread.
    ///
    /// # Errors
    /// The kernel has no descriptor for us.
    pub fn take() -> Result<Self, JobError> {
        let mut taken: SigSet = FORWARDED.into_iter().collect();
        taken.add(Signal::SIGCHLD);
        let mut blocked = taken;
        // Not read: blocked, it lets the runner take the terminal back from a background group.
        blocked.add(Signal::SIGTTOU);
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), Some(&mut before))
            .map_err(JobError::system("block signals"))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let file = SignalFd::with_flags(&taken, flags).map_err(JobError::system("wait for signals"))?;
        Ok(Self { file, before })
    }

    /// The mask of before, which the attempt is to start with.
    #[must_use]
    pub const fn before(&self) -> &SigSet {
        &self.before
    }

    /// Ends the taking: signals do again what they did before.
    pub fn give_back(&self) {
        let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.before), None);
    }

    /// The next waiting signal.
    #[must_use]
    pub fn next(&self) -> Option<Signal> {
        let taken = self.file.read_signal().ok().flatten()?;
        i32::try_from(taken.ssi_signo)
            .ok()
            .and_then(|number| Signal::try_from(number).ok())
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_has_a_name_and_a_number() {
        for given in ["TERM", "SIGTERM", "sigterm", "15"] {
            assert_eq!(parse(given), Ok(Signal::SIGTERM), "{given}");
        }
        assert_eq!(parse("USR1"), Ok(Signal::SIGUSR1));
        for given in ["", "0", "TERMINATE", "99"] {
            assert!(parse(given).unwrap_err().contains(given));
        }
    }
}
