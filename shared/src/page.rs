//! The counter page: the one place where a job's live bytes and their peak are kept.
//!
//! ```text
//! +--------+-----------------------+-------------------+---------------------------------+
//! | header | 16 devices            | 512 process slots | 512 times 16 lanes of 16 devices|
//! | magic  | UUID, reserved live   | pid, start, marks | live by class, allocations,     |
//! | layout | and peak, allocated.. | last OOM          | frees, requested                |
//! +--------+-----------------------+-------------------+---------------------------------+
//! ```
//!
//! The page is a memfd of [`size_of::<CounterPage>()`](CounterPage) bytes, sealed against shrinking, one per
//! job. Its all-zero state plus [`CounterPage::format`] is a valid page. All its processes add to it with
//! relaxed atomics; whoever holds the file reads exact figures after a process is gone, however it went.
//! Live bytes and their peak are one pair per device: a peak over several processes cannot be put together
//! from their own peaks.
//!
//! What a process counts for itself is split into lanes. Lane 0 is shared by its threads; each other lane
//! has one thread that writes to it, with plain additions in place of locked ones, which cost five times as
//! much. The sum over the lanes is the figure; a single lane may be below zero, modulo 2^64, where one
//! thread frees what another allocated. The lanes lie behind the slots, so that whoever looks for living
//! processes touches 32 KiB and not the whole file, of which only the used parts take memory.
//!
//! A reader maps memory that others write. It trusts nothing in it: all indices are its own, and a figure
//! that makes no sense is only a wrong figure.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

mod cap;
mod read;
mod tally;

pub use cap::OverCap;
pub use read::{DeviceReading, Occupant, UnmetRequest};
pub use tally::Tally;

/// The first eight bytes of a page.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MIGMPAGE");
/// The layout below; a page of another layout is not used.
pub const LAYOUT: u64 = 3;
/// Devices that a job can use at once.
pub const DEVICES: usize = 16;
/// Processes of one job that can be counted at once.
pub const SLOTS: usize = 512;
/// Lanes of one process: lane 0 is shared, the others belong to one thread each.
pub const LANES: usize = 16;
/// Number of [`Class`]es.
pub const CLASSES: usize = 8;

/// The name of a job's page file, as the kernel shows it behind `/memfd:`. It tells one job's page from
/// another's: the nonce is drawn once per job.
#[must_use]
pub fn file_name(nonce: u64) -> String {
    format!("migm-page-{nonce:016x}")
}

/// What kind of memory an allocation takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(usize)]
pub enum Class {
    /// `cuMemAlloc` and its like: device memory at an address.
    Device = 0,
    /// Managed memory: resident where it is used, so no sure charge on the device.
    Managed = 1,
    /// Arrays and mipmapped arrays.
    Array = 2,
    /// Stream-ordered memory from a pool.
    Pool = 3,
    /// Physical memory of the virtual memory management calls.
    Vmm = 4,
    /// Memory nodes of graphs.
    Graph = 5,
    /// Memory of another process, opened here.
    Imported = 6,
    /// Page-locked host memory.
    Host = 7,
}

impl Class {
    /// All classes, in the order of the page.
    pub const ALL: [Self; CLASSES] = [
        Self::Device,
        Self::Managed,
        Self::Array,
        Self::Pool,
        Self::Vmm,
        Self::Graph,
        Self::Imported,
        Self::Host,
    ];

    /// Whether its bytes are part of `reserved`: asked of the driver, on the device, by this job.
    #[must_use]
    pub const fn is_reserved(self) -> bool {
        matches!(
            self,
            Self::Device | Self::Array | Self::Pool | Self::Vmm | Self::Graph
        )
    }
}

/// Marks the page as one, with its layout.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Header {
    magic: AtomicU64,
    layout: AtomicU64,
}

/// A job's figures on one device, over all its processes. Bytes.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct DeviceTotals {
    uuid_high: AtomicU64,
    uuid_low: AtomicU64,
    reserved: AtomicU64,
    reserved_peak: AtomicU64,
    allocated: AtomicU64,
    allocated_peak: AtomicU64,
    /// 1 once a framework has reported.
    allocated_known: AtomicU64,
    /// The soft cap; 0 for none.
    cap: AtomicU64,
    /// Bytes of capped requests that the driver has not answered yet.
    claimed: AtomicU64,
    /// What the contexts of capped processes are taken to cost.
    contexts: AtomicU64,
}

/// One lane of a process's figures on one device. Bytes and counts.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct LaneDevice {
    live: [AtomicU64; CLASSES],
    allocations: AtomicU64,
    frees: AtomicU64,
    requested: AtomicU64,
    /// This and what follows is kept in lane 0 only.
    allocated: AtomicU64,
    /// What the framework says that it holds of the driver's memory.
    framework_reserved: AtomicU64,
    claimed: AtomicU64,
    context: AtomicU64,
}

