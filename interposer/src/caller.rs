//! Who the process is to the supervisor, and how it finds its page.

use std::ffi::c_int;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use migm_shared::frame::encode;
use migm_shared::ids::AttemptId;
use migm_shared::page;
use migm_shared::report::{Hello, Report, Welcome};

use crate::descriptor::Descriptor;
use crate::link::{self, Sent, Socket};
use crate::pagefile::PageFile;
use crate::{log, settings};

/// How long the first allocation of a job waits for the job's page. A supervisor on a loaded machine may take some
/// hundred milliseconds; one that is stopped costs this once a process.
const PATIENCE: Duration = Duration::from_secs(1);

/// Who calls, and whom. Read once, by the thread that attaches: the program may be changing its environment
/// while the sender thread runs.
#[derive(Debug)]
pub struct Caller {
    sockets: Vec<PathBuf>,
    attempt: Option<String>,
    page: Option<PathBuf>,
}

impl Caller {
    /// Reads the environment.
    #[must_use]
    pub fn read() -> Self {
        Self {
            sockets: settings::sockets(),
            attempt: settings::attempt(),
            page: settings::page(),
        }
    }

    /// The number of the attempt that the process belongs to; 0 for none.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.id().map_or(0, |id| id.attempt)
    }

    fn id(&self) -> Option<AttemptId> {
        self.attempt.as_deref()?.parse().ok()
    }

    /// Finds the page to count in, and the supervisor. A job's process takes the page from its runner, or,
    /// where that cannot be reached (another pid namespace, another user), asks the supervisor for it; a
    /// watched one makes its own. Who has a page sends it along and waits for nothing. Without an answer in
    /// time the process counts in a page of its own, which the sender thread offers later. `None` when there
    /// is no memory for a page.
    #[must_use]
    pub fn open(&self) -> Option<(PageFile, Option<Socket>)> {
        let deadline = Instant::now() + PATIENCE;
        if let Some(page) = self.runners_page() {
            let socket = self.call(&page, Instant::now());
            return Some((page, socket));
        }
        if self.attempt.is_some() {
            let (page, socket) = self.ask(deadline);
            return Some((page.or_else(PageFile::own)?, socket));
        }
        let own = PageFile::own()?;
        let socket = self.call(&own, deadline);
        Some((own, socket))
    }

    /// The page that the runner holds. The number of its file may be another's in this process's view of the
    /// machine, so its name is checked: it carries the job's nonce.
    fn runners_page(&self) -> Option<PageFile> {
        let path = self.page.as_deref()?;
        PageFile::named(path, &page::file_name(self.id()?.nonce))
    }

    /// Asks for the job's page. A connection is kept only if both sides agree on which page is used: a
    /// supervisor that answers too late would take us for a user of its page.
    fn ask(&self, deadline: Instant) -> (Option<PageFile>, Option<Socket>) {
        let Some(socket) = self.connect(deadline).filter(|socket| self.greet(socket, None)) else {
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

    /// Connects, says hello and sends the page along, where it has a file; else asks for one.
    #[must_use]
    pub fn call(&self, page: &PageFile, deadline: Instant) -> Option<Socket> {
        let file = page.file.as_ref().and_then(Descriptor::number);
        self.connect(deadline).filter(|socket| self.greet(socket, file))
    }

    /// Connects to the first of the sockets that answers. A full backlog is waited for until the deadline.
    fn connect(&self, deadline: Instant) -> Option<Socket> {
        self.sockets.iter().find_map(|path| link::connect(path, deadline))
    }

    fn greet(&self, socket: &Socket, page: Option<c_int>) -> bool {
        let hello = Report::Hello(Hello {
            pid: std::process::id(),
            attempt: self.attempt.clone(),
            program: program(),
            has_page: page.is_some(),
        });
        // The socket is fresh and its buffer empty: a hello that does not fit whole is a failure.
        encode(&hello).is_ok_and(|frame| socket.send(&frame, page) == Sent::Bytes(frame.len()))
    }
}

/// Takes a slot in the page, or in one of our own if all are taken.
#[must_use]
pub fn join(file: PageFile, attempt: u32) -> Option<(PageFile, usize)> {
    let pid = std::process::id();
    let start = start_time();
    // The same process before it executed this program: its memory went with the program. A fresh page has
    // nobody, and looking through its slots would make the kernel find memory for all of them.
    let others = if file.fresh {
        Vec::new()
    } else {
        file.page.occupants()
    };
    for before in others {
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
    // Fifty-two numbers and a name: the kernel hands it out whole to a reader with room for it.
    let mut room = [0; 2048];
    let read = File::open("/proc/self/stat").and_then(|mut file| file.read(&mut room));
    let text = room.get(..read.unwrap_or(0)).unwrap_or_default();
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
}
