//! The built file against its own table and its own documentation.

use std::collections::BTreeSet;
use std::process::Command;

use crate::programs::{Program, interposer};

fn listing(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool)
        .args(arguments)
        .arg(interposer())
        .output()
        .expect(tool);
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

fn exported() -> BTreeSet<String> {
    let names = listing("nm", &["-D", "--defined-only"]);
    names
        .lines()
        .filter_map(|line| line.split_whitespace().last().map(str::to_owned))
        .collect()
}

/// The list in the crate's documentation: each name in backquotes below the heading.
fn documented() -> BTreeSet<String> {
    let source = include_str!("../../interposer/src/lib.rs");
    let list = source
        .split("# Exported symbols")
        .nth(1)
        .unwrap()
        .split("//! A test")
        .next()
        .unwrap();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_file_exports_what_the_documentation_lists_and_nothing_else() {
    assert_eq!(exported(), documented());
}

const SOURCES: [&str; 11] = [
    include_str!("../../interposer/src/hooks/memory.rs"),
    include_str!("../../interposer/src/hooks/pool.rs"),
    include_str!("../../interposer/src/hooks/host.rs"),
    include_str!("../../interposer/src/hooks/vmm.rs"),
    include_str!("../../interposer/src/hooks/array.rs"),
    include_str!("../../interposer/src/hooks/imported.rs"),
    include_str!("../../interposer/src/hooks/graph.rs"),
    include_str!("../../interposer/src/hooks/context.rs"),
    include_str!("../../interposer/src/hooks/iteration.rs"),
    include_str!("../../interposer/src/hooks/query.rs"),
    include_str!("../../interposer/src/hooks/lookup.rs"),
];

/// A row as its hook declares it: `fn NAME = (c"BASE", VERSION, Legacy or PerThread)`.
pub struct Row {
    pub name: String,
    pub base: String,
    pub version: String,
    pub flags: &'static str,
}

pub fn rows() -> Vec<Row> {
    let hooks = SOURCES.iter().flat_map(|source| source.split("    fn ").skip(1));
    // Other functions stand in these files too; a hook that were missed is found out as an export without a row.
    let row = |hook: &str| {
        let (name, rest) = hook.lines().next()?.split_once(" = (c\"")?;
        let (base, rest) = rest.split_once("\", ")?;
        let (version, rest) = rest.split_once(", ")?;
        Some(Row {
            name: name.into(),
            base: base.into(),
            version: version.into(),
            flags: if rest.starts_with("PerThread") { "2" } else { "0" },
        })
    };
    hooks.filter_map(row).collect()
}

#[test]
fn each_exported_driver_symbol_is_declared_by_one_hook() {
    let declared: Vec<_> = rows().into_iter().map(|row| row.name).collect();
    let exported: Vec<_> = exported()
        .into_iter()
        .filter(|name| name.starts_with("cu"))
        .collect();
    let once: BTreeSet<_> = declared.iter().cloned().collect();
    assert_eq!(once.len(), declared.len());
    assert_eq!(once.into_iter().collect::<Vec<_>>(), exported);
}

#[test]
fn one_function_has_one_address_by_each_way_in() {
    let rows = rows();
    let arguments: Vec<_> = rows
        .iter()
        .flat_map(|row| [row.name.as_str(), &row.base, &row.version, row.flags])
        .collect();
    let path = interposer();
    let arguments = [&[path.to_str().unwrap()], &arguments[..]].concat();
    let compared = Program::plain("same_address", &arguments, &["-ldl"]).run();
    let compared: usize = compared.trim().parse().unwrap();
    // The small driver has all but a few.
    assert!(compared * 10 >= rows.len() * 9, "{compared} of {}", rows.len());
}

/// The first bytes of each exported driver function, from the file.
fn entries() -> Vec<(String, Vec<u8>)> {
    let file = std::fs::read(interposer()).unwrap();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let half = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().unwrap()));
    let place = |number: u64| usize::try_from(number).unwrap();
    let (headers, size, count) = (place(word(32)), half(54), half(56));
    let offset = |address: u64| {
        (0..count)
            .map(|index| headers + index * size)
            .filter(|&header| file[header..header + 4] == [1, 0, 0, 0])
            .map(|header| (word(header + 8), word(header + 16), word(header + 32)))
            .find(|&(_, start, bytes)| (start..start + bytes).contains(&address))
            .map(|(offset, start, _)| place(address - start + offset))
            .expect("a symbol lies in a segment")
    };
    let symbols = listing("nm", &["-D", "--defined-only"]);
    let functions = symbols.lines().filter(|line| line.contains(" T cu"));
    functions
        .map(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            let at = offset(u64::from_str_radix(words[0], 16).unwrap());
            (words[2].to_owned(), file[at..at + 32].to_vec())
        })
        .collect()
}

