//! Functions of the C library that came late or moved, so that an older one will do.
//!
//! A library that asks for a version which the C library lacks does not merely fail to load: the loader ends the
//! program. Linked here, the functions below would ask for glibc 2.34. So we define them ourselves, visible to
//! nobody else: the thread functions, which were in a library of their own before, are found by name at their
//! first use, and the others are the kernel's calls.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::num::NonZeroUsize;

use once_cell::race::OnceNonZeroUsize;

use crate::elf;

/// A function found by name among the objects behind us.
struct Found(OnceNonZeroUsize);

impl Found {
    fn address(&self, name: &std::ffi::CStr) -> Option<usize> {
        let found = self.0.get_or_try_init(|| elf::definitions(name).next.ok_or(()));
        found.ok().map(NonZeroUsize::get)
    }
}

/// Defines a symbol that this object alone sees, as a jump to a function.
macro_rules! hidden {
    ($name:ident, $function:path) => {
        #[cfg(not(test))]
        std::arch::global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".hidden ", stringify!($name)),
            concat!(".type ", stringify!($name), ", %function"),
            concat!(stringify!($name), ":"),
            #[cfg(target_arch = "x86_64")]
            "jmp {function}",
            #[cfg(target_arch = "aarch64")]
            "b {function}",
            function = sym $function,
        );
    };
}

/// Functions of the C library, by name; with what they answer in a process that has none.
macro_rules! found {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $absent:expr;)*) => {$(
        #[cfg_attr(test, expect(dead_code, reason = "tests use the C library's own"))]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static FOUND: Found = Found(OnceNonZeroUsize::new());
            let name = concat!(stringify!($name), "\0");
            let address = std::ffi::CStr::from_bytes_with_nul(name.as_bytes());
            let Some(address) = address.ok().and_then(|name| FOUND.address(name)) else {
                return $absent;
            };
            // SAFETY: the C library's function of this name has this type.
            let function: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(address) };
            // SAFETY: the arguments are the caller's.
            unsafe { function($($argument),*) }
        }
        hidden!($name, $name);
    )*};
}

type Attributes = *mut libc::pthread_attr_t;
type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Destructor = Option<unsafe extern "C" fn(*mut c_void)>;
type Set = *mut libc::sigset_t;

found! {
    fn dlerror() -> *mut c_char, else std::ptr::null_mut();
    fn pthread_attr_getguardsize(attributes: Attributes, size: *mut usize) -> c_int, else libc::ENOSYS;
    fn pthread_attr_getstack(attributes: Attributes, start: *mut *mut c_void, size: *mut usize) -> c_int,
        else libc::ENOSYS;
    fn pthread_attr_setstacksize(attributes: Attributes, size: usize) -> c_int, else libc::ENOSYS;
    fn pthread_create(thread: *mut libc::pthread_t, attributes: Attributes, start: Start, argument: *mut c_void)
        -> c_int, else libc::EAGAIN;
    fn pthread_detach(thread: libc::pthread_t) -> c_int, else libc::ENOSYS;
    fn pthread_getattr_np(thread: libc::pthread_t, attributes: Attributes) -> c_int, else libc::ENOSYS;
    fn pthread_key_create(key: *mut libc::pthread_key_t, destructor: Destructor) -> c_int, else libc::EAGAIN;
    fn pthread_key_delete(key: libc::pthread_key_t) -> c_int, else libc::ENOSYS;
    fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int, else libc::ENOSYS;
    fn pthread_setspecific(key: libc::pthread_key_t, value: *const c_void) -> c_int, else libc::ENOSYS;
    fn pthread_sigmask(how: c_int, set: Set, before: Set) -> c_int, else libc::ENOSYS;
}

/// Kernel calls; where the C library has a wrapper, it came after 2.18.
macro_rules! kernel {
    ($(fn $name:ident($($argument:ident: $type:ty),*) = $call:expr;)*) => {$(
        #[cfg_attr(test, expect(dead_code, reason = "tests use the C library's own"))]
        unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the kernel checks what the caller has passed.
            let answer = unsafe { $call };
            c_int::try_from(answer).unwrap_or(-1)
        }
        hidden!($name, $name);
    )*};
}

kernel! {
    fn fstat(file: c_int, status: *mut libc::stat) = libc::syscall(libc::SYS_fstat, file, status);
    fn fstat64(file: c_int, status: *mut libc::stat64) = libc::syscall(libc::SYS_fstat, file, status);
    fn stat64(path: *const c_char, status: *mut libc::stat64) =
        libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, status, 0);
    fn gettid() = libc::syscall(libc::SYS_gettid);
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) =
        libc::syscall(libc::SYS_statx, folder, path, flags, mask, status);
}
