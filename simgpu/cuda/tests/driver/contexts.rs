//! Devices, contexts, forks.

use crate::bench::{self, Bench, CONTEXT, MIB, ONE_G, TWO_G, role, tell, wait_for_go};
use crate::calls::*;
use crate::{call, good};

#[test]
fn a_slice_is_a_device_with_its_own_name_uuid_and_size() {
    if role().is_none() {
        let bench = Bench::new(1.0);
        bench.slice(TWO_G);
        let slice = bench.slice(ONE_G);
        let mut program = bench.program("program").on(&slice).start();
        assert_eq!(program.hears().unwrap(), format!("{:?}", slice.uuid));
        assert_eq!(
            program.hears().unwrap(),
            format!("{:?}", bench.machine.gpu_uuid(0).unwrap())
        );
        program.ends_well();
        return;
    }
    let driver = Driver::load();
    good!(driver, cuInit, 0);
    let mut count = 0_i32;
    good!(driver, cuDeviceGetCount, &mut count);
    assert_eq!(count, 1);
    let mut name = [b'x'; 64];
    good!(driver, cuDeviceGetName, &mut name, 64, 0);
    let text = std::ffi::CStr::from_bytes_until_nul(&name)
        .unwrap()
        .to_str()
        .unwrap();
    assert!(text.ends_with("MIG 1g.5gb"), "{text}");
    good!(driver, cuDeviceGetName, &mut name, 4, 0);
    assert_eq!(name[3], 0, "a name that does not fit is cut and ended");
    let (mut slice, mut gpu) = ([0_u8; 16], [0_u8; 16]);
    good!(driver, cuDeviceGetUuid_v2, &mut slice, 0);
    good!(driver, cuDeviceGetUuid, &mut gpu, 0);
    tell(&format!("{slice:?}"));
    tell(&format!("{gpu:?}"));
    let mut value = 0_i32;
    for (attribute, expected) in [
        (16, 14),
        (75, 8),
        (76, 0),
        (1, 1024),
        (10, 32),
        (102, 1),
        (81, 164 << 10),
    ] {
        good!(driver, cuDeviceGetAttribute, &mut value, attribute, 0);
        assert_eq!(value, expected, "attribute {attribute}");
    }
    assert_eq!(
        call!(driver, cuDeviceGetAttribute, &mut value, 9999, 0),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuDeviceGetAttribute, &mut value, 0, 0),
        INVALID_VALUE
    );
    let mut total = 0_u64;
    good!(driver, cuDeviceTotalMem_v2, &mut total, 0);
    assert!((4700 * MIB..5200 * MIB).contains(&total), "{total}");
    let mut id = [0_u8; 16];
    good!(driver, cuDeviceGetPCIBusId, &mut id, 16, 0);
    let mut device = 9_i32;
    good!(driver, cuDeviceGetByPCIBusId, &mut device, &id);
    assert_eq!(device, 0);
    assert_eq!(call!(driver, cuDeviceGet, &mut device, 1), 101);
}

#[test]
fn a_context_is_charged_while_the_process_has_one() {
    if role().is_none() {
        let bench = Bench::new(1.0);
        let slice = bench.slice(ONE_G);
        let mut program = bench.program("program").on(&slice).start();
        for expected in [0, CONTEXT, CONTEXT, CONTEXT, 0] {
            program.hears().unwrap();
            assert_eq!(bench.used(&slice), expected);
            program.go();
        }
        program.ends_well();
        let program = bench
            .program("program")
            .on(&slice)
            .set("SIMGPU_CONTEXT_BYTES", "6000000000");
        let mut program = program.start();
        program.hears().unwrap();
        program.go();
        assert_eq!(program.hears().unwrap(), "out of memory");
        program.ends_well();
        return;
    }
    let step = |what: &str| {
        tell(what);
        wait_for_go();
    };
    let driver = Driver::load();
    good!(driver, cuInit, 0);
    step("no context");
    let (mut primary, mut same, mut own) = (0_u64, 0_u64, 0_u64);
    if call!(driver, cuDevicePrimaryCtxRetain, &mut primary, 0) == OUT_OF_MEMORY {
        return tell("out of memory");
    }
    good!(driver, cuDevicePrimaryCtxRetain, &mut same, 0);
    assert_eq!(primary, same);
    step("primary");
    good!(driver, cuCtxCreate_v2, &mut own, 0, 0);
    step("a second one is not charged again");
    good!(driver, cuDevicePrimaryCtxRelease_v2, 0);
    good!(driver, cuDevicePrimaryCtxRelease_v2, 0);
    assert_eq!(call!(driver, cuDevicePrimaryCtxRelease_v2, 0), INVALID_CONTEXT);
    step("one is left");
    good!(driver, cuCtxDestroy_v2, own);
    step("none is left");
}

