//! The library preloaded into CUDA programs. It counts what they hold and tells the supervisor.
//!
//! # The life of one allocation
//!
//! 1. The program calls `cuMemAlloc_v2`. Whichever way it found the function, it found our [hook](hooks). The loader
//!    binds what is linked to the first object that exports the name, which a preloaded one is. `dlsym`, `dlvsym` and
//!    `cuGetProcAddress` are asked as ever, and the answer is swapped only if it is the real function of a [row](table)
//!    of ours.
//! 2. The hook passes the [gate]. A call from within another hook on this thread goes straight on: a driver
//!    that calls itself counts once.
//! 3. The [real function](driver), found by handle, does the allocation. Its result is the program's result,
//!    whatever it is; nothing of ours can change it, but for the soft [cap] that a runner may set: then room is
//!    claimed before the call, and a call that gets none is not made.
//! 4. At the first answer that counts, a success or a refusal for want of memory, or at the first claim, the process
//!    [attaches](attach): it takes the job's counter [page](pagefile) from its runner, or else asks the supervisor for
//!    it ([caller], [link]), takes a slot there, reads the [devices]' UUIDs, and starts the [sender] thread. Without
//!    either it counts in a page of its own.
//! 5. The [ledger] keeps the address with its size, class and device, and adds the size to the page: live
//!    bytes and their peak are exact from that moment on, and stay readable after the process, however it ends. A
//!    refusal is told to the supervisor at once, over the [wire], before the program hears of it.
//! 6. When the program waits for the device or reads from it, that may mark an iteration: if the [clock] says
//!    so, the totals go into a [queue](notes). What its tensors hold, [PyTorch](torch) or the program itself says.
//! 7. The sender empties the queue every 10 ms, or 100 where nothing happens, and sends samples. A full socket loses
//!    samples, never bytes.
//! 8. The program calls `cuMemFree_v2`. The record leaves the ledger before the real call, because another
//!    thread may be given the address as soon as the driver has it; if the driver refuses, it is put back.
//!
//! A process that never allocates device memory opens nothing, starts nothing and connects to nobody. A
//! forked child starts over. `MIGM_DISABLE=1` turns all of it off.
//!
//! # Exported symbols
//!
//! `dlsym`, `dlvsym`, `dlopen`;
//! `cuGetProcAddress`, `cuGetProcAddress_v2`;
//! `cuMemAlloc`, `cuMemAlloc_v2`, `cuMemAllocPitch`, `cuMemAllocPitch_v2`, `cuMemAllocManaged`, `cuMemFree`,
//! `cuMemFree_v2`;
//! `cuMemAllocAsync`, `cuMemAllocAsync_ptsz`, `cuMemAllocFromPoolAsync`, `cuMemAllocFromPoolAsync_ptsz`,
//! `cuMemFreeAsync`, `cuMemFreeAsync_ptsz`;
//! `cuMemPoolCreate`, `cuMemPoolDestroy`;
//! `cuMemAllocHost`, `cuMemAllocHost_v2`, `cuMemHostAlloc`, `cuMemFreeHost`, `cuMemHostRegister`,
//! `cuMemHostRegister_v2`, `cuMemHostUnregister`;
//! `cuMemCreate`, `cuMemRelease`, `cuMemMap`, `cuMemUnmap`, `cuMemRetainAllocationHandle`;
//! `cuArrayCreate`, `cuArrayCreate_v2`, `cuArray3DCreate`, `cuArray3DCreate_v2`, `cuArrayDestroy`,
//! `cuMipmappedArrayCreate`, `cuMipmappedArrayDestroy`;
//! `cuIpcOpenMemHandle`, `cuIpcOpenMemHandle_v2`, `cuIpcCloseMemHandle`, `cuMemPoolImportPointer`,
//! `cuMemImportFromShareableHandle`, `cuImportExternalMemory`, `cuDestroyExternalMemory`;
//! `cuGraphAddMemAllocNode`, `cuGraphAddNode`, `cuGraphAddNode_v2`, `cuDeviceGraphMemTrim`,
//! `cuStreamBeginCapture`, `cuStreamBeginCapture_ptsz`, `cuStreamBeginCapture_v2`,
//! `cuStreamBeginCapture_v2_ptsz`, `cuStreamBeginCaptureToGraph`, `cuStreamBeginCaptureToGraph_ptsz`;
//! `cuCtxCreate`, `cuCtxCreate_v2`, `cuCtxCreate_v3`, `cuCtxCreate_v4`, `cuCtxDestroy`, `cuCtxDestroy_v2`,
//! `cuDevicePrimaryCtxRelease`, `cuDevicePrimaryCtxRelease_v2`, `cuDevicePrimaryCtxReset`,
//! `cuDevicePrimaryCtxReset_v2`, `cuGreenCtxCreate`, `cuGreenCtxDestroy`;
//! `cuCtxSynchronize`, `cuCtxSynchronize_v2`, `cuStreamSynchronize`, `cuStreamSynchronize_ptsz`,
//! `cuEventSynchronize`;
//! `cuMemcpyDtoH_v2`, `cuMemcpyDtoH_v2_ptds`, `cuMemcpyDtoHAsync_v2`, `cuMemcpyDtoHAsync_v2_ptsz`;
//! `cuGraphLaunch`, `cuGraphLaunch_ptsz`;
//! `cuMemGetInfo_v2`, `cuDeviceTotalMem_v2`;
//! `migm_report`;
//! `InitializeInjectionNvtx2`, which is no hook: the program's own [NVTX](nvtx) calls it, where it is told to;
//! `_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE`, `_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE`,
//! `_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE`;
//! `_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE`, `_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE`.
//!
//! A test compares this list, the rows and the built file. `cuGetExportTable` is left alone: the runtime
//! checks what it returns.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

pub mod abi;
pub mod attach;
pub mod bypass;
pub mod caller;
pub mod cap;
pub mod clock;
pub mod descriptor;
pub mod devices;
pub mod driver;
pub mod elf;
pub mod errno;
pub mod gate;
pub mod hooks;
pub mod ledger;
pub mod link;
pub mod log;
pub mod notes;
pub mod nvtx;
mod old_libc;
pub mod pagefile;
pub mod sender;
pub mod settings;
pub mod table;
pub mod thread;
pub mod torch;
pub mod unwind;
pub mod wire;
