//! Builds the programs of this folder, and the place where they run.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use simgpu::Machine;
use simgpu::files::Plan;

/// Device bytes of a context of these programs.
const CONTEXT: u64 = 64 << 20;

/// Whether the suite runs on the driver of this machine.
pub fn is_real() -> bool {
    match std::env::var("DRIVER").as_deref() {
        Ok("real") => true,
        Err(_) | Ok("" | "sim") => false,
        Ok(other) => panic!("DRIVER={other}: neither sim nor real"),
    }
}

/// A folder of this test process.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
        std::fs::create_dir_all(&base).expect("the target folder can be written");
        tempfile::Builder::new()
            .tempdir_in(base)
            .expect("a folder")
            .keep()
    })
}

/// Says past the test harness, which keeps it to itself, which test goes without what, and why.
pub fn leave_out(what: &str) {
    let thread = std::thread::current();
    let line = format!("left out: {}: {what}\n", thread.name().unwrap_or("a test"));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// A shared object that cargo built beside this test.
pub fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.with_file_name(name);
    assert!(path.exists(), "{} is not built", path.display());
    path
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/conformance")
        .join(name)
}

/// Runs a compiler once for `output`.
pub fn compile(output: &str, run: impl FnOnce(&Path) -> Command) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let path = folder().join(output);
    if !path.exists() {
        let partial = path.with_extension("partial");
        let mut command = run(&partial);
        let result = command.output().expect("a compiler");
        let said = String::from_utf8_lossy(&result.stderr).into_owned();
        assert!(result.status.success(), "{output}: {said}");
        std::fs::rename(&partial, &path).unwrap();
    }
    path
}

/// A C program of this folder.
pub fn program(name: &str) -> PathBuf {
    compile(name, |output| {
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-Wall", "-Wextra", "-o"])
            .arg(output)
            .arg(source(&format!("{name}.c")))
            .args(["-ldl", "-lpthread"]);
        command
    })
}

/// Where programs run: a simulated GPU of their own, or this machine.
pub struct Bench {
    machine: Option<Machine>,
    libraries: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Self {
        let libraries = tempfile::tempdir_in(folder()).unwrap();
        if is_real() {
            return Self {
                machine: None,
                libraries,
            };
        }
        for (built_as, name) in [
            ("libsimgpu_cuda.so", "libcuda.so.1"),
            ("libsimgpu_cudart12.so", "libcudart.so.12"),
            ("libsimgpu_cudart13.so", "libcudart.so.13"),
        ] {
            std::os::unix::fs::symlink(built(built_as), libraries.path().join(name)).unwrap();
        }
        let plan = Plan::parse("a100-40gb", false, 1.0, "580.82.07").unwrap();
        Self {
            machine: Some(Machine::create(&plan).unwrap()),
            libraries,
        }
    }

    /// A program in this place.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_remove("LD_PRELOAD")
            .env_remove("MIGM_DISABLE")
            .env_remove("MIGM_ATTEMPT")
            .env("MIGM_SOCKET", folder().join("nobody"));
        if let Some(machine) = &self.machine {
            command
                .env_remove("CUDA_VISIBLE_DEVICES")
                .env_remove("SIMGPU_COSTS")
                .env("SIMGPU_ID", machine.id())
                .env("SIMGPU_CONTEXT_BYTES", CONTEXT.to_string())
                .env("SIMGPU_CONTEXT_SECONDS", "0")
                .env("LD_LIBRARY_PATH", self.libraries.path());
        }
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(machine) = &self.machine {
            let _ = simgpu::files::remove(machine.id());
        }
    }
}

/// A program that stops after each step.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    pub status: Option<i32>,
    pub stderr: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn start(mut command: Command) -> Self {
        command
            .env("STEPS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The next line; `None` once it has ended.
    pub fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let bytes = self.lines.read_line(&mut line).unwrap();
        (bytes > 0).then(|| line.trim_end().to_owned())
    }

    /// Lets it go on from a step.
    pub fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    }

    pub fn end(mut self) -> Ended {
        let mut stderr = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        let status = self.child.wait().unwrap().code();
        Ended { status, stderr }
    }
}
