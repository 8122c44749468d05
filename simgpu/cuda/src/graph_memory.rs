//! Memory that graphs allocate: fixed addresses from the moment a node is added, bytes from a launch on. Pure.
//!
//! 1. An allocation node gets an address, which is the program's to put into other nodes. It costs nothing.
//! 2. A launch makes the graph's allocations live, in the order of its nodes. The device's reserve for graphs grows
//!    to the most that is live at any point; what a graph frees on its way is there for its later nodes, and for other
//!    graphs.
//! 3. What a graph leaves live is freed by another graph, or by `cuMemFree` and `cuMemFreeAsync`. The reserve stays
//!    until `cuDeviceGraphMemTrim`, which keeps what is live and what launches on their way need.
//!
//! The rules are those of the driver's documentation ("graph memory nodes"). Steps of 2 MiB are this model's, and so is
//! that two graphs that run at the same time use one reserve.

use std::collections::BTreeMap;

use crate::blocks::BLOCK;
use crate::code::{Answer, Code};
use crate::handle::Handle;
use crate::pools::Level;

/// An allocation node's memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// As asked.
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) context: Handle,
    /// Launched, and not freed since.
    pub(crate) is_live: bool,
    /// Graphs and executable graphs that have the node.
    users: u32,
}

impl Block {
    fn charged(&self) -> u64 {
        self.bytes.next_multiple_of(BLOCK)
    }
}

/// One step of a launch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Step {
    Allocate(u64),
    Free(u64),
}

/// Bytes that graphs use and have reserved on a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    pub(crate) used: Level,
    pub(crate) reserved: Level,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    blocks: BTreeMap<u64, Block>,
    devices: Vec<Levels>,
}

impl GraphMemory {
    pub(crate) fn new(devices: usize) -> Self {
        Self {
            blocks: BTreeMap::new(),
            devices: vec![Levels::default(); devices],
        }
    }

    /// Notes an allocation node at addresses that were taken for it.
    pub(crate) fn add(&mut self, address: u64, bytes: u64, device: usize, context: Handle) {
        let block = Block {
            bytes,
            device,
            context,
            is_live: false,
            users: 1,
        };
        self.blocks.insert(address, block);
    }

    /// One more graph that has the node.
    pub(crate) fn share(&mut self, address: u64) {
        if let Some(block) = self.blocks.get_mut(&address) {
            block.users += 1;
        }
    }

    /// One graph less that has the node; answers the addresses that nobody needs any more, and how many.
    pub(crate) fn drop_user(&mut self, address: u64) -> Option<(u64, u64)> {
        self.blocks.get_mut(&address)?.users -= 1;
        self.forget(address)
    }

    fn forget(&mut self, address: u64) -> Option<(u64, u64)> {
        let block = *self.blocks.get(&address)?;
        if block.users > 0 || block.is_live {
            return None;
        }
        self.blocks.remove(&address);
        Some((address, block.charged()))
    }

    pub(crate) fn block(&self, address: u64) -> Option<&Block> {
        self.blocks.get(&address)
    }

    /// The addresses of a context's blocks that are live.
    pub(crate) fn live_in(&self, context: Handle) -> Vec<u64> {
        let live = self
            .blocks
            .iter()
            .filter(|(_, block)| block.is_live && block.context == context);
        live.map(|(&address, _)| address).collect()
    }

