//! Waiting for configuration changes: a futex in the state counts them.

use std::time::Instant;

use crate::machine::Machine;

impl Machine {
    pub(super) fn wake_waiters(&self) {
        let word = self.mapping().changes.atomic().as_ptr();
        // SAFETY: the word is in the mapped state; waking touches no memory.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Configuration changes of a GPU so far.
    #[must_use]
    pub fn changes(&self, gpu: u32) -> u64 {
        self.mapping().gpu(gpu).map_or(0, |gpu| gpu.changes.get())
    }

    /// Sleeps until `happened` or the deadline; woken by configuration changes.
    pub fn wait_for_change(&self, deadline: Instant, happened: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.mapping().changes.get();
            if happened() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = libc::timespec {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let word = self.mapping().changes.atomic().as_ptr();
            // SAFETY: the word is in the mapped state and `timeout` outlives the call. Any early return only leads
            // round the loop.
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, &raw const timeout) };
        }
    }
}
