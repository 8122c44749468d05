//! CUDA programs: the runtime's calls as the driver sees them, with the runtime as a shared object and inside the
//! program. On the simulated GPU both are this workspace's own; on a real driver nvcc's.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{compile, is_real, leave_out, source};
use crate::rows::follow;
use crate::support::nvcc;

/// The static library of our own runtime; its name carries a hash, so the newest.
fn own_static_runtime() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let folders = [deps, deps.parent().unwrap()];
    let files = folders
        .into_iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok());
    let mut found: Vec<_> = files
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libsimgpu_runtime") && name.ends_with(".a")
        })
        .collect();
    found.sort_by_key(|path| std::fs::metadata(path).and_then(|file| file.modified()).ok());
    found.pop()
}

fn build(nvcc: &Path, name: &str, linkage: &[&str]) -> PathBuf {
    compile(name, |output| {
        let mut command = Command::new(nvcc);
        command.args(["-O2", "-arch=sm_80", "-o"]).arg(output);
        command.arg(source("runtime.cu")).args(linkage);
        command
    })
}

#[test]
fn the_shared_runtime_is_counted_as_the_driver_is() {
    let Some(nvcc) = nvcc() else {
        return leave_out("the shared runtime: no nvcc");
    };
    // On a real driver nvcc's own runtime, which the loader need not know of.
    let path = format!("-rpath={}", nvcc.with_file_name("../lib64").display());
    let linkage = ["-cudart", "shared", "-Xlinker", &path];
    let linkage = if is_real() { &linkage[..] } else { &linkage[..2] };
    let program = build(&nvcc, "runtime-shared", linkage);
    follow("runtime-shared", &program, &[], &[]);
}

#[test]
fn the_static_runtime_is_counted_as_the_driver_is() {
    let Some(nvcc) = nvcc() else {
        return leave_out("the static runtime: no nvcc");
    };
    let program = if is_real() {
        build(&nvcc, "runtime-static", &["-cudart", "static"])
    } else {
        let library = own_static_runtime().expect("cargo builds the runtime with the tests");
        let library = library.to_str().unwrap();
        let linkage = ["-cudart", "none", library, "-ldl", "-lpthread"];
        build(&nvcc, "runtime-static", &linkage)
    };
    follow("runtime-static", &program, &[], &[]);
}
