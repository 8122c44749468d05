//! The unwinder, opened when it is needed.
//!
//! The standard library unwinds with `libgcc_s.so.1`. As a dependency of this object it would be loaded into
//! each shell and compiler of a job, which takes longer than all else that is done at their start. So it is
//! not one, as for the C library itself, which opens it at the first `pthread_cancel`:
//!
//! 1. The linker is told (`build.rs`) to bind each `_Unwind_NAME` of this object to `__wrap__Unwind_NAME` below.
//! 2. At the first call, which is a fault of ours or a thread that is cancelled inside a hook, all of them are
//!    looked up in `libgcc_s.so.1`.
//! 3. Each call is a jump, so that the unwinder sees the stack of its caller.
//!
//! A copy of the unwinder linked into this object would not do: the one that cancels a thread hands its own
//! state to ours.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::driver;

const NAMES: [&CStr; 12] = [
    c"_Unwind_Backtrace",
    c"_Unwind_DeleteException",
    c"_Unwind_GetDataRelBase",
    c"_Unwind_GetIP",
    c"_Unwind_GetIPInfo",
    c"_Unwind_GetLanguageSpecificData",
    c"_Unwind_GetRegionStart",
    c"_Unwind_GetTextRelBase",
    c"_Unwind_RaiseException",
    c"_Unwind_Resume",
    c"_Unwind_SetGR",
    c"_Unwind_SetIP",
];

/// The functions' addresses, in the order of [`NAMES`]; 0 until they are looked up.
static FOUND: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];

/// Looks all functions up. Where there is no unwinder, a fault cannot be caught, and the program ends.
extern "C" fn look_up() {
    // SAFETY: the name ends in a zero byte; the object's initialisers are those of the compiler's own library.
    let handle = unsafe { libc::dlopen(c"libgcc_s.so.1".as_ptr(), libc::RTLD_NOW) };
    for (name, place) in NAMES.iter().zip(&FOUND) {
        // SAFETY: the name is a `CStr`.
        let found = (!handle.is_null()).then(|| unsafe { driver::real_dlsym(handle, name.as_ptr()) });
        let Some(found) = found.flatten() else {
            std::process::abort();
        };
        place.store(found.get(), Relaxed);
    }
}

/// `__wrap__Unwind_NAME` for the function at `INDEX` of [`NAMES`], hidden.
#[cfg(target_arch = "x86_64")]
macro_rules! forward {
    ($($index:literal $name:literal),*) => {$(
        std::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ",@function"),
            concat!("__wrap_", $name, ":"),
            "mov rax, qword ptr [rip + {found} + 8 * {index}]",
            "test rax, rax",
            "je 2f",
            "jmp rax",
            "2:",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push rax",
            "call {look_up}",
            "pop rax",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp qword ptr [rip + {found} + 8 * {index}]",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
            found = sym FOUND,
            look_up = sym look_up,
            index = const $index,
        );
    )*};
}

/// `__wrap__Unwind_NAME` for the function at `INDEX` of [`NAMES`], hidden.
#[cfg(target_arch = "aarch64")]
macro_rules! forward {
    ($($index:literal $name:literal),*) => {$(
        std::arch::global_asm!(
            concat!(".pushsection .text.", $name, ",\"ax\",@progbits"),
            concat!(".globl __wrap_", $name),
            concat!(".hidden __wrap_", $name),
            concat!(".type __wrap_", $name, ",@function"),
            ".balign 4",
            concat!("__wrap_", $name, ":"),
            "adrp x16, {found} + 8 * {index}",
            "ldr x16, [x16, :lo12:{found} + 8 * {index}]",
            "cbz x16, 2f",
            "br x16",
            "2:",
            "stp x29, x30, [sp, -48]!",
            "stp x0, x1, [sp, 16]",
            "stp x2, x3, [sp, 32]",
            "bl {look_up}",
            "ldp x2, x3, [sp, 32]",
            "ldp x0, x1, [sp, 16]",
            "ldp x29, x30, [sp], 48",
            "adrp x16, {found} + 8 * {index}",
            "ldr x16, [x16, :lo12:{found} + 8 * {index}]",
            "br x16",
            concat!(".size __wrap_", $name, ", . - __wrap_", $name),
            ".popsection",
            found = sym FOUND,
            look_up = sym look_up,
            index = const $index,
        );
    )*};
}

forward!(
    0 "_Unwind_Backtrace",
    1 "_Unwind_DeleteException",
    2 "_Unwind_GetDataRelBase",
    3 "_Unwind_GetIP",
    4 "_Unwind_GetIPInfo",
    5 "_Unwind_GetLanguageSpecificData",
    6 "_Unwind_GetRegionStart",
    7 "_Unwind_GetTextRelBase",
    8 "_Unwind_RaiseException",
    9 "_Unwind_Resume",
    10 "_Unwind_SetGR",
    11 "_Unwind_SetIP"
);
