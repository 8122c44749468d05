//! Events that may mark an iteration: a program that waits for the device, or reads from it, has come to the end
//! of something. Which of them it is, the [clock](crate::clock) says.

use std::ffi::c_void;

use migm_shared::clock::Mark;

use super::hooks;
use crate::abi::{DevicePointer, Opaque, Status};
use crate::gate;
use crate::ledger::tick;

hooks! {
    /// Waits for the current context.
    fn cuCtxSynchronize = (c"cuCtxSynchronize", 2000, Legacy), () => |real|
        gate::after(real, || tick(Mark::ContextSync));

    /// Waits for a given context.
    fn cuCtxSynchronize_v2 = (c"cuCtxSynchronize", 13000, Legacy), (context: Opaque) => |real|
        gate::after(real, || tick(Mark::ContextSync));

    /// Waits for a stream.
    fn cuStreamSynchronize = (c"cuStreamSynchronize", 2000, Legacy), (stream: Opaque) => |real|
        gate::after(real, || tick(Mark::StreamSync));

    /// Waits for the per-thread default stream.
    fn cuStreamSynchronize_ptsz = (c"cuStreamSynchronize", 7000, PerThread), (stream: Opaque) => |real|
        gate::after(real, || tick(Mark::StreamSync));

    /// Waits for an event.
    fn cuEventSynchronize = (c"cuEventSynchronize", 2000, Legacy), (event: Opaque) => |real|
        gate::after(real, || tick(Mark::EventSync));

    /// Copies to the host and waits for that.
    fn cuMemcpyDtoH_v2 = (c"cuMemcpyDtoH", 3020, Legacy),
        (to: *mut c_void, from: DevicePointer, bytes: usize) => |real|
        gate::after(real, || tick(Mark::CopyToHost));

    /// The same in the order of the per-thread default stream.
    fn cuMemcpyDtoH_v2_ptds = (c"cuMemcpyDtoH", 7000, PerThread),
        (to: *mut c_void, from: DevicePointer, bytes: usize) => |real|
        gate::after(real, || tick(Mark::CopyToHost));

    /// Copies to the host in stream order.
    fn cuMemcpyDtoHAsync_v2 = (c"cuMemcpyDtoHAsync", 3020, Legacy),
        (to: *mut c_void, from: DevicePointer, bytes: usize, stream: Opaque) => |real|
        gate::after(real, || tick(Mark::CopyToHost));

    /// The same on the per-thread default stream.
    fn cuMemcpyDtoHAsync_v2_ptsz = (c"cuMemcpyDtoHAsync", 7000, PerThread),
        (to: *mut c_void, from: DevicePointer, bytes: usize, stream: Opaque) => |real|
        gate::after(real, || tick(Mark::CopyToHost));

    /// Launches a graph.
    fn cuGraphLaunch = (c"cuGraphLaunch", 10000, Legacy), (graph: Opaque, stream: Opaque) => |real|
        gate::after(real, || tick(Mark::GraphLaunch));

    /// The same on the per-thread default stream.
    fn cuGraphLaunch_ptsz = (c"cuGraphLaunch", 10000, PerThread), (graph: Opaque, stream: Opaque) => |real|
        gate::after(real, || tick(Mark::GraphLaunch));
}
