//! Host memory that devices can reach.

use std::ffi::c_uint;

use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::gate::{Host, Out, entries};
use crate::host_memory::{HostKind, HostRegion};
use crate::process::Process;

/// `CU_MEMHOSTALLOC_PORTABLE | DEVICEMAP | WRITECOMBINED`
const ALLOCATE_FLAGS: c_uint = 7;
/// `CU_MEMHOSTREGISTER_PORTABLE | DEVICEMAP | IOMEMORY | READ_ONLY`
const REGISTER_FLAGS: c_uint = 15;

entries! {
    fn cuMemHostAlloc(place: Out<u64>, bytes: usize, flags: c_uint) { allocate(place, bytes, flags) }
    fn cuMemAllocHost(place: Out<u64>, bytes: c_uint) { allocate(place, bytes as usize, 0) }
    fn cuMemAllocHost_v2(place: Out<u64>, bytes: usize) { allocate(place, bytes, 0) }

    fn cuMemFreeHost(place: Host) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        process.state().memory.host.free(place.address(), HostKind::Pinned)
    }

    fn cuMemHostRegister(place: Host, bytes: usize, flags: c_uint) { register(place, bytes, flags) }
    fn cuMemHostRegister_v2(place: Host, bytes: usize, flags: c_uint) { register(place, bytes, flags) }

    fn cuMemHostUnregister(place: Host) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        process.state().memory.host.unregister(place.address())
    }

    /// Addresses are unified: the device sees the region where the host does.
    fn cuMemHostGetDevicePointer(address: Out<c_uint>, place: Host, flags: c_uint) {
        let found = device_address(place, flags)?;
        address.put(c_uint::try_from(found).map_err(|_| Code::INVALID_VALUE)?)
    }

    fn cuMemHostGetDevicePointer_v2(address: Out<u64>, place: Host, flags: c_uint) {
        address.put(device_address(place, flags)?)
    }

    fn cuMemHostGetFlags(flags: Out<c_uint>, place: Host) {
        let process = Process::get()?;
        let state = process.state();
        let (_, region) = state.memory.host.find(place.address()).ok_or(Code::INVALID_VALUE)?;
        if region.kind == HostKind::Managed {
            return Err(Code::INVALID_VALUE);
        }
        // Memory that the driver allocates is mapped for devices whether it was asked or not.
        flags.put(region.flags | 2)
    }
}

fn allocate(place: Out<u64>, bytes: usize, flags: c_uint) -> Answer {
    let (process, context) = current()?;
    refuse_in_capture(process)?;
    if place.is_null() || flags & !ALLOCATE_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let device = state.context(context)?.device;
    let region = HostRegion {
        bytes,
        kind: HostKind::Pinned,
        flags,
        context,
        device,
    };
    let address = state.memory.host.allocate(region)?;
    place.put(address)
}

fn register(place: Host, bytes: usize, flags: c_uint) -> Answer {
    let (process, context) = current()?;
    refuse_in_capture(process)?;
    if flags & !REGISTER_FLAGS != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let device = state.context(context)?.device;
    let region = HostRegion {
        bytes,
        kind: HostKind::Registered,
        flags,
        context,
        device,
    };
    state.memory.host.register(place.address(), region)
}

fn device_address(place: Host, flags: c_uint) -> Answer<u64> {
    let (process, _) = current()?;
    let state = process.state();
    if flags != 0 || state.memory.host.find(place.address()).is_none() {
        return Err(Code::INVALID_VALUE);
    }
    Ok(place.address())
}
