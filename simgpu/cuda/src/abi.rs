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

/// `CUmemPoolProps`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32: u64,
    /// 0 for no limit of its own.
    pub(crate) max_bytes: u64,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationNode {
    pub(crate) pool: PoolProperties,
    pub(crate) access: u64,
    pub(crate) accesses: usize,
    pub(crate) bytes: u64,
    /// Told to the program.
    pub(crate) address: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) parameters: u64,
    pub(crate) extra: u64,
}

/// `CUDA_KERNEL_NODE_PARAMS_v2` and `_v3`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct KernelNodeV2 {
    pub(crate) first: KernelNode,
    /// A kernel of a library, in place of a function.
    pub(crate) kernel: u64,
    pub(crate) context: u64,
}

/// `CUDA_MEMSET_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct FillNode {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CallNode {
    pub(crate) function: Option<extern "C" fn(*mut c_void)>,
    pub(crate) data: u64,
}

/// `CUDA_MEMCPY_NODE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CopyNode {
    pub(crate) flags: i32,
    pub(crate) reserved: i32,
    pub(crate) context: u64,
    pub(crate) copy: Copy3d,
}

/// `CUgraphNodeParams` up to its union
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct NodeHead {
    pub(crate) kind: i32,
    pub(crate) reserved: [i32; 3],
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct InstantiateParameters {
    pub(crate) flags: u64,
    pub(crate) upload_stream: u64,
    pub(crate) error_node: u64,
    pub(crate) result: i32,
}

/// `CUipcMemHandle`: passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u64; 8]);

/// `CUDA_ARRAY_DESCRIPTOR_v1` and `CUDA_ARRAY3D_DESCRIPTOR_v1` have sizes of 32 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayDescriptionV1 {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) format: i32,
    pub(crate) channels: u32,
}

/// See [`ArrayDescriptionV1`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Array3dDescriptionV1 {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) depth: u32,
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayRequirements {
    pub(crate) bytes: u64,
    pub(crate) alignment: u64,
    pub(crate) reserved: [u32; 4],
}

/// `CUDA_RESOURCE_DESC`: what a texture or surface object shows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Resource {
    pub(crate) kind: i32,
    /// Of the first kinds a handle, of the others an address; then format and channels, sizes.
    pub(crate) words: [u64; 16],
    pub(crate) flags: u32,
}

/// `CUDA_TEXTURE_DESC`
pub(crate) type TextureDescription = [u32; 26];
/// `CUDA_RESOURCE_VIEW_DESC`
pub(crate) type ResourceView = [u64; 14];

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ExternalMemory {
    pub(crate) kind: i32,
    /// A file descriptor in its first half word, or what other kinds need.
    pub(crate) handle: [u64; 2],
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ExternalBuffer {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) reserved: [u32; 16],
}

/// `CUdevResource` of multiprocessors
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SmResource {
    /// `CUdevResourceType`: 1 for multiprocessors.
    pub(crate) kind: i32,
    pub(crate) padding: [u8; 92],
    pub(crate) sms: u32,
    pub(crate) least_part: u32,
    pub(crate) alignment: u32,
    pub(crate) spare: [u8; 36],
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
const _: () = assert!(size_of::<PoolProperties>() == 88);
const _: () = assert!(size_of::<AllocationNode>() == 120);
const _: () = assert!(size_of::<KernelNode>() == 56);
const _: () = assert!(size_of::<KernelNodeV2>() == 72);
const _: () = assert!(size_of::<FillNode>() == 40);
const _: () = assert!(size_of::<CopyNode>() == 216);
const _: () = assert!(size_of::<NodeHead>() == 16);
const _: () = assert!(size_of::<InstantiateParameters>() == 32);
const _: () = assert!(size_of::<IpcHandle>() == 64);
const _: () = assert!(size_of::<ArrayRequirements>() == 32);
const _: () = assert!(size_of::<Resource>() == 144);
const _: () = assert!(size_of::<TextureDescription>() == 104);
const _: () = assert!(size_of::<ResourceView>() == 112);
const _: () = assert!(size_of::<ExternalMemory>() == 104);
const _: () = assert!(size_of::<ExternalBuffer>() == 88);
const _: () = assert!(size_of::<SmResource>() == 144);
const _: () = assert!(size_of::<ArrayDescription>() == 24);
const _: () = assert!(size_of::<Array3dDescription>() == 40);
const _: () = assert!(size_of::<Copy2d>() == 128);
const _: () = assert!(size_of::<Copy3d>() == 200);
const _: () = assert!(size_of::<LaunchConfig>() == 56);
const _: () = assert!(size_of::<LegacyProperties>() == 56);
