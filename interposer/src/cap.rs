//! The soft cap: the job's device bytes, over all its processes, stay below what the runner says.
//!
//! Only where `MIGM_CAP` is set, which nobody but the runner of a soft slice does. Without it no answer is ever
//! changed, and each function here is left after one look at a byte.
//!
//! 1. Before the driver is asked for memory, the bytes are [claimed](migm_shared::page::CounterPage::claim) in the counter page.
//!    A process's first claim on a device also charges what its context costs there: what the driver says is in use
//!    beyond what the page knows of, or the runner's figure where that cannot be a context, or where other jobs
//!    use the device.
//! 2. A claim beyond the cap asks the supervisor for more ([`Report::Raise`]). It answers within two seconds, or
//!    counts as having refused. It raises the cap in the page, for all processes of the job.
//! 3. What still does not fit is answered with `CUDA_ERROR_OUT_OF_MEMORY` in the driver's place, and noted as the
//!    driver's own refusals are.
//! 4. The driver's refusal, or the record of what it has granted, ends the claim.
//! 5. `cuMemGetInfo` and `cuDeviceTotalMem` show the cap as the device's size, where that is less.
//!
//! Managed and host memory is not capped. Rows are claimed at the widest pitch that is known of a driver, as its own
//! is known only after the call.

use std::ops::RangeInclusive;
use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::{Duration, Instant};

use migm_shared::page::{CounterPage, DEVICES, OverCap};
use migm_shared::report::Report;

use crate::abi::{SUCCESS, Status};
use crate::attach::{self, Attachment, undisturbed};
use crate::ledger::graph;
use crate::{devices, errno, log, settings};

/// How long the supervisor has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Claims that end while we look count twice for a moment: so often is looked again before anybody is asked.
const LOOKS: usize = 20;
/// A context is believed to cost up to so many times the runner's figure. Contexts of one driver differ by what
/// modules and printf buffers they hold, not by more; what is in use beyond that is other jobs' memory.
const TIMES: u64 = 4;
/// What a driver rounds the pitch of rows up to: 512 bytes on all devices so far.
const PITCH: u64 = 512;

const UNREAD: u8 = 0;
const UNSET: u8 = 1;
const SET: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static CAP: AtomicU64 = AtomicU64::new(0);
static CONTEXT: AtomicU64 = AtomicU64::new(0);
static SHARED: AtomicBool = AtomicBool::new(false);

/// Whether there is a cap.
#[inline]
#[must_use]
pub fn is_set() -> bool {
    match STATE.load(Relaxed) {
        UNREAD => read(),
        state => state == SET,
    }
}

#[cold]
fn read() -> bool {
    let cap = settings::cap().filter(|_| !settings::disabled());
    if let Some(settings::Cap {
        bytes,
        context,
        shared,
    }) = cap
    {
        SHARED.store(shared, Relaxed);
        CAP.store(bytes, Relaxed);
        CONTEXT.store(context, Relaxed);
    }
    STATE.store(if cap.is_some() { SET } else { UNSET }, Relaxed);
    cap.is_some()
}

/// Bytes claimed until the driver has answered and the answer is recorded.
#[derive(Debug)]
pub struct Claim {
    attached: &'static Attachment,
    device: usize,
    bytes: u64,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Self {
            attached,
            device,
            bytes,
        } = *self;
        attached.page.drop_claim(attached.slot, device, bytes);
    }
}

/// A request that the cap does not allow.
#[derive(Debug)]
pub struct Refused;

/// Claims `bytes` on the device that `of` names. `Ok(None)` where nothing can be counted: then nothing is capped.
///
/// # Errors
/// The cap does not allow it, and the supervisor does not raise it. The refusal is noted and told.
#[cold]
pub fn claim(of: impl FnOnce(&Attachment) -> Option<usize>, bytes: u64) -> Result<Option<Claim>, Refused> {
    errno::kept(|| {
        let Some(attached) = attach::attached() else {
            return Ok(None);
        };
        let Some(device) = of(attached) else {
            return Ok(None);
        };
        enter(attached, device);
        let claimed = Claim {
            attached,
            device,
            bytes,
        };
        if look(attached, device, bytes).is_ok() || raise(attached, device, bytes) {
            return Ok(Some(claimed));
        }
        std::mem::forget(claimed);
        attached.refused(device, bytes);
        Err(Refused)
    })
}

