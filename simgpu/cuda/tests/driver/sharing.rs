//! Memory between processes.

use crate::bench::{Bench, CONTEXT, MIB, ONE_G, on_slice, role, tell, wait_for_go};
use crate::calls::*;
use crate::{call, good};

/// `CUipcMemHandle`, as text between the processes.
fn text(handle: [u64; 8]) -> String {
    handle.map(|word| format!("{word:x}")).join(",")
}

fn parse(text: &str) -> [u64; 8] {
    let words: Vec<_> = text
        .split(',')
        .map(|word| u64::from_str_radix(word, 16).unwrap())
        .collect();
    words.try_into().unwrap()
}

/// A structure of 64 bytes goes by value: on the stack.
fn open(driver: &Driver, address: &mut u64, handle: [u64; 8], flags: u32) -> i32 {
    #[repr(C)]
    struct Handle([u64; 8]);
    type Open = extern "C" fn(*mut u64, Handle, u32) -> i32;
    let function = pointer(driver.address("cuIpcOpenMemHandle_v2").unwrap());
    // SAFETY: the driver API declares it so.
    let function: Open = unsafe { std::mem::transmute(function) };
    function(address, Handle(handle), flags)
}

#[test]
fn the_exporter_pays_until_it_goes_and_then_who_still_has_it_open() {
    match role().as_deref() {
        None => {
            let bench = Bench::new(1.0);
            let slice = bench.slice(ONE_G);
            let mut exporter = bench.program("exporter").on(&slice).start();
            let handle = exporter.hears().unwrap();
            let mut importer = bench
                .program("importer")
                .on(&slice)
                .set("HANDLE", &handle)
                .start();
            assert_eq!(importer.hears().unwrap(), "open");
            let of = |pid: u32| {
                let all = bench.machine.processes(0);
                all.iter().find(|one| one.pid == pid).map(|one| one.bytes)
            };
            assert_eq!(bench.used(&slice), 2 * CONTEXT + 6 * MIB, "once");
            assert_eq!(of(exporter.pid()), Some(CONTEXT + 6 * MIB));
            assert_eq!(of(importer.pid()), Some(CONTEXT));
            exporter.kill();
            assert_eq!(bench.used(&slice), CONTEXT + 6 * MIB);
            assert_eq!(of(importer.pid()), Some(CONTEXT + 6 * MIB));
            importer.go();
            assert_eq!(importer.hears().unwrap(), "closed");
            assert_eq!(bench.used(&slice), CONTEXT);
            importer.go();
            importer.ends_well();
        }
        Some("exporter") => {
            let driver = Driver::with_context();
            let address = driver.allocate(5 * MIB);
            let mut handle = [0_u64; 8];
            good!(driver, cuIpcGetMemHandle, &mut handle, address);
            let mut again = [0_u64; 8];
            good!(driver, cuIpcGetMemHandle, &mut again, address);
            assert_eq!(handle, again);
            let mut opened = 0_u64;
            assert_eq!(open(&driver, &mut opened, handle, 1), INVALID_CONTEXT, "its own");
            assert_eq!(
                call!(driver, cuIpcGetMemHandle, &mut handle, address + 4096),
                INVALID_VALUE
            );
            tell(&text(handle));
            wait_for_go();
        }
        Some(_) => {
            let driver = Driver::with_context();
            let handle = parse(&std::env::var("HANDLE").unwrap());
            let (mut first, mut second) = (0_u64, 0_u64);
            assert_eq!(
                open(&driver, &mut first, handle, 0),
                INVALID_VALUE,
                "the flag must be given"
            );
            assert_eq!(open(&driver, &mut first, [7; 8], 1), INVALID_VALUE);
            assert_eq!(open(&driver, &mut first, handle, 1), 0);
            assert_eq!(open(&driver, &mut second, handle, 1), 0);
            assert_eq!(first, second, "a second opening is the same");
            good!(driver, cuMemsetD8_v2, first, 0, 5 * MIB);
            assert_eq!(call!(driver, cuMemFree_v2, first), INVALID_VALUE);
            good!(driver, cuIpcCloseMemHandle, first);
            tell("open");
            wait_for_go();
            good!(driver, cuIpcCloseMemHandle, first);
            assert_eq!(call!(driver, cuIpcCloseMemHandle, first), INVALID_VALUE);
            assert_eq!(
                open(&driver, &mut first, handle, 1),
                INVALID_VALUE,
                "the exporter is gone"
            );
            tell("closed");
            wait_for_go();
        }
    }
}

