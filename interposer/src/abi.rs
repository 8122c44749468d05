//! The few types of the CUDA driver API that cross a hook, as `cuda.h` lays them out.

use std::ffi::{c_int, c_uint, c_void};

/// `CUresult`. The numbers that the hooks look at are below; all others pass through unseen.
pub type Status = c_int;
/// `CUDA_SUCCESS`.
pub const SUCCESS: Status = 0;
/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_FOUND`: what a hook answers when it is called by its exported name although the driver
/// lacks the function and nobody else has it. Without the hook the dynamic linker would have ended the program there.
pub const NOT_FOUND: Status = 500;

/// `CUdeviceptr` since CUDA 3.2.
pub type DevicePointer = u64;
/// `CUdeviceptr` before it, 32 bits wide.
pub type DevicePointerV1 = c_uint;
/// `CUmemGenericAllocationHandle`.
pub type Handle = u64;
/// `CUstream`, `CUmemoryPool`, `CUarray`, `CUcontext`: opaque.
pub type Opaque = *mut c_void;
/// `CUdevice`: the ordinal among the devices the process sees.
pub type Ordinal = c_int;
/// `CUuuid`.
pub type Uuid = [u8; 16];

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Location {
    /// 1 is a device; 2 and above are kinds of host memory.
    pub kind: c_int,
    /// The device's ordinal; meaningless for plain host memory.
    pub id: c_int,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: c_int = 1;

/// The start of `CUmemAllocationProp`; the rest is never looked at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct AllocationProp {
    /// Pinned, or newer kinds.
    pub kind: c_int,
    /// For export to other processes.
    pub requested_handle_types: c_int,
    /// Where the memory is.
    pub location: Location,
}

/// `CUDA_ARRAY_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArrayDescriptor {
    /// Elements.
    pub width: usize,
    /// Rows; 0 for a one-dimensional array.
    pub height: usize,
    /// `CUarray_format`.
    pub format: c_int,
    /// Channels per element: 1, 2 or 4.
    pub channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Array3dDescriptor {
    /// Elements.
    pub width: usize,
    /// Rows; 0 for a one-dimensional array.
    pub height: usize,
    /// Slices or layers; 0 for a two-dimensional array.
    pub depth: usize,
    /// `CUarray_format`.
    pub format: c_int,
    /// Channels per element: 1, 2 or 4.
    pub channels: c_uint,
    /// `CUDA_ARRAY3D_*`.
    pub flags: c_uint,
}

/// `CUDA_ARRAY_DESCRIPTOR_v1`: as [`ArrayDescriptor`], with 32-bit sizes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArrayDescriptorV1 {
    width: c_uint,
    height: c_uint,
    format: c_int,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v1`: as [`Array3dDescriptor`], with 32-bit sizes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Array3dDescriptorV1 {
    width: c_uint,
    height: c_uint,
    depth: c_uint,
    format: c_int,
    channels: c_uint,
    flags: c_uint,
}

/// `CUipcMemHandle`: passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle([u8; 64]);

/// The start of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`; the rest is never looked at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ExternalMemoryDescriptor {
    kind: c_int,
    handle: [u64; 2],
    /// Bytes of the memory.
    pub size: u64,
}

/// `CUDA_ARRAY3D_LAYERED`: the depth is a number of layers, the same at each level of a mipmap.
const LAYERED: c_uint = 0x01;
/// `CUDA_ARRAY3D_CUBEMAP`: the depth is a number of faces.
const CUBE: c_uint = 0x04;
/// `CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING`: such an array has no memory until it is mapped.
const UNBACKED: c_uint = 0x40 | 0x80;

impl ArrayDescriptor {
    /// Bytes of the array's elements; `None` for a format we do not know.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        element_bytes(self.format, self.channels, self.width, self.height)
    }
}

impl ArrayDescriptorV1 {
    /// Bytes of the array's elements; `None` for a format we do not know.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        element_bytes(
            self.format,
            self.channels,
            self.width as usize,
            self.height as usize,
        )
    }
}

impl Array3dDescriptorV1 {
    /// Bytes of the array's elements; `None` for a format we do not know.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let wide = Array3dDescriptor {
            width: self.width as usize,
            height: self.height as usize,
            depth: self.depth as usize,
            format: self.format,
            channels: self.channels,
            flags: self.flags,
        };
        wide.bytes()
    }
}

impl Array3dDescriptor {
    /// Bytes of a mipmapped array of so many levels, each half as large in each dimension as the one before;
    /// the driver makes one at least, and none below a single element.
    #[must_use]
    pub fn mipmapped_bytes(&self, levels: c_uint) -> Option<u64> {
        // Layers, and the six faces of a cube, stay.
        let depth = if self.flags & (LAYERED | CUBE) == 0 {
            self.depth
        } else {
            0
        };
        let longest = self.width.max(self.height).max(depth).max(1);
        let levels = levels.clamp(1, longest.ilog2() + 1);
        (0..levels).try_fold(0_u64, |sum, level| {
            let halved = |size: usize| if size == 0 { 0 } else { (size >> level).max(1) };
            let one = Self {
                width: halved(self.width),
                height: halved(self.height),
                depth: if depth == 0 { self.depth } else { halved(depth) },
                ..*self
            };
            sum.checked_add(one.bytes()?)
        })
    }

