//! Memory pools by name: create, destroy, settings.

use std::ffi::c_int;

use crate::abi::{AccessDescription, LOCATION_DEVICE, Location, PoolProperties};
use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::pools::{Pool, Value, is_wide};
use crate::process::Process;

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
pub(crate) const PINNED: c_int = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_WRITE: c_int = 3;

entries! {
    /// Pools that other processes could import, and pools of host memory, are not modelled: the device attributes say
    /// so, and asking for them is refused.
    fn cuMemPoolCreate(pool: Out<Handle>, properties: In<PoolProperties>) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let properties = properties.get()?;
        if pool.is_null() || properties.kind != PINNED {
            return Err(Code::INVALID_VALUE);
        }
        if properties.handle_types != 0 || properties.location.kind != LOCATION_DEVICE {
            return Err(Code::NOT_SUPPORTED);
        }
        let (device, _) = process.device(properties.location.id)?;
        let mut state = process.state();
        let handle = state.handles.next();
        state.pools.add(handle, Pool::new(device, false, properties.max_bytes));
        pool.put(handle)
    }

    fn cuMemPoolDestroy(pool: Handle) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let mut state = process.state();
        let device = state.pools.get(pool)?.device;
        let released = state.pools.destroy(pool)?;
        state.give_chunks(device, released);
        Ok(())
    }

    /// Frees that are on their way count as not done: a trim does not wait for the streams.
    fn cuMemPoolTrimTo(pool: Handle, keep: u64) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        drop(process.player.now());
        let mut state = process.state();
        let device = state.pools.get(pool)?.device;
        let released = state.pools.trim(pool, keep)?;
        state.give_chunks(device, released);
        Ok(())
    }

    fn cuMemPoolGetAttribute(pool: Handle, attribute: c_int, value: Out<u8>) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        drop(process.player.now());
        let found = process.state().pools.attribute(pool, attribute)?;
        match found {
            Value::Flag(flag) => value.cast::<c_int>().put(flag),
            Value::Bytes(bytes) => value.cast::<u64>().put(bytes),
        }
    }

    fn cuMemPoolSetAttribute(pool: Handle, attribute: c_int, value: In<u8>) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let value = if is_wide(attribute)? {
            Value::Bytes(value.cast::<u64>().get()?)
        } else {
            Value::Flag(value.cast::<c_int>().get()?)
        };
        process.state().pools.set_attribute(pool, attribute, value)
    }

    /// The pool's own device always reaches it, and no device here reaches another's memory.
    fn cuMemPoolSetAccess(pool: Handle, access: In<AccessDescription>, count: usize) {
        let process = Process::get()?;
        let owner = process.state().pools.get(pool)?.device;
        for index in 0..count {
            let wanted = access.at(index)?;
            if wanted.location.kind != LOCATION_DEVICE || !matches!(wanted.flags, 0 | 1 | READ_WRITE) {
                return Err(Code::INVALID_VALUE);
            }
            let (device, _) = process.device(wanted.location.id)?;
            let is_kept = if device == owner { wanted.flags == READ_WRITE } else { wanted.flags == 0 };
            if !is_kept {
                return Err(Code::INVALID_DEVICE);
            }
        }
        Ok(())
    }

    fn cuMemPoolGetAccess(flags: Out<c_int>, pool: Handle, location: In<Location>) {
        let process = Process::get()?;
        let location = location.get()?;
        if location.kind != LOCATION_DEVICE {
            return Err(Code::INVALID_VALUE);
        }
        let (device, _) = process.device(location.id)?;
        let owner = process.state().pools.get(pool)?.device;
        flags.put(if device == owner { READ_WRITE } else { 0 })
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: c_int) { own_pool(pool, device) }
    fn cuDeviceGetMemPool(pool: Out<Handle>, device: c_int) { current_pool(pool, device) }
    fn cuDeviceSetMemPool(device: c_int, pool: Handle) { set_pool(device, pool) }

    fn cuMemGetDefaultMemPool(pool: Out<Handle>, location: In<Location>, kind: c_int) {
        own_pool(pool, ordinal_of(location, kind)?)
    }
    fn cuMemGetMemPool(pool: Out<Handle>, location: In<Location>, kind: c_int) {
        current_pool(pool, ordinal_of(location, kind)?)
    }
    fn cuMemSetMemPool(location: In<Location>, kind: c_int, pool: Handle) {
        set_pool(ordinal_of(location, kind)?, pool)
    }
}

fn own_pool(pool: Out<Handle>, device: c_int) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    let found = process.state().pools.default_of(index)?;
    pool.put(found)
}

fn current_pool(pool: Out<Handle>, device: c_int) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    let found = process.state().pools.current_of(index)?;
    pool.put(found)
}

fn set_pool(device: c_int, pool: Handle) -> Answer {
    let process = Process::get()?;
    let (index, _) = process.device(device)?;
    process.state().pools.set_current(index, pool)
}

/// The device that a location names; pools elsewhere, and of managed memory, are not modelled.
fn ordinal_of(location: In<Location>, kind: c_int) -> Answer<c_int> {
    let location = location.get()?;
    if location.kind == LOCATION_DEVICE && kind == PINNED {
        Ok(location.id)
    } else {
        Err(Code::NOT_SUPPORTED)
    }
}
