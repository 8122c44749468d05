//! `cudaDeviceProp`, whose layout CUDA 13 changed: the function that fills it has another name in each
//! (`cudaGetDeviceProperties_v2` in 12, `cudaGetDeviceProperties` in 13), and here both exist.

use crate::context::ready;
use crate::device::runtime_version;
use crate::driver;
use crate::error::{Code, answer};
use std::ffi::{c_int, c_void};

/// One layout: the size of the structure, and which of a field's two offsets is its.
#[derive(Clone, Copy)]
struct Layout {
    bytes: usize,
    offset: fn(&Field) -> Option<usize>,
}

/// Of CUDA 12.9.
const LAYOUT_12: Layout = Layout {
    bytes: 1032,
    offset: |field| field.offset_12,
};
/// Of CUDA 13.0.
const LAYOUT_13: Layout = Layout {
    bytes: 1008,
    offset: |field| field.offset_13,
};

/// The name and UUID open the structure; the size of the memory stands at one place in both.
const NAME_BYTES: u16 = 256;
const UUID_AT: usize = 256;
const TOTAL_MEMORY_AT: usize = 288;

/// A number that the driver tells as a device attribute.
struct Field {
    offset_12: Option<usize>,
    offset_13: Option<usize>,
    /// 4 for an `int`, 8 for a `size_t`.
    width: usize,
    attribute: c_int,
}

const NONE: usize = usize::MAX;

const fn field(offset_12: usize, offset_13: usize, width: usize, attribute: c_int) -> Field {
    Field {
        offset_12: if offset_12 == NONE { None } else { Some(offset_12) },
        offset_13: if offset_13 == NONE { None } else { Some(offset_13) },
        width,
        attribute,
    }
}

