//! Primary contexts: one a device, shared by all libraries of a process.

use std::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::gate::{Out, entries};
use crate::handle::Handle;
use crate::process::Process;

/// `CU_CTX_FLAGS_MASK`
pub(crate) const FLAGS_MASK: c_uint = 0xff;

entries! {
    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) {
        let process = Process::get()?;
        let (index, _) = process.device(device)?;
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        context.put(retain(process, index)?)
    }

    fn cuDevicePrimaryCtxRelease(device: c_int) { release(device) }
    fn cuDevicePrimaryCtxRelease_v2(device: c_int) { release(device) }
    fn cuDevicePrimaryCtxReset(device: c_int) { reset(device) }
    fn cuDevicePrimaryCtxReset_v2(device: c_int) { reset(device) }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let process = Process::get()?;
        let (index, _) = process.device(device)?;
        let mut state = process.state();
        let primary = state.primary(index)?;
        flags.put(primary.flags)?;
        active.put(c_int::from(primary.is_active))
    }

    fn cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint) { set_flags(device, flags) }
    fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) { set_flags(device, flags) }
}

/// One thread makes a primary context at a time, so that two first callers get the same.
pub(crate) fn retain(process: &'static Process, index: usize) -> Answer<Handle> {
    static MAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut state = process.state();
    let fresh = state.handles.next();
    let primary = state.primary(index)?;
    let handle = *primary.handle.get_or_insert(fresh);
    if primary.is_active {
        primary.retained += 1;
        return Ok(handle);
    }
    let flags = primary.flags;
    drop(state);
    process.create_context(index, flags, Some(handle))?;
    let mut state = process.state();
    let primary = state.primary(index)?;
    primary.is_active = true;
    primary.retained = 1;
    Ok(handle)
}

pub(crate) fn release(device: c_int) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    let mut state = process.state();
    let primary = state.primary(index)?;
    let handle = primary
        .handle
        .filter(|_| primary.is_active)
        .ok_or(Code::INVALID_CONTEXT)?;
    primary.retained = primary.retained.saturating_sub(1);
    if primary.retained > 0 {
        return Ok(());
    }
    primary.is_active = false;
    drop(state);
    process.destroy_context(handle)
}

/// Takes the context down whoever holds it; the holders' releases are then refused.
fn reset(device: c_int) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    let mut state = process.state();
    let primary = state.primary(index)?;
    primary.flags = 0;
    primary.retained = 0;
    let taken = primary.handle.filter(|_| primary.is_active);
    primary.is_active = false;
    drop(state);
    taken.map_or(Ok(()), |handle| process.destroy_context(handle))
}

fn set_flags(device: c_int, flags: c_uint) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    if flags & !FLAGS_MASK != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let primary = state.primary(index)?;
    primary.flags = flags;
    let active = primary.handle.filter(|_| primary.is_active);
    if let Some(handle) = active {
        state.context_mut(handle)?.flags = flags;
    }
    Ok(())
}
