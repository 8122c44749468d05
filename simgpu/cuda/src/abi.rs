//! C structures of the driver API, laid out as cuda.h 13.0 has them. Read by value, never by reference.

use std::ffi::c_void;

/// `CUuuid`
pub(crate) type Uuid = [u8; 16];

/// `CUmemLocation`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`
pub(crate) const LOCATION_DEVICE: i32 = 1;
/// `CU_MEM_LOCATION_TYPE_HOST`
pub(crate) const LOCATION_HOST: i32 = 2;
/// `CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT`
pub(crate) const LOCATION_HOST_NUMA_CURRENT: i32 = 4;

/// `CUmemAllocationProp`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32: u64,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDescription {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) struct ArrayDescription {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(C)]
pub(crate) struct Array3dDescription {
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_MEMCPY2D`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2d {
    pub(crate) source: End2d,
    pub(crate) destination: End2d,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
}

/// One end of a [`Copy2d`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct End2d {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) memory: i32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) pitch: usize,
}

/// `CUDA_MEMCPY3D`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub(crate) source: End3d,
    pub(crate) destination: End3d,
    pub(crate) width_bytes: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
}

/// One end of a [`Copy3d`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct End3d {
    pub(crate) x_bytes: usize,
    pub(crate) y: usize,
    pub(crate) z: usize,
    pub(crate) level: usize,
    pub(crate) memory: i32,
    pub(crate) host: u64,
    pub(crate) device: u64,
    pub(crate) array: u64,
    pub(crate) reserved: u64,
    pub(crate) pitch: usize,
    pub(crate) height: usize,
}

/// `CU_MEMORYTYPE_HOST`
pub(crate) const MEMORY_HOST: i32 = 1;
/// `CU_MEMORYTYPE_DEVICE`
pub(crate) const MEMORY_DEVICE: i32 = 2;
/// `CU_MEMORYTYPE_ARRAY`
pub(crate) const MEMORY_ARRAY: i32 = 3;
/// `CU_MEMORYTYPE_UNIFIED`
pub(crate) const MEMORY_UNIFIED: i32 = 4;

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: u64,
    pub(crate) attributes: *mut c_void,
    pub(crate) attribute_count: u32,
}

/// `CUdevprop`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct LegacyProperties {
    pub(crate) max_threads_per_block: i32,
    pub(crate) max_threads_dim: [i32; 3],
    pub(crate) max_grid_size: [i32; 3],
    pub(crate) shared_memory_per_block: i32,
    pub(crate) total_constant_memory: i32,
    pub(crate) simd_width: i32,
    pub(crate) memory_pitch: i32,
    pub(crate) registers_per_block: i32,
    pub(crate) clock_rate: i32,
    pub(crate) texture_align: i32,
}

// The sizes that a C compiler gives them on x86-64 and aarch64.
const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<ArrayDescription>() == 24);
const _: () = assert!(size_of::<Array3dDescription>() == 40);
const _: () = assert!(size_of::<Copy2d>() == 128);
const _: () = assert!(size_of::<Copy3d>() == 200);
const _: () = assert!(size_of::<LaunchConfig>() == 56);
const _: () = assert!(size_of::<LegacyProperties>() == 56);
