//! Allocations and what they are charged.

use crate::bench::{Bench, CONTEXT, MIB, ONE_G, on_slice, role, tell, wait_for_go};
use crate::calls::*;
use crate::{call, good};

#[test]
fn charges_come_in_steps_of_two_mebibytes() {
    if role().is_none() {
        let bench = Bench::new(1.0);
        let slice = bench.slice(ONE_G);
        let mut program = bench.program("program").on(&slice).start();
        let free: u64 = program.hears().unwrap().parse().unwrap();
        assert_eq!(bench.used(&slice), CONTEXT + 4 * MIB);
        assert_eq!(
            bench.machine.memory(0, Some(slice.device.slice.unwrap().gi)).free,
            free
        );
        program.go();
        program.ends_well();
        assert_eq!(bench.used(&slice), 0);
        return;
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let charged = || start - driver.free_bytes();
    let small: Vec<u64> = (0..100).map(|_| driver.allocate(1000)).collect();
    assert_eq!(charged(), 2 * MIB);
    let one = driver.allocate(MIB);
    assert_eq!(charged(), 4 * MIB);
    tell(&driver.free_bytes().to_string());
    wait_for_go();
    let three = driver.allocate(3 * MIB);
    let exact = driver.allocate(6 * MIB);
    let over = driver.allocate(6 * MIB + 1);
    assert_eq!(charged(), (4 + 4 + 6 + 8) * MIB);
    for address in [one, three, exact, over] {
        good!(driver, cuMemFree_v2, address);
    }
    assert_eq!(charged(), 2 * MIB);
    small
        .into_iter()
        .for_each(|address| good!(driver, cuMemFree_v2, address));
    assert_eq!(charged(), 0);
    let (mut address, mut pitch) = (0_u64, 0_u64);
    good!(
        driver,
        cuMemAllocPitch_v2,
        &mut address,
        &mut pitch,
        1000_u64,
        4096_u64,
        4
    );
    assert_eq!((pitch, charged()), (1024, 4 * MIB));
    assert_eq!(
        call!(
            driver,
            cuMemAllocPitch_v2,
            &mut address,
            &mut pitch,
            1000_u64,
            4_u64,
            5
        ),
        INVALID_VALUE
    );
}

#[test]
fn the_slice_is_a_hard_limit() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let free = driver.free_bytes();
    let mut address = 0_u64;
    assert_eq!(
        call!(driver, cuMemAlloc_v2, &mut address, free + 1),
        OUT_OF_MEMORY
    );
    assert_eq!(
        call!(driver, cuMemAlloc_v2, &mut address, u64::MAX),
        OUT_OF_MEMORY
    );
    assert_eq!(driver.free_bytes(), free, "what was refused is not charged");
    let all = driver.allocate(free / (2 * MIB) * 2 * MIB);
    assert_eq!(call!(driver, cuMemAlloc_v2, &mut address, 2 * MIB), OUT_OF_MEMORY);
    assert_eq!(
        call!(driver, cuMemAllocAsync, &mut address, 2 * MIB, 0_u64),
        OUT_OF_MEMORY
    );
    good!(driver, cuMemFree_v2, all);
    driver.allocate(2 * MIB);
    // Managed and pinned memory are host memory.
    let (mut managed, mut pinned) = (0_u64, 0_u64);
    let before = driver.free_bytes();
    good!(driver, cuMemAllocManaged, &mut managed, 64 * MIB, 1);
    good!(driver, cuMemHostAlloc, &mut pinned, 64 * MIB, 0);
    assert_eq!(driver.free_bytes(), before);
    good!(driver, cuMemsetD8_v2, managed, 7, 16 * MIB);
    let last = pointer(managed + 16 * MIB - 1);
    // SAFETY: managed memory is readable by the host.
    assert_eq!(unsafe { last.read() }, 7);
    good!(driver, cuMemFree_v2, managed);
    good!(driver, cuMemFreeHost, pinned);
}

#[test]
fn bad_frees_and_sizes_are_invalid_values() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let address = driver.allocate(4096);
    let mut other = 0_u64;
    assert!(address >= 1 << 47, "no host address");
    assert_eq!(call!(driver, cuMemFree_v2, address + 1), INVALID_VALUE);
    good!(driver, cuMemFree_v2, address);
    assert_eq!(call!(driver, cuMemFree_v2, address), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2, 0x1234_u64), INVALID_VALUE);
    good!(driver, cuMemFree_v2, 0_u64);
    assert_eq!(call!(driver, cuMemAlloc_v2, &mut other, 0_u64), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemAlloc_v2, 0_u64, 100), INVALID_VALUE);
    assert_eq!(
        call!(driver, cuMemAllocAsync, &mut other, 0_u64, 0_u64),
        INVALID_VALUE
    );
    assert_eq!(
        call!(driver, cuMemAllocManaged, &mut other, 100_u64, 0),
        INVALID_VALUE
    );
    let mut narrow = 0_u32;
    good!(driver, cuMemAlloc, &mut narrow, 3 << 20);
    good!(driver, cuMemFree, narrow);
    // Either pointer of cuMemGetInfo may be NULL.
    good!(driver, cuMemGetInfo_v2, &mut other, 0_u64);
    good!(driver, cuMemGetInfo_v2, 0_u64, &mut other);
}

