//! The table of entry points: every name of cuda.h 13.0 and of its companions, with the version that introduced it.
//!
//! It is the only list: exports, addresses and what is not modelled come from it. A row is a base name and, for each
//! of its ABIs, the CUDA version and the exported name; `_ptsz` and `_ptds` at the end mean that stream 0 is the
//! calling thread's own. The versions are those of the function pointer types in cudaTypedefs.h.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::calls::array::*;
use crate::calls::capture::*;
use crate::calls::context::*;
use crate::calls::copy::*;
use crate::calls::device::*;
use crate::calls::event::*;
use crate::calls::external::*;
use crate::calls::fill::*;
use crate::calls::graph::*;
use crate::calls::graph_launch::*;
use crate::calls::green::*;
use crate::calls::host::*;
use crate::calls::ipc::*;
use crate::calls::launch::*;
use crate::calls::library::*;
use crate::calls::memory::*;
use crate::calls::module::*;
use crate::calls::occupancy::*;
use crate::calls::pointer::*;
use crate::calls::pool::*;
use crate::calls::primary::*;
use crate::calls::proc_address::*;
use crate::calls::stream::*;
use crate::calls::stream_memory::*;
use crate::calls::texture::*;
use crate::calls::virtual_memory::*;
use crate::code::Code;
use crate::gate::say;

/// An exported function.
pub(crate) struct Entry {
    /// The name that `cuGetProcAddress` is asked for.
    pub(crate) base: &'static str,
    /// The CUDA version that introduced this ABI.
    pub(crate) version: i32,
    /// The exported name.
    pub(crate) name: &'static str,
    address: Address,
}

struct Address(*const c_void);

// SAFETY: the address of a function; nothing is ever written or read through it.
unsafe impl Sync for Address {}

/// What `cuGetProcAddress` finds.
#[derive(Debug, PartialEq)]
pub(crate) enum Found {
    At(*const c_void),
    /// The name is there, but only for programs of a later version.
    Newer,
    Nowhere,
}

/// The newest ABI of a base name that a program of this `version` can call on a driver of version `driver`.
pub(crate) fn find(base: &str, version: i32, driver: i32, per_thread: bool) -> Found {
    let known = || {
        ENTRIES
            .iter()
            .filter(|entry| entry.base == base && entry.version <= driver)
    };
    let is_per_thread = |entry: &Entry| entry.name.ends_with("_ptsz") || entry.name.ends_with("_ptds");
    let newest = |wanted: bool| {
        let fits = known().filter(|entry| entry.version <= version && is_per_thread(entry) == wanted);
        fits.max_by_key(|entry| entry.version)
    };
    // A call that has nothing to do with streams has one form only.
    let found = if per_thread {
        newest(true).or_else(|| newest(false))
    } else {
        newest(false)
    };
    match found {
        Some(entry) => Found::At(entry.address.0),
        None if known().next().is_some() => Found::Newer,
        None => Found::Nowhere,
    }
}

/// Answers for an entry point that is not modelled; says so once for each name.
fn not_modelled(name: &str, said: &AtomicBool) -> c_int {
    if !said.swap(true, Ordering::Relaxed) {
        say(format_args!("{name} is not modelled"));
    }
    Code::NOT_SUPPORTED.0
}

macro_rules! table {
    (
        modelled { $($base:ident: $($version:literal $name:ident),+;)* }
        absent { $($absent_base:ident: $($absent_version:literal $absent_name:ident),+;)* }
    ) => {
        $($(
            // Called with arguments that it does not take: the C calling convention leaves them to the caller.
            #[unsafe(no_mangle)]
            pub(crate) extern "C" fn $absent_name() -> c_int {
                static SAID: AtomicBool = AtomicBool::new(false);
                not_modelled(stringify!($absent_name), &SAID)
            }
        )+)*

        /// All of them.
        pub(crate) static ENTRIES: &[Entry] = &[
            $($(Entry {
                base: stringify!($base),
                version: $version,
                name: stringify!($name),
                address: Address($name as *const c_void),
            },)+)*
            $($(Entry {
                base: stringify!($absent_base),
                version: $absent_version,
                name: stringify!($absent_name),
                address: Address($absent_name as *const c_void),
            },)+)*
        ];
    };
}

