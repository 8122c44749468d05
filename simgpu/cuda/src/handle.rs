//! What stands for an object of the driver in the program's hands.
//!
//! Handles are numbers that never come twice in a process, not addresses: one that was destroyed, or belongs to
//! another kind of object, is found out instead of followed.

/// An opaque pointer of the driver API: `CUcontext`, `CUstream`, `CUmodule` and the like. 0 is NULL.
pub(crate) type Handle = u64;

/// `CU_STREAM_LEGACY`
pub(crate) const STREAM_LEGACY: Handle = 1;
/// `CU_STREAM_PER_THREAD`
pub(crate) const STREAM_PER_THREAD: Handle = 2;

/// Source of handles.
#[derive(Debug)]
pub(crate) struct Handles(Handle);

impl Handles {
    pub(crate) fn new() -> Self {
        // Away from NULL and from the streams that have a fixed number.
        Self(0x1000)
    }

    pub(crate) fn next(&mut self) -> Handle {
        // A step of 16, as pointers have: programs tag the low bits.
        self.0 += 16;
        self.0
    }
}
