//! Arrays of old, mipmapped arrays, textures, memory of other APIs, green contexts: what costs memory and what does
//! not.

use crate::bench::{Bench, MIB, on_slice, role};
use crate::calls::*;
use crate::{call, good};

/// `CUDA_ARRAY3D_DESCRIPTOR`: width, height, depth, format and channels, flags.
fn floats(width: u64, height: u64, depth: u64) -> [u64; 5] {
    [width, height, depth, 0x20 | 1 << 32, 0]
}

#[test]
fn a_mipmapped_array_is_charged_for_all_its_levels_once() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let charged = || start - driver.free_bytes();
    let (mut mipmap, mut level, mut array) = (0_u64, 0_u64, 0_u64);
    // 4 MiB, 1 MiB, 256 KiB of floats.
    good!(
        driver,
        cuMipmappedArrayCreate,
        &mut mipmap,
        &floats(1024, 1024, 0),
        3
    );
    assert_eq!(charged(), 6 * MIB);
    good!(driver, cuMipmappedArrayGetLevel, &mut level, mipmap, 2);
    let mut told = [0_u64; 5];
    good!(driver, cuArray3DGetDescriptor_v2, &mut told, level);
    told[4] &= u64::from(u32::MAX);
    assert_eq!(told, floats(256, 256, 0));
    assert_eq!(
        call!(driver, cuMipmappedArrayGetLevel, &mut level, mipmap, 3),
        INVALID_VALUE
    );
    assert_eq!(call!(driver, cuArrayDestroy, level), INVALID_HANDLE);
    let mut requirements = [0_u64; 4];
    good!(
        driver,
        cuMipmappedArrayGetMemoryRequirements,
        &mut requirements,
        mipmap,
        0
    );
    assert_eq!(requirements[0], 4 * (1024 * 1024 + 512 * 512 + 256 * 256));
    good!(driver, cuMipmappedArrayDestroy, mipmap);
    assert_eq!(
        (charged(), call!(driver, cuMipmappedArrayDestroy, mipmap)),
        (0, INVALID_HANDLE)
    );
    let old = [512_u32, 1024, 0x20, 2];
    good!(driver, cuArrayCreate, &mut array, &old);
    assert_eq!(charged(), 4 * MIB);
    let mut told = [0_u32; 4];
    good!(driver, cuArrayGetDescriptor, &mut told, array);
    assert_eq!(told, old);
    // CUDA_ARRAY3D_SPARSE
    let sparse = [64, 64, 64, 0x20 | 1 << 32, 0x40_u64];
    assert_eq!(
        call!(driver, cuArray3DCreate_v2, &mut level, &sparse),
        NOT_SUPPORTED
    );
    good!(driver, cuArrayDestroy, array);
    assert_eq!(charged(), 0);
}

#[test]
fn textures_and_surfaces_cost_nothing_and_show_what_is_there() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let (mut array, mut object, mut surface) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuArray3DCreate_v2, &mut array, &floats(64, 64, 0));
    let before = driver.free_bytes();
    let (mut resource, description) = ([0_u64; 18], [0_u32; 26]);
    resource[1] = array;
    good!(
        driver,
        cuTexObjectCreate,
        &mut object,
        &resource,
        &description,
        0_u64
    );
    good!(driver, cuSurfObjectCreate, &mut surface, &resource);
    let mut told = [0_u64; 18];
    good!(driver, cuTexObjectGetResourceDesc, &mut told, object);
    assert_eq!(told, resource);
    assert_eq!(driver.free_bytes(), before);
    good!(driver, cuTexObjectDestroy, object);
    good!(driver, cuSurfObjectDestroy, surface);
    assert_eq!(call!(driver, cuTexObjectDestroy, object), INVALID_VALUE);
    resource[1] = 99;
    let refused = call!(
        driver,
        cuTexObjectCreate,
        &mut object,
        &resource,
        &description,
        0_u64
    );
    assert_eq!(refused, INVALID_HANDLE);
    // Linear memory: kind 2; address, format and channels, bytes.
    let address = driver.allocate(4096);
    let mut linear = [0_u64; 18];
    linear[..4].copy_from_slice(&[2, address, 0x20 | 1 << 32, 4096]);
    good!(
        driver,
        cuTexObjectCreate,
        &mut object,
        &linear,
        &description,
        0_u64
    );
    linear[3] = 4097;
    let refused = call!(
        driver,
        cuTexObjectCreate,
        &mut object,
        &linear,
        &description,
        0_u64
    );
    assert_eq!(refused, INVALID_VALUE, "beyond its end");
}

