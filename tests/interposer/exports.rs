//! The built file against its own table and its own documentation.

use std::collections::BTreeSet;
use std::process::Command;

use crate::programs::interposer;

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

#[test]
fn each_exported_driver_symbol_is_declared_by_one_hook() {
    let sources = [
        include_str!("../../interposer/src/hooks/memory.rs"),
        include_str!("../../interposer/src/hooks/pool.rs"),
        include_str!("../../interposer/src/hooks/host.rs"),
        include_str!("../../interposer/src/hooks/vmm.rs"),
        include_str!("../../interposer/src/hooks/array.rs"),
        include_str!("../../interposer/src/hooks/iteration.rs"),
        include_str!("../../interposer/src/hooks/lookup.rs"),
    ];
    for name in exported().iter().filter(|name| name.starts_with("cu")) {
        let row = format!("fn {name} = (");
        let rows: usize = sources.iter().map(|source| source.matches(&row).count()).sum();
        assert_eq!(rows, 1, "{name}");
    }
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
