//! Copies: linear, two-dimensional, to and from variables.

use crate::driver::{self, Address, Handle, forward};
use crate::error::Code;
use crate::registry;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Where a copy goes: `cudaMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// The driver tells from the addresses.
    Either,
}

impl Direction {
    pub const fn new(kind: c_int) -> Result<Self, Code> {
        Ok(match kind {
            0 => Self::HostToHost,
            1 => Self::HostToDevice,
            2 => Self::DeviceToHost,
            3 => Self::DeviceToDevice,
            4 => Self::Either,
            _ => return Err(Code::INVALID_DIRECTION),
        })
    }

    /// The driver's memory types (1 host, 2 device, 4 unified) of source and destination.
    pub const fn memory_types(self) -> (c_uint, c_uint) {
        match self {
            Self::HostToHost => (1, 1),
            Self::HostToDevice => (1, 2),
            Self::DeviceToHost => (2, 1),
            Self::DeviceToDevice => (2, 2),
            Self::Either => (4, 4),
        }
    }
}

/// One side of a two-dimensional copy, as the driver lays it out.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    x_bytes: usize,
    y: usize,
    memory_type: c_uint,
    host: Address,
    device: Address,
    array: Handle,
    pitch: usize,
}

const ARRAY: c_uint = 3;

impl Side {
    /// Linear memory with rows of `pitch` bytes.
    pub const fn linear(memory_type: c_uint, address: Address, pitch: usize) -> Self {
        Self {
            x_bytes: 0,
            y: 0,
            memory_type,
            host: address,
            device: address,
            array: ptr::null_mut(),
            pitch,
        }
    }

    /// An array from `x_bytes` in row `y` on.
    pub const fn array(array: Handle, x_bytes: usize, y: usize) -> Self {
        Self {
            x_bytes,
            y,
            memory_type: ARRAY,
            host: 0,
            device: 0,
            array,
            pitch: 0,
        }
    }
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2 {
    pub from: Side,
    pub to: Side,
    pub width_bytes: usize,
    pub height: usize,
}

forward! {
    cudaMemcpy = copy, (to: Address, from: Address, bytes: usize, kind: c_int);
    cudaMemcpyPeerAsync = copy_between_devices,
        (to: Address, to_device: c_int, from: Address, from_device: c_int, bytes: usize, stream: Handle);
    cudaMemcpyAsync = copy_async, (to: Address, from: Address, bytes: usize, kind: c_int, stream: Handle);
    cudaMemcpy2D = copy_2d,
        (to: Address, to_pitch: usize, from: Address, from_pitch: usize, width: usize, height: usize,
         kind: c_int);
    cudaMemcpy2DAsync = copy_2d_async,
        (to: Address, to_pitch: usize, from: Address, from_pitch: usize, width: usize, height: usize,
         kind: c_int, stream: Handle);
    cudaMemcpyToSymbol = to_symbol,
        (symbol: *const c_void, from: Address, bytes: usize, offset: usize, kind: c_int);
    cudaMemcpyToSymbolAsync = to_symbol_async,
        (symbol: *const c_void, from: Address, bytes: usize, offset: usize, kind: c_int, stream: Handle);
    cudaMemcpyFromSymbol = from_symbol,
        (to: Address, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int);
    cudaMemcpyFromSymbolAsync = from_symbol_async,
        (to: Address, symbol: *const c_void, bytes: usize, offset: usize, kind: c_int, stream: Handle);
}

/// A host address that came through the C interface as a number.
const fn host(address: Address) -> *mut c_void {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "addresses are 64 bits wide where CUDA runs"
    )]
    ptr::with_exposed_provenance_mut(address as usize)
}

unsafe fn copy(to: Address, from: Address, bytes: usize, kind: c_int) -> Result<(), Code> {
    if bytes == 0 {
        return Ok(());
    }
    match Direction::new(kind)? {
        Direction::HostToHost => {
            // SAFETY: the caller vouches that both are host memory of this size; they may overlap.
            unsafe { ptr::copy(host(from).cast::<u8>(), host(to).cast::<u8>(), bytes) };
            Ok(())
        }
        // SAFETY: as the caller's contract, for all four.
        Direction::HostToDevice => unsafe { driver::cuMemcpyHtoD(to, host(from), bytes) },
        // SAFETY: as above.
        Direction::DeviceToHost => unsafe { driver::cuMemcpyDtoH(host(to), from, bytes) },
        // SAFETY: as above.
        Direction::DeviceToDevice => unsafe { driver::cuMemcpyDtoD(to, from, bytes) },
        // SAFETY: as above.
        Direction::Either => unsafe { driver::cuMemcpy(to, from, bytes) },
    }
}

/// Addresses say which device they are of.
unsafe fn copy_between_devices(
    to: Address,
    _to_device: c_int,
    from: Address,
    _from_device: c_int,
    bytes: usize,
    stream: Handle,
) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { driver::cuMemcpyDtoDAsync(to, from, bytes, stream) }
}

unsafe fn copy_async(
    to: Address,
    from: Address,
    bytes: usize,
    kind: c_int,
    stream: Handle,
) -> Result<(), Code> {
    if bytes == 0 {
        return Ok(());
    }
    match Direction::new(kind)? {
        // SAFETY: as the caller's contract, for all four.
        Direction::HostToDevice => unsafe { driver::cuMemcpyHtoDAsync(to, host(from), bytes, stream) },
        // SAFETY: as above.
        Direction::DeviceToHost => unsafe { driver::cuMemcpyDtoHAsync(host(to), from, bytes, stream) },
        // SAFETY: as above.
        Direction::DeviceToDevice => unsafe { driver::cuMemcpyDtoDAsync(to, from, bytes, stream) },
        // SAFETY: as above. Host to host must stay in the stream's order, so the driver does it.
        Direction::Either | Direction::HostToHost => unsafe {
            driver::cuMemcpyAsync(to, from, bytes, stream)
        },
    }
}

/// Runs a two-dimensional copy now.
pub(crate) unsafe fn run(copy: Copy2) -> Result<(), Code> {
    if copy.width_bytes == 0 || copy.height == 0 {
        return Ok(());
    }
    // SAFETY: the description is ours; what it points at is the caller's contract.
    unsafe { driver::cuMemcpy2D(&raw const copy) }
}

unsafe fn copy_2d(
    to: Address,
    to_pitch: usize,
    from: Address,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> Result<(), Code> {
    let (source, destination) = Direction::new(kind)?.memory_types();
    // SAFETY: as the caller's contract.
    unsafe {
        run(Copy2 {
            from: Side::linear(source, from, from_pitch),
            to: Side::linear(destination, to, to_pitch),
            width_bytes: width,
            height,
        })
    }
}

#[expect(clippy::too_many_arguments, reason = "the signature is the runtime's")]
unsafe fn copy_2d_async(
    to: Address,
    to_pitch: usize,
    from: Address,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
    stream: Handle,
) -> Result<(), Code> {
    let (source, destination) = Direction::new(kind)?.memory_types();
    let copy = Copy2 {
        from: Side::linear(source, from, from_pitch),
        to: Side::linear(destination, to, to_pitch),
        width_bytes: width,
        height,
    };
    if width == 0 || height == 0 {
        return Ok(());
    }
    // SAFETY: the description is ours, and read before the call returns.
    unsafe { driver::cuMemcpy2DAsync(&raw const copy, stream) }
}

/// The address `offset` bytes into a registered variable, if `bytes` more fit.
fn symbol_address(symbol: *const c_void, bytes: usize, offset: usize) -> Result<Address, Code> {
    let (address, size) = registry::variable(symbol)?;
    if offset.checked_add(bytes).is_none_or(|end| end > size) {
        return Err(Code::INVALID_VALUE);
    }
    Ok(address + offset as Address)
}

unsafe fn to_symbol(
    symbol: *const c_void,
    from: Address,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<(), Code> {
    let to = symbol_address(symbol, bytes, offset)?;
    // SAFETY: the destination is inside the variable; the source is the caller's contract.
    unsafe { copy(to, from, bytes, kind) }
}

unsafe fn to_symbol_async(
    symbol: *const c_void,
    from: Address,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> Result<(), Code> {
    let to = symbol_address(symbol, bytes, offset)?;
    // SAFETY: the destination is inside the variable; the source is the caller's contract.
    unsafe { copy_async(to, from, bytes, kind, stream) }
}

unsafe fn from_symbol(
    to: Address,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
) -> Result<(), Code> {
    let from = symbol_address(symbol, bytes, offset)?;
    // SAFETY: the source is inside the variable; the destination is the caller's contract.
    unsafe { copy(to, from, bytes, kind) }
}

unsafe fn from_symbol_async(
    to: Address,
    symbol: *const c_void,
    bytes: usize,
    offset: usize,
    kind: c_int,
    stream: Handle,
) -> Result<(), Code> {
    let from = symbol_address(symbol, bytes, offset)?;
    // SAFETY: the source is inside the variable; the destination is the caller's contract.
    unsafe { copy_async(to, from, bytes, kind, stream) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_description_has_the_size_of_the_header() {
        assert_eq!(size_of::<Copy2>(), 128);
    }

    #[test]
    fn an_unknown_direction_is_refused() {
        assert_eq!(Direction::new(5), Err(Code::INVALID_DIRECTION));
        assert_eq!(Direction::new(-1), Err(Code::INVALID_DIRECTION));
    }
}
