//! Names, versions, addresses, and what is not modelled.

use std::collections::BTreeSet;

use crate::bench::{self, Bench, role};
use crate::calls::*;
use crate::{call, good};

/// The names in the dynamic symbol table of a shared object (ELF-64) that it defines.
fn defined(file: &[u8]) -> BTreeSet<String> {
    let number = |at: usize, bytes: usize| {
        file[at..at + bytes]
            .iter()
            .rev()
            .fold(0_usize, |number, &byte| number << 8 | usize::from(byte))
    };
    let (sections, size, count) = (number(40, 8), number(58, 2), number(60, 2));
    let mut names = BTreeSet::new();
    for section in (0..count).map(|index| sections + index * size) {
        const SHT_DYNSYM: usize = 11;
        if number(section + 4, 4) != SHT_DYNSYM {
            continue;
        }
        let strings = number(sections + number(section + 40, 4) * size + 24, 8);
        let start = number(section + 24, 8);
        for symbol in (start..start + number(section + 32, 8)).step_by(24) {
            let name = &file[strings + number(symbol, 4)..];
            let name = &name[..name.iter().position(|&byte| byte == 0).unwrap()];
            if number(symbol + 6, 2) != 0 {
                names.insert(String::from_utf8(name.to_vec()).unwrap());
            }
        }
    }
    names
}

#[test]
fn the_library_exports_exactly_the_names_of_the_table() {
    let file = std::fs::read(bench::library()).unwrap();
    let table: BTreeSet<_> = simgpu_cuda::exported_names().map(str::to_owned).collect();
    let built = defined(&file);
    assert_eq!(
        built.difference(&table).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "exported, not in the table"
    );
    assert_eq!(
        table.difference(&built).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "in the table, not exported"
    );
}

#[test]
fn without_a_machine_cu_init_says_one_line_and_finds_no_device() {
    if role().is_none() {
        let err = bench::program("program").succeeds();
        assert_eq!(err.lines().count(), 1, "{err}");
        assert!(err.starts_with("simgpu: SIMGPU_ID is not set"), "{err}");
        return;
    }
    let driver = Driver::load();
    assert_eq!(call!(driver, cuInit, 0), NO_DEVICE);
    let mut count = 7_i32;
    assert_eq!(call!(driver, cuDeviceGetCount, &mut count), NOT_INITIALIZED);
}