/// What rows of memory are claimed at: the driver chooses their pitch and tells it after the call.
#[must_use]
pub const fn rows(width: u64, height: u64) -> u64 {
    let pitch = width.div_ceil(PITCH).saturating_mul(PITCH);
    pitch.saturating_mul(height)
}

/// On which devices this process's context has been charged.
#[derive(Debug, Default)]
pub struct Charged([AtomicU8; DEVICES]);

/// Sets the device's cap if the job has none there yet, and charges the process's context once. Of two threads that
/// come first at once both may measure; one is charged, before either asks the driver for memory.
fn enter(attached: &Attachment, device: usize) {
    let page = attached.page;
    page.set_cap(device, CAP.load(Relaxed));
    let Some(charged) = attached.charged.0.get(device) else {
        return;
    };
    if charged.load(Acquire) == 0 {
        let context = context(attached, device);
        page.charge_context(attached.slot, device, context);
        charged.store(1, Release);
        log::line(format_args!(
            "a context is charged {context} bytes on device {device}"
        ));
    }
}

/// What the process's context costs: measured, if the current context is on that device and the figure can be one.
fn context(attached: &Attachment, device: usize) -> u64 {
    let told = CONTEXT.load(Relaxed);
    // On a shared device the supervisor corrects the figure, as it can tell the processes apart.
    let measured = (!SHARED.load(Relaxed) && attached.current_device() == Some(device))
        .then(|| measure(attached.page, device, || graph::relaxed(devices::used)))
        .flatten();
    let believed = measured.filter(|measured| plausible(told, CAP.load(Relaxed)).contains(measured));
    believed.unwrap_or(told)
}

/// What is in use beyond what the job's page explains. `None` if the driver does not say, if requests of the job come
/// and go all the while, or if less is in use than the job has: then the driver speaks of something else.
fn measure(page: &CounterPage, device: usize, used: impl Fn() -> Option<u64>) -> Option<u64> {
    for _ in 0..LOOKS {
        let before = page.settled(device);
        let used = used()?;
        if let Some((reserved, contexts)) = before
            && page.settled(device) == before
        {
            let rest = used.checked_sub(reserved.wrapping_add(contexts))?;
            // No context is free, but one may have been charged with another that was made just before.
            return (rest != 0 || contexts != 0).then_some(rest);
        }
        std::thread::yield_now();
    }
    None
}

/// What a context can cost: up to some times what the runner says, or, where it says nothing, as much as the cap.
const fn plausible(told: u64, cap: u64) -> RangeInclusive<u64> {
    let most = if told == 0 {
        cap
    } else {
        told.saturating_mul(TIMES)
    };
    0..=most
}

fn look(attached: &Attachment, device: usize, bytes: u64) -> Result<(), OverCap> {
    for _ in 1..LOOKS {
        match attached.page.claim(attached.slot, device, bytes) {
            Ok(()) => return Ok(()),
            Err(over) if over.charged > over.cap || bytes > over.cap => return Err(over),
            Err(_) => std::thread::yield_now(),
        }
    }
    attached.page.claim(attached.slot, device, bytes)
}

/// Asks the supervisor, and claims again.
fn raise(attached: &Attachment, device: usize, bytes: u64) -> bool {
    let deadline = Instant::now() + PATIENCE;
    let question = |ticket| Report::Raise {
        ticket,
        device: u32::try_from(device).unwrap_or(u32::MAX),
        asked: bytes,
        charged: attached.page.charged(device),
    };
    let answered = undisturbed(|| {
        let ticket = attached.wire.ask(question)?;
        Some(attached.wire.wait(ticket, deadline))
    });
    // Whoever answered, and to whom: the cap in the page is what holds.
    answered.is_some() && look(attached, device, bytes).is_ok()
}

