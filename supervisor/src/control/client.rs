//! The client's end of the control socket: blocking sends, receives with a limit of time.

use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, FrameError, encode};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, MsgFlags, getsockopt, sendmsg, sockopt::PeerCredentials};

use super::paths::{PathError, SERVICE_SOCKET, check, socket_paths};
use super::{Reply, Request};

/// A supervisor that takes nothing for this long counts as gone: a runner must go on forwarding signals.
const SEND_LIMIT: Duration = Duration::from_secs(2);

/// Why talking with a supervisor failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens at any of the places.
    #[error("no supervisor answers at {}", list(.0))]
    NoSupervisor(Vec<PathBuf>),
    /// The path cannot be a socket's.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The socket is there but cannot be used.
    #[error("cannot connect to the supervisor at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// Another user listens where only our own or root's supervisor may: it would choose a library that
    /// our programs load.
    #[error("the supervisor at {} runs as user {uid}, neither root nor yourself; it is not used", path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// The listener's user.
        uid: u32,
    },
    /// The connection broke.
    #[error("the connection to the supervisor broke: {0}")]
    Broken(#[from] io::Error),
    /// The supervisor closed the connection.
    #[error("the supervisor has closed the connection")]
    Closed,
    /// The bytes are no frame of ours, or the message fits none.
    #[error("the supervisor cannot be understood: {0}")]
    Frame(#[from] FrameError),
    /// No answer came in time.
    #[error("the supervisor did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// It answered that it cannot be done.
    #[error("{0}")]
    Refused(String),
    /// It answered something else than the conversation allows.
    #[error("the supervisor answered out of turn: {0}")]
    OutOfTurn(String),
}

fn list(paths: &[PathBuf]) -> String {
    let shown: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    shown.join(" or ")
}

/// A connection to a supervisor.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    decoder: Decoder,
    path: PathBuf,
    pid: u32,
}

impl Client {
    /// Connects to the first supervisor that answers at the usual places; see [`super::paths`].
    ///
    /// # Errors
    /// [`ClientError::NoSupervisor`] where nobody listens; others where somebody does but cannot be used.
    pub fn find() -> Result<Self, ClientError> {
        Self::first_of(&socket_paths())
    }

    /// Connects to the first supervisor that answers at one of these places.
    ///
    /// # Errors
    /// As [`Client::find`].
    pub fn first_of(paths: &[PathBuf]) -> Result<Self, ClientError> {
        for path in paths {
            match Self::connect(path) {
                Err(ClientError::NoSupervisor(_)) => {}
                other => return other,
            }
        }
        Err(ClientError::NoSupervisor(paths.to_vec()))
    }

