//! How a process comes to be counted: once, at its first allocation, and again in each forked child.
//!
//! ```text
//!   Cold --first allocation--> Attaching --> Attached
//!    ^                             |            |
//!    |                             +--> Off     |
//!    +--------------- fork (child) -------------+
//! ```
//!
//! Nothing happens before: a process that never allocates device memory opens no file, starts no thread and
//! connects to nobody. The state lies in a page of memory that the kernel empties in a forked child, so that
//! even a raw `clone` finds it cold; `pthread_atfork` does the same where the kernel cannot.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

use migm_shared::clock::Mark as IterationMark;
use migm_shared::page::{Class, CounterPage, DEVICES, Tally};
use migm_shared::report::{Event, Report};

use crate::caller::{self, Caller};
use crate::cap::Charged;
use crate::clock::Clock;
use crate::devices::{self, Devices};
use crate::notes::{Mark, Notes, Refusal, now_ns};
use crate::pagefile::PageFile;
use crate::thread::Lanes;
use crate::wire::Wire;
use crate::{descriptor, errno, ledger, log, sender, settings};

/// Written by all threads, so kept off the lines of what they only read.
#[derive(Debug)]
#[repr(align(128))]
struct Peaks([AtomicU64; DEVICES]);

/// What a counted process has; made once and never freed.
#[derive(Debug)]
pub struct Attachment {
    /// Where it counts.
    pub page: &'static CounterPage,
    /// Its slot there.
    pub slot: usize,
    /// What it leaves for the sender.
    pub notes: Notes,
    /// What marks its iterations.
    pub clock: Clock,
    /// The line to the supervisor.
    pub wire: Wire,
    devices: Devices,
    /// Which lanes of the slot have a thread.
    pub lanes: Lanes,
    /// The most the job had reserved on each device since the last sample.
    peaks: Peaks,
    /// Under a soft cap: on which devices the context has been charged.
    pub charged: Charged,
}

impl Attachment {
    /// Where a thread counts.
    #[inline]
    #[must_use]
    pub fn tally(&'static self, lane: usize, device: usize) -> Option<Tally<'static>> {
        self.page.tally(self.slot, lane, device)
    }

    /// The most the job had reserved on a device since the last sample.
    #[must_use]
    pub fn peak(&self, device: usize) -> Option<&AtomicU64> {
        self.peaks.0.get(device)
    }

    /// Counts an allocation on one of the page's devices.
    pub fn add(&'static self, lane: usize, device: usize, class: Class, bytes: u64) {
        let (Some(tally), Some(peak)) = (self.tally(lane, device), self.peaks.0.get(device)) else {
            return;
        };
        let reserved = tally.add(class, bytes);
        if reserved > peak.load(Relaxed) {
            peak.fetch_max(reserved, Relaxed);
        }
    }

    /// The page's index of the device of the current context.
    #[inline]
    pub fn current_device(&self) -> Option<usize> {
        self.devices.current()
    }

    /// The page's index of the only device that the process sees.
    #[must_use]
    pub fn sole_device(&self) -> Option<usize> {
        self.devices.sole
    }

    /// The page's index of the device with this ordinal.
    #[must_use]
    pub fn device_of(&self, ordinal: i32) -> Option<usize> {
        self.devices.of(ordinal)
    }

    /// Some device, for figures that belong to none.
    #[must_use]
    pub fn any_device(&self) -> Option<usize> {
        self.devices.seen().next().map(|(index, _)| index)
    }

    /// Page index and ordinal of each device that the process sees.
    pub fn ordinals(&self) -> impl Iterator<Item = (usize, i32)> {
        self.devices.ordinals()
    }

    /// Page index and UUID of each device that the process sees.
    pub fn devices(&self) -> impl Iterator<Item = (usize, [u8; 16])> {
        self.devices.seen()
    }

    /// An event that may mark an iteration. If it does, leaves one note per device in use.
    #[inline]
    pub fn tick(&self, event: IterationMark) {
        if let Some(iteration) = self.clock.tick(event) {
            self.mark(iteration);
        }
    }

    fn mark(&self, iteration: u64) {
        self.page.set_marks(self.slot, iteration);
        let time_ns = now_ns();
        for (device, _) in self.devices.seen() {
            let mark = self.state(device, time_ns, iteration);
            if mark.peak != 0 {
                self.notes.mark(mark);
            }
        }
    }

    /// Notes a refused allocation, and tells the supervisor before the program hears of it: at once, or, where
    /// the line is taken or full, through the sender thread.
    #[cold]
    pub fn refused(&self, device: usize, asked: u64) {
        let refusal = Refusal {
            time_ns: now_ns(),
            device: u32::try_from(device).unwrap_or(u32::MAX),
            asked,
            in_use: self.page.refuse(self.slot, device, asked),
            largest: self.page.largest(device),
        };
        let report = Report::Event(refusal.event());
        if !undisturbed(|| self.wire.send_soon(&report)) {
            self.notes.out_of_memory(refusal);
        }
    }

    /// The state of a device at this moment. Its peak is that since the last call, which starts another
    /// interval.
    #[must_use]
    pub fn state(&self, device: usize, time_ns: u64, iteration: u64) -> Mark {
        let (reserved, _) = self.page.reserved(device);
        let peak = self
            .peaks
            .0
            .get(device)
            .map_or(0, |peak| peak.swap(reserved, Relaxed));
        Mark {
            time_ns,
            device,
            iteration,
            reserved,
            peak: peak.max(reserved),
            allocated: self.page.allocated(device),
            midway: false,
            counts: self.page.process_counts(self.slot, device),
        }
    }
}

const COLD: u8 = 0;
const ATTACHING: u8 = 1;
const OFF: u8 = 2;

/// A page of memory of its own, all zero in a forked child.
#[repr(C, align(4096))]
struct Anchor {
    attachment: AtomicPtr<Attachment>,
    phase: AtomicU8,
}

static ANCHOR: Anchor = Anchor {
    attachment: AtomicPtr::new(ptr::null_mut()),
    phase: AtomicU8::new(COLD),
};

/// The process that attached last: in a forked child, its ancestor.
static ATTACHED_PID: AtomicI32 = AtomicI32::new(0);

/// The attachment, if there is one.
#[must_use]
#[inline]
pub fn already() -> Option<&'static Attachment> {
    let attachment = ANCHOR.attachment.load(Acquire);
    // SAFETY: it is null or an attachment that was leaked, complete, before it was stored.
    unsafe { attachment.as_ref() }
}

