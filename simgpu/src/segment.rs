//! Device memory that several processes hold: what one exported and others opened.
//!
//! 1. The process that exports moves the bytes from its own record to a segment, and holds it.
//! 2. Others that open the export hold it too. They are charged nothing: the oldest living holder pays, at first the
//!    exporter.
//! 3. A segment is there while any living process holds it. When its payer goes, however it goes, the next holder
//!    pays; when the last one goes, the slice has the bytes again.

use crate::process::Process;
use crate::state::{HOLDS, Hold, SEGMENTS, Segment, State};
use crate::tenant::Tenant;

/// Names a segment: never reused on a machine.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SegmentId(pub u64);

/// Why memory cannot be shared.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ShareError {
    /// Its last holder let it go, or it is on another slice.
    #[error("no shared memory {0} on this slice")]
    Gone(u64),
    /// The tables of the machine are full.
    #[error("all {0} places for shared memory are taken")]
    Full(usize),
    /// The child of a fork holds nothing.
    #[error("the process that attached was another one")]
    NotOurs,
}

impl State {
    pub(crate) fn live_segments(&self) -> impl Iterator<Item = &Segment> {
        let end = (self.segments_end.get() as usize).min(SEGMENTS);
        self.segments[..end]
            .iter()
            .filter(|segment| segment.used.get() != 0)
    }

    fn live_holds(&self) -> impl Iterator<Item = &Hold> {
        let end = (self.holds_end.get() as usize).min(HOLDS);
        self.holds[..end].iter().filter(|hold| hold.used.get() != 0)
    }

    /// The hold of the process that pays: the oldest.
    pub(crate) fn payer(&self, segment: &Segment) -> Option<&Hold> {
        let holds = self
            .live_holds()
            .filter(|hold| hold.segment.get() == segment.id.get());
        holds.min_by_key(|hold| hold.order.get())
    }

    /// Takes out the holds that match, and the segments that nobody holds any more.
    pub(crate) fn let_go(&self, goes: impl Fn(&Hold) -> bool) {
        let mut any = false;
        for hold in self.live_holds().filter(|hold| goes(hold)) {
            hold.used.set(0);
            any = true;
        }
        if any {
            self.live_segments()
                .filter(|segment| self.payer(segment).is_none())
                .for_each(|segment| segment.used.set(0));
        }
    }

    fn next_order(&self) -> u64 {
        let order = self.orders.get() + 1;
        self.orders.set(order);
        order
    }

    fn add_hold(&self, process: Process, ci: u32, segment: u64) -> Result<(), ShareError> {
        let free = self.holds.iter().position(|hold| hold.used.get() == 0);
        let index = free.ok_or(ShareError::Full(HOLDS))?;
        let hold = &self.holds[index];
        hold.pid.set(process.pid);
        hold.start.set(process.start);
        hold.ci.set(ci);
        hold.segment.set(segment);
        hold.order.set(self.next_order());
        let end = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.holds_end.set(self.holds_end.get().max(end));
        hold.used.set(1);
        Ok(())
    }

    /// Moves `bytes` that `process` is charged for on an instance into a segment that it holds. Killed half-way, it
    /// leaves a hold of a dead process, which counts for nothing.
    fn share(&self, process: Process, place: [u32; 3], bytes: u64) -> Result<SegmentId, ShareError> {
        let [gpu, gi, ci] = place;
        let free = self.segments.iter().position(|segment| segment.used.get() == 0);
        let index = free.ok_or(ShareError::Full(SEGMENTS))?;
        let id = self.next_order();
        self.add_hold(process, ci, id)?;
        let segment = &self.segments[index];
        segment.gpu.set(gpu);
        segment.gi.set(gi);
        segment.id.set(id);
        segment.bytes.set(bytes);
        let end = u32::try_from(index + 1).unwrap_or(u32::MAX);
        self.segments_end.set(self.segments_end.get().max(end));
        segment.used.set(1);
        Ok(SegmentId(id))
    }
}

impl Tenant {
    fn is_mine(&self, hold: &Hold) -> bool {
        let this = Process::this();
        hold.pid.get() == this.pid && hold.start.get() == this.start
    }

    /// Makes `bytes` of what this process is charged for memory that others can hold too. This process holds it.
    pub fn share(&self, bytes: u64) -> Result<SegmentId, ShareError> {
        if !self.is_ours() {
            return Err(ShareError::NotOurs);
        }
        let state = self.mapping().locked();
        let id = state.share(Process::this(), self.place(), bytes)?;
        let record = self.record(&state);
        record.bytes.set(record.bytes.get().saturating_sub(bytes));
        Ok(id)
    }

