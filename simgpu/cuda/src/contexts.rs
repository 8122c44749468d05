//! The life of a context, and which one is current in which thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::captures::Place;
use crate::code::{Answer, Code};
use crate::graphs::NodeWork;
use crate::handle::{Handle, STREAM_LEGACY, STREAM_PER_THREAD};
use crate::process::Process;
use crate::slice::Slice;
use crate::state::{Context, State};
use crate::timeline::{LaneId, Order};

/// `CU_STREAM_NON_BLOCKING`
pub(crate) const NON_BLOCKING: u32 = 1;

thread_local! {
    static STACK: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    static OWN_STREAMS: OwnStreams = const { OwnStreams(RefCell::new(BTreeMap::new())) };
}

/// The default streams of a thread of its own, by context. They end with the thread.
struct OwnStreams(RefCell<BTreeMap<Handle, LaneId>>);

impl Drop for OwnStreams {
    fn drop(&mut self) {
        if let Some(process) = Process::running() {
            let mut timeline = process.player.timeline();
            self.0
                .get_mut()
                .values()
                .for_each(|&lane| timeline.close_lane(lane));
        }
    }
}

/// The contexts of the calling thread, the current one last. A thread that is ending has none left.
pub(crate) fn with_stack<T>(with: impl FnOnce(&mut Vec<Handle>) -> T) -> Answer<T> {
    STACK
        .try_with(|stack| with(&mut stack.borrow_mut()))
        .map_err(|_| Code::DEINITIALIZED)
}

/// The current context's handle, or 0.
pub(crate) fn current_or_null() -> Handle {
    with_stack(|stack| stack.last().copied())
        .ok()
        .flatten()
        .unwrap_or(0)
}

/// The driver's state and the current context, which must be there and alive.
pub(crate) fn current() -> Answer<(&'static Process, Handle)> {
    let process = Process::get()?;
    match current_or_null() {
        0 => Err(Code::INVALID_CONTEXT),
        handle if process.state().contexts.contains_key(&handle) => Ok((process, handle)),
        _ => Err(Code::CONTEXT_IS_DESTROYED),
    }
}

/// The device that the current context is on, with its slice.
pub(crate) fn current_device(state: &State, context: Handle) -> Answer<(usize, Arc<Slice>)> {
    let context = state.context(context)?;
    Ok((context.device, Arc::clone(&context.slice)))
}

impl Process {
    /// Makes a context; the first of this process on the device takes the context's memory and time.
    /// A primary context is made again under the handle that it had.
    pub(crate) fn create_context(
        &'static self,
        device: usize,
        flags: u32,
        primary: Option<Handle>,
    ) -> Answer<Handle> {
        let (slice, first) = self.state().attach(self, device)?;
        if first {
            self.player.start_once();
            let wall = self.context_seconds * self.machine.time_scale();
            std::thread::sleep(Duration::try_from_secs_f64(wall).unwrap_or_default());
        }
        let handle = primary.unwrap_or_else(|| self.state().handles.next());
        let legacy = self
            .player
            .timeline()
            .open_lane(Arc::clone(&slice), handle, Order::Legacy);
        let context = Context {
            device,
            flags,
            primary: primary.is_some(),
            limits: BTreeMap::new(),
            cache_config: 0,
            shared_config: 0,
            legacy,
            sms: None,
            slice,
        };
        self.state().contexts.insert(handle, context);
        Ok(handle)
    }

