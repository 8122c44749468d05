//! NVML's results.

use std::ffi::c_uint;

use simgpu::mig::Refusal;

/// What a call can fail with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Code {
    Uninitialized,
    InvalidArgument,
    NotSupported,
    NoPermission,
    NotFound,
    InsufficientSize,
    DriverNotLoaded,
    Timeout,
    FunctionNotFound,
    GpuIsLost,
    ResetRequired,
    InUse,
    InsufficientResources,
    ArgumentVersionMismatch,
    Unknown,
    /// Any result, by its number: what a fault says.
    Injected(c_uint),
}

impl Code {
    /// nvml.h's number.
    const fn number(self) -> c_uint {
        match self {
            Self::Uninitialized => 1,
            Self::InvalidArgument => 2,
            Self::NotSupported => 3,
            Self::NoPermission => 4,
            Self::NotFound => 6,
            Self::InsufficientSize => 7,
            Self::DriverNotLoaded => 9,
            Self::Timeout => 10,
            Self::FunctionNotFound => 13,
            Self::GpuIsLost => 15,
            Self::ResetRequired => 16,
            Self::InUse => 19,
            Self::InsufficientResources => 23,
            Self::ArgumentVersionMismatch => 25,
            Self::Unknown => 999,
            Self::Injected(number) => number,
        }
    }
}

impl From<Refusal> for Code {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::InvalidArgument => Self::InvalidArgument,
            Refusal::NotSupported => Self::NotSupported,
            Refusal::InUse => Self::InUse,
            Refusal::InsufficientResources => Self::InsufficientResources,
            Refusal::Lost => Self::GpuIsLost,
            Refusal::Injected(number) => Self::Injected(number),
        }
    }
}

/// The result of a call as C gets it.
pub(crate) fn returned(answer: Result<(), Code>) -> c_uint {
    answer.map_or_else(Code::number, |()| 0)
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
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        19 => c"In use by another client",
        20 => c"Insufficient Memory",
        21 => c"No data",
        23 => c"Insufficient Resources",
        25 => c"Argument version mismatch",
        26 => c"Deprecated",
        27 => c"System is not ready for the request",
        28 => c"GPU not found",
        29 => c"Resource not in correct state to perform requested operation",
        _ => c"Unknown Error",
    }
}
