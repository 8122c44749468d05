//! What the interposer keeps for each thread of the program.
//!
//! The words lie in the static block of thread-local memory, two instructions away, as those of any object are
//! that is loaded at the start of a program. The compiler would call `__tls_get_addr` in each hook, for the
//! case that the object is opened later; then there is some spare room in the static block, and a hundred bytes fit.

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use migm_shared::page::{Class, LANES, Tally};
use once_cell::race::OnceNonZeroUsize;

use crate::attach::{self, Attachment};
use crate::ledger::{self, LaneRecords};

/// One thread's own words. All zero, as a thread finds them, says that there is no attachment.
#[derive(Debug)]
#[repr(C)]
pub struct Thread {
    /// Whether the thread is inside a hook.
    pub inside: Cell<bool>,
    /// How many [NVTX ranges](crate::nvtx) the thread is in, one in the other.
    pub ranges: Cell<u32>,
    /// The same as `attachment` if the thread has a lane of its own and the process one device: then `place` is
    /// where each allocation is counted.
    simple: Cell<Option<&'static Attachment>>,
    /// The attachment that `lane` and `place` are of; another one after a fork.
    attachment: Cell<Option<&'static Attachment>>,
    lane: Cell<usize>,
    device: Cell<usize>,
    /// Where the thread counts on `device`; written before `attachment`.
    place: Cell<MaybeUninit<Place>>,
}

/// Where one thread counts on one device.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The records of the thread's lane.
    pub records: &'static LaneRecords,
    /// The page's index of the device.
    pub device: usize,
    tally: Tally<'static>,
    /// The most the job had reserved since the last sample.
    peak: &'static AtomicU64,
}

impl Place {
    /// Counts an allocation.
    #[inline]
    pub fn add(&self, class: Class, bytes: u64) {
        let reserved = self.tally.add(class, bytes);
        if reserved > self.peak.load(Relaxed) {
            self.peak.fetch_max(reserved, Relaxed);
        }
    }

    /// Counts a free.
    #[inline]
    pub fn remove(&self, class: Class, bytes: u64) {
        self.tally.remove(class, bytes);
    }

    /// Undoes [`remove`](Self::remove).
    pub fn restore(&self, class: Class, bytes: u64) {
        self.tally.restore(class, bytes);
    }
}

// A zeroed block of thread-local memory, hidden: no other object sees the name.
std::arch::global_asm!(
    ".pushsection .tbss.migm_thread,\"awT\",%nobits",
    ".balign {align}",
    ".globl migm_thread",
    ".hidden migm_thread",
    ".type migm_thread,%object",
    ".size migm_thread,{size}",
    "migm_thread:",
    ".zero {size}",
    ".popsection",
    align = const align_of::<Thread>(),
    size = const size_of::<Thread>(),
);

/// The calling thread's words.
#[cfg(target_arch = "x86_64")]
#[inline]
fn own() -> *const Thread {
    let words: *const Thread;
    // SAFETY: reads the block's offset, which the loader has put into the table, and the thread's pointer, which
    // the ABI keeps at `fs:0`.
    unsafe {
        std::arch::asm!(
            "mov {words}, qword ptr fs:[0]",
            "add {words}, qword ptr [rip + migm_thread@GOTTPOFF]",
            words = out(reg) words,
            options(pure, nomem, nostack),
        );
    }
    words
}

