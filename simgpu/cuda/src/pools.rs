//! Memory pools: what stream-ordered allocation takes memory from. Pure.
//!
//! 1. An allocation is a piece of a chunk; a chunk is memory that the pool reserved, charged to the slice in steps of
//!    2 MiB. A new chunk is reserved only when no piece is free that is large enough.
//! 2. A piece given back stays the pool's. At the next synchronisation chunks of which no piece is in use go back to
//!    the slice, as long as the pool has more than its release threshold left; a trim does the same with its own
//!    limit, at once.
//! 3. A destroyed pool goes with its last allocation.
//!
//! The rules are those of the driver's documentation. How large the real driver's chunks are is not documented, and
//! differs: here a chunk is as large as the allocation that needs it.

use std::collections::BTreeMap;

use crate::blocks::{BLOCK, PIECE};
use crate::code::{Answer, Code};
use crate::handle::Handle;
use crate::space::Space;

/// `CUmemPool_attribute` by number.
const FOLLOW_EVENTS: i32 = 1;
const INTERNAL_DEPENDENCIES: i32 = 3;
const RELEASE_THRESHOLD: i32 = 4;
const RESERVED_CURRENT: i32 = 5;
const RESERVED_HIGH: i32 = 6;
const USED_CURRENT: i32 = 7;
const USED_HIGH: i32 = 8;

/// A number now, and the largest that it was since that was reset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Level {
    pub(crate) current: u64,
    pub(crate) high: u64,
}

impl Level {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.current += bytes;
        self.high = self.high.max(self.current);
    }

    pub(crate) fn take(&mut self, bytes: u64) {
        self.current = self.current.saturating_sub(bytes);
    }

    /// A reset: from here on the largest is counted anew.
    pub(crate) fn reset(&mut self) {
        self.high = self.current;
    }
}

/// An attribute's value: the program's variable has that width.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Value {
    Flag(i32),
    Bytes(u64),
}

/// How wide a pool attribute is: true for 64 bits.
pub(crate) fn is_wide(attribute: i32) -> Answer<bool> {
    match attribute {
        FOLLOW_EVENTS..=INTERNAL_DEPENDENCIES => Ok(false),
        RELEASE_THRESHOLD..=USED_HIGH => Ok(true),
        _ => Err(Code::INVALID_VALUE),
    }
}

#[derive(Debug)]
struct Chunk {
    bytes: u64,
    pieces: Space,
    used: u64,
}

/// One pool.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: usize,
    /// The device's own pool, which cannot be destroyed.
    pub(crate) is_default: bool,
    /// Most bytes that it may reserve; 0 for no limit of its own.
    max_bytes: u64,
    threshold: u64,
    reuse: [i32; 3],
    reserved: Level,
    used: Level,
    chunks: BTreeMap<u64, Chunk>,
    /// Destroyed by the program while allocations of it were live.
    is_doomed: bool,
}

/// A chunk that is the slice's again: start and bytes.
pub(crate) type Released = Vec<(u64, u64)>;

impl Pool {
    pub(crate) fn new(device: usize, is_default: bool, max_bytes: u64) -> Self {
        Self {
            device,
            is_default,
            max_bytes,
            threshold: 0,
            reuse: [1; 3],
            reserved: Level::default(),
            used: Level::default(),
            chunks: BTreeMap::new(),
            is_doomed: false,
        }
    }

    /// Takes a piece (`bytes` not 0). `reserve` makes a new chunk of that many bytes if none has room.
    fn take(&mut self, bytes: u64, reserve: impl FnOnce(u64) -> Option<u64>) -> Answer<u64> {
        let bytes = bytes.checked_next_multiple_of(PIECE).ok_or(Code::OUT_OF_MEMORY)?;
        let reused = self.chunks.values_mut().find_map(|chunk| {
            let address = chunk.pieces.take(bytes, PIECE)?;
            chunk.used += bytes;
            Some(address)
        });
        if let Some(address) = reused {
            self.used.add(bytes);
            return Ok(address);
        }
        let length = bytes.checked_next_multiple_of(BLOCK).ok_or(Code::OUT_OF_MEMORY)?;
        if self.max_bytes != 0 && self.reserved.current.saturating_add(length) > self.max_bytes {
            return Err(Code::OUT_OF_MEMORY);
        }
        let start = reserve(length).ok_or(Code::OUT_OF_MEMORY)?;
        let mut pieces = Space::new(start, length);
        let address = pieces.take(bytes, PIECE).ok_or(Code::OUT_OF_MEMORY)?;
        let chunk = Chunk {
            bytes: length,
            pieces,
            used: bytes,
        };
        self.chunks.insert(start, chunk);
        self.reserved.add(length);
        self.used.add(bytes);
        Ok(address)
    }

    /// Takes a piece back into its chunk; `bytes` as asked.
    fn give(&mut self, address: u64, bytes: u64) {
        let bytes = bytes.next_multiple_of(PIECE);
        if let Some((_, chunk)) = self.chunks.range_mut(..=address).next_back() {
            chunk.pieces.give(address, bytes);
            chunk.used -= bytes;
            self.used.take(bytes);
        }
    }

