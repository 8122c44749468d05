//! The connection to the supervisor. Nothing here waits, but for the one answer at the start.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, Message};
use migm_shared::report::Welcome;

use crate::descriptor::Descriptor;

/// A connected, non-blocking stream socket.
#[derive(Debug)]
pub struct Socket(Descriptor);

/// What became of bytes handed to the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// So many bytes were taken; 0 when the socket is full.
    Bytes(usize),
    /// The peer is gone, or the program has closed our descriptor.
    Gone,
}

/// Connects to the socket at `path`. A full backlog is waited for until the deadline.
#[must_use]
pub fn connect(path: &Path, deadline: Instant) -> Option<Socket> {
    let mut address = libc::sockaddr_un {
        sun_family: libc::sa_family_t::try_from(libc::AF_UNIX).ok()?,
        sun_path: [0; 108],
    };
    let bytes = path.as_os_str().as_bytes();
    // Where nobody listens, one look is cheaper than a socket made for nothing.
    if bytes.len() >= address.sun_path.len() || !path.exists() {
        return None;
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = c_char::from_ne_bytes([byte]);
    }
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: takes numbers only.
    let fresh = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    let socket = Descriptor::adopt(fresh)?;
    let length = libc::socklen_t::try_from(size_of_val(&address)).ok()?;
    loop {
        let number = socket.number()?;
        // SAFETY: the address is valid, and its path ends in a zero byte.
        if unsafe { libc::connect(number, (&raw const address).cast(), length) } == 0 {
            return Some(Socket(socket));
        }
        match last_error() {
            libc::EAGAIN if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
            libc::EINTR => {}
            _ => return None,
        }
    }
}

impl Socket {
    /// Hands bytes to the socket, with a descriptor if one is given.
    #[must_use]
    pub fn send(&self, bytes: &[u8], descriptor: Option<c_int>) -> Sent {
        let Some(number) = self.0.number() else {
            return Sent::Gone;
        };
        let mut part = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let mut control = Control::new();
        // SAFETY: all zero is a valid header without parts.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if let Some(descriptor) = descriptor {
            control.carry(descriptor);
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = size_of::<Control>();
        }
        // SAFETY: the header refers to `bytes`, which are only read, and to `control`; both outlive the call.
        let sent =
            unsafe { libc::sendmsg(number, &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
        match usize::try_from(sent) {
            Ok(sent) => Sent::Bytes(sent),
            Err(_) if matches!(last_error(), libc::EAGAIN | libc::EINTR | libc::ENOBUFS) => Sent::Bytes(0),
            Err(_) => Sent::Gone,
        }
    }

    /// Waits for the answer to hello.
    #[must_use]
    pub fn welcome(&self, deadline: Instant) -> Option<(Welcome, Option<Descriptor>)> {
        let mut decoder = Decoder::default();
        let mut file = None;
        loop {
            if let Some(welcome) = decoder.take::<Welcome>().ok()? {
                return Some((welcome, file));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            poll(self.0.number()?, left);
            match self.receive() {
                Received::Bytes(bytes, count, descriptor) => {
                    decoder.push(bytes.get(..count)?);
                    file = file.or(descriptor);
                }
                Received::Nothing => {}
                Received::Gone => return None,
            }
        }
    }

    /// Its descriptor, as long as the program has not closed it.
    #[must_use]
    pub fn number(&self) -> Option<c_int> {
        self.0.number()
    }

    /// What the peer has said; descriptors that come along are dropped.
    #[must_use]
    pub fn hear(&self) -> Heard {
        match self.receive() {
            Received::Bytes(bytes, count, _) => Heard::Bytes(bytes, count),
            Received::Nothing => Heard::Nothing,
            Received::Gone => Heard::Gone,
        }
    }

    fn receive(&self) -> Received {
        let Some(number) = self.0.number() else {
            return Received::Gone;
        };
        let mut bytes = [0; ANSWER];
        let mut part = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: bytes.len(),
        };
        let mut control = Control::new();
        // SAFETY: all zero is a valid header without parts.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = (&raw mut control).cast();
        header.msg_controllen = size_of::<Control>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the header refers to `bytes` and `control`, which outlive the call.
        let received = unsafe { libc::recvmsg(number, &raw mut header, flags) };
        match usize::try_from(received) {
            Ok(0) => Received::Gone,
            Ok(count) => Received::Bytes(bytes, count, control.carried(header.msg_controllen)),
            Err(_) if matches!(last_error(), libc::EAGAIN | libc::EINTR) => Received::Nothing,
            Err(_) => Received::Gone,
        }
    }
}

/// Waits until there is something to hear on a descriptor, at most so long.
pub fn poll(number: c_int, at_most: Duration) {
    let mut entry = libc::pollfd {
        fd: number,
        events: libc::POLLIN,
        revents: 0,
    };
    let milliseconds = c_int::try_from(at_most.as_millis()).unwrap_or(c_int::MAX);
    // SAFETY: one valid entry; a number that is no descriptor any more is answered with an error.
    unsafe { libc::poll(&raw mut entry, 1, milliseconds.saturating_add(1)) };
}

/// What the peer has said since it was last asked.
#[derive(Debug)]
pub enum Heard {
    /// So many of these bytes.
    Bytes([u8; ANSWER], usize),
    /// Nothing more.
    Nothing,
    /// It is gone, or the program has closed our descriptor.
    Gone,
}

/// More than a welcome ever has.
pub const ANSWER: usize = 64 + Welcome::LIMIT;

enum Received {
    Bytes([u8; ANSWER], usize, Option<Descriptor>),
    Nothing,
    Gone,
}

/// Room for a control message that carries one descriptor. The kernel drops more than fit.
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    descriptor: c_int,
    padding: c_int,
}