#[test]
fn each_thread_has_its_own_stack_of_contexts() {
    if role().is_none() {
        let bench = Bench::of("a100-40gb", false, 1.0);
        bench.program("program").succeeds();
        return;
    }
    let driver = Driver::load();
    good!(driver, cuInit, 0);
    let (mut a, mut b, mut found) = (0_u64, 0_u64, 0_u64);
    good!(driver, cuCtxCreate_v2, &mut a, 0, 0);
    good!(driver, cuCtxCreate_v2, &mut b, 0, 0);
    good!(driver, cuCtxGetCurrent, &mut found);
    assert_eq!(found, b);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut found, mut address) = (9_u64, 0_u64);
            good!(driver, cuCtxGetCurrent, &mut found);
            assert_eq!(found, 0);
            assert_eq!(call!(driver, cuMemAlloc_v2, &mut address, 100), INVALID_CONTEXT);
            good!(driver, cuCtxSetCurrent, a);
            good!(driver, cuMemAlloc_v2, &mut address, 100);
        });
    });
    good!(driver, cuCtxPopCurrent_v2, &mut found);
    assert_eq!(found, b);
    good!(driver, cuCtxPopCurrent_v2, &mut found);
    assert_eq!(found, a);
    assert_eq!(call!(driver, cuCtxPopCurrent_v2, &mut found), INVALID_CONTEXT);
    good!(driver, cuCtxPushCurrent_v2, a);
    let mut version = 0_u32;
    good!(driver, cuCtxGetApiVersion, 0_u64, &mut version);
    assert_eq!(version, 3020);
    std::thread::scope(|scope| {
        scope.spawn(|| good!(driver, cuCtxDestroy_v2, a));
    });
    assert_eq!(call!(driver, cuCtxSynchronize), CONTEXT_IS_DESTROYED);
    assert_eq!(call!(driver, cuCtxSetCurrent, a), INVALID_CONTEXT);
}

#[test]
fn the_four_ways_to_create_a_context_and_two_to_synchronize_have_their_own_arguments() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::load();
    good!(driver, cuInit, 0);
    let mut context = 0_u64;
    good!(driver, cuCtxCreate, &mut context, 0, 0);
    good!(driver, cuCtxCreate_v3, &mut context, 0_u64, 0, 0, 0);
    good!(driver, cuCtxCreate_v4, &mut context, 0_u64, 0, 0);
    good!(driver, cuCtxSynchronize_v2, context);
    good!(driver, cuCtxSynchronize_v2, 0_u64);
    assert_eq!(call!(driver, cuCtxSynchronize_v2, 0x77_u64), INVALID_CONTEXT);
    let mut device = 9_i32;
    good!(driver, cuCtxGetDevice_v2, &mut device, context);
    assert_eq!(device, 0);
    assert_eq!(call!(driver, cuCtxCreate_v2, &mut context, 0, 3), 101);
    assert_eq!(call!(driver, cuCtxCreate_v2, 0_u64, 0, 0), INVALID_VALUE);
    let mut value = 0_usize;
    good!(driver, cuCtxSetLimit, 2, 77_usize);
    good!(driver, cuCtxGetLimit, &mut value, 2);
    assert_eq!(value, 77);
}

