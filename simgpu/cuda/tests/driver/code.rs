//! Modules, libraries and launches.

use crate::bench::{Bench, MIB, role};
use crate::calls::*;
use crate::{call, good};

#[test]
fn modules_know_their_kernels_and_variables() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let (mut module, mut function, mut same) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuModuleLoadData, &mut module, PTX);
    assert_eq!(
        start - driver.free_bytes(),
        2 * MIB,
        "the variable has its memory"
    );
    good!(driver, cuModuleGetFunction, &mut function, module, c"axpy");
    good!(driver, cuModuleGetFunction, &mut same, module, c"axpy");
    assert_eq!(function, same);
    assert_eq!(
        call!(driver, cuModuleGetFunction, &mut same, module, c"axp"),
        NOT_FOUND
    );
    let (mut address, mut bytes) = (0_u64, 0_u64);
    good!(
        driver,
        cuModuleGetGlobal_v2,
        &mut address,
        &mut bytes,
        module,
        c"table"
    );
    assert_eq!(bytes, 4096);
    good!(driver, cuMemcpyHtoD_v2, address, &[0_u8; 4096], 4096);
    assert_eq!(
        call!(driver, cuMemFree_v2, address),
        INVALID_VALUE,
        "it belongs to the module"
    );
    assert_eq!(
        call!(
            driver,
            cuModuleGetGlobal_v2,
            &mut address,
            &mut bytes,
            module,
            c"chair"
        ),
        NOT_FOUND
    );
    good!(driver, cuModuleUnload, module);
    assert_eq!(driver.free_bytes(), start);
    assert_eq!(call!(driver, cuModuleUnload, module), INVALID_HANDLE);
    let launched = call!(
        driver,
        cuLaunchKernel,
        function,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        0_u64,
        0_u64,
        0_u64
    );
    assert_eq!(launched, INVALID_HANDLE, "its module is gone");
    assert_eq!(
        call!(driver, cuModuleLoadData, &mut module, c"nonsense"),
        INVALID_PTX
    );
    assert_eq!(call!(driver, cuModuleLoadData, &mut module, 0_u64), INVALID_VALUE);
    let newer = c".version 8.7\n.target sm_100\n.entry k() { ret; }";
    assert_eq!(
        call!(driver, cuModuleLoadData, &mut module, newer),
        INVALID_PTX,
        "for a newer GPU"
    );
    assert_eq!(call!(driver, cuModuleLoad, &mut module, c"/nonexistent"), 301);

    // A fat binary: its names are taken as given, its variables as our runtime defines them.
    let fat = 0xBA55_ED50_u64;
    good!(driver, cuModuleLoadFatBinary, &mut module, &fat);
    good!(driver, cuModuleGetFunction, &mut function, module, c"any_name");
    assert_eq!(
        call!(
            driver,
            cuModuleGetGlobal_v2,
            &mut address,
            &mut bytes,
            module,
            c"v"
        ),
        NOT_FOUND
    );
    good!(driver, simgpuModuleGlobal, module, c"v", 3 * MIB);
    good!(
        driver,
        cuModuleGetGlobal_v2,
        &mut address,
        &mut bytes,
        module,
        c"v"
    );
    assert_eq!((bytes, start - driver.free_bytes()), (3 * MIB, 4 * MIB));
}

