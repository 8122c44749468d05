//! Devices, versions and the driver's entry points.

use crate::context::{self, bind, ready};
use crate::driver::{self, Handle, forward, proc_address};
use crate::error::{Code, answer};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// 1000 x major + 10 x minor. The static library and `libcudart.so.13` are 13.0.
static VERSION: AtomicI32 = AtomicI32::new(13_000);

/// Sets the version that the runtime answers with: 1000 x major + 10 x minor. Called by a shared object of
/// another version before anything else can call into it.
pub fn answer_as(version: c_int) {
    VERSION.store(version, Ordering::Relaxed);
}

pub(crate) fn runtime_version() -> c_int {
    VERSION.load(Ordering::Relaxed)
}

forward! {
    cudaDeviceSynchronize = driver::cuCtxSynchronize, ();
    cudaThreadSynchronize = driver::cuCtxSynchronize, ();
    cudaDeviceGetLimit = driver::cuCtxGetLimit, (out: *mut usize, limit: c_int);
    cudaDeviceSetLimit = driver::cuCtxSetLimit, (limit: c_int, value: usize);
    cudaDeviceGetCacheConfig = driver::cuCtxGetCacheConfig, (out: *mut c_int);
    cudaDeviceSetCacheConfig = driver::cuCtxSetCacheConfig, (config: c_int);
}

/// Counting devices needs no context. Without a driver there are none, and the error says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceCount(out: *mut c_int) -> c_int {
    if out.is_null() {
        return answer(Err(Code::INVALID_VALUE));
    }
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe { out.write(0) };
    answer(ready().and_then(|()| {
        // SAFETY: as above.
        unsafe { driver::cuDeviceGetCount(out) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDevice(device: c_int) -> c_int {
    answer(context::choose(device))
}

/// Makes a device's context without choosing anything about it: no flag is modelled.
#[unsafe(no_mangle)]
pub extern "C" fn cudaInitDevice(device: c_int, _device_flags: c_uint, _flags: c_uint) -> c_int {
    let before = context::chosen_device();
    answer(context::choose(device).and_then(|()| context::choose(before)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDevice(out: *mut c_int) -> c_int {
    answer(ready().and_then(|()| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(context::chosen_device()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaDeviceReset() -> c_int {
    answer(context::reset())
}

#[unsafe(no_mangle)]
pub extern "C" fn cudaSetDeviceFlags(flags: c_uint) -> c_int {
    answer(ready().and_then(|()| {
        // SAFETY: no pointer is passed.
        unsafe { driver::cuDevicePrimaryCtxSetFlags(context::chosen_device(), flags) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDeviceFlags(out: *mut c_uint) -> c_int {
    answer(ready().and_then(|()| {
        let mut active = 0;
        // SAFETY: the first output is the caller's contract, the second is ours.
        unsafe { driver::cuDevicePrimaryCtxGetState(context::chosen_device(), out, &raw mut active) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) -> c_int {
    answer(ready().and_then(|()| {
        // SAFETY: as the caller's contract. Both interfaces number the attributes alike.
        unsafe { driver::cuDeviceGetAttribute(out, attribute, device) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetPCIBusId(out: *mut c_char, length: c_int, device: c_int) -> c_int {
    answer(ready().and_then(|()| {
        // SAFETY: as the caller's contract.
        unsafe { driver::cuDeviceGetPCIBusId(out, length, device) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceGetByPCIBusId(out: *mut c_int, id: *const c_char) -> c_int {
    answer(ready().and_then(|()| {
        // SAFETY: as the caller's contract.
        unsafe { driver::cuDeviceGetByPCIBusId(out, id) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceCanAccessPeer(out: *mut c_int, device: c_int, peer: c_int) -> c_int {
    answer(ready().and_then(|()| {
        // SAFETY: as the caller's contract.
        unsafe { driver::cuDeviceCanAccessPeer(out, device, peer) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) -> c_int {
    answer(bind().and_then(|()| {
        let peer = context::primary(peer)?;
        // SAFETY: the peer's context was retained and is released only by a reset.
        unsafe { driver::cuCtxEnablePeerAccess(peer, flags) }
    }))
}

/// The version of the driver; 0, and no error, where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaDriverGetVersion(out: *mut c_int) -> c_int {
    if out.is_null() {
        return answer(Err(Code::INVALID_VALUE));
    }
    let mut version = 0;
    // SAFETY: the output is ours. Without a driver it keeps its 0.
    let _ = unsafe { driver::cuDriverGetVersion(&raw mut version) };
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe { out.write(version) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaRuntimeGetVersion(out: *mut c_int) -> c_int {
    if out.is_null() {
        return answer(Err(Code::INVALID_VALUE));
    }
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe { out.write(runtime_version()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPoint(
    name: *const c_char,
    out: *mut Handle,
    flags: c_ulonglong,
    status: *mut c_int,
) -> c_int {
    let version = c_uint::try_from(runtime_version()).unwrap_or(0);
    // SAFETY: as the caller's contract.
    unsafe { cudaGetDriverEntryPointByVersion(name, out, version, flags, status) }
}

/// A driver function by name and version. A name the driver lacks is a status (1), not an error; without
/// a status to write it to, it is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetDriverEntryPointByVersion(
    name: *const c_char,
    out: *mut Handle,
    version: c_uint,
    flags: c_ulonglong,
    status: *mut c_int,
) -> c_int {
    answer(bind().and_then(|()| {
        if name.is_null() || out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a C string, which is not null.
        let name = unsafe { CStr::from_ptr(name) };
        let version = c_int::try_from(version).map_err(|_| Code::INVALID_VALUE)?;
        let (address, found) = match proc_address(name, version, flags) {
            Ok(found) => found,
            Err(Code::SYMBOL_NOT_FOUND) => (ptr::null_mut(), 1),
            Err(code) => return Err(code),
        };
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(address) };
        // SAFETY: the caller gave null or a valid output.
        match unsafe { status.as_mut() } {
            Some(status) => *status = found,
            None if address.is_null() => return Err(Code::SYMBOL_NOT_FOUND),
            None => {}
        }
        Ok(())
    }))
}
