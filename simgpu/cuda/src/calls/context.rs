//! Contexts: create, destroy, which is current, their settings.

use std::ffi::{c_int, c_uint};

use crate::code::{Answer, Code};
use crate::contexts::{current, current_or_null, with_stack};
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::process::Process;

use super::primary::FLAGS_MASK;

/// What the driver gives each limit before a program sets it, bytes or counts; `CU_LIMIT_*` by number.
const LIMITS: [usize; 8] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0];

entries! {
    fn cuCtxCreate(context: Out<Handle>, flags: c_uint, device: c_int) { create(context, flags, device) }
    fn cuCtxCreate_v2(context: Out<Handle>, flags: c_uint, device: c_int) { create(context, flags, device) }

    /// With execution affinity: a part of the multiprocessors, which MPS alone supports.
    fn cuCtxCreate_v3(
        context: Out<Handle>, affinity: In<u64>, affinities: c_int, flags: c_uint, device: c_int,
    ) {
        if !affinity.is_null() && affinities > 0 {
            return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, device)
    }

    /// `CUctxCreateParams`: affinity pointer and count, then a pointer for compute in graphics.
    fn cuCtxCreate_v4(context: Out<Handle>, parameters: In<[u64; 3]>, flags: c_uint, device: c_int) {
        if let Ok([affinity, _, graphics]) = parameters.get()
            && (affinity != 0 || graphics != 0)
        {
            return Err(Code::UNSUPPORTED_EXEC_AFFINITY);
        }
        create(context, flags, device)
    }

    fn cuCtxDestroy(context: Handle) { destroy(context) }
    fn cuCtxDestroy_v2(context: Handle) { destroy(context) }
    fn cuCtxPushCurrent(context: Handle) { push(context) }
    fn cuCtxPushCurrent_v2(context: Handle) { push(context) }
    fn cuCtxPopCurrent(context: Out<Handle>) { pop(context) }
    fn cuCtxPopCurrent_v2(context: Out<Handle>) { pop(context) }

    fn cuCtxSetCurrent(context: Handle) {
        let process = Process::get()?;
        if context != 0 {
            process.state().context(context)?;
        }
        with_stack(|stack| {
            stack.pop();
            if context != 0 {
                stack.push(context);
            }
        })
    }

    fn cuCtxGetCurrent(context: Out<Handle>) {
        Process::get()?;
        context.put(current_or_null())
    }

    fn cuCtxGetDevice(device: Out<c_int>) {
        let (process, handle) = current()?;
        device.put(ordinal(process, handle)?)
    }

    fn cuCtxGetDevice_v2(device: Out<c_int>, context: Handle) {
        let (process, handle) = given_or_current(context)?;
        device.put(ordinal(process, handle)?)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        let (process, handle) = current()?;
        let found = process.state().context(handle)?.flags;
        flags.put(found)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        let (process, handle) = current()?;
        if flags & !FLAGS_MASK != 0 {
            return Err(Code::INVALID_VALUE);
        }
        process.state().context_mut(handle)?.flags = flags;
        Ok(())
    }

    fn cuCtxGetId(context: Handle, id: Out<u64>) {
        let (_, handle) = given_or_current(context)?;
        id.put(handle)
    }

    fn cuCtxGetApiVersion(context: Handle, version: Out<c_uint>) {
        given_or_current(context)?;
        version.put(3020)
    }

    fn cuCtxSynchronize() {
        let (process, handle) = current()?;
        process.state().captures.refuse_context(handle)?;
        synchronize(process, handle);
        Ok(())
    }

    fn cuCtxSynchronize_v2(context: Handle) {
        let (process, handle) = given_or_current(context)?;
        process.state().captures.refuse_context(handle)?;
        synchronize(process, handle);
        Ok(())
    }

    fn cuCtxGetLimit(value: Out<usize>, limit: c_int) {
        let (process, handle) = current()?;
        let otherwise = default_limit(limit)?;
        let found = process.state().context(handle)?.limits.get(&limit).copied();
        value.put(found.unwrap_or(otherwise))
    }

    fn cuCtxSetLimit(limit: c_int, value: usize) {
        let (process, handle) = current()?;
        default_limit(limit)?;
        process.state().context_mut(handle)?.limits.insert(limit, value);
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: Out<c_int>) {
        let (process, handle) = current()?;
        let found = process.state().context(handle)?.cache_config;
        config.put(found)
    }

    fn cuCtxSetCacheConfig(config: c_int) {
        let (process, handle) = current()?;
        if !(0..=3).contains(&config) {
            return Err(Code::INVALID_VALUE);
        }
        process.state().context_mut(handle)?.cache_config = config;
        Ok(())
    }

    fn cuCtxGetSharedMemConfig(config: Out<c_int>) {
        let (process, handle) = current()?;
        let found = process.state().context(handle)?.shared_config;
        config.put(found)
    }

    fn cuCtxSetSharedMemConfig(config: c_int) {
        let (process, handle) = current()?;
        if !(0..=2).contains(&config) {
            return Err(Code::INVALID_VALUE);
        }
        process.state().context_mut(handle)?.shared_config = config;
        Ok(())
    }

    /// Streams have priorities from 0 (least) to -5; they are noted, and do not change what runs first.
    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        current()?;
        least.put_if(0);
        greatest.put_if(-5);
        Ok(())
    }

    fn cuCtxResetPersistingL2Cache() { current().map(drop) }

    fn cuCtxEnablePeerAccess(peer: Handle, _flags: c_uint) {
        let (process, _) = current()?;
        process.state().context(peer)?;
        Err(Code::PEER_ACCESS_UNSUPPORTED)
    }

    fn cuCtxDisablePeerAccess(peer: Handle) {
        let (process, _) = current()?;
        process.state().context(peer)?;
        Err(Code::PEER_ACCESS_NOT_ENABLED)
    }

    /// The oldest pair of calls that count users of a context.
    fn cuCtxAttach(context: Out<Handle>, flags: c_uint) {
        let (_, handle) = current()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        context.put(handle)
    }

    fn cuCtxDetach(context: Handle) {
        Process::get()?.state().context(context).map(drop)
    }
}

