//! What hooks leave for the sender thread: marks and refused allocations, through a bounded queue.

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam::queue::ArrayQueue;
use migm_shared::page::Class;
use migm_shared::report::Event;
use once_cell::race::OnceBox;

/// Marks that wait for the sender. It comes round every 10 ms or so; more than this many in between are lost
/// and counted as lost.
const CAPACITY: usize = 1024;

/// One thing to tell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Note {
    /// An iteration mark, as seen from one device.
    Mark(Mark),
    /// An allocation was refused, and the supervisor could not be told at once.
    OutOfMemory(Refusal),
}

/// A refused allocation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Refusal {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// The page's device index.
    pub device: u32,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes the job had reserved.
    pub in_use: u64,
    /// The kind of memory that most of them were, and how much.
    pub largest: Option<(Class, u64)>,
}

impl Refusal {
    /// As the supervisor is told.
    #[must_use]
    pub const fn event(self) -> Event {
        Event::OutOfMemory {
            time_ns: self.time_ns,
            device: self.device,
            asked: self.asked,
            in_use: self.in_use,
            largest: self.largest,
        }
    }
}

/// The state of one device at an iteration mark.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Mark {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// The page's device index.
    pub device: usize,
    /// Marks passed so far.
    pub iteration: u64,
    /// Bytes the job has reserved.
    pub reserved: u64,
    /// The most since the mark before.
    pub peak: u64,
    /// Bytes held by tensors, where a framework reports them.
    pub allocated: Option<u64>,
    /// Not at a mark but after one.
    pub midway: bool,
    /// Allocations, frees and bytes requested by this process so far.
    pub counts: (u64, u64, u64),
}

/// The queue and its bell.
#[derive(Debug)]
pub struct Notes {
    /// Made for the first note: it is a hundred kilobytes, each of which is written to, and many a program ends
    /// without one.
    queue: OnceBox<ArrayQueue<Note>>,
    lost: AtomicU64,
    bell: AtomicU32,
}

impl Notes {
    /// An empty queue.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "made once per process")]
    pub fn new() -> Self {
        Self {
            queue: OnceBox::new(),
            lost: AtomicU64::new(0),
            bell: AtomicU32::new(0),
        }
    }

    #[inline]
    fn queue(&self) -> &ArrayQueue<Note> {
        self.queue.get_or_init(|| Box::new(ArrayQueue::new(CAPACITY)))
    }

    /// Leaves a mark, or counts it as lost.
    #[inline]
    pub fn mark(&self, mark: Mark) {
        if self.queue().push(Note::Mark(mark)).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Leaves a refused allocation, in place of the oldest note if need be, and wakes the sender.
    #[cold]
    pub fn out_of_memory(&self, refusal: Refusal) {
        if let Some(Note::Mark(_)) = self.queue().force_push(Note::OutOfMemory(refusal)) {
            self.lost.fetch_add(1, Relaxed);
        }
        self.bell.fetch_add(1, Relaxed);
        // SAFETY: the word is valid; waking nobody is fine.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.bell.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            )
        };
    }

    /// The oldest note.
    pub fn take(&self) -> Option<Note> {
        self.queue.get()?.pop()
    }

    /// How many marks were lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Relaxed)
    }

    /// How often the bell was rung so far: what [`wait`](Self::wait) compares with.
    pub fn rings(&self) -> u32 {
        self.bell.load(Relaxed)
    }

    /// Sleeps until the bell has been rung more than `heard` times, or for `at_most`.
    pub fn wait(&self, heard: u32, at_most: Duration) {
        let timeout = libc::timespec {
            tv_sec: libc::time_t::try_from(at_most.as_secs()).unwrap_or(1),
            tv_nsec: libc::c_long::from(at_most.subsec_nanos().cast_signed()),
        };
        let (word, timeout) = (self.bell.as_ptr(), &raw const timeout);
        // SAFETY: word and timeout are valid for the call.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word,
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                heard,
                timeout,
                ptr::null::<u32>(),
                0,
            )
        };
    }
}

/// `FUTEX_*_PRIVATE` and the clock are the only things here that the kernel is asked for.
#[must_use]
#[inline]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place to write to; the clock exists on each Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark {
        time_ns: 1,
        device: 0,
        iteration: 1,
        reserved: 2,
        peak: 3,
        allocated: None,
        midway: false,
        counts: (4, 5, 6),
    };
    const REFUSAL: Refusal = Refusal {
        time_ns: 1,
        device: 1,
        asked: 2,
        in_use: 3,
        largest: None,
    };

    #[test]
    fn a_full_queue_drops_marks_and_counts_them() {
        let notes = Notes::new();
        for _ in 0..CAPACITY + 5 {
            notes.mark(MARK);
        }
        assert_eq!(notes.take_lost(), 5);
        assert_eq!(notes.take_lost(), 0);
    }

    #[test]
    fn a_refusal_finds_room_in_a_full_queue_and_rings() {
        let notes = Notes::new();
        for _ in 0..CAPACITY {
            notes.mark(MARK);
        }
        let heard = notes.rings();
        notes.out_of_memory(REFUSAL);
        assert_ne!(notes.rings(), heard);
        assert_eq!(notes.take_lost(), 1);
        let refusals = std::iter::from_fn(|| notes.take()).filter(|note| !matches!(note, Note::Mark(_)));
        assert_eq!(refusals.count(), 1);
    }

    #[test]
    fn a_bell_rung_before_the_wait_is_heard() {
        let notes = Notes::new();
        let heard = notes.rings();
        notes.out_of_memory(REFUSAL);
        let start = std::time::Instant::now();
        notes.wait(heard, Duration::from_secs(5));
        assert!(start.elapsed() < Duration::from_secs(4));
    }
}
