//! NVML's results.

use std::ffi::c_uint;

use simgpu::mig::Refusal;

/// What a call can fail with; the numbers are nvml.h's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Code {
    Uninitialized = 1,
    InvalidArgument = 2,
    NotSupported = 3,
    NoPermission = 4,
    NotFound = 6,
    InsufficientSize = 7,
    DriverNotLoaded = 9,
    Timeout = 10,
    ResetRequired = 16,
    InUse = 19,
    InsufficientResources = 23,
    ArgumentVersionMismatch = 25,
    Unknown = 999,
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::InvalidArgument => Self::InvalidArgument,
            Refusal::NotSupported => Self::NotSupported,
            Refusal::InUse => Self::InUse,
            Refusal::InsufficientResources => Self::InsufficientResources,
        }
    }
}

/// The result of a call as C gets it.
pub(crate) fn returned(answer: Result<(), Code>) -> c_uint {
    answer.map_or_else(|code| code as c_uint, |()| 0)
}

/// nvml.h's words for a result.
pub(crate) fn words(code: c_uint) -> &'static std::ffi::CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        16 => c"GPU requires reset",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        23 => c"Insufficient Resources",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}
