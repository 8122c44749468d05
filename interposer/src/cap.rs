//! The soft cap: the job's device bytes, over all its processes, stay below what the runner says.
//!
//! Only where `MIGM_CAP` is set, which nobody but the runner of a soft slice does. Without it no answer is ever
//! changed, and each function here is left after one look at a byte.
//!
//! 1. Before the driver is asked for memory, the bytes are [claimed](migm_shared::page::CounterPage::claim) in the counter page.
//!    A process's first claim on a device also charges what its context costs there: the runner's figure, since
//!    what the driver takes for it cannot be told from what other processes take at the same time.
//! 2. A claim beyond the cap asks the supervisor for more ([`Report::Raise`]). It answers within two seconds, or
//!    counts as having refused. It raises the cap in the page, for all processes of the job.
//! 3. What still does not fit is answered with `CUDA_ERROR_OUT_OF_MEMORY` in the driver's place, and noted as the
//!    driver's own refusals are.
//! 4. The driver's refusal, or the record of what it has granted, ends the claim.
//! 5. `cuMemGetInfo` and `cuDeviceTotalMem` show the cap as the device's size, where that is less.
//!
//! Managed and host memory is not capped. The pitch that a driver adds to rows is known only after the call: a
//! job may be over its cap by that, until the next request.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use migm_shared::page::OverCap;
use migm_shared::report::Report;

use crate::abi::{SUCCESS, Status};
use crate::attach::{self, Attachment, undisturbed};
use crate::{errno, settings};

/// How long the supervisor has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Claims that end while we look count twice for a moment: so often is looked again before anybody is asked.
const LOOKS: usize = 20;

const UNREAD: u8 = 0;
const UNSET: u8 = 1;
const SET: u8 = 2;
static STATE: AtomicU8 = AtomicU8::new(UNREAD);
static CAP: AtomicU64 = AtomicU64::new(0);
static CONTEXT: AtomicU64 = AtomicU64::new(0);

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
    if let Some((bytes, context)) = cap {
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
        attached.page.set_cap(device, CAP.load(Relaxed));
        attached
            .page
            .charge_context(attached.slot, device, CONTEXT.load(Relaxed));
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
        attached.page.set_cap(device, CAP.load(Relaxed));
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
