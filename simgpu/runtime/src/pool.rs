//! Allocation in stream order, from the device's pool.

use crate::driver::{self, Address, Handle, forward};
use crate::error::Code;
use std::ffi::{c_int, c_void};

forward! {
    cudaMallocAsync = malloc_async, (out: *mut Address, bytes: usize, stream: Handle);
    cudaMallocFromPoolAsync = driver::cuMemAllocFromPoolAsync,
        (out: *mut Address, bytes: usize, pool: Handle, stream: Handle);
    cudaFreeAsync = free_async, (address: Address, stream: Handle);
    cudaDeviceGetDefaultMemPool = driver::cuDeviceGetDefaultMemPool, (out: *mut Handle, device: c_int);
    cudaDeviceGetMemPool = driver::cuDeviceGetMemPool, (out: *mut Handle, device: c_int);
    cudaDeviceSetMemPool = driver::cuDeviceSetMemPool, (device: c_int, pool: Handle);
    cudaMemPoolTrimTo = driver::cuMemPoolTrimTo, (pool: Handle, keep: usize);
    cudaMemPoolGetAttribute = driver::cuMemPoolGetAttribute,
        (pool: Handle, attribute: c_int, value: *mut c_void);
    cudaMemPoolSetAttribute = driver::cuMemPoolSetAttribute,
        (pool: Handle, attribute: c_int, value: *mut c_void);
}

/// The runtime gives a null pointer for no bytes, where the driver refuses.
unsafe fn malloc_async(out: *mut Address, bytes: usize, stream: Handle) -> Result<(), Code> {
    if bytes == 0 && !out.is_null() {
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(0) };
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemAllocAsync(out, bytes, stream) }
}

unsafe fn free_async(address: Address, stream: Handle) -> Result<(), Code> {
    if address == 0 {
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemFreeAsync(address, stream) }
}
