//! Arrays, sized by their elements: what the driver adds for tiling is part of the unaccounted bytes.

use std::ffi::c_uint;

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{
    Array3dDescriptor, Array3dDescriptorV1, ArrayDescriptor, ArrayDescriptorV1, Opaque, Status,
};
use crate::gate;
use crate::ledger::{Grant, Key, contexts};

/// # Safety
/// `descriptor` is that of a call the driver has answered with success or out of memory.
unsafe fn allocate<D: Copy>(
    real: impl FnOnce() -> Status,
    array: *const Opaque,
    descriptor: *const D,
    size: impl Fn(D) -> Option<u64>,
) -> Status {
    // SAFETY: the driver has read the descriptor without complaint.
    let bytes = || unsafe { written(descriptor) }.and_then(&size);
    let granted = || {
        // SAFETY: read after the driver has written it.
        let key = Key::object(unsafe { written(array) }? as u64);
        let bytes = bytes()?;
        contexts::note_object(key);
        Some(Grant {
            key,
            class: Class::Array,
            bytes,
        })
    };
    gate::allocate(real, || bytes().unwrap_or(0), granted)
}

fn destroy(real: impl FnOnce() -> Status, array: Opaque) -> Status {
    let key = Key::object(array as u64);
    gate::around(
        || Some(contexts::take_object(key)),
        real,
        drop,
        contexts::put_object_back,
    )
}

hooks! {
    /// An array of one or two dimensions, with 32-bit sizes.
    fn cuArrayCreate = (c"cuArrayCreate", 2000, Legacy),
        (array: *mut Opaque, descriptor: *const ArrayDescriptorV1) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// An array of one or two dimensions.
    fn cuArrayCreate_v2 = (c"cuArrayCreate", 3020, Legacy),
        (array: *mut Opaque, descriptor: *const ArrayDescriptor) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// An array of up to three dimensions, with 32-bit sizes.
    fn cuArray3DCreate = (c"cuArray3DCreate", 2000, Legacy),
        (array: *mut Opaque, descriptor: *const Array3dDescriptorV1) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// An array of up to three dimensions, layered, or sparse.
    fn cuArray3DCreate_v2 = (c"cuArray3DCreate", 3020, Legacy),
        (array: *mut Opaque, descriptor: *const Array3dDescriptor) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// Frees an array. One that is a level of a mipmapped array is that one's memory.
    fn cuArrayDestroy = (c"cuArrayDestroy", 2000, Legacy), (array: Opaque) => |real| destroy(real, array);

    /// An array with smaller and smaller copies of itself.
    fn cuMipmappedArrayCreate = (c"cuMipmappedArrayCreate", 5000, Legacy),
        (array: *mut Opaque, descriptor: *const Array3dDescriptor, levels: c_uint) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.mipmapped_bytes(levels)) };

    /// Frees a mipmapped array.
    fn cuMipmappedArrayDestroy = (c"cuMipmappedArrayDestroy", 5000, Legacy), (array: Opaque) => |real|
        destroy(real, array);
}
