//! How much memory there is. The driver's answer is the program's, but where a soft cap is set.

use std::ffi::c_int;

use super::hooks;
use crate::abi::Status;
use crate::{cap, gate};

hooks! {
    /// Free and whole memory of the current device; either place may be null.
    fn cuMemGetInfo_v2 = (c"cuMemGetInfo", 3020, Legacy), (free: *mut usize, total: *mut usize) => |real|
        if cap::is_set() {
            // SAFETY: both places are the program's, looked at after the driver has written to them.
            gate::outermost(real, |real| unsafe { cap::show_memory(real, free, total) })
        } else {
            real()
        };

    /// Whole memory of a device.
    fn cuDeviceTotalMem_v2 = (c"cuDeviceTotalMem", 3020, Legacy), (bytes: *mut usize, device: c_int) => |real|
        if cap::is_set() {
            // SAFETY: the place is the program's, looked at after the driver has written to it.
            gate::outermost(real, |real| unsafe { cap::show_total(real, bytes, device) })
        } else {
            real()
        };
}