fn create(context: Out<Handle>, flags: c_uint, device: c_int) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    if context.is_null() || flags & !FLAGS_MASK != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let handle = process.create_context(index, flags, None)?;
    with_stack(|stack| stack.push(handle))?;
    context.put(handle)
}

fn destroy(context: Handle) -> Answer {
    let process = Process::get()?;
    if process.state().context(context)?.primary {
        // Only its own release takes it down.
        return Err(Code::INVALID_CONTEXT);
    }
    with_stack(|stack| {
        if stack.last() == Some(&context) {
            stack.pop();
        }
    })?;
    process.destroy_context(context)
}

fn push(context: Handle) -> Answer {
    Process::get()?.state().context(context)?;
    with_stack(|stack| stack.push(context))
}

fn pop(context: Out<Handle>) -> Answer {
    Process::get()?;
    let popped = with_stack(Vec::pop)?.ok_or(Code::INVALID_CONTEXT)?;
    context.put_if(popped);
    Ok(())
}

fn given_or_current(context: Handle) -> Answer<(&'static Process, Handle)> {
    if context == 0 {
        return current();
    }
    let process = Process::get()?;
    process.state().context(context)?;
    Ok((process, context))
}

fn ordinal(process: &Process, context: Handle) -> Answer<c_int> {
    let device = process.state().context(context)?.device;
    Ok(c_int::try_from(device).unwrap_or(c_int::MAX))
}

pub(crate) fn synchronize(process: &Process, context: Handle) {
    let last = process.player.timeline().last_of_context(context);
    process.player.wait(&last);
    process.release_pools(context);
}

fn default_limit(limit: c_int) -> Answer<usize> {
    let index = usize::try_from(limit).map_err(|_| Code::INVALID_VALUE)?;
    LIMITS.get(index).copied().ok_or(if index < 10 {
        Code::UNSUPPORTED_LIMIT
    } else {
        Code::INVALID_VALUE
    })
}
