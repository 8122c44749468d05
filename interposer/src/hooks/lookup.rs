//! How a program finds the driver's functions: `cuGetProcAddress`, `dlsym` and `dlvsym`; and `dlopen`, with
//! which it may load libraries that find them without us.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::num::NonZeroUsize;
use std::panic::catch_unwind;

use super::{hooks, written};
use crate::abi::{SUCCESS, Status};
use crate::bypass;
use crate::driver;
use crate::gate;
use crate::settings;
use crate::table;

hooks! {
    /// Finds a function by name, version and flags, in its form with four arguments.
    fn cuGetProcAddress = (c"cuGetProcAddress", 11030, Legacy),
        (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        gate::after(real, || unsafe { swap_found(symbol, function, version, flags) });

    /// The same with a fifth argument, which the driver fills in.
    fn cuGetProcAddress_v2 = (c"cuGetProcAddress", 12000, Legacy),
        (symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        gate::after(real, || unsafe { swap_found(symbol, function, version, flags) });
}

/// Replaces what the driver has found by our hook for it, if it is the real function of one. Status, null
/// results and the fifth argument stay the driver's.
///
/// # Safety
/// `symbol` and `function` are those of a successful `cuGetProcAddress`.
unsafe fn swap_found(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64) {
    // SAFETY: as the caller says.
    let found = unsafe { written(function) }.and_then(|found| NonZeroUsize::new(found as usize));
    let Some(found) = found.filter(|_| !symbol.is_null() && !settings::disabled()) else {
        return;
    };
    // SAFETY: the driver has found this name, so it is a string.
    let name = unsafe { CStr::from_ptr(symbol) };
    let hook = table::swap_proc(name, flags, found, ask_driver);
    if hook != found {
        // SAFETY: the driver has just written there.
        unsafe { function.write_unaligned(hook.get() as *mut c_void) };
    } else if let Some(base) = table::held_by_base(name).filter(|_| !table::is_hook(found)) {
        bypass::note_unknown(base, version);
    }
}

/// The driver's own answer for a name, version and flags.
fn ask_driver(name: &CStr, version: c_int, flags: u64) -> Option<NonZeroUsize> {
    let mut found: *mut c_void = std::ptr::null_mut();
    let status = if let Some(ask) = real::cuGetProcAddress_v2.get() {
        // SAFETY: the name is a string and `found` a place to write to; the last may be null.
        unsafe {
            ask(
                name.as_ptr(),
                &raw mut found,
                version,
                flags,
                std::ptr::null_mut(),
            )
        }
    } else {
        let ask = real::cuGetProcAddress.get()?;
        // SAFETY: as above.
        unsafe { ask(name.as_ptr(), &raw mut found, version, flags) }
    };
    NonZeroUsize::new(found as usize).filter(|_| status == SUCCESS)
}

/// What `dlsym` does next: jumps to `jump` as if the program had called it, or, if that is 0, answers `answer`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Course {
    jump: usize,
    answer: usize,
}

impl Course {
    const fn answer(found: Option<NonZeroUsize>) -> Self {
        let answer = match found {
            Some(found) => found.get(),
            None => 0,
        };
        Self { jump: 0, answer }
    }
}

/// # Safety
/// As `dlsym`.
unsafe extern "C" fn course_of_dlsym(handle: *mut c_void, name: *const c_char) -> Course {
    // SAFETY: the caller's arguments.
    let look_up = |handle| unsafe { driver::real_dlsym(handle, name) };
    // SAFETY: as above.
    unsafe { course(driver::next_dlsym(), handle, name, look_up) }
}

/// # Safety
/// As `dlvsym`.
unsafe extern "C" fn course_of_dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> Course {
    // SAFETY: the caller's arguments.
    let look_up = |handle| unsafe { driver::real_dlvsym(handle, name, version) };
    // SAFETY: as above.
    unsafe { course(driver::next_dlvsym(), handle, name, look_up) }
}

/// # Safety
/// `name` is null or a string.
unsafe fn course(
    next: usize,
    handle: *mut c_void,
    name: *const c_char,
    look_up: impl Fn(*mut c_void) -> Option<NonZeroUsize>,
) -> Course {
    let jump = Course {
        jump: next,
        answer: 0,
    };
    // SAFETY: as the caller says.
    if name.is_null() || !unsafe { table::is_driver_name(name) } {
        return jump;
    }
    // SAFETY: as the caller says.
    let name = unsafe { CStr::from_ptr(name) };
    let decide = std::panic::AssertUnwindSafe(|| course_of_name(jump, handle, name, look_up));
    catch_unwind(decide).unwrap_or(jump)
}

/// `RTLD_NEXT` and `RTLD_DEFAULT` depend on who calls, so they are left to the C library; but a name that only
/// our own export answers for must stay unknown. Every other handle is looked up, and the result swapped.
fn course_of_name(
    jump: Course,
    handle: *mut c_void,
    name: &CStr,
    look_up: impl Fn(*mut c_void) -> Option<NonZeroUsize>,
) -> Course {
    if handle == libc::RTLD_NEXT {
        return jump;
    }
    if handle == libc::RTLD_DEFAULT {
        let is_ours = table::rows().any(|row| row.entry.name() == name);
        if is_ours && look_up(libc::RTLD_NEXT).is_none() {
            return Course::answer(None);
        }
        return jump;
    }
    if settings::disabled() {
        return jump;
    }
    table::prepare();
    Course::answer(look_up(handle).map(|found| table::swap(name, found)))
}

/// Notes a library that is about to be loaded so that it looks into itself first, and jumps on.
///
/// # Safety
/// As `dlopen`.
unsafe extern "C" fn course_of_dlopen(file: *const c_char, mode: c_int) -> Course {
    if mode & libc::RTLD_DEEPBIND != 0 && !file.is_null() {
        // SAFETY: the caller's argument, which `dlopen` reads as a string.
        bypass::note(unsafe { CStr::from_ptr(file) });
    }
    Course {
        jump: driver::next_dlopen(),
        answer: 0,
    }
}

/// Makes a function of the C library ours: it saves the arguments, asks `course` what to do, and jumps on with the
/// program's own return address in place. The C library reads the caller from it, `dlsym` to answer `RTLD_NEXT` and
/// `dlopen` to find its search path; an ordinary call would make every wrapper that uses `RTLD_NEXT` find itself.
/// Three arguments are saved whatever the function takes: a word more costs nothing and keeps the stack aligned.
macro_rules! asks_first {
    ($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),+), $course:path) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {course}",
                "mov r11, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "mov rax, r11",
                "ret",
                course = sym $course,
            )
        }

        $(#[$doc])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($argument: $type),+) -> *mut c_void {
            naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "mov x29, sp",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {course}",
                "mov x16, x0",
                "mov x17, x1",
                "ldp x0, x1, [sp, #16]",
                "ldr x2, [sp, #32]",
                "ldp x29, x30, [sp], #48",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "mov x0, x17",
                "ret",
                course = sym $course,
            )
        }
    };
}

asks_first! {
    /// Finds a function by name: ours in place of the driver's.
    fn dlsym(handle: *mut c_void, name: *const c_char), course_of_dlsym
}

asks_first! {
    /// `dlsym` with a version.
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char), course_of_dlvsym
}

asks_first! {
    /// Loads a library: those that will bypass us are noted.
    fn dlopen(file: *const c_char, mode: c_int), course_of_dlopen
}
