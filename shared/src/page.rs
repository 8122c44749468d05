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

pub use cap::OverCap;

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

/// Where one thread of a process counts on one device.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    totals: &'a DeviceTotals,
    process: &'a ProcessSlot,
    lane: &'a LaneDevice,
    alone: bool,
}

/// Bytes and counts of a job on one device, read at one moment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct DeviceReading {
    /// UUID bytes of the device.
    pub uuid: [u8; 16],
    /// Bytes reserved.
    pub reserved: u64,
    /// Most bytes ever reserved at once.
    pub reserved_peak: u64,
    /// Bytes held by tensors, where a framework reports it.
    pub allocated: Option<u64>,
    /// The largest `allocated` ever.
    pub allocated_peak: Option<u64>,
    /// Bytes that the frameworks of living processes say they hold of the driver's memory, where they report:
    /// what is `reserved` beyond it was asked for by others, such as a communication library.
    pub framework_reserved: Option<u64>,
    /// Bytes of living processes by class, in the order of [`Class::ALL`].
    pub live: [u64; CLASSES],
    /// Bytes ever asked for, by processes that still have a slot.
    pub requested: u64,
    /// Device allocations that succeeded.
    pub allocations: u64,
    /// Frees of such allocations.
    pub frees: u64,
}

/// An out-of-memory answer that no later allocation of at least its size followed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct UnmetRequest {
    /// The page's device index.
    pub device: u32,
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes the job had reserved on the device at that moment.
    pub in_use: u64,
}

/// A process that holds a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Occupant {
    /// Slot index.
    pub slot: usize,
    /// Pid as the process itself saw it.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start: u64,
    /// Attempt of the job.
    pub attempt: u32,
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

impl<'a> Tally<'a> {
    /// Adds to figures of the lane, modulo 2^64.
    #[inline]
    fn bump<const N: usize>(&self, figures: [(&AtomicU64, u64); N]) {
        // One branch for all of them, as this is done at each allocation.
        if self.alone {
            for (figure, by) in figures {
                figure.store(figure.load(Relaxed).wrapping_add(by), Relaxed);
            }
        } else {
            for (figure, by) in figures {
                figure.fetch_add(by, Relaxed);
            }
        }
    }

