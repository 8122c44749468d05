//! One row per hooked symbol. The rows serve all ways in: the exported symbols are their hooks, and `dlsym`
//! and `cuGetProcAddress` swap what the driver returned if it is the real function of a row.

use std::ffi::{CStr, c_char};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use crate::driver::{self, Entry};
use crate::hooks;

/// Which default stream a function uses, as `cuGetProcAddress` flags ask for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Streams {
    /// The legacy default stream, or no stream at all.
    Legacy,
    /// The per-thread default stream: the `_ptsz` function.
    PerThread,
}

/// One hooked symbol.
#[derive(Debug)]
pub struct Row {
    /// The name that `cuGetProcAddress` is asked for.
    pub base: &'static CStr,
    /// The CUDA version that brought this form of it, as 1000 * major + 10 * minor.
    pub since: i32,
    /// Its default stream.
    pub streams: Streams,
    /// Our function.
    pub hook: *const (),
    /// The driver's.
    pub entry: &'static Entry,
}

// SAFETY: `hook` is the address of a function of ours, never written through.
unsafe impl Sync for Row {}

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    hooks::TABLES.iter().copied().flatten()
}

/// Asks the driver for each row's real function once it is loaded. Leaves no `dlerror` behind, so this comes
/// before the program's own lookup.
fn resolve() -> bool {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Acquire) {
        return true;
    }
    if !driver::is_loaded() {
        return false;
    }
    for row in rows() {
        row.entry.address();
    }
    // SAFETY: no precondition; it only clears the calling thread's last message.
    unsafe { libc::dlerror() };
    DONE.store(true, Release);
    true
}

/// Prepares [`swap`]: to be called before the program's lookup, so that its `dlerror` stays.
pub fn prepare() {
    resolve();
}

/// The hook for what the driver returned, or the same address back. `name` decides between functions that a
/// driver has folded into one.
#[must_use]
pub fn swap(name: &CStr, returned: NonZeroUsize) -> NonZeroUsize {
    if !resolve() {
        return returned;
    }
    let is_real = |row: &&Row| row.entry.address() == Some(returned);
    let hook = rows()
        .filter(is_real)
        .find(|row| row.entry.name() == name)
        .or_else(|| rows().find(is_real))
        .and_then(|row| NonZeroUsize::new(row.hook as usize));
    hook.unwrap_or(returned)
}

/// [`swap`] for `cuGetProcAddress`, which on some driver may return other addresses than `dlsym`. Then the
/// driver itself is asked, by `ask`, what it returns for the version and flags of each row of that name: no
/// guess is made about a version that we do not know.
#[must_use]
pub fn swap_proc(
    base: &CStr,
    flags: u64,
    returned: NonZeroUsize,
    ask: impl Fn(&CStr, i32, u64) -> Option<NonZeroUsize>,
) -> NonZeroUsize {
    if !resolve() {
        return returned;
    }
    let streams = if flags & PER_THREAD == 0 {
        Streams::Legacy
    } else {
        Streams::PerThread
    };
    // Functions folded into one address are told apart by the default stream that was asked for.
    let of_base = || {
        let named =
            |wanted: bool| rows().filter(move |row| row.base == base && (row.streams == streams) == wanted);
        named(true).chain(named(false))
    };
    let hook = |row: &Row| NonZeroUsize::new(row.hook as usize);
    if let Some(row) = of_base().find(|row| row.entry.address() == Some(returned)) {
        return hook(row).unwrap_or(returned);
    }
    let by_address = swap(base, returned);
    if by_address != returned {
        return by_address;
    }
    let asked = |row: &Row| {
        let flags = if row.streams == Streams::PerThread {
            PER_THREAD
        } else {
            0
        };
        row.entry.by_proc(|| ask(row.base, row.since, flags))
    };
    let found = of_base().find(|row| asked(row) == Some(returned));
    found.and_then(hook).unwrap_or(returned)
}

/// The base name, if some form of that function takes or gives memory and has a row.
#[must_use]
pub fn held_by_base(name: &CStr) -> Option<&'static CStr> {
    let row = rows().find(|row| row.base == name)?;
    let base = row.base.to_bytes();
    let moves_memory = [
        "cuMem",
        "cuArray",
        "cuMipmappedArray",
        "cuIpc",
        "cuGraphAdd",
        "cuCtx",
        "cuDevicePrimaryCtx",
    ]
    .iter()
    .any(|start| base.starts_with(start.as_bytes()));
    (moves_memory && !base.starts_with(b"cuMemcpy")).then_some(row.base)
}

/// Whether an address is one of our own functions: a driver may look a name up in the whole process.
#[must_use]
pub fn is_hook(address: NonZeroUsize) -> bool {
    rows().any(|row| row.hook as usize == address.get())
}

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
const PER_THREAD: u64 = 2;

/// Whether a name may be one of the driver's: `cu` and a capital letter, which cublas and curl are not.
///
/// # Safety
/// `name` points to a string that ends in a zero byte.
#[must_use]
pub unsafe fn is_driver_name(name: *const c_char) -> bool {
    let byte = |index: usize| {
        // SAFETY: the second byte is asked for only if the first is not the zero byte, and so on.
        let place = unsafe { name.add(index) }.cast::<u8>();
        // SAFETY: as above.
        unsafe { place.read() }
    };
    byte(0) == b'c' && byte(1) == b'u' && byte(2).is_ascii_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_symbol_and_each_hook_has_one_row() {
        let names: HashSet<_> = rows().map(|row| row.entry.name()).collect();
        let hooks: HashSet<_> = rows().map(|row| row.hook).collect();
        assert_eq!(names.len(), rows().count());
        assert_eq!(hooks.len(), rows().count());
    }

    #[test]
    fn a_name_begins_with_its_base() {
        for row in rows() {
            let (name, base) = (row.entry.name().to_bytes(), row.base.to_bytes());
            assert!(name.starts_with(base), "{row:?}");
            assert_eq!(
                name.ends_with(b"_ptsz"),
                row.streams == Streams::PerThread,
                "{row:?}"
            );
        }
    }

    #[test]
    fn forms_that_we_do_not_know_matter_where_memory_is_moved() {
        assert_eq!(held_by_base(c"cuMemAlloc"), Some(c"cuMemAlloc"));
        assert_eq!(held_by_base(c"cuCtxCreate"), Some(c"cuCtxCreate"));
        assert_eq!(held_by_base(c"cuStreamSynchronize"), None);
        assert_eq!(held_by_base(c"cuLaunchKernel"), None);
    }

    #[test]
    fn neither_cublas_nor_nvml_nor_curl_is_the_driver() {
        let is = |name: &CStr| {
            // SAFETY: a `CStr` ends in a zero byte.
            unsafe { is_driver_name(name.as_ptr()) }
        };
        assert!(is(c"cuInit"));
        assert!(!is(c"nvmlInit_v2") && !is(c"cudaMalloc"));
        assert!(!is(c"cublasCreate_v2") && !is(c"curl_easy_init") && !is(c"cu") && !is(c""));
    }
}
