//! Virtual memory management; what its calls mean for the bytes is told in [`crate::ledger::vmm`].

use std::ffi::{c_ulonglong, c_void};

use super::{hooks, written};
use crate::abi::{AllocationProp, DevicePointer, Handle, Location, OUT_OF_MEMORY, Status};
use crate::gate;
use crate::ledger::vmm;

/// # Safety
/// `prop` is what the driver has just accepted, or null.
unsafe fn location(prop: *const AllocationProp) -> Option<Location> {
    // SAFETY: as the caller says.
    unsafe { written(prop) }.map(|prop| prop.location)
}

/// # Safety
/// `handle` and `prop` are those of a `cuMemCreate` that has returned `status`.
unsafe fn created(
    status: Status,
    handle: *const Handle,
    bytes: u64,
    prop: *const AllocationProp,
) -> Option<()> {
    // SAFETY: as the caller says.
    let location = unsafe { location(prop) }?;
    if status == OUT_OF_MEMORY {
        vmm::refused(location, bytes);
        return None;
    }
    // SAFETY: as the caller says.
    vmm::created(unsafe { written(handle) }?, location, bytes);
    Some(())
}

hooks! {
    /// Physical memory: needs no context, `prop` says where it is.
    fn cuMemCreate = (c"cuMemCreate", 10020, Legacy),
        (handle: *mut Handle, bytes: usize, prop: *const AllocationProp, flags: c_ulonglong) => |real|
        // SAFETY: looked at after the driver has answered, and only on success or out of memory.
        gate::answered(real, |status| unsafe { created(status, handle, bytes as u64, prop) });

    /// Drops the handle's reference.
    fn cuMemRelease = (c"cuMemRelease", 10020, Legacy), (handle: Handle) => |real|
        gate::around(|| vmm::release(handle), real, drop, vmm::put_back);

    /// Maps physical memory, which holds it.
    fn cuMemMap = (c"cuMemMap", 10020, Legacy),
        (pointer: DevicePointer, bytes: usize, offset: usize, handle: Handle, flags: c_ulonglong) => |real|
        gate::after(real, || vmm::map(pointer, bytes as u64, offset as u64, handle));

    /// Unmaps one or more whole mappings.
    fn cuMemUnmap = (c"cuMemUnmap", 10020, Legacy), (pointer: DevicePointer, bytes: usize) => |real|
        gate::around(|| Some(vmm::unmap(pointer, bytes as u64)), real, vmm::finish, vmm::remap);

    /// One more reference to the memory behind an address.
    fn cuMemRetainAllocationHandle = (c"cuMemRetainAllocationHandle", 11000, Legacy),
        (handle: *mut Handle, address: *mut c_void) => |real|
        // SAFETY: read after the driver has written it.
        gate::after(real, || unsafe { written(handle) }.map(vmm::retain));
}