#[test]
fn a_pointer_is_known_by_its_allocation() {
    if role().is_none() {
        Bench::of("a100-40gb", false, 1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::with_context();
    let address = driver.allocate(5000);
    let (mut base, mut bytes) = (0_u64, 0_u64);
    good!(
        driver,
        cuMemGetAddressRange_v2,
        &mut base,
        &mut bytes,
        address + 4999
    );
    assert_eq!((base, bytes), (address, 5000));
    assert_eq!(
        call!(
            driver,
            cuMemGetAddressRange_v2,
            &mut base,
            &mut bytes,
            address + 5000
        ),
        NOT_FOUND
    );
    let (mut kind, mut start) = (0_i32, 0_u64);
    good!(driver, cuPointerGetAttribute, &mut kind, 2, address + 10);
    good!(driver, cuPointerGetAttribute, &mut start, 11, address + 10);
    assert_eq!((kind, start), (2, address));
    let mut pinned = 0_u64;
    good!(driver, cuMemAllocHost_v2, &mut pinned, 100_u64);
    good!(driver, cuPointerGetAttribute, &mut kind, 2, pinned);
    assert_eq!(kind, 1);
    let stack = 5_u8;
    assert_eq!(
        call!(driver, cuPointerGetAttribute, &mut kind, 2, &stack),
        INVALID_VALUE
    );
    let wanted = [2_i32, 9];
    let mut device = 7_i32;
    let places = [(&mut kind).word(), (&mut device).word()];
    good!(driver, cuPointerGetAttributes, 2, &wanted, &places, &stack);
    assert_eq!(
        (kind, device),
        (0, -2),
        "of an unknown pointer the attributes are zero"
    );
}

#[test]
fn two_processes_share_one_slice_and_a_killed_one_gives_all_back() {
    match role().as_deref() {
        None => {
            let bench = Bench::new(1.0);
            let slice = bench.slice(ONE_G);
            let mut holder = bench.program("holder").on(&slice).start();
            holder.hears().unwrap();
            assert_eq!(bench.used(&slice), CONTEXT + 3000 * MIB);
            let mut asker = bench.program("asker").on(&slice).start();
            asker.hears().unwrap();
            holder.kill();
            asker.go();
            asker.ends_well();
            assert_eq!(bench.used(&slice), 0);
        }
        Some("holder") => {
            let driver = Driver::with_context();
            driver.allocate(3000 * MIB);
            tell("held");
            wait_for_go();
        }
        Some(_) => {
            let driver = Driver::with_context();
            let mut address = 0_u64;
            assert_eq!(
                call!(driver, cuMemAlloc_v2, &mut address, 3000 * MIB),
                OUT_OF_MEMORY
            );
            tell("refused");
            wait_for_go();
            driver.allocate(3000 * MIB);
        }
    }
}

#[test]
fn stream_ordered_memory_goes_back_when_the_stream_gets_there() {
    if role().is_none() {
        let bench = Bench::of("a100-40gb", false, 0.2);
        let costs = crate::timing::costs("slow = 5");
        bench
            .program("program")
            .set("SIMGPU_COSTS", costs.path().to_str().unwrap())
            .succeeds();
        return;
    }
    let driver = Driver::with_context();
    let (slow, stream, start) = (driver.function(c"slow"), driver.stream(0), driver.free_bytes());
    let mut address = 0_u64;
    good!(driver, cuMemAllocAsync, &mut address, 10 * MIB, stream);
    assert_eq!(start - driver.free_bytes(), 10 * MIB);
    driver.launch(slow, stream);
    good!(driver, cuMemFreeAsync, address, stream);
    assert_eq!(
        start - driver.free_bytes(),
        10 * MIB,
        "the kernel before it still runs"
    );
    assert_eq!(call!(driver, cuMemFreeAsync, address, stream), INVALID_VALUE);
    assert_eq!(call!(driver, cuMemFree_v2, address), INVALID_VALUE);
    good!(driver, cuStreamSynchronize, stream);
    assert_eq!(driver.free_bytes(), start);
    let mut pool = 0_u64;
    good!(driver, cuDeviceGetDefaultMemPool, &mut pool, 0);
    good!(
        driver,
        cuMemAllocFromPoolAsync,
        &mut address,
        10 * MIB,
        pool,
        stream
    );
    assert_eq!(
        call!(
            driver,
            cuMemAllocFromPoolAsync,
            &mut address,
            10 * MIB,
            99_u64,
            stream
        ),
        INVALID_VALUE
    );
    good!(driver, cuMemFree_v2, address);
    assert_eq!(driver.free_bytes(), start);
}
