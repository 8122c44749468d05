//! The example programs: built by nvcc where one is found and run on a simulated GPU with a shared and with a
//! static runtime, and their twins over the driver API. What needs nvcc says by name that it was left out.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod bench;
mod nvcc;
#[path = "../support/mod.rs"]
mod support;
mod trials;
mod twin;

use migm_supervisor::play::{self, PlayArgs};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use bench::{Bench, built};
use support::{nvcc_or_leave_out, repository};
use trials::{run_all, trials};
use twin::twin;

/// Runs a script of `examples/cuda`; its output is shown if it fails.
fn script(name: &str, arguments: &[&Path]) {
    let mut command = Command::new("sh");
    command
        .arg(repository().join("examples/cuda").join(name))
        .args(arguments);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The programs as nvcc builds them, once for all tests: the folder of the shared ones and of the static ones.
fn compiled(nvcc: &Path) -> &'static (tempfile::TempDir, tempfile::TempDir) {
    static COMPILED: OnceLock<(tempfile::TempDir, tempfile::TempDir)> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let (shared, fixed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let library = built("libsimgpu_runtime", "a");
        std::thread::scope(|scope| {
            scope.spawn(|| script("build.sh", &[Path::new("--out"), shared.path(), nvcc]));
            let arguments = [
                Path::new("--out"),
                fixed.path(),
                Path::new("--static"),
                library.as_path(),
                nvcc,
            ];
            script("build.sh", &arguments);
        });
        (shared, fixed)
    })
}

#[test]
fn every_program_is_tried_and_allocates_what_its_twin_does() {
    let tried: Vec<_> = trials().iter().map(|trial| trial.name).collect();
    let known: Vec<_> = play::programs().iter().map(|program| program.name).collect();
    assert_eq!(tried, known);
    for trial in trials() {
        assert_eq!(
            play::peak_bytes(trial.name, trial.arguments).unwrap(),
            trial.peak(),
            "{}",
            trial.name
        );
    }
    for name in known {
        assert!(
            repository()
                .join("examples/cuda")
                .join(name)
                .with_extension("cu")
                .is_file(),
            "{name}"
        );
    }
}

#[test]
fn the_committed_ptx_is_what_nvcc_makes_of_the_sources() {
    let Some(nvcc) = nvcc_or_leave_out("the_committed_ptx_is_what_nvcc_makes_of_the_sources") else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    script("ptx.sh", &[Path::new("--out"), out.path(), &nvcc]);
    for program in play::programs() {
        let file = format!("{}.ptx", program.name);
        let committed = fs::read_to_string(repository().join("examples/cuda").join(&file)).unwrap();
        let made = fs::read_to_string(out.path().join(&file)).unwrap();
        assert!(
            committed == made,
            "{file} is not what examples/cuda/ptx.sh writes"
        );
    }
}

#[test]
fn programs_with_the_shared_runtime_run_and_are_charged_what_they_allocate() {
    let test = "programs_with_the_shared_runtime_run_and_are_charged_what_they_allocate";
    let Some(nvcc) = nvcc_or_leave_out(test) else {
        return;
    };
    let programs = compiled(&nvcc).0.path();
    run_all(&Bench::new(), |trial| {
        let mut command = Command::new(programs.join(trial.name));
        command.args(trial.options());
        command
    });
}

#[test]
fn programs_with_the_static_runtime_run_and_are_charged_what_they_allocate() {
    let test = "programs_with_the_static_runtime_run_and_are_charged_what_they_allocate";
    let Some(nvcc) = nvcc_or_leave_out(test) else {
        return;
    };
    let programs = compiled(&nvcc).1.path();
    run_all(&Bench::new(), |trial| {
        let mut command = Command::new(programs.join(trial.name));
        command.args(trial.options());
        command
    });
}

#[test]
fn twins_run_and_are_charged_what_they_allocate() {
    run_all(&Bench::new(), |trial| twin(trial.name, trial.arguments));
}

#[test]
fn a_program_that_outgrows_the_gpu_ends_in_one_line_with_status_1() {
    let bench = Bench::new();
    let arguments = PlayArgs {
        start: Some(1 << 20),
        jump: Some(1 << 40),
        at: Some(1),
        ..PlayArgs::default()
    };
    let ran = bench.run(twin("jumper", arguments));
    let line = format!(
        "play: jumper: cuMemAlloc of {} bytes: CUDA_ERROR_OUT_OF_MEMORY\n",
        (1_u64 << 40) - (1 << 20)
    );
    assert_eq!((ran.status, ran.stderr), (Some(1), line));

    let Some(nvcc) = nvcc_or_leave_out("a_program_that_outgrows_the_gpu_ends_in_one_line_with_status_1")
    else {
        return;
    };
    let mut command = Command::new(compiled(&nvcc).0.path().join("jumper"));
    command.args(["--start", "1Mi", "--jump", "1Ti", "--at", "1"]);
    let ran = bench.run(command);
    assert_eq!(
        (ran.status, ran.stderr.as_str()),
        (Some(1), "jumper: cudaMalloc: cudaErrorMemoryAllocation\n")
    );
}

#[test]
fn the_runtime_answers_a_program_compiled_against_nvidia_s_headers() {
    let test = "the_runtime_answers_a_program_compiled_against_nvidia_s_headers";
    let Some(nvcc) = nvcc_or_leave_out(test) else {
        return;
    };
    let out = tempfile::tempdir().unwrap();
    let bench = Bench::new();
    for kind in ["shared", "none"] {
        let program = out.path().join(kind);
        let mut compile = Command::new(&nvcc);
        compile
            .args(["-w", "-arch=sm_80", "-cudart", kind, "-o"])
            .arg(&program);
        compile.arg(repository().join("simgpu/runtime/tests/tour.cu"));
        if kind == "none" {
            compile
                .arg(built("libsimgpu_runtime", "a"))
                .args(["-ldl", "-lpthread"]);
        }
        let compiled = compile.output().unwrap();
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        let ran = bench.run(Command::new(&program));
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "-cudart {kind}");
    }
}
