//! The folders of detached jobs: `NUMBER-NONCE/` with `job.json`, `out`, `err` and `explained.json`.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use migm_shared::ids::JobId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{End, How, Record, VERSION};
use crate::control::Explanation;

/// So many jobs that have ended are kept; no more than two whole arrays.
pub const KEPT: usize = 2000;
/// And so many bytes of them, logs and all; the last one whatever its size.
pub const KEPT_BYTES: u64 = 1 << 30;
/// A folder without a job that is older than this was left by a command that was killed.
const STALE: Duration = Duration::from_secs(24 * 3600);
const FRESH: &str = ".new-";

/// Standard output of the job in `folder`.
#[must_use]
pub fn out(folder: &Path) -> PathBuf {
    folder.join("out")
}

/// Its standard error, and what its runner says.
#[must_use]
pub fn err(folder: &Path) -> PathBuf {
    folder.join("err")
}

/// A folder for a job that has no number yet. It goes when it is dropped, unless [`Fresh::hand_over`] is called.
#[derive(Debug)]
pub struct Fresh(tempfile::TempDir);

impl Fresh {
    /// Makes it, with empty files for the output.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(place: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(place)?;
        let own = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new()
            .prefix(FRESH)
            .permissions(own)
            .tempdir_in(place)?;
        for file in [out(folder.path()), err(folder.path())] {
            fs::File::create_new(file)?;
        }
        Ok(Self(folder))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The runner has it from here on.
    pub fn hand_over(self) {
        let _ = self.0.keep();
    }
}

/// Gives a folder its name.
///
/// # Errors
/// The kernel refuses.
pub fn name(fresh: &Path, id: JobId, nonce: u64) -> io::Result<PathBuf> {
    let place = fresh.parent().unwrap_or(Path::new("/"));
    let named = place.join(format!("{id}-{nonce:016x}"));
    fs::rename(fresh, &named)?;
    Ok(named)
}

/// Writes what is known of the job in `folder`; a reader sees the old or the new one, whole.
///
/// # Errors
/// The kernel refuses; what was there stays.
pub fn write(folder: &Path, record: &Record) -> io::Result<()> {
    put(folder, "job.json", record)
}

/// Writes what was decided on the job.
///
/// # Errors
/// As [`write()`].
pub fn write_explanation(folder: &Path, explanation: &Explanation) -> io::Result<()> {
    put(folder, "explained.json", explanation)
}

fn put(folder: &Path, name: &str, what: &impl Serialize) -> io::Result<()> {
    let mut fresh = tempfile::Builder::new().prefix(".").tempfile_in(folder)?;
    serde_json::to_writer(&mut fresh, what)?;
    fresh.flush()?;
    fresh.persist(folder.join(name)).map_err(|error| error.error)?;
    Ok(())
}

fn get<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// What was decided on the job in `folder`, once it has ended.
#[must_use]
pub fn explanation(folder: &Path) -> Option<Explanation> {
    get(&folder.join("explained.json"))
}

/// What is known of the job in `folder`, as of now; `None` where there is none, or one of another version.
#[must_use]
pub fn read(folder: &Path) -> Option<Record> {
    let as_written = || get::<Record>(&folder.join("job.json")).filter(|record| record.version == VERSION);
    let record = as_written()?;
    if record.end.is_some() || record.runner.lives() {
        return Some(record);
    }
    // It may have written the end and gone since the first look. After this one nobody writes any more.
    let mut record = as_written()?;
    record.end.get_or_insert_with(|| End {
        how: How::Lost,
        status: None,
        reason: Some("its runner has gone without a word".to_owned()),
    });
    Some(record)
}

fn number(folder: &Path) -> Option<u64> {
    let name = folder.file_name()?.to_str()?;
    name.split_once('-')?.0.parse().ok()
}

