//! Stream-ordered allocation.
//!
//! A pool is asked when the call comes: it reuses what was given back, or reserves more, which the slice is charged.
//! A free takes the address away at once and gives the bytes back to the pool when the stream gets there, so that the
//! work before it still has its memory. On a stream that captures, both become nodes.

use std::sync::Arc;

use crate::blocks::{BLOCK, Place};
use crate::code::{Answer, Code};
use crate::gate::{Out, entries};
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::memory::{Allocation, Kind};
use crate::process::Process;
use crate::slice::GivenBack;
use crate::state::State;
use crate::timeline::Work;

use super::memory::is_freed_by_address;

entries! {
    fn cuMemAllocAsync(address: Out<u64>, bytes: u64, stream: Handle) {
        allocate(address, bytes, None, stream, false)
    }
    fn cuMemAllocAsync_ptsz(address: Out<u64>, bytes: u64, stream: Handle) {
        allocate(address, bytes, None, stream, true)
    }
    fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: u64, pool: Handle, stream: Handle) {
        allocate(address, bytes, Some(pool), stream, false)
    }
    fn cuMemAllocFromPoolAsync_ptsz(address: Out<u64>, bytes: u64, pool: Handle, stream: Handle) {
        allocate(address, bytes, Some(pool), stream, true)
    }
    fn cuMemFreeAsync(address: u64, stream: Handle) { free(address, stream, false) }
    fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) { free(address, stream, true) }
}

fn allocate(address: Out<u64>, bytes: u64, pool: Option<Handle>, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    if address.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // Frees that the streams have passed make room.
    drop(process.player.now());
    let mut node = 0;
    let add_node = |state: &mut State| {
        node = state.new_graph_block(place.context, bytes)?;
        Ok(NodeWork::Allocate(node))
    };
    if process.capture(place, add_node)?.is_some() {
        return address.put(node);
    }
    let found = process.state().take_from_pool(place.context, bytes, pool)?;
    address.put(found)
}

impl State {
    /// Allocates from a pool, or from the one that the context's device allocates from.
    fn take_from_pool(&mut self, context: Handle, bytes: u64, pool: Option<Handle>) -> Answer<u64> {
        let device = self.context(context)?.device;
        let pool = match pool {
            Some(pool) => pool,
            None => self.pools.current_of(device)?,
        };
        let device = self.pools.get(pool)?.device;
        let address = match self.try_pool(device, pool, bytes) {
            Err(Code::OUT_OF_MEMORY) => {
                // What pools hold for nobody makes room.
                let released = self.pools.release(device, true);
                self.give_chunks(device, released);
                self.try_pool(device, pool, bytes)?
            }
            found => found?,
        };
        self.memory.insert(Allocation {
            bytes,
            place: Place::elsewhere(address, bytes),
            context,
            device,
            kind: Kind::Pooled(pool),
        });
        Ok(address)
    }

    fn try_pool(&mut self, device: usize, pool: Handle, bytes: u64) -> Answer<u64> {
        let slice = Arc::clone(self.slice(device)?);
        let memory = &mut self.memory;
        self.pools.take(pool, bytes, |length| {
            let start = memory.reserve(length, BLOCK, 0)?;
            if slice.0.charge(length).is_ok() {
                return Some(start);
            }
            memory.unreserve(start, length);
            None
        })
    }
}

fn free(address: u64, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    let add_node = |state: &mut State| match state.memory.graphs.block(address) {
        Some(_) => Ok(NodeWork::Free(address)),
        None => Err(Code::INVALID_VALUE),
    };
    if process.capture(place, add_node)?.is_some() {
        return Ok(());
    }
    let mut state = process.state();
    if state.memory.graphs.block(address).is_some() {
        // The stream's work before it may go on: nothing else is given these bytes but through a later launch.
        return state.free_graph_block(address);
    }
    let allocation = state.memory.remove(address, is_freed_by_address)?;
    drop(state);
    process
        .player
        .submit(place.lane, Work::Effect(GivenBack(allocation)), Vec::new())
        .map(drop)
}
