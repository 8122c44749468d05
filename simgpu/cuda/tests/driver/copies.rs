//! Copies, fills and arrays are checked against what is live.

use crate::bench::{Bench, MIB, role};
use crate::calls::*;
use crate::{call, good};

/// `CUDA_MEMCPY2D`: x, y, memory, host, device, array, pitch of each end; width, height.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Copy2d {
    source: [u64; 7],
    destination: [u64; 7],
    width: u64,
    height: u64,
}

const HOST: u64 = 1;
const DEVICE: u64 = 2;
const ARRAY: u64 = 3;

#[test]
fn what_leaves_the_device_is_zeros_and_what_leaves_an_allocation_is_refused() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let address = driver.allocate(1000);
    let mut bytes = [9_u8; 1000];
    good!(driver, cuMemcpyHtoD_v2, address, &bytes, 1000);
    good!(driver, cuMemcpyDtoH_v2, &mut bytes, address + 10, 500);
    assert!(bytes[..500].iter().all(|&byte| byte == 0) && bytes[500..].iter().all(|&byte| byte == 9));
    assert_eq!(
        call!(driver, cuMemcpyHtoD_v2, address, &bytes, 1001),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemcpyHtoD_v2, address + 1, &bytes, 1000),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemcpyDtoH_v2, &mut bytes, address + 1000, 1),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemcpyHtoD_v2, &bytes, &bytes, 10),
        INVALID_VALUE,
        "no device address"
    );
    assert_eq!(call!(driver, cuMemcpyHtoD_v2, address, 0_u64, 10), INVALID_VALUE);
    assert_eq!(
        call!(driver, cuMemcpyDtoD_v2, address, address + 500, 501),
        INVALID_VALUE
    );
    good!(driver, cuMemcpyDtoD_v2, address, address + 500, 500);
    good!(driver, cuMemcpyHtoD_v2, 5_u64, 0_u64, 0);
    assert_eq!(call!(driver, cuMemsetD32_v2, address, 0, 251), INVALID_VALUE);
    assert_eq!(
        call!(driver, cuMemsetD32_v2, address + 2, 0, 1),
        INVALID_VALUE,
        "not aligned"
    );
    good!(driver, cuMemsetD32_v2, address, 0, 250);
    assert_eq!(
        call!(driver, cuMemsetD2D8_v2, address, 100_u64, 0, 101_u64, 3_u64),
        INVALID_VALUE
    );
    good!(driver, cuMemsetD2D8_v2, address, 100_u64, 0, 100_u64, 10_u64);
    assert_eq!(
        call!(driver, cuMemsetD2D8_v2, address, 100_u64, 0, 100_u64, 11_u64),
        INVALID_VALUE
    );

    // Addresses are unified; what stays on the host is really copied.
    let (from, mut to) = ([3_u8; 64], [0_u8; 64]);
    good!(driver, cuMemcpy, &mut to, &from, 64);
    assert_eq!(to, from);
    good!(driver, cuMemcpy, address, &from, 64);
    good!(driver, cuMemcpy, &mut to, address, 64);
    assert_eq!(to, [0; 64]);
    let mut managed = 0_u64;
    good!(driver, cuMemAllocManaged, &mut managed, 64_u64, 1);
    good!(driver, cuMemcpyHtoD_v2, managed, &from, 64);
    good!(driver, cuMemcpyDtoH_v2, &mut to, managed, 64);
    assert_eq!(to, from);
    good!(driver, cuMemFree_v2, address);
    assert_eq!(
        call!(driver, cuMemcpyHtoD_v2, address, &from, 10),
        INVALID_VALUE,
        "freed"
    );
}

#[test]
fn copies_of_planes_keep_to_their_pitch() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let address = driver.allocate(4096);
    let mut host = [[7_u8; 16]; 8];
    let mut copy = Copy2d {
        source: [0, 0, DEVICE, 0, address, 0, 512],
        destination: [4, 2, HOST, Argument::word(&mut host), 0, 0, 16],
        width: 8,
        height: 3,
    };
    good!(driver, cuMemcpy2D_v2, &copy);
    for (y, row) in host.iter().enumerate() {
        for (x, &byte) in row.iter().enumerate() {
            let inside = (4..12).contains(&x) && (2..5).contains(&y);
            assert_eq!(byte, if inside { 0 } else { 7 }, "row {y}, column {x}");
        }
    }
    copy.height = 9;
    assert_eq!(
        call!(driver, cuMemcpy2D_v2, &copy),
        INVALID_VALUE,
        "beyond the allocation"
    );
    copy.height = 3;
    copy.source[6] = 4;
    assert_eq!(
        call!(driver, cuMemcpy2D_v2, &copy),
        INVALID_VALUE,
        "a pitch below the width"
    );
    copy.source[2] = 9;
    assert_eq!(
        call!(driver, cuMemcpy2D_v2, &copy),
        INVALID_VALUE,
        "no kind of memory"
    );
}

#[test]
fn arrays_are_counted_in_bytes_and_a_missing_dimension_as_one() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    #[repr(C)]
    struct Description {
        sizes: [usize; 2],
        format: i32,
        channels: u32,
    }
    #[repr(C)]
    struct Description3d {
        sizes: [usize; 3],
        format: i32,
        channels: u32,
        flags: u32,
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let mut array = 0_u64;
    // 1024 x 1024 of two channels of 32-bit floats: 8 MiB.
    let description = Description {
        sizes: [1024, 1024],
        format: 0x20,
        channels: 2,
    };
    good!(driver, cuArrayCreate_v2, &mut array, &description);
    assert_eq!(start - driver.free_bytes(), 8 * MIB);
    let host = [1_u8; 1024];
    good!(driver, cuMemcpyHtoA_v2, array, 0_u64, &host, 1024_u64);
    let row = 1024 * 8;
    assert_eq!(
        call!(driver, cuMemcpyHtoA_v2, array, row - 1023, &host, 1024_u64),
        INVALID_VALUE
    );
    let mut copy = Copy2d {
        source: [0, 0, HOST, Argument::word(&host), 0, 0, 32],
        destination: [0, 1000, ARRAY, 0, 0, array, 0],
        width: 32,
        height: 24,
    };
    good!(driver, cuMemcpy2D_v2, &copy);
    copy.height = 25;
    assert_eq!(
        call!(driver, cuMemcpy2D_v2, &copy),
        INVALID_VALUE,
        "beyond the last row"
    );
    good!(driver, cuArrayDestroy, array);
    assert_eq!(call!(driver, cuArrayDestroy, array), INVALID_HANDLE);
    assert_eq!(driver.free_bytes(), start);
    let flat = Description3d {
        sizes: [4 << 20, 0, 0],
        format: 1,
        channels: 1,
        flags: 0,
    };
    good!(driver, cuArray3DCreate_v2, &mut array, &flat);
    assert_eq!(start - driver.free_bytes(), 4 * MIB);
    good!(driver, cuArrayDestroy, array);
    for (format, channels) in [(0x20, 3), (0x77, 1)] {
        let bad = Description {
            sizes: [16, 16],
            format,
            channels,
        };
        assert_eq!(call!(driver, cuArrayCreate_v2, &mut array, &bad), INVALID_VALUE);
    }
}
