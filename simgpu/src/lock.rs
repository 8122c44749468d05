//! A lock in shared memory that outlives its holder.
//!
//! It is a robust process-shared mutex. When its holder dies at any instant, by SIGKILL too, the kernel marks it
//! and the next locker gets it. A file lock would do so as well, but a child forked meanwhile shares the open
//! file and keeps the lock when the parent dies; a mutex belongs to one thread.
//!
//! What it guards must be right after any prefix of an update. So each update here ends in one store that makes
//! it count, and totals are summed from the records of the living.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// See the [module](self). All-zero memory is not a lock: [`Lock::format`] makes it one.
#[repr(C)]
pub(crate) struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: the mutex is made for concurrent use; nothing else touches the cell.
unsafe impl Sync for Lock {}
// SAFETY: it holds no reference to a thread; a locked mutex is not moved, as guards borrow it.
unsafe impl Send for Lock {}

/// Unlocks when dropped.
pub(crate) struct Guard<'a>(&'a Lock);

impl Lock {
    /// Makes zeroed memory a lock.
    ///
    /// # Safety
    /// Nobody else may use the memory yet.
    pub(crate) unsafe fn format(&self) {
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: `attributes` points to memory for them, which this call fills.
        let made = unsafe { libc::pthread_mutexattr_init(attributes) };
        // SAFETY: they are initialised.
        let shared = unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: as above.
        let robust = unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: the cell is memory for a mutex that nobody uses, as the caller says.
        let ready = unsafe { libc::pthread_mutex_init(self.0.get(), attributes) };
        assert!(
            (made, shared, robust, ready) == (0, 0, 0, 0),
            "no robust mutexes on this system"
        );
    }

    /// Waits for the lock.
    pub(crate) fn lock(&self) -> Guard<'_> {
        // SAFETY: only formatted locks are reachable through an opened state.
        match unsafe { libc::pthread_mutex_lock(self.0.get()) } {
            0 => {}
            libc::EOWNERDEAD => {
                // SAFETY: this thread holds the mutex of a dead owner. The state is right after any prefix of an
                // update, so there is nothing to repair.
                let repaired = unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                debug_assert_eq!(repaired, 0);
            }
            error => panic!(
                "the state's lock is broken: {}",
                std::io::Error::from_raw_os_error(error)
            ),
        }
        Guard(self)
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the guard exists only while this thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use crate::files::{DEFAULT_DRIVER, Mapping, Plan, remove};

    #[test]
    fn a_holder_killed_inside_the_lock_does_not_keep_it() {
        if let Ok(id) = std::env::var("TEST_HOLD_LOCK_OF") {
            let mapping = Mapping::open(&id).unwrap();
            let _held = mapping.locked();
            nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
        }
        let mapping = Mapping::create(&Plan::parse("a100-40gb", true, 1.0, DEFAULT_DRIVER).unwrap()).unwrap();
        for _ in 0..3 {
            let mut holder = Command::new(std::env::current_exe().unwrap());
            holder.args([
                "--exact",
                "lock::tests::a_holder_killed_inside_the_lock_does_not_keep_it",
            ]);
            let ended = holder
                .env("TEST_HOLD_LOCK_OF", mapping.id())
                .output()
                .unwrap()
                .status;
            assert_eq!(ended.signal(), Some(9), "the holder must die inside");
            // Would hang, were the lock not given on.
            let state = mapping.locked();
            assert_eq!(state.gpu_count.get(), 1);
        }
        remove(mapping.id()).unwrap();
    }
}
