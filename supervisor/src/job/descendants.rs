//! The processes that a job has left: a slice is free only when none of them lives.
//!
//! The runner is a child subreaper (prctl(2)): a process whose parent ends becomes its child, also one that
//! daemonised. So the job is exactly what descends from the runner, wherever its processes have put
//! themselves: other groups, other sessions.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

/// A living process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Process {
    /// Its pid.
    pub pid: i32,
    /// Its process group.
    pub group: i32,
    /// Start time in clock ticks since boot: with the pid, it names one process for good.
    pub start: u64,
    parent: i32,
    /// The runner of a detached job.
    detached: bool,
}

impl Process {
    /// Reads `/proc/PID/stat`; `None` for a process that has gone or is a zombie.
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces, parentheses and bytes that are no text; the last `)` ends it.
        let after = text.iter().rposition(|byte| *byte == b')')?;
        let name = text.iter().position(|byte| *byte == b'(')?;
        let detached = text.get(name + 1..after) == Some(super::detached::fork::NAME.to_bytes());
        let text = std::str::from_utf8(text.get(after + 2..)?).ok()?;
        let fields: Vec<&str> = text.split_ascii_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X" | "x") {
            return None;
        }
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            start: fields.get(19)?.parse().ok()?,
            detached,
        })
    }

    /// Sends a signal to this very process; a later one with the same pid is left alone.
    pub fn signal(&self, signal: Signal) {
        let Ok(Some(file)) = self.open() else { return };
        if let Some(signal) = rustix::process::Signal::from_named_raw(signal as i32) {
            // It may end at any time; then there is nobody to signal.
            let _ = pidfd_send_signal(file, signal);
        }
    }

    /// Waits until it has ended. It need not be a child.
    ///
    /// # Errors
    /// The kernel has no descriptor for us.
    pub fn wait(&self) -> io::Result<()> {
        let Some(file) = self.open()? else {
            return Ok(());
        };
        let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut files, PollTimeout::NONE) {
                Ok(_) => return Ok(()),
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A descriptor of this very process; `None` once it has gone.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        match pidfd_open(pid, PidfdFlags::empty()) {
            // Asked after it was opened: from then on the pid under it is no other's.
            Ok(file) => {
                let there = Self::read(self.pid).is_some_and(|there| there.start == self.start);
                Ok(there.then_some(file))
            }
            Err(rustix::io::Errno::SRCH) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A process by pid and start time, for as long as the machine runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Identity {
    /// Its pid.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start: u64,
}

impl Identity {
    /// The living process with this pid.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let process = Process::read(i32::try_from(pid).ok()?)?;
        Some(Self {
            pid: process.pid,
            start: process.start,
        })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn lives(self) -> bool {
        self.process().is_some()
    }

    /// The process, while it runs.
    #[must_use]
    pub fn process(self) -> Option<Process> {
        Process::read(self.pid).filter(|process| process.start == self.start)
    }
}

/// All living descendants of this process, but for `apart` and those below it. A job that was submitted from within
/// this one is a job of its own.
#[must_use]
pub fn descendants(apart: Option<u32>) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for process in pids.filter_map(Process::read) {
        children.entry(process.parent).or_default().push(process);
    }
    let apart = apart.and_then(|pid| i32::try_from(pid).ok());
    let mut found = Vec::new();
    let mut parents = vec![nix::unistd::getpid().as_raw()];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            if Some(child.pid) != apart && !child.detached {
                parents.push(child.pid);
                found.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_a_process_is_waited_for_and_one_that_has_gone_is_not() {
        let mut child = Command::new("sh")
            .args(["-c", "read line"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let process = Identity::of(child.id()).unwrap().process().unwrap();
        let another = Process {
            start: process.start + 1,
            ..process
        };
        another.wait().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        drop(child.stdin.take());
        process.wait().unwrap();
        child.wait().unwrap();
        process.wait().unwrap();
    }

    #[test]
    fn a_child_is_found_and_signalled_and_a_zombie_is_not_living() {
        let mut child = Command::new("sleep")
            .arg("100")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let found = descendants(None);
        let process = *found.iter().find(|process| process.pid == pid).unwrap();
        assert!(
            !descendants(Some(child.id()))
                .iter()
                .any(|process| process.pid == pid)
        );
        let another = Process {
            start: process.start + 1,
            ..process
        };
        another.signal(Signal::SIGKILL);
        assert!(child.try_wait().unwrap().is_none());
        process.signal(Signal::SIGKILL);
        while Process::read(pid).is_some() {
            std::thread::yield_now();
        }
        assert!(!descendants(None).iter().any(|process| process.pid == pid));
        child.wait().unwrap();
    }
}
