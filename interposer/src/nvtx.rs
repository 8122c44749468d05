//! Ranges that a program has annotated itself, with NVTX: where asked for, each outermost one is an iteration.
//!
//! 1. `migm run --iteration nvtx-range` names this library in `NVTX_INJECTION64_PATH`. Without that NVTX is dead: each of
//!    its functions tests a null pointer and returns.
//! 2. At its first call each NVTX of the program, one in each library that was built with its headers, opens
//!    the library of that name, which is loaded already, and calls [`initialize`].
//! 3. That asks for the tables of NVTX's functions and puts ours in place of those that begin and end ranges.
//!    NVTX makes all others do nothing.
//! 4. A thread's depth goes up with each push and down with each pop. The pop that ends the outermost range ticks
//!    the [clock](crate::clock). A range of the start/end kind belongs to no thread; its end ticks if the thread that
//!    ends it is in no pushed range.
//!
//! Only ranges of the default domain count: domains are what libraries such as NCCL annotate themselves in.
//! The names of NVTX's types and functions, their numbers and their answers are those of NVTX 3
//! (`nvtx3/nvToolsExt.h`, `nvtxDetail/nvtxTypes.h`).

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Release};

use migm_shared::clock::Mark;

use crate::gate::ours;
use crate::ledger::tick;
use crate::settings;
use crate::thread::Thread;

/// `NVTX_ETID_CALLBACKS`.
const CALLBACKS: u32 = 1;
/// `NVTX_CB_MODULE_CORE`: functions of the default domain.
const CORE: c_int = 1;
/// `NVTX_CB_MODULE_CORE2`: functions of a given domain, null for the default one.
const CORE2: c_int = 5;
/// What a level is in error; a pop without a push is one.
const ERROR: c_int = -1;
/// `NVTX_NO_PUSH_POP_TRACKING`.
const UNTRACKED: c_int = -2;

/// `NvtxGetExportTableFunc_t`.
type GetExportTable = unsafe extern "C" fn(u32) -> *const Callbacks;
/// `NvtxFunctionTable`: where each function's address is kept; null for none.
type Functions = *const *mut *mut c_void;

/// `NvtxExportTableCallbacks`.
#[derive(Debug)]
#[repr(C)]
pub struct Callbacks {
    struct_size: usize,
    functions: Option<unsafe extern "C" fn(c_int, *mut Functions, *mut c_uint) -> c_int>,
}

/// Called by an NVTX of the program at its first call: 1 if functions of ours are in place, else 0, upon which that
/// NVTX does nothing from then on.
///
/// # Safety
/// As NVTX calls it: with a function that returns its export tables, before any other thread is through its own
/// first call.
#[unsafe(export_name = "InitializeInjectionNvtx2")]
pub unsafe extern "C" fn initialize(export_table: Option<GetExportTable>) -> c_int {
    // SAFETY: the caller's word is handed on.
    let install = || unsafe { install(export_table?) };
    let is_on = || !settings::disabled() && install().is_some();
    c_int::from(ours(is_on).unwrap_or(false))
}

/// # Safety
/// As for [`initialize`].
unsafe fn install(export_table: GetExportTable) -> Option<()> {
    // SAFETY: the caller's function, with a table that NVTX has had since its second version.
    let callbacks = unsafe { export_table(CALLBACKS) };
    if callbacks.is_null() {
        return None;
    }
    // SAFETY: each of NVTX's export tables begins with its size, and lasts as long as NVTX does.
    let bytes = unsafe { (*callbacks).struct_size };
    if bytes < size_of::<Callbacks>() {
        return None;
    }
    // SAFETY: the table is as large as this type.
    let functions = unsafe { (*callbacks).functions }?;
    let core: [(usize, *const ()); 5] = [
        (7, end as *const ()),
        (8, push as *const ()),
        (9, push as *const ()),
        (10, push as *const ()),
        (11, pop as *const ()),
    ];
    let core2: [(usize, *const ()); 5] = [
        (3, end_in as *const ()),
        (4, push_in as *const ()),
        (5, pop_in as *const ()),
        (12, create_domain as *const ()),
        (13, create_domain as *const ()),
    ];
    for (module, ours) in [(CORE, core), (CORE2, core2)] {
        let (mut table, mut size): (Functions, c_uint) = (ptr::null(), 0);
        // SAFETY: NVTX's function, with places to write to.
        let found = unsafe { functions(module, &raw mut table, &raw mut size) };
        if found == 0 || table.is_null() {
            // An NVTX without domains has no second module.
            if module == CORE { return None } else { continue }
        }
        for (place, function) in ours {
            if place < usize::try_from(size).unwrap_or(0) {
                // SAFETY: the table has an entry there.
                let entry = unsafe { table.add(place) };
                // SAFETY: it is null or where the address of the function is kept that this number stands for.
                unsafe { put(entry, function) };
            }
        }
    }
    Some(())
}

