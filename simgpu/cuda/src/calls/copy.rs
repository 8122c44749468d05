//! Copies. They are checked against the live allocations and take their time on the bus or in device memory; device
//! memory has no contents, so what is copied out of it is zeros.

use std::ffi::c_uint;

use crate::abi::{Copy2d, Copy3d};
use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::gate::{Host, In, entries};
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::timeline::Work;
use crate::transfer::{End, Region, Transfer};

/// Whether the call returns before the copy is done.
#[derive(Clone, Copy)]
enum Ending {
    Waits,
    Later,
}
use Ending::{Later, Waits};

entries! {
    fn cuMemcpy(to: u64, from: u64, bytes: u64) { unified(to, from, bytes, 0, false, Waits) }
    fn cuMemcpy_ptds(to: u64, from: u64, bytes: u64) { unified(to, from, bytes, 0, true, Waits) }
    fn cuMemcpyAsync(to: u64, from: u64, bytes: u64, stream: Handle) {
        unified(to, from, bytes, stream, false, Later)
    }
    fn cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: u64, stream: Handle) {
        unified(to, from, bytes, stream, true, Later)
    }

    fn cuMemcpyHtoD(to: c_uint, from: Host, bytes: c_uint) {
        to_device(u64::from(to), from, u64::from(bytes), 0, false, Waits)
    }
    fn cuMemcpyHtoD_v2(to: u64, from: Host, bytes: u64) { to_device(to, from, bytes, 0, false, Waits) }
    fn cuMemcpyHtoD_v2_ptds(to: u64, from: Host, bytes: u64) { to_device(to, from, bytes, 0, true, Waits) }
    fn cuMemcpyHtoDAsync(to: c_uint, from: Host, bytes: c_uint, stream: Handle) {
        to_device(u64::from(to), from, u64::from(bytes), stream, false, Later)
    }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: Host, bytes: u64, stream: Handle) {
        to_device(to, from, bytes, stream, false, Later)
    }
    fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: Host, bytes: u64, stream: Handle) {
        to_device(to, from, bytes, stream, true, Later)
    }

    fn cuMemcpyDtoH(to: Host, from: c_uint, bytes: c_uint) {
        to_host(to, u64::from(from), u64::from(bytes), 0, false, Waits)
    }
    fn cuMemcpyDtoH_v2(to: Host, from: u64, bytes: u64) { to_host(to, from, bytes, 0, false, Waits) }
    fn cuMemcpyDtoH_v2_ptds(to: Host, from: u64, bytes: u64) { to_host(to, from, bytes, 0, true, Waits) }
    fn cuMemcpyDtoHAsync(to: Host, from: c_uint, bytes: c_uint, stream: Handle) {
        to_host(to, u64::from(from), u64::from(bytes), stream, false, Later)
    }
    fn cuMemcpyDtoHAsync_v2(to: Host, from: u64, bytes: u64, stream: Handle) {
        to_host(to, from, bytes, stream, false, Later)
    }
    fn cuMemcpyDtoHAsync_v2_ptsz(to: Host, from: u64, bytes: u64, stream: Handle) {
        to_host(to, from, bytes, stream, true, Later)
    }

    /// Within a device the call does not wait for the copy, as the driver documents.
    fn cuMemcpyDtoD(to: c_uint, from: c_uint, bytes: c_uint) {
        on_device(u64::from(to), u64::from(from), u64::from(bytes), 0, false)
    }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: u64) { on_device(to, from, bytes, 0, false) }
    fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: u64) { on_device(to, from, bytes, 0, true) }
    fn cuMemcpyDtoDAsync(to: c_uint, from: c_uint, bytes: c_uint, stream: Handle) {
        on_device(u64::from(to), u64::from(from), u64::from(bytes), stream, false)
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: u64, stream: Handle) {
        on_device(to, from, bytes, stream, false)
    }
    fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: u64, stream: Handle) {
        on_device(to, from, bytes, stream, true)
    }

    /// The contexts are not needed: an address says which device it is on.
    fn cuMemcpyPeer(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: u64) {
        on_device(to, from, bytes, 0, false)
    }
    fn cuMemcpyPeer_ptds(to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: u64) {
        on_device(to, from, bytes, 0, true)
    }
    fn cuMemcpyPeerAsync(
        to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: u64, stream: Handle,
    ) {
        on_device(to, from, bytes, stream, false)
    }
    fn cuMemcpyPeerAsync_ptsz(
        to: u64, _to_context: Handle, from: u64, _from_context: Handle, bytes: u64, stream: Handle,
    ) {
        on_device(to, from, bytes, stream, true)
    }

    fn cuMemcpy2D_v2(copy: In<Copy2d>) { plane(copy, 0, false, Waits) }
    fn cuMemcpy2D_v2_ptds(copy: In<Copy2d>) { plane(copy, 0, true, Waits) }
    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) { plane(copy, 0, false, Waits) }
    fn cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) { plane(copy, 0, true, Waits) }
    fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) { plane(copy, stream, false, Later) }
    fn cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, stream: Handle) { plane(copy, stream, true, Later) }
    fn cuMemcpy3D_v2(copy: In<Copy3d>) { volume(copy, 0, false, Waits) }
    fn cuMemcpy3D_v2_ptds(copy: In<Copy3d>) { volume(copy, 0, true, Waits) }
    fn cuMemcpy3DAsync_v2(copy: In<Copy3d>, stream: Handle) { volume(copy, stream, false, Later) }
    fn cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, stream: Handle) { volume(copy, stream, true, Later) }

    fn cuMemcpyHtoA_v2(array: Handle, offset: usize, from: Host, bytes: usize) {
        let to = Region::of_array(array, offset, bytes);
        run(to, Region::row(End::Host(from), bytes), 0, false, Waits)
    }
    fn cuMemcpyHtoA_v2_ptds(array: Handle, offset: usize, from: Host, bytes: usize) {
        let to = Region::of_array(array, offset, bytes);
        run(to, Region::row(End::Host(from), bytes), 0, true, Waits)
    }
    fn cuMemcpyHtoAAsync_v2(array: Handle, offset: usize, from: Host, bytes: usize, stream: Handle) {
        let to = Region::of_array(array, offset, bytes);
        run(to, Region::row(End::Host(from), bytes), stream, false, Later)
    }
    fn cuMemcpyHtoAAsync_v2_ptsz(array: Handle, offset: usize, from: Host, bytes: usize, stream: Handle) {
        let to = Region::of_array(array, offset, bytes);
        run(to, Region::row(End::Host(from), bytes), stream, true, Later)
    }
    fn cuMemcpyAtoH_v2(to: Host, array: Handle, offset: usize, bytes: usize) {
        let from = Region::of_array(array, offset, bytes);
        run(Region::row(End::Host(to), bytes), from, 0, false, Waits)
    }
    fn cuMemcpyAtoH_v2_ptds(to: Host, array: Handle, offset: usize, bytes: usize) {
        let from = Region::of_array(array, offset, bytes);
        run(Region::row(End::Host(to), bytes), from, 0, true, Waits)
    }
    fn cuMemcpyDtoA_v2(array: Handle, offset: usize, from: u64, bytes: usize) {
        let to = Region::of_array(array, offset, bytes);
        run(to, Region::row(End::Device(from), bytes), 0, false, Later)
    }
    fn cuMemcpyAtoD_v2(to: u64, array: Handle, offset: usize, bytes: usize) {
        let from = Region::of_array(array, offset, bytes);
        run(Region::row(End::Device(to), bytes), from, 0, false, Later)
    }
}

