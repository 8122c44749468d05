//! Counting: what one thread adds and takes off at each allocation and free.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Class, CounterPage, DeviceTotals, LaneDevice, ProcessSlot};

/// Where one thread of a process counts on one device.
#[derive(Clone, Copy, Debug)]
pub struct Tally<'a> {
    totals: &'a DeviceTotals,
    process: &'a ProcessSlot,
    lane: &'a LaneDevice,
    alone: bool,
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
}