    /// Bytes of the array's elements; `None` for a format we do not know.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        if self.flags & UNBACKED != 0 {
            return Some(0);
        }
        let slice = element_bytes(self.format, self.channels, self.width, self.height)?;
        slice.checked_mul(self.depth.max(1) as u64)
    }
}

/// A height of 0 means one row. Sizes come in elements, never in bits.
fn element_bytes(format: c_int, channels: c_uint, width: usize, height: usize) -> Option<u64> {
    let (width, height) = (width as u64, height.max(1) as u64);
    let per_channel = match format {
        // Signed and unsigned integers of 8 bits, and their normalized forms.
        0x01 | 0x08 | 0xc0..=0xc2 | 0xc6..=0xc8 => 1,
        // 16 bits, half included.
        0x02 | 0x09 | 0x10 | 0xc3..=0xc5 | 0xc9..=0xcb => 2,
        0x03 | 0x0a | 0x20 => 4,
        // NV12: a plane of luma and half a plane of chroma.
        0xb0 => return width.checked_mul(height)?.checked_mul(3).map(|bytes| bytes / 2),
        // BC1 and BC4 hold 4 x 4 elements in 8 bytes, the other block formats in 16.
        0x91 | 0x92 | 0x97 | 0x98 => return blocks(width, height)?.checked_mul(8),
        0x93..=0x96 | 0x99..=0x9e => return blocks(width, height)?.checked_mul(16),
        _ => return None,
    };
    width
        .checked_mul(height)?
        .checked_mul(per_channel)?
        .checked_mul(u64::from(channels))
}

fn blocks(width: u64, height: u64) -> Option<u64> {
    width.div_ceil(4).checked_mul(height.div_ceil(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_sized_in_bytes_not_bits() {
        let float4 = ArrayDescriptor {
            width: 16,
            height: 8,
            format: 0x20,
            channels: 4,
        };
        assert_eq!(float4.bytes(), Some(16 * 8 * 16));
    }

    #[test]
    fn height_and_depth_of_zero_mean_one() {
        let line = Array3dDescriptor {
            width: 100,
            height: 0,
            depth: 0,
            format: 0x01,
            channels: 2,
            flags: 0,
        };
        assert_eq!(line.bytes(), Some(200));
        assert_eq!(Array3dDescriptor { depth: 3, ..line }.bytes(), Some(600));
    }

    #[test]
    fn a_mipmapped_array_is_all_its_levels() {
        let flat = Array3dDescriptor {
            width: 8,
            height: 4,
            depth: 0,
            format: 0x20,
            channels: 1,
            flags: 0,
        };
        assert_eq!(flat.mipmapped_bytes(1), Some(4 * 32));
        assert_eq!(flat.mipmapped_bytes(0), Some(4 * 32));
        assert_eq!(flat.mipmapped_bytes(4), Some(4 * (32 + 8 + 2 + 1)));
        assert_eq!(flat.mipmapped_bytes(9), flat.mipmapped_bytes(4));
        let solid = Array3dDescriptor { depth: 2, ..flat };
        assert_eq!(solid.mipmapped_bytes(2), Some(4 * (64 + 8)));
        let layers = Array3dDescriptor {
            flags: LAYERED,
            ..solid
        };
        assert_eq!(layers.mipmapped_bytes(2), Some(4 * (64 + 16)));
    }

    #[test]
    fn the_older_descriptors_have_32_bit_sizes() {
        let old = Array3dDescriptorV1 {
            width: 16,
            height: 8,
            depth: 0,
            format: 0x20,
            channels: 4,
            flags: 0,
        };
        assert_eq!(old.bytes(), Some(16 * 8 * 16));
        assert_eq!(size_of::<Array3dDescriptorV1>(), 24);
        assert_eq!(size_of::<ArrayDescriptorV1>(), 16);
    }

    #[test]
    fn a_sparse_array_has_no_bytes_of_its_own() {
        let sparse = Array3dDescriptor {
            width: 100,
            height: 1,
            depth: 1,
            format: 0x03,
            channels: 1,
            flags: 0x40,
        };
        assert_eq!(sparse.bytes(), Some(0));
    }

    #[test]
    fn an_unknown_format_or_an_absurd_size_is_not_guessed() {
        let odd = ArrayDescriptor {
            width: 1,
            height: 1,
            format: 0x7777,
            channels: 1,
        };
        assert_eq!(odd.bytes(), None);
        let huge = ArrayDescriptor {
            width: usize::MAX,
            height: 2,
            format: 0x01,
            channels: 1,
        };
        assert_eq!(huge.bytes(), None);
    }

    #[test]
    fn the_location_lies_where_cuda_h_puts_it() {
        assert_eq!(std::mem::offset_of!(AllocationProp, location), 8);
        assert_eq!(size_of::<Array3dDescriptor>(), 40);
        assert_eq!(std::mem::offset_of!(ExternalMemoryDescriptor, size), 24);
    }
}