#[test]
fn a_child_forked_after_cu_init_is_not_initialised_and_one_forked_before_is_free() {
    if role().is_none() {
        let bench = Bench::of("a100-40gb", false, 1.0);
        bench.program("program").succeeds();
        assert_eq!(bench.machine.processes(0), []);
        return;
    }
    let in_child = |check: &dyn Fn() -> bool| {
        // SAFETY: the child makes only calls that are checked here, and ends without running anything else.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child at once.
            0 => unsafe { libc::_exit(i32::from(!check())) },
            child => {
                let mut status = 0;
                // SAFETY: waits for the child made above.
                unsafe { libc::waitpid(child, &mut status, 0) };
                assert_eq!(status, 0);
            }
        }
    };
    let driver = Driver::load();
    in_child(&|| {
        let mut context = 0_u64;
        call!(driver, cuInit, 0) == 0 && call!(driver, cuCtxCreate_v2, &mut context, 0, 0) == 0
    });
    good!(driver, cuInit, 0);
    let mut context = 0_u64;
    good!(driver, cuCtxCreate_v2, &mut context, 0, 0);
    let address = driver.allocate(5 * MIB);
    let before = driver.free_bytes();
    in_child(&|| {
        let mut other = 0_u64;
        call!(driver, cuInit, 0) == NOT_INITIALIZED
            && call!(driver, cuMemAlloc_v2, &mut other, 100) == NOT_INITIALIZED
            && call!(driver, cuMemFree_v2, address) == NOT_INITIALIZED
            && call!(driver, cuCtxSynchronize) == NOT_INITIALIZED
    });
    assert_eq!(driver.free_bytes(), before);
    good!(driver, cuMemFree_v2, address);
    assert!(bench::role().is_some());
}

#[test]
fn a_context_takes_all_that_is_in_it_with_it() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let mut keeper = 0_u64;
    good!(driver, cuCtxGetCurrent, &mut keeper);
    let start = driver.free_bytes();
    let mut context = 0_u64;
    good!(driver, cuCtxCreate_v2, &mut context, 0, 0);
    let (address, stream, event) = (driver.allocate(10 * MIB), driver.stream(0), driver.event());
    let (small, function) = (driver.allocate(10), driver.function(c"axpy"));
    driver.launch(function, stream);
    good!(driver, cuCtxPushCurrent_v2, keeper);
    assert_eq!(
        call!(driver, cuEventRecord, event, 0_u64),
        INVALID_HANDLE,
        "a stream of another context"
    );
    good!(driver, cuCtxPopCurrent_v2, 0_u64);
    assert_eq!(start - driver.free_bytes(), 12 * MIB);
    good!(driver, cuCtxDestroy_v2, context);
    good!(driver, cuCtxSetCurrent, keeper);
    assert_eq!(driver.free_bytes(), start);
    assert_eq!(call!(driver, cuMemFree_v2, address), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2, small), INVALID_VALUE);
    assert_eq!(call!(driver, cuStreamSynchronize, stream), INVALID_HANDLE);
    assert_eq!(call!(driver, cuEventSynchronize, event), INVALID_HANDLE);
    assert_eq!(call!(driver, cuCtxDestroy_v2, context), INVALID_CONTEXT);
}

#[test]
fn a_primary_context_made_again_after_a_reset_is_the_one_that_threads_have() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::load();
    good!(driver, cuInit, 0);
    let (mut context, mut again, mut flags, mut active) = (0_u64, 0_u64, 0_u32, 9_i32);
    good!(driver, cuDevicePrimaryCtxGetState, 0, &mut flags, &mut active);
    assert_eq!(active, 0);
    good!(driver, cuDevicePrimaryCtxRetain, &mut context, 0);
    good!(driver, cuCtxSetCurrent, context);
    // The thread's own default stream goes with the context as well.
    let (address, own_stream) = (driver.allocate(100), 2_u64);
    good!(driver, cuMemsetD8Async, address, 0, 100_u64, own_stream);
    good!(driver, cuDevicePrimaryCtxReset_v2, 0);
    assert_eq!(call!(driver, cuCtxSynchronize), CONTEXT_IS_DESTROYED);
    good!(driver, cuDevicePrimaryCtxRetain, &mut again, 0);
    assert_eq!(again, context);
    assert_eq!(call!(driver, cuMemFree_v2, address), INVALID_VALUE);
    let address = driver.allocate(100);
    good!(driver, cuMemsetD8Async, address, 0, 100_u64, own_stream);
    good!(driver, cuCtxSynchronize);
    assert_eq!(
        call!(driver, cuCtxDestroy_v2, context),
        INVALID_CONTEXT,
        "it is not the program's to destroy"
    );
}

#[test]
fn a_context_size_that_is_no_number_is_refused_by_name() {
    if role().is_none() {
        let bench = Bench::of("a100-40gb", false, 1.0);
        let err = bench
            .program("program")
            .set("SIMGPU_CONTEXT_BYTES", "lots")
            .succeeds();
        assert_eq!(
            err,
            "simgpu: SIMGPU_CONTEXT_BYTES=lots: not a number that it can be\n"
        );
        return;
    }
    assert_eq!(call!(Driver::load(), cuInit, 0), INVALID_VALUE);
}
