//! Events. Their handles are the driver's.

use crate::driver::{self, Handle, forward};
use crate::error::Code;
use std::ffi::c_uint;

forward! {
    cudaEventCreate = create, (out: *mut Handle);
    cudaEventCreateWithFlags = driver::cuEventCreate, (out: *mut Handle, flags: c_uint);
    cudaEventRecord = driver::cuEventRecord, (event: Handle, stream: Handle);
    cudaEventQuery = driver::cuEventQuery, (event: Handle);
    cudaEventSynchronize = driver::cuEventSynchronize, (event: Handle);
    cudaEventElapsedTime = driver::cuEventElapsedTime, (milliseconds: *mut f32, start: Handle, end: Handle);
    cudaEventDestroy = driver::cuEventDestroy, (event: Handle);
}

unsafe fn create(out: *mut Handle) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuEventCreate(out, 0) }
}