#[test]
fn memory_of_other_apis_brings_no_bytes() {
    if role().is_none() {
        return on_slice(1.0);
    }
    use std::os::fd::IntoRawFd;
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let file = tempfile::tempfile().unwrap();
    file.set_len(8 * MIB).unwrap();
    let descriptor = file.into_raw_fd();
    let (mut memory, mut address) = (0_u64, 0_u64);
    let describe = |bytes: u64| {
        let mut description = [0_u64; 13];
        description[..4].copy_from_slice(&[1, u64::from(descriptor.unsigned_abs()), 0, bytes]);
        description
    };
    let refused = call!(driver, cuImportExternalMemory, &mut memory, &describe(9 * MIB));
    assert_eq!(refused, INVALID_VALUE, "larger than what is there");
    good!(driver, cuImportExternalMemory, &mut memory, &describe(8 * MIB));
    // SAFETY: only asks about a number.
    let open = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    assert_eq!(open, -1, "the driver closed it");
    let mut buffer = [0_u64; 11];
    buffer[..2].copy_from_slice(&[2 * MIB, 6 * MIB]);
    good!(
        driver,
        cuExternalMemoryGetMappedBuffer,
        &mut address,
        memory,
        &buffer
    );
    buffer[0] = 3 * MIB;
    let refused = call!(
        driver,
        cuExternalMemoryGetMappedBuffer,
        &mut memory,
        memory,
        &buffer
    );
    assert_eq!(refused, INVALID_VALUE);
    good!(driver, cuMemsetD8_v2, address, 0, 6 * MIB);
    assert_eq!(driver.free_bytes(), start);
    good!(driver, cuMemFree_v2, address);
    assert_eq!(driver.free_bytes(), start);
    good!(driver, cuDestroyExternalMemory, memory);
    assert_eq!(call!(driver, cuDestroyExternalMemory, memory), INVALID_HANDLE);
}

#[test]
fn a_green_context_runs_on_a_part_and_allocates_as_any_other() {
    if role().is_none() {
        let bench = Bench::of("a100-40gb", false, 0.05);
        bench.program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let (mut whole, mut rest, mut parts) = ([0_u32; 36], [0_u32; 36], [[0_u32; 36]; 2]);
    good!(driver, cuDeviceGetDevResource, 0, &mut whole, 1);
    assert_eq!((whole[0], whole[24]), (1, 108));
    let mut count = 2_u32;
    good!(
        driver,
        cuDevSmResourceSplitByCount,
        &mut parts,
        &mut count,
        &whole,
        &mut rest,
        0,
        30
    );
    assert_eq!((count, parts[0][24], parts[1][24], rest[24]), (2, 30, 30, 48));
    let (mut description, mut green, mut context) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuDevResourceGenerateDesc, &mut description, &parts, 1);
    assert_eq!(
        call!(driver, cuGreenCtxCreate, &mut green, description, 0, 0),
        INVALID_VALUE
    );
    let start = driver.free_bytes();
    good!(driver, cuGreenCtxCreate, &mut green, description, 0, 1);
    good!(driver, cuCtxFromGreenCtx, &mut context, green);
    good!(driver, cuCtxPushCurrent_v2, context);
    good!(driver, cuCtxGetDevResource, context, &mut whole, 1);
    assert_eq!(whole[24], 30);
    driver.allocate(4 * MIB);
    assert_eq!(start - driver.free_bytes(), 4 * MIB);
    let (mut stream, mut of) = (0_u64, 0_u64);
    good!(driver, cuGreenCtxStreamCreate, &mut stream, green, 1, 0);
    good!(driver, cuStreamGetGreenCtx, stream, &mut of);
    assert_eq!(of, green);
    let function = driver.function(c"axpy");
    driver.launch(function, stream);
    good!(driver, cuStreamSynchronize, stream);
    good!(driver, cuCtxPopCurrent_v2, &mut context);
    good!(driver, cuGreenCtxDestroy, green);
    assert_eq!(driver.free_bytes(), start);
    assert_eq!(call!(driver, cuGreenCtxDestroy, green), INVALID_HANDLE);
}
