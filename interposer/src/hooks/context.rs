//! Contexts: what lives in one goes with it, without a free. [`crate::ledger::contexts`] tells what that is.

use std::ffi::{c_int, c_uint, c_void};

use super::{hooks, written};
use crate::abi::{Opaque, Ordinal, Status};
use crate::gate;
use crate::ledger::contexts;

fn create(real: impl FnOnce() -> Status, context: *const Opaque) -> Status {
    // SAFETY: read after the driver has written it.
    gate::after(real, || unsafe { written(context) }.map(contexts::created))
}

fn destroy(real: impl FnOnce() -> Status, context: Opaque) -> Status {
    gate::around(|| contexts::destroy(context), real, drop, contexts::put_back)
}

fn reset(real: impl FnOnce() -> Status, device: Ordinal) -> Status {
    gate::around(|| contexts::reset_primary(device), real, drop, contexts::put_back)
}

fn release(real: impl FnOnce() -> Status, device: Ordinal) -> Status {
    gate::after(real, || contexts::released_primary(device))
}

hooks! {
    /// A context, with 32-bit addresses.
    fn cuCtxCreate = (c"cuCtxCreate", 2000, Legacy),
        (context: *mut Opaque, flags: c_uint, device: Ordinal) => |real| create(real, context);

    /// A context.
    fn cuCtxCreate_v2 = (c"cuCtxCreate", 3020, Legacy),
        (context: *mut Opaque, flags: c_uint, device: Ordinal) => |real| create(real, context);

    /// A context on some of the multiprocessors.
    fn cuCtxCreate_v3 = (c"cuCtxCreate", 11040, Legacy),
        (context: *mut Opaque, affinity: *mut c_void, count: c_int, flags: c_uint, device: Ordinal) => |real|
        create(real, context);

    /// A context with a structure of parameters.
    fn cuCtxCreate_v4 = (c"cuCtxCreate", 12050, Legacy),
        (context: *mut Opaque, parameters: *mut c_void, flags: c_uint, device: Ordinal) => |real|
        create(real, context);

    /// Ends a context that has 32-bit addresses.
    fn cuCtxDestroy = (c"cuCtxDestroy", 2000, Legacy), (context: Opaque) => |real| destroy(real, context);

    /// Ends a context.
    fn cuCtxDestroy_v2 = (c"cuCtxDestroy", 4000, Legacy), (context: Opaque) => |real| destroy(real, context);

    /// Gives one hold on the primary context back; the last one ends it.
    fn cuDevicePrimaryCtxRelease = (c"cuDevicePrimaryCtxRelease", 7000, Legacy), (device: Ordinal) => |real|
        release(real, device);

    /// The same since 11.0.
    fn cuDevicePrimaryCtxRelease_v2 = (c"cuDevicePrimaryCtxRelease", 11000, Legacy), (device: Ordinal) => |real|
        release(real, device);

    /// Ends the primary context, whoever holds it.
    fn cuDevicePrimaryCtxReset = (c"cuDevicePrimaryCtxReset", 7000, Legacy), (device: Ordinal) => |real|
        reset(real, device);

    /// The same since 11.0.
    fn cuDevicePrimaryCtxReset_v2 = (c"cuDevicePrimaryCtxReset", 11000, Legacy), (device: Ordinal) => |real|
        reset(real, device);

    /// A green context: some multiprocessors of the primary context, which it holds. Memory is the latter's.
    fn cuGreenCtxCreate = (c"cuGreenCtxCreate", 12040, Legacy),
        (context: *mut Opaque, resources: Opaque, device: Ordinal, flags: c_uint) => |real|
        // SAFETY: read after the driver has written it.
        gate::after(real, || unsafe { written(context) }.map(|context| contexts::green(context, device)));

    /// Ends a green context, and with it the primary one if nobody else holds it.
    fn cuGreenCtxDestroy = (c"cuGreenCtxDestroy", 12040, Legacy), (context: Opaque) => |real|
        gate::around(
            || contexts::take_green(context),
            real,
            contexts::released_primary,
            |device| contexts::green(context, device),
        );
}
