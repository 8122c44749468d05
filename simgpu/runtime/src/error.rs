//! Result codes: the runtime's, which since CUDA 10.1 are the driver's own numbers, and the last error of
//! each thread.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int};

/// A failure: any `cudaError_t` but success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub c_int);

impl Code {
    pub const INVALID_VALUE: Self = Self(1);
    pub const INVALID_SYMBOL: Self = Self(13);
    pub const INVALID_CHANNEL: Self = Self(20);
    pub const INVALID_DIRECTION: Self = Self(21);
    pub const INSUFFICIENT_DRIVER: Self = Self(35);
    pub const CALL_REQUIRES_NEWER_DRIVER: Self = Self(36);
    pub const MISSING_CONFIGURATION: Self = Self(52);
    pub const INVALID_FUNCTION: Self = Self(98);
    pub const INVALID_HANDLE: Self = Self(400);
    pub const SYMBOL_NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
    pub const NOT_SUPPORTED: Self = Self(801);

    /// Whether the context is lost for good: reading such an error does not clear it.
    const fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719)
    }
}

thread_local! {
    // No destructor: it is read from `atexit` handlers too.
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// Turns a result into the code the caller sees, and remembers a failure for `cudaGetLastError`.
///
/// "Not ready" answers a question and is no failure.
pub(crate) fn answer(result: Result<(), Code>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(Code::NOT_READY) => Code::NOT_READY.0,
        Err(code) => {
            LAST.set(code.0);
            code.0
        }
    }
}

/// The runtime's result for a driver's code. The numbers are equal; one without a name here is unknown (999).
pub(crate) const fn from_driver(code: c_int) -> Result<(), Code> {
    match code {
        0 => Ok(()),
        known if describe(known).is_some() => Err(Code(known)),
        _ => Err(Code(999)),
    }
}