impl Control {
    fn new() -> Self {
        Self {
            // SAFETY: all zero is a valid, empty header.
            header: unsafe { MaybeUninit::zeroed().assume_init() },
            descriptor: -1,
            padding: 0,
        }
    }

    const LENGTH: usize = size_of::<libc::cmsghdr>() + size_of::<c_int>();

    fn carry(&mut self, descriptor: c_int) {
        self.header.cmsg_len = Self::LENGTH;
        self.header.cmsg_level = libc::SOL_SOCKET;
        self.header.cmsg_type = libc::SCM_RIGHTS;
        self.descriptor = descriptor;
    }

    fn carried(&self, length: usize) -> Option<Descriptor> {
        let is_right = length >= Self::LENGTH
            && self.header.cmsg_len >= Self::LENGTH
            && self.header.cmsg_level == libc::SOL_SOCKET
            && self.header.cmsg_type == libc::SCM_RIGHTS;
        if is_right && self.header.cmsg_len >= size_of::<Self>() {
            // The room for padding took a second descriptor, which nobody asked for.
            drop(Descriptor::adopt(self.padding));
        }
        is_right.then(|| Descriptor::adopt(self.descriptor)).flatten()
    }
}

fn last_error() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

const _: () = assert!(size_of::<libc::cmsghdr>() + 2 * size_of::<c_int>() == size_of::<Control>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pagefile::PageFile;

    #[test]
    fn a_descriptor_crosses_a_socket() {
        let mut ends = [0; 2];
        let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: room for two numbers.
        let made = unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) };
        assert_eq!(made, 0);
        let [one, two] = ends.map(|end| Socket(Descriptor::adopt(end).unwrap()));
        let page = PageFile::own().unwrap();
        assert_eq!(
            one.send(b"x", page.file.as_ref().unwrap().number()),
            Sent::Bytes(1)
        );
        let Received::Bytes(bytes, 1, Some(file)) = two.receive() else {
            panic!("one byte and a descriptor");
        };
        assert_eq!(bytes[0], b'x');
        assert!(PageFile::received(file).is_some());
        assert!(matches!(two.hear(), Heard::Nothing));
        drop(one);
        assert!(matches!(two.hear(), Heard::Gone));
    }
}
