//! Where the supervisor's socket is: one rule for those who listen and those who connect.
//!
//! `MIGM_SOCKET`, if set, is the only place. Else a client looks for the service at [`SERVICE_SOCKET`],
//! then for a private supervisor in `$XDG_RUNTIME_DIR/migm/`, and where that variable is not set in
//! `/tmp/migm-<uid>/`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the service listens.
pub const SERVICE_SOCKET: &str = "/run/migm/migm.sock";
/// The longest path that fits `sun_path` with its final zero, in bytes.
pub const LONGEST: usize = 107;

/// The path is no use as a socket.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PathError {
    /// Longer than the kernel takes.
    #[error(
        "socket path `{path}` has {length} bytes, and the kernel takes at most {LONGEST}: choose a shorter one with --socket or MIGM_SOCKET"
    )]
    TooLong {
        /// The path.
        path: String,
        /// Its bytes.
        length: usize,
    },
    /// Nothing was given.
    #[error("the socket path is empty")]
    Empty,
}

/// Where a client looks for a supervisor, in order.
#[must_use]
pub fn socket_paths() -> Vec<PathBuf> {
    match given() {
        Some(path) => vec![path],
        None => vec![PathBuf::from(SERVICE_SOCKET), private_socket()],
    }
}

/// Where a private supervisor of this user listens.
#[must_use]
pub fn private_socket() -> PathBuf {
    given().unwrap_or_else(|| {
        let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|value| !value.is_empty()) {
            Some(runtime) => PathBuf::from(runtime).join("migm"),
            None => PathBuf::from(format!("/tmp/migm-{}", nix::unistd::getuid())),
        };
        folder.join("migm.sock")
    })
}

fn given() -> Option<PathBuf> {
    std::env::var_os("MIGM_SOCKET")
        .filter(|value| !value.is_empty())
        .map(absolute)
}

/// The same path for whoever works in another folder, such as the program of a job.
#[must_use]
pub fn absolute(path: impl Into<PathBuf>) -> PathBuf {
    let path = path.into();
    std::path::absolute(&path).unwrap_or(path)
}

/// Refuses a path that no socket can have.
///
/// # Errors
/// It is empty or has more than [`LONGEST`] bytes.
pub fn check(path: &Path) -> Result<(), PathError> {
    match path.as_os_str().as_bytes().len() {
        0 => Err(PathError::Empty),
        length if length > LONGEST => Err(PathError::TooLong {
            path: path.display().to_string(),
            length,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_sun_path_cannot_hold_is_named_with_its_length() {
        let fits = PathBuf::from("/".repeat(LONGEST));
        assert_eq!(check(&fits), Ok(()));
        let long = fits.join("x");
        let said = check(&long).unwrap_err().to_string();
        assert!(
            said.contains("has 108 bytes") && said.contains("--socket"),
            "{said}"
        );
        assert_eq!(check(Path::new("")), Err(PathError::Empty));
    }
}
