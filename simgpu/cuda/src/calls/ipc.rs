//! Memory of `cuMemAlloc` between processes, by a handle of 64 bytes.
//!
//! What is shared is what was charged for the allocation: for a small one its whole block of 2 MiB, as the driver
//! documents. The exporter pays while it lives. A process cannot open its own export, nor one whose exporter has freed
//! it or has ended. What was opened stays until it is closed; the driver leaves open what becomes of it when the
//! exporter frees first.

use std::ffi::c_uint;

use simgpu::segment::SegmentId;

use crate::abi::IpcHandle;
use crate::blocks::{BLOCK, Place};
use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::gate::{Out, entries};
use crate::memory::{Allocation, Kind};

/// The first word of a handle of ours; then the segment, the exporter's pid, and where in the segment it starts.
const MAGIC: u64 = u64::from_le_bytes(*b"SIMGIPC1");
/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`: the only flag, and one that must be given.
const LAZY_PEER_ACCESS: c_uint = 1;

entries! {
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, address: u64) {
        let (process, _) = current()?;
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let allocation = *state.memory.starting_at(address).ok_or(Code::INVALID_VALUE)?;
        if allocation.kind != Kind::Plain {
            return Err(Code::INVALID_VALUE);
        }
        let (unit, bytes) = allocation.place.unit();
        let id = state.export(allocation.device, unit, bytes)?;
        let exporter = u64::from(std::process::id());
        handle.put(IpcHandle([MAGIC, id.0, exporter, address - unit, 0, 0, 0, 0]))
    }

    fn cuIpcOpenMemHandle(address: Out<u64>, handle: IpcHandle, flags: c_uint) { open(address, handle, flags) }
    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: IpcHandle, flags: c_uint) { open(address, handle, flags) }

    /// What was opened several times is closed as often. Work that may still use it is waited for.
    fn cuIpcCloseMemHandle(address: u64) {
        let (process, context) = current()?;
        let mut state = process.state();
        let start = state.memory.find(address).map(|(start, _)| start).ok_or(Code::INVALID_VALUE)?;
        let allocation = state.memory.starting_at(start).ok_or(Code::INVALID_VALUE)?;
        match &mut allocation.kind {
            Kind::Opened(_, times) if *times > 1 => {
                *times -= 1;
                return Ok(());
            }
            Kind::Opened(..) => {}
            _ => return Err(Code::INVALID_VALUE),
        }
        let allocation = state.memory.remove(start, |kind| matches!(kind, Kind::Opened(..)))?;
        drop(state);
        super::context::synchronize(process, context);
        process.state().give_back(allocation);
        Ok(())
    }
}

/// A second opening of the same memory answers the same address.
fn open(address: Out<u64>, handle: IpcHandle, flags: c_uint) -> Answer {
    let (process, context) = current()?;
    let IpcHandle([magic, id, exporter, offset, ..]) = handle;
    if address.is_null() || flags != LAZY_PEER_ACCESS || magic != MAGIC {
        return Err(Code::INVALID_VALUE);
    }
    let exporter = u32::try_from(exporter).map_err(|_| Code::INVALID_VALUE)?;
    if exporter == std::process::id() {
        return Err(Code::INVALID_CONTEXT);
    }
    let id = SegmentId(id);
    let mut state = process.state();
    let (device, slice) = current_device(&state, context)?;
    if let Some(known) = state.memory.opened(id, context) {
        if let Kind::Opened(_, times) = &mut known.kind {
            *times += 1;
        }
        return address.put(known.place.address + offset);
    }
    if !slice.0.is_held_by(id, exporter) {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = state.use_segment(device, id)?;
    let Some(start) = state.memory.reserve(bytes, BLOCK, 0) else {
        state.leave_segment(id);
        return Err(Code::OUT_OF_MEMORY);
    };
    state.memory.insert(Allocation {
        bytes,
        place: Place::elsewhere(start, bytes),
        context,
        device,
        kind: Kind::Opened(id, 1),
    });
    address.put(start + offset)
}
