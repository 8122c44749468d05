//! What the benchmarks of the interposer share: a driver that does next to nothing, the libraries compared on
//! it, and figures with their spread.
//!
//! Each benchmark compares a run without a preload with one under the interposer, and with one under each
//! library named by `--peer NAME=PATH`, round by round in the same run, so that a busy machine disturbs all of
//! them alike. What a peer needs besides, such as variables or a daemon of its own, is the caller's to provide.
#![allow(dead_code, reason = "each benchmark uses its own part")]

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Something to preload, or nothing.
#[derive(Clone)]
pub struct Preload {
    /// What the tables call it.
    pub name: String,
    file: Option<PathBuf>,
}

/// No preload, the interposer, and then the peers.
pub fn preloads() -> Vec<Preload> {
    let none = Preload {
        name: "none".into(),
        file: None,
    };
    let migm = Preload {
        name: "migm".into(),
        file: Some(interposer()),
    };
    let arguments: Vec<String> = std::env::args().collect();
    let peers = arguments
        .windows(2)
        .filter(|pair| pair[0] == "--peer")
        .map(|pair| {
            let (name, path) = pair[1].split_once('=').expect("--peer NAME=PATH");
            let file = std::fs::canonicalize(path).expect("the peer's file");
            Preload {
                name: name.into(),
                file: Some(file),
            }
        });
    [none, migm].into_iter().chain(peers).collect()
}

/// The built interposer: a dev-dependency, so it lies beside the benchmarks.
fn interposer() -> PathBuf {
    let built = std::env::current_exe()
        .expect("a path")
        .with_file_name("libmigm_interposer.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

/// A folder with the driver.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/quiet_libcuda.c");
        let arguments = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"].map(Into::into);
        place.compile("libcuda.so.1", &source, &arguments);
        place
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn compile(&self, output: &str, source: &Path, arguments: &[String]) -> PathBuf {
        let output = self.path().join(output);
        let status = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-O2", "-o"])
            .arg(&output)
            .arg(source)
            .args(arguments)
            .status()
            .expect("the benchmark needs a C compiler, `cc` or $CC");
        assert!(status.success());
        output
    }

    /// Builds a program from its source text, linked with the driver.
    pub fn program(&self, name: &str, text: &str) -> PathBuf {
        let source = self.path().join(format!("{name}.c"));
        std::fs::write(&source, text).expect("a file");
        let driver = self.path().join("libcuda.so.1").display().to_string();
        self.compile(name, &source, &[driver])
    }

    /// A program that finds the driver here, and the preload; nobody supervises it.
    pub fn command(&self, program: impl AsRef<Path>, preload: &Preload) -> Command {
        let mut path = self.path().as_os_str().to_owned();
        if let Some(others) = std::env::var_os("LD_LIBRARY_PATH") {
            path.push(":");
            path.push(others);
        }
        let mut command = Command::new(program.as_ref());
        command
            .env("LD_LIBRARY_PATH", path)
            .env("MIGM_SOCKET", self.path().join("nobody"))
            .env_remove("MIGM_ATTEMPT")
            .env_remove("LD_PRELOAD");
        if let Some(file) = &preload.file {
            command.env("LD_PRELOAD", file);
        }
        command
    }
}

/// This benchmark as its own child.
pub fn own() -> PathBuf {
    std::env::current_exe().expect("a path")
}

/// What a child prints, as numbers; `None` if it fails or takes longer than `limit`: some libraries lock up.
pub fn numbers(command: &mut Command, limit: Duration) -> Option<Vec<f64>> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    let start = Instant::now();
    while child.try_wait().expect("a status").is_none() {
        if start.elapsed() > limit {
            child.kill().expect("our child");
            child.wait().expect("a status");
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().expect("output");
    let text = String::from_utf8(output.stdout).ok()?;
    let numbers: Option<Vec<f64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    numbers.filter(|numbers| output.status.success() && !numbers.is_empty())
}

/// The middle of some figures, and where a tenth of them lie below and above.
#[derive(Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    /// `None` for no figures.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |tenths: usize| sorted.get(sorted.len().saturating_sub(1) * tenths / 10).copied();
        Some(Self {
            low: at(1)?,
            median: at(5)?,
            high: at(9)?,
        })
    }

    /// The figures of one series less those of another that were taken in the same rounds.
    pub fn of_difference(figures: &[f64], baseline: &[f64]) -> Option<Self> {
        let difference: Vec<f64> = figures
            .iter()
            .zip(baseline)
            .map(|(one, other)| one - other)
            .collect();
        Self::of(&difference)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        let text = format!(
            "{:.digits$} [{:.digits$} {:.digits$}]",
            self.median, self.low, self.high
        );
        f.write_str(&text)
    }
}

/// A spread, or a dash.
pub fn shown(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".into(), |spread| format!("{spread:.digits$}"))
}

/// CPU time of the calling thread in nanoseconds.
pub fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place to write to; the clock exists on each Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u32::try_from(part).expect("short"));
    f64::from(seconds) * 1e9 + f64::from(rest)
}

/// CPU time of all children that have been waited for, in milliseconds.
pub fn children_cpu_ms() -> f64 {
    // SAFETY: only integers inside: all-zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a place to write to.
    let status = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(status, 0);
    let milliseconds = |time: libc::timeval| {
        let [seconds, rest] = [time.tv_sec, time.tv_usec].map(|part| u32::try_from(part).expect("short"));
        f64::from(seconds) * 1e3 + f64::from(rest) / 1e3
    };
    milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime)
}
