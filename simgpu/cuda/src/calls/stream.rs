//! Streams.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::code::{Answer, Code};
use crate::contexts::{NON_BLOCKING, current, current_device};
use crate::gate::{Out, entries};
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::process::Process;
use crate::state::Stream;
use crate::timeline::{Order, Work};

use super::event::EXTERNAL;

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
    cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz(address: u64, bytes: usize, flags: c_uint) => attach_memory;
}

entries! {
    fn cuStreamCreate(stream: Out<Handle>, flags: c_uint) { create(stream, flags, 0) }
    fn cuStreamCreateWithPriority(stream: Out<Handle>, flags: c_uint, priority: c_int) {
        create(stream, flags, priority)
    }
    fn cuStreamDestroy(stream: Handle) { destroy(stream) }
    fn cuStreamDestroy_v2(stream: Handle) { destroy(stream) }
}

fn create(stream: Out<Handle>, flags: c_uint, priority: c_int) -> Answer {
    let (process, context) = current()?;
    create_in(process, context, stream, flags, priority)
}

/// Makes a stream of a context.
pub(crate) fn create_in(
    process: &Process,
    context: Handle,
    stream: Out<Handle>,
    flags: c_uint,
    priority: c_int,
) -> Answer {
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
    let mut state = process.state();
    if let Some(graph) = state.captures.forget_lane(found.lane) {
        state.drop_graph(graph)?;
    }
    drop(state);
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
    let process = Process::get()?;
    let (_, found) = process.lane(stream, per_thread)?;
    let of = process.state().greens.of_context(found).unwrap_or(0);
    green.put_if(of);
    // A stream of a green context has no other.
    context.put_if(if of == 0 { found } else { 0 });
    Ok(())
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
    process.state().captures.refuse_lane(lane)?;
    if process.player.now().pending(lane) == 0 {
        Ok(())
    } else {
        Err(Code::NOT_READY)
    }
}

fn synchronize(stream: Handle, per_thread: bool) -> Answer {
    let process = Process::get()?;
    let (lane, context) = process.lane(stream, per_thread)?;
    process.state().captures.refuse_lane(lane)?;
    let last = process.player.timeline().last(lane);
    process.player.wait(last.as_slice());
    process.release_pools(context);
    Ok(())
}

/// An event that was never recorded is waited for by nobody.
fn wait_event(stream: Handle, per_thread: bool, event: Handle, flags: c_uint) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    if flags > EXTERNAL {
        return Err(Code::INVALID_VALUE);
    }
    let id = process.state().events.get(&event).ok_or(Code::INVALID_HANDLE)?.id;
    if flags == EXTERNAL && process.capture(place, |_| Ok(NodeWork::WaitFor(id)))?.is_some() {
        return Ok(());
    }
    if process.state().captures.wait(place, event)? {
        return Ok(());
    }
    let recorded = process.player.timeline().recorded(id);
    match recorded {
        Some(ticket) => process
            .player
            .submit(place.lane, Work::Wait, vec![ticket])
            .map(drop),
        None => Ok(()),
    }
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