/// One process of the job.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct ProcessSlot {
    /// 0 when free.
    pid: AtomicU32,
    /// Attempt number within the job.
    attempt: AtomicU32,
    /// Start time in clock ticks since boot, field 22 of `/proc/PID/stat`: tells reused pids apart.
    start: AtomicU64,
    /// Bytes asked by the last out-of-memory answer not made good since; 0 for none.
    oom_asked: AtomicU64,
    /// Reserved bytes of the job at that moment.
    oom_in_use: AtomicU64,
    /// Device of that moment.
    oom_device: AtomicU64,
    /// Iteration marks passed.
    marks: AtomicU64,
}

/// What one process counts, by lane and device.
type Lanes = [[LaneDevice; DEVICES]; LANES];

/// See the [module](self).
#[derive(Debug)]
#[repr(C)]
pub struct CounterPage {
    header: Header,
    devices: [DeviceTotals; DEVICES],
    slots: [ProcessSlot; SLOTS],
    lanes: [Lanes; SLOTS],
}

impl DeviceTotals {
    const fn new() -> Self {
        #[expect(clippy::declare_interior_mutable_const, reason = "each use is a fresh zero")]
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Self {
            uuid_high: ZERO,
            uuid_low: ZERO,
            reserved: ZERO,
            reserved_peak: ZERO,
            allocated: ZERO,
            allocated_peak: ZERO,
            allocated_known: ZERO,
            cap: ZERO,
            claimed: ZERO,
            contexts: ZERO,
        }
    }
}

impl LaneDevice {
    const fn new() -> Self {
        #[expect(clippy::declare_interior_mutable_const, reason = "each use is a fresh zero")]
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Self {
            live: [const { ZERO }; CLASSES],
            allocations: ZERO,
            frees: ZERO,
            requested: ZERO,
            allocated: ZERO,
            framework_reserved: ZERO,
            claimed: ZERO,
            context: ZERO,
        }
    }
}

impl ProcessSlot {
    const fn new() -> Self {
        #[expect(clippy::declare_interior_mutable_const, reason = "each use is a fresh zero")]
        const ZERO: AtomicU64 = AtomicU64::new(0);
        Self {
            pid: AtomicU32::new(0),
            attempt: AtomicU32::new(0),
            start: ZERO,
            oom_asked: ZERO,
            oom_in_use: ZERO,
            oom_device: ZERO,
            marks: ZERO,
        }
    }
}

