//! Streams. Their handles, the legacy (0 and 1) and the per-thread (2) ones included, are the driver's.

use crate::driver::{self, Handle, StreamCallback, forward};
use crate::error::Code;
use std::ffi::{c_int, c_uint, c_void};

forward! {
    cudaStreamCreate = create, (out: *mut Handle);
    cudaStreamCreateWithFlags = driver::cuStreamCreate, (out: *mut Handle, flags: c_uint);
    cudaStreamCreateWithPriority = driver::cuStreamCreateWithPriority,
        (out: *mut Handle, flags: c_uint, priority: c_int);
    cudaStreamDestroy = driver::cuStreamDestroy, (stream: Handle);
    cudaStreamSynchronize = driver::cuStreamSynchronize, (stream: Handle);
    cudaStreamQuery = driver::cuStreamQuery, (stream: Handle);
    cudaStreamWaitEvent = driver::cuStreamWaitEvent, (stream: Handle, event: Handle, flags: c_uint);
    cudaStreamAddCallback = driver::cuStreamAddCallback,
        (stream: Handle, callback: StreamCallback, data: *mut c_void, flags: c_uint);
    cudaStreamGetPriority = driver::cuStreamGetPriority, (stream: Handle, out: *mut c_int);
    cudaStreamGetFlags = driver::cuStreamGetFlags, (stream: Handle, out: *mut c_uint);
    cudaThreadExchangeStreamCaptureMode = driver::cuThreadExchangeStreamCaptureMode, (mode: *mut c_int);
    cudaStreamIsCapturing = driver::cuStreamIsCapturing, (stream: Handle, out: *mut c_int);
    cudaDeviceGetStreamPriorityRange = driver::cuCtxGetStreamPriorityRange,
        (least: *mut c_int, greatest: *mut c_int);
}

unsafe fn create(out: *mut Handle) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuStreamCreate(out, 0) }
}
