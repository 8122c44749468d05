//! The script that installs the compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::repository;

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
