//! A scripted supervisor: speaks the real frames, hands out a real page, and keeps what it is told.

use std::io::Read;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, encode};
use migm_shared::page::CounterPage;
use migm_shared::report::{Answer, Event, Hello, Report, Sample, Welcome};

use crate::programs::folder;

/// What the supervisor does with a hello.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Manner {
    /// Answers with the job's page.
    GivesPage,
    /// Says hello back without a page.
    KeepsNone,
    /// Accepts, reads nothing, answers nothing.
    Silent,
    /// Answers with the page and then reads no more.
    StopsReading,
    /// Answers with a file that is no page.
    GivesRubbish,
    /// Gives the page, and raises the cap there to so many bytes when asked for more.
    RaisesTo(u64),
}

/// A counter page in a memfd.
pub struct Page {
    file: OwnedFd,
    page: &'static CounterPage,
}

impl Page {
    pub fn new() -> Self {
        // SAFETY: the name ends in a zero byte.
        let number =
            unsafe { libc::memfd_create(c"page".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC) };
        assert!(number >= 0);
        // SAFETY: the number was just opened, for us alone.
        let file = unsafe { OwnedFd::from_raw_fd(number) };
        let bytes = i64::try_from(size_of::<CounterPage>()).unwrap();
        // SAFETY: the file is ours.
        assert_eq!(unsafe { libc::ftruncate(number, bytes) }, 0);
        // SAFETY: the file is ours.
        let sealed = unsafe { libc::fcntl(number, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
        assert_eq!(sealed, 0);
        let page = Self::map(file);
        page.page.format();
        page
    }

    /// Maps a page, whoever made it.
    pub fn map(file: OwnedFd) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let bytes = size_of::<CounterPage>();
        // SAFETY: a mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is as long as a page, is never undone, and a page is made of atomics.
        let page = unsafe { &*start.cast::<CounterPage>() };
        Self { file, page }
    }
}

impl std::ops::Deref for Page {
    type Target = CounterPage;

    fn deref(&self) -> &CounterPage {
        self.page
    }
}

#[derive(Default)]
struct Heard {
    hellos: Mutex<Vec<Hello>>,
    reports: Mutex<Vec<Report>>,
    pages: Mutex<Vec<Page>>,
    streams: Mutex<Vec<UnixStream>>,
    ended: AtomicUsize,
}

/// The supervisor.
pub struct Peer {
    path: PathBuf,
    pub page: Arc<Page>,
    heard: Arc<Heard>,
}

impl Peer {
    pub fn new(manner: Manner) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let path = folder().join(format!("peer{}", NUMBER.fetch_add(1, Relaxed)));
        Self::at(path, Arc::new(Page::new()), manner)
    }

    /// Listens at a path, with a page that an earlier supervisor of the same job may have made.
    pub fn at(path: PathBuf, page: Arc<Page>, manner: Manner) -> Self {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let heard = Arc::new(Heard::default());
        let (of_thread, page_of_thread) = (Arc::clone(&heard), Arc::clone(&page));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (heard, page) = (Arc::clone(&of_thread), Arc::clone(&page_of_thread));
                let stream = stream.unwrap();
                heard.streams.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    serve(stream, &heard, &page, manner);
                    heard.ended.fetch_add(1, Relaxed);
                });
            }
        });
        Self { path, page, heard }
    }

    /// Dies: the socket and all connections are gone.
    pub fn stop(self) {
        std::fs::remove_file(&self.path).unwrap();
        for stream in self.heard.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn hellos(&self) -> Vec<Hello> {
        self.heard.hellos.lock().unwrap().clone()
    }

    pub fn reports(&self) -> Vec<Report> {
        self.heard.reports.lock().unwrap().clone()
    }

    pub fn samples(&self) -> Vec<Sample> {
        let samples = |report| match report {
            Report::Samples(samples) => samples,
            _ => Vec::new(),
        };
        self.reports().into_iter().flat_map(samples).collect()
    }

    pub fn events(&self) -> Vec<Event> {
        let event = |report| match report {
            Report::Event(event) => Some(event),
            _ => None,
        };
        self.reports().into_iter().filter_map(event).collect()
    }

    /// A page that a process sent along.
    pub fn received_page(&self) -> Option<Page> {
        self.heard.pages.lock().unwrap().pop()
    }

    /// How many connections have ended.
    pub fn ended(&self) -> usize {
        self.heard.ended.load(Relaxed)
    }
}

