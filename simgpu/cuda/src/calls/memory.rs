//! Device memory: allocate, free, how much is left.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::gate::{Out, entries};
use crate::host_memory::{HostKind, HostRegion};
use crate::memory::Kind;
use crate::process::Process;

/// Rows of a pitched allocation start at multiples of this, bytes.
pub(crate) const PITCH: u64 = 512;

entries! {
    fn cuMemAlloc(address: Out<c_uint>, bytes: c_uint) {
        let found = allocate(u64::from(bytes), true, address.is_null())?;
        address.put(c_uint::try_from(found).map_err(|_| Code::OUT_OF_MEMORY)?)
    }

    fn cuMemAlloc_v2(address: Out<u64>, bytes: u64) {
        address.put(allocate(bytes, false, address.is_null())?)
    }

    fn cuMemAllocPitch(
        address: Out<c_uint>, pitch: Out<c_uint>, width: c_uint, height: c_uint, element: c_uint,
    ) {
        let row = pitch_of(u64::from(width), u64::from(height), element)?;
        let null = address.is_null() || pitch.is_null();
        let found = allocate(row * u64::from(height), true, null)?;
        pitch.put(c_uint::try_from(row).map_err(|_| Code::INVALID_VALUE)?)?;
        address.put(c_uint::try_from(found).map_err(|_| Code::OUT_OF_MEMORY)?)
    }

    fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<u64>, width: u64, height: u64, element: c_uint) {
        let row = pitch_of(width, height, element)?;
        let bytes = row.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        let found = allocate(bytes, false, address.is_null() || pitch.is_null())?;
        pitch.put(row)?;
        address.put(found)
    }

    /// Attached to all (1) or to the host (2) at first; either way it is host memory here.
    fn cuMemAllocManaged(address: Out<u64>, bytes: usize, flags: c_uint) {
        let (process, context) = current()?;
        refuse_in_capture(process)?;
        if address.is_null() || !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let device = state.context(context)?.device;
        let region = HostRegion { bytes, kind: HostKind::Managed, flags, context, device };
        let found = state.memory.host.allocate(region)?;
        address.put(found)
    }

    fn cuMemFree(address: c_uint) { free(u64::from(address)) }
    fn cuMemFree_v2(address: u64) { free(address) }

    fn cuMemGetInfo(free: Out<c_uint>, total: Out<c_uint>) {
        let narrow = |bytes| c_uint::try_from(bytes).unwrap_or(c_uint::MAX);
        let (free_bytes, total_bytes) = info(free.is_null() && total.is_null())?;
        free.put_if(narrow(free_bytes));
        total.put_if(narrow(total_bytes));
        Ok(())
    }

    /// Either pointer may be NULL: programs that want one number pass NULL for the other. Both NULL is refused, which is
    /// not tried on a real driver.
    fn cuMemGetInfo_v2(free: Out<u64>, total: Out<u64>) {
        let (free_bytes, total_bytes) = info(free.is_null() && total.is_null())?;
        free.put_if(free_bytes);
        total.put_if(total_bytes);
        Ok(())
    }

    fn cuMemGetAddressRange(base: Out<c_uint>, bytes: Out<c_uint>, address: c_uint) {
        let (start, length) = range(u64::from(address))?;
        base.put_if(c_uint::try_from(start).map_err(|_| Code::INVALID_VALUE)?);
        bytes.put_if(c_uint::try_from(length).map_err(|_| Code::INVALID_VALUE)?);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, bytes: Out<u64>, address: u64) {
        let (start, length) = range(address)?;
        base.put_if(start);
        bytes.put_if(length);
        Ok(())
    }

    /// Advice on managed memory is checked and changes nothing.
    fn cuMemAdvise(address: u64, bytes: u64, _advice: c_int, _device: c_int) { managed(address, bytes) }
    fn cuMemAdvise_v2(address: u64, bytes: u64, _advice: c_int, _location: u64) { managed(address, bytes) }
    fn cuMemPrefetchAsync(address: u64, bytes: u64, _device: c_int, stream: u64) {
        prefetch(address, bytes, stream, false)
    }
    fn cuMemPrefetchAsync_ptsz(address: u64, bytes: u64, _device: c_int, stream: u64) {
        prefetch(address, bytes, stream, true)
    }
    fn cuMemPrefetchAsync_v2(address: u64, bytes: u64, _location: u64, _flags: c_uint, stream: u64) {
        prefetch(address, bytes, stream, false)
    }
    fn cuMemPrefetchAsync_v2_ptsz(address: u64, bytes: u64, _location: u64, _flags: c_uint, stream: u64) {
        prefetch(address, bytes, stream, true)
    }
}

fn allocate(bytes: u64, narrow: bool, null: bool) -> Answer<u64> {
    let (process, context) = current()?;
    refuse_in_capture(process)?;
    if null {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let (device, slice) = current_device(&state, context)?;
    state
        .memory
        .allocate(&slice, (context, device), bytes, Kind::Plain, narrow)
}

/// Bytes from row to row: the width, rounded up.
fn pitch_of(width: u64, height: u64, element: c_uint) -> Answer<u64> {
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(Code::INVALID_VALUE);
    }
    width.checked_next_multiple_of(PITCH).ok_or(Code::INVALID_VALUE)
}

/// NULL is freed for nothing, as `cudaFree` documents; of the driver's own call it is not known. Work that may still use the memory is waited for.
fn free(address: u64) -> Answer {
    let (process, context) = current()?;
    if address == 0 {
        return Ok(());
    }
    refuse_in_capture(process)?;
    let mut state = process.state();
    if state
        .memory
        .host
        .find(address)
        .is_some_and(|(_, region)| region.kind == HostKind::Managed)
    {
        return state.memory.host.free(address, HostKind::Managed);
    }
    if state.memory.graphs.block(address).is_some() {
        drop(state);
        super::context::synchronize(process, context);
        return process.state().free_graph_block(address);
    }
    let allocation = state.memory.remove(address, is_freed_by_address)?;
    drop(state);
    super::context::synchronize(process, context);
    process.state().give_back(allocation);
    process.release_pools(allocation.context);
    Ok(())
}

/// Whether `cuMemFree` frees it.
pub(crate) fn is_freed_by_address(kind: Kind) -> bool {
    matches!(kind, Kind::Plain | Kind::Pooled(_) | Kind::External)
}

fn info(both_null: bool) -> Answer<(u64, u64)> {
    let (process, context) = current()?;
    if both_null {
        return Err(Code::INVALID_VALUE);
    }
    let slice = Arc::clone(&process.state().context(context)?.slice);
    let memory = slice.0.memory();
    Ok((memory.free, memory.total))
}

fn range(address: u64) -> Answer<(u64, u64)> {
    let process = Process::get()?;
    let state = process.state();
    if let Some((start, bytes, _)) = state.memory.range_of(address) {
        return Ok((start, bytes));
    }
    let (start, region) = state.memory.host.find(address).ok_or(Code::NOT_FOUND)?;
    Ok((start, region.bytes as u64))
}

fn managed(address: u64, bytes: u64) -> Answer {
    let (process, _) = current()?;
    let state = process.state();
    let (start, region) = state.memory.host.find(address).ok_or(Code::INVALID_VALUE)?;
    let fits = address
        .checked_add(bytes)
        .is_some_and(|end| end <= start + region.bytes as u64);
    if region.kind == HostKind::Managed && fits && bytes > 0 {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}

fn prefetch(address: u64, bytes: u64, stream: u64, per_thread: bool) -> Answer {
    managed(address, bytes)?;
    Process::get()?.lane(stream, per_thread).map(drop)
}
