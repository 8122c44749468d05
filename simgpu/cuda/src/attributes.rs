//! Device attributes: what does not differ between the simulated GPUs is fixed, the rest comes from the machine.

use crate::code::{Answer, Code};
use crate::process::Device;

/// Bytes of shared memory of one multiprocessor, by compute capability (CUDA C programming guide, table of technical
/// specifications).
pub(crate) fn shared_per_sm((major, minor): (i32, i32)) -> i32 {
    match (major, minor) {
        (8, 0 | 7) => 164 << 10,
        (8, _) => 100 << 10,
        (9.., _) => 228 << 10,
        _ => 96 << 10,
    }
}

/// Bytes of shared memory that the system keeps of each block.
const RESERVED_SHARED: i32 = 1 << 10;

/// `CU_DEVICE_ATTRIBUTE_*` by number.
pub(crate) fn of(device: &Device, attribute: i32) -> Answer<i32> {
    let info = &device.info;
    let number = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    let (major, minor) = info.compute;
    let shared = shared_per_sm(info.compute);
    Ok(match attribute {
        1 => 1024,         // threads per block
        2 | 3 => 1024,     // block x, y
        4 => 64,           // block z
        5 => i32::MAX,     // grid x
        6 | 7 => 65_535,   // grid y, z
        8 => 48 << 10,     // shared memory per block
        9 => 64 << 10,     // constant memory
        10 => 32,          // warp
        11 => i32::MAX,    // pitch
        12 | 82 => 65_536, // registers per block, per multiprocessor
        13 => number(info.clock_khz),
        14 | 30 => 512, // alignment of textures, of surfaces
        15 => 1,        // copies overlap kernels
        16 => number(info.sms),
        17 | 18 | 20 | 35 => 0,  // time limit, integrated, compute mode, TCC
        19 => 1,                 // maps host memory
        21 | 22 | 55 => 131_072, // 1D and 2D textures, 1D surfaces: width
        23 | 57 => 65_536,
        24..=26 => 16_384, // 3D textures
        27 | 28 | 45 | 46 | 70 | 71 => 32_768,
        29 | 43 | 62 | 65 => 2048, // layers
        31 | 32 => 1,              // kernels run side by side, ECC
        33 => number(info.pci_bus),
        34 => number(info.pci_device),
        36 => number(info.memory_clock_khz),
        37 => number(info.memory_bus_bits),
        38 => number(info.l2_bytes),
        39 => number(crate::costs::THREADS_PER_SM),
        40 => 3,      // copy engines
        41 | 44 => 1, // unified addresses, gather
        42 | 52 | 53 | 56 | 58..=61 | 63 | 64 | 66 | 67 | 73 | 74 | 77 => 32_768,
        47..=49 => 8192,
        50 => number(info.pci_domain),
        51 => 32,          // alignment of texture pitch
        54 | 68 => 2046,   // layers of cube maps
        69 => 268_435_456, // linear 1D texture
        72 => 2_097_120,   // pitch of a linear 2D texture
        75 => major,
        76 => minor,
        78..=80 => 1, // priorities, L1 for global and local memory
        81 => shared,
        83 => 1,           // managed memory
        84 | 86 | 88 => 0, // multi-GPU board, host atomics, pageable memory
        85 => 0,
        87 => 2,                  // single to double precision
        89..=91 => 1,             // managed at the same time, preemption, registered pointers
        92..=94 | 122 | 123 => 0, // stream memory operations are not modelled
        95 => 1,                  // cooperative launches
        96 => 0,                  // those over several devices
        97 => shared - RESERVED_SHARED,
        98 => 0,
        99 => 1, // registers host memory
        100 | 101 => 0,
        102 => 1,       // virtual memory management
        103 => 1,       // memory is exported as a descriptor
        104 | 105 => 0, // not by the ways of Windows
        106 => number(crate::costs::BLOCKS_PER_SM),
        107 | 110 | 112 | 114 => 0,
        108 | 109 => 0, // persisting L2
        111 => RESERVED_SHARED,
        113 => 1,
        115 => 1, // stream-ordered allocation
        // 119: pools are not exported.
        116..=121 | 124..=130 => 0,
        131 | 134 => -1, // no NUMA node
        132 | 133 | 135..=138 | 141..=147 => 0,
        139 | 140 => 0, // PCI ids are not modelled
        _ => return Err(Code::INVALID_VALUE),
    })
}