/// The length of one instruction that UCX's patcher moves as it is: `push`, `mov %rsp,%rbp`, or `sub $imm32,%rsp`.
fn movable(code: &[u8]) -> Option<usize> {
    match code {
        [0x50..=0x57, ..] => Some(1),
        [0x41, 0x50..=0x57, ..] => Some(2),
        [0x48, 0x89, 0xe5, ..] => Some(3),
        [0x48, 0x81, 0xec, ..] => Some(7),
        _ => None,
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_hook_begins_with_14_bytes_that_another_patcher_can_move() {
    let entries = entries();
    assert_eq!(entries.len(), rows().len());
    for (name, code) in entries {
        let mut at = 0;
        while at < 14 {
            at += movable(&code[at..]).unwrap_or_else(|| panic!("{name}: {:02x?} at {at}", &code[..20]));
        }
    }
}

#[test]
fn the_decoder_reads_operands() {
    assert_eq!(movable(&[0x48, 0x89, 0xe5]), Some(3), "mov %rsp,%rbp");
    assert_eq!(movable(&[0x48, 0x89, 0xec]), None, "mov %rbp,%rsp");
    assert_eq!(
        movable(&[0x48, 0x81, 0xec, 0x80, 0, 0, 0]),
        Some(7),
        "sub $128,%rsp"
    );
    assert_eq!(
        movable(&[0x48, 0x83, 0xec, 8]),
        None,
        "sub $8,%rsp, with eight bits of operand"
    );
    assert_eq!(movable(&[0xf3, 0x0f, 0x1e, 0xfa]), None, "endbr64");
    assert_eq!(
        movable(&[0x48, 0x8b, 0x05, 0, 0, 0, 0]),
        None,
        "mov disp(%rip),%rax"
    );
}

#[test]
fn the_driver_is_not_a_dependency() {
    let needed = listing("readelf", &["-d"]);
    assert!(needed.contains("libc.so.6"));
    for library in ["libcuda", "libnvidia", "libcudart"] {
        assert!(
            !needed.contains(library),
            "a driver without one of our symbols would not load: {needed}"
        );
    }
    assert!(
        needed.contains("SYMBOLIC"),
        "our table must hold our own addresses: {needed}"
    );
}

/// A loader ends a program whose library asks for a version that is not there.
#[test]
fn the_c_library_that_is_needed_is_2_18() {
    let symbols = listing("nm", &["-D", "--undefined-only"]);
    let versions = symbols.lines().filter_map(|line| {
        let (_, version) = line.split_once("@GLIBC_2.")?;
        // 2.2.5 is the first on this architecture.
        let minor = version
            .split('.')
            .next()?
            .parse::<u32>()
            .expect("a version has numbers");
        Some((minor, line))
    });
    let (minor, line) = versions.max().expect("the C library is used");
    assert!(minor <= 18, "{line}");
}

/// A symbol that nobody has ends the program as it starts.
#[test]
fn each_imported_symbol_is_a_versioned_one_of_a_system_library() {
    let symbols = listing("nm", &["-D", "--undefined-only"]);
    for line in symbols.lines().filter(|line| !line.trim_start().starts_with('w')) {
        assert!(line.contains("@GLIBC_") || line.contains("@GCC_"), "{line}");
    }
}

#[test]
fn neither_the_management_library_nor_the_profiler_nor_private_functions_are_touched() {
    let file = std::fs::read(interposer()).unwrap();
    for name in [
        "nvmlInit",
        "cuptiSubscribe",
        "__libc_dlsym",
        "__libc_dlopen_mode",
        "_dl_sym",
    ] {
        let found = file.windows(name.len()).any(|bytes| bytes == name.as_bytes());
        assert!(!found, "{name}");
    }
}

#[test]
fn only_the_c_library_is_loaded_with_it() {
    // Each library more takes longer to load than all else at the start of a program.
    let dynamic = listing("readelf", &["-d"]);
    let needed: Vec<_> = dynamic
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter(|line| !line.contains("[libc.so.6]") && !line.contains("[ld-linux"))
        .collect();
    assert_eq!(needed, [""; 0]);
    let symbols = listing("nm", &["-D"]);
    assert!(!symbols.contains("_Unwind_"), "{symbols}");
}

#[test]
fn nothing_of_ours_runs_when_the_file_is_loaded() {
    // The compiler's own frame_dummy, and the standard library's note of the arguments.
    let sections = listing("readelf", &["-SW"]);
    let size = |name: &str| {
        let line = sections
            .lines()
            .find(|line| line.split_whitespace().any(|word| word == name))?;
        let words: Vec<_> = line.rsplit(']').next()?.split_whitespace().collect();
        usize::from_str_radix(words.get(4)?, 16).ok()
    };
    assert!(size(".init_array").unwrap_or(0) <= 16, "{sections}");
}
