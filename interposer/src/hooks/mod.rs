//! The hooks, a few lines each: what to count, and the real call. All else is behind the [gate](crate::gate).

pub mod array;
pub mod context;
pub mod graph;
pub mod host;
pub mod imported;
pub mod iteration;
pub mod lookup;
pub mod memory;
pub mod pool;
pub mod vmm;

use crate::table::Row;

/// The rows of all hooks.
pub static TABLES: [&[Row]; 10] = [
    memory::ROWS,
    pool::ROWS,
    host::ROWS,
    vmm::ROWS,
    array::ROWS,
    imported::ROWS,
    graph::ROWS,
    context::ROWS,
    iteration::ROWS,
    lookup::ROWS,
];

/// The entry of a hook, the same for each: 15 bytes of `push`, `mov %rsp,%rbp` and `sub $imm32,%rsp`, undone
/// before it jumps to the body. UCX finds a hook where it looks for the driver's function, and moves those bytes
/// elsewhere to put a jump of its own in their place; it knows these instructions, no shorter `sub`, and few others. What a
/// compiler makes of a function begins otherwise, and then UCX gives up its registration caches without a word.
/// All registers and the stack reach the body as they were.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($body:path) => {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_adjust_cfa_offset 8",
            ".cfi_rel_offset rbp, 0",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "push r15",
            "push r14",
            "sub rsp, 128",
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            ".cfi_restore rbp",
            "jmp {body}",
            ".cfi_endproc",
            body = sym $body,
        )
    };
}

/// The entry of a hook, here a branch to its body.
#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($body:path) => {
        std::arch::naked_asm!("b {body}", body = sym $body)
    };
}
use entry;

/// Makes hooks and their rows from lines like
/// `fn cuMemFree_v2 = (c"cuMemFree", 3020, Legacy), (pointer: DevicePointer) => |real| BODY`,
/// where `real()` makes the real call with the same arguments and `BODY` gives the status.
///
/// The functions are `C-unwind`: a thread may be cancelled inside the real call, and that unwinds through us.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident = ($base:literal, $since:literal, $streams:ident),
        ($($argument:ident: $type:ty),*) => |$real:ident| $body:expr;)*) => {
        #[expect(non_upper_case_globals, reason = "named as their functions")]
        mod real {
            use super::*;
            $(
                pub(super) static $name: $crate::driver::Real<unsafe extern "C-unwind" fn($($type),*) -> Status> = {
                    // SAFETY: `cuda.h` declares the function with this type.
                    unsafe { $crate::driver::Real::new(hooks!(@name $name)) }
                };
            )*
        }
        #[expect(non_snake_case, reason = "named as their functions")]
        mod body {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> Status {
                    let Some(function) = real::$name.get() else {
                        let Some(next) = real::$name.next() else {
                            return $crate::abi::NOT_FOUND;
                        };
                        // SAFETY: what would have been called without us gets the program's arguments.
                        return unsafe { next($($argument),*) };
                    };
                    // SAFETY: the real function gets the program's arguments as they are.
                    let $real = || unsafe { function($($argument),*) };
                    $body
                }
            )*
        }
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As the driver's function of this name.
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> Status {
                $crate::hooks::entry!(body::$name)
            }
        )*
        /// The rows of this module.
        pub static ROWS: &[$crate::table::Row] = &[$($crate::table::Row {
            base: $base,
            since: $since,
            streams: $crate::table::Streams::$streams,
            hook: $name as *const (),
            entry: real::$name.entry(),
        }),*];
    };
    (@name $name:ident) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("an identifier has no zero byte"),
        }
    };
}
use hooks;

/// What a successful call wrote to `place`.
///
/// # Safety
/// `place` is null or where the driver has just written a `T`.
#[inline]
unsafe fn written<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: as the caller says; unaligned, because a program's pointer may be.
    (!place.is_null()).then(|| unsafe { place.read_unaligned() })
}