    /// Releases unused chunks while at least `keep` bytes stay reserved.
    fn trim(&mut self, keep: u64) -> Released {
        let unused = self.chunks.iter().filter(|(_, chunk)| chunk.used == 0);
        let unused: Vec<_> = unused.map(|(&start, chunk)| (start, chunk.bytes)).collect();
        let mut released = Vec::new();
        for (start, bytes) in unused {
            if self.reserved.current - bytes >= keep {
                self.chunks.remove(&start);
                self.reserved.take(bytes);
                released.push((start, bytes));
            }
        }
        released
    }
}

/// The pools of this process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    pools: BTreeMap<Handle, Pool>,
    /// Per device: its own pool, and the one that it allocates from.
    devices: Vec<(Handle, Handle)>,
}

impl Pools {
    /// Adds a pool.
    pub(crate) fn add(&mut self, handle: Handle, pool: Pool) {
        if pool.is_default {
            self.devices.push((handle, handle));
        }
        self.pools.insert(handle, pool);
    }

    /// A pool that the program may use.
    pub(crate) fn get(&self, handle: Handle) -> Answer<&Pool> {
        self.pools
            .get(&handle)
            .filter(|pool| !pool.is_doomed)
            .ok_or(Code::INVALID_VALUE)
    }

    fn get_mut(&mut self, handle: Handle) -> Answer<&mut Pool> {
        self.pools
            .get_mut(&handle)
            .filter(|pool| !pool.is_doomed)
            .ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn default_of(&self, device: usize) -> Answer<Handle> {
        Ok(self.devices.get(device).ok_or(Code::INVALID_DEVICE)?.0)
    }

    pub(crate) fn current_of(&self, device: usize) -> Answer<Handle> {
        Ok(self.devices.get(device).ok_or(Code::INVALID_DEVICE)?.1)
    }

    /// Makes a pool the one that its device allocates from.
    pub(crate) fn set_current(&mut self, device: usize, handle: Handle) -> Answer {
        if self.get(handle)?.device != device {
            return Err(Code::INVALID_VALUE);
        }
        self.devices.get_mut(device).ok_or(Code::INVALID_DEVICE)?.1 = handle;
        Ok(())
    }

    /// Takes a piece of a pool.
    pub(crate) fn take(
        &mut self,
        handle: Handle,
        bytes: u64,
        reserve: impl FnOnce(u64) -> Option<u64>,
    ) -> Answer<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        self.get_mut(handle)?.take(bytes, reserve)
    }

    /// Takes a piece back; answers what a destroyed pool releases with its last one.
    pub(crate) fn give(&mut self, handle: Handle, address: u64, bytes: u64) -> Released {
        let Some(pool) = self.pools.get_mut(&handle) else {
            return Vec::new();
        };
        pool.give(address, bytes);
        self.bury(handle)
    }

    /// Destroys a pool; a device that allocated from it falls back to its own.
    pub(crate) fn destroy(&mut self, handle: Handle) -> Answer<Released> {
        let pool = self.get_mut(handle)?;
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        pool.is_doomed = true;
        for (own, current) in &mut self.devices {
            if *current == handle {
                *current = *own;
            }
        }
        Ok(self.bury(handle))
    }

    fn bury(&mut self, handle: Handle) -> Released {
        let is_over = |pool: &&mut Pool| pool.is_doomed && pool.used.current == 0;
        let Some(pool) = self.pools.get_mut(&handle).filter(is_over) else {
            return Vec::new();
        };
        let released = pool.trim(0);
        self.pools.remove(&handle);
        released
    }

    /// `cuMemPoolTrimTo`
    pub(crate) fn trim(&mut self, handle: Handle, keep: u64) -> Answer<Released> {
        Ok(self.get_mut(handle)?.trim(keep))
    }

    /// What the pools of a device release at a synchronisation; with `all`, whatever their thresholds, as when an
    /// allocation finds no room.
    pub(crate) fn release(&mut self, device: usize, all: bool) -> Released {
        let of_device = self.pools.values_mut().filter(|pool| pool.device == device);
        of_device
            .flat_map(|pool| {
                let keep = if all { 0 } else { pool.threshold };
                pool.trim(keep)
            })
            .collect()
    }

    /// Whether pools of the device have reserved memory.
    pub(crate) fn hold_memory(&self, device: usize) -> bool {
        self.pools
            .values()
            .any(|pool| pool.device == device && pool.used.current > 0)
    }

