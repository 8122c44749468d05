//! Kernel launches, and what can be asked about a kernel.

use crate::driver::{self, Handle, HostFunction, forward};
use crate::error::{Code, answer};
use crate::registry::kernel;
use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

/// `dim3`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dim3 {
    x: c_uint,
    y: c_uint,
    z: c_uint,
}

/// What stands between `<<<` and `>>>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Debug)]
pub struct LaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
    attributes: *const c_void,
    attribute_count: c_uint,
}

/// `CUlaunchConfig`: the same with the driver's narrower count of shared bytes. Attributes have one layout
/// in both interfaces.
#[repr(C)]
struct DriverLaunchConfig {
    grid: Dim3,
    block: Dim3,
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const c_void,
    attribute_count: c_uint,
}

/// `cudaFuncAttributes`, up to the fields that both CUDA 12 and 13 have in this place.
#[repr(C)]
#[derive(Debug, Default)]
pub struct FunctionAttributes {
    shared_bytes: usize,
    constant_bytes: usize,
    local_bytes: usize,
    max_threads_per_block: c_int,
    registers: c_int,
    ptx_version: c_int,
    binary_version: c_int,
    cache_mode: c_int,
    max_dynamic_shared_bytes: c_int,
    preferred_carveout: c_int,
}

thread_local! {
    static PUSHED: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// Keeps a launch configuration until the kernel's stub takes it.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(
    grid: Dim3,
    block: Dim3,
    shared_bytes: usize,
    stream: Handle,
) -> c_uint {
    PUSHED.with_borrow_mut(|pushed| {
        pushed.push(Configuration {
            grid,
            block,
            shared_bytes,
            stream,
        })
    });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaPopCallConfiguration(
    grid: *mut Dim3,
    block: *mut Dim3,
    shared_bytes: *mut usize,
    stream: *mut Handle,
) -> c_int {
    let Some(configuration) = PUSHED.with_borrow_mut(Vec::pop) else {
        return answer(Err(Code::MISSING_CONFIGURATION));
    };
    // SAFETY: the stub that nvcc writes passes its own variables, for all four.
    unsafe { grid.write(configuration.grid) };
    // SAFETY: as above.
    unsafe { block.write(configuration.block) };
    // SAFETY: as above.
    unsafe { shared_bytes.write(configuration.shared_bytes) };
    // SAFETY: as above.
    unsafe { stream.write(configuration.stream) };
    0
}

forward! {
    cudaLaunchKernel = launch,
        (host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
         stream: Handle);
    __cudaLaunchKernel = launch,
        (handle: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
         stream: Handle);
    cudaLaunchCooperativeKernel = launch_cooperative,
        (host: *const c_void, grid: Dim3, block: Dim3, arguments: *mut *mut c_void, shared_bytes: usize,
         stream: Handle);
    cudaLaunchKernelExC = launch_ex,
        (config: *const LaunchConfig, host: *const c_void, arguments: *mut *mut c_void);
    cudaLaunchHostFunc = driver::cuLaunchHostFunc,
        (stream: Handle, function: HostFunction, data: *mut c_void);
    cudaFuncGetAttributes = function_attributes, (out: *mut FunctionAttributes, host: *const c_void);
    cudaFuncSetAttribute = set_function_attribute, (host: *const c_void, attribute: c_int, value: c_int);
    cudaFuncSetCacheConfig = set_cache_config, (host: *const c_void, config: c_int);
    cudaFuncGetName = function_name, (out: *mut *const std::ffi::c_char, host: *const c_void);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor = occupancy,
        (out: *mut c_int, host: *const c_void, block_size: c_int, shared_bytes: usize);
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = occupancy_with_flags,
        (out: *mut c_int, host: *const c_void, block_size: c_int, shared_bytes: usize, flags: c_uint);
    cudaOccupancyAvailableDynamicSMemPerBlock = available_shared,
        (out: *mut usize, host: *const c_void, blocks: c_int, block_size: c_int);
}

/// Dynamic shared memory in the driver's width.
fn shared(bytes: usize) -> Result<c_uint, Code> {
    c_uint::try_from(bytes).map_err(|_| Code::INVALID_VALUE)
}

unsafe fn launch(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> Result<(), Code> {
    let function = kernel(host)?.function()?;
    let shared = shared(shared_bytes)?;
    let (g, b, extra) = (grid, block, ptr::null_mut());
    // SAFETY: the function is of a loaded module; the arguments are the caller's contract.
    unsafe {
        driver::cuLaunchKernel(
            function, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, arguments, extra,
        )
    }
}

unsafe fn launch_cooperative(
    host: *const c_void,
    grid: Dim3,
    block: Dim3,
    arguments: *mut *mut c_void,
    shared_bytes: usize,
    stream: Handle,
) -> Result<(), Code> {
    let function = kernel(host)?.function()?;
    let shared = shared(shared_bytes)?;
    let (g, b) = (grid, block);
    // SAFETY: the function is of a loaded module; the arguments are the caller's contract.
    unsafe {
        driver::cuLaunchCooperativeKernel(function, g.x, g.y, g.z, b.x, b.y, b.z, shared, stream, arguments)
    }
}

unsafe fn launch_ex(
    config: *const LaunchConfig,
    host: *const c_void,
    arguments: *mut *mut c_void,
) -> Result<(), Code> {
    // SAFETY: the caller gave null or a valid configuration.
    let config = unsafe { config.as_ref() }.ok_or(Code::INVALID_VALUE)?;
    let function = kernel(host)?.function()?;
    let config = DriverLaunchConfig {
        grid: config.grid,
        block: config.block,
        shared_bytes: shared(config.shared_bytes)?,
        stream: config.stream,
        attributes: config.attributes,
        attribute_count: config.attribute_count,
    };
    // SAFETY: the configuration is ours, its attributes and the arguments are the caller's contract.
    unsafe { driver::cuLaunchKernelEx((&raw const config).cast(), function, arguments, ptr::null_mut()) }
}

/// Asks the driver for each attribute, by its number there.
unsafe fn function_attributes(out: *mut FunctionAttributes, host: *const c_void) -> Result<(), Code> {
    let function = kernel(host)?.function()?;
    let ask = |attribute| {
        let mut value = 0;
        // SAFETY: the output is ours and the function is of a loaded module.
        unsafe { driver::cuFuncGetAttribute(&raw mut value, attribute, function) }.map(|()| value)
    };
    let bytes = |attribute| ask(attribute).map(|value| usize::try_from(value).unwrap_or(0));
    let found = FunctionAttributes {
        max_threads_per_block: ask(0)?,
        shared_bytes: bytes(1)?,
        constant_bytes: bytes(2)?,
        local_bytes: bytes(3)?,
        registers: ask(4)?,
        ptx_version: ask(5)?,
        binary_version: ask(6)?,
        cache_mode: ask(7)?,
        max_dynamic_shared_bytes: ask(8)?,
        preferred_carveout: ask(9)?,
    };
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe { out.write(found) };
    Ok(())
}

unsafe fn set_function_attribute(host: *const c_void, attribute: c_int, value: c_int) -> Result<(), Code> {
    // SAFETY: the function is of a loaded module.
    unsafe { driver::cuFuncSetAttribute(kernel(host)?.function()?, attribute, value) }
}

unsafe fn set_cache_config(host: *const c_void, config: c_int) -> Result<(), Code> {
    // SAFETY: the function is of a loaded module.
    unsafe { driver::cuFuncSetCacheConfig(kernel(host)?.function()?, config) }
}

unsafe fn function_name(out: *mut *const std::ffi::c_char, host: *const c_void) -> Result<(), Code> {
    let name = kernel(host)?.name;
    if out.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller gave a valid output, which is not null.
    unsafe { out.write(name.as_ptr()) };
    Ok(())
}

unsafe fn occupancy(
    out: *mut c_int,
    host: *const c_void,
    block_size: c_int,
    shared_bytes: usize,
) -> Result<(), Code> {
    // SAFETY: as the caller's contract.
    unsafe { occupancy_with_flags(out, host, block_size, shared_bytes, 0) }
}

unsafe fn occupancy_with_flags(
    out: *mut c_int,
    host: *const c_void,
    block_size: c_int,
    shared_bytes: usize,
    flags: c_uint,
) -> Result<(), Code> {
    let function = kernel(host)?.function()?;
    // SAFETY: the function is of a loaded module; the output is the caller's contract.
    unsafe {
        driver::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            out,
            function,
            block_size,
            shared_bytes,
            flags,
        )
    }
}

unsafe fn available_shared(
    out: *mut usize,
    host: *const c_void,
    blocks: c_int,
    block_size: c_int,
) -> Result<(), Code> {
    let function = kernel(host)?.function()?;
    // SAFETY: the function is of a loaded module; the output is the caller's contract.
    unsafe { driver::cuOccupancyAvailableDynamicSMemPerBlock(out, function, blocks, block_size) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_taken_once_and_the_last_one_first() {
        let one = Dim3 { x: 1, y: 1, z: 1 };
        let wide = Dim3 { x: 64, y: 2, z: 1 };
        __cudaPushCallConfiguration(one, one, 0, ptr::null_mut());
        __cudaPushCallConfiguration(wide, one, 16, ptr::null_mut());
        let (mut grid, mut block, mut bytes, mut stream) = (one, one, 0, ptr::null_mut());
        // SAFETY: the outputs are ours.
        let mut pop = || unsafe {
            __cudaPopCallConfiguration(&raw mut grid, &raw mut block, &raw mut bytes, &raw mut stream)
        };
        assert_eq!(pop(), 0);
        assert_eq!(pop(), 0);
        assert_eq!(pop(), Code::MISSING_CONFIGURATION.0);
        assert_eq!((grid, bytes), (one, 0));
    }

    #[test]
    fn structures_have_the_sizes_of_the_headers() {
        assert_eq!(size_of::<Dim3>(), 12);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(size_of::<DriverLaunchConfig>(), 56);
        assert_eq!(size_of::<FunctionAttributes>(), 56);
    }
}