fn folders(place: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// All jobs that are kept, in order of submission, with their folders.
#[must_use]
pub fn all(place: &Path) -> Vec<(PathBuf, Record)> {
    let named: Vec<PathBuf> = folders(place).filter(|folder| number(folder).is_some()).collect();
    let mut found = read_all(&named);
    found.sort_by(|(_, a), (_, b)| {
        (a.submitted, a.id)
            .partial_cmp(&(b.submitted, b.id))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    found
}

/// Reads thousands of them on several processors. No thread is left.
fn read_all(named: &[PathBuf]) -> Vec<(PathBuf, Record)> {
    /// So many are worth a thread.
    const WORTH: usize = 200;
    let each = |folders: &[PathBuf]| -> Vec<(PathBuf, Record)> {
        let read = |folder: &PathBuf| Some((folder.clone(), read(folder)?));
        folders.iter().filter_map(read).collect()
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let parts = processors.min(named.len().div_ceil(WORTH));
    if parts < 2 {
        return each(named);
    }
    std::thread::scope(|threads| {
        let start = |part| {
            let reader = std::thread::Builder::new().spawn_scoped(threads, move || each(part));
            // Where there is no thread to be had, this one reads.
            reader.map_err(|_| part)
        };
        let parts = named.chunks(named.len().div_ceil(parts));
        let readers: Vec<_> = parts.map(start).collect();
        let read = readers.into_iter().flat_map(|reader| match reader {
            Ok(reader) => reader.join().unwrap_or_default(),
            Err(part) => each(part),
        });
        read.collect()
    })
}

/// The highest number of a job that is kept; 0 without any.
#[must_use]
pub fn highest(place: &Path) -> u64 {
    folders(place)
        .filter_map(|folder| number(&folder))
        .max()
        .unwrap_or(0)
}

/// Removes the folders of the oldest ended jobs, down to `most` jobs and `most_bytes` bytes, and what killed commands
/// have left.
pub fn prune(place: &Path, most: usize, most_bytes: u64) {
    let (mut count, mut bytes) = (0, 0_u64);
    for (folder, record) in all(place).into_iter().rev() {
        if record.is_live() {
            continue;
        }
        count += 1;
        bytes = bytes.saturating_add(size(&folder));
        if count > most || bytes > most_bytes && count > 1 {
            // Another runner may be at the same.
            let _ = fs::remove_dir_all(folder);
        }
    }
    let is_stale = |folder: &PathBuf| {
        let age = || {
            SystemTime::now()
                .duration_since(fs::metadata(folder).ok()?.modified().ok()?)
                .ok()
        };
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(FRESH) && age().is_some_and(|age| age > STALE)
    };
    for folder in folders(place).filter(is_stale) {
        let _ = fs::remove_dir_all(folder);
    }
}

fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control::{JobState, Wishes};
    use crate::job::descendants::Identity;

    /// A job that has ended.
    pub(crate) fn record(id: u64, name: &str) -> Record {
        Record {
            version: VERSION,
            id: JobId(id),
            nonce: id,
            name: name.into(),
            command: vec!["true".into()],
            directory: "/".into(),
            user: 0,
            wishes: Wishes::default(),
            runner: Identity { pid: 1, start: 0 },
            socket: "/s".into(),
            submitted: f64::from(u32::try_from(id).unwrap()),
            since: 0.0,
            state: JobState::Ended,
            attempts: Vec::new(),
            end: Some(End {
                how: How::Done,
                status: Some(0),
                reason: None,
            }),
        }
    }

    fn put_in(place: &Path, record: &Record, bytes: usize) -> PathBuf {
        let fresh = Fresh::make(place).unwrap();
        fs::write(out(fresh.path()), "x".repeat(bytes)).unwrap();
        let folder = name(fresh.path(), record.id, record.nonce).unwrap();
        fresh.hand_over();
        write(&folder, record).unwrap();
        folder
    }

    #[test]
    fn a_folder_that_no_job_took_is_gone() {
        let place = tempfile::tempdir().unwrap();
        let inner = place.path().join("migm/jobs");
        drop(Fresh::make(&inner).unwrap());
        assert_eq!(folders(&inner).count(), 0);
        assert_eq!(highest(&inner), 0);
    }

    #[test]
    fn the_oldest_ended_jobs_go_and_living_ones_stay() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path();
        let mut live = record(1, "live");
        live.end = None;
        live.runner = Identity::of(std::process::id()).unwrap();
        put_in(place, &live, 5000);
        for id in 2..=6 {
            put_in(place, &record(id, "job"), 1000);
        }
        assert_eq!(highest(place), 6);
        let ids = || {
            all(place)
                .iter()
                .map(|(_, record)| record.id.0)
                .collect::<Vec<_>>()
        };
        prune(place, 4, 1 << 20);
        assert_eq!(ids(), [1, 3, 4, 5, 6]);
        prune(place, 4, 3200);
        assert_eq!(ids(), [1, 5, 6], "each has a record beside its thousand bytes");
        prune(place, 4, 10);
        assert_eq!(ids(), [1, 6], "the last one stays whatever its size");
    }

    #[test]
    fn a_job_whose_runner_has_gone_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let mut gone = record(1, "gone");
        gone.end = None;
        let folder = put_in(place.path(), &gone, 0);
        let gone = read(&folder).unwrap();
        let end = gone.end.as_ref().unwrap();
        assert_eq!((end.how, end.status), (How::Lost, None));
        assert!(gone.ended_well().unwrap_err().contains("without a word"));
        assert_eq!(record(2, "well").ended_well(), Ok(()));
    }
}