    /// Waits for the context's work and takes it down with all that belongs to it.
    pub(crate) fn destroy_context(&self, handle: Handle) -> Answer {
        self.state().context(handle)?;
        let last = self.player.timeline().last_of_context(handle);
        self.player.wait(&last);
        let mut state = self.state();
        // Another thread may have been quicker.
        let context = state.contexts.remove(&handle).ok_or(Code::CONTEXT_IS_DESTROYED)?;
        state.unload_context(handle);
        for allocation in state.memory.remove_context(handle) {
            state.give_back(allocation);
        }
        for graph in state.captures.forget_context(handle) {
            state.drop_graph(graph)?;
        }
        state.forget_graphs(handle);
        state.memory.host.remove_context(handle);
        state.streams.retain(|_, stream| stream.context != handle);
        let events: Vec<_> = state
            .events
            .values()
            .filter(|event| event.context == handle)
            .map(|event| event.id)
            .collect();
        state.events.retain(|_, event| event.context != handle);
        drop(context.slice);
        drop(state);
        let mut timeline = self.player.timeline();
        timeline.close_context(handle);
        events.into_iter().for_each(|event| timeline.close_event(event));
        drop(timeline);
        self.state().detach_if_unused(context.device);
        Ok(())
    }

    /// What a stream handle is to a capture.
    pub(crate) fn capture_place(&self, stream: Handle, per_thread: bool) -> Answer<Place> {
        let (lane, context) = self.lane(stream, per_thread)?;
        let state = self.state();
        let flags = state.streams.get(&stream).map(|stream| stream.flags);
        Ok(Place {
            lane,
            context,
            is_blocking: flags.is_none_or(|flags| flags & NON_BLOCKING == 0),
            is_legacy: stream == STREAM_LEGACY || (stream == 0 && !per_thread),
        })
    }

    /// Makes a call on a stream a node, if the stream captures; answers the node.
    pub(crate) fn capture(
        &self,
        place: Place,
        work: impl FnOnce(&mut State) -> Answer<NodeWork>,
    ) -> Answer<Option<Handle>> {
        let mut state = self.state();
        if state.captures.are_none() {
            return Ok(None);
        }
        let Some(id) = state.captures.enter(place)? else {
            return Ok(None);
        };
        let work = work(&mut state)?;
        let node = state.handles.next();
        let State { captures, graphs, .. } = &mut *state;
        captures.add(id, place.lane, node, work, graphs)?;
        Ok(Some(node))
    }

    /// After a wait: pools give what they hold above their thresholds back.
    pub(crate) fn release_pools(&self, context: Handle) {
        let mut state = self.state();
        let Ok(device) = state.context(context).map(|context| context.device) else {
            return;
        };
        let released = state.pools.release(device, false);
        state.give_chunks(device, released);
    }

    /// The lane and the context of a stream handle, as seen from the current context. `per_thread` says which
    /// default stream 0 means.
    pub(crate) fn lane(&self, stream: Handle, per_thread: bool) -> Answer<(LaneId, Handle)> {
        let stream = match (stream, per_thread) {
            (0, true) => STREAM_PER_THREAD,
            (0, false) => STREAM_LEGACY,
            (stream, _) => stream,
        };
        if stream != STREAM_LEGACY && stream != STREAM_PER_THREAD {
            let state = self.state();
            let stream = state.streams.get(&stream).ok_or(Code::INVALID_HANDLE)?;
            return Ok((stream.lane, stream.context));
        }
        let (_, handle) = current()?;
        let state = self.state();
        let context = state.context(handle)?;
        if stream == STREAM_LEGACY {
            return Ok((context.legacy, handle));
        }
        let slice = Arc::clone(&context.slice);
        drop(state);
        let find = |streams: &OwnStreams| {
            let mut timeline = self.player.timeline();
            let known = streams
                .0
                .borrow()
                .get(&handle)
                .copied()
                .filter(|&lane| timeline.last(lane).is_some());
            // A primary context that was reset took the stream with it.
            known.unwrap_or_else(|| {
                let lane = timeline.open_lane(slice, handle, Order::Blocking);
                streams.0.borrow_mut().insert(handle, lane);
                lane
            })
        };
        let lane = OWN_STREAMS.try_with(find);
        Ok((lane.map_err(|_| Code::DEINITIALIZED)?, handle))
    }
}