/// # Safety
/// `entry` is null or the place of a pointer, for as long as NVTX lasts, and `function` is of the type of what that
/// pointer is to.
unsafe fn put(entry: Functions, function: *const ()) {
    // SAFETY: an entry of the table, by the caller's word.
    let slot = unsafe { *entry };
    if !slot.is_null() {
        // SAFETY: the place of a pointer, aligned as one. Other threads that read it find NVTX's own function, which
        // waits until this is over, or ours.
        let slot = unsafe { AtomicPtr::from_ptr(slot) };
        slot.store(function.cast_mut().cast(), Release);
    }
}

/// `nvtxRangePushEx`, `nvtxRangePushA`, `nvtxRangePushW`: the level of the range, from 0.
extern "C" fn push(_what: *const c_void) -> c_int {
    Thread::with(|thread| {
        let level = thread.ranges.get();
        thread.ranges.set(level.saturating_add(1));
        c_int::try_from(level).unwrap_or(c_int::MAX)
    })
}

/// `nvtxRangePop`: the level of the range that ends.
extern "C" fn pop() -> c_int {
    let ended = Thread::with(|thread| {
        let level = thread.ranges.get().checked_sub(1)?;
        thread.ranges.set(level);
        Some(level)
    });
    let Some(level) = ended else { return ERROR };
    if level == 0 {
        ours(|| tick(Mark::NvtxRange));
    }
    c_int::try_from(level).unwrap_or(c_int::MAX)
}

/// `nvtxRangeEnd`.
extern "C" fn end(_range: u64) {
    if Thread::with(|thread| thread.ranges.get()) == 0 {
        ours(|| tick(Mark::NvtxRange));
    }
}

/// `nvtxDomainRangePushEx`.
extern "C" fn push_in(domain: *const c_void, what: *const c_void) -> c_int {
    if domain.is_null() { push(what) } else { UNTRACKED }
}

/// `nvtxDomainRangePop`.
extern "C" fn pop_in(domain: *const c_void) -> c_int {
    if domain.is_null() { pop() } else { UNTRACKED }
}

/// `nvtxDomainRangeEnd`.
extern "C" fn end_in(domain: *const c_void, range: u64) {
    if domain.is_null() {
        end(range);
    }
}

/// `nvtxDomainCreateA`, `nvtxDomainCreateW`: one handle for all domains but the default one. Without an answer of
/// ours NVTX would answer null, and all domains would be the default one.
extern "C" fn create_domain(_name: *const c_void) -> *const c_void {
    static OTHER: u8 = 0;
    (&raw const OTHER).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: *const c_void = ptr::null();

    #[test]
    fn levels_are_those_of_the_thread() {
        assert_eq!((push(NOTHING), push(NOTHING)), (0, 1));
        let elsewhere = std::thread::spawn(|| (push(NOTHING), pop())).join();
        assert_eq!(elsewhere.unwrap(), (0, 0));
        assert_eq!((pop(), pop()), (1, 0));
    }

    #[test]
    fn a_pop_without_a_push_leaves_the_depth_as_it_is() {
        assert_eq!((pop(), pop()), (ERROR, ERROR));
        assert_eq!((push(NOTHING), pop()), (0, 0));
    }

    #[test]
    fn a_librarys_domain_is_not_the_default_one() {
        let domain = create_domain(NOTHING);
        assert_eq!((push_in(domain, NOTHING), pop_in(domain)), (UNTRACKED, UNTRACKED));
        assert_eq!((push_in(NOTHING, NOTHING), pop()), (0, 0));
    }

    unsafe extern "C" fn no_table(_id: u32) -> *const Callbacks {
        ptr::null()
    }

    unsafe extern "C" fn short_table(_id: u32) -> *const Callbacks {
        static SHORT: usize = size_of::<usize>();
        (&raw const SHORT).cast()
    }

    #[test]
    fn an_nvtx_without_the_tables_is_left_alone() {
        for tables in [None, Some(no_table as GetExportTable), Some(short_table)] {
            // SAFETY: there is nothing to write to.
            assert_eq!(unsafe { initialize(tables) }, 0);
        }
    }
}
