//! Memory of another process or another library, opened here: reported apart, and no part of the bytes that
//! this job holds, because its owner is charged with it.
//!
//! The calls name no size; the driver is asked for the range behind the address that it has just handed out.
//! Multicast objects are not here: they hold no memory of their own.

use std::ffi::{c_int, c_uint, c_void};

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{DevicePointer, ExternalMemoryDescriptor, Handle, IpcHandle, Opaque, SUCCESS, Status};
use crate::driver::Real;
use crate::gate;
use crate::ledger::{Grant, Key, contexts, vmm};

type Range = unsafe extern "C-unwind" fn(*mut DevicePointer, *mut usize, DevicePointer) -> Status;
// SAFETY: `cuda.h` declares the function with this type.
static RANGE: Real<Range> = unsafe { Real::new(c"cuMemGetAddressRange_v2") };

/// The length of the allocation that an address belongs to; 0 when the driver does not tell.
fn range(address: DevicePointer) -> u64 {
    let (mut base, mut bytes) = (0, 0);
    let asked = RANGE.get().is_some_and(|ask| {
        // SAFETY: both are places to write to; any address may be asked for.
        unsafe { ask(&raw mut base, &raw mut bytes, address) == SUCCESS }
    });
    if asked { bytes as u64 } else { 0 }
}

fn open(real: impl FnOnce() -> Status, pointer: *const DevicePointer) -> Status {
    let granted = || {
        // SAFETY: read after the driver has written it.
        let address = unsafe { written(pointer) }?;
        Some(Grant {
            key: Key::address(address),
            class: Class::Imported,
            bytes: range(address),
        })
    };
    gate::allocate_apart(real, granted)
}

hooks! {
    /// Opens another process's allocation.
    fn cuIpcOpenMemHandle = (c"cuIpcOpenMemHandle", 4010, Legacy),
        (pointer: *mut DevicePointer, handle: IpcHandle, flags: c_uint) => |real| open(real, pointer);

    /// The same since 11.0.
    fn cuIpcOpenMemHandle_v2 = (c"cuIpcOpenMemHandle", 11000, Legacy),
        (pointer: *mut DevicePointer, handle: IpcHandle, flags: c_uint) => |real| open(real, pointer);

    /// Closes it.
    fn cuIpcCloseMemHandle = (c"cuIpcCloseMemHandle", 4010, Legacy), (pointer: DevicePointer) => |real|
        gate::free(Key::address(pointer), real);

    /// Opens an allocation of another process's pool.
    fn cuMemPoolImportPointer = (c"cuMemPoolImportPointer", 11020, Legacy),
        (pointer: *mut DevicePointer, pool: Opaque, exported: *mut c_void) => |real| open(real, pointer);

    /// Physical memory of another process: its size is known once it is mapped.
    fn cuMemImportFromShareableHandle = (c"cuMemImportFromShareableHandle", 10020, Legacy),
        (handle: *mut Handle, shared: *mut c_void, kind: c_int) => |real|
        // SAFETY: read after the driver has written it.
        gate::after(real, || unsafe { written(handle) }.map(vmm::imported));

    /// Memory of another library, such as Vulkan. Buffers and arrays in it are no memory of their own.
    fn cuImportExternalMemory = (c"cuImportExternalMemory", 10000, Legacy),
        (memory: *mut Opaque, descriptor: *const ExternalMemoryDescriptor) => |real|
        gate::allocate_apart(real, || {
            // SAFETY: read after the driver has written it.
            let key = Key::object(unsafe { written(memory) }? as u64);
            // SAFETY: the driver has read the descriptor without complaint.
            let bytes = unsafe { written(descriptor) }?.size;
            contexts::note_object(key);
            Some(Grant { key, class: Class::Imported, bytes })
        });

    /// Gives it back.
    fn cuDestroyExternalMemory = (c"cuDestroyExternalMemory", 10000, Legacy), (memory: Opaque) => |real|
        gate::around(|| Some(contexts::take_object(Key::object(memory as u64))), real, drop, contexts::put_object_back);
}
