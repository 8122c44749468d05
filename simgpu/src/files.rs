//! Where states live: one file each, `migm-simgpu-<uid>-<id>` in `/dev/shm`.
//!
//! A file appears under its name only when it is complete. Whoever has it open holds a shared lock on it, so that
//! [`clear`] finds the ones that nobody uses.

use std::fs::{self, File, OpenOptions};
use std::num::NonZeroUsize;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::getuid;

use crate::device_files::folder_of;
use crate::driver::DriverError;
use crate::faults::FaultError;
use crate::guest::GuestError;
use crate::identity::gpu_uuid;
use crate::lock::Guard;
use crate::machine::OpenError;
use crate::model::ModelError;
use crate::process::Process;
use crate::state::{GPUS, LAYOUT, MAGIC, State, monotonic};

mod plan;

pub use plan::Plan;

/// The driver that a state has unless told otherwise.
pub const DEFAULT_DRIVER: &str = "580.82.07";

/// Why there is no such state, or none could be made.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The GPUs were not understood.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The faults were not understood.
    #[error(transparent)]
    Faults(#[from] FaultError),
    /// The count after the colon is no number from 1 to 64.
    #[error("`{given}`: `{count}` is not a number of GPUs (1 to {GPUS})")]
    Count {
        /// All that was given.
        given: String,
        /// The part after the colon.
        count: String,
    },
    /// More GPUs than a state holds.
    #[error("{0} GPUs asked, a simulated machine has at most {GPUS}")]
    TooMany(usize),
    /// The scale is no positive number.
    #[error("time scale `{0}` is not a positive number of wall seconds per simulated second")]
    Scale(String),
    /// The kind of guest was not understood.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// The driver was not understood, or is too old.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The id holds characters that no id has.
    #[error("`{0}` is no id of a simulated machine")]
    Id(String),
    /// No file of that id.
    #[error("there is no simulated machine `{id}` ({path})", path = path.display())]
    Missing {
        /// The id.
        id: String,
        /// The file looked for.
        path: PathBuf,
    },
    /// The file is of another version of this program, or no state at all.
    #[error("{path} has layout {found}, this program reads layout {LAYOUT}", path = path.display())]
    Layout {
        /// The file.
        path: PathBuf,
        /// Its layout number; 0 when it is no state.
        found: u64,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {error}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
}

/// The state, while this thread holds its lock.
pub(crate) struct Locked<'a> {
    state: &'a State,
    _guard: Guard<'a>,
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        self.state
    }
}

/// A state in this process's memory.
pub(crate) struct Mapping {
    state: NonNull<State>,
    id: String,
    /// Its lock says that the state is in use.
    _file: Flock<File>,
}

// SAFETY: the state is shared memory made of atomics and locks, for any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl std::ops::Deref for Mapping {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: the mapping is of this length and alignment, lives as long as `self`, and any bit pattern of it is
        // a valid `State`: it consists of integers only.
        unsafe { self.state.as_ref() }
    }
}

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Mapping").field(&self.id).finish()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapping::of` with this length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.state.cast(), size_of::<State>()) };
        debug_assert!(unmapped.is_ok());
    }
}

impl Mapping {
    pub(crate) fn locked(&self) -> Locked<'_> {
        let state: &State = self;
        Locked {
            state,
            _guard: state.lock.lock(),
        }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    fn of(file: File, id: &str, path: &Path) -> Result<Self, FileError> {
        let failed = |what, errno: nix::errno::Errno| FileError::Io {
            what,
            path: path.to_owned(),
            error: errno.into(),
        };
        let file =
            Flock::lock(file, FlockArg::LockSharedNonblock).map_err(|(_, errno)| failed("lock", errno))?;
        let length = NonZeroUsize::new(size_of::<State>()).unwrap_or(NonZeroUsize::MIN);
        let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: no address is asked for, so nothing that is mapped is replaced.
        let state = unsafe { mmap(None, length, rights, MapFlags::MAP_SHARED, &*file, 0) }
            .map_err(|errno| failed("map", errno))?;
        Ok(Self {
            state: state.cast(),
            id: id.to_owned(),
            _file: file,
        })
    }

    /// Opens the state of this id.
    pub(crate) fn open(id: &str) -> Result<Arc<Self>, FileError> {
        Self::open_file(id, path_of(id)?)
    }

