//! Processes told apart from later ones of the same pid.

use serde::{Deserialize, Serialize};

/// A process by pid and start time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Serialize, Deserialize)]
pub struct ProcessId {
    /// Pid as this process sees it.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks since boot.
    pub start: u64,
}

impl ProcessId {
    /// The process that has this pid; `None` when there is none.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let (start, _) = stat(pid)?;
        Some(Self { pid, start })
    }

    /// Whether it still runs. A zombie holds no memory and counts as gone.
    #[must_use]
    pub fn lives(self) -> bool {
        stat(self.pid).is_some_and(|(start, state)| start == self.start && !matches!(state, 'Z' | 'X'))
    }

    /// Whether a process of the group that it leads, or led, still runs. Once the leader has gone, its pid
    /// is not given to another process as long as the group lives.
    #[must_use]
    pub fn group_lives(self) -> bool {
        if self.lives() {
            return true;
        }
        // Another process under the leader's pid proves that the group has gone.
        if stat(self.pid).is_some_and(|(start, _)| start != self.start) {
            return false;
        }
        std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(group_of)
            .any(|(group, state)| group == self.pid && !matches!(state, 'Z' | 'X'))
    }
}

/// What stands behind the command's name, which may itself contain spaces and brackets.
fn fields(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ").map(|(_, rest)| rest.to_owned())
}

fn stat(pid: u32) -> Option<(u64, char)> {
    let fields = fields(pid)?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((start, state))
}

fn group_of(pid: u32) -> Option<(u32, char)> {
    let fields = fields(pid)?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    let group = fields.nth(1)?.parse().ok()?;
    Some((group, state))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    #[test]
    fn a_zombie_is_gone_and_a_grandchild_keeps_the_group() {
        let mut leader = Command::new("sh")
            .args(["-c", "sleep 30 & exit 0"])
            .process_group(0)
            .spawn()
            .unwrap();
        let id = ProcessId::of(leader.id()).unwrap();
        while id.lives() {
            std::thread::yield_now();
        }
        assert!(id.group_lives());
        nix::sys::signal::killpg(
            nix::unistd::Pid::from_raw(i32::try_from(id.pid).unwrap()),
            nix::sys::signal::Signal::SIGKILL,
        )
        .unwrap();
        leader.wait().unwrap();
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while id.group_lives() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(!id.group_lives());
    }

    #[test]
    fn another_process_under_the_pid_is_not_it() {
        let me = ProcessId::of(std::process::id()).unwrap();
        assert!(me.lives());
        let other = ProcessId {
            start: me.start + 1,
            ..me
        };
        assert!(!other.lives() && !other.group_lives());
    }
}
