//! One peer's bytes: frames in, frames out, file descriptors both ways. Never blocks, and keeps what it
//! cannot send only up to a limit.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use migm_shared::frame::{Decoder, FrameError, Message, encode};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::control::Reply;

/// A peer that does not read loses its connection with this many bytes unsent: the longest reply, and what comes besides.
const MOST_UNSENT: usize = Reply::LIMIT + (4 << 20);
/// Descriptors that may wait for their frame.
const MOST_DESCRIPTORS: usize = 4;

/// Who is at the other end, by the kernel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Credentials {
    /// Process id as this process sees it; 0 where the kernel does not say.
    pub pid: u32,
    /// User id.
    pub uid: u32,
}

/// Why a peer is dropped.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// It closed.
    #[error("closed")]
    Closed,
    /// It sent no frame of ours.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It does not read.
    #[error("does not read: {0} bytes wait for it")]
    Deaf(usize),
    /// It sent descriptors that no frame asks for.
    #[error("sent more than {MOST_DESCRIPTORS} descriptors without a frame for them")]
    Descriptors,
    /// The socket failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

struct Chunk {
    bytes: Vec<u8>,
    sent: usize,
    descriptor: Option<OwnedFd>,
}

/// One connection.
pub struct Connection {
    stream: UnixStream,
    /// By the kernel, at the time of connecting.
    pub peer: Credentials,
    decoder: Decoder,
    descriptors: VecDeque<OwnedFd>,
    unsent: VecDeque<Chunk>,
    unsent_bytes: usize,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .field("unsent_bytes", &self.unsent_bytes)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Takes an accepted stream.
    ///
    /// # Errors
    /// The kernel does not tell who the peer is.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let credentials = nix::sys::socket::getsockopt(&stream, nix::sys::socket::sockopt::PeerCredentials)?;
        Ok(Self {
            peer: Credentials {
                pid: u32::try_from(credentials.pid()).unwrap_or(0),
                uid: credentials.uid(),
            },
            stream,
            decoder: Decoder::default(),
            descriptors: VecDeque::new(),
            unsent: VecDeque::new(),
            unsent_bytes: 0,
        })
    }

    /// For the poll.
    #[must_use]
    pub const fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Reads once. `Ok(false)` when there is nothing more to read.
    ///
    /// # Errors
    /// The peer is to be dropped.
    pub fn receive(&mut self) -> Result<bool, PeerError> {
        let mut bytes = [0; 16 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = match recvmsg(
            self.stream.as_fd(),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(message) => message.bytes,
            Err(Errno::INTR) => return Ok(true),
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) => return Err(io::Error::from(error).into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(sent) = message {
                self.descriptors.extend(sent);
            }
        }
        if self.descriptors.len() > MOST_DESCRIPTORS {
            return Err(PeerError::Descriptors);
        }
        if received == 0 {
            return Err(PeerError::Closed);
        }
        self.decoder.push(&bytes[..received]);
        Ok(true)
    }

    /// The channel of the next frame, once its header is here.
    ///
    /// # Errors
    /// The bytes are no frame.
    pub fn channel(&self) -> Result<Option<u16>, PeerError> {
        Ok(self.decoder.channel()?)
    }

    /// The next whole message.
    ///
    /// # Errors
    /// The bytes are no such message.
    pub fn take<M: Message>(&mut self) -> Result<Option<M>, PeerError> {
        Ok(self.decoder.take()?)
    }

    /// The oldest descriptor that came with what has been read.
    pub fn descriptor(&mut self) -> Option<OwnedFd> {
        self.descriptors.pop_front()
    }

    /// Sends a message, or keeps what does not fit the socket's buffer.
    ///
    /// # Errors
    /// The peer is to be dropped.
    pub fn send<M: Message>(&mut self, message: &M, descriptor: Option<OwnedFd>) -> Result<(), PeerError> {
        let bytes = encode(message)?;
        self.unsent_bytes += bytes.len();
        self.unsent.push_back(Chunk {
            bytes,
            sent: 0,
            descriptor,
        });
        self.flush()?;
        if self.unsent_bytes > MOST_UNSENT {
            return Err(PeerError::Deaf(self.unsent_bytes));
        }
        Ok(())
    }

    /// Sends what is kept, as far as the socket takes it.
    ///
    /// # Errors
    /// The peer is to be dropped.
    pub fn flush(&mut self) -> Result<(), PeerError> {
        while let Some(chunk) = self.unsent.front_mut() {
            match send_part(&self.stream, chunk) {
                Ok(sent) => {
                    chunk.sent += sent;
                    chunk.descriptor = None;
                    self.unsent_bytes -= sent;
                    if chunk.sent == chunk.bytes.len() {
                        self.unsent.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(PeerError::Closed),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }
}

fn send_part(stream: &UnixStream, chunk: &Chunk) -> rustix::io::Result<usize> {
    let rest = [IoSlice::new(&chunk.bytes[chunk.sent..])];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = chunk.descriptor.as_ref().map(|descriptor| [descriptor.as_fd()]);
    if let Some(descriptors) = &descriptors {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    sendmsg(
        stream.as_fd(),
        &rest,
        &mut control,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::report::{Report, Welcome};

    fn pair() -> (Connection, Connection) {
        let (one, two) = UnixStream::pair().unwrap();
        (Connection::new(one).unwrap(), Connection::new(two).unwrap())
    }

    #[test]
    fn a_descriptor_comes_with_its_frame() {
        let (mut one, mut two) = pair();
        let file: OwnedFd = tempfile::tempfile().unwrap().into();
        one.send(&Welcome::Page, Some(file)).unwrap();
        assert!(two.receive().unwrap());
        assert_eq!(two.take::<Welcome>().unwrap(), Some(Welcome::Page));
        assert!(two.descriptor().is_some());
        assert!(!two.receive().unwrap());
    }

    #[test]
    fn a_peer_that_never_reads_is_dropped_with_a_bounded_buffer() {
        let (mut one, _two) = pair();
        let report = Report::Samples(vec![migm_shared::report::Sample::default(); 500]);
        let error = (0..10_000).find_map(|_| one.send(&report, None).err()).unwrap();
        assert!(matches!(error, PeerError::Deaf(_)), "{error}");
    }

    #[test]
    fn descriptors_without_frames_are_refused() {
        let (mut one, mut two) = pair();
        for _ in 0..MOST_DESCRIPTORS + 1 {
            let file: OwnedFd = tempfile::tempfile().unwrap().into();
            one.send(&Welcome::Page, Some(file)).unwrap();
        }
        let error = (0..10).find_map(|_| two.receive().err()).unwrap();
        assert!(matches!(error, PeerError::Descriptors), "{error}");
    }

    #[test]
    fn a_closed_peer_is_told_apart_from_a_silent_one() {
        let (mut one, two) = pair();
        assert!(!one.receive().unwrap());
        drop(two);
        assert!(matches!(one.receive(), Err(PeerError::Closed)));
    }
}
