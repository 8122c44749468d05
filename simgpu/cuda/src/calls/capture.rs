//! Stream capture: begin, end, what is going on.

use std::ffi::c_int;

use crate::captures::exchange_mode;
use crate::code::{Answer, Code};
use crate::gate::{Out, entries};
use crate::graphs::Graph;
use crate::handle::Handle;
use crate::process::Process;
use crate::state::State;

entries! {
    /// The forms of CUDA 10.0, before captures had modes, and of 10.1.
    fn cuStreamBeginCapture(stream: Handle) { begin(stream, false, 0) }
    fn cuStreamBeginCapture_ptsz(stream: Handle) { begin(stream, true, 0) }
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_int) { begin(stream, false, mode) }
    fn cuStreamBeginCapture_v2_ptsz(stream: Handle, mode: c_int) { begin(stream, true, mode) }
    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) { end(stream, false, graph) }
    fn cuStreamEndCapture_ptsz(stream: Handle, graph: Out<Handle>) { end(stream, true, graph) }

    fn cuStreamIsCapturing(stream: Handle, status: Out<c_int>) { is_capturing(stream, false, status) }
    fn cuStreamIsCapturing_ptsz(stream: Handle, status: Out<c_int>) { is_capturing(stream, true, status) }

    fn cuStreamGetCaptureInfo(stream: Handle, status: Out<c_int>, id: Out<u64>) {
        Told { status, id, ..Told::NOTHING }.tell(stream, false)
    }
    fn cuStreamGetCaptureInfo_ptsz(stream: Handle, status: Out<c_int>, id: Out<u64>) {
        Told { status, id, ..Told::NOTHING }.tell(stream, true)
    }
    fn cuStreamGetCaptureInfo_v2(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        count: Out<usize>,
    ) {
        Told { status, id, graph, nodes, count, ..Told::NOTHING }.tell(stream, false)
    }
    fn cuStreamGetCaptureInfo_v2_ptsz(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        count: Out<usize>,
    ) {
        Told { status, id, graph, nodes, count, ..Told::NOTHING }.tell(stream, true)
    }
    fn cuStreamGetCaptureInfo_v3(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        edges: Out<u64>, count: Out<usize>,
    ) {
        Told { status, id, graph, nodes, edges, count }.tell(stream, false)
    }
    fn cuStreamGetCaptureInfo_v3_ptsz(
        stream: Handle, status: Out<c_int>, id: Out<u64>, graph: Out<Handle>, nodes: Out<*const Handle>,
        edges: Out<u64>, count: Out<usize>,
    ) {
        Told { status, id, graph, nodes, edges, count }.tell(stream, true)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<c_int>) {
        Process::get()?;
        let before = exchange_mode(mode.as_in().get()?)?;
        mode.put(before)
    }
}

fn begin(stream: Handle, per_thread: bool, mode: c_int) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    let mut state = process.state();
    let graph = state.handles.next();
    state.captures.begin(place, graph, mode)?;
    state.graphs.graphs.insert(graph, Graph::default());
    Ok(())
}

fn end(stream: Handle, per_thread: bool, graph: Out<Handle>) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    if graph.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let State { captures, graphs, .. } = &mut *state;
    let ended = captures.end(place.lane, graphs);
    graph.put(0)?;
    let (made, usable) = ended?;
    if usable.is_err() {
        state.drop_graph(made)?;
        return usable;
    }
    graph.put(made)
}

fn is_capturing(stream: Handle, per_thread: bool, status: Out<c_int>) -> Answer {
    let process = Process::get()?;
    let place = process.capture_place(stream, per_thread)?;
    let state = process.state();
    // Whether the legacy stream captures cannot be asked while a stream that it waits for does.
    if place.is_legacy && state.captures.blocks_legacy(place.context) {
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    status.put(state.captures.info(place.lane).map_or(0, |info| info.status))
}

/// Where the program wants to be told about a capture; each may be NULL but the status.
struct Told {
    status: Out<c_int>,
    id: Out<u64>,
    graph: Out<Handle>,
    /// An array of the driver's, good until the next call on the stream.
    nodes: Out<*const Handle>,
    edges: Out<u64>,
    count: Out<usize>,
}

impl Told {
    const NOTHING: Self = Self {
        status: Out::NULL,
        id: Out::NULL,
        graph: Out::NULL,
        nodes: Out::NULL,
        edges: Out::NULL,
        count: Out::NULL,
    };

    fn tell(self, stream: Handle, per_thread: bool) -> Answer {
        let process = Process::get()?;
        let place = process.capture_place(stream, per_thread)?;
        let state = process.state();
        if place.is_legacy && state.captures.blocks_legacy(place.context) {
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
        let Some(info) = state.captures.info(place.lane) else {
            return self.status.put(0);
        };
        self.status.put(info.status)?;
        self.id.put_if(info.id);
        self.graph.put_if(info.graph);
        self.nodes.put_if(info.tips.as_ptr());
        self.edges.put_if(0);
        self.count.put_if(info.tips.len());
        Ok(())
    }
}