/// Forgets the thread's last error, a lost context's too: the context was replaced.
pub(crate) fn forget() {
    LAST.set(0);
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> c_int {
    let last = LAST.get();
    if !Code(last).is_sticky() {
        LAST.set(0);
    }
    last
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> c_int {
    LAST.get()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: c_int) -> *const c_char {
    describe(code)
        .map_or(c"unrecognized error code", |(name, _)| name)
        .as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: c_int) -> *const c_char {
    describe(code)
        .map_or(c"unrecognized error code", |(_, text)| text)
        .as_ptr()
}

/// The name of a code, and a short text in our own words.
const fn describe(code: c_int) -> Option<(&'static CStr, &'static CStr)> {
    let mut at = 0;
    while at < CODES.len() {
        if CODES[at].0 == code {
            return Some((CODES[at].1, CODES[at].2));
        }
        at += 1;
    }
    None
}

/// Code, name and text, by code.
const CODES: &[(c_int, &CStr, &CStr)] = &[
    (0, c"cudaSuccess", c"no error"),
    (1, c"cudaErrorInvalidValue", c"invalid argument"),
    (2, c"cudaErrorMemoryAllocation", c"out of memory"),
    (3, c"cudaErrorInitializationError", c"initialization error"),
    (4, c"cudaErrorCudartUnloading", c"driver shutting down"),
    (5, c"cudaErrorProfilerDisabled", c"profiler disabled"),
    (6, c"cudaErrorProfilerNotInitialized", c"profiler not initialized"),
    (7, c"cudaErrorProfilerAlreadyStarted", c"profiler already started"),
    (8, c"cudaErrorProfilerAlreadyStopped", c"profiler already stopped"),
    (
        9,
        c"cudaErrorInvalidConfiguration",
        c"invalid configuration argument",
    ),
    (12, c"cudaErrorInvalidPitchValue", c"invalid pitch"),
    (13, c"cudaErrorInvalidSymbol", c"invalid device symbol"),
    (16, c"cudaErrorInvalidHostPointer", c"invalid host pointer"),
    (17, c"cudaErrorInvalidDevicePointer", c"invalid device pointer"),
    (18, c"cudaErrorInvalidTexture", c"invalid texture"),
    (19, c"cudaErrorInvalidTextureBinding", c"invalid texture binding"),
    (
        20,
        c"cudaErrorInvalidChannelDescriptor",
        c"invalid channel descriptor",
    ),
    (21, c"cudaErrorInvalidMemcpyDirection", c"invalid copy direction"),
    (22, c"cudaErrorAddressOfConstant", c"address of constant"),
    (23, c"cudaErrorTextureFetchFailed", c"texture fetch failed"),
    (24, c"cudaErrorTextureNotBound", c"texture not bound"),
    (25, c"cudaErrorSynchronizationError", c"synchronization error"),
    (26, c"cudaErrorInvalidFilterSetting", c"invalid filter setting"),
    (27, c"cudaErrorInvalidNormSetting", c"invalid norm setting"),
    (28, c"cudaErrorMixedDeviceExecution", c"mixed device execution"),
    (31, c"cudaErrorNotYetImplemented", c"not yet implemented"),
    (32, c"cudaErrorMemoryValueTooLarge", c"memory value too large"),
    (34, c"cudaErrorStubLibrary", c"stub library"),
    (
        35,
        c"cudaErrorInsufficientDriver",
        c"the driver is too old for this runtime",
    ),
    (
        36,
        c"cudaErrorCallRequiresNewerDriver",
        c"the call needs a newer driver",
    ),
    (37, c"cudaErrorInvalidSurface", c"invalid surface"),
    (43, c"cudaErrorDuplicateVariableName", c"duplicate variable name"),
    (44, c"cudaErrorDuplicateTextureName", c"duplicate texture name"),
    (45, c"cudaErrorDuplicateSurfaceName", c"duplicate surface name"),
    (
        46,
        c"cudaErrorDevicesUnavailable",
        c"all devices are busy or unavailable",
    ),
    (
        49,
        c"cudaErrorIncompatibleDriverContext",
        c"incompatible driver context",
    ),
    (
        52,
        c"cudaErrorMissingConfiguration",
        c"launch without a configuration",
    ),
    (53, c"cudaErrorPriorLaunchFailure", c"prior launch failure"),
    (
        65,
        c"cudaErrorLaunchMaxDepthExceeded",
        c"launch max depth exceeded",
    ),
    (66, c"cudaErrorLaunchFileScopedTex", c"launch file scoped tex"),
    (67, c"cudaErrorLaunchFileScopedSurf", c"launch file scoped surf"),
    (68, c"cudaErrorSyncDepthExceeded", c"sync depth exceeded"),
    (
        69,
        c"cudaErrorLaunchPendingCountExceeded",
        c"launch pending count exceeded",
    ),
    (98, c"cudaErrorInvalidDeviceFunction", c"invalid device function"),
    (100, c"cudaErrorNoDevice", c"no CUDA-capable device"),
    (101, c"cudaErrorInvalidDevice", c"invalid device ordinal"),
    (102, c"cudaErrorDeviceNotLicensed", c"device not licensed"),
    (
        103,
        c"cudaErrorSoftwareValidityNotEstablished",
        c"software validity not established",
    ),
    (127, c"cudaErrorStartupFailure", c"startup failure"),
    (200, c"cudaErrorInvalidKernelImage", c"invalid kernel image"),
    (201, c"cudaErrorDeviceUninitialized", c"invalid device context"),
    (
        205,
        c"cudaErrorMapBufferObjectFailed",
        c"map buffer object failed",
    ),
    (
        206,
        c"cudaErrorUnmapBufferObjectFailed",
        c"unmap buffer object failed",
    ),
    (207, c"cudaErrorArrayIsMapped", c"array is mapped"),
    (208, c"cudaErrorAlreadyMapped", c"already mapped"),
    (
        209,
        c"cudaErrorNoKernelImageForDevice",
        c"no kernel image for this device",
    ),
    (210, c"cudaErrorAlreadyAcquired", c"already acquired"),
    (211, c"cudaErrorNotMapped", c"not mapped"),
    (212, c"cudaErrorNotMappedAsArray", c"not mapped as array"),
    (213, c"cudaErrorNotMappedAsPointer", c"not mapped as pointer"),
    (214, c"cudaErrorECCUncorrectable", c"uncorrectable ECC error"),
    (215, c"cudaErrorUnsupportedLimit", c"unsupported limit"),
    (216, c"cudaErrorDeviceAlreadyInUse", c"device already in use"),
    (217, c"cudaErrorPeerAccessUnsupported", c"peer access unsupported"),
    (218, c"cudaErrorInvalidPtx", c"PTX that does not compile"),
    (
        219,
        c"cudaErrorInvalidGraphicsContext",
        c"invalid graphics context",
    ),
    (220, c"cudaErrorNvlinkUncorrectable", c"nvlink uncorrectable"),
    (221, c"cudaErrorJitCompilerNotFound", c"jit compiler not found"),
    (
        222,
        c"cudaErrorUnsupportedPtxVersion",
        c"PTX version newer than the driver",
    ),
    (
        223,
        c"cudaErrorJitCompilationDisabled",
        c"jit compilation disabled",
    ),
    (
        224,
        c"cudaErrorUnsupportedExecAffinity",
        c"unsupported exec affinity",
    ),
    (
        225,
        c"cudaErrorUnsupportedDevSideSync",
        c"unsupported dev side sync",
    ),
    (226, c"cudaErrorContained", c"contained"),
    (300, c"cudaErrorInvalidSource", c"invalid source"),
    (301, c"cudaErrorFileNotFound", c"file not found"),
    (
        302,
        c"cudaErrorSharedObjectSymbolNotFound",
        c"shared object symbol not found",
    ),
    (
        303,
        c"cudaErrorSharedObjectInitFailed",
        c"shared object init failed",
    ),
    (
        304,
        c"cudaErrorOperatingSystem",
        c"the operating system refused a call",
    ),
    (400, c"cudaErrorInvalidResourceHandle", c"invalid resource handle"),
    (401, c"cudaErrorIllegalState", c"not possible in this state"),
    (402, c"cudaErrorLossyQuery", c"lossy query"),
    (500, c"cudaErrorSymbolNotFound", c"named symbol not found"),
    (600, c"cudaErrorNotReady", c"not ready"),
    (700, c"cudaErrorIllegalAddress", c"illegal memory access"),
    (
        701,
        c"cudaErrorLaunchOutOfResources",
        c"launch needs more resources than there are",
    ),
    (702, c"cudaErrorLaunchTimeout", c"launch timed out"),
    (
        703,
        c"cudaErrorLaunchIncompatibleTexturing",
        c"launch incompatible texturing",
    ),
    (
        704,
        c"cudaErrorPeerAccessAlreadyEnabled",
        c"peer access already enabled",
    ),
    (705, c"cudaErrorPeerAccessNotEnabled", c"peer access not enabled"),
    (708, c"cudaErrorSetOnActiveProcess", c"set on active process"),
    (709, c"cudaErrorContextIsDestroyed", c"context is destroyed"),
    (710, c"cudaErrorAssert", c"assert"),
    (711, c"cudaErrorTooManyPeers", c"too many peers"),
    (
        712,
        c"cudaErrorHostMemoryAlreadyRegistered",
        c"host memory already registered",
    ),
    (
        713,
        c"cudaErrorHostMemoryNotRegistered",
        c"host memory not registered",
    ),
    (714, c"cudaErrorHardwareStackError", c"hardware stack error"),
    (715, c"cudaErrorIllegalInstruction", c"illegal instruction"),
    (716, c"cudaErrorMisalignedAddress", c"misaligned address"),
    (717, c"cudaErrorInvalidAddressSpace", c"invalid address space"),
    (718, c"cudaErrorInvalidPc", c"invalid pc"),
    (719, c"cudaErrorLaunchFailure", c"launch failed"),
    (
        720,
        c"cudaErrorCooperativeLaunchTooLarge",
        c"cooperative launch too large",
    ),
    (721, c"cudaErrorTensorMemoryLeak", c"tensor memory leak"),
    (800, c"cudaErrorNotPermitted", c"not permitted"),
    (801, c"cudaErrorNotSupported", c"not supported"),
    (802, c"cudaErrorSystemNotReady", c"system not ready"),
    (803, c"cudaErrorSystemDriverMismatch", c"system driver mismatch"),
    (
        804,
        c"cudaErrorCompatNotSupportedOnDevice",
        c"compat not supported on device",
    ),
    (805, c"cudaErrorMpsConnectionFailed", c"mps connection failed"),
    (806, c"cudaErrorMpsRpcFailure", c"mps rpc failure"),
    (807, c"cudaErrorMpsServerNotReady", c"mps server not ready"),
    (808, c"cudaErrorMpsMaxClientsReached", c"mps max clients reached"),
    (
        809,
        c"cudaErrorMpsMaxConnectionsReached",
        c"mps max connections reached",
    ),
    (810, c"cudaErrorMpsClientTerminated", c"mps client terminated"),
    (811, c"cudaErrorCdpNotSupported", c"cdp not supported"),
    (812, c"cudaErrorCdpVersionMismatch", c"cdp version mismatch"),
    (
        900,
        c"cudaErrorStreamCaptureUnsupported",
        c"stream capture unsupported",
    ),
    (
        901,
        c"cudaErrorStreamCaptureInvalidated",
        c"stream capture invalidated",
    ),
    (902, c"cudaErrorStreamCaptureMerge", c"stream capture merge"),
    (
        903,
        c"cudaErrorStreamCaptureUnmatched",
        c"stream capture unmatched",
    ),
    (904, c"cudaErrorStreamCaptureUnjoined", c"stream capture unjoined"),
    (
        905,
        c"cudaErrorStreamCaptureIsolation",
        c"stream capture isolation",
    ),
    (906, c"cudaErrorStreamCaptureImplicit", c"stream capture implicit"),
    (907, c"cudaErrorCapturedEvent", c"captured event"),
    (
        908,
        c"cudaErrorStreamCaptureWrongThread",
        c"stream capture wrong thread",
    ),
    (909, c"cudaErrorTimeout", c"timeout"),
    (
        910,
        c"cudaErrorGraphExecUpdateFailure",
        c"graph exec update failure",
    ),
    (911, c"cudaErrorExternalDevice", c"external device"),
    (912, c"cudaErrorInvalidClusterSize", c"invalid cluster size"),
    (913, c"cudaErrorFunctionNotLoaded", c"function not loaded"),
    (914, c"cudaErrorInvalidResourceType", c"invalid resource type"),
    (
        915,
        c"cudaErrorInvalidResourceConfiguration",
        c"invalid resource configuration",
    ),
    (999, c"cudaErrorUnknown", c"unknown error"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_listed_once_and_in_order() {
        assert!(CODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn a_failure_is_remembered_until_it_is_read() {
        assert_eq!(answer(from_driver(2)), 2);
        assert_eq!(answer(Ok(())), 0);
        assert_eq!(cudaPeekAtLastError(), 2);
        assert_eq!(cudaGetLastError(), 2);
        assert_eq!(cudaGetLastError(), 0);
    }

    #[test]
    fn a_lost_context_stays_the_last_error() {
        assert_eq!(answer(from_driver(700)), 700);
        assert_eq!(cudaGetLastError(), 700);
        assert_eq!(cudaGetLastError(), 700);
        forget();
        assert_eq!(cudaGetLastError(), 0);
    }

    #[test]
    fn not_ready_is_no_failure() {
        assert_eq!(answer(from_driver(600)), 600);
        assert_eq!(cudaGetLastError(), 0);
    }

    #[test]
    fn a_code_the_runtime_lacks_is_unknown() {
        assert_eq!(from_driver(12_345), Err(Code(999)));
    }
}
