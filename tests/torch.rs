//! PyTorch's own libraries under the interposer: the report of its allocator is heard and passed on, and its real
//! caching allocator is counted at both levels. `.ci/torch` puts the libraries in place; a test without them says
//! that it was left out.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use support::{Place, json};

const MIB: u64 = 1 << 20;

/// The folder of one release: `MIGM_TORCH_HOME`, else where `.ci/torch` puts it. A line past the test harness names
/// the test if there is none.
fn release(test: &str, version: &str) -> Option<PathBuf> {
    let home = std::env::var_os("MIGM_TORCH_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/migm/torch-1")));
    let found = home
        .map(|home| home.join(version).join("torch"))
        .filter(|folder| folder.is_dir());
    if found.is_none() {
        leave_out(
            test,
            &format!("no torch {version} in MIGM_TORCH_HOME or the place of .ci/torch"),
        );
    }
    found
}

/// The CUDA headers that come with nvcc.
fn headers(test: &str) -> Option<PathBuf> {
    let of_nvcc = |nvcc: PathBuf| Some(nvcc.parent()?.parent()?.join("include"));
    let given = std::env::var_os("MIGM_NVCC").map(PathBuf::from).and_then(of_nvcc);
    let home = std::env::var_os("MIGM_NVCC_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cache/migm/nvcc-13.0.88")));
    let installed = home.map(|home| home.join("nvidia/cu13/include"));
    let found = given
        .into_iter()
        .chain(installed)
        .find(|folder| folder.join("cuda_runtime_api.h").is_file());
    if found.is_none() {
        leave_out(test, "no CUDA headers by MIGM_NVCC or in the place of .ci/nvcc");
    }
    found
}

