//! The program under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The `migm` of this build. Tests of another package get it from no variable, so it is built by name; cargo
/// has nothing to do when it is fresh.
pub fn migm() -> &'static Path {
    static MIGM: OnceLock<PathBuf> = OnceLock::new();
    MIGM.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "migm", "--bin", "migm"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        let built = build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(built.success(), "migm does not build");
        // This test lies in `deps` beside it.
        let test = std::env::current_exe().unwrap();
        test.parent().unwrap().parent().unwrap().join("migm")
    })
}
