//! Memory that this process shares with others: what it exported and what it opened.
//!
//! A segment of the machine is held once by each process ([`simgpu::segment`]); this process counts its own uses of it
//! here, and lets go with the last.

use std::collections::BTreeMap;

use simgpu::segment::SegmentId;

use crate::code::{Answer, Code};
use crate::state::State;

/// Segments in use, and allocations that were exported.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// Per segment: its device, and how many objects of this process use it.
    uses: BTreeMap<SegmentId, (usize, u32)>,
    /// Memory of `cuMemAlloc` that was exported, by device and the start of what was charged for it.
    exported: BTreeMap<(usize, u64), SegmentId>,
}

impl Sharing {
    /// Whether the process uses shared memory of the device.
    pub(crate) fn holds_memory(&self, device: usize) -> bool {
        self.uses.values().any(|&(of, _)| of == device)
    }

    /// Takes what starts there out of the exported allocations.
    pub(crate) fn take_exported(&mut self, device: usize, unit: u64) -> Option<SegmentId> {
        self.exported.remove(&(device, unit))
    }
}

impl State {
    /// Makes memory that is charged to this process a segment, used once.
    pub(crate) fn share(&mut self, device: usize, bytes: u64) -> Answer<SegmentId> {
        let id = self
            .slice(device)?
            .0
            .share(bytes)
            .map_err(|_| Code::OUT_OF_MEMORY)?;
        self.sharing.uses.insert(id, (device, 1));
        Ok(id)
    }

    /// The segment of an allocation, made now if there is none yet.
    pub(crate) fn export(&mut self, device: usize, unit: u64, bytes: u64) -> Answer<SegmentId> {
        if let Some(&id) = self.sharing.exported.get(&(device, unit)) {
            return Ok(id);
        }
        let id = self.share(device, bytes)?;
        self.sharing.exported.insert((device, unit), id);
        Ok(id)
    }

    /// One more use of a segment on a device of this process; answers its bytes.
    pub(crate) fn use_segment(&mut self, device: usize, id: SegmentId) -> Answer<u64> {
        let bytes = self.slice(device)?.0.hold(id).map_err(|_| Code::INVALID_VALUE)?;
        self.sharing.uses.entry(id).or_insert((device, 0)).1 += 1;
        Ok(bytes)
    }

    /// One use less; with the last the process lets go.
    pub(crate) fn leave_segment(&mut self, id: SegmentId) {
        let Some((device, uses)) = self.sharing.uses.get_mut(&id) else {
            return;
        };
        let device = *device;
        *uses -= 1;
        if *uses > 0 {
            return;
        }
        self.sharing.uses.remove(&id);
        if let Ok(slice) = self.slice(device) {
            slice.0.let_go(id);
        }
    }
}