    /// Connects to the supervisor that listens at `path`.
    ///
    /// # Errors
    /// [`ClientError::NoSupervisor`] where nobody listens there; others where somebody does but cannot be used.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        check(path)?;
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            // A socket file whose listener died refuses; both mean that nobody is there.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoSupervisor(vec![path.to_owned()])
            }
            _ => ClientError::Connect {
                path: path.to_owned(),
                source,
            },
        })?;
        let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
        let uid = peer.uid();
        // Only root can make a socket in /run; a socket of the user's own choice is the user's to judge.
        let chosen = path == Path::new(SERVICE_SOCKET) || std::env::var_os("MIGM_SOCKET").is_some();
        if !chosen && uid != 0 && uid != nix::unistd::getuid().as_raw() {
            return Err(ClientError::Stranger {
                path: path.to_owned(),
                uid,
            });
        }
        stream.set_write_timeout(Some(SEND_LIMIT))?;
        Ok(Self {
            stream,
            decoder: Decoder::default(),
            // Programs that are told of it may change their folder.
            path: std::path::absolute(path)?,
            pid: u32::try_from(peer.pid()).unwrap_or(0),
        })
    }

    /// The supervisor's pid; 0 where it cannot be seen from here.
    #[must_use]
    pub const fn supervisor(&self) -> u32 {
        self.pid
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sends a request, with a file descriptor if it takes one along.
    ///
    /// # Errors
    /// The connection is broken, or the supervisor has taken nothing for two seconds.
    pub fn send(&mut self, request: &Request, attached: Option<BorrowedFd<'_>>) -> Result<(), ClientError> {
        let frame = encode(request)?;
        let mut sent = 0;
        if let Some(attached) = attached {
            let fds = [attached.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&fds)];
            // The rights travel with the first byte; the rest may follow in pieces.
            sent = sendmsg::<()>(
                self.stream.as_raw_fd(),
                &[IoSlice::new(&frame)],
                &rights,
                MsgFlags::MSG_NOSIGNAL,
                None,
            )
            .map_err(io::Error::from)?;
        }
        self.stream.write_all(&frame[sent..])?;
        Ok(())
    }

    /// The next reply, or `None` when none came within `limit`; at once with a limit of zero.
    ///
    /// # Errors
    /// The supervisor has gone or cannot be understood. The connection is of no more use.
    pub fn receive(&mut self, limit: Duration) -> Result<Option<Reply>, ClientError> {
        let end = Instant::now() + limit;
        loop {
            if let Some(reply) = self.decoder.take()? {
                return Ok(Some(reply));
            }
            if !readable(self.stream.as_fd(), end.saturating_duration_since(Instant::now()))? {
                return Ok(None);
            }
            let mut bytes = [0; 16 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => self.decoder.push(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The answer that `pick` accepts, within `limit`. [`Reply::Refused`] becomes an error; other
    /// replies that come first are passed over.
    ///
    /// # Errors
    /// As [`Client::receive`], and when no such answer comes.
    pub fn ask<T>(
        &mut self,
        request: &Request,
        limit: Duration,
        mut pick: impl FnMut(Reply) -> Option<T>,
    ) -> Result<T, ClientError> {
        self.send(request, None)?;
        let end = Instant::now() + limit;
        loop {
            match self.receive(end.saturating_duration_since(Instant::now()))? {
                None => return Err(ClientError::Silent(limit)),
                Some(Reply::Refused { reason }) => return Err(ClientError::Refused(reason)),
                Some(reply) => {
                    if let Some(answer) = pick(reply) {
                        return Ok(answer);
                    }
                }
            }
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Waits until the file can be read, or the peer has gone; false when the time is over first.
fn readable(file: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let mut files = [PollFd::new(file, PollFlags::POLLIN)];
    // Rounded up, so that a wait of less than a millisecond does not spin.
    let limit = PollTimeout::try_from(limit.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
    match poll(&mut files, limit) {
        Ok(count) => Ok(count > 0),
        // A signal: the caller looks at its clock and comes again.
        Err(nix::errno::Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn pair() -> (Client, UnixStream) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let client = Client::connect(&path).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn a_socket_file_without_a_listener_is_no_supervisor() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        assert!(matches!(
            Client::connect(&path),
            Err(ClientError::NoSupervisor(_))
        ));
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        assert!(matches!(
            Client::connect(&path),
            Err(ClientError::NoSupervisor(_))
        ));
    }

    #[test]
    fn a_reply_may_come_in_pieces_and_two_at_once() {
        let (mut client, mut peer) = pair();
        let frame = encode(&Reply::Done).unwrap();
        peer.write_all(&frame[..5]).unwrap();
        assert_eq!(client.receive(Duration::from_millis(10)).unwrap(), None);
        peer.write_all(&frame[5..]).unwrap();
        peer.write_all(&frame).unwrap();
        assert_eq!(client.receive(Duration::from_secs(1)).unwrap(), Some(Reply::Done));
        assert_eq!(client.receive(Duration::ZERO).unwrap(), Some(Reply::Done));
        drop(peer);
        assert!(matches!(
            client.receive(Duration::from_secs(1)),
            Err(ClientError::Closed)
        ));
    }

    #[test]
    fn a_supervisor_that_takes_nothing_counts_as_gone() {
        let (mut client, _peer) = pair();
        client
            .stream
            .set_write_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        let request = Request::OpenBatch {
            name: "x".repeat(100_000),
        };
        let failed = (0..100).any(|_| client.send(&request, None).is_err());
        assert!(failed);
    }
}
