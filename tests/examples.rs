//! The example programs: built by nvcc where one is found and run on a simulated GPU with a shared and with a
//! static runtime, and their twins over the driver API. What needs nvcc says by name that it was left out.

#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod support;

use migm_supervisor::play::{self, PlayArgs};
use simgpu::Machine;
use simgpu::files::Plan;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use support::{nvcc_or_leave_out, repository};

/// The step in which a device charges memory.
const STEP: u64 = 2 << 20;
/// An allocation below this size shares a step with others.
const LARGE: u64 = 1 << 20;
/// What a context is charged in these tests.
const CONTEXT: u64 = 64 << 20;

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

/// A file that cargo built: beside the tests or one folder up; the newest if its name carries a hash.
fn built(stem: &str, extension: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let deps = tests.parent().unwrap();
    let mut found: Vec<_> = [deps, deps.parent().unwrap()]
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            path.extension().is_some_and(|found| found == extension)
                && (name == stem || name.strip_prefix(stem).is_some_and(|rest| rest.starts_with('-')))
        })
        .collect();
    found.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).unwrap());
    found
        .pop()
        .unwrap_or_else(|| panic!("cargo built no {stem}.{extension} near {}", tests.display()))
}

/// A simulated A100 with MIG off, and a folder of the libraries under the names that programs ask for.
struct Bench {
    machine: Machine,
    libraries: tempfile::TempDir,
    costs: tempfile::NamedTempFile,
}

impl Bench {
    fn new() -> Self {
        let plan = Plan::parse("a100-40gb", false, 1.0, "580.82.07").unwrap();
        let machine = Machine::create(&plan).unwrap();
        let libraries = tempfile::tempdir().unwrap();
        for (stem, name) in [
            ("libsimgpu_cuda", "libcuda.so.1"),
            ("libsimgpu_cudart12", "libcudart.so.12"),
            ("libsimgpu_cudart13", "libcudart.so.13"),
        ] {
            std::os::unix::fs::symlink(built(stem, "so"), libraries.path().join(name)).unwrap();
        }
        let costs = tempfile::NamedTempFile::new().unwrap();
        Self {
            machine,
            libraries,
            costs,
        }
    }

    /// Makes one kernel take `seconds`.
    fn cost(&self, kernel: &str, seconds: f64) {
        fs::write(self.costs.path(), format!("[kernels]\n{kernel} = {seconds}\n")).unwrap();
    }