/// Offsets in bytes in CUDA 12.9 and 13.0, width, attribute; from the headers of both.
const FIELDS: &[Field] = &[
    field(296, 296, 8, 8),    // sharedMemPerBlock
    field(304, 304, 4, 12),   // regsPerBlock
    field(308, 308, 4, 10),   // warpSize
    field(312, 312, 8, 11),   // memPitch
    field(320, 320, 4, 1),    // maxThreadsPerBlock
    field(324, 324, 4, 2),    // maxThreadsDim
    field(328, 328, 4, 3),    // maxThreadsDim
    field(332, 332, 4, 4),    // maxThreadsDim
    field(336, 336, 4, 5),    // maxGridSize
    field(340, 340, 4, 6),    // maxGridSize
    field(344, 344, 4, 7),    // maxGridSize
    field(352, 352, 8, 9),    // totalConstMem
    field(360, 360, 4, 75),   // major
    field(364, 364, 4, 76),   // minor
    field(368, 368, 8, 14),   // textureAlignment
    field(376, 376, 8, 51),   // texturePitchAlignment
    field(388, 384, 4, 16),   // multiProcessorCount
    field(396, 388, 4, 18),   // integrated
    field(400, 392, 4, 19),   // canMapHostMemory
    field(408, 396, 4, 21),   // maxTexture1D
    field(412, 400, 4, 77),   // maxTexture1DMipmap
    field(420, 404, 4, 22),   // maxTexture2D
    field(424, 408, 4, 23),   // maxTexture2D
    field(428, 412, 4, 73),   // maxTexture2DMipmap
    field(432, 416, 4, 74),   // maxTexture2DMipmap
    field(436, 420, 4, 70),   // maxTexture2DLinear
    field(440, 424, 4, 71),   // maxTexture2DLinear
    field(444, 428, 4, 72),   // maxTexture2DLinear
    field(456, 440, 4, 24),   // maxTexture3D
    field(460, 444, 4, 25),   // maxTexture3D
    field(464, 448, 4, 26),   // maxTexture3D
    field(512, 496, 4, 55),   // maxSurface1D
    field(516, 500, 4, 56),   // maxSurface2D
    field(520, 504, 4, 57),   // maxSurface2D
    field(524, 508, 4, 58),   // maxSurface3D
    field(528, 512, 4, 59),   // maxSurface3D
    field(532, 516, 4, 60),   // maxSurface3D
    field(568, 552, 8, 30),   // surfaceAlignment
    field(576, 560, 4, 31),   // concurrentKernels
    field(580, 564, 4, 32),   // ECCEnabled
    field(584, 568, 4, 33),   // pciBusID
    field(588, 572, 4, 34),   // pciDeviceID
    field(592, 576, 4, 50),   // pciDomainID
    field(596, 580, 4, 35),   // tccDriver
    field(600, 584, 4, 40),   // asyncEngineCount
    field(604, 588, 4, 41),   // unifiedAddressing
    field(612, 592, 4, 37),   // memoryBusWidth
    field(616, 596, 4, 38),   // l2CacheSize
    field(620, 600, 4, 108),  // persistingL2CacheMaxSize
    field(624, 604, 4, 39),   // maxThreadsPerMultiProcessor
    field(628, 608, 4, 78),   // streamPrioritiesSupported
    field(632, 612, 4, 79),   // globalL1CacheSupported
    field(636, 616, 4, 80),   // localL1CacheSupported
    field(640, 624, 8, 81),   // sharedMemPerMultiprocessor
    field(648, 632, 4, 82),   // regsPerMultiprocessor
    field(652, 636, 4, 83),   // managedMemory
    field(656, 640, 4, 84),   // isMultiGpuBoard
    field(660, 644, 4, 85),   // multiGpuBoardGroupID
    field(664, 648, 4, 86),   // hostNativeAtomicSupported
    field(672, 652, 4, 88),   // pageableMemoryAccess
    field(676, 656, 4, 89),   // concurrentManagedAccess
    field(680, 660, 4, 90),   // computePreemptionSupported
    field(684, 664, 4, 91),   // canUseHostPointerForRegisteredMem
    field(688, 668, 4, 95),   // cooperativeLaunch
    field(696, 672, 8, 97),   // sharedMemPerBlockOptin
    field(704, 680, 4, 100),  // pageableMemoryAccessUsesHostPageTables
    field(708, 684, 4, 101),  // directManagedMemAccessFromHost
    field(712, 688, 4, 106),  // maxBlocksPerMultiProcessor
    field(716, 692, 4, 109),  // accessPolicyMaxWindowSize
    field(720, 696, 8, 111),  // reservedSharedMemPerBlock
    field(728, 704, 4, 99),   // hostRegisterSupported
    field(732, 708, 4, 112),  // sparseCudaArraySupported
    field(736, 712, 4, 113),  // hostRegisterReadOnlySupported
    field(740, 716, 4, 114),  // timelineSemaphoreInteropSupported
    field(744, 720, 4, 115),  // memoryPoolsSupported
    field(748, 724, 4, 116),  // gpuDirectRDMASupported
    field(752, 728, 4, 117),  // gpuDirectRDMAFlushWritesOptions
    field(756, 732, 4, 118),  // gpuDirectRDMAWritesOrdering
    field(760, 736, 4, 119),  // memoryPoolSupportedHandleTypes
    field(764, 740, 4, 121),  // deferredMappingCudaArraySupported
    field(768, 744, 4, 125),  // ipcEventSupported
    field(772, 748, 4, 120),  // clusterLaunch
    field(NONE, 756, 4, 130), // deviceNumaConfig
    field(NONE, 760, 4, 131), // deviceNumaId
    field(NONE, 764, 4, 133), // mpsEnabled
    field(NONE, 768, 4, 134), // hostNumaId
    field(NONE, 772, 4, 139), // gpuPciDeviceID
    field(NONE, 776, 4, 140), // gpuPciSubsystemID
    field(NONE, 780, 4, 143), // hostNumaMultinodeIpcSupported
    field(348, NONE, 4, 13),  // clockRate
    field(384, NONE, 4, 15),  // deviceOverlap
    field(392, NONE, 4, 17),  // kernelExecTimeoutEnabled
    field(404, NONE, 4, 20),  // computeMode
    field(416, NONE, 4, 69),  // maxTexture1DLinear
    field(608, NONE, 4, 36),  // memoryClockRate
    field(668, NONE, 4, 87),  // singleToDoublePrecisionPerfRatio
    field(692, NONE, 4, 96),  // cooperativeMultiDeviceLaunch
];

/// Writes the low `width` bytes of an attribute at an offset.
fn put(structure: &mut [u8], offset: usize, width: usize, value: c_int) {
    // Attributes that fill a `size_t` are sizes: a negative one would be no size.
    let wide = u64::try_from(value).unwrap_or(0).to_le_bytes();
    let narrow = value.to_le_bytes();
    structure[offset..offset + width].copy_from_slice(if width == 8 { &wide } else { &narrow });
}