fn unified(to: u64, from: u64, bytes: u64, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let bytes = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    run(
        Region::row(End::Either(to), bytes),
        Region::row(End::Either(from), bytes),
        stream,
        per_thread,
        ending,
    )
}

fn to_device(to: u64, from: Host, bytes: u64, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let bytes = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    run(
        Region::row(End::Device(to), bytes),
        Region::row(End::Host(from), bytes),
        stream,
        per_thread,
        ending,
    )
}

fn to_host(to: Host, from: u64, bytes: u64, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let bytes = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    run(
        Region::row(End::Host(to), bytes),
        Region::row(End::Device(from), bytes),
        stream,
        per_thread,
        ending,
    )
}

fn on_device(to: u64, from: u64, bytes: u64, stream: Handle, per_thread: bool) -> Answer {
    let bytes = usize::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    run(
        Region::row(End::Device(to), bytes),
        Region::row(End::Device(from), bytes),
        stream,
        per_thread,
        Later,
    )
}

fn plane(copy: In<Copy2d>, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let copy = copy.get()?;
    let extent = [copy.width_bytes, copy.height, 1];
    let to = Region::of_2d(copy.destination, extent)?;
    let from = Region::of_2d(copy.source, extent)?;
    run(to, from, stream, per_thread, ending)
}

fn volume(copy: In<Copy3d>, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let copy = copy.get()?;
    let extent = [copy.width_bytes, copy.height, copy.depth];
    let to = Region::of_3d(copy.destination, extent)?;
    let from = Region::of_3d(copy.source, extent)?;
    run(to, from, stream, per_thread, ending)
}

fn run(to: Region, from: Region, stream: Handle, per_thread: bool, ending: Ending) -> Answer {
    let (process, _) = current()?;
    let place = process.capture_place(stream, per_thread)?;
    let transfer = Transfer::plan(&process.state(), to, from)?;
    if process
        .capture(place, |_| Ok(NodeWork::Copy(transfer)))?
        .is_some()
    {
        return Ok(());
    }
    if matches!(ending, Waits) {
        refuse_in_capture(process)?;
    }
    let work = transfer.work(process).unwrap_or(Work::Wait);
    let ticket = process.player.submit(place.lane, work, Vec::new())?;
    if matches!(ending, Waits) || transfer.is_on_host() {
        process.player.wait(&[ticket]);
    }
    transfer.move_bytes();
    Ok(())
}