    #[inline]
    fn live(&self, class: Class) -> &'a AtomicU64 {
        &self.lane.live[class as usize]
    }

    /// Counts an allocation that the driver has granted, and returns the job's reserved bytes on the device
    /// after it. An unmet request of at most this size counts as met.
    #[inline]
    pub fn add(&self, class: Class, bytes: u64) -> u64 {
        let (live, requested) = ((self.live(class), bytes), (&self.lane.requested, bytes));
        if !class.is_reserved() {
            self.bump([live, requested]);
            return self.totals.reserved.load(Relaxed);
        }
        self.bump([live, requested, (&self.lane.allocations, 1)]);
        let unmet = self.process.oom_asked.load(Relaxed);
        if unmet != 0 && bytes >= unmet {
            self.process.oom_asked.store(0, Relaxed);
        }
        // Each sum that the total ever is passes through one of these, whoever adds: so the largest of them is
        // the peak.
        let reserved = self.totals.reserved.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        if reserved > self.totals.reserved_peak.load(Relaxed) {
            self.totals.reserved_peak.fetch_max(reserved, Relaxed);
        }
        reserved
    }

    /// Counts a free. The device is the one of the allocation.
    #[inline]
    pub fn remove(&self, class: Class, bytes: u64) {
        let live = (self.live(class), bytes.wrapping_neg());
        if class.is_reserved() {
            self.bump([live, (&self.lane.frees, 1)]);
            self.totals.reserved.fetch_sub(bytes, Relaxed);
        } else {
            self.bump([live]);
        }
    }

    /// Undoes [`remove`](Self::remove) after the driver has refused the free.
    pub fn restore(&self, class: Class, bytes: u64) {
        let live = (self.live(class), bytes);
        if class.is_reserved() {
            self.bump([live, (&self.lane.frees, 1_u64.wrapping_neg())]);
            self.totals.reserved.fetch_add(bytes, Relaxed);
        } else {
            self.bump([live]);
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

    /// Where a thread counts. In any lane but 0 it must be the only thread of its process that does.
    #[must_use]
    #[inline]
    pub fn tally(&self, slot: usize, lane: usize, device: usize) -> Option<Tally<'_>> {
        Some(Tally {
            totals: self.devices.get(device)?,
            process: self.slots.get(slot)?,
            lane: self.lanes.get(slot)?.get(lane)?.get(device)?,
            alone: lane != 0,
        })
    }

    /// [`Tally::add`] in the shared lane.
    pub fn add(&self, slot: usize, device: usize, class: Class, bytes: u64) -> u64 {
        self.tally(slot, 0, device)
            .map_or(0, |tally| tally.add(class, bytes))
    }

    /// [`Tally::remove`] in the shared lane.
    pub fn remove(&self, slot: usize, device: usize, class: Class, bytes: u64) {
        if let Some(tally) = self.tally(slot, 0, device) {
            tally.remove(class, bytes);
        }
    }

    /// [`Tally::restore`] in the shared lane.
    pub fn restore(&self, slot: usize, device: usize, class: Class, bytes: u64) {
        if let Some(tally) = self.tally(slot, 0, device) {
            tally.restore(class, bytes);
        }
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

    /// Whether a process has a request that was refused and not met since.
    #[must_use]
    pub fn is_unmet(&self, slot: usize) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|process| process.oom_asked.load(Relaxed) != 0)
    }

    /// Says how many iteration marks a process has passed.
    pub fn set_marks(&self, slot: usize, marks: u64) {
        if let Some(process) = self.slots.get(slot) {
            process.marks.store(marks, Relaxed);
        }
    }

    /// How many iteration marks a process has passed.
    #[must_use]
    pub fn marks(&self, slot: usize) -> u64 {
        self.slots
            .get(slot)
            .map_or(0, |process| process.marks.load(Relaxed))
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

    /// What the process's framework has reported last of its tensors on a device.
    #[must_use]
    #[inline]
    pub fn process_allocated(&self, slot: usize, device: usize) -> u64 {
        let mine = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device));
        mine.map_or(0, |mine| mine.allocated.load(Relaxed))
    }

    /// Takes a framework's own figure of what the process holds of the driver's memory on a device.
    #[inline]
    pub fn report_reserved(&self, slot: usize, device: usize, reserved: u64) {
        if let Some(mine) = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device)) {
            mine.framework_reserved.store(reserved, Relaxed);
        }
    }

    /// The kind of memory that most of the job's bytes on a device are.
    #[must_use]
    pub fn largest(&self, device: usize) -> Option<(Class, u64)> {
        if device >= DEVICES {
            return None;
        }
        let live = self.read_device(device).live;
        let of_device = Class::ALL.into_iter().zip(live);
        of_device
            .filter(|&(class, bytes)| class.is_reserved() && bytes != 0)
            .max_by_key(|&(_, bytes)| bytes)
    }

    /// The figures of each device that the job has used, by page index.
    #[must_use]
    pub fn read(&self) -> Vec<DeviceReading> {
        let used = self
            .devices
            .iter()
            .take_while(|device| device.uuid_high.load(SeqCst) != 0)
            .count();
        (0..used).map(|index| self.read_device(index)).collect()
    }

    fn read_device(&self, index: usize) -> DeviceReading {
        let totals = &self.devices[index];
        let known = totals.allocated_known.load(Relaxed) != 0;
        let mut reading = DeviceReading {
            uuid: whole(totals.uuid_high.load(Relaxed), totals.uuid_low.load(Relaxed)),
            reserved: totals.reserved.load(Relaxed),
            reserved_peak: totals.reserved_peak.load(Relaxed),
            allocated: known.then(|| totals.allocated.load(Relaxed)),
            allocated_peak: known.then(|| totals.allocated_peak.load(Relaxed)),
            ..DeviceReading::default()
        };
        // Counts outlive the process; live bytes are cleared when its slot is. A slot that no process has had
        // has no attempt, and its lanes are not touched, as that would give them memory.
        let used = |&(slot, _): &(&ProcessSlot, _)| slot.attempt.load(SeqCst) != 0;
        let mut framework_reserved: u64 = 0;
        let lanes = self
            .slots
            .iter()
            .zip(&self.lanes)
            .filter(used)
            .flat_map(|(_, lanes)| lanes);
        for mine in lanes.map(|lane| &lane[index]) {
            reading.allocations = reading.allocations.wrapping_add(mine.allocations.load(Relaxed));
            reading.frees = reading.frees.wrapping_add(mine.frees.load(Relaxed));
            reading.requested = reading.requested.wrapping_add(mine.requested.load(Relaxed));
            framework_reserved = mine
                .framework_reserved
                .load(Relaxed)
                .wrapping_add(framework_reserved);
            for (sum, live) in reading.live.iter_mut().zip(&mine.live) {
                *sum = sum.wrapping_add(live.load(Relaxed));
            }
        }
        reading.framework_reserved = known.then_some(framework_reserved);
        reading
    }

    /// One process's own counts on one device: allocations, frees, bytes ever requested.
    #[must_use]
    pub fn process_counts(&self, slot: usize, device: usize) -> (u64, u64, u64) {
        let lanes = self.lanes.get(slot).into_iter().flatten();
        let sum = |(allocations, frees, requested): (u64, u64, u64), lane: &LaneDevice| {
            (
                allocations.wrapping_add(lane.allocations.load(Relaxed)),
                frees.wrapping_add(lane.frees.load(Relaxed)),
                requested.wrapping_add(lane.requested.load(Relaxed)),
            )
        };
        lanes.filter_map(|lane| lane.get(device)).fold((0, 0, 0), sum)
    }

    /// The job's reserved bytes and their peak on one device: two loads, for the sender's rounds.
    #[must_use]
    pub fn reserved(&self, device: usize) -> (u64, u64) {
        self.devices.get(device).map_or((0, 0), |totals| {
            (totals.reserved.load(Relaxed), totals.reserved_peak.load(Relaxed))
        })
    }

    /// The job's allocated bytes on one device, where a framework reports them.
    #[must_use]
    pub fn allocated(&self, device: usize) -> Option<u64> {
        let totals = self.devices.get(device)?;
        (totals.allocated_known.load(Relaxed) != 0).then(|| totals.allocated.load(Relaxed))
    }

    /// The processes that hold slots.
    #[must_use]
    pub fn occupants(&self) -> Vec<Occupant> {
        let occupied = |(slot, process): (usize, &ProcessSlot)| {
            let pid = process.pid.load(SeqCst);
            (pid != 0).then(|| Occupant {
                slot,
                pid,
                start: process.start.load(Relaxed),
                attempt: process.attempt.load(Relaxed),
            })
        };
        self.slots.iter().enumerate().filter_map(occupied).collect()
    }

    /// The largest unmet request of an attempt's processes, living and dead, if one was left unmet.
    #[must_use]
    pub fn unmet(&self, attempt: u32) -> Option<UnmetRequest> {
        self.slots
            .iter()
            .filter(|slot| slot.attempt.load(Relaxed) == attempt)
            .filter_map(|slot| {
                let asked = slot.oom_asked.load(SeqCst);
                let device = u32::try_from(slot.oom_device.load(Relaxed)).unwrap_or(0);
                (asked != 0).then(|| UnmetRequest {
                    device,
                    asked,
                    in_use: slot.oom_in_use.load(Relaxed),
                })
            })
            .max_by_key(|unmet| unmet.asked.saturating_add(unmet.in_use))
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

fn whole(high: u64, low: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&high.to_le_bytes());
    uuid[8..].copy_from_slice(&low.to_le_bytes());
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";

    /// A page of the test's own, in static memory: it is too large for a test's stack.
    macro_rules! page {
        () => {{
            static PAGE: CounterPage = CounterPage::new();
            PAGE.format();
            &PAGE
        }};
    }

    #[test]
    fn the_layout_is_pinned() {
        assert_eq!(size_of::<Header>(), 64);
        assert_eq!(size_of::<DeviceTotals>(), 128);
        assert_eq!(size_of::<ProcessSlot>(), 64);
        assert_eq!(size_of::<LaneDevice>(), 128);
        assert_eq!(
            size_of::<CounterPage>(),
            64 + 64 + 16 * 128 + 512 * (64 + 16 * 16 * 128)
        );
    }

    #[test]
    fn live_and_peak_over_two_processes() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
        assert_eq!(page.add(one, device, Class::Device, 100), 100);
        assert_eq!(page.add(two, device, Class::Vmm, 50), 150);
        page.remove(one, device, Class::Device, 100);
        page.add(two, device, Class::Host, 1000);
        page.add(two, device, Class::Managed, 500);
        let reading = page.read()[0];
        assert_eq!((reading.reserved, reading.reserved_peak), (50, 150));
        assert_eq!((reading.allocations, reading.frees), (2, 1));
        assert_eq!(reading.live[Class::Host as usize], 1000);
        assert_eq!(reading.live[Class::Managed as usize], 500);
        assert_eq!(reading.uuid, UUID);
    }

    #[test]
    fn a_process_is_the_sum_of_its_lanes_also_when_it_is_dead() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let slot = page.join(10, 1, 1).unwrap();
        let [one, two] = [1, 2].map(|lane| page.tally(slot, lane, device).unwrap());
        assert_eq!(one.add(Class::Device, 100), 100);
        assert_eq!(two.add(Class::Device, 30), 130);
        two.remove(Class::Device, 100);
        two.remove(Class::Device, 30);
        one.add(Class::Pool, 7);
        two.restore(Class::Device, 30);
        let reading = page.read()[0];
        assert_eq!(
            (reading.reserved, reading.reserved_peak, reading.live[0]),
            (37, 130, 30)
        );
        assert_eq!(page.process_counts(slot, device), (3, 1, 137));
        assert!(page.tally(slot, LANES, device).is_none());
        page.leave(page.occupants()[0]);
        assert_eq!(page.read()[0].reserved, 0);
    }

    #[test]
    fn a_device_keeps_its_index() {
        let page = page!();
        let other = [7; 16];
        assert_eq!(page.device_index(UUID), Some(0));
        assert_eq!(page.device_index(other), Some(1));
        assert_eq!(page.device_index(UUID), Some(0));
        for n in 2..16_u8 {
            assert_eq!(page.device_index([n + 100; 16]), Some(n.into()));
        }
        assert_eq!(page.device_index([1; 16]), None);
    }

    #[test]
    fn the_bytes_of_a_killed_process_leave_the_total_once() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let slot = page.join(10, 1, 1).unwrap();
        page.add(slot, device, Class::Device, 100);
        page.report_allocated(slot, device, 80);
        let dead = page.occupants()[0];
        page.leave(dead);
        page.leave(dead);
        let reading = page.read()[0];
        assert_eq!((reading.reserved, reading.reserved_peak), (0, 100));
        assert_eq!((reading.allocated, reading.allocated_peak), (Some(0), Some(80)));
        assert_eq!(reading.allocations, 1);
        assert!(page.occupants().is_empty());
    }

    #[test]
    fn a_request_met_later_is_no_oom() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let slot = page.join(10, 1, 3).unwrap();
        page.add(slot, device, Class::Device, 40);
        assert_eq!(page.refuse(slot, device, 100), 40);
        assert_eq!(
            page.unmet(3),
            Some(UnmetRequest {
                device: 0,
                asked: 100,
                in_use: 40
            })
        );
        assert_eq!(page.unmet(2), None);
        page.add(slot, device, Class::Device, 99);
        assert!(page.unmet(3).is_some());
        page.add(slot, device, Class::Device, 100);
        assert_eq!(page.unmet(3), None);
    }

    #[test]
    fn a_request_met_from_memory_that_was_kept_is_no_oom() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let slot = page.join(10, 1, 3).unwrap();
        page.refuse(slot, device, 100);
        page.meet(slot, 99);
        assert!(page.is_unmet(slot));
        page.meet(slot, 100);
        assert!(!page.is_unmet(slot));
    }

    #[test]
    fn the_kind_that_most_bytes_are_of_is_a_reserved_one() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
        assert_eq!(page.largest(device), None);
        page.add(one, device, Class::Host, 1000);
        page.add(one, device, Class::Device, 60);
        page.add(one, device, Class::Vmm, 50);
        page.add(two, device, Class::Vmm, 50);
        assert_eq!(page.largest(device), Some((Class::Vmm, 100)));
        assert_eq!(page.largest(DEVICES), None);
    }

    #[test]
    fn what_a_framework_holds_is_summed_over_living_processes() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let (one, two) = (page.join(10, 1, 1).unwrap(), page.join(11, 1, 1).unwrap());
        assert_eq!(page.read()[0].framework_reserved, None);
        for (slot, allocated) in [(one, 5), (two, 7), (one, 3)] {
            page.report_allocated(slot, device, allocated);
            page.report_reserved(slot, device, 10 * allocated);
        }
        let reading = page.read()[0];
        assert_eq!(
            (reading.allocated, reading.framework_reserved),
            (Some(10), Some(100))
        );
        assert_eq!(page.process_allocated(one, device), 3);
        page.leave(page.occupants()[0]);
        assert_eq!(page.read()[0].framework_reserved, Some(70));
    }

    #[test]
    fn a_refused_free_is_undone() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        let slot = page.join(10, 1, 1).unwrap();
        page.add(slot, device, Class::Device, 40);
        page.remove(slot, device, Class::Device, 40);
        page.restore(slot, device, Class::Device, 40);
        let reading = page.read()[0];
        assert_eq!((reading.reserved, reading.frees, reading.live[0]), (40, 0, 40));
    }

    #[test]
    fn totals_from_many_threads_are_exact() {
        let page = page!();
        let device = page.device_index(UUID).unwrap();
        std::thread::scope(|scope| {
            for pid in 1..=8 {
                scope.spawn(move || {
                    let slot = page.join(pid, 1, 1).unwrap();
                    for _ in 0..10_000 {
                        page.add(slot, device, Class::Device, 3);
                        page.remove(slot, device, Class::Device, 3);
                        page.add(slot, device, Class::Pool, 1);
                    }
                });
            }
        });
        let reading = page.read()[0];
        assert_eq!(reading.reserved, 80_000);
        assert_eq!((reading.allocations, reading.frees), (160_000, 80_000));
        assert!(
            (80_000..=80_024).contains(&reading.reserved_peak),
            "{}",
            reading.reserved_peak
        );
    }
}
