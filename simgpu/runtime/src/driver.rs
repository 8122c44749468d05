//! The driver, found as NVIDIA's runtime finds it: `dlopen`, one `dlsym`, then `cuGetProcAddress_v2`.

#![expect(clippy::too_many_arguments, reason = "the signatures are the driver's")]

use crate::error::{Code, from_driver};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A device address.
pub(crate) type Address = u64;
/// An opaque driver object: stream, event, module, function, array or pool.
pub(crate) type Handle = *mut c_void;

/// Function called on a host thread when a stream reaches it.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);
/// Stream callback of the older kind: stream, status, user data.
pub(crate) type StreamCallback = unsafe extern "C" fn(Handle, c_int, *mut c_void);

type GetProcAddress = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;

static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Opens the driver's library, once.
fn library() -> Result<NonNull<c_void>, Code> {
    if let Some(handle) = NonNull::new(LIBRARY.load(Ordering::Acquire)) {
        return Ok(handle);
    }
    // SAFETY: the name is a C string. Two threads that open it at once get the same handle.
    let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    let handle = NonNull::new(handle).ok_or(Code::INSUFFICIENT_DRIVER)?;
    LIBRARY.store(handle.as_ptr(), Ordering::Release);
    Ok(handle)
}

/// A symbol that the driver's library exports.
pub(crate) fn export(name: &CStr) -> Result<NonNull<c_void>, Code> {
    let library = library()?;
    // SAFETY: the handle came from `dlopen` and is never closed; the name is a C string.
    let address = unsafe { libc::dlsym(library.as_ptr(), name.as_ptr()) };
    NonNull::new(address).ok_or(Code::INSUFFICIENT_DRIVER)
}

/// The function `name` as CUDA `version` (1000 x major + 10 x minor) defines it, and the driver's query
/// status: 0 found, 1 no such name, 2 only in a newer version.
pub(crate) fn proc_address(name: &CStr, version: c_int, flags: u64) -> Result<(Handle, c_int), Code> {
    static GET: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut get = GET.load(Ordering::Acquire);
    if get.is_null() {
        get = export(c"cuGetProcAddress_v2")?.as_ptr();
        GET.store(get, Ordering::Release);
    }
    // SAFETY: the driver's symbol of this name has this signature.
    let get: GetProcAddress = unsafe { mem::transmute::<*mut c_void, GetProcAddress>(get) };
    let mut address = ptr::null_mut();
    let mut status = 0;
    // SAFETY: the name is a C string and both outputs are ours.
    let code = unsafe { get(name.as_ptr(), &raw mut address, version, flags, &raw mut status) };
    from_driver(code)?;
    Ok((address, status))
}

/// One driver function, asked for on its first use and kept.
pub(crate) struct Slot {
    name: &'static CStr,
    version: c_int,
    address: AtomicPtr<c_void>,
}