table! {
    modelled {
        cuArray3DCreate: 2000 cuArray3DCreate, 3020 cuArray3DCreate_v2;
        cuArray3DGetDescriptor: 2000 cuArray3DGetDescriptor, 3020 cuArray3DGetDescriptor_v2;
        cuArrayCreate: 2000 cuArrayCreate, 3020 cuArrayCreate_v2;
        cuArrayDestroy: 2000 cuArrayDestroy;
        cuArrayGetDescriptor: 2000 cuArrayGetDescriptor, 3020 cuArrayGetDescriptor_v2;
        cuArrayGetMemoryRequirements: 11060 cuArrayGetMemoryRequirements;
        cuCtxAttach: 2000 cuCtxAttach;
        cuCtxCreate: 2000 cuCtxCreate, 3020 cuCtxCreate_v2, 11040 cuCtxCreate_v3, 12050 cuCtxCreate_v4;
        cuCtxDestroy: 2000 cuCtxDestroy, 4000 cuCtxDestroy_v2;
        cuCtxDetach: 2000 cuCtxDetach;
        cuCtxDisablePeerAccess: 4000 cuCtxDisablePeerAccess;
        cuCtxEnablePeerAccess: 4000 cuCtxEnablePeerAccess;
        cuCtxFromGreenCtx: 12040 cuCtxFromGreenCtx;
        cuCtxGetApiVersion: 3020 cuCtxGetApiVersion;
        cuCtxGetCacheConfig: 3020 cuCtxGetCacheConfig;
        cuCtxGetCurrent: 4000 cuCtxGetCurrent;
        cuCtxGetDevResource: 12040 cuCtxGetDevResource;
        cuCtxGetDevice: 2000 cuCtxGetDevice, 13000 cuCtxGetDevice_v2;
        cuCtxGetFlags: 7000 cuCtxGetFlags;
        cuCtxGetId: 12000 cuCtxGetId;
        cuCtxGetLimit: 3010 cuCtxGetLimit;
        cuCtxGetSharedMemConfig: 4020 cuCtxGetSharedMemConfig;
        cuCtxGetStreamPriorityRange: 5050 cuCtxGetStreamPriorityRange;
        cuCtxPopCurrent: 2000 cuCtxPopCurrent, 4000 cuCtxPopCurrent_v2;
        cuCtxPushCurrent: 2000 cuCtxPushCurrent, 4000 cuCtxPushCurrent_v2;
        cuCtxRecordEvent: 12050 cuCtxRecordEvent;
        cuCtxResetPersistingL2Cache: 11000 cuCtxResetPersistingL2Cache;
        cuCtxSetCacheConfig: 3020 cuCtxSetCacheConfig;
        cuCtxSetCurrent: 4000 cuCtxSetCurrent;
        cuCtxSetFlags: 12010 cuCtxSetFlags;
        cuCtxSetLimit: 3010 cuCtxSetLimit;
        cuCtxSetSharedMemConfig: 4020 cuCtxSetSharedMemConfig;
        cuCtxSynchronize: 2000 cuCtxSynchronize, 13000 cuCtxSynchronize_v2;
        cuCtxWaitEvent: 12050 cuCtxWaitEvent;
        cuDestroyExternalMemory: 10000 cuDestroyExternalMemory;
        cuDevResourceGenerateDesc: 12040 cuDevResourceGenerateDesc;
        cuDevSmResourceSplitByCount: 12040 cuDevSmResourceSplitByCount;
        cuDeviceCanAccessPeer: 4000 cuDeviceCanAccessPeer;
        cuDeviceComputeCapability: 2000 cuDeviceComputeCapability;
        cuDeviceGet: 2000 cuDeviceGet;
        cuDeviceGetAttribute: 2000 cuDeviceGetAttribute;
        cuDeviceGetByPCIBusId: 4010 cuDeviceGetByPCIBusId;
        cuDeviceGetCount: 2000 cuDeviceGetCount;
        cuDeviceGetDefaultMemPool: 11020 cuDeviceGetDefaultMemPool;
        cuDeviceGetDevResource: 12040 cuDeviceGetDevResource;
        cuDeviceGetGraphMemAttribute: 11040 cuDeviceGetGraphMemAttribute;
        cuDeviceGetMemPool: 11020 cuDeviceGetMemPool;
        cuDeviceGetName: 2000 cuDeviceGetName;
        cuDeviceGetP2PAttribute: 8000 cuDeviceGetP2PAttribute;
        cuDeviceGetPCIBusId: 4010 cuDeviceGetPCIBusId;
        cuDeviceGetProperties: 2000 cuDeviceGetProperties;
        cuDeviceGetUuid: 9020 cuDeviceGetUuid, 11040 cuDeviceGetUuid_v2;
        cuDeviceGraphMemTrim: 11040 cuDeviceGraphMemTrim;
        cuDevicePrimaryCtxGetState: 7000 cuDevicePrimaryCtxGetState;
        cuDevicePrimaryCtxRelease: 7000 cuDevicePrimaryCtxRelease, 11000 cuDevicePrimaryCtxRelease_v2;
        cuDevicePrimaryCtxReset: 7000 cuDevicePrimaryCtxReset, 11000 cuDevicePrimaryCtxReset_v2;
        cuDevicePrimaryCtxRetain: 7000 cuDevicePrimaryCtxRetain;
        cuDevicePrimaryCtxSetFlags: 7000 cuDevicePrimaryCtxSetFlags, 11000 cuDevicePrimaryCtxSetFlags_v2;
        cuDeviceSetGraphMemAttribute: 11040 cuDeviceSetGraphMemAttribute;
        cuDeviceSetMemPool: 11020 cuDeviceSetMemPool;
        cuDeviceTotalMem: 2000 cuDeviceTotalMem, 3020 cuDeviceTotalMem_v2;
        cuDriverGetVersion: 2020 cuDriverGetVersion;
        cuEventCreate: 2000 cuEventCreate;
        cuEventDestroy: 2000 cuEventDestroy, 4000 cuEventDestroy_v2;
        cuEventElapsedTime: 2000 cuEventElapsedTime, 12080 cuEventElapsedTime_v2;
        cuEventQuery: 2000 cuEventQuery;
        cuEventRecord: 2000 cuEventRecord, 7000 cuEventRecord_ptsz;
        cuEventRecordWithFlags: 11010 cuEventRecordWithFlags, 11010 cuEventRecordWithFlags_ptsz;
        cuEventSynchronize: 2000 cuEventSynchronize;
        cuExternalMemoryGetMappedBuffer: 10000 cuExternalMemoryGetMappedBuffer;
        cuFuncGetAttribute: 2020 cuFuncGetAttribute;
        cuFuncGetModule: 11000 cuFuncGetModule;
        cuFuncGetName: 12030 cuFuncGetName;
        cuFuncIsLoaded: 12040 cuFuncIsLoaded;
        cuFuncLoad: 12040 cuFuncLoad;
        cuFuncSetAttribute: 9000 cuFuncSetAttribute;
        cuFuncSetCacheConfig: 3000 cuFuncSetCacheConfig;
        cuFuncSetSharedMemConfig: 4020 cuFuncSetSharedMemConfig;
        cuGetErrorName: 6000 cuGetErrorName;
        cuGetErrorString: 6000 cuGetErrorString;
        cuGetExportTable: 3000 cuGetExportTable;
        cuGetProcAddress: 11030 cuGetProcAddress, 12000 cuGetProcAddress_v2;
        cuGraphAddChildGraphNode: 10000 cuGraphAddChildGraphNode;
        cuGraphAddDependencies: 10000 cuGraphAddDependencies, 12030 cuGraphAddDependencies_v2;
        cuGraphAddEmptyNode: 10000 cuGraphAddEmptyNode;
        cuGraphAddEventRecordNode: 11010 cuGraphAddEventRecordNode;
        cuGraphAddEventWaitNode: 11010 cuGraphAddEventWaitNode;
        cuGraphAddHostNode: 10000 cuGraphAddHostNode;
        cuGraphAddKernelNode: 10000 cuGraphAddKernelNode, 12000 cuGraphAddKernelNode_v2;
        cuGraphAddMemAllocNode: 11040 cuGraphAddMemAllocNode;
        cuGraphAddMemFreeNode: 11040 cuGraphAddMemFreeNode;
        cuGraphAddMemcpyNode: 10000 cuGraphAddMemcpyNode;
        cuGraphAddMemsetNode: 10000 cuGraphAddMemsetNode;
        cuGraphAddNode: 12020 cuGraphAddNode, 12030 cuGraphAddNode_v2;
        cuGraphClone: 10000 cuGraphClone;
        cuGraphCreate: 10000 cuGraphCreate;
        cuGraphDestroy: 10000 cuGraphDestroy;
        cuGraphExecDestroy: 10000 cuGraphExecDestroy;
        cuGraphExecGetFlags: 12000 cuGraphExecGetFlags;
        cuGraphExecUpdate: 10020 cuGraphExecUpdate, 12000 cuGraphExecUpdate_v2;
        cuGraphGetNodes: 10000 cuGraphGetNodes;
        cuGraphGetRootNodes: 10000 cuGraphGetRootNodes;
        cuGraphInstantiate: 10000 cuGraphInstantiate, 11000 cuGraphInstantiate_v2;
        cuGraphInstantiateWithFlags: 11040 cuGraphInstantiateWithFlags;
        cuGraphInstantiateWithParams:
            12000 cuGraphInstantiateWithParams, 12000 cuGraphInstantiateWithParams_ptsz;
        cuGraphLaunch: 10000 cuGraphLaunch, 10000 cuGraphLaunch_ptsz;
        cuGraphMemAllocNodeGetParams: 11040 cuGraphMemAllocNodeGetParams;
        cuGraphMemFreeNodeGetParams: 11040 cuGraphMemFreeNodeGetParams;
        cuGraphNodeGetDependencies: 10000 cuGraphNodeGetDependencies;
        cuGraphNodeGetType: 10000 cuGraphNodeGetType;
        cuGraphUpload: 11010 cuGraphUpload, 11010 cuGraphUpload_ptsz;
        cuGreenCtxCreate: 12040 cuGreenCtxCreate;
        cuGreenCtxDestroy: 12040 cuGreenCtxDestroy;
        cuGreenCtxGetDevResource: 12040 cuGreenCtxGetDevResource;
        cuGreenCtxGetId: 12090 cuGreenCtxGetId;
        cuGreenCtxRecordEvent: 12040 cuGreenCtxRecordEvent;
        cuGreenCtxStreamCreate: 12050 cuGreenCtxStreamCreate;
        cuGreenCtxWaitEvent: 12040 cuGreenCtxWaitEvent;
        cuImportExternalMemory: 10000 cuImportExternalMemory;
        cuInit: 2000 cuInit;
        cuIpcCloseMemHandle: 4010 cuIpcCloseMemHandle;
        cuIpcGetMemHandle: 4010 cuIpcGetMemHandle;
        cuIpcOpenMemHandle: 4010 cuIpcOpenMemHandle, 11000 cuIpcOpenMemHandle_v2;
        cuKernelGetAttribute: 12000 cuKernelGetAttribute;
        cuKernelGetFunction: 12000 cuKernelGetFunction;
        cuKernelGetLibrary: 12050 cuKernelGetLibrary;
        cuKernelGetName: 12030 cuKernelGetName;
        cuKernelSetAttribute: 12000 cuKernelSetAttribute;
        cuKernelSetCacheConfig: 12000 cuKernelSetCacheConfig;
        cuLaunchCooperativeKernel: 9000 cuLaunchCooperativeKernel, 9000 cuLaunchCooperativeKernel_ptsz;
        cuLaunchHostFunc: 10000 cuLaunchHostFunc, 10000 cuLaunchHostFunc_ptsz;
        cuLaunchKernel: 4000 cuLaunchKernel, 7000 cuLaunchKernel_ptsz;
        cuLaunchKernelEx: 11060 cuLaunchKernelEx, 11060 cuLaunchKernelEx_ptsz;
        cuLibraryGetGlobal: 12000 cuLibraryGetGlobal;
        cuLibraryGetKernel: 12000 cuLibraryGetKernel;
        cuLibraryGetKernelCount: 12040 cuLibraryGetKernelCount;
        cuLibraryGetModule: 12000 cuLibraryGetModule;
        cuLibraryLoadData: 12000 cuLibraryLoadData;
        cuLibraryLoadFromFile: 12000 cuLibraryLoadFromFile;
        cuLibraryUnload: 12000 cuLibraryUnload;
        cuMemAddressFree: 10020 cuMemAddressFree;
        cuMemAddressReserve: 10020 cuMemAddressReserve;
        cuMemAdvise: 8000 cuMemAdvise, 12020 cuMemAdvise_v2;
        cuMemAlloc: 2000 cuMemAlloc, 3020 cuMemAlloc_v2;
        cuMemAllocAsync: 11020 cuMemAllocAsync, 11020 cuMemAllocAsync_ptsz;
        cuMemAllocFromPoolAsync: 11020 cuMemAllocFromPoolAsync, 11020 cuMemAllocFromPoolAsync_ptsz;
        cuMemAllocHost: 2000 cuMemAllocHost, 3020 cuMemAllocHost_v2;
        cuMemAllocManaged: 6000 cuMemAllocManaged;
        cuMemAllocPitch: 2000 cuMemAllocPitch, 3020 cuMemAllocPitch_v2;
        cuMemCreate: 10020 cuMemCreate;
        cuMemExportToShareableHandle: 10020 cuMemExportToShareableHandle;
        cuMemFree: 2000 cuMemFree, 3020 cuMemFree_v2;
        cuMemFreeAsync: 11020 cuMemFreeAsync, 11020 cuMemFreeAsync_ptsz;
        cuMemFreeHost: 2000 cuMemFreeHost;
        cuMemGetAccess: 10020 cuMemGetAccess;
        cuMemGetAddressRange: 2000 cuMemGetAddressRange, 3020 cuMemGetAddressRange_v2;
        cuMemGetAllocationGranularity: 10020 cuMemGetAllocationGranularity;
        cuMemGetAllocationPropertiesFromHandle: 10020 cuMemGetAllocationPropertiesFromHandle;
        cuMemGetDefaultMemPool: 13000 cuMemGetDefaultMemPool;
        cuMemGetInfo: 2000 cuMemGetInfo, 3020 cuMemGetInfo_v2;
        cuMemGetMemPool: 13000 cuMemGetMemPool;
        cuMemHostAlloc: 2020 cuMemHostAlloc;
        cuMemHostGetDevicePointer: 2020 cuMemHostGetDevicePointer, 3020 cuMemHostGetDevicePointer_v2;
        cuMemHostGetFlags: 2030 cuMemHostGetFlags;
        cuMemHostRegister: 4000 cuMemHostRegister, 6050 cuMemHostRegister_v2;
        cuMemHostUnregister: 4000 cuMemHostUnregister;
        cuMemImportFromShareableHandle: 10020 cuMemImportFromShareableHandle;
        cuMemMap: 10020 cuMemMap;
        cuMemPoolCreate: 11020 cuMemPoolCreate;
        cuMemPoolDestroy: 11020 cuMemPoolDestroy;
        cuMemPoolGetAccess: 11020 cuMemPoolGetAccess;
        cuMemPoolGetAttribute: 11020 cuMemPoolGetAttribute;
        cuMemPoolSetAccess: 11020 cuMemPoolSetAccess;
        cuMemPoolSetAttribute: 11020 cuMemPoolSetAttribute;
        cuMemPoolTrimTo: 11020 cuMemPoolTrimTo;
        cuMemPrefetchAsync:
            8000 cuMemPrefetchAsync, 12020 cuMemPrefetchAsync_v2, 8000 cuMemPrefetchAsync_ptsz,
            12020 cuMemPrefetchAsync_v2_ptsz;
        cuMemRelease: 10020 cuMemRelease;
        cuMemRetainAllocationHandle: 11000 cuMemRetainAllocationHandle;
        cuMemSetAccess: 10020 cuMemSetAccess;
        cuMemSetMemPool: 13000 cuMemSetMemPool;
        cuMemUnmap: 10020 cuMemUnmap;
        cuMemcpy: 4000 cuMemcpy, 7000 cuMemcpy_ptds;
        cuMemcpy2D: 3020 cuMemcpy2D_v2, 7000 cuMemcpy2D_v2_ptds;
        cuMemcpy2DAsync: 3020 cuMemcpy2DAsync_v2, 7000 cuMemcpy2DAsync_v2_ptsz;
        cuMemcpy2DUnaligned: 3020 cuMemcpy2DUnaligned_v2, 7000 cuMemcpy2DUnaligned_v2_ptds;
        cuMemcpy3D: 3020 cuMemcpy3D_v2, 7000 cuMemcpy3D_v2_ptds;
        cuMemcpy3DAsync: 3020 cuMemcpy3DAsync_v2, 7000 cuMemcpy3DAsync_v2_ptsz;
        cuMemcpyAsync: 4000 cuMemcpyAsync, 7000 cuMemcpyAsync_ptsz;
        cuMemcpyAtoD: 3020 cuMemcpyAtoD_v2;
        cuMemcpyAtoH: 3020 cuMemcpyAtoH_v2, 7000 cuMemcpyAtoH_v2_ptds;
        cuMemcpyDtoA: 3020 cuMemcpyDtoA_v2;
        cuMemcpyDtoD: 2000 cuMemcpyDtoD, 3020 cuMemcpyDtoD_v2, 7000 cuMemcpyDtoD_v2_ptds;
        cuMemcpyDtoDAsync: 3000 cuMemcpyDtoDAsync, 3020 cuMemcpyDtoDAsync_v2, 7000 cuMemcpyDtoDAsync_v2_ptsz;
        cuMemcpyDtoH: 2000 cuMemcpyDtoH, 3020 cuMemcpyDtoH_v2, 7000 cuMemcpyDtoH_v2_ptds;
        cuMemcpyDtoHAsync: 2000 cuMemcpyDtoHAsync, 3020 cuMemcpyDtoHAsync_v2, 7000 cuMemcpyDtoHAsync_v2_ptsz;
        cuMemcpyHtoA: 3020 cuMemcpyHtoA_v2, 7000 cuMemcpyHtoA_v2_ptds;
        cuMemcpyHtoAAsync: 3020 cuMemcpyHtoAAsync_v2, 7000 cuMemcpyHtoAAsync_v2_ptsz;
        cuMemcpyHtoD: 2000 cuMemcpyHtoD, 3020 cuMemcpyHtoD_v2, 7000 cuMemcpyHtoD_v2_ptds;
        cuMemcpyHtoDAsync: 2000 cuMemcpyHtoDAsync, 3020 cuMemcpyHtoDAsync_v2, 7000 cuMemcpyHtoDAsync_v2_ptsz;
        cuMemcpyPeer: 4000 cuMemcpyPeer, 7000 cuMemcpyPeer_ptds;
        cuMemcpyPeerAsync: 4000 cuMemcpyPeerAsync, 7000 cuMemcpyPeerAsync_ptsz;
        cuMemsetD16: 2000 cuMemsetD16, 3020 cuMemsetD16_v2, 7000 cuMemsetD16_v2_ptds;
        cuMemsetD16Async: 3020 cuMemsetD16Async, 7000 cuMemsetD16Async_ptsz;
        cuMemsetD2D16: 2000 cuMemsetD2D16, 3020 cuMemsetD2D16_v2, 7000 cuMemsetD2D16_v2_ptds;
        cuMemsetD2D16Async: 3020 cuMemsetD2D16Async, 7000 cuMemsetD2D16Async_ptsz;
        cuMemsetD2D32: 2000 cuMemsetD2D32, 3020 cuMemsetD2D32_v2, 7000 cuMemsetD2D32_v2_ptds;
        cuMemsetD2D32Async: 3020 cuMemsetD2D32Async, 7000 cuMemsetD2D32Async_ptsz;
        cuMemsetD2D8: 2000 cuMemsetD2D8, 3020 cuMemsetD2D8_v2, 7000 cuMemsetD2D8_v2_ptds;
        cuMemsetD2D8Async: 3020 cuMemsetD2D8Async, 7000 cuMemsetD2D8Async_ptsz;
        cuMemsetD32: 2000 cuMemsetD32, 3020 cuMemsetD32_v2, 7000 cuMemsetD32_v2_ptds;
        cuMemsetD32Async: 3020 cuMemsetD32Async, 7000 cuMemsetD32Async_ptsz;
        cuMemsetD8: 2000 cuMemsetD8, 3020 cuMemsetD8_v2, 7000 cuMemsetD8_v2_ptds;
        cuMemsetD8Async: 3020 cuMemsetD8Async, 7000 cuMemsetD8Async_ptsz;
        cuMipmappedArrayCreate: 5000 cuMipmappedArrayCreate;
        cuMipmappedArrayDestroy: 5000 cuMipmappedArrayDestroy;
        cuMipmappedArrayGetLevel: 5000 cuMipmappedArrayGetLevel;
        cuMipmappedArrayGetMemoryRequirements: 11060 cuMipmappedArrayGetMemoryRequirements;
        cuModuleEnumerateFunctions: 12040 cuModuleEnumerateFunctions;
        cuModuleGetFunction: 2000 cuModuleGetFunction;
        cuModuleGetFunctionCount: 12040 cuModuleGetFunctionCount;
        cuModuleGetGlobal: 2000 cuModuleGetGlobal, 3020 cuModuleGetGlobal_v2;
        cuModuleGetLoadingMode: 11070 cuModuleGetLoadingMode;
        cuModuleLoad: 2000 cuModuleLoad;
        cuModuleLoadData: 2000 cuModuleLoadData;
        cuModuleLoadDataEx: 2010 cuModuleLoadDataEx;
        cuModuleLoadFatBinary: 2000 cuModuleLoadFatBinary;
        cuModuleUnload: 2000 cuModuleUnload;
        cuOccupancyAvailableDynamicSMemPerBlock: 10020 cuOccupancyAvailableDynamicSMemPerBlock;
        cuOccupancyMaxActiveBlocksPerMultiprocessor: 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags:
            7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        cuOccupancyMaxPotentialBlockSize: 6050 cuOccupancyMaxPotentialBlockSize;
        cuOccupancyMaxPotentialBlockSizeWithFlags: 7000 cuOccupancyMaxPotentialBlockSizeWithFlags;
        cuPointerGetAttribute: 4000 cuPointerGetAttribute;
        cuPointerGetAttributes: 7000 cuPointerGetAttributes;
        cuPointerSetAttribute: 6000 cuPointerSetAttribute;
        cuProfilerStart: 4000 cuProfilerStart;
        cuProfilerStop: 4000 cuProfilerStop;
        cuStreamAddCallback: 5000 cuStreamAddCallback, 7000 cuStreamAddCallback_ptsz;
        cuStreamAttachMemAsync: 6000 cuStreamAttachMemAsync, 7000 cuStreamAttachMemAsync_ptsz;
        cuStreamBeginCapture:
            10000 cuStreamBeginCapture, 10010 cuStreamBeginCapture_v2, 10000 cuStreamBeginCapture_ptsz,
            10010 cuStreamBeginCapture_v2_ptsz;
        cuStreamCreate: 2000 cuStreamCreate;
        cuStreamCreateWithPriority: 5050 cuStreamCreateWithPriority;
        cuStreamDestroy: 2000 cuStreamDestroy, 4000 cuStreamDestroy_v2;
        cuStreamEndCapture: 10000 cuStreamEndCapture, 10000 cuStreamEndCapture_ptsz;
        cuStreamGetCaptureInfo:
            10010 cuStreamGetCaptureInfo, 11030 cuStreamGetCaptureInfo_v2, 12030 cuStreamGetCaptureInfo_v3,
            10010 cuStreamGetCaptureInfo_ptsz, 11030 cuStreamGetCaptureInfo_v2_ptsz,
            12030 cuStreamGetCaptureInfo_v3_ptsz;
        cuStreamGetCtx:
            9020 cuStreamGetCtx, 12050 cuStreamGetCtx_v2, 9020 cuStreamGetCtx_ptsz,
            12050 cuStreamGetCtx_v2_ptsz;
        cuStreamGetDevice: 12080 cuStreamGetDevice, 12080 cuStreamGetDevice_ptsz;
        cuStreamGetFlags: 5050 cuStreamGetFlags, 7000 cuStreamGetFlags_ptsz;
        cuStreamGetGreenCtx: 12040 cuStreamGetGreenCtx;
        cuStreamGetId: 12000 cuStreamGetId, 12000 cuStreamGetId_ptsz;
        cuStreamGetPriority: 5050 cuStreamGetPriority, 7000 cuStreamGetPriority_ptsz;
        cuStreamIsCapturing: 10000 cuStreamIsCapturing, 10000 cuStreamIsCapturing_ptsz;
        cuStreamQuery: 2000 cuStreamQuery, 7000 cuStreamQuery_ptsz;
        cuStreamSynchronize: 2000 cuStreamSynchronize, 7000 cuStreamSynchronize_ptsz;
        cuStreamWaitEvent: 3020 cuStreamWaitEvent, 7000 cuStreamWaitEvent_ptsz;
        cuSurfObjectCreate: 5000 cuSurfObjectCreate;
        cuSurfObjectDestroy: 5000 cuSurfObjectDestroy;
        cuSurfObjectGetResourceDesc: 5000 cuSurfObjectGetResourceDesc;
        cuTexObjectCreate: 5000 cuTexObjectCreate;
        cuTexObjectDestroy: 5000 cuTexObjectDestroy;
        cuTexObjectGetResourceDesc: 5000 cuTexObjectGetResourceDesc;
        cuTexObjectGetResourceViewDesc: 5000 cuTexObjectGetResourceViewDesc;
        cuTexObjectGetTextureDesc: 5000 cuTexObjectGetTextureDesc;
        cuThreadExchangeStreamCaptureMode: 10010 cuThreadExchangeStreamCaptureMode;
        simgpuModuleGlobal: 2000 simgpuModuleGlobal;
    }
    absent {
        cuArrayGetPlane: 11020 cuArrayGetPlane;
        cuArrayGetSparseProperties: 11010 cuArrayGetSparseProperties;
        cuCheckpointProcessCheckpoint: 12080 cuCheckpointProcessCheckpoint;
        cuCheckpointProcessGetRestoreThreadId: 12080 cuCheckpointProcessGetRestoreThreadId;
        cuCheckpointProcessGetState: 12080 cuCheckpointProcessGetState;
        cuCheckpointProcessLock: 12080 cuCheckpointProcessLock;
        cuCheckpointProcessRestore: 12080 cuCheckpointProcessRestore;
        cuCheckpointProcessUnlock: 12080 cuCheckpointProcessUnlock;
        cuCoredumpGetAttribute: 12010 cuCoredumpGetAttribute;
        cuCoredumpGetAttributeGlobal: 12010 cuCoredumpGetAttributeGlobal;
        cuCoredumpSetAttribute: 12010 cuCoredumpSetAttribute;
        cuCoredumpSetAttributeGlobal: 12010 cuCoredumpSetAttributeGlobal;
        cuCtxGetExecAffinity: 11040 cuCtxGetExecAffinity;
        cuDestroyExternalSemaphore: 10000 cuDestroyExternalSemaphore;
        cuDeviceGetExecAffinitySupport: 11040 cuDeviceGetExecAffinitySupport;
        cuDeviceGetHostAtomicCapabilities: 13000 cuDeviceGetHostAtomicCapabilities;
        cuDeviceGetLuid: 10000 cuDeviceGetLuid;
        cuDeviceGetNvSciSyncAttributes: 10020 cuDeviceGetNvSciSyncAttributes;
        cuDeviceGetP2PAtomicCapabilities: 13000 cuDeviceGetP2PAtomicCapabilities;
        cuDeviceGetTexture1DLinearMaxWidth: 11010 cuDeviceGetTexture1DLinearMaxWidth;
        cuDeviceRegisterAsyncNotification: 12040 cuDeviceRegisterAsyncNotification;
        cuDeviceUnregisterAsyncNotification: 12040 cuDeviceUnregisterAsyncNotification;
        cuEGLStreamConsumerAcquireFrame: 7000 cuEGLStreamConsumerAcquireFrame;
        cuEGLStreamConsumerConnect: 7000 cuEGLStreamConsumerConnect;
        cuEGLStreamConsumerConnectWithFlags: 8000 cuEGLStreamConsumerConnectWithFlags;
        cuEGLStreamConsumerDisconnect: 7000 cuEGLStreamConsumerDisconnect;
        cuEGLStreamConsumerReleaseFrame: 7000 cuEGLStreamConsumerReleaseFrame;
        cuEGLStreamProducerConnect: 7000 cuEGLStreamProducerConnect;
        cuEGLStreamProducerDisconnect: 7000 cuEGLStreamProducerDisconnect;
        cuEGLStreamProducerPresentFrame: 7000 cuEGLStreamProducerPresentFrame;
        cuEGLStreamProducerReturnFrame: 7000 cuEGLStreamProducerReturnFrame;
        cuEventCreateFromEGLSync: 9000 cuEventCreateFromEGLSync;
        cuExternalMemoryGetMappedMipmappedArray: 10000 cuExternalMemoryGetMappedMipmappedArray;
        cuFlushGPUDirectRDMAWrites: 11030 cuFlushGPUDirectRDMAWrites;
        cuFuncGetParamInfo: 12040 cuFuncGetParamInfo;
        cuFuncSetBlockShape: 2000 cuFuncSetBlockShape;
        cuFuncSetSharedSize: 2000 cuFuncSetSharedSize;
        cuGLCtxCreate: 2000 cuGLCtxCreate, 3020 cuGLCtxCreate_v2;
        cuGLGetDevices: 4010 cuGLGetDevices, 6050 cuGLGetDevices_v2;
        cuGLInit: 2000 cuGLInit;
        cuGLMapBufferObject:
            2000 cuGLMapBufferObject, 3020 cuGLMapBufferObject_v2, 7000 cuGLMapBufferObject_v2_ptds;
        cuGLMapBufferObjectAsync:
            2030 cuGLMapBufferObjectAsync, 3020 cuGLMapBufferObjectAsync_v2,
            7000 cuGLMapBufferObjectAsync_v2_ptsz;
        cuGLRegisterBufferObject: 2000 cuGLRegisterBufferObject;
        cuGLSetBufferObjectMapFlags: 2030 cuGLSetBufferObjectMapFlags;
        cuGLUnmapBufferObject: 2000 cuGLUnmapBufferObject;
        cuGLUnmapBufferObjectAsync: 2030 cuGLUnmapBufferObjectAsync;
        cuGLUnregisterBufferObject: 2000 cuGLUnregisterBufferObject;
        cuGraphAddBatchMemOpNode: 11070 cuGraphAddBatchMemOpNode;
        cuGraphAddExternalSemaphoresSignalNode: 11020 cuGraphAddExternalSemaphoresSignalNode;
        cuGraphAddExternalSemaphoresWaitNode: 11020 cuGraphAddExternalSemaphoresWaitNode;
        cuGraphBatchMemOpNodeGetParams: 11070 cuGraphBatchMemOpNodeGetParams;
        cuGraphBatchMemOpNodeSetParams: 11070 cuGraphBatchMemOpNodeSetParams;
        cuGraphChildGraphNodeGetGraph: 10000 cuGraphChildGraphNodeGetGraph;
        cuGraphConditionalHandleCreate: 12030 cuGraphConditionalHandleCreate;
        cuGraphDebugDotPrint: 11030 cuGraphDebugDotPrint;
        cuGraphDestroyNode: 10000 cuGraphDestroyNode;
        cuGraphEventRecordNodeGetEvent: 11010 cuGraphEventRecordNodeGetEvent;
        cuGraphEventRecordNodeSetEvent: 11010 cuGraphEventRecordNodeSetEvent;
        cuGraphEventWaitNodeGetEvent: 11010 cuGraphEventWaitNodeGetEvent;
        cuGraphEventWaitNodeSetEvent: 11010 cuGraphEventWaitNodeSetEvent;
        cuGraphExecBatchMemOpNodeSetParams: 11070 cuGraphExecBatchMemOpNodeSetParams;
        cuGraphExecChildGraphNodeSetParams: 11010 cuGraphExecChildGraphNodeSetParams;
        cuGraphExecEventRecordNodeSetEvent: 11010 cuGraphExecEventRecordNodeSetEvent;
        cuGraphExecEventWaitNodeSetEvent: 11010 cuGraphExecEventWaitNodeSetEvent;
        cuGraphExecExternalSemaphoresSignalNodeSetParams:
            11020 cuGraphExecExternalSemaphoresSignalNodeSetParams;
        cuGraphExecExternalSemaphoresWaitNodeSetParams: 11020 cuGraphExecExternalSemaphoresWaitNodeSetParams;
        cuGraphExecHostNodeSetParams: 10020 cuGraphExecHostNodeSetParams;
        cuGraphExecKernelNodeSetParams:
            10010 cuGraphExecKernelNodeSetParams, 12000 cuGraphExecKernelNodeSetParams_v2;
        cuGraphExecMemcpyNodeSetParams: 10020 cuGraphExecMemcpyNodeSetParams;
        cuGraphExecMemsetNodeSetParams: 10020 cuGraphExecMemsetNodeSetParams;
        cuGraphExecNodeSetParams: 12020 cuGraphExecNodeSetParams;
        cuGraphExternalSemaphoresSignalNodeGetParams: 11020 cuGraphExternalSemaphoresSignalNodeGetParams;
        cuGraphExternalSemaphoresSignalNodeSetParams: 11020 cuGraphExternalSemaphoresSignalNodeSetParams;
        cuGraphExternalSemaphoresWaitNodeGetParams: 11020 cuGraphExternalSemaphoresWaitNodeGetParams;
        cuGraphExternalSemaphoresWaitNodeSetParams: 11020 cuGraphExternalSemaphoresWaitNodeSetParams;
        cuGraphGetEdges: 10000 cuGraphGetEdges, 12030 cuGraphGetEdges_v2;
        cuGraphHostNodeGetParams: 10000 cuGraphHostNodeGetParams;
        cuGraphHostNodeSetParams: 10000 cuGraphHostNodeSetParams;
        cuGraphKernelNodeCopyAttributes: 11000 cuGraphKernelNodeCopyAttributes;
        cuGraphKernelNodeGetAttribute: 11000 cuGraphKernelNodeGetAttribute;
        cuGraphKernelNodeGetParams: 10000 cuGraphKernelNodeGetParams, 12000 cuGraphKernelNodeGetParams_v2;
        cuGraphKernelNodeSetAttribute: 11000 cuGraphKernelNodeSetAttribute;
        cuGraphKernelNodeSetParams: 10000 cuGraphKernelNodeSetParams, 12000 cuGraphKernelNodeSetParams_v2;
        cuGraphMemcpyNodeGetParams: 10000 cuGraphMemcpyNodeGetParams;
        cuGraphMemcpyNodeSetParams: 10000 cuGraphMemcpyNodeSetParams;
        cuGraphMemsetNodeGetParams: 10000 cuGraphMemsetNodeGetParams;
        cuGraphMemsetNodeSetParams: 10000 cuGraphMemsetNodeSetParams;
        cuGraphNodeFindInClone: 10000 cuGraphNodeFindInClone;
        cuGraphNodeGetDependencies: 12030 cuGraphNodeGetDependencies_v2;
        cuGraphNodeGetDependentNodes:
            10000 cuGraphNodeGetDependentNodes, 12030 cuGraphNodeGetDependentNodes_v2;
        cuGraphNodeGetEnabled: 11060 cuGraphNodeGetEnabled;
        cuGraphNodeSetEnabled: 11060 cuGraphNodeSetEnabled;
        cuGraphNodeSetParams: 12020 cuGraphNodeSetParams;
        cuGraphReleaseUserObject: 11030 cuGraphReleaseUserObject;
        cuGraphRemoveDependencies: 10000 cuGraphRemoveDependencies, 12030 cuGraphRemoveDependencies_v2;
        cuGraphRetainUserObject: 11030 cuGraphRetainUserObject;
        cuGraphicsEGLRegisterImage: 7000 cuGraphicsEGLRegisterImage;
        cuGraphicsGLRegisterBuffer: 3000 cuGraphicsGLRegisterBuffer;
        cuGraphicsGLRegisterImage: 3000 cuGraphicsGLRegisterImage;
        cuGraphicsMapResources: 3000 cuGraphicsMapResources, 7000 cuGraphicsMapResources_ptsz;
        cuGraphicsResourceGetMappedEglFrame: 7000 cuGraphicsResourceGetMappedEglFrame;
        cuGraphicsResourceGetMappedMipmappedArray: 5000 cuGraphicsResourceGetMappedMipmappedArray;
        cuGraphicsResourceGetMappedPointer:
            3000 cuGraphicsResourceGetMappedPointer, 3020 cuGraphicsResourceGetMappedPointer_v2;
        cuGraphicsResourceSetMapFlags:
            3000 cuGraphicsResourceSetMapFlags, 6050 cuGraphicsResourceSetMapFlags_v2;
        cuGraphicsSubResourceGetMappedArray: 3000 cuGraphicsSubResourceGetMappedArray;
        cuGraphicsUnmapResources: 3000 cuGraphicsUnmapResources, 7000 cuGraphicsUnmapResources_ptsz;
        cuGraphicsUnregisterResource: 3000 cuGraphicsUnregisterResource;
        cuGraphicsVDPAURegisterOutputSurface: 3010 cuGraphicsVDPAURegisterOutputSurface;
        cuGraphicsVDPAURegisterVideoSurface: 3010 cuGraphicsVDPAURegisterVideoSurface;
        cuImportExternalSemaphore: 10000 cuImportExternalSemaphore;
        cuIpcGetEventHandle: 4010 cuIpcGetEventHandle;
        cuIpcOpenEventHandle: 4010 cuIpcOpenEventHandle;
        cuKernelGetParamInfo: 12040 cuKernelGetParamInfo;
        cuLaunch: 2000 cuLaunch;
        cuLaunchCooperativeKernelMultiDevice: 9000 cuLaunchCooperativeKernelMultiDevice;
        cuLaunchGrid: 2000 cuLaunchGrid;
        cuLaunchGridAsync: 2000 cuLaunchGridAsync;
        cuLibraryEnumerateKernels: 12040 cuLibraryEnumerateKernels;
        cuLibraryGetManaged: 12000 cuLibraryGetManaged;
        cuLibraryGetUnifiedFunction: 12000 cuLibraryGetUnifiedFunction;
        cuLinkAddData: 5050 cuLinkAddData, 6050 cuLinkAddData_v2;
        cuLinkAddFile: 5050 cuLinkAddFile, 6050 cuLinkAddFile_v2;
        cuLinkComplete: 5050 cuLinkComplete;
        cuLinkCreate: 5050 cuLinkCreate, 6050 cuLinkCreate_v2;
        cuLinkDestroy: 5050 cuLinkDestroy;
        cuLogsCurrent: 12090 cuLogsCurrent;
        cuLogsDumpToFile: 12090 cuLogsDumpToFile;
        cuLogsDumpToMemory: 12090 cuLogsDumpToMemory;
        cuLogsRegisterCallback: 12090 cuLogsRegisterCallback;
        cuLogsUnregisterCallback: 12090 cuLogsUnregisterCallback;
        cuMemBatchDecompressAsync: 12060 cuMemBatchDecompressAsync, 12060 cuMemBatchDecompressAsync_ptsz;
        cuMemDiscardAndPrefetchBatchAsync:
            13000 cuMemDiscardAndPrefetchBatchAsync, 13000 cuMemDiscardAndPrefetchBatchAsync_ptsz;
        cuMemDiscardBatchAsync: 13000 cuMemDiscardBatchAsync, 13000 cuMemDiscardBatchAsync_ptsz;
        cuMemGetHandleForAddressRange: 11070 cuMemGetHandleForAddressRange;
        cuMemMapArrayAsync: 11010 cuMemMapArrayAsync, 11010 cuMemMapArrayAsync_ptsz;
        cuMemPoolExportPointer: 11020 cuMemPoolExportPointer;
        cuMemPoolExportToShareableHandle: 11020 cuMemPoolExportToShareableHandle;
        cuMemPoolImportFromShareableHandle: 11020 cuMemPoolImportFromShareableHandle;
        cuMemPoolImportPointer: 11020 cuMemPoolImportPointer;
        cuMemPrefetchBatchAsync: 13000 cuMemPrefetchBatchAsync, 13000 cuMemPrefetchBatchAsync_ptsz;
        cuMemRangeGetAttribute: 8000 cuMemRangeGetAttribute;
        cuMemRangeGetAttributes: 8000 cuMemRangeGetAttributes;
        cuMemcpy2D: 2000 cuMemcpy2D;
        cuMemcpy2DAsync: 2000 cuMemcpy2DAsync;
        cuMemcpy2DUnaligned: 2000 cuMemcpy2DUnaligned;
        cuMemcpy3D: 2000 cuMemcpy3D;
        cuMemcpy3DAsync: 2000 cuMemcpy3DAsync;
        cuMemcpy3DBatchAsync:
            12080 cuMemcpy3DBatchAsync, 13000 cuMemcpy3DBatchAsync_v2, 12080 cuMemcpy3DBatchAsync_ptsz,
            13000 cuMemcpy3DBatchAsync_v2_ptsz;
        cuMemcpy3DPeer: 4000 cuMemcpy3DPeer, 7000 cuMemcpy3DPeer_ptds;
        cuMemcpy3DPeerAsync: 4000 cuMemcpy3DPeerAsync, 7000 cuMemcpy3DPeerAsync_ptsz;
        cuMemcpyAtoA: 2000 cuMemcpyAtoA, 3020 cuMemcpyAtoA_v2, 7000 cuMemcpyAtoA_v2_ptds;
        cuMemcpyAtoD: 2000 cuMemcpyAtoD, 7000 cuMemcpyAtoD_v2_ptds;
        cuMemcpyAtoH: 2000 cuMemcpyAtoH;
        cuMemcpyAtoHAsync: 2000 cuMemcpyAtoHAsync, 3020 cuMemcpyAtoHAsync_v2, 7000 cuMemcpyAtoHAsync_v2_ptsz;
        cuMemcpyBatchAsync:
            12080 cuMemcpyBatchAsync, 13000 cuMemcpyBatchAsync_v2, 12080 cuMemcpyBatchAsync_ptsz,
            13000 cuMemcpyBatchAsync_v2_ptsz;
        cuMemcpyDtoA: 2000 cuMemcpyDtoA, 7000 cuMemcpyDtoA_v2_ptds;
        cuMemcpyHtoA: 2000 cuMemcpyHtoA;
        cuMemcpyHtoAAsync: 2000 cuMemcpyHtoAAsync;
        cuMipmappedArrayGetSparseProperties: 11010 cuMipmappedArrayGetSparseProperties;
        cuModuleGetSurfRef: 3000 cuModuleGetSurfRef;
        cuModuleGetTexRef: 2000 cuModuleGetTexRef;
        cuMulticastAddDevice: 12010 cuMulticastAddDevice;
        cuMulticastBindAddr: 12010 cuMulticastBindAddr;
        cuMulticastBindMem: 12010 cuMulticastBindMem;
        cuMulticastCreate: 12010 cuMulticastCreate;
        cuMulticastGetGranularity: 12010 cuMulticastGetGranularity;
        cuMulticastUnbind: 12010 cuMulticastUnbind;
        cuOccupancyMaxActiveClusters: 11070 cuOccupancyMaxActiveClusters;
        cuOccupancyMaxPotentialClusterSize: 11070 cuOccupancyMaxPotentialClusterSize;
        cuParamSetSize: 2000 cuParamSetSize;
        cuParamSetTexRef: 2000 cuParamSetTexRef;
        cuParamSetf: 2000 cuParamSetf;
        cuParamSeti: 2000 cuParamSeti;
        cuParamSetv: 2000 cuParamSetv;
        cuProfilerInitialize: 4000 cuProfilerInitialize;
        cuSignalExternalSemaphoresAsync:
            10000 cuSignalExternalSemaphoresAsync, 10000 cuSignalExternalSemaphoresAsync_ptsz;
        cuStreamBatchMemOp:
            8000 cuStreamBatchMemOp, 11070 cuStreamBatchMemOp_v2, 8000 cuStreamBatchMemOp_ptsz,
            11070 cuStreamBatchMemOp_v2_ptsz;
        cuStreamBeginCaptureToGraph:
            12030 cuStreamBeginCaptureToGraph, 12030 cuStreamBeginCaptureToGraph_ptsz;
        cuStreamCopyAttributes: 11000 cuStreamCopyAttributes, 11000 cuStreamCopyAttributes_ptsz;
        cuStreamGetAttribute: 11000 cuStreamGetAttribute, 11000 cuStreamGetAttribute_ptsz;
        cuStreamSetAttribute: 11000 cuStreamSetAttribute, 11000 cuStreamSetAttribute_ptsz;
        cuStreamUpdateCaptureDependencies:
            11030 cuStreamUpdateCaptureDependencies, 12030 cuStreamUpdateCaptureDependencies_v2,
            11030 cuStreamUpdateCaptureDependencies_ptsz, 12030 cuStreamUpdateCaptureDependencies_v2_ptsz;
        cuStreamWaitValue32:
            8000 cuStreamWaitValue32, 11070 cuStreamWaitValue32_v2, 8000 cuStreamWaitValue32_ptsz,
            11070 cuStreamWaitValue32_v2_ptsz;
        cuStreamWaitValue64:
            9000 cuStreamWaitValue64, 11070 cuStreamWaitValue64_v2, 9000 cuStreamWaitValue64_ptsz,
            11070 cuStreamWaitValue64_v2_ptsz;
        cuStreamWriteValue32:
            8000 cuStreamWriteValue32, 11070 cuStreamWriteValue32_v2, 8000 cuStreamWriteValue32_ptsz,
            11070 cuStreamWriteValue32_v2_ptsz;
        cuStreamWriteValue64:
            9000 cuStreamWriteValue64, 11070 cuStreamWriteValue64_v2, 9000 cuStreamWriteValue64_ptsz,
            11070 cuStreamWriteValue64_v2_ptsz;
        cuSurfRefGetArray: 3000 cuSurfRefGetArray;
        cuSurfRefSetArray: 3000 cuSurfRefSetArray;
        cuTensorMapEncodeIm2col: 12000 cuTensorMapEncodeIm2col;
        cuTensorMapEncodeIm2colWide: 12080 cuTensorMapEncodeIm2colWide;
        cuTensorMapEncodeTiled: 12000 cuTensorMapEncodeTiled;
        cuTensorMapReplaceAddress: 12000 cuTensorMapReplaceAddress;
        cuTexRefCreate: 2000 cuTexRefCreate;
        cuTexRefDestroy: 2000 cuTexRefDestroy;
        cuTexRefGetAddress: 2000 cuTexRefGetAddress, 3020 cuTexRefGetAddress_v2;
        cuTexRefGetAddressMode: 2000 cuTexRefGetAddressMode;
        cuTexRefGetArray: 2000 cuTexRefGetArray;
        cuTexRefGetBorderColor: 8000 cuTexRefGetBorderColor;
        cuTexRefGetFilterMode: 2000 cuTexRefGetFilterMode;
        cuTexRefGetFlags: 2000 cuTexRefGetFlags;
        cuTexRefGetFormat: 2000 cuTexRefGetFormat;
        cuTexRefGetMaxAnisotropy: 5000 cuTexRefGetMaxAnisotropy;
        cuTexRefGetMipmapFilterMode: 5000 cuTexRefGetMipmapFilterMode;
        cuTexRefGetMipmapLevelBias: 5000 cuTexRefGetMipmapLevelBias;
        cuTexRefGetMipmapLevelClamp: 5000 cuTexRefGetMipmapLevelClamp;
        cuTexRefGetMipmappedArray: 5000 cuTexRefGetMipmappedArray;
        cuTexRefSetAddress: 2000 cuTexRefSetAddress, 3020 cuTexRefSetAddress_v2;
        cuTexRefSetAddress2D:
            2020 cuTexRefSetAddress2D, 3020 cuTexRefSetAddress2D_v2, 4010 cuTexRefSetAddress2D_v3;
        cuTexRefSetAddressMode: 2000 cuTexRefSetAddressMode;
        cuTexRefSetArray: 2000 cuTexRefSetArray;
        cuTexRefSetBorderColor: 8000 cuTexRefSetBorderColor;
        cuTexRefSetFilterMode: 2000 cuTexRefSetFilterMode;
        cuTexRefSetFlags: 2000 cuTexRefSetFlags;
        cuTexRefSetFormat: 2000 cuTexRefSetFormat;
        cuTexRefSetMaxAnisotropy: 5000 cuTexRefSetMaxAnisotropy;
        cuTexRefSetMipmapFilterMode: 5000 cuTexRefSetMipmapFilterMode;
        cuTexRefSetMipmapLevelBias: 5000 cuTexRefSetMipmapLevelBias;
        cuTexRefSetMipmapLevelClamp: 5000 cuTexRefSetMipmapLevelClamp;
        cuTexRefSetMipmappedArray: 5000 cuTexRefSetMipmappedArray;
        cuUserObjectCreate: 11030 cuUserObjectCreate;
        cuUserObjectRelease: 11030 cuUserObjectRelease;
        cuUserObjectRetain: 11030 cuUserObjectRetain;
        cuVDPAUCtxCreate: 3010 cuVDPAUCtxCreate, 3020 cuVDPAUCtxCreate_v2;
        cuVDPAUGetDevice: 3010 cuVDPAUGetDevice;
        cuWaitExternalSemaphoresAsync:
            10000 cuWaitExternalSemaphoresAsync, 10000 cuWaitExternalSemaphoresAsync_ptsz;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(function: *const c_void) -> Found {
        Found::At(function)
    }

    #[test]
    fn the_abi_is_chosen_by_the_version_asked_for() {
        let find = |base, version| find(base, version, 13_000, false);
        assert_eq!(find("cuMemAlloc", 2000), at(cuMemAlloc as *const c_void));
        assert_eq!(find("cuMemAlloc", 3019), at(cuMemAlloc as *const c_void));
        assert_eq!(find("cuMemAlloc", 3020), at(cuMemAlloc_v2 as *const c_void));
        assert_eq!(find("cuCtxCreate", 2000), at(cuCtxCreate as *const c_void));
        assert_eq!(find("cuCtxCreate", 11_030), at(cuCtxCreate_v2 as *const c_void));
        assert_eq!(find("cuCtxCreate", 12_040), at(cuCtxCreate_v3 as *const c_void));
        assert_eq!(find("cuCtxCreate", 13_000), at(cuCtxCreate_v4 as *const c_void));
        assert_eq!(
            find("cuCtxSynchronize", 12_090),
            at(cuCtxSynchronize as *const c_void)
        );
        assert_eq!(
            find("cuCtxSynchronize", 13_000),
            at(cuCtxSynchronize_v2 as *const c_void)
        );
        assert_eq!(
            find("cuGetProcAddress", 11_030),
            at(cuGetProcAddress as *const c_void)
        );
        assert_eq!(
            find("cuGetProcAddress", 12_000),
            at(cuGetProcAddress_v2 as *const c_void)
        );
    }

    #[test]
    fn the_flag_for_per_thread_streams_finds_their_variant_where_there_is_one() {
        let find = |base, version| find(base, version, 13_000, true);
        assert_eq!(
            find("cuMemAllocAsync", 11_020),
            at(cuMemAllocAsync_ptsz as *const c_void)
        );
        assert_eq!(
            find("cuMemcpyHtoD", 7000),
            at(cuMemcpyHtoD_v2_ptds as *const c_void)
        );
        assert_eq!(find("cuMemcpyHtoD", 3020), at(cuMemcpyHtoD_v2 as *const c_void));
        assert_eq!(find("cuMemAlloc", 13_000), at(cuMemAlloc_v2 as *const c_void));
        assert_eq!(
            find("cuStreamWaitValue32", 13_000),
            at(cuStreamWaitValue32_v2_ptsz as *const c_void)
        );
    }

    #[test]
    fn a_name_of_later_versions_is_told_from_one_that_is_nowhere() {
        assert_eq!(find("cuMemCreate", 10_010, 13_000, false), Found::Newer);
        assert_eq!(find("cuNoSuchThing", 13_000, 13_000, false), Found::Nowhere);
        assert_eq!(
            find("cuMemAlloc_v2", 13_000, 13_000, false),
            Found::Nowhere,
            "names are base names"
        );
        assert_eq!(find("", 0, 13_000, false), Found::Nowhere);
    }

    #[test]
    fn a_driver_has_nothing_that_came_after_it() {
        let old = find("cuCtxCreate", 13_000, 12_040, false);
        assert_eq!(old, at(cuCtxCreate_v3 as *const c_void));
        assert_eq!(
            find("cuCheckpointProcessLock", 13_000, 12_040, false),
            Found::Nowhere
        );
    }

    #[test]
    fn no_exported_name_comes_twice() {
        let mut names: Vec<_> = ENTRIES.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count > 600);
    }
}
