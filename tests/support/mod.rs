//! What end-to-end tests share: where the built files are, and a simulated GPU of the test's own.
#![allow(dead_code, reason = "each test program uses its own part")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The folder that holds `migm` and, in `deps/`, the shared objects: two above this test.
pub fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// The `migm` binary. `cargo test` for the whole workspace builds it, `cargo test --test NAME` does not, so a
/// failure says when it is older than the library that these tests were built with.
///
/// # Panics
/// When it has not been built.
pub fn migm() -> PathBuf {
    let path = built().join("migm");
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let library = std::fs::read_dir(built().join("deps"))
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libmigm_supervisor-") && name.ends_with(".rlib")
        })
        .filter_map(|path| changed(&path))
        .max();
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` first",
        path.display()
    );
    if changed(&path) < library {
        eprintln!("{} may be stale: run `cargo build` first", path.display());
    }
    path
}

/// A shared object built with the tests, by its crate name: `migm_interposer`.
pub fn shared_object(name: &str) -> PathBuf {
    let path = built().join("deps").join(format!("lib{name}.so"));
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` first",
        path.display()
    );
    path
}

/// An environment of the test's own: a simulated GPU where asked, run and state folders, no service.
pub struct Place {
    folder: tempfile::TempDir,
    environment: Vec<(String, String)>,
}

impl Place {
    /// No GPU and no driver.
    pub fn without_gpu() -> Self {
        let folder = tempfile::Builder::new().prefix("migm-t").tempdir().unwrap();
        let run = folder.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let environment = vec![
            ("MIGM_SOCKET".to_owned(), run.join("s").display().to_string()),
            ("XDG_RUNTIME_DIR".to_owned(), run.display().to_string()),
            (
                "XDG_STATE_HOME".to_owned(),
                folder.path().join("state").display().to_string(),
            ),
            ("TMPDIR".to_owned(), folder.path().display().to_string()),
        ];
        Self { folder, environment }
    }

    /// A fresh simulated GPU as `migm sim env` makes it, all programs of this place meet it.
    pub fn simulated(arguments: &[&str]) -> Self {
        let mut place = Self::without_gpu();
        let output = place.migm(&["sim", "env"]).args(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            let (name, value) = line
                .strip_prefix("export ")
                .and_then(|line| line.split_once('='))
                .unwrap();
            let value = value.trim_matches('\'').replace("'\\''", "'");
            place.environment.push((name.to_owned(), value));
        }
        place
    }

    /// Its folder, gone with it.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A program that runs here.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env_remove("LD_PRELOAD")
            .env_remove("CUDA_VISIBLE_DEVICES")
            .stdin(Stdio::null());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// `migm` with arguments.
    pub fn migm(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(migm());
        command.args(arguments);
        command
    }

    /// A variable of this place.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Sets a variable for what runs here from now on.
    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }
}

impl Drop for Place {
    /// Takes away the simulated GPU of this place and no other: tests run side by side.
    fn drop(&mut self) {
        if let Some(id) = self.variable("SIMGPU_ID") {
            let _ = simgpu::files::remove(id);
        }
    }
}

/// Standard output as JSON; a failure shows both streams.
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|fault| {
        panic!(
            "{fault}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Waits until `check` gives something, at most `limit`.
pub fn eventually<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The folder of this checkout.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// nvcc: `MIGM_NVCC`, then `PATH`, then where `.ci/nvcc` puts it.
pub fn nvcc() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("MIGM_NVCC") {
        return Some(PathBuf::from(given));
    }
    let installed = std::env::var_os("MIGM_NVCC_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/migm/nvcc-13.0.88")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("nvcc"))
        .chain(installed.map(|home| home.join("nvidia/cu13/bin/nvcc")))
        .find(|nvcc| nvcc.is_file())
}

/// nvcc, or a line that says which test goes without. It is written past the test harness, which would keep
/// it to itself.
pub fn nvcc_or_leave_out(test: &str) -> Option<PathBuf> {
    let found = nvcc();
    if found.is_none() {
        let line = format!("left out: {test}: no nvcc in MIGM_NVCC, PATH or the place of .ci/nvcc\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}