/// Waits until `condition` holds; panics with `what` after 20 seconds.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "not in 20 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn serve(mut stream: UnixStream, heard: &Heard, page: &Page, manner: Manner) {
    if manner == Manner::Silent {
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let mut decoder = Decoder::default();
    let mut bytes = [0; 4096];
    loop {
        let (count, file) = receive(&mut stream, &mut bytes);
        if let Some(file) = file {
            heard.pages.lock().unwrap().push(Page::map(file));
        }
        if count == 0 {
            return;
        }
        decoder.push(&bytes[..count]);
        while let Some(report) = decoder.take::<Report>().expect("the frames are good") {
            if let Report::Hello(hello) = &report {
                heard.hellos.lock().unwrap().push(hello.clone());
                welcome(&stream, page, manner);
                if manner == Manner::StopsReading {
                    std::thread::sleep(Duration::from_secs(60));
                    return;
                }
            }
            if let Report::Raise { ticket, device, .. } = report {
                answer(&stream, page, ticket, device, manner);
            }
            heard.reports.lock().unwrap().push(report);
        }
    }
}

fn answer(stream: &UnixStream, page: &Page, ticket: u32, device: u32, manner: Manner) {
    let on = device as usize;
    if let Manner::RaisesTo(bytes) = manner {
        page.raise_cap(on, bytes);
    }
    let cap = page.cap(on).unwrap_or(0);
    send(stream, &encode(&Answer { ticket, device, cap }).unwrap(), None);
}

fn welcome(stream: &UnixStream, page: &Page, manner: Manner) {
    let (answer, file) = match manner {
        Manner::KeepsNone => (Welcome::OwnPage, None),
        Manner::GivesRubbish => {
            let rubbish = std::fs::File::open("/dev/null").unwrap();
            (Welcome::Page, Some(OwnedFd::from(rubbish)))
        }
        _ => (Welcome::Page, Some(page.file.try_clone().unwrap())),
    };
    send(
        stream,
        &encode(&answer).unwrap(),
        file.as_ref().map(AsRawFd::as_raw_fd),
    );
}

#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    file: RawFd,
    padding: RawFd,
}

fn message(part: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zero is a valid header without parts.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = part;
    header.msg_iovlen = 1;
    header.msg_control = std::ptr::from_mut(control).cast();
    header.msg_controllen = size_of::<Control>();
    header
}

fn empty() -> Control {
    // SAFETY: numbers, for which all zero is a value.
    unsafe { std::mem::zeroed() }
}

fn send(stream: &UnixStream, bytes: &[u8], file: Option<RawFd>) {
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let mut control = empty();
    if let Some(file) = file {
        control.header.cmsg_len = size_of::<libc::cmsghdr>() + size_of::<RawFd>();
        control.header.cmsg_level = libc::SOL_SOCKET;
        control.header.cmsg_type = libc::SCM_RIGHTS;
        control.file = file;
    }
    let mut header = message(&mut part, &mut control);
    if file.is_none() {
        header.msg_control = std::ptr::null_mut();
        header.msg_controllen = 0;
    }
    // SAFETY: the header refers to parts that live; a process that is gone is no matter here.
    unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL) };
}

fn receive(stream: &mut UnixStream, bytes: &mut [u8]) -> (usize, Option<OwnedFd>) {
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut control = empty();
    let mut header = message(&mut part, &mut control);
    // SAFETY: the header refers to parts that live.
    let count = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let Ok(count) = usize::try_from(count) else {
        // A process that was killed: whatever it left is read, then the end.
        return (stream.read(bytes).unwrap_or(0), None);
    };
    let carries =
        header.msg_controllen > size_of::<libc::cmsghdr>() && control.header.cmsg_type == libc::SCM_RIGHTS;
    // SAFETY: the kernel has just given us this descriptor.
    (
        count,
        carries.then(|| unsafe { OwnedFd::from_raw_fd(control.file) }),
    )
}
