//! Memory at an address: `cuMemAlloc` and its kin, and `cuMemFree`.

use std::ffi::c_uint;

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{DevicePointer, DevicePointerV1, Status};
use crate::ledger::{Grant, Key};
use crate::{cap, gate};

/// # Safety
/// `pointer` is where the driver has just written the address.
#[inline]
unsafe fn grant<P: Copy + Into<u64>>(pointer: *const P, class: Class, bytes: u64) -> Option<Grant> {
    // SAFETY: as the caller says.
    let address = unsafe { written(pointer) }?.into();
    Some(Grant {
        key: Key::address(address),
        class,
        bytes,
    })
}

/// # Safety
/// `pointer` and `pitch` are where the driver has just written the address and its own pitch.
unsafe fn pitched<P: Copy + Into<u64>>(pointer: *const P, pitch: Option<u64>, height: u64) -> Option<Grant> {
    // SAFETY: as the caller says.
    unsafe { grant(pointer, Class::Device, pitch?.checked_mul(height)?) }
}

/// Rows of memory: a refusal tells what was asked for, without a pitch that nobody has chosen.
fn rows(
    real: impl FnOnce() -> Status,
    width: u64,
    height: u64,
    granted: impl FnOnce() -> Option<Grant>,
) -> Status {
    let asked = || width.saturating_mul(height);
    gate::allocate_at_most(real, asked, || cap::rows(width, height), granted)
}

hooks! {
    /// Device memory, with 32-bit addresses.
    fn cuMemAlloc = (c"cuMemAlloc", 2000, Legacy), (pointer: *mut DevicePointerV1, bytes: c_uint) => |real|
        // SAFETY: read after the driver has written it.
        gate::allocate(real, || bytes.into(), || unsafe { grant(pointer, Class::Device, bytes.into()) });

    /// Device memory.
    fn cuMemAlloc_v2 = (c"cuMemAlloc", 3020, Legacy), (pointer: *mut DevicePointer, bytes: usize) => |real|
        // SAFETY: read after the driver has written it.
        gate::allocate(real, || bytes as u64, || unsafe { grant(pointer, Class::Device, bytes as u64) });

    /// Rows of device memory at the driver's pitch, with 32-bit addresses.
    fn cuMemAllocPitch = (c"cuMemAllocPitch", 2000, Legacy),
        (pointer: *mut DevicePointerV1, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint) => |real|
        rows(real, width.into(), height.into(), || {
            // SAFETY: read after the driver has written it.
            let pitch = unsafe { written(pitch) }.map(u64::from);
            // SAFETY: as above.
            unsafe { pitched(pointer, pitch, height.into()) }
        });

    /// Rows of device memory: the pitch is the driver's choice, known after the call.
    fn cuMemAllocPitch_v2 = (c"cuMemAllocPitch", 3020, Legacy),
        (pointer: *mut DevicePointer, pitch: *mut usize, width: usize, height: usize, element: c_uint) => |real|
        rows(real, width as u64, height as u64, || {
            // SAFETY: read after the driver has written it.
            let pitch = unsafe { written(pitch) }.map(|pitch| pitch as u64);
            // SAFETY: as above.
            unsafe { pitched(pointer, pitch, height as u64) }
        });

    /// Managed memory: a class of its own, as where it resides is not known.
    fn cuMemAllocManaged = (c"cuMemAllocManaged", 6000, Legacy),
        (pointer: *mut DevicePointer, bytes: usize, flags: c_uint) => |real|
        // SAFETY: read after the driver has written it.
        gate::allocate_uncapped(real, || bytes as u64, || unsafe { grant(pointer, Class::Managed, bytes as u64) });

    /// Frees what the 32-bit calls gave.
    fn cuMemFree = (c"cuMemFree", 2000, Legacy), (pointer: DevicePointerV1) => |real|
        gate::free(Key::address(pointer.into()), real);

    /// Frees device, managed and pool memory.
    fn cuMemFree_v2 = (c"cuMemFree", 3020, Legacy), (pointer: DevicePointer) => |real|
        gate::free(Key::address(pointer), real);
}