#[test]
fn a_small_export_shares_its_block_and_stays_charged_once() {
    if role().is_none() {
        return on_slice(1.0);
    }
    let driver = Driver::with_context();
    let start = driver.free_bytes();
    let (first, second) = (driver.allocate(1000), driver.allocate(1000));
    let (mut one, mut other) = ([0_u64; 8], [0_u64; 8]);
    good!(driver, cuIpcGetMemHandle, &mut one, first);
    good!(driver, cuIpcGetMemHandle, &mut other, second);
    assert_eq!(
        (one[1], other[3] - one[3]),
        (other[1], 1024),
        "one block, two places in it"
    );
    assert_eq!(start - driver.free_bytes(), 2 * MIB);
    good!(driver, cuMemFree_v2, first);
    assert_eq!(start - driver.free_bytes(), 2 * MIB);
    good!(driver, cuMemFree_v2, second);
    assert_eq!(driver.free_bytes(), start);
}

#[test]
fn physical_memory_crosses_a_fork_and_exec_as_a_descriptor() {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Properties([u64; 4]);
    let shared = Properties([1 | 1 << 32, 1, 0, 0]);
    match role().as_deref() {
        None => {
            let bench = Bench::new(1.0);
            let slice = bench.slice(ONE_G);
            let mut exporter = bench.program("exporter").on(&slice).start();
            let path = exporter.hears().unwrap();
            let mut importer = bench
                .program("importer")
                .on(&slice)
                .set("DESCRIPTOR", &path)
                .start();
            assert_eq!(importer.hears().unwrap(), "imported");
            assert_eq!(bench.used(&slice), 2 * CONTEXT + 4 * MIB);
            exporter.go();
            exporter.ends_well();
            assert_eq!(bench.used(&slice), CONTEXT + 4 * MIB, "the importer has it now");
            importer.go();
            importer.ends_well();
            assert_eq!(bench.used(&slice), 0);
        }
        Some("exporter") => {
            let driver = Driver::with_context();
            let start = driver.free_bytes();
            let (mut handle, mut plain, mut descriptor) = (0_u64, 0_u64, 0_i32);
            good!(driver, cuMemCreate, &mut handle, 4 * MIB, &shared, 0_u64);
            good!(
                driver,
                cuMemExportToShareableHandle,
                &mut descriptor,
                handle,
                1,
                0_u64
            );
            assert_eq!(start - driver.free_bytes(), 4 * MIB);
            let unshared = Properties([1, 1, 0, 0]);
            good!(driver, cuMemCreate, &mut plain, 2 * MIB, &unshared, 0_u64);
            let refused = call!(
                driver,
                cuMemExportToShareableHandle,
                &mut descriptor,
                plain,
                1,
                0_u64
            );
            assert_eq!(refused, INVALID_VALUE, "it was not made for that");
            good!(driver, cuMemRelease, plain);
            let mut same = 0_u64;
            let number = descriptor.unsigned_abs();
            good!(
                driver,
                cuMemImportFromShareableHandle,
                &mut same,
                u64::from(number),
                1
            );
            assert_eq!(
                start - driver.free_bytes(),
                4 * MIB,
                "imported where it is, it is there once"
            );
            good!(driver, cuMemRelease, same);
            tell(&format!("/proc/{}/fd/{descriptor}", std::process::id()));
            wait_for_go();
            good!(driver, cuMemRelease, handle);
        }
        Some(_) => {
            use std::os::fd::AsRawFd;
            let driver = Driver::with_context();
            let file = std::fs::File::open(std::env::var("DESCRIPTOR").unwrap()).unwrap();
            let (mut handle, mut address) = (0_u64, 0_u64);
            let number = u64::from(file.as_raw_fd().unsigned_abs());
            good!(driver, cuMemImportFromShareableHandle, &mut handle, number, 1);
            good!(
                driver,
                cuMemAddressReserve,
                &mut address,
                4 * MIB,
                0_u64,
                0_u64,
                0_u64
            );
            good!(driver, cuMemMap, address, 4 * MIB, 0_u64, handle, 0_u64);
            good!(driver, cuMemRelease, handle);
            tell("imported");
            wait_for_go();
            good!(driver, cuMemUnmap, address, 4 * MIB);
            let again = call!(driver, cuMemImportFromShareableHandle, &mut handle, number, 1);
            assert_eq!(again, INVALID_VALUE, "nobody holds it any more");
        }
    }
}