/// Asks the driver for the free and the whole memory of the current device, and shows no more than the cap.
///
/// # Safety
/// The pointers are null or the places that a successful `real` has written to.
#[cold]
pub unsafe fn show_memory(real: impl FnOnce() -> Status, free: *mut usize, total: *mut usize) -> Status {
    let status = real();
    if status == SUCCESS
        && let Some((attached, device)) = current()
        && let Some(cap) = attached.page.cap(device)
    {
        let left = cap.saturating_sub(attached.page.charged(device));
        // SAFETY: as the caller says.
        unsafe { at_most(free, left) };
        // SAFETY: as the caller says.
        unsafe { at_most(total, cap) };
    }
    status
}

/// Asks the driver for the whole memory of a device, and shows no more than the cap.
///
/// # Safety
/// The pointer is null or the place that a successful `real` has written to.
#[cold]
pub unsafe fn show_total(real: impl FnOnce() -> Status, bytes: *mut usize, ordinal: i32) -> Status {
    let status = real();
    if status == SUCCESS {
        // Before the first allocation nothing of the job's page is known, but the runner's figure.
        let raised = attach::already().and_then(|attached| attached.page.cap(attached.device_of(ordinal)?));
        // SAFETY: as the caller says.
        unsafe { at_most(bytes, raised.unwrap_or_else(|| CAP.load(Relaxed))) };
    }
    status
}

/// The attachment, made here if need be: what other processes of the job hold is in its page.
fn current() -> Option<(&'static Attachment, usize)> {
    errno::kept(|| {
        let attached = attach::attached()?;
        let device = attached.current_device()?;
        enter(attached, device);
        Some((attached, device))
    })
}

/// # Safety
/// `place` is null or valid, and has a value.
unsafe fn at_most(place: *mut usize, limit: u64) {
    if place.is_null() {
        return;
    }
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    // SAFETY: as the caller says; unaligned, because a program's pointer may be.
    let there = unsafe { place.read_unaligned() };
    // SAFETY: as above.
    unsafe { place.write_unaligned(there.min(limit)) };
}

#[cfg(test)]
mod tests {
    use migm_shared::page::Class;

    use super::*;

    macro_rules! page {
        () => {{
            static PAGE: CounterPage = CounterPage::new();
            PAGE.format();
            let device = PAGE.device_index([7; 16]).unwrap();
            (&PAGE, device, PAGE.join(1, 1, 1).unwrap())
        }};
    }

    #[test]
    fn a_context_is_what_the_page_does_not_explain() {
        let (page, device, slot) = page!();
        page.add(slot, device, Class::Device, 100);
        page.charge_context(slot, device, 40);
        assert_eq!(measure(page, device, || Some(190)), Some(50));
        assert_eq!(
            measure(page, device, || Some(140)),
            Some(0),
            "charged with the other"
        );
        assert_eq!(measure(page, device, || Some(139)), None);
        assert_eq!(measure(page, device, || None), None);
    }

    #[test]
    fn the_first_context_is_not_free() {
        let (page, device, _) = page!();
        assert_eq!(measure(page, device, || Some(0)), None);
    }

    #[test]
    fn nothing_is_measured_while_requests_come_and_go() {
        let (page, device, slot) = page!();
        let changing = || {
            page.add(slot, device, Class::Device, 1);
            Some(1_000)
        };
        assert_eq!(measure(page, device, changing), None);
        page.claim(slot, device, 5).unwrap();
        assert_eq!(measure(page, device, || Some(1_000)), None);
    }

    #[test]
    fn other_jobs_memory_is_no_context() {
        assert!(plausible(50, 380).contains(&200));
        assert!(!plausible(50, 380).contains(&201));
        assert!(plausible(0, 380).contains(&380));
        assert!(!plausible(0, 380).contains(&381));
    }

    #[test]
    fn rows_are_claimed_at_the_widest_pitch() {
        assert_eq!(rows(1, 3), 1536);
        assert_eq!(rows(1024, 2), 2048);
        assert_eq!(rows(0, 5), 0);
        assert_eq!(rows(u64::MAX, 2), u64::MAX);
    }
}
