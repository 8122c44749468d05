//! Stream-ordered memory. Sizes are kept per address: a pool's own high-water mark says nothing of frees, and
//! asking the pool inside a stream capture would end the capture.

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{DevicePointer, Opaque, Status};
use crate::gate;
use crate::ledger::{Grant, Key};

#[inline]
fn allocate(real: impl FnOnce() -> Status, pointer: *const DevicePointer, bytes: usize) -> Status {
    let bytes = bytes as u64;
    let granted = || {
        // SAFETY: read after the driver has written it.
        let address = unsafe { written(pointer) }?;
        Some(Grant {
            key: Key::address(address),
            class: Class::Pool,
            bytes,
        })
    };
    gate::allocate(real, || bytes, granted)
}

hooks! {
    /// Memory of the stream's device's current pool.
    fn cuMemAllocAsync = (c"cuMemAllocAsync", 11020, Legacy),
        (pointer: *mut DevicePointer, bytes: usize, stream: Opaque) => |real| allocate(real, pointer, bytes);

    /// The same on the per-thread default stream.
    fn cuMemAllocAsync_ptsz = (c"cuMemAllocAsync", 11020, PerThread),
        (pointer: *mut DevicePointer, bytes: usize, stream: Opaque) => |real| allocate(real, pointer, bytes);

    /// Memory of a given pool.
    fn cuMemAllocFromPoolAsync = (c"cuMemAllocFromPoolAsync", 11020, Legacy),
        (pointer: *mut DevicePointer, bytes: usize, pool: Opaque, stream: Opaque) => |real|
        allocate(real, pointer, bytes);

    /// The same on the per-thread default stream.
    fn cuMemAllocFromPoolAsync_ptsz = (c"cuMemAllocFromPoolAsync", 11020, PerThread),
        (pointer: *mut DevicePointer, bytes: usize, pool: Opaque, stream: Opaque) => |real|
        allocate(real, pointer, bytes);

    /// Frees memory in stream order, whichever call it came from.
    fn cuMemFreeAsync = (c"cuMemFreeAsync", 11020, Legacy), (pointer: DevicePointer, stream: Opaque) => |real|
        gate::free(Key::address(pointer), real);

    /// The same on the per-thread default stream.
    fn cuMemFreeAsync_ptsz = (c"cuMemFreeAsync", 11020, PerThread), (pointer: DevicePointer, stream: Opaque) => |real|
        gate::free(Key::address(pointer), real);
}