    fn open_file(id: &str, path: PathBuf) -> Result<Arc<Self>, FileError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path);
        let file = file.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => FileError::Missing {
                id: id.to_owned(),
                path: path.clone(),
            },
            _ => FileError::Io {
                what: "open",
                path: path.clone(),
                error,
            },
        })?;
        let length = file.metadata().map(|metadata| metadata.len()).unwrap_or(0);
        if length < size_of::<State>() as u64 {
            return Err(FileError::Layout { path, found: 0 });
        }
        let mapping = Self::of(file, id, &path)?;
        let found = if mapping.magic.get() == MAGIC {
            mapping.layout.get()
        } else {
            0
        };
        if found != LAYOUT || length != size_of::<State>() as u64 {
            return Err(FileError::Layout { path, found });
        }
        Ok(Arc::new(mapping))
    }

    /// Makes a state with an id of its own, and opens it.
    pub(crate) fn create(plan: &Plan) -> Result<Arc<Self>, FileError> {
        Self::create_in(&directory(), plan)
    }

    fn create_in(directory: &Path, plan: &Plan) -> Result<Arc<Self>, FileError> {
        loop {
            let id = random_id()?;
            let path = directory.join(prefix() + &id);
            let unfinished = path.with_extension("new");
            let io = |what, error| FileError::Io {
                what,
                path: path.clone(),
                error,
            };
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished);
            let file = match file {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                file => file.map_err(|error| io("create", error))?,
            };
            let made = file
                .set_len(size_of::<State>() as u64)
                .map_err(|error| io("size", error))
                .and_then(|()| Self::of(file, &id, &path))
                .inspect(|mapping| mapping.format(plan));
            let named = fs::hard_link(&unfinished, &path);
            // Best effort: `clear` takes what stays behind.
            let _ = fs::remove_file(&unfinished);
            let mapping = made.inspect_err(|_| drop(fs::remove_file(&path)))?;
            match named {
                Ok(()) => return Ok(Arc::new(mapping)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                // A `clear` took the unfinished file before it was locked.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io("name", error)),
            }
        }
    }

    fn format(&self, plan: &Plan) {
        // SAFETY: the file has no name under which others open it yet.
        unsafe { self.lock.format() };
        self.time_scale.set_f64(plan.time_scale);
        self.set_driver(&plan.driver);
        for ((index, gpu), &model) in (0..).zip(&self.gpus).zip(&plan.models) {
            // SAFETY: as above.
            unsafe { gpu.config.format() };
            gpu.model.set(u32::try_from(model).unwrap_or(0));
            gpu.mig.set(plan.mig.into());
            gpu.mig_pending.set(plan.mig.into());
            gpu.meters[0].at.set(monotonic());
            gpu.set_uuid(gpu_uuid(&self.id, index));
        }
        self.gpu_count.set(u32::try_from(plan.models.len()).unwrap_or(0));
        self.guest.set(plan.guest as u32);
        self.set_faults(&plan.faults);
        self.layout.set(LAYOUT);
        self.magic.set(MAGIC);
    }
}

fn directory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if nix::unistd::access(shared, nix::unistd::AccessFlags::W_OK).is_ok() {
        return shared.to_owned();
    }
    std::env::temp_dir()
}

fn prefix() -> String {
    format!("migm-simgpu-{}-", getuid())
}

pub(crate) fn path_of(id: &str) -> Result<PathBuf, FileError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if id.is_empty() || id.len() > 64 || !id.bytes().all(allowed) {
        return Err(FileError::Id(id.to_owned()));
    }
    Ok(directory().join(prefix() + id))
}

fn random_id() -> Result<String, FileError> {
    let path = PathBuf::from("/dev/urandom");
    let mut bytes = [0; 6];
    File::open(&path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|error| FileError::Io {
            what: "read",
            path,
            error,
        })?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Spares the state in [`clear`] while the process of this pid lives.
pub fn keep_for(id: &str, pid: u32) -> Result<(), OpenError> {
    let mapping = Mapping::open(id)?;
    let keeper = Process::of(pid);
    let state = mapping.locked();
    state.keeper_start.set(keeper.start);
    state.keeper_pid.set(keeper.pid.into());
    Ok(())
}

/// Takes the state's name away. Who has it open keeps it.
pub fn remove(id: &str) -> Result<(), FileError> {
    let path = path_of(id)?;
    forget(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => FileError::Missing {
            id: id.to_owned(),
            path,
        },
        _ => FileError::Io {
            what: "remove",
            path,
            error,
        },
    })
}

/// Removes a state and the device files that belong to it.
fn forget(state: &Path) -> std::io::Result<()> {
    fs::remove_file(state)?;
    match fs::remove_dir_all(folder_of(state)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes this user's states that no living process made, uses or keeps; says how many.
pub fn clear() -> Result<usize, FileError> {
    clear_in(&directory())
}

fn clear_in(directory: &Path) -> Result<usize, FileError> {
    let prefix = prefix();
    let io = |error| FileError::Io {
        what: "list",
        path: directory.to_owned(),
        error,
    };
    let mut removed = 0;
    for entry in fs::read_dir(directory).map_err(io)? {
        let entry = entry.map_err(io)?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) && is_abandoned(&entry.path()) {
            removed += usize::from(forget(&entry.path()).is_ok());
        }
    }
    Ok(removed)
}

/// Nobody has it open; nor does a process live in it that closed all its files since.
fn is_abandoned(path: &Path) -> bool {
    let inhabited = Mapping::open_file("", path.to_owned()).is_ok_and(|mapping| {
        let state = mapping.locked();
        let kept = state.keeper().is_some_and(|keeper| !keeper.is_dead());
        kept || state.used_records().any(|record| !record.process().is_dead())
    });
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path);
    let locked = |file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok();
    !inhabited && opened.is_ok_and(locked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(gpus: &str) -> Result<Plan, FileError> {
        Plan::parse(gpus, true, 1.0, DEFAULT_DRIVER)
    }

    #[test]
    fn an_id_cannot_leave_the_directory() {
        assert!(matches!(Mapping::open("../x"), Err(FileError::Id(_))));
        assert!(matches!(
            Mapping::open("0123456789ab"),
            Err(FileError::Missing { .. })
        ));
    }

    #[test]
    fn a_state_of_another_layout_is_refused_with_both_numbers() {
        let mapping = Mapping::create(&plan("a100-40gb").unwrap()).unwrap();
        mapping.layout.set(LAYOUT + 1);
        let text = Mapping::open(mapping.id()).unwrap_err().to_string();
        let expected = format!("has layout {}, this program reads layout {LAYOUT}", LAYOUT + 1);
        assert!(text.ends_with(&expected), "{text}");
        remove(mapping.id()).unwrap();
    }

    #[test]
    fn a_state_in_use_is_not_cleared() {
        // Not the real directory: other users of this machine may be between making a state and using it.
        let directory = tempfile::tempdir().unwrap();
        let mapping = Mapping::create_in(directory.path(), &plan("a100-40gb").unwrap()).unwrap();
        assert_eq!(clear_in(directory.path()).unwrap(), 0);
        drop(mapping);
        assert_eq!(clear_in(directory.path()).unwrap(), 1);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
