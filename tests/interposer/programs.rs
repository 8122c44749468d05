//! Compiles the programs of `tests/programs`, and runs them under the interposer.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::peer::Peer;

/// The built interposer: a dev-dependency, so it lies beside this test.
pub fn interposer() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let built = test.with_file_name("libmigm_interposer.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

/// A folder of this test process; left to the system's clean-up, as programs may still run from it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interposer");
        std::fs::create_dir_all(&base).expect("the target folder can be written");
        tempfile::Builder::new()
            .tempdir_in(base)
            .expect("a folder")
            .keep()
    })
}

/// Compiles `source` to `output` once, and returns its path.
fn compile(source: &str, output: &str, flags: &[&str]) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap();
    let path = folder().join(output);
    if path.exists() {
        return path;
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let partial = path.with_extension("partial");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let result = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wno-unused-parameter", "-o"])
        .arg(&partial)
        .arg(sources.join(source))
        .args(flags)
        .current_dir(folder())
        .output()
        .expect("these tests need a C compiler, `cc` or $CC");
    assert!(
        result.status.success(),
        "{source}: {}",
        String::from_utf8_lossy(&result.stderr)
    );
    std::fs::rename(&partial, &path).unwrap();
    path
}

/// The small driver, in a folder that LD_LIBRARY_PATH can name.
pub fn driver(old: bool) -> PathBuf {
    let folder_name = if old { "old" } else { "driver" };
    let versions = folder().join("versions");
    if !versions.exists() {
        std::fs::write(&versions, "libcuda.so.1 { global: *; };").unwrap();
    }
    let flags = [
        "-shared",
        "-fPIC",
        "-pthread",
        "-Wl,-soname,libcuda.so.1",
        "-Wl,--version-script,versions",
    ];
    let flags: Vec<_> = flags.into_iter().chain(old.then_some("-DOLD")).collect();
    compile("fake_libcuda.c", &format!("{folder_name}/libcuda.so.1"), &flags);
    folder().join(folder_name)
}

/// A library of `tests/programs`.
pub fn library(name: &str, flags: &[&str]) -> PathBuf {
    library_as(name, name, flags)
}

/// The same under a name of its own, for a source that is built in several ways.
pub fn library_as(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let soname = format!("-Wl,-soname,lib{name}.so");
    let flags: Vec<_> = ["-shared", "-fPIC", &soname]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    compile(&format!("{source}.c"), &format!("lib{name}.so"), &flags)
}

/// A program to be run under the interposer.
pub struct Program {
    command: Command,
    preload: Vec<PathBuf>,
    library_path: PathBuf,
}

impl Program {
    /// Compiled and linked with the small driver.
    pub fn linked(name: &str, arguments: &[&str]) -> Self {
        let driver = driver(false);
        let path = compile(
            &format!("{name}.c"),
            name,
            &["-pthread", driver.join("libcuda.so.1").to_str().unwrap()],
        );
        Self::of(&path, arguments)
    }

    /// Compiled without it: it loads the driver itself, or none.
    pub fn plain(name: &str, arguments: &[&str], flags: &[&str]) -> Self {
        Self::of(&compile(&format!("{name}.c"), name, flags), arguments)
    }

    /// As [`plain`](Self::plain), under a name of its own, for a source that is linked in several ways.
    pub fn plain_as(name: &str, output: &str, arguments: &[&str], flags: &[&str]) -> Self {
        Self::of(&compile(&format!("{name}.c"), output, flags), arguments)
    }

    /// A program that is there.
    pub fn of(path: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(path);
        command
            .args(arguments)
            .env_remove("MIGM_ATTEMPT")
            .env_remove("MIGM_DISABLE")
            .env("MIGM_SOCKET", folder().join("nobody"));
        Self {
            command,
            preload: vec![interposer()],
            library_path: driver(false),
        }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs as a process of attempt 1 of a job of this supervisor.
    pub fn under(self, peer: &Peer) -> Self {
        self.env("MIGM_SOCKET", peer.path().to_str().unwrap())
            .env("MIGM_ATTEMPT", "7.1.0000000000000001")
    }

    /// With a copy of the interposer in its place.
    pub fn with_interposer(mut self, library: PathBuf) -> Self {
        self.preload[0] = library;
        self
    }

    /// In a folder of its own.
    pub fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Without the interposer.
    pub fn bare(mut self) -> Self {
        self.preload.remove(0);
        self
    }

    /// With another preload behind the interposer.
    pub fn with_preload(mut self, library: PathBuf) -> Self {
        self.preload.push(library);
        self
    }

    /// With another preload in front of the interposer.
    pub fn with_preload_in_front(mut self, library: PathBuf) -> Self {
        self.preload.insert(0, library);
        self
    }

    pub fn with_old_driver(mut self) -> Self {
        self.library_path = driver(true);
        self
    }

    pub fn spawn(self) -> Child {
        self.spawn_with(Stdio::null())
    }

    pub fn spawn_with(mut self, input: Stdio) -> Child {
        let preload: Vec<_> = self.preload.iter().map(|path| path.to_str().unwrap()).collect();
        self.command
            .env("LD_PRELOAD", preload.join(":"))
            .env(
                "LD_LIBRARY_PATH",
                format!("{}:{}", self.library_path.display(), folder().display()),
            )
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts")
    }

    /// Runs it to its end, whatever that is.
    pub fn output(self) -> Output {
        self.spawn().wait_with_output().unwrap()
    }

    /// Runs it, and returns what it printed; it must succeed and say nothing on standard error.
    pub fn run(self) -> String {
        let output = self.output();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        assert_eq!(errors, "", "standard error belongs to the program");
        String::from_utf8(output.stdout).unwrap()
    }
}