fn fill(layout: Layout, device: c_int) -> Result<Vec<u8>, Code> {
    let mut structure = vec![0; layout.bytes];
    // SAFETY: the structure opens with the name, of this length; the driver ends it with a zero.
    unsafe { driver::cuDeviceGetName(structure.as_mut_ptr().cast(), NAME_BYTES.into(), device) }?;
    let mut total = 0_usize;
    // SAFETY: the output is ours.
    unsafe { driver::cuDeviceTotalMem(&raw mut total, device) }?;
    structure[TOTAL_MEMORY_AT..TOTAL_MEMORY_AT + 8].copy_from_slice(&total.to_le_bytes());
    let mut uuid = [0_u8; 16];
    // SAFETY: the output is ours and of the 16 bytes that the driver writes.
    unsafe { driver::cuDeviceGetUuid(uuid.as_mut_ptr(), device) }?;
    structure[UUID_AT..UUID_AT + 16].copy_from_slice(&uuid);
    for field in FIELDS {
        let Some(offset) = (layout.offset)(field) else {
            continue;
        };
        let mut value = 0;
        // SAFETY: the output is ours. An attribute that an older driver does not know stays 0.
        let known = unsafe { driver::cuDeviceGetAttribute(&raw mut value, field.attribute, device) };
        put(
            &mut structure,
            offset,
            field.width,
            if known.is_ok() { value } else { 0 },
        );
    }
    Ok(structure)
}

/// Fills the caller's structure, which has the layout's size.
unsafe fn properties(layout: Layout, out: *mut c_void, device: c_int) -> c_int {
    answer(ready().and_then(|()| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let structure = fill(layout, device)?;
        // SAFETY: the caller's structure has this layout and size; the two do not overlap.
        unsafe {
            out.cast::<u8>()
                .copy_from_nonoverlapping(structure.as_ptr(), structure.len())
        };
        Ok(())
    }))
}

/// Under the version of CUDA 12 this name has the layout of CUDA 11, which is not modelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties(out: *mut c_void, device: c_int) -> c_int {
    if runtime_version() < 13_000 {
        return answer(Err(Code::NOT_SUPPORTED));
    }
    // SAFETY: a caller of this name was compiled with CUDA 13's header.
    unsafe { properties(LAYOUT_13, out, device) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceProperties_v2(out: *mut c_void, device: c_int) -> c_int {
    // SAFETY: a caller of this name was compiled with CUDA 12's header.
    unsafe { properties(LAYOUT_12, out, device) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of one attribute, 12 then 13.
    fn offsets(attribute: c_int) -> (Option<usize>, Option<usize>) {
        let field = FIELDS
            .iter()
            .find(|field| field.attribute == attribute)
            .expect("a known attribute");
        (field.offset_12, field.offset_13)
    }

    #[test]
    fn the_layouts_differ_where_cuda_13_removed_fields() {
        assert_eq!(offsets(75), (Some(360), Some(360))); // major
        assert_eq!(offsets(16), (Some(388), Some(384))); // multiProcessorCount
        assert_eq!(offsets(39), (Some(624), Some(604))); // maxThreadsPerMultiProcessor
        assert_eq!(offsets(13), (Some(348), None)); // clockRate
    }

    #[test]
    fn fields_are_aligned_apart_and_inside_the_structure() {
        for layout in [LAYOUT_12, LAYOUT_13] {
            let mut spans: Vec<_> = FIELDS
                .iter()
                .filter_map(|field| Some(((layout.offset)(field)?, field.width)))
                .collect();
            spans.sort_unstable();
            assert!(spans.iter().all(|(offset, width)| offset % width == 0));
            assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
            assert!(
                spans
                    .last()
                    .is_some_and(|(offset, width)| offset + width <= layout.bytes)
            );
        }
    }

    #[test]
    fn a_size_fills_eight_bytes_and_a_number_four() {
        let mut structure = [0xff_u8; 16];
        put(&mut structure, 0, 8, 49_152);
        put(&mut structure, 8, 4, 132);
        assert_eq!(structure[..8], 49_152_u64.to_le_bytes());
        assert_eq!(structure[8..12], 132_u32.to_le_bytes());
        assert_eq!(structure[12..], [0xff; 4]);
    }
}
