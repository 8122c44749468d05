//! Copies: linear, two-dimensional, to and from arrays and variables.

use crate::driver::{self, Address, Handle, forward};
use crate::error::Code;
use crate::registry;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// Where a copy goes: `cudaMemcpyKind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    HostToHost,
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// The driver tells from the addresses.
    Either,
}

impl Direction {
    const fn new(kind: c_int) -> Result<Self, Code> {
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
    const fn memory_types(self) -> (c_uint, c_uint) {
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
    const fn linear(memory_type: c_uint, address: Address, pitch: usize) -> Self {
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
    const fn array(array: Handle, x_bytes: usize, y: usize) -> Self {
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
    from: Side,
    to: Side,
    width_bytes: usize,
    height: usize,
}

forward! {
    cudaMemcpy = copy, (to: Address, from: Address, bytes: usize, kind: c_int);
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
    cudaMemcpyToArray = to_array,
        (array: Handle, x_bytes: usize, y: usize, from: Address, bytes: usize, kind: c_int);
    cudaMemcpyFromArray = from_array,
        (to: Address, array: Handle, x_bytes: usize, y: usize, bytes: usize, kind: c_int);
    cudaMemcpy2DToArray = to_array_2d,
        (array: Handle, x_bytes: usize, y: usize, from: Address, pitch: usize, width: usize, height: usize,
         kind: c_int);
    cudaMemcpy2DFromArray = from_array_2d,
        (to: Address, pitch: usize, array: Handle, x_bytes: usize, y: usize, width: usize, height: usize,
         kind: c_int);
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
unsafe fn run(copy: Copy2) -> Result<(), Code> {
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

/// Whole rows of an array that lie one after the other in linear memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    x_bytes: usize,
    y: usize,
    width_bytes: usize,
    height: usize,
    /// Where it starts in the linear memory.
    offset: usize,
}

/// Splits a run of `bytes` from a place in an array into whole-row pieces: the rest of the first row, the
/// full rows, the start of the last.
fn pieces(row: usize, x_bytes: usize, y: usize, bytes: usize) -> Result<Vec<Piece>, Code> {
    if row == 0 || x_bytes >= row {
        return Err(Code::INVALID_VALUE);
    }
    let mut pieces = Vec::with_capacity(3);
    let (mut done, mut line) = (0, y);
    if x_bytes > 0 {
        done = bytes.min(row - x_bytes);
        pieces.push(Piece {
            x_bytes,
            y,
            width_bytes: done,
            height: 1,
            offset: 0,
        });
        line += 1;
    }
    let full = (bytes - done) / row;
    if full > 0 {
        pieces.push(Piece {
            x_bytes: 0,
            y: line,
            width_bytes: row,
            height: full,
            offset: done,
        });
        done += full * row;
        line += full;
    }
    if done < bytes {
        pieces.push(Piece {
            x_bytes: 0,
            y: line,
            width_bytes: bytes - done,
            height: 1,
            offset: done,
        });
    }
    Ok(pieces)
}

unsafe fn to_array(
    array: Handle,
    x_bytes: usize,
    y: usize,
    from: Address,
    bytes: usize,
    kind: c_int,
) -> Result<(), Code> {
    let (source, _) = Direction::new(kind)?.memory_types();
    for piece in pieces(crate::array::row_bytes(array)?, x_bytes, y, bytes)? {
        let Piece {
            x_bytes: x,
            y: line,
            width_bytes,
            height,
            offset,
        } = piece;
        let from = Side::linear(source, from + offset as Address, width_bytes);
        // SAFETY: the piece lies inside the caller's run; the driver checks it against the array.
        unsafe {
            run(Copy2 {
                from,
                to: Side::array(array, x, line),
                width_bytes,
                height,
            })
        }?;
    }
    Ok(())
}

unsafe fn from_array(
    to: Address,
    array: Handle,
    x_bytes: usize,
    y: usize,
    bytes: usize,
    kind: c_int,
) -> Result<(), Code> {
    let (_, destination) = Direction::new(kind)?.memory_types();
    for piece in pieces(crate::array::row_bytes(array)?, x_bytes, y, bytes)? {
        let Piece {
            x_bytes: x,
            y: line,
            width_bytes,
            height,
            offset,
        } = piece;
        let to = Side::linear(destination, to + offset as Address, width_bytes);
        // SAFETY: the piece lies inside the caller's run; the driver checks it against the array.
        unsafe {
            run(Copy2 {
                from: Side::array(array, x, line),
                to,
                width_bytes,
                height,
            })
        }?;
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "the signature is the runtime's")]
unsafe fn to_array_2d(
    array: Handle,
    x_bytes: usize,
    y: usize,
    from: Address,
    pitch: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> Result<(), Code> {
    let (source, _) = Direction::new(kind)?.memory_types();
    let from = Side::linear(source, from, pitch);
    // SAFETY: as the caller's contract.
    unsafe {
        run(Copy2 {
            from,
            to: Side::array(array, x_bytes, y),
            width_bytes: width,
            height,
        })
    }
}

#[expect(clippy::too_many_arguments, reason = "the signature is the runtime's")]
unsafe fn from_array_2d(
    to: Address,
    pitch: usize,
    array: Handle,
    x_bytes: usize,
    y: usize,
    width: usize,
    height: usize,
    kind: c_int,
) -> Result<(), Code> {
    let (_, destination) = Direction::new(kind)?.memory_types();
    let to = Side::linear(destination, to, pitch);
    // SAFETY: as the caller's contract.
    unsafe {
        run(Copy2 {
            from: Side::array(array, x_bytes, y),
            to,
            width_bytes: width,
            height,
        })
    }
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

    #[test]
    fn a_run_into_an_array_is_cut_at_its_rows() {
        let piece = |x_bytes, y, width_bytes, height, offset| Piece {
            x_bytes,
            y,
            width_bytes,
            height,
            offset,
        };
        // Rows of 10 bytes, from byte 4 of row 2: 6 bytes, two rows, 3 bytes.
        let expected = vec![piece(4, 2, 6, 1, 0), piece(0, 3, 10, 2, 6), piece(0, 5, 3, 1, 26)];
        assert_eq!(pieces(10, 4, 2, 29), Ok(expected));
        assert_eq!(pieces(10, 0, 0, 10), Ok(vec![piece(0, 0, 10, 1, 0)]));
        assert_eq!(pieces(10, 2, 0, 3), Ok(vec![piece(2, 0, 3, 1, 0)]));
        assert_eq!(pieces(10, 10, 0, 3), Err(Code::INVALID_VALUE));
    }
}