fn leave_out(test: &str, why: &str) {
    let line = format!("left out: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

fn compile(compiler: &str, source: &str, program: &Path, arguments: &[&str]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch");
    let mut command = Command::new(compiler);
    command.args(["-O1", "-w", "-rdynamic", "-o"]).arg(program);
    let output = command
        .arg(sources.join(source))
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(
        output.status.success(),
        "{source}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Compiles the caller of one release's libc10.so.
fn caller(folder: &Path, torch: &Path, form: u32) -> PathBuf {
    let program = folder.join("caller");
    let libraries = torch.join("lib");
    let folder = libraries.display();
    let arguments = [
        format!("-DFORM={form}"),
        format!("-L{folder}"),
        "-lc10".to_owned(),
        "-Wl,--allow-shlib-undefined".to_owned(),
        // The old tag, as these releases have it: the program's folder also serves what its libraries need.
        "-Wl,--disable-new-dtags".to_owned(),
        format!("-Wl,-rpath,{folder}"),
        "-ldl".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    compile("cc", "caller.c", &program, &arguments);
    program
}

/// Runs a program under `migm run` and returns what it printed and the job's report.
fn run(place: &Place, options: &[&str], program: &Path, arguments: &[&str]) -> (Output, Value) {
    let report = place.path().join("report.json");
    let mut command = place.migm(&["run", "--report", report.to_str().unwrap()]);
    command.args(options).arg("--").arg(program).args(arguments);
    let output = command.output().unwrap();
    let record = Output {
        stdout: std::fs::read(&report).unwrap(),
        ..output.clone()
    };
    (output, json(&record))
}

/// One release of each form of the report. 7000 and 512 bytes are made and 7000 freed; memory of the host and of a
/// device that is not there is nobody's. The last two forms end with 30 MiB after an out of memory.
#[test]
fn the_report_of_each_form_arrives_and_is_passed_on() {
    let test = "the_report_of_each_form_arrives_and_is_passed_on";
    for (version, form, peak) in [
        ("1.9.1", 1, 7512),
        ("1.13.1", 2, 30 * MIB),
        ("2.15.0", 3, 30 * MIB),
    ] {
        let Some(torch) = release(test, version) else {
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let program = caller(folder.path(), &torch, form);
        let place = Place::simulated(&["--gpu", "a100-40gb"]);
        let (output, record) = run(&place, &[], &program, &["profile"]);
        assert!(output.status.success(), "{version}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let expected = if form == 1 {
            "profiled 0x100 7000 on 1:0\nprofiled 0x200 512 on 1:0\nprofiled 0x300 1073741824 on 0:-1\n\
             profiled 0x400 1073741824 on 1:7\nprofiled 0x100 -7000 on 1:0\n"
        } else {
            "profiled 0x100 7000 7000 20971520 on 1:0\nprofiled 0x200 512 7512 20971520 on 1:0\n\
             profiled 0x300 1073741824 1073741824 1073741824 on 0:-1\n\
             profiled 0x400 1073741824 1073741824 1073741824 on 1:7\n\
             profiled 0x100 -7000 512 20971520 on 1:0\n\
             out of memory 31457280 512 20971520 on 1:0\n\
             profiled 0x500 31457280 31457280 20971520 on 1:0\n"
        };
        assert_eq!(said, expected, "{version}");
        assert_eq!(record["peak"]["allocated"], peak, "{version}: {record}");
        assert_eq!(record["peak"]["reserved"], 20 * MIB, "{version}: {record}");
        assert_eq!(
            record["attempts"].as_array().unwrap().len(),
            1,
            "{version}: {record}"
        );

        let (output, record) = run(&place, &[], &program, &[]);
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            "",
            "no profiler, nothing profiled"
        );
        assert_eq!(record["peak"]["allocated"], peak, "{version}: {record}");
    }
}

#[test]
fn without_the_interposer_the_report_goes_where_it_always_went() {
    let test = "without_the_interposer_the_report_goes_where_it_always_went";
    let Some(torch) = release(test, "2.15.0") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = caller(folder.path(), &torch, 3);
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let mut disabled = place.migm(&["run", "--"]);
    let (bare, under) = (
        place.command(&program).arg("profile").output().unwrap(),
        disabled
            .arg(&program)
            .arg("profile")
            .env("MIGM_DISABLE", "1")
            .output()
            .unwrap(),
    );
    assert!(
        bare.status.success() && under.status.success(),
        "{bare:?} {under:?}"
    );
    assert_eq!(bare.stdout, under.stdout);
}

/// The real allocator of PyTorch 2.15, compiled once and left to the system's clean-up.
fn allocator(test: &str) -> Option<PathBuf> {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let (torch, headers) = (release(test, "2.15.0")?, headers(test)?);
    Some(
        COMPILED
            .get_or_init(|| compile_allocator(&torch, &headers))
            .clone(),
    )
}

fn compile_allocator(torch: &Path, headers: &Path) -> PathBuf {
    let within = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = tempfile::tempdir_in(within).unwrap().keep().join("allocator");
    let folder = torch.join("lib").display().to_string();
    let arguments = [
        "-std=c++20".to_owned(),
        format!("-I{}", torch.join("include").display()),
        format!("-I{}", headers.display()),
        format!("-L{folder}"),
        "-lc10_cuda".to_owned(),
        "-lc10".to_owned(),
        "-Wl,--allow-shlib-undefined".to_owned(),
        format!("-Wl,-rpath,{folder}"),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    compile("c++", "allocator.cpp", &program, &arguments);
    program
}

/// 3 MiB, 100 bytes (a block of 512) and 50 MiB come from segments of 20, 2 and 50 MiB. After 3 and 50 MiB are freed
/// 48 MiB come from what was kept. All of it is given back in the end.
#[test]
fn tensors_and_segments_of_the_real_allocator_are_both_exact() {
    let test = "tensors_and_segments_of_the_real_allocator_are_both_exact";
    let Some(program) = allocator(test) else {
        return;
    };
    // Made once the program is there: a machine without a process may be cleared away by another test.
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let (output, record) = run(&place, &[], &program, &[]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let figures = |at: usize| -> Vec<u64> {
        let words = lines[at].split(' ').skip(1);
        words.map(|word| word.parse().unwrap()).collect()
    };
    let made = figures(0);
    assert_eq!(made, [53 * MIB + 512, 72 * MIB], "{said}");
    assert_eq!(figures(3), [0, 0], "{said}");
    assert_eq!(record["peak"]["allocated"], made[0], "{record}");
    assert_eq!(record["peak"]["reserved"], made[1], "{record}");
    assert_eq!(record["allocations"], 3, "{record}");
    assert_eq!(record["frees"], 3, "{record}");
}

/// PyTorch's own limit refuses 800 MiB without asking the driver: the job has run out of memory all the same, unless it
/// gets as much later on.
#[test]
fn a_limit_of_pytorchs_own_is_an_out_of_memory() {
    let test = "a_limit_of_pytorchs_own_is_an_out_of_memory";
    let Some(program) = allocator(test) else {
        return;
    };
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let (output, record) = run(&place, &[], &program, &["oom"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(record["attempts"][0]["outcome"], "oom", "{record}");
    let why = record["attempts"][0]["why"].as_str().unwrap();
    assert!(why.contains("838860800") && why.contains("41943040"), "{record}");
    let (_, record) = run(&place, &[], &program, &["oom", "met"]);
    assert_eq!(record["attempts"][0]["outcome"], "failed", "{record}");
}

/// `examples/report.py` reports a pool of 64 MiB that fills up to 47.
#[test]
fn a_python_program_reports_through_ctypes() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/report.py");
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let (output, record) = run(&place, &[], Path::new("python3"), &[example.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(record["peak"]["allocated"], 47 * MIB, "{record}");
    assert_eq!(record["peak"]["reserved"], 64 * MIB, "{record}");
    let bare = place.command("python3").arg(&example).output().unwrap();
    assert!(
        bare.status.success(),
        "without migm it is a program like any other: {bare:?}"
    );
}

/// The soft cap under the real supervisor: it lets the job grow up to what its lease holds, and no further.
#[test]
fn a_capped_job_is_raised_up_to_its_lease() {
    let test = "a_capped_job_is_raised_up_to_its_lease";
    let Some(program) = allocator(test) else {
        return;
    };
    let place = Place::simulated(&["--gpu", "a100-40gb"]);
    let (output, record) = run(&place, &["--cap", "30Mi:8Mi"], &program, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(record["peak"]["reserved"], 72 * MIB, "{record}");
}