    /// Runs a program to its end, and watches what the device charges its process.
    fn run(&self, mut command: Command) -> Ran {
        command
            .env("LD_LIBRARY_PATH", self.libraries.path())
            .env("SIMGPU_ID", self.machine.id())
            .env("SIMGPU_COSTS", self.costs.path())
            .env("SIMGPU_CONTEXT_BYTES", CONTEXT.to_string())
            .env("SIMGPU_CONTEXT_SECONDS", "0")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .env_remove("LD_PRELOAD")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let started = Instant::now();
        let mut charged = 0;
        while child.try_wait().unwrap().is_none() {
            let of_child = self
                .machine
                .processes(0)
                .into_iter()
                .filter(|entry| entry.pid == child.id());
            charged = charged.max(of_child.map(|entry| entry.bytes).sum());
            if started.elapsed() > Duration::from_secs(60) {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = child.wait_with_output().unwrap();
        Ran {
            status: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            charged,
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = simgpu::files::remove(self.machine.id());
    }
}

/// How a program ended, and the most that its process was charged.
#[derive(Debug)]
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
    charged: u64,
}

/// One way to run a program: its arguments, the kernel that its last iteration ends with, and the allocations
/// that are live at the peak, read off its source.
struct Trial {
    name: &'static str,
    arguments: PlayArgs,
    last_kernel: &'static str,
    live: Vec<u64>,
}

impl Trial {
    fn steady(name: &'static str, size: u64, last_kernel: &'static str, live: Vec<u64>) -> Self {
        let arguments = PlayArgs {
            size: Some(size),
            iterations: Some(2),
            ..PlayArgs::default()
        };
        Self {
            name,
            arguments,
            last_kernel,
            live,
        }
    }

    fn peak(&self) -> u64 {
        self.live.iter().sum()
    }

    /// What the device charges: large allocations in whole steps, small ones together.
    fn charge(&self) -> u64 {
        let (large, small): (Vec<u64>, Vec<u64>) = self.live.iter().partition(|&&bytes| bytes >= LARGE);
        let small: u64 = small.iter().map(|bytes| bytes.next_multiple_of(512)).sum();
        CONTEXT
            + large
                .iter()
                .map(|bytes| bytes.next_multiple_of(STEP))
                .sum::<u64>()
            + small.next_multiple_of(STEP)
    }

    fn options(&self) -> Vec<String> {
        let given = [
            ("--size", self.arguments.size),
            ("--iterations", self.arguments.iterations),
            ("--start", self.arguments.start),
            ("--growth", self.arguments.growth),
            ("--jump", self.arguments.jump),
            ("--at", self.arguments.at),
        ];
        let given = given
            .into_iter()
            .filter_map(|(option, value)| Some([option.to_owned(), value?.to_string()]));
        given.flatten().collect()
    }

    /// Whether a program printed its line, and its process was charged what it holds.
    fn hold(&self, ran: &Ran) {
        let name = self.name;
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        assert_eq!(ran.stderr, "", "{name}");
        let iterations = self.arguments.iterations.unwrap();
        let line = format!("{name}: {iterations} iterations, peak {} bytes", self.peak());
        assert!(
            ran.stdout.lines().any(|found| found.ends_with(&line)),
            "{line}: {ran:?}"
        );
        assert_eq!(ran.charged, self.charge(), "{name}: what the device charged");
    }
}

fn trials() -> Vec<Trial> {
    const M: u64 = 1 << 20;
    let grow = PlayArgs {
        start: Some(32 * M),
        growth: Some(4 * M),
        iterations: Some(5),
        ..PlayArgs::default()
    };
    vec![
        Trial::steady("stencil", 1024, "stencil_step", vec![4 * M; 3]),
        Trial::steady("lu", 1024, "lu_update", vec![4 * M]),
        Trial::steady("bfs", M, "bfs_advance", vec![4 * (M + 1), 32 * M, 4 * M, M, M]),
        Trial::steady("align", 1000, "align_tile", vec![4 * 1001 * 1001, 1000, 1000]),
        Trial::steady("kmeans", M, "kmeans_move", vec![32 * M, 4 * M, 512, 512, 64]),
        Trial::steady("nearest", M, "nearest_reduce", vec![8 * M, 4 * M, 8]),
        Trial::steady("boxes", 20, "boxes_force", vec![16 * 64 * 8000; 2]),
        Trial::steady("diffusion", 1024, "diffusion_update", vec![4 * M; 3]),
        Trial::steady("sort", M - 5, "sort_fill", vec![4 * M]),
        Trial::steady(
            "particles",
            M,
            "particles_draw",
            [vec![4 * M; 6], vec![4 * 4096]].concat(),
        ),
        Trial {
            name: "decoder",
            arguments: grow,
            last_kernel: "decoder_attend",
            live: [vec![32 * M, 8 * 6, 1024, 1024], vec![4 * M; 5]].concat(),
        },
        Trial {
            name: "jumper",
            arguments: PlayArgs {
                jump: Some(100 * M),
                at: Some(3),
                ..grow
            },
            last_kernel: "jumper_sweep",
            live: vec![32 * M, 68 * M],
        },
        Trial {
            name: "convex",
            arguments: grow,
            last_kernel: "convex_sum",
            live: vec![32 * M, 8, 4 * M, 8 * M, 12 * M, 16 * M, 20 * M],
        },
        Trial {
            name: "leak",
            arguments: grow,
            last_kernel: "leak_answer",
            live: [vec![32 * M, 8 * M], vec![4 * M; 5]].concat(),
        },
    ]
}

/// Runs every program; each keeps its peak for at least one launch of 200 ms, long enough to be seen.
fn run_all(bench: &Bench, command: impl Fn(&Trial) -> Command) {
    for trial in trials() {
        bench.cost(trial.last_kernel, if trial.name == "align" { 0.002 } else { 0.2 });
        trial.hold(&bench.run(command(&trial)));
    }
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

/// Runs `.ci/nvcc` for a place, with nothing to install from.
fn install(home: &Path) -> std::process::Output {
    let mut command = Command::new(repository().join(".ci/nvcc"));
    command
        .env("MIGM_NVCC_HOME", home)
        .env("PIP_NO_INDEX", "1")
        .env_remove("PIP_FIND_LINKS");
    command.output().unwrap()
}

#[test]
fn an_installed_nvcc_is_not_installed_again() {
    let home = tempfile::tempdir().unwrap();
    let nvcc = home.path().join("nvidia/cu13/bin/nvcc");
    fs::create_dir_all(nvcc.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink("/bin/true", &nvcc).unwrap();
    let output = install(home.path());
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("{}\n", nvcc.display())
    );
}

#[test]
fn an_nvcc_that_cannot_be_installed_is_one_line_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = install(&folder.path().join("nvcc"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.starts_with(".ci/nvcc: ") && stderr.lines().count() == 1,
        "{stderr}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The environment variable that makes this test binary play a program: its name and arguments, in JSON.
const PLAY: &str = "MIGM_TEST_PLAY";

/// A process that plays a program's twin: this test binary once more, since the loader reads where libcuda is
/// when a process starts.
fn twin(name: &str, given: PlayArgs) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let numbers = [
        given.size,
        given.iterations,
        given.start,
        given.growth,
        given.jump,
        given.at,
    ];
    command
        .args(["--exact", "plays_a_twin", "--nocapture", "--test-threads=1"])
        .env(PLAY, serde_json::json!([name, numbers]).to_string());
    command
}

#[test]
#[expect(clippy::exit, reason = "the process is the program that is played")]
fn plays_a_twin() {
    let Ok(order) = std::env::var(PLAY) else { return };
    let (name, [size, iterations, start, growth, jump, at]): (String, [Option<u64>; 6]) =
        serde_json::from_str(&order).unwrap();
    let code = match play::play(
        &name,
        PlayArgs {
            size,
            iterations,
            start,
            growth,
            jump,
            at,
        },
    ) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("play: {error}");
            error.exit_code()
        }
    };
    std::process::exit(code.into());
}