impl CounterPage {
    /// All zero, as a fresh memfd is; for a page in static memory.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "the page is too large to be made on a stack in passing"
    )]
    pub const fn new() -> Self {
        Self {
            header: Header {
                magic: AtomicU64::new(0),
                layout: AtomicU64::new(0),
            },
            devices: [const { DeviceTotals::new() }; DEVICES],
            slots: [const { ProcessSlot::new() }; SLOTS],
            lanes: [const { [const { [const { LaneDevice::new() }; DEVICES] }; LANES] }; SLOTS],
        }
    }

    /// Turns zeroed memory into a page.
    pub fn format(&self) {
        self.header.layout.store(LAYOUT, Relaxed);
        self.header.magic.store(MAGIC, SeqCst);
    }

    /// Whether the memory holds a page of this layout.
    #[must_use]
    pub fn is_formatted(&self) -> bool {
        self.header.magic.load(SeqCst) == MAGIC && self.header.layout.load(Relaxed) == LAYOUT
    }

    /// The page's index of the device with this UUID, given to it at first sight; `None` when all
    /// [`DEVICES`] are taken by others.
    #[must_use]
    pub fn device_index(&self, uuid: [u8; 16]) -> Option<usize> {
        let (high, low) = halves(uuid);
        self.devices.iter().position(|device| {
            match device.uuid_high.compare_exchange(0, high, SeqCst, SeqCst) {
                Ok(_) => {
                    device.uuid_low.store(low, SeqCst);
                    true
                }
                // Another claimer may not have written the second half yet: 2^-64 says it is the same UUID.
                Err(there) => {
                    there == high && matches!(device.uuid_low.load(SeqCst), seen if seen == low || seen == 0)
                }
            }
        })
    }

    /// Takes a slot for a process; `None` when all are taken. Slots that no process has had come first, so
    /// that what a dead process counted, and its unmet request, stay readable as long as there is room.
    #[must_use]
    pub fn join(&self, pid: u32, start: u64, attempt: u32) -> Option<usize> {
        let free = |slot: &ProcessSlot| slot.pid.compare_exchange(0, pid, SeqCst, SeqCst).is_ok();
        let unused = |slot: &ProcessSlot| slot.attempt.load(SeqCst) == 0 && free(slot);
        let taken = self
            .slots
            .iter()
            .position(unused)
            .or_else(|| self.slots.iter().position(free))?;
        let slot = &self.slots[taken];
        slot.oom_asked.store(0, SeqCst);
        slot.marks.store(0, Relaxed);
        slot.start.store(start, Relaxed);
        // Attempts count from 1, so that 0 keeps meaning "never used" for a watched process too.
        slot.attempt.store(attempt.max(1), SeqCst);
        Some(taken)
    }

    /// Notes that the driver answered out of memory, and returns the job's reserved bytes at that moment.
    pub fn refuse(&self, slot: usize, device: usize, asked: u64) -> u64 {
        let (Some(process), Some(totals)) = (self.slots.get(slot), self.devices.get(device)) else {
            return 0;
        };
        let in_use = totals.reserved.load(Relaxed);
        process.oom_in_use.store(in_use, Relaxed);
        process.oom_device.store(device as u64, Relaxed);
        process.oom_asked.store(asked, SeqCst);
        in_use
    }

    /// The process has met a request of `bytes` from memory that it had kept: an unmet one of at most this size
    /// counts as met.
    #[inline]
    pub fn meet(&self, slot: usize, bytes: u64) {
        let Some(process) = self.slots.get(slot) else {
            return;
        };
        let unmet = process.oom_asked.load(Relaxed);
        if unmet != 0 && bytes >= unmet {
            process.oom_asked.store(0, Relaxed);
        }
    }

    /// Says how many iteration marks a process has passed.
    pub fn set_marks(&self, slot: usize, marks: u64) {
        if let Some(process) = self.slots.get(slot) {
            process.marks.store(marks, Relaxed);
        }
    }

    /// Takes a framework's own figure of what the process's tensors hold on a device.
    #[inline]
    pub fn report_allocated(&self, slot: usize, device: usize, allocated: u64) {
        if let Some(mine) = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device)) {
            let before = mine.allocated.swap(allocated, Relaxed);
            self.move_allocated(device, before, allocated);
        }
    }

    /// The same where nobody else reports for this process and device meanwhile, as under the lock of PyTorch's
    /// allocator: one locked instruction less.
    #[inline]
    pub fn report_allocated_alone(&self, slot: usize, device: usize, allocated: u64) {
        if let Some(mine) = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device)) {
            let before = mine.allocated.load(Relaxed);
            mine.allocated.store(allocated, Relaxed);
            self.move_allocated(device, before, allocated);
        }
    }

    #[inline]
    fn move_allocated(&self, device: usize, before: u64, allocated: u64) {
        let Some(totals) = self.devices.get(device) else {
            return;
        };
        if totals.allocated_known.load(Relaxed) == 0 {
            totals.allocated_known.store(1, Relaxed);
        }
        let change = allocated.wrapping_sub(before);
        let now = totals.allocated.fetch_add(change, Relaxed).wrapping_add(change);
        if now > totals.allocated_peak.load(Relaxed) {
            totals.allocated_peak.fetch_max(now, Relaxed);
        }
    }

    /// Takes a framework's own figure of what the process holds of the driver's memory on a device.
    #[inline]
    pub fn report_reserved(&self, slot: usize, device: usize, reserved: u64) {
        if let Some(mine) = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device)) {
            mine.framework_reserved.store(reserved, Relaxed);
        }
    }

    /// Takes the bytes of a dead process out of the job's totals and frees its slot, keeping what it
    /// counted. Of several callers one does it.
    pub fn leave(&self, occupant: Occupant) {
        let Some(process) = self.slots.get(occupant.slot) else {
            return;
        };
        // The pid stays in place until the bytes are out, with a mark that nobody else can claim.
        if process
            .pid
            .compare_exchange(occupant.pid, u32::MAX, SeqCst, SeqCst)
            .is_err()
        {
            return;
        }
        let lanes = self.lanes[occupant.slot].iter();
        for (mine, totals) in lanes.flat_map(|lane| lane.iter().zip(&self.devices)) {
            for class in Class::ALL {
                let live = mine.live[class as usize].swap(0, Relaxed);
                if class.is_reserved() {
                    totals.reserved.fetch_sub(live, Relaxed);
                }
            }
            totals
                .allocated
                .fetch_sub(mine.allocated.swap(0, Relaxed), Relaxed);
            mine.framework_reserved.store(0, Relaxed);
            totals.claimed.fetch_sub(mine.claimed.swap(0, SeqCst), SeqCst);
            totals.contexts.fetch_sub(mine.context.swap(0, SeqCst), SeqCst);
        }
        process.pid.store(0, SeqCst);
    }

    /// Forgets unmet requests and caps before another attempt starts on the same page, when no process of the
    /// job lives.
    pub fn next_attempt(&self) {
        for slot in &self.slots {
            slot.oom_asked.store(0, SeqCst);
        }
        for device in &self.devices {
            device.cap.store(0, SeqCst);
        }
    }
}

fn halves(uuid: [u8; 16]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, rest @ ..] = uuid;
    // Zero means free, so an all-zero half, which no real UUID has, is told apart by one bit.
    (
        u64::from_le_bytes([a, b, c, d, e, f, g, h]).max(1),
        u64::from_le_bytes(rest),
    )
}

#[cfg(test)]
mod tests;
