//! Memory pools: what they reserve, keep and give back.

use crate::bench::{MIB, on_slice, role};
use crate::calls::*;
use crate::{call, good};

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Properties {
    kind: i32,
    handles: i32,
    location: [i32; 2],
    win32: u64,
    max_bytes: u64,
    usage: [u64; 7],
}

const ON_DEVICE: Properties = Properties {
    kind: 1,
    handles: 0,
    location: [1, 0],
    win32: 0,
    max_bytes: 0,
    usage: [0; 7],
};

const THRESHOLD: i32 = 4;
const RESERVED: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED: i32 = 7;
const USED_HIGH: i32 = 8;

fn attribute(driver: &Driver, pool: u64, attribute: i32) -> u64 {
    let mut value = 0_u64;
    good!(driver, cuMemPoolGetAttribute, pool, attribute, &mut value);
    value
}

#[test]
fn a_pool_keeps_what_is_freed_up_to_its_threshold() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let (stream, start) = (driver.stream(0), driver.free_bytes());
    let charged = || start - driver.free_bytes();
    let (mut pool, mut first, mut second) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuMemPoolCreate, &mut pool, &ON_DEVICE);
    assert_eq!(charged(), 0);
    good!(driver, cuMemPoolSetAttribute, pool, THRESHOLD, &(8 * MIB));
    for address in [&mut first, &mut second] {
        good!(driver, cuMemAllocFromPoolAsync, address, 6 * MIB, pool, stream);
    }
    assert_eq!(charged(), 12 * MIB);
    assert_eq!(attribute(&driver, pool, USED), 12 * MIB);
    let mut told = 0_u64;
    good!(driver, cuPointerGetAttribute, &mut told, 17, first);
    assert_eq!(told, pool, "the pool that a pointer is of");
    good!(driver, cuMemFreeAsync, first, stream);
    good!(driver, cuMemFreeAsync, second, stream);
    assert_eq!(charged(), 12 * MIB, "until a synchronisation the pool has it");
    assert_eq!(attribute(&driver, pool, USED), 0);
    good!(driver, cuMemAllocFromPoolAsync, &mut first, 6 * MIB, pool, stream);
    assert_eq!(charged(), 12 * MIB, "what it has is used again");
    good!(driver, cuMemFreeAsync, first, stream);
    good!(driver, cuStreamSynchronize, stream);
    assert_eq!(charged(), 12 * MIB, "with less it would be below the threshold");
    good!(driver, cuMemPoolTrimTo, pool, 6 * MIB);
    assert_eq!(
        (charged(), attribute(&driver, pool, RESERVED)),
        (6 * MIB, 6 * MIB)
    );
    assert_eq!(attribute(&driver, pool, RESERVED_HIGH), 12 * MIB);
    assert_eq!(attribute(&driver, pool, USED_HIGH), 12 * MIB);
    good!(driver, cuMemPoolSetAttribute, pool, USED_HIGH, &0_u64);
    assert_eq!(attribute(&driver, pool, USED_HIGH), 0);
    assert_eq!(
        call!(driver, cuMemPoolSetAttribute, pool, USED, &0_u64),
        INVALID_VALUE
    );
    good!(driver, cuMemPoolDestroy, pool);
    assert_eq!(charged(), 0);
    let mut value = 0_u64;
    assert_eq!(
        call!(driver, cuMemPoolGetAttribute, pool, USED, &mut value),
        INVALID_VALUE
    );
}

#[test]
fn a_device_allocates_from_the_pool_that_was_set() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let (mut own, mut pool, mut current, mut address) = (0_u64, 0_u64, 0_u64, 0_u64);
    good!(driver, cuDeviceGetDefaultMemPool, &mut own, 0);
    good!(driver, cuMemPoolCreate, &mut pool, &ON_DEVICE);
    good!(driver, cuDeviceSetMemPool, 0, pool);
    good!(driver, cuDeviceGetMemPool, &mut current, 0);
    assert_eq!(current, pool);
    good!(driver, cuMemAllocAsync, &mut address, 100_u64, 0_u64);
    assert_eq!(attribute(&driver, pool, RESERVED), 2 * MIB);
    assert_eq!(attribute(&driver, own, RESERVED), 0);
    good!(driver, cuMemPoolDestroy, pool);
    good!(driver, cuDeviceGetMemPool, &mut current, 0);
    assert_eq!(current, own);
    let start = driver.free_bytes();
    good!(driver, cuMemFreeAsync, address, 0_u64);
    good!(driver, cuCtxSynchronize);
    assert_eq!(
        driver.free_bytes() - start,
        2 * MIB,
        "the pool went with its last allocation"
    );
    assert_eq!(call!(driver, cuMemPoolDestroy, own), INVALID_VALUE);
    let location = [1_i32, 0];
    good!(driver, cuMemGetDefaultMemPool, &mut current, &location, 1);
    assert_eq!(current, own);
    let mut flags = 9_i32;
    good!(driver, cuMemPoolGetAccess, &mut flags, own, &location);
    assert_eq!(flags, 3);
}

#[test]
fn what_other_pools_keep_makes_room() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let (mut pool, mut limited, mut address) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuMemPoolCreate, &mut pool, &ON_DEVICE);
    good!(driver, cuMemPoolSetAttribute, pool, THRESHOLD, &u64::MAX);
    let most = driver.free_bytes() / (2 * MIB) * 2 * MIB;
    good!(driver, cuMemAllocFromPoolAsync, &mut address, most, pool, 0_u64);
    good!(driver, cuMemFreeAsync, address, 0_u64);
    good!(driver, cuCtxSynchronize);
    assert!(driver.free_bytes() < 2 * MIB);
    assert_eq!(call!(driver, cuMemAlloc_v2, &mut address, 2 * MIB), OUT_OF_MEMORY);
    good!(driver, cuMemAllocAsync, &mut address, 2 * MIB, 0_u64);
    let properties = Properties {
        max_bytes: 4 * MIB,
        ..ON_DEVICE
    };
    good!(driver, cuMemPoolCreate, &mut limited, &properties);
    good!(
        driver,
        cuMemAllocFromPoolAsync,
        &mut address,
        4 * MIB,
        limited,
        0_u64
    );
    let more = call!(
        driver,
        cuMemAllocFromPoolAsync,
        &mut address,
        1_u64,
        limited,
        0_u64
    );
    assert_eq!(more, OUT_OF_MEMORY);
    for properties in [
        Properties {
            handles: 1,
            ..ON_DEVICE
        },
        Properties {
            location: [2, 0],
            ..ON_DEVICE
        },
    ] {
        assert_eq!(
            call!(driver, cuMemPoolCreate, &mut pool, &properties),
            NOT_SUPPORTED
        );
    }
}
