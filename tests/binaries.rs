//! What the built files export, need and must not.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::collections::BTreeSet;

use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};

fn with_file<T>(path: &std::path::Path, look: impl FnOnce(&ElfFile64<'_>) -> T) -> T {
    let bytes = std::fs::read(path).unwrap();
    look(&ElfFile64::parse(&*bytes).unwrap())
}

fn defined(path: &std::path::Path) -> BTreeSet<String> {
    with_file(path, |file| {
        file.dynamic_symbols()
            .chain(file.symbols())
            .filter(|symbol| symbol.is_definition() && symbol.is_global())
            .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
            .collect()
    })
}

fn dynamic_strings(path: &std::path::Path, tag: object::elf::DynamicTag) -> Vec<String> {
    with_file(path, |file| {
        let endian = file.endian();
        let sections = file.elf_section_table();
        let (entries, strings) = sections.dynamic(endian, file.data()).unwrap().unwrap();
        let strings = sections.strings(endian, file.data(), strings).unwrap();
        let name = |entry: &object::elf::Dyn64<object::Endianness>| {
            let offset = u32::try_from(entry.d_val.get(endian)).unwrap();
            String::from_utf8(strings.get(offset).unwrap().to_vec()).unwrap()
        };
        entries
            .iter()
            .filter(|entry| entry.d_tag.get(endian) == tag)
            .map(name)
            .collect()
    })
}

fn is_cuda(name: &str) -> bool {
    name.strip_prefix("cu")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

/// An rlib that exports dlsym would replace it inside migm.
#[test]
fn migm_defines_neither_dlsym_nor_cuda_calls() {
    let symbols = defined(&support::migm());
    let foreign: Vec<_> = symbols
        .iter()
        .filter(|name| *name == "dlsym" || *name == "dlvsym" || is_cuda(name))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(
        symbols.contains("main"),
        "the symbols of migm were not read: {}",
        symbols.len()
    );
}

/// A needed libcuda would keep programs from loading where there is none (HAMi #27, gpu-manager #68).
#[test]
fn the_interposer_needs_no_cuda_library() {
    let needed = dynamic_strings(&support::shared_object("migm_interposer"), object::elf::DT_NEEDED);
    assert!(
        needed.iter().any(|name| name.starts_with("libc.so")),
        "{needed:?}"
    );
    let foreign: Vec<_> = needed
        .iter()
        .filter(|name| name.contains("cuda") || name.contains("nvidia"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

/// The loader knows the simulated libraries by the names of the real ones.
#[test]
fn simulated_libraries_carry_the_real_names() {
    for (object, soname) in [
        ("simgpu_cuda", "libcuda.so.1"),
        ("simgpu_nvml", "libnvidia-ml.so.1"),
        ("simgpu_cudart12", "libcudart.so.12"),
        ("simgpu_cudart13", "libcudart.so.13"),
    ] {
        let path = support::shared_object(object);
        assert_eq!(
            dynamic_strings(&path, object::elf::DT_SONAME),
            [soname],
            "{object}"
        );
    }
}
