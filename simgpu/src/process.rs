//! Who a process is, and whether it still lives.

use std::fs;

/// A process, told apart from a later one with the same pid by its start time.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub(crate) struct Process {
    /// Process id.
    pub(crate) pid: u32,
    /// Clock ticks since boot, field 22 of `/proc/PID/stat`.
    pub(crate) start: u64,
}

struct Stat {
    state: u8,
    threads: u64,
    start: u64,
}

impl Stat {
    fn read(pid: u32) -> std::io::Result<Option<Self>> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(Self::parse(&text))
    }

    /// The name in parentheses may hold spaces and parentheses: fields are counted from the last one.
    fn parse(text: &str) -> Option<Self> {
        let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let threads = fields.nth(16)?.parse().ok()?;
        let start = fields.nth(1)?.parse().ok()?;
        Some(Self {
            state,
            threads,
            start,
        })
    }
}

impl Process {
    /// The calling process.
    pub(crate) fn this() -> Self {
        Self::of(std::process::id())
    }

    /// The process of this pid.
    pub(crate) fn of(pid: u32) -> Self {
        let start = Stat::read(pid).ok().flatten().map_or(0, |stat| stat.start);
        Self { pid, start }
    }

    /// Gone, replaced by another process of the same pid, or a zombie. A zombie whose threads still run is a
    /// process that left its main thread; it lives.
    pub(crate) fn is_dead(self) -> bool {
        match Stat::read(self.pid) {
            Ok(Some(stat)) => {
                let zombie = stat.state == b'Z' && stat.threads <= 1;
                stat.start != self.start || zombie || matches!(stat.state, b'X' | b'x')
            }
            // Without a readable /proc nothing is known; a living process must not lose its memory.
            Ok(None) => false,
            Err(error) => {
                error.raw_os_error() == Some(libc::ESRCH)
                    || (error.kind() == std::io::ErrorKind::NotFound
                        && fs::exists("/proc/self/stat").unwrap_or(false))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 1234 5 6";
        let stat = Stat::parse(stat).unwrap();
        assert_eq!((stat.state, stat.threads, stat.start), (b'S', 3, 1234));
    }

    #[test]
    fn this_process_lives_and_its_pid_at_another_time_does_not() {
        let this = Process::this();
        assert!(this.start > 0);
        assert!(!this.is_dead());
        assert!(
            Process {
                start: this.start + 1,
                ..this
            }
            .is_dead()
        );
    }

    #[test]
    fn a_zombie_is_dead() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let start = Stat::read(child.id()).unwrap().unwrap().start;
        let process = Process {
            pid: child.id(),
            start,
        };
        assert!(!process.is_dead());
        child.kill().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !process.is_dead() {
            assert!(std::time::Instant::now() < deadline, "the zombie counts as alive");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(process.is_dead());
    }
}
