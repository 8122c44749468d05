//! Arrays, sized by their elements: what the driver adds for tiling is part of the unaccounted bytes.

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{Array3dDescriptor, ArrayDescriptor, Opaque, Status};
use crate::gate;
use crate::ledger::{Grant, Key};

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
        let handle = unsafe { written(array) }?;
        Some(Grant {
            key: Key::array(handle as u64),
            class: Class::Array,
            bytes: bytes()?,
        })
    };
    gate::allocate(real, || bytes().unwrap_or(0), granted)
}

hooks! {
    /// An array of one or two dimensions.
    fn cuArrayCreate_v2 = (c"cuArrayCreate", 3020, Legacy),
        (array: *mut Opaque, descriptor: *const ArrayDescriptor) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// An array of up to three dimensions, layered, or sparse.
    fn cuArray3DCreate_v2 = (c"cuArray3DCreate", 3020, Legacy),
        (array: *mut Opaque, descriptor: *const Array3dDescriptor) => |real|
        // SAFETY: both pointers are the program's, looked at after the driver has accepted them.
        unsafe { allocate(real, array, descriptor, |descriptor| descriptor.bytes()) };

    /// Frees an array.
    fn cuArrayDestroy = (c"cuArrayDestroy", 2000, Legacy), (array: Opaque) => |real|
        gate::free(Key::array(array as u64), real);
}