/// The calling thread's words.
#[cfg(target_arch = "aarch64")]
#[inline]
fn own() -> *const Thread {
    let words: *const Thread;
    // SAFETY: reads the block's offset, which the loader has put into the table, and the thread's pointer, which
    // the ABI keeps in `tpidr_el0`.
    unsafe {
        std::arch::asm!(
            "adrp {offset}, :gottprel:migm_thread",
            "ldr {offset}, [{offset}, :gottprel_lo12:migm_thread]",
            "mrs {words}, tpidr_el0",
            "add {words}, {words}, {offset}",
            offset = out(reg) _,
            words = out(reg) words,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    words
}

impl Thread {
    /// Runs `body` with the calling thread's words. They have no destructor, so that this also works from the
    /// destructors of the program's own thread-locals.
    #[inline]
    pub fn with<T>(body: impl FnOnce(&Self) -> T) -> T {
        // SAFETY: the block is of this type's size and alignment, zero is a valid start, it lasts as long as the
        // thread, which is in `body` meanwhile, and no other thread has its address.
        body(unsafe { &*own() })
    }

    /// The lane of the page that this thread counts in: one of its own while there are any, else the shared
    /// one.
    #[inline]
    pub fn lane(&self, attachment: &'static Attachment) -> usize {
        if self.is_of(attachment) {
            self.lane.get()
        } else {
            self.take_lane(attachment)
        }
    }

    /// Where this thread counts, if that is a simple question: it has a lane of its own, and the process one
    /// device. This is the short way of most allocations.
    #[inline]
    pub fn simple_place(&self) -> Option<&Place> {
        let attachment = attach::already()?;
        let is_simple = self.simple.get().is_some_and(|known| ptr::eq(known, attachment));
        // SAFETY: the place was written before `simple`, and is not written while the reference lives: only
        // `take_place` and `take_lane` do that, on this thread, and counting calls neither.
        is_simple.then(|| unsafe { &*self.place.as_ptr().cast::<Place>() })
    }

    /// Where this thread counts on a device; `None` for a number that no device of the page has.
    #[inline]
    pub fn place(&self, attachment: &'static Attachment, device: usize) -> Option<Place> {
        if self.is_of(attachment) && self.device.get() == device {
            // SAFETY: the place was written before the attachment.
            Some(unsafe { self.place.get().assume_init() })
        } else {
            self.take_place(attachment, device)
        }
    }

    #[inline]
    fn is_of(&self, attachment: &'static Attachment) -> bool {
        self.attachment
            .get()
            .is_some_and(|known| ptr::eq(known, attachment))
    }

    #[cold]
    fn take_place(&self, attachment: &'static Attachment, device: usize) -> Option<Place> {
        let lane = self.lane(attachment);
        let place = find(attachment, lane, device)?;
        if self.simple.get().is_some() {
            // Another device than the only one: a record of a page index that nobody gave.
            return Some(place);
        }
        self.device.set(device);
        self.place.set(MaybeUninit::new(place));
        Some(place)
    }

    #[cold]
    fn take_lane(&self, attachment: &'static Attachment) -> usize {
        let lane = attachment.lanes.take();
        self.lane.set(lane);
        let sole = attachment.sole_device();
        let device = sole.unwrap_or(0);
        self.device.set(device);
        if let Some(place) = find(attachment, lane, device) {
            self.place.set(MaybeUninit::new(place));
            self.attachment.set(Some(attachment));
            let is_simple = sole.is_some() && lane != Lanes::SHARED;
            self.simple.set(is_simple.then_some(attachment));
        }
        if lane != Lanes::SHARED {
            at_end_of_thread();
        }
        lane
    }

    /// Gives the lane back. A hook called later, by another destructor of the thread, takes one again.
    fn leave(&self) {
        self.simple.set(None);
        let before = self.attachment.replace(None);
        if let Some(attachment) = attach::already().filter(|now| before.is_some_and(|it| ptr::eq(it, *now))) {
            attachment.lanes.give_back(self.lane.replace(Lanes::SHARED));
        }
    }
}

fn find(attachment: &'static Attachment, lane: usize, device: usize) -> Option<Place> {
    Some(Place {
        records: ledger::records(lane)?,
        device,
        tally: attachment.tally(lane, device)?,
        peak: attachment.peak(device)?,
    })
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
    fn each_thread_has_words_of_its_own() {
        let address = || Thread::with(|thread| ptr::from_ref(thread).addr());
        let here = address();
        Thread::with(|thread| thread.inside.set(true));
        std::thread::spawn(move || {
            assert_ne!(address(), here);
            assert!(
                Thread::with(|thread| !thread.inside.replace(true)),
                "zero at first"
            );
        })
        .join()
        .unwrap();
        assert_eq!(address(), here);
        assert!(Thread::with(|thread| thread.inside.replace(false)));
    }

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
