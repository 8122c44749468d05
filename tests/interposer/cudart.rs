//! NVIDIA's own runtimes, put in place by `.ci/cudart`: what they look up is swapped, whichever way they are
//! linked. On a driver without their undocumented table they stop before the first allocation.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use crate::exports::rows;
use crate::programs::{Program, library};

/// The folder of `.ci/cudart`, or a line past the test harness that says which test goes without.
fn runtimes(test: &str) -> Option<PathBuf> {
    let home = std::env::var_os("MIGM_CUDART_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/migm/cudart")))
        .filter(|home| home.is_dir());
    if home.is_none() {
        let line = format!("left out: {test}: no CUDA runtimes in the place of .ci/cudart\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    home
}

/// Runs the runtime in `library`, and returns the object that each lookup (name, version, flags) ended in.
fn lookups(version: &str, linked: &[&str]) -> BTreeMap<(String, String, String), String> {
    let flags = [linked, &["-ldl", "-lrt", "-lpthread", "-lm"]].concat();
    let how = if linked[0].ends_with(".a") {
        "static"
    } else {
        "shared"
    };
    let program = Program::plain_as("runtime", &format!("runtime_{version}_{how}"), &[], &flags);
    let spy = library("spy", &["-ldl"]);
    let printed = program.env("FAKE_ALL", "1").with_preload_in_front(spy).run();
    let (found, last) = printed.trim_end().rsplit_once('\n').expect("many lookups");
    assert!(
        last.starts_with("cudaMalloc ") && last != "cudaMalloc 0",
        "the table is not there: {last}"
    );
    let line = |line: &str| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("four words");
        ((word(), word(), word()), word())
    };
    found.lines().map(line).collect()
}

fn all_swapped(version: &str, linked: &[&str]) {
    let found = lookups(version, linked);
    let hooked: Vec<_> = rows().into_iter().map(|row| row.base).collect();
    let mut swapped = 0;
    for ((name, since, flags), object) in &found {
        let expected = if hooked.contains(name) {
            swapped += 1;
            "libmigm_interposer.so"
        } else {
            "libcuda.so.1"
        };
        assert_eq!(object, expected, "{version}: {name} {since} {flags}");
    }
    if version == "11.8" {
        // It asks for the table before anything else.
        let itself = ("cuGetProcAddress".to_owned(), "11030".to_owned(), "0".to_owned());
        assert!(found.contains_key(&itself), "{found:?}");
        return;
    }
    assert!(found.len() > 300, "{version}: {} lookups", found.len());
    assert!(swapped > 40, "{version}: {swapped} swapped");
    for (name, since, flags) in [
        ("cuMemAlloc", "3020", "0"),
        ("cuMemFree", "3020", "0"),
        ("cuMemAllocAsync", "11020", "0"),
        ("cuMemAllocAsync", "11020", "2"),
        ("cuDevicePrimaryCtxRelease", "7000", "0"),
    ] {
        let asked = (name.to_owned(), since.to_owned(), flags.to_owned());
        assert!(found.contains_key(&asked), "{version}: {asked:?}");
    }
}

#[test]
fn what_nvidias_static_runtime_looks_up_is_swapped() {
    let Some(home) = runtimes("what_nvidias_static_runtime_looks_up_is_swapped") else {
        return;
    };
    for version in ["12.9", "13.0"] {
        let path = home.join(version).join("libcudart_static.a");
        all_swapped(version, &[path.to_str().unwrap()]);
    }
}

#[test]
fn what_nvidias_shared_runtime_looks_up_is_swapped() {
    let Some(home) = runtimes("what_nvidias_shared_runtime_looks_up_is_swapped") else {
        return;
    };
    for (version, name) in [
        ("11.8", "libcudart.so.11.0"),
        ("12.9", "libcudart.so.12"),
        ("13.0", "libcudart.so.13"),
    ] {
        let folder = home.join(version);
        let runpath = format!("-Wl,-rpath,{}", folder.display());
        all_swapped(version, &[folder.join(name).to_str().unwrap(), &runpath]);
    }
}
