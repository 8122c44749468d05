//! Forks a runner off, as daemon(7) has it: twice, so that it leads no session and never gets a terminal, and belongs
//! to nobody who waits for it.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::AssertUnwindSafe;
use std::path::Path;

use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, dup2_stderr, dup2_stdin, dup2_stdout, fork, setsid};

use super::folder;

/// The name of a detached job's runner in `/proc`: within a job of another runner it is no part of that job.
pub const NAME: &std::ffi::CStr = c"migm-detached";

/// Runs `runner` in a process of its own whose output goes to the files in `folder`, and gives back the other end of the
/// pipe that it gets. The process ends with the status that `runner` returns.
///
/// The calling process must have one thread.
///
/// # Errors
/// The kernel refuses; then nothing runs.
pub fn start(folder: &Path, runner: impl FnOnce(PipeWriter) -> u8) -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    let null = OpenOptions::new().read(true).open("/dev/null")?;
    let append = |path| OpenOptions::new().append(true).open(path);
    let (out, err) = (append(folder::out(folder))?, append(folder::err(folder))?);
    io::stdout().flush()?;
    // SAFETY: the caller has one thread, so the child is a whole process: no lock is held by a thread that it lacks.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(writer);
            // It ends as soon as it has forked; its status says whether it could.
            match waitpid(child, None)? {
                nix::sys::wait::WaitStatus::Exited(_, 0) => Ok(reader),
                _ => Err(io::Error::other("its runner could not be forked")),
            }
        }
        ForkResult::Child => {
            let apart = setsid().is_ok();
            // SAFETY: as above; this process has never had a second thread.
            match unsafe { fork() } {
                Ok(ForkResult::Child) if apart => {
                    let ready = settle_in(&null, &out, &err, writer.as_raw_fd());
                    // A panic must not unwind into what the command would do next: this is not that process.
                    let ended =
                        std::panic::catch_unwind(AssertUnwindSafe(|| ready.map_or(1, |()| runner(writer))));
                    end(ended.unwrap_or(101))
                }
                Ok(ForkResult::Parent { .. }) if apart => end(0),
                _ => end(1),
            }
        }
    }
}

/// Ends this process without what the command it was forked from would do at its end.
fn end(status: u8) -> ! {
    // SAFETY: _exit ends the process; it takes no pointer and returns to nobody.
    unsafe { libc::_exit(i32::from(status)) }
}

/// Takes the files as standard ones and lets go of all else that the command has open, `pipe` left out: a lock or a pipe
/// of the shell that the runner kept would make others wait for the job.
fn settle_in(null: &File, out: &File, err: &File, pipe: RawFd) -> io::Result<()> {
    dup2_stdin(null)?;
    dup2_stdout(out)?;
    dup2_stderr(err)?;
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for file in open.into_iter().filter(|file| *file > 2 && *file != pipe) {
        // The one that read the folder is among them and closed by now.
        let _ = nix::unistd::close(file);
    }
    nix::sys::prctl::set_name(NAME)?;
    Ok(())
}
