//! The real functions: the C library's `dlsym` and the driver's entry points.
//!
//! A driver function is found by `dlsym` on the handle of the `libcuda.so.1` that is already loaded, never by
//! `RTLD_NEXT`: some libraries export trampolines of the same names, which would lead back to us.

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::num::NonZeroUsize;

use once_cell::race::OnceNonZeroUsize;

use crate::elf;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Stands in a [`Real`] for "this driver has no such function".
const ABSENT: NonZeroUsize = NonZeroUsize::MAX;

// `OnceLock` blocks when the thread that fills it comes back to it, which inside the loader is a deadlock;
// `race` does not, and asks twice at worst.
static NEXT_DLSYM: OnceNonZeroUsize = OnceNonZeroUsize::new();
static NEXT_DLVSYM: OnceNonZeroUsize = OnceNonZeroUsize::new();
static LIBC_DLSYM: OnceNonZeroUsize = OnceNonZeroUsize::new();
static LIBC_DLVSYM: OnceNonZeroUsize = OnceNonZeroUsize::new();
static LIBCUDA: OnceNonZeroUsize = OnceNonZeroUsize::new();

/// The `dlsym` that the program would have called without us; 0 where there is none.
#[must_use]
pub fn next_dlsym() -> usize {
    let found = NEXT_DLSYM.get_or_try_init(|| elf::definitions(c"dlsym").next.ok_or(()));
    found.map_or(0, NonZeroUsize::get)
}

/// The `dlvsym` that the program would have called without us; 0 where there is none.
#[must_use]
pub fn next_dlvsym() -> usize {
    let found = NEXT_DLVSYM.get_or_try_init(|| elf::definitions(c"dlvsym").next.ok_or(()));
    found.map_or(0, NonZeroUsize::get)
}

/// The `dlopen` that the program would have called without us; 0 where there is none.
#[must_use]
pub fn next_dlopen() -> usize {
    static NEXT: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let found = NEXT.get_or_try_init(|| elf::definitions(c"dlopen").next.ok_or(()));
    found.map_or(0, NonZeroUsize::get)
}

/// The C library's `dlsym`. As the caller is this object, `RTLD_NEXT` means "behind us".
///
/// # Safety
/// `name` points to a string that ends in a zero byte.
#[must_use]
pub unsafe fn real_dlsym(handle: *mut c_void, name: *const c_char) -> Option<NonZeroUsize> {
    let found = LIBC_DLSYM.get_or_try_init(|| elf::definitions(c"dlsym").libc.ok_or(()));
    // SAFETY: the address is that of the C library's function of this name and so of this type.
    let function: Dlsym = unsafe { std::mem::transmute(found.ok()?.get()) };
    // SAFETY: the caller vouches for `name`; a bad handle is answered with an error.
    let address = unsafe { function(handle, name) };
    NonZeroUsize::new(address as usize)
}

/// The C library's `dlvsym`.
///
/// # Safety
/// `name` and `version` point to strings that end in a zero byte.
#[must_use]
pub unsafe fn real_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Option<NonZeroUsize> {
    let found = LIBC_DLVSYM.get_or_try_init(|| elf::definitions(c"dlvsym").libc.ok_or(()));
    // SAFETY: the address is that of the C library's function of this name and so of this type.
    let function: Dlvsym = unsafe { std::mem::transmute(found.ok()?.get()) };
    // SAFETY: the caller vouches for both strings; a bad handle is answered with an error.
    let address = unsafe { function(handle, name, version) };
    NonZeroUsize::new(address as usize)
}

/// The handle of the driver that the program has loaded; it is never loaded by us.
fn libcuda() -> Option<*mut c_void> {
    let handle = LIBCUDA.get_or_try_init(|| {
        // The second name is what a stub without a soname leaves behind.
        [c"libcuda.so.1", c"libcuda.so"]
            .iter()
            .find_map(|name| {
                // SAFETY: the name ends in a zero byte; with RTLD_NOLOAD no code is loaded or run. The
                // reference taken keeps the addresses found below valid for good.
                let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
                NonZeroUsize::new(handle as usize)
            })
            .ok_or(())
    });
    handle.ok().map(|handle| handle.get() as *mut c_void)
}

/// Whether the program has loaded the driver.
#[must_use]
pub fn is_loaded() -> bool {
    libcuda().is_some()
}

/// The address of one of the driver's functions, kept once found.
#[derive(Debug)]
pub struct Entry {
    name: &'static CStr,
    address: OnceNonZeroUsize,
    /// What the driver's `cuGetProcAddress` answers for it, where that differs.
    by_proc: OnceNonZeroUsize,
}

impl Entry {
    /// The function's exported name.
    #[must_use]
    pub const fn name(&self) -> &'static CStr {
        self.name
    }

    /// Its address; `None` when no driver is loaded, or when the driver lacks it.
    #[inline]
    pub fn address(&self) -> Option<NonZeroUsize> {
        let found = match self.address.get() {
            Some(found) => found,
            None => self.resolve()?,
        };
        (found != ABSENT).then_some(found)
    }

    #[cold]
    fn resolve(&self) -> Option<NonZeroUsize> {
        let handle = libcuda()?;
        let found = self.address.get_or_init(|| {
            // SAFETY: the name is a `CStr`.
            unsafe { real_dlsym(handle, self.name.as_ptr()) }
                .or(self.by_proc.get().filter(|&found| found != ABSENT))
                .unwrap_or(ABSENT)
        });
        Some(found)
    }

    /// What `ask`, the driver's `cuGetProcAddress`, answers for this function; asked once.
    pub fn by_proc(&self, ask: impl FnOnce() -> Option<NonZeroUsize>) -> Option<NonZeroUsize> {
        let found = self.by_proc.get_or_init(|| ask().unwrap_or(ABSENT));
        (found != ABSENT).then_some(found)
    }
}

/// An [`Entry`] that knows the type of its function, `F`.
#[derive(Debug)]
pub struct Real<F> {
    entry: Entry,
    function: PhantomData<F>,
}

impl<F: Copy> Real<F> {
    /// The function exported under `name`.
    ///
    /// # Safety
    /// `F` is the type of a function pointer, and in each driver the function has that type.
    #[must_use]
    pub const unsafe fn new(name: &'static CStr) -> Self {
        assert!(size_of::<F>() == size_of::<usize>(), "a function pointer");
        Self {
            entry: Entry {
                name,
                address: OnceNonZeroUsize::new(),
                by_proc: OnceNonZeroUsize::new(),
            },
            function: PhantomData,
        }
    }

    /// The function, if a driver is loaded and has it.
    #[inline]
    pub fn get(&self) -> Option<F> {
        let address = self.entry.address()?.get();
        // SAFETY: `new` was promised that the function of this name has type `F`, a function pointer.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }

    /// What the program would have called by this name without us, while no driver is loaded: the trampoline
    /// of some library, which is about to load it.
    #[cold]
    pub fn next(&self) -> Option<F> {
        // SAFETY: the name is a `CStr`.
        let address = unsafe { real_dlsym(libc::RTLD_NEXT, self.entry.name.as_ptr()) }?.get();
        // SAFETY: whoever exports the driver's name exports a function of the driver's type.
        Some(unsafe { std::mem::transmute_copy(&address) })
    }

    /// The entry without its type.
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }
}