    /// Holds memory that another process exported, at no charge while that process pays; answers its bytes. Each
    /// process holds a segment once: a second hold of the same one changes nothing.
    pub fn hold(&self, id: SegmentId) -> Result<u64, ShareError> {
        if !self.is_ours() {
            return Err(ShareError::NotOurs);
        }
        let state = self.mapping().locked();
        state.reap_now();
        let [gpu, gi, ci] = self.place();
        let on_slice = |segment: &&Segment| {
            segment.id.get() == id.0 && segment.gpu.get() == gpu && segment.gi.get() == gi
        };
        let bytes = state
            .live_segments()
            .find(on_slice)
            .ok_or(ShareError::Gone(id.0))?
            .bytes
            .get();
        let held = state
            .live_holds()
            .any(|hold| hold.segment.get() == id.0 && self.is_mine(hold));
        if !held {
            state.add_hold(Process::this(), ci, id.0)?;
        }
        Ok(bytes)
    }

    /// Whether a living process of this pid holds the memory.
    #[must_use]
    pub fn is_held_by(&self, id: SegmentId, pid: u32) -> bool {
        let state = self.mapping().locked();
        state.reap_now();
        state
            .live_holds()
            .any(|hold| hold.segment.get() == id.0 && hold.pid.get() == pid)
    }

    /// Holds it no longer.
    pub fn let_go(&self, id: SegmentId) {
        if self.is_ours() {
            self.mapping()
                .locked()
                .let_go(|hold| hold.segment.get() == id.0 && self.is_mine(hold));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::files::{DEFAULT_DRIVER, Plan, remove};
    use crate::machine::{DeviceRef, Machine};

    use super::*;

    const DEVICE: DeviceRef = DeviceRef { gpu: 0, slice: None };
    const MIB: u64 = 1 << 20;

    struct Bench(Machine);

    impl Bench {
        fn new() -> Self {
            let plan = Plan::parse("a100-40gb", false, 1.0, DEFAULT_DRIVER).unwrap();
            Self(Machine::create(&plan).unwrap())
        }

        fn used(&self) -> u64 {
            self.0.memory(0, None).used
        }
    }

    impl Drop for Bench {
        fn drop(&mut self) {
            remove(self.0.id()).unwrap();
        }
    }

    #[test]
    fn shared_bytes_count_once_and_are_the_exporters() {
        let bench = Bench::new();
        let tenant = bench.0.attach(DEVICE, 10 * MIB).unwrap();
        tenant.charge(6 * MIB).unwrap();
        let id = tenant.share(6 * MIB).unwrap();
        assert_eq!(bench.used(), 16 * MIB);
        assert_eq!(bench.0.processes(0)[0].bytes, 16 * MIB);
        assert_eq!(
            tenant.hold(id),
            Ok(6 * MIB),
            "the exporter may open what it exported"
        );
        assert_eq!(bench.used(), 16 * MIB);
        tenant.let_go(id);
        assert_eq!(bench.used(), 10 * MIB);
        assert_eq!(tenant.hold(id), Err(ShareError::Gone(id.0)));
    }

    #[test]
    fn the_next_holder_pays_when_the_payer_dies() {
        let bench = Bench::new();
        let mut exporter = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let tenant = bench.0.attach(DEVICE, 10 * MIB).unwrap();
        let other = Process::of(exporter.id());
        let id = tenant
            .mapping()
            .locked()
            .share(other, tenant.place(), 8 * MIB)
            .unwrap();
        assert_eq!(tenant.hold(id), Ok(8 * MIB));
        assert!(tenant.is_held_by(id, exporter.id()));
        let of = |pid| {
            bench
                .0
                .processes(0)
                .iter()
                .find(|one| one.pid == pid)
                .map(|one| one.bytes)
        };
        assert_eq!(of(exporter.id()), Some(8 * MIB));
        assert_eq!(of(std::process::id()), Some(10 * MIB));
        exporter.kill().unwrap();
        exporter.wait().unwrap();
        assert_eq!(bench.used(), 18 * MIB);
        assert_eq!(of(std::process::id()), Some(18 * MIB));
        assert!(!tenant.is_held_by(id, exporter.id()));
        tenant.let_go(id);
        assert_eq!(bench.used(), 10 * MIB);
    }

    #[test]
    fn a_process_that_leaves_the_device_lets_go() {
        let bench = Bench::new();
        let tenant = bench.0.attach(DEVICE, MIB).unwrap();
        tenant.charge(4 * MIB).unwrap();
        tenant.share(4 * MIB).unwrap();
        drop(tenant);
        assert_eq!(bench.used(), 0);
    }
}
