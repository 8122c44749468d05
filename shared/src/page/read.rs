//! Reading: what the page says of devices and processes.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use serde::{Deserialize, Serialize};

use super::{CLASSES, Class, CounterPage, DEVICES, LaneDevice, ProcessSlot};

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

impl CounterPage {
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

    /// How many iteration marks a process has passed.
    #[must_use]
    pub fn marks(&self, slot: usize) -> u64 {
        self.slots
            .get(slot)
            .map_or(0, |process| process.marks.load(Relaxed))
    }

    /// Whether a process has a request that was refused and not met since.
    #[must_use]
    pub fn is_unmet(&self, slot: usize) -> bool {
        self.slots
            .get(slot)
            .is_some_and(|process| process.oom_asked.load(Relaxed) != 0)
    }

    /// What the process's framework has reported last of its tensors on a device.
    #[must_use]
    #[inline]
    pub fn process_allocated(&self, slot: usize, device: usize) -> u64 {
        let mine = self.lanes.get(slot).and_then(|lanes| lanes[0].get(device));
        mine.map_or(0, |mine| mine.allocated.load(Relaxed))
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
}

fn whole(high: u64, low: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&high.to_le_bytes());
    uuid[8..].copy_from_slice(&low.to_le_bytes());
    uuid
}
