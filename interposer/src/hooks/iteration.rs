//! Iteration marks: a program that waits for the device has come to the end of something.

use super::hooks;
use crate::abi::{Opaque, Status};
use crate::gate;
use crate::ledger;

hooks! {
    /// Waits for the current context.
    fn cuCtxSynchronize = (c"cuCtxSynchronize", 2000, Legacy), () => |real| gate::after(real, ledger::mark);

    /// Waits for a given context.
    fn cuCtxSynchronize_v2 = (c"cuCtxSynchronize", 13000, Legacy), (context: Opaque) => |real|
        gate::after(real, ledger::mark);

    /// Waits for a stream.
    fn cuStreamSynchronize = (c"cuStreamSynchronize", 2000, Legacy), (stream: Opaque) => |real|
        gate::after(real, ledger::mark);

    /// Waits for the per-thread default stream.
    fn cuStreamSynchronize_ptsz = (c"cuStreamSynchronize", 7000, PerThread), (stream: Opaque) => |real|
        gate::after(real, ledger::mark);
}