#[test]
fn a_kernel_of_a_library_is_launched_in_any_context() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let (mut library, mut kernel, mut first, mut second, mut context) = (0_u64, 0_u64, 0_u64, 0_u64, 0_u64);
    good!(
        driver,
        cuLibraryLoadData,
        &mut library,
        PTX,
        0_u64,
        0_u64,
        0,
        0_u64,
        0_u64,
        0
    );
    good!(driver, cuLibraryGetKernel, &mut kernel, library, c"axpy");
    assert_eq!(
        call!(driver, cuLibraryGetKernel, &mut first, library, c"none"),
        NOT_FOUND
    );
    good!(driver, cuKernelGetFunction, &mut first, kernel);
    good!(
        driver,
        cuLaunchKernel,
        kernel,
        1,
        1,
        1,
        32,
        1,
        1,
        0,
        0_u64,
        0_u64,
        0_u64
    );
    good!(driver, cuCtxCreate_v2, &mut context, 0, 0);
    good!(driver, cuKernelGetFunction, &mut second, kernel);
    assert_ne!(first, second, "one function in each context");
    good!(
        driver,
        cuLaunchKernel,
        kernel,
        1,
        1,
        1,
        32,
        1,
        1,
        0,
        0_u64,
        0_u64,
        0_u64
    );
    let in_other = call!(
        driver,
        cuLaunchKernel,
        first,
        1,
        1,
        1,
        32,
        1,
        1,
        0,
        0_u64,
        0_u64,
        0_u64
    );
    assert_eq!(in_other, INVALID_HANDLE);
    good!(driver, cuCtxSynchronize);
    good!(driver, cuLibraryUnload, library);
    assert_eq!(call!(driver, cuLibraryUnload, library), INVALID_HANDLE);
}

#[test]
fn a_launch_beyond_the_limits_is_an_invalid_value() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let function = driver.function(c"axpy");
    let launch = |grid: [u32; 3], block: [u32; 3], shared: u32| {
        let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
        call!(
            driver,
            cuLaunchKernel,
            function,
            gx,
            gy,
            gz,
            bx,
            by,
            bz,
            shared,
            0_u64,
            0_u64,
            0_u64
        )
    };
    assert_eq!(launch([1, 1, 1], [1024, 1, 1], 48 << 10), 0);
    for (grid, block, shared) in [
        ([0, 1, 1], [1, 1, 1], 0),
        ([1, 65_536, 1], [1, 1, 1], 0),
        ([1, 1, 65_536], [1, 1, 1], 0),
        ([1 << 31, 1, 1], [1, 1, 1], 0),
        ([1, 1, 1], [1025, 1, 1], 0),
        ([1, 1, 1], [32, 33, 1], 0),
        ([1, 1, 1], [1, 1, 65], 0),
        ([1, 1, 1], [1, 0, 1], 0),
        ([1, 1, 1], [1, 1, 1], (48 << 10) + 1),
    ] {
        assert_eq!(
            launch(grid, block, shared),
            INVALID_VALUE,
            "{grid:?} {block:?} {shared}"
        );
    }
    good!(driver, cuFuncSetAttribute, function, 8, 100 << 10);
    assert_eq!(launch([1, 1, 1], [1, 1, 1], 100 << 10), 0);
    assert_eq!(
        call!(driver, cuFuncSetAttribute, function, 8, 200 << 10),
        INVALID_VALUE
    );
    let bad = call!(
        driver,
        cuLaunchKernel,
        function,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        0x77_u64,
        0_u64,
        0_u64
    );
    assert_eq!(bad, INVALID_HANDLE, "no such stream");
    let cooperative = |blocks: u32| {
        call!(
            driver,
            cuLaunchCooperativeKernel,
            function,
            blocks,
            1,
            1,
            256,
            1,
            1,
            0,
            0_u64,
            0_u64
        )
    };
    assert_eq!(cooperative(8 * 108), 0);
    assert_eq!(
        cooperative(8 * 108 + 1),
        720,
        "not all blocks have room at the same time"
    );
    let (mut blocks, mut block, mut grid) = (0_i32, 0_i32, 0_i32);
    good!(
        driver,
        cuOccupancyMaxActiveBlocksPerMultiprocessor,
        &mut blocks,
        function,
        256,
        0_u64
    );
    assert_eq!(blocks, 8);
    good!(
        driver,
        cuOccupancyMaxPotentialBlockSize,
        &mut grid,
        &mut block,
        function,
        0_u64,
        0_u64,
        0
    );
    assert_eq!((grid, block), (2 * 108, 1024));
}