/// The attachment, made if need be. `None` when the interposer is off.
#[must_use]
#[inline]
pub fn attached() -> Option<&'static Attachment> {
    already().or_else(|| errno::kept(begin))
}

#[cold]
fn begin() -> Option<&'static Attachment> {
    // Before anybody attaches: a child forked in between would wait for a thread that it does not have.
    if ANCHOR.phase.load(Acquire) == COLD && !settings::disabled() {
        watch_forks();
    }
    match ANCHOR.phase.compare_exchange(COLD, ATTACHING, AcqRel, Acquire) {
        Ok(_) if settings::disabled() => {
            ANCHOR.phase.store(OFF, Release);
            None
        }
        Ok(_) => {
            let Some(attachment) = undisturbed(start) else {
                ANCHOR.phase.store(OFF, Release);
                return None;
            };
            ANCHOR
                .attachment
                .store(ptr::from_ref(attachment).cast_mut(), Release);
            Some(attachment)
        }
        Err(OFF) => None,
        Err(_) => wait(),
    }
}

/// Another thread is attaching, which takes it a second at most. Its allocation is being counted; so must
/// ours be.
fn wait() -> Option<&'static Attachment> {
    for _ in 0..5_000 {
        if let Some(attachment) = already() {
            return Some(attachment);
        }
        if ANCHOR.phase.load(Acquire) == OFF {
            return None;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    None
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

/// Runs `body`, which waits and makes system calls, so that neither a signal handler nor a cancellation of
/// this thread can leave it half done. The thread started meanwhile inherits the blocked signals.
pub fn undisturbed<T>(body: impl FnOnce() -> T) -> T {
    const DISABLE: libc::c_int = 1;
    let (mut cancel, mut ignored) = (0, 0);
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `cancel` is a place to write to.
    unsafe { pthread_setcancelstate(DISABLE, &raw mut cancel) };
    // SAFETY: `all` is a set to fill.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` has been filled, `before` is a place to write to.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    let result = body();
    // SAFETY: `before` was written by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    // SAFETY: the state is the one found above.
    unsafe { pthread_setcancelstate(cancel, &raw mut ignored) };
    result
}

fn start() -> Option<&'static Attachment> {
    // Ours alone: this object has a standard library of its own.
    std::panic::set_hook(Box::new(|_| ()));
    let pid = i32::try_from(std::process::id()).unwrap_or(0);
    if !matches!(ATTACHED_PID.swap(pid, AcqRel), before if before == 0 || before == pid) {
        descriptor::close_inherited();
        ledger::clear();
    }
    let caller = Caller::read();
    let (file, socket) = caller.open()?;
    let (file, slot) = caller::join(file, caller.attempt())?;
    let PageFile { page, file, .. } = file;
    let devices = devices::list(page);
    let index = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    let introduction = Report::Event(Event::Attached {
        slot: index(slot),
        devices: devices
            .seen()
            .map(|(device, uuid)| (index(device), uuid))
            .collect(),
    });
    let attachment = Box::leak(Box::new(Attachment {
        page,
        slot,
        notes: Notes::new(),
        clock: Clock::new(settings::iteration()),
        wire: Wire::new(introduction),
        devices,
        lanes: Lanes::new(),
        peaks: Peaks([const { AtomicU64::new(0) }; DEVICES]),
        charged: Charged::default(),
    }));
    log::line(format_args!("process {pid} counts in slot {slot}"));
    if let Some(socket) = socket {
        attachment.wire.connect(socket);
    }
    sender::start(attachment, caller, file);
    Some(attachment)
}

/// Makes a forked child start cold.
fn watch_forks() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    const MADV_WIPEONFORK: libc::c_int = 18;
    let anchor = (&raw const ANCHOR).cast_mut().cast();
    // SAFETY: the anchor has a page to itself, and zero is its cold state. Where the kernel does not know the
    // advice, or its pages are larger, it refuses.
    unsafe { libc::madvise(anchor, size_of::<Anchor>(), MADV_WIPEONFORK) };
    // Several threads may come at once: whoever goes on has given the advice itself.
    if WATCHED.swap(true, AcqRel) {
        return;
    }
    // SAFETY: the handler makes only calls that are allowed in a forked child.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

extern "C" fn in_child() {
    errno::kept(|| {
        ANCHOR.attachment.store(ptr::null_mut(), Release);
        ANCHOR.phase.store(COLD, Release);
        descriptor::close_inherited();
    });
}
