//! The primary context of each device, and the device of each thread.

use crate::driver::{self, Handle};
use crate::error::Code;
use crate::{device, error, registry};
use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

thread_local! {
    static DEVICE: Cell<c_int> = const { Cell::new(0) };
    /// The reset count at which this thread last made a context of ours current.
    static BOUND_AT: Cell<u64> = const { Cell::new(0) };
}

/// Counts device resets, from 1. A thread that bound a context before the last one must bind again: the
/// context it holds may be gone.
static RESETS: AtomicU64 = AtomicU64::new(1);

/// Devices whose primary context is retained, with that context.
static RETAINED: Mutex<Vec<(c_int, usize)>> = Mutex::new(Vec::new());

/// The ordinal that `cudaSetDevice` chose on this thread.
pub(crate) fn chosen_device() -> c_int {
    DEVICE.get()
}

/// Initialises the driver, and refuses one older than this runtime's major version.
pub(crate) fn ready() -> Result<(), Code> {
    static READY: AtomicBool = AtomicBool::new(false);
    if READY.load(Ordering::Acquire) {
        return Ok(());
    }
    let mut version = 0;
    // SAFETY: the output is ours.
    unsafe { driver::cuDriverGetVersion(&raw mut version) }?;
    if version / 1000 < device::runtime_version() / 1000 {
        return Err(Code::INSUFFICIENT_DRIVER);
    }
    // SAFETY: no pointer is passed.
    unsafe { driver::cuInit(0) }?;
    READY.store(true, Ordering::Release);
    Ok(())
}

/// Sees to it that a context is current on this thread: the one the program set through the driver, or
/// the primary context of the chosen device.
pub(crate) fn bind() -> Result<(), Code> {
    ready()?;
    let resets = RESETS.load(Ordering::Acquire);
    // 0 is a thread's first call: a context that the program made current through the driver is kept.
    if [0, resets].contains(&BOUND_AT.get()) {
        let mut current: Handle = ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe { driver::cuCtxGetCurrent(&raw mut current) }?;
        if !current.is_null() {
            BOUND_AT.set(resets);
            return Ok(());
        }
    }
    make_current(DEVICE.get())
}

/// Chooses a device for this thread and makes its primary context current.
pub(crate) fn choose(device: c_int) -> Result<(), Code> {
    ready()?;
    make_current(device)?;
    DEVICE.set(device);
    Ok(())
}

/// The device of the context that is current on this thread.
pub(crate) fn current_device() -> Result<c_int, Code> {
    bind()?;
    let mut device = 0;
    // SAFETY: the output is ours.
    unsafe { driver::cuCtxGetDevice(&raw mut device) }?;
    Ok(device)
}

/// Destroys the primary context of the chosen device with all it holds. The next call makes another.
pub(crate) fn reset() -> Result<(), Code> {
    ready()?;
    let device = DEVICE.get();
    let mut retained = RETAINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    registry::forget_device(device);
    retained.retain(|&(ordinal, _)| ordinal != device);
    RESETS.fetch_add(1, Ordering::AcqRel);
    // SAFETY: no pointer is passed.
    unsafe { driver::cuDevicePrimaryCtxReset(device) }?;
    // SAFETY: a null context unbinds the thread from the destroyed one.
    unsafe { driver::cuCtxSetCurrent(ptr::null_mut()) }?;
    error::forget();
    Ok(())
}

/// The primary context of a device, retained once.
pub(crate) fn primary(device: c_int) -> Result<Handle, Code> {
    let mut retained = RETAINED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let known = retained.iter().find(|&&(ordinal, _)| ordinal == device);
    if let Some(&(_, context)) = known {
        return Ok(ptr::with_exposed_provenance_mut(context));
    }
    let mut context: Handle = ptr::null_mut();
    // SAFETY: the output is ours; the driver refuses an ordinal it does not have.
    unsafe { driver::cuDevicePrimaryCtxRetain(&raw mut context, device) }?;
    retained.push((device, context.expose_provenance()));
    Ok(context)
}

fn make_current(device: c_int) -> Result<(), Code> {
    let context = primary(device)?;
    let resets = RESETS.load(Ordering::Acquire);
    // SAFETY: the context was retained above or earlier and is released only by `reset`.
    unsafe { driver::cuCtxSetCurrent(context) }?;
    BOUND_AT.set(resets);
    Ok(())
}