    /// The block that an address is in, and where that starts.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Block)> {
        let (&start, block) = self.blocks.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }

    pub(crate) fn levels(&mut self, device: usize) -> Answer<&mut Levels> {
        self.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)
    }

    /// Plays the steps of a launch on a device without doing them: how many bytes are live at most on the way. A node
    /// that allocates what is live, or frees what is not, is refused.
    pub(crate) fn peak(&self, device: usize, steps: &[Step]) -> Answer<u64> {
        let mut live: BTreeMap<u64, bool> = BTreeMap::new();
        let mut used = self.devices.get(device).ok_or(Code::INVALID_DEVICE)?.used.current;
        let mut peak = used;
        for &step in steps {
            let (address, comes) = match step {
                Step::Allocate(address) => (address, true),
                Step::Free(address) => (address, false),
            };
            let block = self.blocks.get(&address).ok_or(Code::INVALID_VALUE)?;
            let before = live.insert(address, comes).unwrap_or(block.is_live);
            if before == comes {
                return Err(Code::INVALID_VALUE);
            }
            if block.device != device {
                continue;
            }
            used = if comes {
                used + block.charged()
            } else {
                used - block.charged()
            };
            peak = peak.max(used);
        }
        Ok(peak)
    }

    /// Does the steps, which [`GraphMemory::peak`] found good.
    pub(crate) fn play(&mut self, steps: &[Step]) {
        for &step in steps {
            let (Step::Allocate(address) | Step::Free(address)) = step;
            let Some(block) = self.blocks.get_mut(&address) else {
                continue;
            };
            block.is_live = matches!(step, Step::Allocate(_));
            let (bytes, is_live) = (block.charged(), block.is_live);
            if let Some(levels) = self.devices.get_mut(block.device) {
                if is_live {
                    levels.used.add(bytes);
                } else {
                    levels.used.take(bytes);
                }
            }
        }
    }

    /// Frees what a graph left live, outside of any graph; answers the addresses that nobody needs any more.
    pub(crate) fn free(&mut self, address: u64) -> Answer<Option<(u64, u64)>> {
        let is_live = self.blocks.get(&address).is_some_and(|block| block.is_live);
        if !is_live {
            return Err(Code::INVALID_VALUE);
        }
        self.play(&[Step::Free(address)]);
        Ok(self.forget(address))
    }

    /// What the reserve of a device can give back if launches on their way need `needed` bytes.
    pub(crate) fn trim(&mut self, device: usize, needed: u64) -> Answer<u64> {
        let levels = self.levels(device)?;
        let keep = levels.used.current.max(needed);
        let spare = levels.reserved.current.saturating_sub(keep);
        levels.reserved.take(spare);
        Ok(spare)
    }

    /// Whether graphs have bytes of the device.
    pub(crate) fn holds_memory(&self, device: usize) -> bool {
        self.devices
            .get(device)
            .is_some_and(|levels| levels.reserved.current > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Step::{Allocate, Free};

    const B: u64 = BLOCK;

    fn memory() -> GraphMemory {
        let mut memory = GraphMemory::new(1);
        memory.add(16 * B, 2 * B, 0, 1);
        memory.add(32 * B, 3 * B - 1, 0, 1);
        memory
    }

    #[test]
    fn what_is_freed_on_the_way_serves_later_nodes() {
        let memory = memory();
        let steps = [Allocate(16 * B), Free(16 * B), Allocate(32 * B), Free(32 * B)];
        assert_eq!(memory.peak(0, &steps), Ok(3 * B));
        let steps = [Allocate(16 * B), Allocate(32 * B), Free(16 * B), Free(32 * B)];
        assert_eq!(memory.peak(0, &steps), Ok(5 * B));
    }

    #[test]
    fn what_is_live_is_not_allocated_and_what_is_not_is_not_freed() {
        let mut memory = memory();
        assert_eq!(memory.peak(0, &[Free(16 * B)]), Err(Code::INVALID_VALUE));
        memory.play(&[Allocate(16 * B)]);
        assert_eq!(memory.peak(0, &[Allocate(16 * B)]), Err(Code::INVALID_VALUE));
        assert_eq!(memory.peak(0, &[Free(16 * B), Allocate(16 * B)]), Ok(2 * B));
        assert_eq!(memory.free(32 * B), Err(Code::INVALID_VALUE));
        assert_eq!(memory.free(16 * B), Ok(None), "a graph still has the node");
        assert_eq!(
            memory.levels(0).unwrap().used,
            Level {
                current: 0,
                high: 2 * B
            }
        );
    }

    #[test]
    fn a_trim_keeps_what_is_live_and_what_launches_need() {
        let mut memory = memory();
        memory.levels(0).unwrap().reserved.add(9 * B);
        memory.play(&[Allocate(16 * B)]);
        assert_eq!(memory.trim(0, 6 * B), Ok(3 * B));
        assert_eq!(memory.trim(0, 0), Ok(4 * B));
        assert!(memory.holds_memory(0));
    }

    #[test]
    fn a_block_goes_with_its_last_user_but_not_while_it_is_live() {
        let mut memory = memory();
        memory.share(16 * B);
        assert_eq!(memory.drop_user(16 * B), None);
        memory.play(&[Allocate(16 * B)]);
        assert_eq!(memory.drop_user(16 * B), None);
        assert_eq!(memory.find(17 * B + 5).map(|(start, _)| start), Some(16 * B));
        assert_eq!(memory.free(16 * B), Ok(Some((16 * B, 2 * B))));
        assert!(memory.find(16 * B).is_none());
    }
}