    pub(crate) fn attribute(&self, handle: Handle, attribute: i32) -> Answer<Value> {
        let pool = self.get(handle)?;
        Ok(match attribute {
            FOLLOW_EVENTS..=INTERNAL_DEPENDENCIES => {
                let index = usize::try_from(attribute - FOLLOW_EVENTS).unwrap_or(0);
                Value::Flag(pool.reuse.get(index).copied().unwrap_or(0))
            }
            RELEASE_THRESHOLD => Value::Bytes(pool.threshold),
            RESERVED_CURRENT => Value::Bytes(pool.reserved.current),
            RESERVED_HIGH => Value::Bytes(pool.reserved.high),
            USED_CURRENT => Value::Bytes(pool.used.current),
            USED_HIGH => Value::Bytes(pool.used.high),
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// The high marks can only be set to 0, which starts them anew; the current ones not at all.
    pub(crate) fn set_attribute(&mut self, handle: Handle, attribute: i32, value: Value) -> Answer {
        let pool = self.get_mut(handle)?;
        match (attribute, value) {
            (FOLLOW_EVENTS..=INTERNAL_DEPENDENCIES, Value::Flag(flag)) => {
                let index = usize::try_from(attribute - FOLLOW_EVENTS).unwrap_or(0);
                *pool.reuse.get_mut(index).ok_or(Code::INVALID_VALUE)? = i32::from(flag != 0);
            }
            (RELEASE_THRESHOLD, Value::Bytes(bytes)) => pool.threshold = bytes,
            (RESERVED_HIGH, Value::Bytes(0)) => pool.reserved.reset(),
            (USED_HIGH, Value::Bytes(0)) => pool.used.reset(),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK;

    /// One default pool (1) and one of the program's (2) on device 0, and where the next chunk goes.
    fn pools() -> Pools {
        let mut pools = Pools::default();
        pools.add(1, Pool::new(0, true, 0));
        pools.add(2, Pool::new(0, false, 8 * B));
        pools
    }

    fn bytes_of(pools: &Pools, pool: Handle, attribute: i32) -> u64 {
        match pools.attribute(pool, attribute).unwrap() {
            Value::Bytes(bytes) => bytes,
            Value::Flag(flag) => panic!("{flag}"),
        }
    }

    #[test]
    fn what_is_given_back_is_taken_again_before_more_is_reserved() {
        let mut pools = pools();
        let first = pools
            .take(1, 3 * B, |bytes| (bytes == 3 * B).then_some(0))
            .unwrap();
        assert_eq!(pools.give(1, first, 3 * B), vec![]);
        let second = pools.take(1, B, |_| panic!("reserved")).unwrap();
        let third = pools.take(1, 100, |_| panic!("reserved")).unwrap();
        assert_eq!((second, third), (0, B));
        assert_eq!(bytes_of(&pools, 1, RESERVED_CURRENT), 3 * B);
        assert_eq!(bytes_of(&pools, 1, USED_CURRENT), B + PIECE);
        assert_eq!(bytes_of(&pools, 1, USED_HIGH), 3 * B);
        assert_eq!(pools.take(1, 3 * B, |_| None), Err(Code::OUT_OF_MEMORY));
        assert_eq!(pools.take(1, 0, |_| Some(9)), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn a_synchronisation_releases_unused_chunks_above_the_threshold() {
        let mut pools = pools();
        for start in [0, 4 * B, 8 * B] {
            pools.take(1, 2 * B, |_| Some(start)).unwrap();
        }
        pools.give(1, 0, 2 * B);
        pools.give(1, 4 * B, 2 * B);
        pools
            .set_attribute(1, RELEASE_THRESHOLD, Value::Bytes(3 * B))
            .unwrap();
        assert_eq!(pools.release(0, false), vec![(0, 2 * B)]);
        assert_eq!(bytes_of(&pools, 1, RESERVED_CURRENT), 4 * B);
        assert_eq!(pools.trim(1, 4 * B), Ok(vec![]));
        assert_eq!(pools.trim(1, 0), Ok(vec![(4 * B, 2 * B)]));
        assert_eq!(
            bytes_of(&pools, 1, RESERVED_CURRENT),
            2 * B,
            "what is in use stays"
        );
        assert_eq!(bytes_of(&pools, 1, RESERVED_HIGH), 6 * B);
        pools.set_attribute(1, RESERVED_HIGH, Value::Bytes(0)).unwrap();
        assert_eq!(bytes_of(&pools, 1, RESERVED_HIGH), 2 * B);
        let refused = pools.set_attribute(1, RESERVED_HIGH, Value::Bytes(1));
        assert_eq!(refused, Err(Code::INVALID_VALUE));
        let refused = pools.set_attribute(1, USED_CURRENT, Value::Bytes(0));
        assert_eq!(refused, Err(Code::INVALID_VALUE));
    }

    #[test]
    fn a_destroyed_pool_goes_with_its_last_allocation() {
        let mut pools = pools();
        pools.set_current(0, 2).unwrap();
        let address = pools.take(2, B, |_| Some(0)).unwrap();
        assert_eq!(pools.destroy(2), Ok(vec![]));
        assert_eq!(pools.current_of(0), Ok(1), "the device has its own pool again");
        assert_eq!(pools.take(2, B, |_| Some(B)), Err(Code::INVALID_VALUE));
        assert_eq!(pools.give(2, address, B), vec![(0, B)]);
        assert_eq!(pools.destroy(1), Err(Code::INVALID_VALUE), "a device's own pool");
    }

    #[test]
    fn a_pool_reserves_no_more_than_its_own_limit() {
        let mut pools = pools();
        pools.take(2, 8 * B, |_| Some(0)).unwrap();
        assert_eq!(pools.take(2, 1, |_| panic!("reserved")), Err(Code::OUT_OF_MEMORY));
    }
}
