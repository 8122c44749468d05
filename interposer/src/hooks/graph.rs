//! Memory of graphs: not counted call by call, see [`crate::ledger::graph`].

use std::ffi::{c_int, c_void};

use super::{hooks, written};
use crate::abi::{Opaque, Ordinal, Status};
use crate::gate;
use crate::ledger::graph;

/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`, with which `CUgraphNodeParams` begins.
const ALLOCATION: c_int = 10;

fn add(real: impl FnOnce() -> Status, parameters: *const c_int) -> Status {
    gate::after(real, || {
        // SAFETY: the driver has read the parameters without complaint.
        if unsafe { written(parameters) } == Some(ALLOCATION) {
            graph::memory_made();
        }
    })
}

fn capture(real: impl FnOnce() -> Status) -> Status {
    gate::after(real, graph::capture_begun)
}

hooks! {
    /// An allocation node.
    fn cuGraphAddMemAllocNode = (c"cuGraphAddMemAllocNode", 11040, Legacy),
        (node: *mut Opaque, graph: Opaque, after: *const Opaque, count: usize, parameters: *mut c_void) => |real|
        gate::after(real, graph::memory_made);

    /// A node of any kind.
    fn cuGraphAddNode = (c"cuGraphAddNode", 12020, Legacy),
        (node: *mut Opaque, graph: Opaque, after: *const Opaque, count: usize, parameters: *mut c_int) => |real|
        add(real, parameters);

    /// A node of any kind, with the kinds of its edges.
    fn cuGraphAddNode_v2 = (c"cuGraphAddNode", 12030, Legacy),
        (node: *mut Opaque, graph: Opaque, after: *const Opaque, edges: *const c_void, count: usize,
            parameters: *mut c_int) => |real|
        add(real, parameters);

    /// Gives unused memory of graphs back.
    fn cuDeviceGraphMemTrim = (c"cuDeviceGraphMemTrim", 11040, Legacy), (device: Ordinal) => |real|
        gate::after(real, graph::refresh);

    /// Begins a capture.
    fn cuStreamBeginCapture = (c"cuStreamBeginCapture", 10000, Legacy), (stream: Opaque) => |real| capture(real);

    /// The same on the per-thread default stream.
    fn cuStreamBeginCapture_ptsz = (c"cuStreamBeginCapture", 10000, PerThread), (stream: Opaque) => |real|
        capture(real);

    /// Begins a capture in a mode.
    fn cuStreamBeginCapture_v2 = (c"cuStreamBeginCapture", 10010, Legacy), (stream: Opaque, mode: c_int) => |real|
        capture(real);

    /// The same on the per-thread default stream.
    fn cuStreamBeginCapture_v2_ptsz = (c"cuStreamBeginCapture", 10010, PerThread),
        (stream: Opaque, mode: c_int) => |real| capture(real);

    /// Begins a capture into a graph that is there.
    fn cuStreamBeginCaptureToGraph = (c"cuStreamBeginCaptureToGraph", 12030, Legacy),
        (stream: Opaque, graph: Opaque, after: *const Opaque, edges: *const c_void, count: usize, mode: c_int)
            => |real|
        capture(real);

    /// The same on the per-thread default stream.
    fn cuStreamBeginCaptureToGraph_ptsz = (c"cuStreamBeginCaptureToGraph", 12030, PerThread),
        (stream: Opaque, graph: Opaque, after: *const Opaque, edges: *const c_void, count: usize, mode: c_int)
            => |real|
        capture(real);
}
