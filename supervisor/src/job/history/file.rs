//! The history file: JSON lines that any number of runners append to.
//!
//! The first line names the version. Each further line is an [`Entry`]; a run adds one and changes none, and
//! entries of one signature are put together when they are read.
//!
//! - **Appending** goes under a lock on a file beside it, in one write. A writer killed within it leaves a
//!   line without an end: readers pass over it, and the next writer ends it before it adds its own.
//! - **Reading** takes no lock: lines are only added, and a compacted file takes the old one's place as a
//!   whole. So a stopped writer keeps no job from starting.
//! - **Compaction**, when the file outgrows [`LIMIT`], puts entries together, leaves out the longest unused
//!   and renames the result into place, under the lock.
//! - A file of **another version** is moved aside under a name that says so, and is never written to.
//!
//! All is the user's alone: the folder that is made has mode 0700, the files 0600.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::Entry;

/// The version that this build reads and writes.
pub const VERSION: u32 = 1;
/// The file is compacted when it has grown beyond so many bytes, to half of them at most.
pub const LIMIT: usize = 4 << 20;
/// So many entries a compaction leaves at most.
pub const KEPT_ENTRIES: usize = 4096;
/// A line is no longer than this: the longest argument list that is kept, escaped, with an environment.
const LONGEST_LINE: usize = 64 << 10;
/// A writer holds the lock for milliseconds. One that holds it longer has been stopped, and a job that is
/// over does not wait for it.
const PATIENCE: Duration = Duration::from_secs(5);

/// The history cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The kernel refuses.
    #[error("history {}: cannot {doing}: {source}", path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It is of another version, and only asked to be read.
    #[error("history {}: it has version {version}, and this is version {VERSION}; the next run sets it aside", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It is no history.
    #[error("history {}: its first line is not that of a history", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Somebody holds the lock.
    #[error("history {}: another process has held its lock for {} s", path.display(), PATIENCE.as_secs())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// An entry that is too long to be kept.
    #[error("history {}: an entry of {length} bytes is longer than {LONGEST_LINE}", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        length: usize,
    },
}

#[derive(Serialize, Deserialize)]
struct Head {
    migm_history: u32,
}

/// The history at one place. Nothing is opened before it is needed.
#[derive(Clone, Debug)]
pub struct History {
    path: PathBuf,
    limit: usize,
}

/// What a file has been found to hold.
#[derive(Debug, Default)]
struct Content {
    /// By signature, in the order of their first lines.
    entries: Vec<Entry>,
    /// Lines that are no entries: torn by a crash, or somebody else's.
    unread: usize,
}

