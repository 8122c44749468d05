//! Stream-ordered memory. Sizes are kept per address: a pool's own high-water mark says nothing of frees, and
//! asking the pool inside a stream capture would end the capture. During a capture an allocation becomes a
//! node of the graph and holds no memory: [`crate::ledger::graph`].
//!
//! What a pool keeps beyond its allocations is part of the unaccounted bytes; trimming changes only that.

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::{AllocationProp, DevicePointer, OUT_OF_MEMORY, Opaque, Status};
use crate::gate;
use crate::ledger::pools::{self, Pool};
use crate::ledger::{Grant, Key, graph};

/// An allocation on a stream.
#[derive(Clone, Copy)]
struct Ordered {
    pointer: *const DevicePointer,
    bytes: u64,
    stream: Opaque,
    per_thread: bool,
}

impl Ordered {
    /// What the driver has handed out, unless it is a node of a graph.
    ///
    /// # Safety
    /// The driver has answered the call with success.
    #[inline]
    unsafe fn grant(self) -> Option<Grant> {
        if graph::is_node(self.stream, self.per_thread) {
            return None;
        }
        // SAFETY: read after the driver has written it.
        let address = unsafe { written(self.pointer) }?;
        Some(Grant {
            key: Key::address(address),
            class: Class::Pool,
            bytes: self.bytes,
        })
    }
}

#[inline]
fn allocate(real: impl FnOnce() -> Status, ordered: Ordered) -> Status {
    // SAFETY: called after success.
    gate::allocate(real, || ordered.bytes, || unsafe { ordered.grant() })
}

fn allocate_from(real: impl FnOnce() -> Status, pool: Opaque, ordered: Ordered) -> Status {
    let Some(pool) = pools::find(pool) else {
        return allocate(real, ordered);
    };
    gate::answered(real, |status| {
        if status == OUT_OF_MEMORY {
            pools::refused(pool, ordered.bytes);
        // SAFETY: the other answer that gets here is success.
        } else if let Some(grant) = unsafe { ordered.grant() } {
            pools::granted(pool, grant);
        }
    })
}

hooks! {
    /// Memory of the stream's device's current pool.
    fn cuMemAllocAsync = (c"cuMemAllocAsync", 11020, Legacy),
        (pointer: *mut DevicePointer, bytes: usize, stream: Opaque) => |real|
        allocate(real, Ordered { pointer, bytes: bytes as u64, stream, per_thread: false });

    /// The same on the per-thread default stream.
    fn cuMemAllocAsync_ptsz = (c"cuMemAllocAsync", 11020, PerThread),
        (pointer: *mut DevicePointer, bytes: usize, stream: Opaque) => |real|
        allocate(real, Ordered { pointer, bytes: bytes as u64, stream, per_thread: true });

    /// Memory of a given pool.
    fn cuMemAllocFromPoolAsync = (c"cuMemAllocFromPoolAsync", 11020, Legacy),
        (pointer: *mut DevicePointer, bytes: usize, pool: Opaque, stream: Opaque) => |real|
        allocate_from(real, pool, Ordered { pointer, bytes: bytes as u64, stream, per_thread: false });

    /// The same on the per-thread default stream.
    fn cuMemAllocFromPoolAsync_ptsz = (c"cuMemAllocFromPoolAsync", 11020, PerThread),
        (pointer: *mut DevicePointer, bytes: usize, pool: Opaque, stream: Opaque) => |real|
        allocate_from(real, pool, Ordered { pointer, bytes: bytes as u64, stream, per_thread: true });

    /// Frees memory in stream order, whichever call it came from.
    fn cuMemFreeAsync = (c"cuMemFreeAsync", 11020, Legacy), (pointer: DevicePointer, stream: Opaque) => |real|
        gate::free(Key::address(pointer), real);

    /// The same on the per-thread default stream.
    fn cuMemFreeAsync_ptsz = (c"cuMemFreeAsync", 11020, PerThread), (pointer: DevicePointer, stream: Opaque) => |real|
        gate::free(Key::address(pointer), real);

    /// A pool of the program's own: on a device that need not be current, or in host memory.
    fn cuMemPoolCreate = (c"cuMemPoolCreate", 11020, Legacy),
        (pool: *mut Opaque, properties: *const AllocationProp) => |real|
        gate::after(real, || {
            // SAFETY: the driver has read the properties without complaint.
            let properties = unsafe { written(properties) }?;
            // SAFETY: read after the driver has written it.
            let pool = unsafe { written(pool) }?;
            pools::created(pool, Pool::new(properties.kind, properties.location));
            Some(())
        });

    /// Ends a pool. What was allocated from it lives until it is freed.
    fn cuMemPoolDestroy = (c"cuMemPoolDestroy", 11020, Legacy), (pool: Opaque) => |real|
        gate::around(|| pools::take(pool), real, drop, |taken| pools::created(pool, taken));
}
