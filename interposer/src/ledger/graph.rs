//! Memory of graphs.
//!
//! An allocation node has an address from the moment it is added, but memory only while its graph runs, from
//! a store that the driver keeps for all graphs of a device and shares between those that do not run at once. What the
//! nodes ask for says nothing of it. The driver's own figure does: what it has reserved for graphs on each
//! device. It is read after each wait of the program, once the process has made such memory at all.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use migm_shared::page::{Class, DEVICES};

use crate::abi::{Opaque, Ordinal, SUCCESS, Status};
use crate::attach;
use crate::driver::Real;
use crate::errno;
use crate::gate;
use crate::thread::Lanes;

/// Whether the process has ever begun to capture a stream.
static CAPTURES: AtomicBool = AtomicBool::new(false);
/// Whether it has made memory that belongs to a graph.
static MAKES_MEMORY: AtomicBool = AtomicBool::new(false);
/// What was counted last, by the page's device index.
static COUNTED: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

type Capturing = unsafe extern "C-unwind" fn(Opaque, *mut c_int) -> Status;
// SAFETY: `cuda.h` declares the function with this type. It is made to be asked during a capture.
static CAPTURING: Real<Capturing> = unsafe { Real::new(c"cuStreamIsCapturing") };
// SAFETY: `cuda.h` declares the function with this type.
static CAPTURING_PTSZ: Real<Capturing> = unsafe { Real::new(c"cuStreamIsCapturing_ptsz") };
// SAFETY: `cuda.h` declares the function with this type.
static EXCHANGE: Real<unsafe extern "C-unwind" fn(*mut c_int) -> Status> =
    unsafe { Real::new(c"cuThreadExchangeStreamCaptureMode") };
type Attribute = unsafe extern "C-unwind" fn(Ordinal, c_int, *mut c_void) -> Status;
// SAFETY: `cuda.h` declares the function with this type.
static ATTRIBUTE: Real<Attribute> = unsafe { Real::new(c"cuDeviceGetGraphMemAttribute") };

/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const RESERVED: c_int = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread spoil no capture.
const RELAXED: c_int = 2;

/// The process captures streams: from here on an allocation may be a node of a graph.
pub fn capture_begun() {
    CAPTURES.store(true, Relaxed);
}

/// The process has made memory that belongs to a graph.
pub fn memory_made() {
    MAKES_MEMORY.store(true, Relaxed);
}

/// Whether an allocation on `stream` has just become a node of a graph.
#[inline]
#[must_use]
pub fn is_node(stream: Opaque, per_thread: bool) -> bool {
    CAPTURES.load(Relaxed) && is_capturing(stream, per_thread)
}

#[cold]
fn is_capturing(stream: Opaque, per_thread: bool) -> bool {
    let own = if per_thread { CAPTURING_PTSZ.get() } else { None };
    let Some(ask) = own.or_else(|| CAPTURING.get()) else {
        return false;
    };
    let mut state = 0;
    // SAFETY: the stream is one that the driver has just taken, `state` a place to write to.
    let status = unsafe { ask(stream, &raw mut state) };
    let capturing = status == SUCCESS && state != 0;
    if capturing {
        memory_made();
    }
    capturing
}

/// Counts what the driver has reserved for graphs, if the process has any.
#[inline]
pub fn refresh() {
    if MAKES_MEMORY.load(Relaxed) {
        errno::kept(read);
    }
}

#[cold]
fn read() {
    let (Some(ask), Some(attached)) = (ATTRIBUTE.get(), attach::attached()) else {
        return;
    };
    gate::unseen(|| {
        relaxed(|| {
            for (index, ordinal) in attached.ordinals() {
                let mut reserved = 0_u64;
                // SAFETY: this attribute is a number of 64 bits, and `reserved` a place for one.
                let status = unsafe { ask(ordinal, RESERVED, (&raw mut reserved).cast()) };
                if status == SUCCESS {
                    count(attached, index, reserved);
                }
            }
        });
    });
}

/// Runs `body`, which asks the driver something: a stream may be captured, and not every call is allowed meanwhile to
/// threads that are not in relaxed mode. To be called with nested hooks [unseen](gate::unseen).
pub fn relaxed<T>(body: impl FnOnce() -> T) -> T {
    let mut mode = RELAXED;
    let exchange = EXCHANGE.get();
    // SAFETY: `mode` is a mode, and a place for the one before.
    let changed = exchange.is_some_and(|exchange| unsafe { exchange(&raw mut mode) } == SUCCESS);
    let result = body();
    if let Some(exchange) = exchange.filter(|_| changed) {
        // SAFETY: `mode` is the one that the thread had before.
        unsafe { exchange(&raw mut mode) };
    }
    result
}

/// Of several threads that come here at once, each adds the difference to what the one before has found.
fn count(attached: &'static attach::Attachment, index: usize, reserved: u64) {
    let Some(counted) = COUNTED.get(index) else { return };
    let before = counted.swap(reserved, Relaxed);
    if reserved > before {
        attached.add(Lanes::SHARED, index, Class::Graph, reserved - before);
    } else if reserved < before {
        attached
            .page
            .remove(attached.slot, index, Class::Graph, before - reserved);
    }
}

/// Forgets all, in a forked child.
pub fn clear() {
    MAKES_MEMORY.store(false, Relaxed);
    for counted in &COUNTED {
        counted.store(0, Relaxed);
    }
}
