//! Copies to and from arrays.

use crate::array::row_bytes;
use crate::copy::{Copy2, Direction, Side, run};
use crate::driver::{Address, Handle, forward};
use crate::error::Code;
use std::ffi::{c_int, c_uint};

forward! {
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

impl Piece {
    /// Its part of linear memory of this type that begins at `start`.
    const fn in_memory(self, memory_type: c_uint, start: Address) -> Side {
        Side::linear(memory_type, start + self.offset as Address, self.width_bytes)
    }

    const fn in_array(self, array: Handle) -> Side {
        Side::array(array, self.x_bytes, self.y)
    }

    /// # Safety
    /// Both sides are this piece's, in memory that the caller vouches for.
    unsafe fn copy(self, from: Side, to: Side) -> Result<(), Code> {
        let Self {
            width_bytes, height, ..
        } = self;
        // SAFETY: as the caller says.
        unsafe {
            run(Copy2 {
                from,
                to,
                width_bytes,
                height,
            })
        }
    }
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
    for piece in pieces(row_bytes(array)?, x_bytes, y, bytes)? {
        let from = piece.in_memory(source, from);
        // SAFETY: the piece lies inside the caller's run; the driver checks it against the array.
        unsafe { piece.copy(from, piece.in_array(array)) }?;
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
    for piece in pieces(row_bytes(array)?, x_bytes, y, bytes)? {
        let to = piece.in_memory(destination, to);
        // SAFETY: the piece lies inside the caller's run; the driver checks it against the array.
        unsafe { piece.copy(piece.in_array(array), to) }?;
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
