//! Stream-ordered allocation from the default pool.
//!
//! The slice is charged when the call comes. A free takes the address away at once and gives the bytes back when the
//! stream gets there, so that the work before it still has its memory. The pool keeps nothing.

use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::gate::{Out, entries};
use crate::handle::Handle;
use crate::memory::Kind;
use crate::process::Process;
use crate::slice::GivenBack;
use crate::timeline::Work;

entries! {
    fn cuMemAllocAsync(address: Out<u64>, bytes: u64, stream: Handle) { allocate(address, bytes, stream, false) }
    fn cuMemAllocAsync_ptsz(address: Out<u64>, bytes: u64, stream: Handle) {
        allocate(address, bytes, stream, true)
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, bytes: u64, pool: Handle, stream: Handle) {
        check_pool(pool)?;
        allocate(address, bytes, stream, false)
    }

    fn cuMemAllocFromPoolAsync_ptsz(address: Out<u64>, bytes: u64, pool: Handle, stream: Handle) {
        check_pool(pool)?;
        allocate(address, bytes, stream, true)
    }

    fn cuMemFreeAsync(address: u64, stream: Handle) { free(address, stream, false) }
    fn cuMemFreeAsync_ptsz(address: u64, stream: Handle) { free(address, stream, true) }

    /// Each device has one pool; its handle is the device's number plus one.
    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) {
        let (index, _) = Process::get()?.device(device)?;
        pool.put(index as Handle + 1)
    }

    fn cuDeviceGetMemPool(pool: Out<Handle>, device: i32) {
        let (index, _) = Process::get()?.device(device)?;
        pool.put(index as Handle + 1)
    }
}

/// The default pool of one of the devices; others cannot be made.
fn check_pool(pool: Handle) -> Answer {
    let index = pool
        .checked_sub(1)
        .and_then(|index| i32::try_from(index).ok())
        .ok_or(Code::INVALID_VALUE)?;
    Process::get()?
        .device(index)
        .map(drop)
        .map_err(|_| Code::INVALID_VALUE)
}

fn allocate(address: Out<u64>, bytes: u64, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let (_, context) = process.lane(stream, per_thread)?;
    if address.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let found = state.context(context)?;
    let (device, slice) = (found.device, Arc::clone(&found.slice));
    let found = state
        .memory
        .allocate(&slice, (context, device), bytes, Kind::Plain, false)?;
    address.put(found)
}

fn free(address: u64, stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    let allocation = process.state().memory.remove(address, Kind::Plain)?;
    let give = GivenBack {
        device: allocation.device,
        place: allocation.place,
    };
    process
        .player
        .submit(lane, Work::Effect(give), Vec::new())
        .map(drop)
}
