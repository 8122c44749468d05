//! An integration test of this package makes cargo build the `migm` binary, which the end-to-end tests of
//! the workspace run.

use std::process::Command;

#[test]
fn the_binary_says_its_version() {
    let output = Command::new(env!("CARGO_BIN_EXE_migm"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!("migm {}\n", env!("CARGO_PKG_VERSION"))
    );
}
