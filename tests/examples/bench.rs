//! A simulated machine that runs one program at a time, and what the device charges it meanwhile.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use simgpu::Machine;
use simgpu::files::Plan;

/// What a context is charged in these tests.
pub const CONTEXT: u64 = 64 << 20;

/// A file that cargo built: beside the tests or one folder up; the newest if its name carries a hash.
pub fn built(stem: &str, extension: &str) -> PathBuf {
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
pub struct Bench {
    machine: Machine,
    libraries: tempfile::TempDir,
    costs: tempfile::NamedTempFile,
}

impl Bench {
    pub fn new() -> Self {
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
    pub fn cost(&self, kernel: &str, seconds: f64) {
        fs::write(self.costs.path(), format!("[kernels]\n{kernel} = {seconds}\n")).unwrap();
    }

    /// Runs a program to its end, and watches what the device charges its process.
    pub fn run(&self, mut command: Command) -> Ran {
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
pub struct Ran {
    pub status: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub charged: u64,
}
