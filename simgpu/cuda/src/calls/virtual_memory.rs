//! Virtual memory management.

use std::ffi::{c_int, c_ulonglong};

use crate::abi::{
    AccessDescription, AllocationProperties, LOCATION_DEVICE, LOCATION_HOST, LOCATION_HOST_NUMA_CURRENT,
    Location,
};
use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::gate::{Host, In, Out, entries};
use crate::handle::Handle;
use crate::process::Process;
use crate::shareable::Shareable;
use crate::state::State;
use crate::virtual_memory::{Freed, GRANULARITY, VirtualMemory};

use super::pool::PINNED;

entries! {
    fn cuMemGetAllocationGranularity(bytes: Out<u64>, properties: In<AllocationProperties>, option: c_int) {
        let process = Process::get()?;
        device_of(process, properties.get()?)?;
        if !matches!(option, 0 | 1) {
            return Err(Code::INVALID_VALUE);
        }
        bytes.put(GRANULARITY)
    }

    fn cuMemAddressReserve(address: Out<u64>, bytes: u64, align: u64, wish: u64, flags: c_ulonglong) {
        let process = Process::get()?;
        VirtualMemory::<AllocationProperties>::check_bytes(bytes)?;
        if flags != 0 || address.is_null() || !(align == 0 || align.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let found = state.memory.reserve(bytes, align.max(GRANULARITY), wish).ok_or(Code::OUT_OF_MEMORY)?;
        state.memory.virtual_memory.reserve(found, bytes);
        address.put(found)
    }

    fn cuMemAddressFree(address: u64, bytes: u64) {
        let process = Process::get()?;
        let mut state = process.state();
        state.memory.virtual_memory.unreserve(address, bytes)?;
        state.memory.unreserve(address, bytes);
        Ok(())
    }

    fn cuMemCreate(handle: Out<Handle>, bytes: u64, properties: In<AllocationProperties>, flags: c_ulonglong) {
        let process = Process::get()?;
        let properties = properties.get()?;
        let device = device_of(process, properties)?;
        VirtualMemory::<AllocationProperties>::check_bytes(bytes)?;
        if flags != 0 || handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        check_handle_types(properties.handle_types)?;
        let mut state = process.state();
        if let Some(device) = device {
            let (slice, _) = state.attach(process, device)?;
            if slice.0.charge(bytes).is_err() {
                state.detach_if_unused(device);
                return Err(Code::OUT_OF_MEMORY);
            }
        }
        let found = state.handles.next();
        state.memory.virtual_memory.create(found, bytes, device, properties);
        handle.put(found)
    }

    /// A file descriptor that names the memory; the program closes it.
    fn cuMemExportToShareableHandle(
        shareable: Out<c_int>, handle: Handle, kind: c_int, flags: c_ulonglong,
    ) {
        let process = Process::get()?;
        let mut state = process.state();
        let physical = state.memory.virtual_memory.physical(handle)?;
        let (bytes, properties) = (physical.bytes, physical.properties);
        let device = physical.device.ok_or(Code::NOT_SUPPORTED)?;
        if shareable.is_null() || flags != 0 || kind & properties.handle_types == 0 || kind != DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        let segment = match physical.segment {
            Some(segment) => segment,
            None => {
                let segment = state.share(device, bytes)?;
                state.memory.virtual_memory.set_segment(handle, segment);
                segment
            }
        };
        let exported = Shareable { segment, bytes, handle_types: properties.handle_types };
        shareable.put(exported.export()?)
    }

    /// The descriptor comes as if it were an address, and stays the program's. The device is the one, of those that
    /// this process sees, that the memory is on.
    fn cuMemImportFromShareableHandle(handle: Out<Handle>, shareable: u64, kind: c_int) {
        let process = Process::get()?;
        if handle.is_null() || kind != DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = c_int::try_from(shareable).map_err(|_| Code::INVALID_VALUE)?;
        let shared = Shareable::import(descriptor)?;
        let mut state = process.state();
        for device in 0..process.devices.len() {
            if state.attach(process, device).is_err() {
                continue;
            }
            if state.use_segment(device, shared.segment).is_err() {
                state.detach_if_unused(device);
                continue;
            }
            let id = c_int::try_from(device).unwrap_or(c_int::MAX);
            let properties = AllocationProperties {
                kind: PINNED,
                handle_types: shared.handle_types,
                location: Location { kind: LOCATION_DEVICE, id },
                win32: 0,
                flags: [0; 8],
            };
            let found = state.handles.next();
            let memory = &mut state.memory.virtual_memory;
            memory.open(found, shared.bytes, device, properties, shared.segment);
            return handle.put(found);
        }
        Err(Code::INVALID_VALUE)
    }

    fn cuMemRelease(handle: Handle) {
        let process = Process::get()?;
        let mut state = process.state();
        let freed = state.memory.virtual_memory.release(handle)?;
        give(&mut state, freed);
        Ok(())
    }

    fn cuMemRetainAllocationHandle(handle: Out<Handle>, address: Host) {
        let process = Process::get()?;
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = process.state().memory.virtual_memory.retain(address.address())?;
        handle.put(found)
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: Handle) {
        let process = Process::get()?;
        let found = process.state().memory.virtual_memory.physical(handle)?.properties;
        properties.put(found)
    }

    fn cuMemMap(address: u64, bytes: u64, offset: u64, handle: Handle, flags: c_ulonglong) {
        let process = Process::get()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        process.state().memory.virtual_memory.map(address, bytes, offset, handle)
    }

    /// Work that may still use the mapping is waited for.
    fn cuMemUnmap(address: u64, bytes: u64) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let contexts: Vec<_> = process.state().contexts.keys().copied().collect();
        contexts.into_iter().for_each(|context| super::context::synchronize(process, context));
        let mut state = process.state();
        let freed = state.memory.virtual_memory.unmap(address, bytes)?;
        give(&mut state, freed);
        Ok(())
    }

    fn cuMemSetAccess(address: u64, bytes: u64, descriptions: In<AccessDescription>, count: usize) {
        let process = Process::get()?;
        let mut access = 0;
        for index in 0..count {
            let description = descriptions.at(index)?;
            if !matches!(description.flags, 0 | 1 | 3) {
                return Err(Code::INVALID_VALUE);
            }
            if description.location.kind == LOCATION_DEVICE {
                process.device(description.location.id)?;
                access |= description.flags;
            }
        }
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        process.state().memory.virtual_memory.set_access(address, bytes, access)
    }

    fn cuMemGetAccess(flags: Out<c_ulonglong>, location: In<Location>, address: u64) {
        let process = Process::get()?;
        let location = location.get()?;
        if location.kind == LOCATION_DEVICE {
            process.device(location.id)?;
        }
        let access = process.state().memory.virtual_memory.access(address)?;
        flags.put(c_ulonglong::from(access.unsigned_abs()))
    }
}

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`
const DESCRIPTOR: c_int = 1;

/// Ways of export that are known: descriptors. Those of Windows and of a fabric are not supported, as the device
/// attributes say.
fn check_handle_types(kinds: c_int) -> Answer {
    match kinds {
        0 | DESCRIPTOR => Ok(()),
        _ if kinds & !0xf == 0 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// The device that physical memory is to be on; `None` for host memory.
fn device_of(process: &Process, properties: AllocationProperties) -> Answer<Option<usize>> {
    if properties.kind != PINNED {
        return Err(Code::INVALID_VALUE);
    }
    match properties.location.kind {
        LOCATION_DEVICE => Ok(Some(process.device(properties.location.id)?.0)),
        LOCATION_HOST..=LOCATION_HOST_NUMA_CURRENT => Ok(None),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Gives the slices the memory back that nobody holds any more.
fn give(state: &mut State, freed: impl IntoIterator<Item = Freed>) {
    for Freed {
        device,
        bytes,
        segment,
    } in freed
    {
        match segment {
            Some(segment) => state.leave_segment(segment),
            None => state.release(device, bytes),
        }
        state.detach_if_unused(device);
    }
}
