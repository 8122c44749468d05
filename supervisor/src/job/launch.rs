//! How an attempt's process starts: its environment, its process group, its terminal.

use std::cell::LazyCell;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use nix::unistd::{Pid, getpid, tcsetpgrp};

use super::attempt::Attempt;
use super::environment::{self, Wanted};
use crate::control::{Element, Grant};

/// What an attempt starts with.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Program and arguments.
    pub command: &'a [OsString],
    /// The lease.
    pub grant: &'a Grant,
    /// The supervisor's socket.
    pub socket: &'a Path,
    /// What the user has asked the runner to set.
    pub environment: &'a Wanted,
    /// Its place in an array of jobs.
    pub element: Option<Element>,
    /// Where its processes find the job's counter page.
    pub page: &'a Path,
    /// Standard input.
    pub stdin: Stdio,
    /// The signal mask that the runner itself was started with.
    pub mask: &'a SigSet,
    /// The terminal whose foreground it takes.
    pub terminal: Option<RawFd>,
}

/// The program cannot be started: said in one line, with the shell's exit status for it.
#[derive(Debug, thiserror::Error)]
#[error("cannot run `{program}`: {source}")]
pub struct CannotStart {
    program: String,
    source: io::Error,
}

impl CannotStart {
    /// 127 for a program that is not there, 125 when the system is at its limits, else 126.
    #[must_use]
    pub fn status(&self) -> i32 {
        match self.source.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => 125,
            _ => 126,
        }
    }
}

/// Starts the program in a process group of its own.
///
/// # Errors
/// It cannot be executed; nothing of it lives.
pub fn start(launch: Launch<'_>) -> Result<Attempt, CannotStart> {
    let grant = launch.grant;
    let program = &launch.command[0];
    let mut command = Command::new(program);
    command
        .args(&launch.command[1..])
        .stdin(launch.stdin)
        .process_group(0);
    if super::outer_attempt().is_some() {
        // The cap of the job that this one runs in, and its place in an array.
        for theirs in [
            "MIGM_CAP",
            "MIGM_ARRAY_JOB",
            "MIGM_ARRAY_INDEX",
            "MIGM_ARRAY_COUNT",
        ] {
            command.env_remove(theirs);
        }
    }
    if let Some(element) = launch.element {
        command
            .env("MIGM_ARRAY_JOB", element.array.to_string())
            .env("MIGM_ARRAY_INDEX", element.index.to_string())
            .env("MIGM_ARRAY_COUNT", element.count.to_string());
    }
    for setting in launch.environment.settings(&grant.interposer) {
        if setting.applies(|name| env::var_os(name).is_some()) {
            command.env(setting.name, setting.value);
        }
    }
    let mps = LazyCell::new(|| environment::mps_runs(env::var_os("CUDA_MPS_PIPE_DIRECTORY").as_deref()));
    for (name, value) in &grant.environment {
        if !environment::is_for_mps(name) || env::var_os(name).is_none() && *mps {
            command.env(name, &*launch.environment.within(name, value));
        }
    }
    command
        .env("CUDA_VISIBLE_DEVICES", &grant.visible_device)
        .env("MIGM_SOCKET", launch.socket)
        .env("MIGM_ATTEMPT", grant.attempt.to_string())
        .env("MIGM_PAGE", launch.page);
    // A name from the grant's own environment wins over the user's, as everything there does.
    let before = |name: &str| {
        let granted = grant.environment.iter().find(|(granted, _)| granted == name);
        granted.map_or_else(|| env::var_os(name), |(_, value)| Some(value.into()))
    };
    if !grant.interposer.is_empty() {
        let first = [grant.interposer.clone()];
        command.env("LD_PRELOAD", in_front(&first, before("LD_PRELOAD")));
    }
    if !grant.library_path.is_empty() {
        command.env(
            "LD_LIBRARY_PATH",
            in_front(&grant.library_path, before("LD_LIBRARY_PATH")),
        );
    }
    let mask = *launch.mask;
    let terminal = launch.terminal;
    let prepare = move || {
        if let Some(terminal) = terminal {
            // SAFETY: the runner holds the terminal open until its own end; the fork copied that.
            let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
            // SIGTTOU is still blocked here. Without the terminal the program runs all the same.
            let _ = tcsetpgrp(terminal, getpid());
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&mask), None)?;
        Ok(())
    };
    // SAFETY: between fork and exec the closure calls getpid, tcsetpgrp and sigprocmask alone, which
    // signal-safety(7) lists, and it allocates nothing.
    unsafe { command.pre_exec(prepare) };
    let child = command.spawn().map_err(|source| CannotStart {
        program: program.to_string_lossy().into_owned(),
        source,
    })?;
    let leader = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    Ok(Attempt::new(grant.clone(), leader))
}

/// Colon-separated: ours first, then what was there, as it was: an empty part of `LD_LIBRARY_PATH` means
/// the working directory. What stands in front already, in a runner under a runner, is not put there twice.
fn in_front(first: &[String], before: Option<OsString>) -> OsString {
    let mut joined = OsString::from(first.join(":"));
    let before = before.unwrap_or_default();
    if let Some(rest) = before.as_bytes().strip_prefix(joined.as_bytes())
        && rest.first().is_none_or(|byte| *byte == b':')
    {
        return before;
    }
    if !before.is_empty() {
        joined.push(":");
        joined.push(before);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_once() {
        let ours = ["/a".to_owned(), "/b".to_owned()];
        assert_eq!(in_front(&ours, None), "/a:/b");
        assert_eq!(in_front(&ours, Some("/c::/d".into())), "/a:/b:/c::/d");
        assert_eq!(in_front(&ours, Some("/a:/b:/c".into())), "/a:/b:/c");
        assert_eq!(in_front(&ours, Some("/a:/bin".into())), "/a:/b:/a:/bin");
        assert_eq!(in_front(&ours, Some("".into())), "/a:/b");
    }
}
