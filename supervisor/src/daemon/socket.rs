//! The socket that the supervisor listens on, and the lock that makes it the only one.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::error::DaemonError;
use crate::control::paths;

/// How long an ending supervisor may hold the lock after it has withdrawn its socket.
const HANDOVER: Duration = Duration::from_secs(25);

/// The right to serve a socket. It goes with the process, however that ends.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    #[expect(dead_code, reason = "held, not read")]
    lock: File,
    private: bool,
}

/// A bound socket with its lock. The socket's file is removed by [`Socket::withdraw`] only, since the next
/// supervisor replaces it anyway.
#[derive(Debug)]
pub struct Socket {
    /// Non-blocking.
    pub listener: UnixListener,
    lock: Lock,
}

impl Lock {
    /// Takes the lock beside `path`. A `private` socket is for its user only, and so is its folder; a
    /// service's is for everyone, and each request is checked against the peer's user.
    ///
    /// # Errors
    /// Another supervisor holds the lock, the path is too long, the folder is not safe, or the system
    /// refused.
    pub fn take(path: &Path, private: bool) -> Result<Self, DaemonError> {
        paths::check(path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        prepare(folder, private)?;
        let lock_path = beside(path, "lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(DaemonError::system(format!("opening {}", lock_path.display())))?;
        let until = Instant::now() + HANDOVER;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                // Nobody answers: its holder is about to end, or about to listen, where one that was killed may have
                // left its socket's file.
                Err(TryLockError::WouldBlock) if !answers(path) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(DaemonError::Taken(path.to_path_buf())),
                Err(TryLockError::Error(source)) => {
                    let tried = format!("locking {}", lock_path.display());
                    return Err(DaemonError::System { tried, source });
                }
            }
        }
        Ok(Self {
            path: path.to_path_buf(),
            lock,
            private,
        })
    }

    /// Binds. Who connects from here on is served, so all else comes before.
    ///
    /// # Errors
    /// The system refused.
    pub fn listen(self) -> Result<Socket, DaemonError> {
        let path = &self.path;
        // With the lock in hand, a socket that is there belongs to nobody.
        if let Err(source) = fs::remove_file(path)
            && source.kind() != std::io::ErrorKind::NotFound
        {
            return Err(DaemonError::system(format!("replacing {}", path.display()))(
                source,
            ));
        }
        let listener = UnixListener::bind(path)
            .map_err(DaemonError::system(format!("listening on {}", path.display())))?;
        let mode = if self.private { 0o600 } else { 0o666 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(DaemonError::system(format!(
            "setting mode {mode:o} on {}",
            path.display()
        )))?;
        listener
            .set_nonblocking(true)
            .map_err(DaemonError::system("making the socket non-blocking"))?;
        Ok(Socket { listener, lock: self })
    }
}

impl Socket {
    /// Removes the socket's file, so that nobody new comes; the lock is kept. The lock's file stays for ever:
    /// whoever waits for it holds that very file.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(&self.lock.path);
    }
}

/// Whether somebody listens at this socket.
fn answers(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// `migm.sock` with another ending: files that belong to a socket lie beside it.
#[must_use]
pub fn beside(socket: &Path, ending: &str) -> PathBuf {
    socket.with_extension(ending)
}

/// Makes the folder if it is missing, and refuses a private one that others own or can write to: under
/// `/tmp` anyone may have made it first.
fn prepare(folder: &Path, private: bool) -> Result<(), DaemonError> {
    let mode = if private { 0o700 } else { 0o755 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(folder)
        .map_err(DaemonError::system(format!("making {}", folder.display())))?;
    if !private {
        return Ok(());
    }
    let there = fs::metadata(folder).map_err(DaemonError::system(format!("reading {}", folder.display())))?;
    let unsafe_for = |why| DaemonError::Folder {
        folder: folder.to_path_buf(),
        why,
    };
    if there.uid() != nix::unistd::geteuid().as_raw() {
        return Err(unsafe_for("it belongs to another user"));
    }
    if there.mode() & 0o022 != 0 {
        return Err(unsafe_for("others may write to it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_supervisor_is_refused_and_a_dead_one_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("migm.sock");
        let first = Lock::take(&path, true).unwrap().listen().unwrap();
        assert!(matches!(Lock::take(&path, true), Err(DaemonError::Taken(_))));
        // Dropped without remove, as by SIGKILL: file and lock file stay.
        drop(first);
        assert!(path.exists());
        Lock::take(&path, true).unwrap().listen().unwrap().withdraw();
        assert!(!path.exists());
    }

    #[test]
    fn the_next_supervisor_waits_for_one_that_is_ending() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("migm.sock");
        let ending = Lock::take(&path, true).unwrap().listen().unwrap();
        ending.withdraw();
        let next = std::thread::spawn(move || Lock::take(&path, true).map(|_| ()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!next.is_finished());
        drop(ending);
        assert!(next.join().unwrap().is_ok());
    }

    /// Of two that start together after one was killed, the later one would take the dead one's file for the other's socket.
    #[test]
    fn a_socket_that_a_killed_one_has_left_does_not_speak_for_who_holds_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("migm.sock");
        drop(Lock::take(&path, true).unwrap().listen().unwrap());
        let starting = Lock::take(&path, true).unwrap();
        let other = path.clone();
        let next = std::thread::spawn(move || Lock::take(&other, true).map(|_| ()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!next.is_finished());
        let listening = starting.listen().unwrap();
        assert!(matches!(next.join().unwrap(), Err(DaemonError::Taken(_))));
        listening.withdraw();
    }

    #[test]
    fn a_folder_that_others_can_write_to_is_no_private_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let error = Lock::take(&folder.path().join("migm.sock"), true).unwrap_err();
        assert!(error.to_string().contains("others may write"), "{error}");
    }
}
