//! The environment variables that a process under the interposer listens to.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use migm_shared::clock::Wanted;

const UNREAD: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// Whether `MIGM_DISABLE=1` turns the interposer off for this process.
#[must_use]
pub fn disabled() -> bool {
    static DISABLED: AtomicU8 = AtomicU8::new(UNREAD);
    is_one(&DISABLED, c"MIGM_DISABLE")
}

/// Whether `MIGM_LOG=1` lets the interposer write to standard error.
#[must_use]
pub fn logs() -> bool {
    static LOGS: AtomicU8 = AtomicU8::new(UNREAD);
    is_one(&LOGS, c"MIGM_LOG")
}

/// `MIGM_ATTEMPT`, which the runner sets; unchecked.
#[must_use]
pub fn attempt() -> Option<String> {
    let text = read(c"MIGM_ATTEMPT")?;
    text.to_str().ok().map(ToOwned::to_owned)
}

/// What is to mark iterations: `MIGM_ITERATION`, which the runner has checked; nonsense counts as unset.
#[must_use]
pub fn iteration() -> Wanted {
    let text = read(c"MIGM_ITERATION");
    let wanted = text.as_deref().and_then(|text| text.to_str().ok()?.parse().ok());
    wanted.unwrap_or_default()
}

/// A soft cap as the runner sets it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cap {
    /// Device bytes of the job.
    pub bytes: u64,
    /// What a context is charged.
    pub context: u64,
    /// Other jobs use the device: what is in use there says nothing about a context.
    pub shared: bool,
}

/// `MIGM_CAP`: the job's soft cap in bytes and what a context is charged, `CAP`, `CAP:CONTEXT` or `CAP:CONTEXT:shared`;
/// the runner sets it. Reads without allocating, as an allocation of the program may be under way.
#[must_use]
pub fn cap() -> Option<Cap> {
    let text = find(c"MIGM_CAP")?.to_str().ok()?;
    let (figures, shared) = match text.strip_suffix(":shared") {
        Some(figures) => (figures, true),
        None => (text, false),
    };
    let (bytes, context) = figures.split_once(':').unwrap_or((figures, "0"));
    Some(Cap {
        bytes: bytes.parse().ok()?,
        context: context.parse().ok()?,
        shared,
    })
}

/// `MIGM_PAGE`, where the runner keeps the job's counter page; unchecked.
#[must_use]
pub fn page() -> Option<PathBuf> {
    read(c"MIGM_PAGE").map(|text| PathBuf::from(OsStr::from_bytes(text.to_bytes())))
}

/// The sockets to try, in order. `MIGM_SOCKET` stands alone: a job belongs to the supervisor that it names,
/// and to no other that happens to listen.
#[must_use]
pub fn sockets() -> Vec<PathBuf> {
    let path = |text: &CStr| PathBuf::from(OsStr::from_bytes(text.to_bytes()));
    if let Some(named) = read(c"MIGM_SOCKET").filter(|text| !text.is_empty()) {
        return vec![path(&named)];
    }
    let mut paths = vec![PathBuf::from("/run/migm/migm.sock")];
    if let Some(runtime) = read(c"XDG_RUNTIME_DIR").filter(|text| !text.is_empty()) {
        paths.push(path(&runtime).join("migm/migm.sock"));
    }
    paths
}

/// No allocation and no lock: `dlsym` asks through here, perhaps from within a `malloc` that starts up.
fn is_one(cache: &AtomicU8, name: &CStr) -> bool {
    match cache.load(Relaxed) {
        UNREAD => {
            let on = find(name).is_some_and(|value| value == c"1");
            cache.store(if on { ON } else { OFF }, Relaxed);
            on
        }
        read => read == ON,
    }
}

fn read(name: &CStr) -> Option<CString> {
    find(name).map(ToOwned::to_owned)
}

/// The result is valid until the program changes this variable; callers copy it at once.
fn find<'a>(name: &CStr) -> Option<&'a CStr> {
    // SAFETY: the name is a string; the result is null or a string of the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: as above.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
