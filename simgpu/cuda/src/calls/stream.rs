//! Streams.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::gate::{Out, entries};
use crate::handle::Handle;
use crate::process::Process;
use crate::state::Stream;
use crate::timeline::{Order, Work};

/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;
/// Priorities that a stream can have: numbers fall as they rise.
const GREATEST: c_int = -5;

/// The pairs of calls that differ in which default stream 0 means.
macro_rules! both {
    ($($plain:ident $per_thread:ident($($argument:ident: $kind:ty),*) => $call:ident;)*) => {entries! {$(
        fn $plain(stream: Handle $(, $argument: $kind)*) { $call(stream, false $(, $argument)*) }
        fn $per_thread(stream: Handle $(, $argument: $kind)*) { $call(stream, true $(, $argument)*) }
    )*}};
}

both! {
    cuStreamGetPriority cuStreamGetPriority_ptsz(priority: Out<c_int>) => get_priority;
    cuStreamGetFlags cuStreamGetFlags_ptsz(flags: Out<c_uint>) => get_flags;
    cuStreamGetId cuStreamGetId_ptsz(id: Out<u64>) => get_id;
    cuStreamGetCtx cuStreamGetCtx_ptsz(context: Out<Handle>) => get_context;
    cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz(context: Out<Handle>, green: Out<Handle>) => get_context_v2;
    cuStreamGetDevice cuStreamGetDevice_ptsz(device: Out<c_int>) => get_device;
    cuStreamQuery cuStreamQuery_ptsz() => query;
    cuStreamSynchronize cuStreamSynchronize_ptsz() => synchronize;
    cuStreamWaitEvent cuStreamWaitEvent_ptsz(event: Handle, flags: c_uint) => wait_event;
    cuStreamIsCapturing cuStreamIsCapturing_ptsz(status: Out<c_int>) => is_capturing;
    cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz(status: Out<c_int>, id: Out<u64>) => capture_info;
    cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz(
        status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<Handle>, count: Out<usize>
    ) => capture_info_v2;
    cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz(
        status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<Handle>, edges: Out<Handle>,
        count: Out<usize>
    ) => capture_info_v3;
    cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz(address: u64, bytes: usize, flags: c_uint) => attach_memory;
}

entries! {
    fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) { create(stream, flags, 0) }
    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }
    fn cuStreamDestroy(stream: Handle) { destroy(stream) }
    fn cuStreamDestroy_v2(stream: Handle) { destroy(stream) }

    /// No stream can be captured, so the mode of doing so is the one that it was.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) {
        Process::get()?;
        mode.put(0)
    }
}

fn create(stream: Out<Handle>, flags: c_uint, priority: c_int) -> Answer {
    let (process, context) = current()?;
    if stream.is_null() || flags & !NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (_, slice) = current_device(&process.state(), context)?;
    let order = if flags & NON_BLOCKING != 0 {
        Order::Free
    } else {
        Order::Blocking
    };
    let lane = process
        .player
        .timeline()
        .open_lane(Arc::clone(&slice), context, order);
    let mut state = process.state();
    let handle = state.handles.next();
    let priority = priority.clamp(GREATEST, 0);
    state.streams.insert(
        handle,
        Stream {
            context,
            lane,
            flags,
            priority,
        },
    );
    stream.put(handle)
}

/// Work that the stream has goes on.
fn destroy(stream: Handle) -> Answer {
    let process = Process::get()?;
    let found = process
        .state()
        .streams
        .remove(&stream)
        .ok_or(Code::INVALID_HANDLE)?;
    process.player.timeline().close_lane(found.lane);
    Ok(())
}

/// Flags and priority; default streams have the flags 0 and the least priority.
fn settings(stream: Handle, per_thread: bool) -> Answer<(c_uint, c_int)> {
    let process = Process::get()?;
    process.lane(stream, per_thread)?;
    let state = process.state();
    Ok(state
        .streams
        .get(&stream)
        .map_or((0, 0), |stream| (stream.flags, stream.priority)))
}

fn get_priority(stream: Handle, per_thread: bool, priority: Out<c_int>) -> Answer {
    priority.put(settings(stream, per_thread)?.1)
}

fn get_flags(stream: Handle, per_thread: bool, flags: Out<c_uint>) -> Answer {
    flags.put(settings(stream, per_thread)?.0)
}

fn get_id(stream: Handle, per_thread: bool, id: Out<u64>) -> Answer {
    settings(stream, per_thread)?;
    id.put(stream)
}

fn get_context(stream: Handle, per_thread: bool, context: Out<Handle>) -> Answer {
    let (_, found) = Process::get()?.lane(stream, per_thread)?;
    context.put(found)
}

fn get_context_v2(stream: Handle, per_thread: bool, context: Out<Handle>, green: Out<Handle>) -> Answer {
    green.put_if(0);
    get_context(stream, per_thread, context)
}

fn get_device(stream: Handle, per_thread: bool, device: Out<c_int>) -> Answer {
    let process = Process::get()?;
    let (_, context) = process.lane(stream, per_thread)?;
    let found = process.state().context(context)?.device;
    device.put(c_int::try_from(found).unwrap_or(c_int::MAX))
}

fn query(stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    if process.player.now().pending(lane) == 0 {
        Ok(())
    } else {
        Err(Code::NOT_READY)
    }
}

fn synchronize(stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    let last = process.player.timeline().last(lane);
    process.player.wait(last.as_slice());
    Ok(())
}

/// An event that was never recorded is waited for by nobody.
fn wait_event(stream: Handle, per_thread: bool, event: Handle, flags: c_uint) -> Answer {
    let process = Process::get()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let event = process.state().events.get(&event).ok_or(Code::INVALID_HANDLE)?.id;
    let recorded = process.player.timeline().recorded(event);
    match recorded {
        Some(ticket) => process.player.submit(lane, Work::Wait, vec![ticket]).map(drop),
        None => Ok(()),
    }
}

/// 0: `CU_STREAM_CAPTURE_STATUS_NONE`
fn is_capturing(stream: Handle, per_thread: bool, status: Out<c_int>) -> Answer {
    settings(stream, per_thread)?;
    status.put(0)
}

fn capture_info(stream: Handle, per_thread: bool, status: Out<c_int>, id: Out<u64>) -> Answer {
    id.put_if(0);
    is_capturing(stream, per_thread, status)
}

fn capture_info_v2(
    stream: Handle,
    per_thread: bool,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<Handle>,
    nodes: Out<Handle>,
    count: Out<usize>,
) -> Answer {
    graph.put_if(0);
    nodes.put_if(0);
    count.put_if(0);
    capture_info(stream, per_thread, status, id)
}

#[expect(clippy::too_many_arguments, reason = "the driver API has them")]
fn capture_info_v3(
    stream: Handle,
    per_thread: bool,
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<Handle>,
    nodes: Out<Handle>,
    edges: Out<Handle>,
    count: Out<usize>,
) -> Answer {
    edges.put_if(0);
    capture_info_v2(stream, per_thread, status, id, graph, nodes, count)
}

/// Managed memory belongs to all streams here whatever it is attached to.
fn attach_memory(stream: Handle, per_thread: bool, address: u64, _bytes: usize, flags: c_uint) -> Answer {
    let process = Process::get()?;
    process.lane(stream, per_thread)?;
    let known = process.state().memory.host.find(address).is_some();
    if known && matches!(flags, 1 | 2 | 4) {
        Ok(())
    } else {
        Err(Code::INVALID_VALUE)
    }
}
