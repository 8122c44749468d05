//! Device, managed and pinned host memory.

use crate::context::bind;
use crate::driver::{self, Address, Handle, forward};
use crate::error::{Code, answer};
use std::ffi::{c_int, c_uint, c_void};

/// `cudaExtent`: width in bytes (in elements for arrays), height, depth.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pitched {
    pointer: Address,
    pitch: usize,
    width: usize,
    height: usize,
}

/// `cudaPointerAttributes`, without the reserved words that CUDA 13 alone has after it.
#[repr(C)]
#[derive(Debug)]
pub struct PointerAttributes {
    kind: c_int,
    device: c_int,
    device_pointer: Address,
    host_pointer: Address,
}

/// Pointer attributes of the driver that `cudaPointerGetAttributes` is made of.
mod attribute {
    pub const MEMORY_TYPE: i32 = 2;
    pub const DEVICE_POINTER: i32 = 3;
    pub const HOST_POINTER: i32 = 4;
    pub const IS_MANAGED: i32 = 8;
    pub const DEVICE_ORDINAL: i32 = 9;
}

/// `cudaMemoryTypeManaged`; unregistered is 0, host 1 and device 2, the latter two as in the driver.
const MANAGED: c_int = 3;

forward! {
    cudaMalloc = malloc, (out: *mut Address, bytes: usize);
    cudaMallocManaged = driver::cuMemAllocManaged, (out: *mut Address, bytes: usize, flags: c_uint);
    cudaMallocHost = driver::cuMemAllocHost, (out: *mut *mut c_void, bytes: usize);
    cudaMallocPitch = malloc_pitch, (out: *mut Address, pitch: *mut usize, width: usize, height: usize);
    cudaMalloc3D = malloc_3d, (out: *mut Pitched, extent: Extent);
    cudaFree = free, (address: Address);
    cudaFreeHost = free_host, (pointer: *mut c_void);
    cudaHostAlloc = driver::cuMemHostAlloc, (out: *mut *mut c_void, bytes: usize, flags: c_uint);
    cudaHostRegister = driver::cuMemHostRegister, (pointer: *mut c_void, bytes: usize, flags: c_uint);
    cudaHostUnregister = driver::cuMemHostUnregister, (pointer: *mut c_void);
    cudaHostGetDevicePointer = driver::cuMemHostGetDevicePointer,
        (out: *mut Address, pointer: *mut c_void, flags: c_uint);
    cudaHostGetFlags = driver::cuMemHostGetFlags, (out: *mut c_uint, pointer: *mut c_void);
    cudaMemGetInfo = driver::cuMemGetInfo, (free: *mut usize, total: *mut usize);
    cudaMemset = memset, (to: Address, value: c_int, bytes: usize);
    cudaMemsetAsync = memset_async, (to: Address, value: c_int, bytes: usize, stream: Handle);
    cudaMemset2D = memset_2d, (to: Address, pitch: usize, value: c_int, width: usize, height: usize);
    cudaMemset2DAsync = memset_2d_async,
        (to: Address, pitch: usize, value: c_int, width: usize, height: usize, stream: Handle);
}

/// The runtime gives a null pointer for no bytes, where the driver refuses.
unsafe fn malloc(out: *mut Address, bytes: usize) -> Result<(), Code> {
    if bytes == 0 && !out.is_null() {
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(0) };
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemAlloc(out, bytes) }
}

unsafe fn malloc_pitch(
    out: *mut Address,
    pitch: *mut usize,
    width: usize,
    height: usize,
) -> Result<(), Code> {
    // The runtime has no element size to pass on: 4 bytes, which every driver takes.
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemAllocPitch(out, pitch, width, height, 4) }
}

unsafe fn malloc_3d(out: *mut Pitched, extent: Extent) -> Result<(), Code> {
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let rows = extent
        .height
        .checked_mul(extent.depth)
        .ok_or(Code::INVALID_VALUE)?;
    let (mut pointer, mut pitch) = (0, 0);
    // SAFETY: both outputs are ours.
    unsafe { malloc_pitch(&raw mut pointer, &raw mut pitch, extent.width, rows) }?;
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe {
        out.write(Pitched {
            pointer,
            pitch,
            width: extent.width,
            height: extent.height,
        })
    };
    Ok(())
}

/// Freeing null does nothing, but makes the context: programs use it to start CUDA early.
unsafe fn free(address: Address) -> Result<(), Code> {
    if address == 0 {
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemFree(address) }
}

unsafe fn free_host(pointer: *mut c_void) -> Result<(), Code> {
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemFreeHost(pointer) }
}

/// The byte that a `memset` stores: the low one of its `int`.
const fn low_byte(value: c_int) -> u8 {
    value.to_le_bytes()[0]
}

unsafe fn memset(to: Address, value: c_int, bytes: usize) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemsetD8(to, low_byte(value), bytes) }
}

unsafe fn memset_async(to: Address, value: c_int, bytes: usize, stream: Handle) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemsetD8Async(to, low_byte(value), bytes, stream) }
}

unsafe fn memset_2d(
    to: Address,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemsetD2D8(to, pitch, low_byte(value), width, height) }
}

unsafe fn memset_2d_async(
    to: Address,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: Handle,
) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemsetD2D8Async(to, pitch, low_byte(value), width, height, stream) }
}

/// Describes a pointer. One that the driver does not know is unregistered host memory, and no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaPointerGetAttributes(out: *mut PointerAttributes, address: Address) -> c_int {
    answer(bind().and_then(|()| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = describe_pointer(address);
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(found) };
        Ok(())
    }))
}

fn describe_pointer(address: Address) -> PointerAttributes {
    let Some(kind) = pointer_attribute::<c_uint>(attribute::MEMORY_TYPE, address) else {
        return PointerAttributes {
            kind: 0,
            device: -1,
            device_pointer: 0,
            host_pointer: address,
        };
    };
    let managed = pointer_attribute::<c_uint>(attribute::IS_MANAGED, address).is_some_and(|flag| flag != 0);
    PointerAttributes {
        kind: if managed {
            MANAGED
        } else {
            c_int::try_from(kind).unwrap_or(0)
        },
        device: pointer_attribute(attribute::DEVICE_ORDINAL, address).unwrap_or(-1),
        device_pointer: pointer_attribute(attribute::DEVICE_POINTER, address).unwrap_or(0),
        host_pointer: pointer_attribute(attribute::HOST_POINTER, address).unwrap_or(0),
    }
}

/// One attribute of a pointer. `T` is the type the driver documents for it; none asked for here is wider
/// than 8 bytes, and a narrower one is written to the low bytes.
fn pointer_attribute<T: Default + Copy>(attribute: c_int, address: Address) -> Option<T> {
    let mut value = T::default();
    // SAFETY: the output is ours and of the type that the driver writes for this attribute.
    unsafe { driver::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) }.ok()?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memset_stores_the_low_byte() {
        assert_eq!(low_byte(-1), 0xff);
        assert_eq!(low_byte(0x1234), 0x34);
    }

    #[test]
    fn structures_have_the_sizes_of_the_headers() {
        assert_eq!(size_of::<Extent>(), 24);
        assert_eq!(size_of::<Pitched>(), 32);
        assert_eq!(size_of::<PointerAttributes>(), 24);
    }
}
