//! Events. Their times are simulated.

use std::ffi::c_uint;

use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::gate::{Out, entries};
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::process::Process;
use crate::state::Event;
use crate::timeline::{EventId, Work};

/// `CU_EVENT_DISABLE_TIMING`
const NO_TIMING: c_uint = 2;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`: in a capture a node of its own, to the outside.
pub(crate) const EXTERNAL: c_uint = 1;
/// `CU_EVENT_INTERPROCESS`
const INTERPROCESS: c_uint = 4;

entries! {
    fn cuEventCreate(event: Out<Handle>, flags: c_uint) {
        let (process, context) = current()?;
        let lonely_interprocess = flags & INTERPROCESS != 0 && flags & NO_TIMING == 0;
        if event.is_null() || flags > 7 || lonely_interprocess {
            return Err(Code::INVALID_VALUE);
        }
        let id = process.player.timeline().open_event();
        let mut state = process.state();
        let handle = state.handles.next();
        state.events.insert(handle, Event { context, id, flags });
        event.put(handle)
    }

    fn cuEventDestroy(event: Handle) { destroy(event) }
    fn cuEventDestroy_v2(event: Handle) { destroy(event) }
    fn cuEventRecord(event: Handle, stream: Handle) { record(event, stream, false, 0) }
    fn cuEventRecord_ptsz(event: Handle, stream: Handle) { record(event, stream, true, 0) }
    fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: c_uint) { record(event, stream, false, flags) }
    fn cuEventRecordWithFlags_ptsz(event: Handle, stream: Handle, flags: c_uint) {
        record(event, stream, true, flags)
    }

    fn cuEventQuery(event: Handle) {
        let (process, id, _) = find(event)?;
        process.state().captures.refuse_event(event)?;
        refuse_in_capture(process)?;
        let timeline = process.player.now();
        match timeline.recorded(id) {
            Some(ticket) if !timeline.is_done(ticket) => Err(Code::NOT_READY),
            _ => Ok(()),
        }
    }

    fn cuEventSynchronize(event: Handle) {
        let (process, id, _) = find(event)?;
        process.state().captures.refuse_event(event)?;
        refuse_in_capture(process)?;
        let recorded = process.player.timeline().recorded(id);
        process.player.wait(recorded.as_slice());
        let context = process.state().events.get(&event).map(|event| event.context);
        context.into_iter().for_each(|context| process.release_pools(context));
        Ok(())
    }

    fn cuEventElapsedTime(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.put(elapsed(start, end)?)
    }

    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, start: Handle, end: Handle) {
        milliseconds.put(elapsed(start, end)?)
    }
}

fn find(event: Handle) -> Answer<(&'static Process, EventId, c_uint)> {
    let process = Process::get()?;
    let state = process.state();
    let found = state.events.get(&event).ok_or(Code::INVALID_HANDLE)?;
    Ok((process, found.id, found.flags))
}

fn destroy(event: Handle) -> Answer {
    let process = Process::get()?;
    let found = process
        .state()
        .events
        .remove(&event)
        .ok_or(Code::INVALID_HANDLE)?;
    process.player.timeline().close_event(found.id);
    Ok(())
}

fn record(event: Handle, stream: Handle, per_thread: bool, flags: c_uint) -> Answer {
    let (process, id, _) = find(event)?;
    let place = process.capture_place(stream, per_thread)?;
    if flags > EXTERNAL {
        return Err(Code::INVALID_VALUE);
    }
    let is_of_context = |event: &Event| event.context == place.context;
    if !process.state().events.get(&event).is_some_and(is_of_context) {
        return Err(Code::INVALID_HANDLE);
    }
    if flags == EXTERNAL && process.capture(place, |_| Ok(NodeWork::Record(id)))?.is_some() {
        return Ok(());
    }
    let mut state = process.state();
    let capture = state.captures.enter(place)?;
    state.captures.record(event, capture.map(|id| (id, place.lane)));
    drop(state);
    if capture.is_some() {
        return Ok(());
    }
    process
        .player
        .submit(place.lane, Work::Stamp(id), Vec::new())
        .map(drop)
}

/// Simulated milliseconds from one to the other.
fn elapsed(start: Handle, end: Handle) -> Answer<f32> {
    let (process, start, start_flags) = find(start)?;
    let (_, end, end_flags) = find(end)?;
    if (start_flags | end_flags) & NO_TIMING != 0 {
        return Err(Code::INVALID_HANDLE);
    }
    let timeline = process.player.now();
    let recorded = |event| timeline.recorded(event).ok_or(Code::INVALID_HANDLE);
    recorded(start)?;
    recorded(end)?;
    let (start, end) = (
        timeline.stamp(start).ok_or(Code::NOT_READY)?,
        timeline.stamp(end).ok_or(Code::NOT_READY)?,
    );
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the driver API gives the time in single precision"
    )]
    let milliseconds = ((end - start) * 1e3) as f32;
    Ok(milliseconds)
}
