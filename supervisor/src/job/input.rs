//! Standard input of a job that may run more than once.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Stdio;

use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Whence, lseek};

/// Where an attempt reads from.
#[derive(Debug)]
pub enum Input {
    /// A terminal, `/dev/null` or the like: each attempt goes on where it is.
    Device,
    /// A file: each attempt starts where the first did.
    File {
        /// Offset in bytes at the start.
        offset: i64,
    },
    /// A pipe or a socket: what one attempt has read, no other can read again.
    Pipe,
    /// A copy of what came through the pipe.
    Spooled(File),
}

impl Input {
    /// Looks at standard input; with `spool`, a pipe is read to its end first.
    ///
    /// # Errors
    /// There is no room for the copy, or the pipe cannot be read.
    pub fn take(spool: bool) -> io::Result<Self> {
        let stdin = io::stdin();
        let kind = SFlag::from_bits_truncate(fstat(&stdin)?.st_mode) & SFlag::S_IFMT;
        match kind {
            SFlag::S_IFREG => Ok(Self::File {
                offset: lseek(&stdin, 0, Whence::SeekCur)?,
            }),
            SFlag::S_IFIFO | SFlag::S_IFSOCK if spool => {
                let mut copy = tempfile::tempfile()?;
                // From the descriptor itself: what a buffer of ours took would be lost to the job.
                let mut source = File::from(stdin.as_fd().try_clone_to_owned()?);
                io::copy(&mut source, &mut copy)?;
                Ok(Self::Spooled(copy))
            }
            SFlag::S_IFIFO | SFlag::S_IFSOCK => Ok(Self::Pipe),
            _ => Ok(Self::Device),
        }
    }

    /// Whether a second attempt can read what the first one did.
    #[must_use]
    pub const fn is_repeatable(&self) -> bool {
        !matches!(self, Self::Pipe)
    }

    /// Standard input for the next attempt.
    ///
    /// # Errors
    /// The file cannot be wound back.
    pub fn for_attempt(&mut self) -> io::Result<Stdio> {
        match self {
            Self::Device | Self::Pipe => Ok(Stdio::inherit()),
            Self::File { offset } => {
                lseek(io::stdin(), *offset, Whence::SeekSet)?;
                Ok(Stdio::inherit())
            }
            Self::Spooled(copy) => {
                copy.seek(SeekFrom::Start(0))?;
                // A description of its own, so that the runner and the attempt share no offset.
                let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
                Ok(File::open(path)?.into())
            }
        }
    }
}