#[test]
fn before_cu_init_only_names_and_the_version_are_answered() {
    if role().is_none() {
        Bench::new(1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::load();
    let (mut word, mut other, mut version) = (0_u64, 0_u64, 0_i32);
    assert_eq!(call!(driver, cuDeviceGetCount, &mut word), NOT_INITIALIZED);
    assert_eq!(call!(driver, cuMemAlloc_v2, &mut word, 100), NOT_INITIALIZED);
    assert_eq!(call!(driver, cuCtxSynchronize), NOT_INITIALIZED);
    assert_eq!(
        call!(driver, cuMemGetInfo_v2, &mut word, &mut other),
        NOT_INITIALIZED
    );
    good!(driver, cuDriverGetVersion, &mut version);
    assert!(version >= 12_000, "{version}");
    good!(
        driver,
        cuGetProcAddress_v2,
        c"cuInit",
        &mut word,
        2000,
        0_u64,
        0_u64
    );
    assert_eq!(Some(word), driver.address("cuInit"));
    let mut text = 0_u64;
    good!(driver, cuGetErrorName, 2, &mut text);
    assert_eq!(call!(driver, cuGetErrorName, 12_345, &mut text), INVALID_VALUE);
    assert_eq!(text, 0);
}

#[test]
fn proc_addresses_are_chosen_by_version_and_flags() {
    if role().is_none() {
        Bench::new(1.0).program("program").succeeds();
        return;
    }
    let driver = Driver::load();
    for (base, version, flags, name) in [
        (c"cuMemAlloc", 3020, 0_u64, "cuMemAlloc_v2"),
        (c"cuMemAlloc", 2000, 0_u64, "cuMemAlloc"),
        (c"cuMemAllocAsync", 11_020, 0_u64, "cuMemAllocAsync"),
        (c"cuMemAllocAsync", 11_020, 2_u64, "cuMemAllocAsync_ptsz"),
        (c"cuMemAllocAsync", 11_020, 1_u64, "cuMemAllocAsync"),
        (c"cuMemcpyHtoD", 7000, 2_u64, "cuMemcpyHtoD_v2_ptds"),
        (c"cuCtxCreate", 11_040, 0_u64, "cuCtxCreate_v3"),
        (c"cuCtxSynchronize", 2000, 0_u64, "cuCtxSynchronize"),
        (c"cuCtxSynchronize", 13_000, 0_u64, "cuCtxSynchronize_v2"),
        (c"cuGetProcAddress", 11_030, 0_u64, "cuGetProcAddress"),
        (c"cuGetProcAddress", 12_000, 0_u64, "cuGetProcAddress_v2"),
        (c"cuGraphCreate", 10_000, 0_u64, "cuGraphCreate"),
    ] {
        let (mut address, mut status) = (0_u64, 9_i32);
        good!(
            driver,
            cuGetProcAddress_v2,
            base,
            &mut address,
            version,
            flags,
            &mut status
        );
        assert_eq!(
            (Some(address), status),
            (driver.address(name), 0),
            "{base:?} {version} {flags}"
        );
    }
    let (mut address, mut status) = (5_u64, 9_i32);
    let asked = call!(
        driver,
        cuGetProcAddress_v2,
        c"cuMemCreate",
        &mut address,
        10_000,
        0_u64,
        &mut status
    );
    assert_eq!((asked, address, status), (NOT_FOUND, 0, 2), "a version too low");
    for name in [c"cuNoSuchThing", c""] {
        let asked = call!(
            driver,
            cuGetProcAddress_v2,
            name,
            &mut address,
            13_000,
            0_u64,
            &mut status
        );
        assert_eq!((asked, address, status), (NOT_FOUND, 0, 1));
    }
    // The first ABI has four arguments: what lies in the fifth register is not an address.
    let asked = call!(
        driver,
        cuGetProcAddress,
        c"cuInit",
        &mut address,
        13_000,
        0_u64,
        0xdead_u64
    );
    assert_eq!((asked, Some(address)), (0, driver.address("cuInit")));
    let asked = call!(
        driver,
        cuGetProcAddress_v2,
        c"cuInit",
        &mut address,
        13_000,
        64_u64,
        0_u64
    );
    assert_eq!(asked, INVALID_VALUE, "a flag that there is not");

    let mut table = 5_u64;
    assert_eq!(
        call!(driver, cuGetExportTable, &mut table, &[0_u8; 16]),
        NOT_FOUND
    );
    assert_eq!(table, 0);
}

#[test]
fn what_is_not_modelled_says_its_name_once() {
    if role().is_none() {
        let err = Bench::new(1.0).program("program").succeeds();
        assert_eq!(
            err,
            "simgpu: cuMulticastCreate is not modelled\nsimgpu: cuLinkComplete is not modelled\n"
        );
        return;
    }
    let driver = Driver::load();
    let mut out = 0_u64;
    for _ in 0..3 {
        assert_eq!(call!(driver, cuMulticastCreate, &mut out, 0_u64), NOT_SUPPORTED);
    }
    assert_eq!(
        call!(driver, cuLinkComplete, 0_u64, &mut out, 0_u64),
        NOT_SUPPORTED
    );
}

#[test]
fn a_bad_cost_table_is_one_line_and_an_invalid_value() {
    if role().is_none() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "[kernels]\naxpy = 1\nslow = \"long\"\n").unwrap();
        let path = file.path().to_str().unwrap();
        let bench = Bench::new(1.0);
        bench.slice(bench::ONE_G);
        let err = bench.program("program").set("SIMGPU_COSTS", path).succeeds();
        let expected =
            format!("simgpu: SIMGPU_COSTS: {path}:3: slow: must be seconds, a number that is not negative\n");
        assert_eq!(err, expected);
        return;
    }
    let driver = Driver::load();
    assert_eq!(call!(driver, cuInit, 0), INVALID_VALUE);
}