impl Slot {
    pub const fn new(name: &'static CStr, version: c_int) -> Self {
        Self {
            name,
            version,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    pub fn find(&self) -> Result<NonNull<c_void>, Code> {
        if let Some(known) = NonNull::new(self.address.load(Ordering::Acquire)) {
            return Ok(known);
        }
        let found = match proc_address(self.name, self.version, 0) {
            Ok((address, _)) => NonNull::new(address),
            Err(Code::SYMBOL_NOT_FOUND) => None,
            Err(code) => return Err(code),
        };
        let found = found.ok_or(Code::CALL_REQUIRES_NEWER_DRIVER)?;
        self.address.store(found.as_ptr(), Ordering::Release);
        Ok(found)
    }
}

/// Makes one function out of a driver function's name, the CUDA version that introduced the signature
/// given, and that signature.
macro_rules! driver_functions {
    ($($name:ident $c_name:literal $version:literal ($($arg:ident: $kind:ty),*);)*) => {$(
        #[expect(non_snake_case, reason = "the driver's own name")]
        pub(crate) unsafe fn $name($($arg: $kind),*) -> Result<(), Code> {
            static SLOT: Slot = Slot::new($c_name, $version);
            let address = SLOT.find()?.as_ptr();
            // SAFETY: the address was asked for by the name and version that have this signature.
            let function = unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> c_int>(address)
            };
            // SAFETY: the caller keeps the contract of the driver function of this name.
            from_driver(unsafe { function($($arg),*) })
        }
    )*};
}

driver_functions! {
    cuInit c"cuInit" 2000 (flags: c_uint);
    cuDriverGetVersion c"cuDriverGetVersion" 2020 (version: *mut c_int);
    cuDeviceGetCount c"cuDeviceGetCount" 2000 (count: *mut c_int);
    cuDeviceGetName c"cuDeviceGetName" 2000 (name: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetUuid c"cuDeviceGetUuid" 11_040 (uuid: *mut u8, device: c_int);
    cuDeviceTotalMem c"cuDeviceTotalMem" 3020 (bytes: *mut usize, device: c_int);
    cuDeviceGetAttribute c"cuDeviceGetAttribute" 2000 (value: *mut c_int, attribute: c_int, device: c_int);
    cuDeviceGetPCIBusId c"cuDeviceGetPCIBusId" 4010 (id: *mut c_char, length: c_int, device: c_int);
    cuDeviceGetByPCIBusId c"cuDeviceGetByPCIBusId" 4010 (device: *mut c_int, id: *const c_char);
    cuDeviceCanAccessPeer c"cuDeviceCanAccessPeer" 4000 (can: *mut c_int, device: c_int, peer: c_int);
    cuDevicePrimaryCtxRetain c"cuDevicePrimaryCtxRetain" 7000 (context: *mut Handle, device: c_int);
    cuDevicePrimaryCtxReset c"cuDevicePrimaryCtxReset" 11_000 (device: c_int);
    cuDevicePrimaryCtxSetFlags c"cuDevicePrimaryCtxSetFlags" 11_000 (device: c_int, flags: c_uint);
    cuDevicePrimaryCtxGetState c"cuDevicePrimaryCtxGetState" 7000
        (device: c_int, flags: *mut c_uint, active: *mut c_int);
    cuCtxGetCurrent c"cuCtxGetCurrent" 4000 (context: *mut Handle);
    cuCtxSetCurrent c"cuCtxSetCurrent" 4000 (context: Handle);
    cuCtxGetDevice c"cuCtxGetDevice" 2000 (device: *mut c_int);
    cuCtxSynchronize c"cuCtxSynchronize" 2000 ();
    cuCtxEnablePeerAccess c"cuCtxEnablePeerAccess" 4000 (peer: Handle, flags: c_uint);
    cuCtxGetLimit c"cuCtxGetLimit" 3010 (value: *mut usize, limit: c_int);
    cuCtxSetLimit c"cuCtxSetLimit" 3010 (limit: c_int, value: usize);
    cuCtxGetCacheConfig c"cuCtxGetCacheConfig" 3020 (config: *mut c_int);
    cuCtxSetCacheConfig c"cuCtxSetCacheConfig" 3020 (config: c_int);
    cuCtxGetStreamPriorityRange c"cuCtxGetStreamPriorityRange" 5050 (least: *mut c_int, greatest: *mut c_int);

    cuModuleLoadData c"cuModuleLoadData" 2000 (module: *mut Handle, image: *const c_void);
    cuModuleUnload c"cuModuleUnload" 2000 (module: Handle);
    cuModuleGetFunction c"cuModuleGetFunction" 2000 (function: *mut Handle, module: Handle, name: *const c_char);
    cuModuleGetGlobal c"cuModuleGetGlobal" 3020
        (address: *mut Address, bytes: *mut usize, module: Handle, name: *const c_char);
    cuLaunchKernel c"cuLaunchKernel" 4000
        (function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
         block_z: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx c"cuLaunchKernelEx" 11_060
        (config: *const c_void, function: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel c"cuLaunchCooperativeKernel" 9000
        (function: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
         block_z: c_uint, shared: c_uint, stream: Handle, arguments: *mut *mut c_void);
    cuLaunchHostFunc c"cuLaunchHostFunc" 10_000 (stream: Handle, function: HostFunction, data: *mut c_void);
    cuFuncGetAttribute c"cuFuncGetAttribute" 2020 (value: *mut c_int, attribute: c_int, function: Handle);
    cuFuncSetAttribute c"cuFuncSetAttribute" 9000 (function: Handle, attribute: c_int, value: c_int);
    cuFuncSetCacheConfig c"cuFuncSetCacheConfig" 3000 (function: Handle, config: c_int);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        c"cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags" 7000
        (blocks: *mut c_int, function: Handle, block_size: c_int, shared: usize, flags: c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock c"cuOccupancyAvailableDynamicSMemPerBlock" 10_020
        (bytes: *mut usize, function: Handle, blocks: c_int, block_size: c_int);

    cuMemAlloc c"cuMemAlloc" 3020 (address: *mut Address, bytes: usize);
    cuMemAllocPitch c"cuMemAllocPitch" 3020
        (address: *mut Address, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocManaged c"cuMemAllocManaged" 6000 (address: *mut Address, bytes: usize, flags: c_uint);
    cuMemFree c"cuMemFree" 3020 (address: Address);
    cuMemGetInfo c"cuMemGetInfo" 3020 (free: *mut usize, total: *mut usize);
    cuMemAllocHost c"cuMemAllocHost" 3020 (pointer: *mut *mut c_void, bytes: usize);
    cuMemHostAlloc c"cuMemHostAlloc" 2020 (pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost c"cuMemFreeHost" 2000 (pointer: *mut c_void);
    cuMemHostRegister c"cuMemHostRegister" 6050 (pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister c"cuMemHostUnregister" 4000 (pointer: *mut c_void);
    cuMemHostGetDevicePointer c"cuMemHostGetDevicePointer" 3020
        (address: *mut Address, pointer: *mut c_void, flags: c_uint);
    cuMemHostGetFlags c"cuMemHostGetFlags" 2030 (flags: *mut c_uint, pointer: *mut c_void);
    cuPointerGetAttribute c"cuPointerGetAttribute" 4000
        (value: *mut c_void, attribute: c_int, address: Address);
    cuMemAllocAsync c"cuMemAllocAsync" 11_020 (address: *mut Address, bytes: usize, stream: Handle);
    cuMemFreeAsync c"cuMemFreeAsync" 11_020 (address: Address, stream: Handle);
    cuMemAllocFromPoolAsync c"cuMemAllocFromPoolAsync" 11_020
        (address: *mut Address, bytes: usize, pool: Handle, stream: Handle);
    cuDeviceGetDefaultMemPool c"cuDeviceGetDefaultMemPool" 11_020 (pool: *mut Handle, device: c_int);
    cuDeviceGetMemPool c"cuDeviceGetMemPool" 11_020 (pool: *mut Handle, device: c_int);
    cuDeviceSetMemPool c"cuDeviceSetMemPool" 11_020 (device: c_int, pool: Handle);
    cuMemPoolTrimTo c"cuMemPoolTrimTo" 11_020 (pool: Handle, keep: usize);
    cuMemPoolGetAttribute c"cuMemPoolGetAttribute" 11_020 (pool: Handle, attribute: c_int, value: *mut c_void);
    cuMemPoolSetAttribute c"cuMemPoolSetAttribute" 11_020 (pool: Handle, attribute: c_int, value: *mut c_void);

    cuArrayCreate c"cuArrayCreate" 3020 (array: *mut Handle, shape: *const crate::array::Shape2);
    cuArray3DCreate c"cuArray3DCreate" 3020 (array: *mut Handle, shape: *const crate::array::Shape3);
    cuArray3DGetDescriptor c"cuArray3DGetDescriptor" 3020 (shape: *mut crate::array::Shape3, array: Handle);
    cuArrayDestroy c"cuArrayDestroy" 2000 (array: Handle);

    cuMemcpy c"cuMemcpy" 4000 (to: Address, from: Address, bytes: usize);
    cuMemcpyHtoD c"cuMemcpyHtoD" 3020 (to: Address, from: *const c_void, bytes: usize);
    cuMemcpyDtoH c"cuMemcpyDtoH" 3020 (to: *mut c_void, from: Address, bytes: usize);
    cuMemcpyDtoD c"cuMemcpyDtoD" 3020 (to: Address, from: Address, bytes: usize);
    cuMemcpyAsync c"cuMemcpyAsync" 4000 (to: Address, from: Address, bytes: usize, stream: Handle);
    cuMemcpyHtoDAsync c"cuMemcpyHtoDAsync" 3020
        (to: Address, from: *const c_void, bytes: usize, stream: Handle);
    cuMemcpyDtoHAsync c"cuMemcpyDtoHAsync" 3020 (to: *mut c_void, from: Address, bytes: usize, stream: Handle);
    cuMemcpyDtoDAsync c"cuMemcpyDtoDAsync" 3020 (to: Address, from: Address, bytes: usize, stream: Handle);
    cuMemcpy2D c"cuMemcpy2DUnaligned" 3020 (copy: *const crate::copy::Copy2);
    cuMemcpy2DAsync c"cuMemcpy2DAsync" 3020 (copy: *const crate::copy::Copy2, stream: Handle);
    cuMemsetD8 c"cuMemsetD8" 3020 (to: Address, value: u8, bytes: usize);
    cuMemsetD8Async c"cuMemsetD8Async" 3020 (to: Address, value: u8, bytes: usize, stream: Handle);
    cuMemsetD2D8 c"cuMemsetD2D8" 3020 (to: Address, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async c"cuMemsetD2D8Async" 3020
        (to: Address, pitch: usize, value: u8, width: usize, height: usize, stream: Handle);

    cuStreamCreateWithPriority c"cuStreamCreateWithPriority" 5050
        (stream: *mut Handle, flags: c_uint, priority: c_int);
    cuStreamCreate c"cuStreamCreate" 2000 (stream: *mut Handle, flags: c_uint);
    cuStreamDestroy c"cuStreamDestroy" 4000 (stream: Handle);
    cuStreamSynchronize c"cuStreamSynchronize" 2000 (stream: Handle);
    cuStreamQuery c"cuStreamQuery" 2000 (stream: Handle);
    cuStreamWaitEvent c"cuStreamWaitEvent" 3020 (stream: Handle, event: Handle, flags: c_uint);
    cuStreamAddCallback c"cuStreamAddCallback" 5000
        (stream: Handle, callback: StreamCallback, data: *mut c_void, flags: c_uint);
    cuStreamGetPriority c"cuStreamGetPriority" 5050 (stream: Handle, priority: *mut c_int);
    cuStreamGetFlags c"cuStreamGetFlags" 5050 (stream: Handle, flags: *mut c_uint);
    cuThreadExchangeStreamCaptureMode c"cuThreadExchangeStreamCaptureMode" 10_010 (mode: *mut c_int);
    cuStreamIsCapturing c"cuStreamIsCapturing" 10_000 (stream: Handle, status: *mut c_int);

    cuEventCreate c"cuEventCreate" 2000 (event: *mut Handle, flags: c_uint);
    cuEventRecord c"cuEventRecord" 2000 (event: Handle, stream: Handle);
    cuEventQuery c"cuEventQuery" 2000 (event: Handle);
    cuEventSynchronize c"cuEventSynchronize" 2000 (event: Handle);
    cuEventElapsedTime c"cuEventElapsedTime" 2000 (milliseconds: *mut f32, start: Handle, end: Handle);
    cuEventDestroy c"cuEventDestroy" 4000 (event: Handle);
}

/// Makes runtime entry points out of a call with the same arguments, made in the primary context: a driver
/// function, or a function of ours with the same contract.
macro_rules! forward {
    ($($name:ident = $call:path, ($($arg:ident: $kind:ty),* $(,)?);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> std::ffi::c_int {
            crate::error::answer(crate::context::bind().and_then(|()| {
                // SAFETY: the contract of the runtime function is that of the call; the caller keeps it.
                unsafe { $call($($arg),*) }
            }))
        }
    )*};
}
pub(crate) use forward;
