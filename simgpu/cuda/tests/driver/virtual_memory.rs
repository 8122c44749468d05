//! Virtual memory management: bytes by reference.

use crate::bench::{MIB, on_slice, role};
use crate::calls::*;
use crate::{call, good};

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Properties {
    kind: i32,
    handles: i32,
    location: [i32; 2],
    win32: u64,
    flags: u64,
}

/// `CUmemAccessDesc`
#[repr(C)]
struct Access {
    location: [i32; 2],
    flags: i32,
}

const ON_DEVICE: Properties = Properties {
    kind: 1,
    handles: 0,
    location: [1, 0],
    win32: 0,
    flags: 0,
};
const ON_HOST: Properties = Properties {
    kind: 1,
    handles: 0,
    location: [2, 0],
    win32: 0,
    flags: 0,
};

#[test]
fn physical_memory_lives_while_it_is_held_or_mapped() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let charged = || start - driver.free_bytes();
    let (mut address, mut handle, mut same) = (0_u64, 0_u64, 0_u64);
    let mut granularity = 0_u64;
    good!(
        driver,
        cuMemGetAllocationGranularity,
        &mut granularity,
        &ON_DEVICE,
        0
    );
    assert_eq!(granularity, 2 * MIB);
    good!(
        driver,
        cuMemAddressReserve,
        &mut address,
        16 * MIB,
        0_u64,
        0_u64,
        0_u64
    );
    assert_eq!(charged(), 0, "addresses cost nothing");
    good!(driver, cuMemCreate, &mut handle, 4 * MIB, &ON_DEVICE, 0_u64);
    assert_eq!(charged(), 4 * MIB);
    good!(driver, cuMemMap, address, 4 * MIB, 0_u64, handle, 0_u64);
    good!(driver, cuMemMap, address + 4 * MIB, 4 * MIB, 0_u64, handle, 0_u64);
    assert_eq!(charged(), 4 * MIB, "mapped twice, there once");
    good!(driver, cuMemRelease, handle);
    assert_eq!(charged(), 4 * MIB, "the mappings hold it");
    assert_eq!(call!(driver, cuMemRelease, handle), INVALID_VALUE);
    good!(driver, cuMemUnmap, address, 4 * MIB);
    assert_eq!(charged(), 4 * MIB);
    good!(driver, cuMemRetainAllocationHandle, &mut same, address + 5 * MIB);
    assert_eq!(same, handle);
    let mut told = Properties::default();
    good!(driver, cuMemGetAllocationPropertiesFromHandle, &mut told, same);
    assert_eq!(told, ON_DEVICE);
    good!(driver, cuMemUnmap, address + 4 * MIB, 4 * MIB);
    assert_eq!(charged(), 4 * MIB, "the retained handle holds it");
    good!(driver, cuMemRelease, same);
    assert_eq!(charged(), 0);
    good!(driver, cuMemAddressFree, address, 16 * MIB);

    good!(driver, cuMemCreate, &mut handle, 4 * MIB, &ON_HOST, 0_u64);
    assert_eq!(charged(), 0, "host memory is not the device's");
    good!(driver, cuMemRelease, handle);
    assert_eq!(charged(), 0);
}

#[test]
fn mappings_are_usable_once_access_is_set_and_bad_ranges_are_refused() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let (mut address, mut first, mut second, mut odd) = (0_u64, 0_u64, 0_u64, 0_u64);
    good!(
        driver,
        cuMemAddressReserve,
        &mut address,
        8 * MIB,
        0_u64,
        0_u64,
        0_u64
    );
    assert_eq!(
        call!(
            driver,
            cuMemAddressReserve,
            &mut odd,
            3 * MIB,
            0_u64,
            0_u64,
            0_u64
        ),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemCreate, &mut odd, 3 * MIB, &ON_DEVICE, 0_u64),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemCreate, &mut odd, 0_u64, &ON_DEVICE, 0_u64),
        INVALID_VALUE
    );
    let free = driver.free_bytes().next_multiple_of(2 * MIB);
    assert_eq!(
        call!(driver, cuMemCreate, &mut odd, free + 2 * MIB, &ON_DEVICE, 0_u64),
        OUT_OF_MEMORY
    );
    good!(driver, cuMemCreate, &mut first, 4 * MIB, &ON_DEVICE, 0_u64);
    good!(driver, cuMemCreate, &mut second, 4 * MIB, &ON_DEVICE, 0_u64);
    good!(driver, cuMemMap, address, 4 * MIB, 0_u64, first, 0_u64);
    assert_eq!(
        call!(driver, cuMemMap, address, 4 * MIB, 0_u64, second, 0_u64),
        INVALID_VALUE
    );
    good!(driver, cuMemMap, address + 4 * MIB, 4 * MIB, 0_u64, second, 0_u64);
    assert_eq!(
        call!(driver, cuMemsetD8_v2, address, 0, 4096_u64),
        INVALID_VALUE,
        "no access yet"
    );
    let access = Access {
        location: [1, 0],
        flags: 3,
    };
    good!(driver, cuMemSetAccess, address, 8 * MIB, &access, 1_u64);
    good!(driver, cuMemsetD8_v2, address, 0, 8 * MIB);
    assert_eq!(
        call!(driver, cuMemsetD8_v2, address, 0, 8 * MIB + 1),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemUnmap, address + 2 * MIB, 2 * MIB),
        INVALID_VALUE,
        "a part of a mapping"
    );
    assert_eq!(
        call!(driver, cuMemAddressFree, address, 8 * MIB),
        INVALID_VALUE,
        "still mapped"
    );
    good!(driver, cuMemUnmap, address, 8 * MIB);
    assert_eq!(call!(driver, cuMemsetD8_v2, address, 0, 4096_u64), INVALID_VALUE);
    good!(driver, cuMemAddressFree, address, 8 * MIB);
    assert_eq!(call!(driver, cuMemAddressFree, address, 8 * MIB), INVALID_VALUE);
}