impl History {
    /// The history in this file.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self { path, limit: LIMIT }
    }

    /// One that is compacted when it has grown beyond `limit` bytes instead of [`LIMIT`].
    #[must_use]
    pub const fn with_limit(path: PathBuf, limit: usize) -> Self {
        Self { path, limit }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All entries, the longest unused first, and how many lines could not be read.
    ///
    /// # Errors
    /// The file cannot be read, or is of another version, or no history. A missing one is empty.
    pub fn read(&self) -> Result<(Vec<Entry>, usize), HistoryError> {
        let mut content = self.content(|_| true)?;
        content.entries.sort_by_key(|entry| entry.last_run);
        Ok((content.entries, content.unread))
    }

    /// The entries of one family.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    pub fn family(&self, family: &str) -> Result<Vec<Entry>, HistoryError> {
        let start = format!("{{\"family\":\"{family}\"");
        Ok(self.content(|line| line.starts_with(start.as_bytes()))?.entries)
    }

    fn content(&self, wanted: impl Fn(&[u8]) -> bool) -> Result<Content, HistoryError> {
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Content::default()),
            Err(error) => return Err(self.failed("read it")(error)),
        };
        match version(&bytes) {
            Some(VERSION) => {}
            Some(version) => {
                let path = self.path.clone();
                return Err(HistoryError::Version { path, version });
            }
            None if bytes.is_empty() => return Ok(Content::default()),
            None => {
                return Err(HistoryError::Foreign {
                    path: self.path.clone(),
                });
            }
        }
        let mut content = Content::default();
        let mut known: HashMap<String, usize> = HashMap::new();
        for line in bytes
            .split(|byte| *byte == b'\n')
            .skip(1)
            .filter(|line| !line.is_empty())
        {
            if !wanted(line) {
                continue;
            }
            let Ok(entry) = serde_json::from_slice::<Entry>(line) else {
                content.unread += 1;
                continue;
            };
            match known.get(&entry.signature) {
                Some(&index) => content.entries[index].absorb(entry),
                None => {
                    known.insert(entry.signature.clone(), content.entries.len());
                    content.entries.push(entry);
                }
            }
        }
        Ok(content)
    }

    /// Adds what a run came to. Says where an earlier file of another version has been put, if there was one.
    ///
    /// # Errors
    /// The file or its lock cannot be had; nothing has been added then.
    pub fn add(&self, entry: &Entry) -> Result<Option<PathBuf>, HistoryError> {
        let mut line = self.encode(entry)?;
        line.push(b'\n');
        if line.len() > LONGEST_LINE {
            let (path, length) = (self.path.clone(), line.len());
            return Err(HistoryError::Long { path, length });
        }
        let _lock = self.lock()?;
        let aside = self.set_aside()?;
        let mut file = self.open()?;
        let length = file.seek(SeekFrom::End(0)).map_err(self.failed("find its end"))?;
        let mut bytes = Vec::new();
        if length == 0 {
            bytes = self.encode(&Head {
                migm_history: VERSION,
            })?;
            bytes.push(b'\n');
        } else if !ends_a_line(&mut file, length).map_err(self.failed("read its end"))? {
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&line);
        // The lock is ours, so the end is still where it was; O_APPEND keeps it so for whoever ignores locks.
        file.write_all(&bytes).map_err(self.failed("append to it"))?;
        if length + bytes.len() as u64 > self.limit as u64 {
            let mut entries = self.content(|_| true)?.entries;
            entries.sort_by_key(|entry| entry.last_run);
            self.replace(&entries)?;
        }
        Ok(aside)
    }

    /// Leaves out all entries for which `forget` says so; how many those were.
    ///
    /// # Errors
    /// The file or its lock cannot be had; nothing has been changed then.
    pub fn forget(&self, forget: impl Fn(&Entry) -> bool) -> Result<usize, HistoryError> {
        if !self.path.exists() {
            return Ok(0);
        }
        let _lock = self.lock()?;
        let mut entries = self.content(|_| true)?.entries;
        let before = entries.len();
        entries.retain(|entry| !forget(entry));
        let gone = before - entries.len();
        if gone > 0 {
            self.replace(&entries)?;
        }
        Ok(gone)
    }

    /// Puts a file with these entries in place, the longest unused left out where they are too many. The lock
    /// is held.
    fn replace(&self, entries: &[Entry]) -> Result<(), HistoryError> {
        let mut lines = Vec::new();
        let mut size = 0;
        for entry in entries.iter().rev().take(KEPT_ENTRIES) {
            let line = self.encode(entry)?;
            size += line.len() + 1;
            if size > self.limit / 2 {
                break;
            }
            lines.push(line);
        }
        lines.push(self.encode(&Head {
            migm_history: VERSION,
        })?);
        lines.reverse();
        let mut text = lines.join(&b'\n');
        text.push(b'\n');
        let failed = || self.failed("write it anew");
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!(".{name}-");
        self.sweep(&prefix);
        let mut fresh = tempfile::Builder::new()
            .prefix(&prefix)
            .tempfile_in(self.folder())
            .map_err(failed())?;
        fresh.write_all(&text).map_err(failed())?;
        // On the disk before it takes the other's place: else a power cut could leave neither.
        fresh.as_file().sync_all().map_err(failed())?;
        fresh.persist(&self.path).map_err(|error| failed()(error.error))?;
        Ok(())
    }

    /// Takes away what a writer that was killed in the midst of a compaction has left. The lock is held, so nobody is
    /// in the midst of one now.
    fn sweep(&self, prefix: &str) {
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                // What cannot be removed takes room and does no harm.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Moves a file that is not of this version out of the way. The lock is held.
    fn set_aside(&self) -> Result<Option<PathBuf>, HistoryError> {
        let mut start = Vec::new();
        match File::open(&self.path) {
            Ok(file) => file
                .take(256)
                .read_to_end(&mut start)
                .map_err(self.failed("read it"))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read it")(error)),
        };
        let name = match version(&start) {
            _ if start.is_empty() => return Ok(None),
            Some(VERSION) => return Ok(None),
            Some(other) => format!("version-{other}"),
            None => "unknown".to_owned(),
        };
        let free = (1_u32..).map(|number| self.path.with_extension(format!("{name}.{number}")));
        let aside = free.into_iter().find(|path| !path.exists());
        let aside = aside.unwrap_or_else(|| self.path.with_extension(name));
        fs::rename(&self.path, &aside).map_err(self.failed("set another version aside"))?;
        Ok(Some(aside))
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }

    fn open(&self) -> Result<File, HistoryError> {
        OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)
            .map_err(self.failed("open it"))
    }

    /// Waits for the lock; it goes with the file that is given back, and with this process at the latest.
    fn lock(&self) -> Result<File, HistoryError> {
        let failed = || self.failed("lock it");
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(self.folder())
            .map_err(self.failed("make its folder"))?;
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed())?;
        let end = Instant::now() + PATIENCE;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(HistoryError::Locked {
                        path: self.path.clone(),
                    });
                }
                Err(TryLockError::Error(error)) => return Err(failed()(error)),
            }
        }
    }

    fn encode(&self, value: &impl Serialize) -> Result<Vec<u8>, HistoryError> {
        serde_json::to_vec(value).map_err(|error| self.failed("encode an entry")(error.into()))
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> HistoryError + use<> {
        let path = self.path.clone();
        move |source| HistoryError::System { path, doing, source }
    }
}

/// What the first line says.
fn version(bytes: &[u8]) -> Option<u32> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let head: Head = serde_json::from_slice(line).ok()?;
    Some(head.migm_history)
}

fn ends_a_line(file: &mut File, length: u64) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests;
