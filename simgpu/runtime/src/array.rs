//! CUDA arrays: opaque memory for textures, made of elements of one to four channels.

use crate::context::bind;
use crate::driver::{self, Handle, forward};
use crate::error::{Code, answer};
use crate::memory::Extent;
use std::ffi::{c_int, c_uint};
use std::ptr;

/// `cudaChannelFormatDesc`: bits of each channel, and their kind (0 signed, 1 unsigned, 2 float).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    bits: [c_int; 4],
    kind: c_int,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shape2 {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Shape3 {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

/// The driver's element formats: number, bits a channel, kind.
const FORMATS: [(c_uint, c_int, c_int); 8] = [
    (0x01, 8, 1),
    (0x02, 16, 1),
    (0x03, 32, 1),
    (0x08, 8, 0),
    (0x09, 16, 0),
    (0x0a, 32, 0),
    (0x10, 16, 2),
    (0x20, 32, 2),
];

impl Channels {
    /// The driver's format and count of channels.
    fn format(&self) -> Result<(c_uint, c_uint), Code> {
        let width = self.bits[0];
        let count = self.bits.iter().take_while(|&&bits| bits == width).count();
        let rest_is_empty = self.bits[count..].iter().all(|&bits| bits == 0);
        let known = FORMATS
            .iter()
            .find(|&&(_, bits, kind)| bits == width && kind == self.kind);
        match (known, count) {
            (Some(&(format, ..)), 1 | 2 | 4) if rest_is_empty => Ok((
                format,
                c_uint::try_from(count).map_err(|_| Code::INVALID_CHANNEL)?,
            )),
            _ => Err(Code::INVALID_CHANNEL),
        }
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaCreateChannelDesc(x: c_int, y: c_int, z: c_int, w: c_int, kind: c_int) -> Channels {
    Channels {
        bits: [x, y, z, w],
        kind,
    }
}

forward! {
    cudaMallocArray = malloc_array,
        (out: *mut Handle, channels: *const Channels, width: usize, height: usize, flags: c_uint);
    cudaMalloc3DArray = malloc_3d_array,
        (out: *mut Handle, channels: *const Channels, extent: Extent, flags: c_uint);
    cudaFreeArray = free_array, (array: Handle);
}

unsafe fn malloc_array(
    out: *mut Handle,
    channels: *const Channels,
    width: usize,
    height: usize,
    flags: c_uint,
) -> Result<(), Code> {
    if flags != 0 {
        // SAFETY: as the caller's contract.
        return unsafe {
            malloc_3d_array(
                out,
                channels,
                Extent {
                    width,
                    height,
                    depth: 0,
                },
                flags,
            )
        };
    }
    // SAFETY: the caller gave null or a valid description.
    let channels = unsafe { channels.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    let (format, channels) = channels.format()?;
    let shape = Shape2 {
        width,
        height,
        format,
        channels,
    };
    // SAFETY: the description is ours; the output is the caller's contract.
    unsafe { driver::cuArrayCreate(out, &raw const shape) }
}

unsafe fn malloc_3d_array(
    out: *mut Handle,
    channels: *const Channels,
    extent: Extent,
    flags: c_uint,
) -> Result<(), Code> {
    // SAFETY: the caller gave null or a valid description.
    let channels = unsafe { channels.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    let (format, channels) = channels.format()?;
    let Extent { width, height, depth } = extent;
    let shape = Shape3 {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    };
    // SAFETY: the description is ours; the output is the caller's contract.
    unsafe { driver::cuArray3DCreate(out, &raw const shape) }
}

unsafe fn free_array(array: Handle) -> Result<(), Code> {
    if array.is_null() {
        return Ok(());
    }
    // SAFETY: as the caller's contract.
    unsafe { driver::cuArrayDestroy(array) }
}

fn shape(array: Handle) -> Result<Shape3, Code> {
    let mut shape = Shape3::default();
    // SAFETY: the output is ours; the driver refuses a handle that is not an array's.
    unsafe { driver::cuArray3DGetDescriptor(&raw mut shape, array) }?;
    Ok(shape)
}

impl Shape3 {
    fn channel(&self) -> Result<(c_int, c_int), Code> {
        let known = FORMATS.iter().find(|&&(format, ..)| format == self.format);
        known
            .map(|&(_, bits, kind)| (bits, kind))
            .ok_or(Code::INVALID_CHANNEL)
    }
}

/// The bytes of one row of an array.
pub(crate) fn row_bytes(array: Handle) -> Result<usize, Code> {
    let shape = shape(array)?;
    let (bits, _) = shape.channel()?;
    let bytes = usize::try_from(bits / 8).map_err(|_| Code::INVALID_CHANNEL)?;
    Ok(shape.width * shape.channels as usize * bytes)
}

/// Describes an array; any output may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaArrayGetInfo(
    channels: *mut Channels,
    extent: *mut Extent,
    flags: *mut c_uint,
    array: Handle,
) -> c_int {
    answer(bind().and_then(|()| {
        let shape = shape(array)?;
        let (bits, kind) = shape.channel()?;
        let mut each = [0; 4];
        each.iter_mut()
            .take(shape.channels as usize)
            .for_each(|channel| *channel = bits);
        // SAFETY: the caller gave null or a valid output, for all three.
        if let Some(channels) = unsafe { channels.as_mut() } {
            *channels = Channels { bits: each, kind };
        }
        // SAFETY: as above.
        if let Some(extent) = unsafe { extent.as_mut() } {
            *extent = Extent {
                width: shape.width,
                height: shape.height,
                depth: shape.depth,
            };
        }
        // SAFETY: as above.
        if let Some(flags) = unsafe { flags.as_mut() } {
            *flags = shape.flags;
        }
        Ok(())
    }))
}

/// The channels of an array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetChannelDesc(channels: *mut Channels, array: Handle) -> c_int {
    // SAFETY: as the caller's contract.
    unsafe { cudaArrayGetInfo(channels, ptr::null_mut(), ptr::null_mut(), array) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_map_to_the_driver_s_formats() {
        assert_eq!(cudaCreateChannelDesc(32, 0, 0, 0, 2).format(), Ok((0x20, 1)));
        assert_eq!(cudaCreateChannelDesc(8, 8, 8, 8, 1).format(), Ok((0x01, 4)));
        assert_eq!(cudaCreateChannelDesc(16, 16, 0, 0, 0).format(), Ok((0x09, 2)));
    }

    #[test]
    fn three_channels_and_mixed_widths_are_refused() {
        assert_eq!(
            cudaCreateChannelDesc(8, 8, 8, 0, 1).format(),
            Err(Code::INVALID_CHANNEL)
        );
        assert_eq!(
            cudaCreateChannelDesc(8, 16, 0, 0, 1).format(),
            Err(Code::INVALID_CHANNEL)
        );
        assert_eq!(
            cudaCreateChannelDesc(0, 0, 0, 0, 1).format(),
            Err(Code::INVALID_CHANNEL)
        );
    }
}
