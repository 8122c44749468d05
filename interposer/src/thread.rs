//! What the interposer keeps for each thread of the program.

use std::cell::Cell;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};

use migm_shared::page::LANES;
use once_cell::race::OnceNonZeroUsize;

use crate::attach::{self, Attachment};

/// One thread's own words.
#[derive(Debug)]
pub struct Thread {
    /// Whether the thread is inside a hook.
    pub inside: Cell<bool>,
    /// The attachment, by address, that `lane` is of; another one after a fork.
    attachment: Cell<usize>,
    lane: Cell<usize>,
}

thread_local! {
    // Without a destructor, so that it also works from the destructors of the program's own thread-locals.
    static THREAD: Thread = const {
        Thread {
            inside: Cell::new(false),
            attachment: Cell::new(0),
            lane: Cell::new(0),
        }
    };
}

impl Thread {
    /// Runs `body` with the calling thread's words: they are looked up once a call, which is not free in a
    /// shared library.
    #[inline]
    pub fn with<T>(body: impl FnOnce(&Self) -> T) -> T {
        let own = THREAD.with(ptr::from_ref);
        // SAFETY: the words have no destructor and last as long as the thread, which is in `body` meanwhile.
        // Passing `body` through `LocalKey::with` itself would keep it from being inlined.
        body(unsafe { &*own })
    }

    /// The lane of the page that this thread counts in: one of its own while there are any, else the shared
    /// one.
    #[inline]
    pub fn lane(&self, attachment: &Attachment) -> usize {
        if self.attachment.get() == ptr::from_ref(attachment).addr() {
            self.lane.get()
        } else {
            self.take_lane(attachment)
        }
    }

    #[cold]
    fn take_lane(&self, attachment: &Attachment) -> usize {
        let lane = attachment.lanes.take();
        self.attachment.set(ptr::from_ref(attachment).addr());
        self.lane.set(lane);
        if lane != Lanes::SHARED {
            at_end_of_thread();
        }
        lane
    }

    /// Gives the lane back. A hook called later, by another destructor of the thread, takes one again.
    fn leave(&self) {
        let before = self.attachment.replace(0);
        if let Some(attachment) = attach::already().filter(|now| ptr::from_ref(*now).addr() == before) {
            attachment.lanes.give_back(self.lane.replace(Lanes::SHARED));
        }
    }
}

/// Which lanes of the process's slot have a thread: one bit each.
#[derive(Debug)]
pub struct Lanes(AtomicU32);

impl Lanes {
    /// The lane that needs no thread of its own.
    pub const SHARED: usize = 0;

    /// No lane is taken but the shared one.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "made once per process")]
    pub const fn new() -> Self {
        Self(AtomicU32::new(1 << Self::SHARED))
    }

    /// A lane for one thread, or the shared one when all are taken.
    #[must_use]
    pub fn take(&self) -> usize {
        let first_free = |taken: u32| taken.trailing_ones() as usize;
        let with_another = |taken: u32| (first_free(taken) < LANES).then(|| taken | 1 << first_free(taken));
        let before = self.0.fetch_update(AcqRel, Relaxed, with_another);
        before.map_or(Self::SHARED, first_free)
    }

    /// The thread is done with the lane; the next one sees what it wrote there.
    pub fn give_back(&self, lane: usize) {
        if lane != Self::SHARED && lane < LANES {
            self.0.fetch_and(!(1 << lane), AcqRel);
        }
    }
}

/// Has [`Thread::leave`] called when the calling thread ends. Rust's own thread-locals with destructors panic
/// when they are used during the thread's end; a key of the C library does not.
fn at_end_of_thread() {
    static KEY: OnceNonZeroUsize = OnceNonZeroUsize::new();
    let made = KEY.get_or_try_init(|| {
        let mut key: libc::pthread_key_t = 0;
        // SAFETY: `key` is a place to write to; this object is never unloaded, so the destructor stays.
        let status = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) };
        // One more, as a key may be 0.
        NonZeroUsize::new(key as usize + 1)
            .filter(|_| status == 0)
            .ok_or(())
    });
    if let Ok(made) = made
        && let Ok(key) = libc::pthread_key_t::try_from(made.get() - 1)
    {
        // SAFETY: the key was made above; the value only has to be other than null.
        unsafe { libc::pthread_setspecific(key, ptr::dangling()) };
    }
}

unsafe extern "C" fn ended(_value: *mut c_void) {
    Thread::with(Thread::leave);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_given_once_and_come_back() {
        let lanes = Lanes::new();
        let mut taken: Vec<_> = (1..LANES).map(|_| lanes.take()).collect();
        taken.sort_unstable();
        assert_eq!(taken, (1..LANES).collect::<Vec<_>>());
        assert_eq!(lanes.take(), Lanes::SHARED);
        lanes.give_back(Lanes::SHARED);
        lanes.give_back(3);
        assert_eq!(lanes.take(), 3);
        assert_eq!(lanes.take(), Lanes::SHARED);
    }
}
