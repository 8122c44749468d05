//! Occupancy: how many blocks one multiprocessor holds, by threads, blocks and dynamic shared memory.

use std::ffi::{c_int, c_uint};

use crate::attributes::shared_per_sm;
use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::costs::blocks_per_sm;
use crate::gate::{Out, entries};
use crate::handle::Handle;

/// How much dynamic shared memory a block of so many threads needs; the program may pass none.
type SharedOfBlock = Option<extern "C" fn(c_int) -> usize>;

entries! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: Out<c_int>, function: Handle, threads: c_int, shared: usize,
    ) {
        blocks.put(active_blocks(function, threads, shared)?.0)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: Out<c_int>, function: Handle, threads: c_int, shared: usize, _flags: c_uint,
    ) {
        blocks.put(active_blocks(function, threads, shared)?.0)
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: Out<c_int>, block: Out<c_int>, function: Handle, shared_of: SharedOfBlock, shared: usize,
        limit: c_int,
    ) {
        best_block(grid, block, function, shared_of, shared, limit)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        grid: Out<c_int>, block: Out<c_int>, function: Handle, shared_of: SharedOfBlock, shared: usize,
        limit: c_int, _flags: c_uint,
    ) {
        best_block(grid, block, function, shared_of, shared, limit)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: Out<usize>, function: Handle, blocks: c_int, threads: c_int,
    ) {
        let (_, whole, _) = active_blocks(function, threads, 0)?;
        let blocks = usize::try_from(blocks).ok().filter(|&blocks| blocks > 0).ok_or(Code::INVALID_VALUE)?;
        bytes.put((whole / blocks).saturating_sub(RESERVED))
    }
}

/// Bytes of shared memory that the system keeps of each block.
const RESERVED: usize = 1 << 10;

/// Blocks on one multiprocessor, the bytes of shared memory it has, and the multiprocessors of the slice.
fn active_blocks(function: Handle, threads: c_int, shared: usize) -> Answer<(c_int, usize, u32)> {
    let (process, context) = current()?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|&threads| threads > 0)
        .ok_or(Code::INVALID_VALUE)?;
    let mut state = process.state();
    state.function(function, context)?;
    let (device, _) = current_device(&state, context)?;
    let info = &process.devices.get(device).ok_or(Code::INVALID_DEVICE)?.info;
    let whole = usize::try_from(shared_per_sm(info.compute)).unwrap_or(0);
    let by_shared = if shared == 0 {
        usize::MAX
    } else {
        whole / shared.saturating_add(RESERVED)
    };
    let by_threads = if threads > 1024 { 0 } else { blocks_per_sm(threads) };
    let blocks = u32::try_from(by_shared).unwrap_or(u32::MAX).min(by_threads);
    Ok((c_int::try_from(blocks).unwrap_or(0), whole, info.sms))
}

/// The largest block with the most threads on one multiprocessor, and the grid that fills the slice with it.
fn best_block(
    grid: Out<c_int>,
    block: Out<c_int>,
    function: Handle,
    shared_of: SharedOfBlock,
    shared: usize,
    limit: c_int,
) -> Answer {
    let limit = if limit <= 0 { 1024 } else { limit.min(1024) };
    let mut best = (0, 0, 0);
    for threads in (1..=limit)
        .rev()
        .filter(|threads| threads % 32 == 0 || *threads == limit)
    {
        let shared = shared_of.map_or(shared, |of| of(threads));
        let (blocks, _, sms) = active_blocks(function, threads, shared)?;
        if blocks * threads > best.0 {
            let sms = c_int::try_from(sms).unwrap_or(c_int::MAX);
            best = (blocks * threads, threads, blocks.saturating_mul(sms));
        }
    }
    block.put(best.1)?;
    grid.put(best.2)
}
