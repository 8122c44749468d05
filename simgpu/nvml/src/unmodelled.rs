//! Calls that this library knows but has no model for: they say so, instead of inventing a figure. With MIG on,
//! NVIDIA's library says the same of utilisation.

use std::ffi::c_uint;

use crate::code::Code;
use crate::library::answer;

/// Whatever the arguments: in C's calling conventions here the caller takes them away again.
macro_rules! not_supported {
    ($($name:ident)+) => {$(
        #[doc = concat!("`", stringify!($name), "` of nvml.h: not modelled.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> c_uint {
            answer(|_| Err(Code::NotSupported))
        }
    )+};
}

not_supported! {
    nvmlDeviceGetTemperature nvmlDeviceGetTemperatureV nvmlDeviceGetTemperatureThreshold
    nvmlDeviceGetUtilizationRates nvmlDeviceGetEncoderUtilization nvmlDeviceGetDecoderUtilization
    nvmlDeviceGetJpgUtilization nvmlDeviceGetOfaUtilization nvmlDeviceGetSamples
    nvmlDeviceGetProcessUtilization nvmlDeviceGetProcessesUtilizationInfo nvmlDeviceGetClockInfo nvmlDeviceGetClock
    nvmlDeviceGetFanSpeed nvmlDeviceGetFanSpeed_v2 nvmlDeviceGetNumFans nvmlDeviceGetPerformanceState
    nvmlDeviceGetPowerState nvmlDeviceGetPcieThroughput nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth
    nvmlDeviceGetEccMode nvmlDeviceGetTotalEccErrors nvmlDeviceGetMemoryErrorCounter nvmlDeviceGetRemappedRows
    nvmlDeviceGetRetiredPages nvmlDeviceGetRetiredPages_v2 nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetNumGpuCores
    nvmlDeviceGetSerial nvmlDeviceGetBoardId nvmlDeviceGetBoardPartNumber nvmlDeviceGetBrand nvmlDeviceGetVbiosVersion
    nvmlDeviceGetDisplayActive nvmlDeviceGetDisplayMode nvmlDeviceGetVirtualizationMode
    nvmlDeviceGetAccountingMode nvmlDeviceGetAccountingStats nvmlDeviceGetAccountingPids
    nvmlDeviceSetPersistenceMode nvmlDeviceSetComputeMode nvmlDeviceSetPowerManagementLimit
    nvmlDeviceSetAccountingMode nvmlDeviceGetNvLinkState nvmlDeviceGetP2PStatus
    nvmlDeviceGetTopologyCommonAncestor nvmlDeviceGetCpuAffinity nvmlDeviceGetMemoryAffinity
    nvmlDeviceGetRunningProcessDetailList nvmlDeviceGetHandleBySerial
    nvmlGpmQueryDeviceSupport nvmlGpmSampleGet nvmlGpmMigSampleGet nvmlGpmMetricsGet
}
