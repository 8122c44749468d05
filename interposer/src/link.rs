//! The connection to the supervisor. Nothing here waits, but for the one answer at the start.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, Message, encode};
use migm_shared::ids::AttemptId;
use migm_shared::report::{Hello, Report, Welcome};

use crate::descriptor::Descriptor;
use crate::pagefile::PageFile;
use crate::{log, settings};

/// How long the first allocation of a job waits for the job's page.
const PATIENCE: Duration = Duration::from_millis(100);

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

/// Finds the page to count in, and the supervisor. A job's process asks for the job's page; a watched one
/// makes its own and sends it along. Without an answer in time it counts in a page of its own, which the
/// sender thread offers later. `None` when there is no memory for a page.
#[must_use]
pub fn open() -> Option<(PageFile, Option<Socket>)> {
    let deadline = Instant::now() + PATIENCE;
    if settings::attempt().is_some() {
        let (page, socket) = ask(deadline);
        return Some((page.or_else(PageFile::own)?, socket));
    }
    let own = PageFile::own()?;
    let socket = connect(deadline).filter(|socket| socket.greet(&own));
    Some((own, socket))
}

/// Asks for the job's page. A connection is kept only if both sides agree on which page is used: a supervisor
/// that answers too late would take us for a user of its page.
fn ask(deadline: Instant) -> (Option<PageFile>, Option<Socket>) {
    let Some(socket) = connect(deadline).filter(|socket| socket.send_hello(None)) else {
        return (None, None);
    };
    match socket.welcome(deadline) {
        Some((Welcome::Page, Some(file))) => match PageFile::received(file) {
            Some(page) => (Some(page), Some(socket)),
            None => {
                log::line(format_args!(
                    "the supervisor's page is no sealed page of this layout"
                ));
                (None, None)
            }
        },
        Some((Welcome::OwnPage, _)) => (None, Some(socket)),
        Some((Welcome::Page, None)) | None => (None, None),
    }
}

/// Takes a slot in the page, or in one of our own if all are taken.
#[must_use]
pub fn join(file: PageFile, attempt: Option<&str>) -> Option<(PageFile, usize)> {
    let pid = std::process::id();
    let start = start_time();
    let attempt = attempt
        .and_then(|text| text.parse::<AttemptId>().ok())
        .map_or(0, |id| id.attempt);
    // The same process before it executed this program: its memory went with the program.
    for before in file.page.occupants() {
        if before.pid == pid && before.start == start {
            file.page.leave(before);
        }
    }
    if let Some(slot) = file.page.join(pid, start, attempt) {
        return Some((file, slot));
    }
    let own = PageFile::own()?;
    let slot = own.page.join(pid, start, attempt)?;
    Some((own, slot))
}

/// Connects to the first of the sockets that answers. A full backlog is waited for until the deadline.
#[must_use]
pub fn connect(deadline: Instant) -> Option<Socket> {
    settings::sockets()
        .iter()
        .find_map(|path| connect_to(path, deadline))
}

fn connect_to(path: &Path, deadline: Instant) -> Option<Socket> {
    let mut address = libc::sockaddr_un {
        sun_family: libc::sa_family_t::try_from(libc::AF_UNIX).ok()?,
        sun_path: [0; 108],
    };
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (place, &byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = byte.cast_signed();
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
    /// Says hello and sends the page along, where it has a file; else asks for one.
    #[must_use]
    pub fn greet(&self, page: &PageFile) -> bool {
        self.send_hello(page.file.as_ref().and_then(Descriptor::number))
    }

    fn send_hello(&self, page: Option<c_int>) -> bool {
        let hello = Report::Hello(Hello {
            pid: std::process::id(),
            attempt: settings::attempt(),
            program: program(),
            has_page: page.is_some(),
        });
        // The socket is fresh and its buffer empty: a hello that does not fit whole is a failure.
        encode(&hello).is_ok_and(|frame| self.send(&frame, page) == Sent::Bytes(frame.len()))
    }

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
    fn welcome(&self, deadline: Instant) -> Option<(Welcome, Option<Descriptor>)> {
        let mut decoder = Decoder::default();
        let mut file = None;
        loop {
            if let Some(welcome) = decoder.take::<Welcome>().ok()? {
                return Some((welcome, file));
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            self.poll(left)?;
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

    fn poll(&self, at_most: Duration) -> Option<()> {
        let mut entry = libc::pollfd {
            fd: self.0.number()?,
            events: libc::POLLIN,
            revents: 0,
        };
        let milliseconds = c_int::try_from(at_most.as_millis()).ok()?.saturating_add(1);
        // SAFETY: one valid entry.
        unsafe { libc::poll(&raw mut entry, 1, milliseconds) };
        Some(())
    }

    /// Whether the peer is still there. Bytes it sends after its welcome are dropped.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        loop {
            match self.receive() {
                Received::Bytes(..) => {}
                Received::Nothing => return true,
                Received::Gone => return false,
            }
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

/// More than a welcome ever has.
const ANSWER: usize = 64 + Welcome::LIMIT;

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

/// The base name of the executable.
fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Field 22 of `/proc/self/stat`. The name in field 2 may hold blanks and brackets, so the count begins
/// after the last bracket.
fn start_time() -> u64 {
    let text = std::fs::read("/proc/self/stat").unwrap_or_default();
    let after_name = text.iter().rposition(|&byte| byte == b')').map_or(0, |at| at + 1);
    let field = text[after_name..]
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .nth(19);
    field
        .and_then(|digits| std::str::from_utf8(digits).ok())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

const _: () = assert!(size_of::<libc::cmsghdr>() + 2 * size_of::<c_int>() == size_of::<Control>());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_field_22() {
        let text = std::fs::read_to_string("/proc/self/stat").unwrap();
        let expected = text.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap();
        assert_eq!(start_time().to_string(), expected);
        assert_ne!(start_time(), 0);
    }

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
        assert!(two.is_alive());
        drop(one);
        assert!(!two.is_alive());
    }
}
