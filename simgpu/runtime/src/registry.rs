//! Kernels and variables that a program registers before `main`, and the modules that hold them.
//!
//! A module is loaded when something in it is first used on a device. Objects handed out (`cudaKernel_t`,
//! the fat binary's handle) are never freed: a program holds their addresses in static variables.

use crate::context;
use crate::driver::{self, Address, Handle};
use crate::error::{Code, answer};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What `nvcc` puts around an embedded fat binary.
#[repr(C)]
struct Wrapper {
    magic: c_uint,
    version: c_uint,
    data: *const c_void,
    _prelinked: *const c_void,
}

const WRAPPER_MAGIC: c_uint = 0x4662_43b1;

/// One embedded fat binary.
struct Binary {
    /// Address of the image.
    image: usize,
    variables: Vec<(&'static CStr, usize)>,
    /// Module by device.
    modules: HashMap<c_int, usize>,
}

/// One registered kernel. Its address is the `cudaKernel_t` and `cudaFunction_t` of the program.
pub(crate) struct Kernel {
    binary: usize,
    pub name: &'static CStr,
    /// Function by device.
    functions: Mutex<HashMap<c_int, usize>>,
}

#[derive(Clone, Copy)]
struct Variable {
    binary: usize,
    name: &'static CStr,
    bytes: usize,
}

#[derive(Default)]
struct Registry {
    /// By handle: the address given to the program.
    binaries: HashMap<usize, Binary>,
    /// By the address of the host function that stands for the kernel, and by the kernel's own, which is
    /// its handle.
    kernels: HashMap<usize, &'static Kernel>,
    /// By the address of the host variable that stands for the device's.
    variables: HashMap<usize, Variable>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    // A panic while the lock was held cannot leave a half-made entry: each is one insertion.
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Defines a variable in a module whose image the driver does not read: module, name, bytes.
type DefineGlobal = unsafe extern "C" fn(Handle, *const c_char, usize) -> c_int;

impl Registry {
    /// The module of a binary on a device, loaded if it was not.
    fn module(&mut self, binary: usize, device: c_int) -> Result<Handle, Code> {
        let binary = self.binaries.get_mut(&binary).ok_or(Code::INVALID_HANDLE)?;
        if let Some(&module) = binary.modules.get(&device) {
            return Ok(ptr::with_exposed_provenance_mut(module));
        }
        let image: *const c_void = ptr::with_exposed_provenance(binary.image);
        let mut module: Handle = ptr::null_mut();
        // SAFETY: the image is a constant of the program or of a library that has not unregistered it.
        unsafe { driver::cuModuleLoadData(&raw mut module, image) }?;
        // The simulated driver reads no fat binary, so it is told what variables there are. A real one has
        // no such export and knows them.
        if let Ok(define) = driver::export(c"simgpuModuleGlobal") {
            // SAFETY: the only library with a symbol of this name gives it this signature.
            let define = unsafe { mem::transmute::<*mut c_void, DefineGlobal>(define.as_ptr()) };
            for &(name, bytes) in &binary.variables {
                // SAFETY: the module was just loaded; the name is a C string.
                crate::error::from_driver(unsafe { define(module, name.as_ptr(), bytes) })?;
            }
        }
        binary.modules.insert(device, module.expose_provenance());
        Ok(module)
    }
}

/// The kernel that a host function stands for, or that a handle of `__cudaGetKernel` is: the runtime's
/// calls take either.
pub(crate) fn kernel(host: *const c_void) -> Result<&'static Kernel, Code> {
    registry()
        .kernels
        .get(&host.addr())
        .copied()
        .ok_or(Code::INVALID_FUNCTION)
}

impl Kernel {
    /// The kernel's function in the context that is current, its module loaded if it was not.
    pub fn function(&self) -> Result<Handle, Code> {
        let device = context::current_device()?;
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&function) = functions.get(&device) {
            return Ok(ptr::with_exposed_provenance_mut(function));
        }
        let module = registry().module(self.binary, device)?;
        let mut function: Handle = ptr::null_mut();
        // SAFETY: the module is loaded; the name is a C string.
        unsafe { driver::cuModuleGetFunction(&raw mut function, module, self.name.as_ptr()) }?;
        functions.insert(device, function.expose_provenance());
        Ok(function)
    }
}

/// Address and size in bytes of the device variable that a host variable stands for.
pub(crate) fn variable(host: *const c_void) -> Result<(Address, usize), Code> {
    let device = context::current_device()?;
    let mut registry = registry();
    let variable = *registry.variables.get(&host.addr()).ok_or(Code::INVALID_SYMBOL)?;
    let module = registry.module(variable.binary, device)?;
    let (mut address, mut bytes) = (0, 0);
    // SAFETY: the outputs are ours, the module is loaded and the name is a C string.
    unsafe { driver::cuModuleGetGlobal(&raw mut address, &raw mut bytes, module, variable.name.as_ptr()) }?;
    Ok((address, bytes.min(variable.bytes)))
}

/// Forgets what was loaded on a device: its context is about to be destroyed.
pub(crate) fn forget_device(device: c_int) {
    let kernels: Vec<_> = {
        let mut registry = registry();
        for binary in registry.binaries.values_mut() {
            binary.modules.remove(&device);
        }
        registry.kernels.values().copied().collect()
    };
    // Without the registry's lock: a launch takes a kernel's lock first and the registry's inside it.
    for kernel in kernels {
        kernel
            .functions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&device);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void {
    // SAFETY: nvcc's start-up code passes the address of its static wrapper.
    let found = unsafe { &*wrapper.cast::<Wrapper>() };
    let image = if found.magic == WRAPPER_MAGIC {
        found.data
    } else {
        wrapper
    };
    let handle = Box::leak(Box::new(ptr::null_mut::<c_void>()));
    let key = ptr::from_ref(handle).addr();
    let image = image.expose_provenance();
    registry().binaries.insert(
        key,
        Binary {
            image,
            variables: Vec::new(),
            modules: HashMap::new(),
        },
    );
    handle
}

#[unsafe(no_mangle)]
pub extern "C" fn __cudaRegisterFatBinaryEnd(_binary: *mut *mut c_void) {}

/// Runs at exit and when a library is unloaded; the driver may be gone by then, so its answers are not
/// looked at.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    let mut registry = registry();
    let key = handle.addr();
    registry.kernels.retain(|_, kernel| kernel.binary != key);
    registry.variables.retain(|_, variable| variable.binary != key);
    if let Some(binary) = registry.binaries.remove(&key) {
        for module in binary.modules.into_values() {
            // SAFETY: the module was loaded here and nothing of it is handed out any more.
            let _ = unsafe { driver::cuModuleUnload(ptr::with_exposed_provenance_mut(module)) };
        }
    }
}

/// Nothing is left to do for managed variables: see `__cudaRegisterVar`.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaInitModule(_binary: *mut *mut c_void) -> c_char {
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterFunction(
    binary: *mut *mut c_void,
    host: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_size: *mut c_void,
    _grid_size: *mut c_void,
    _warp_size: *mut c_int,
) {
    // SAFETY: nvcc passes a string constant of the program, which outlives the registration.
    let name = unsafe { CStr::from_ptr(name) };
    let kernel = Kernel {
        binary: binary.addr(),
        name,
        functions: Mutex::default(),
    };
    let kernel: &'static Kernel = Box::leak(Box::new(kernel));
    let mut registry = registry();
    registry.kernels.insert(host.addr(), kernel);
    registry.kernels.insert(ptr::from_ref(kernel).addr(), kernel);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaRegisterVar(
    binary: *mut *mut c_void,
    host: *const c_char,
    _device_address: *mut c_char,
    name: *const c_char,
    _external: c_int,
    bytes: usize,
    _constant: c_int,
    _global: c_int,
) {
    // SAFETY: nvcc passes a string constant of the program, which outlives the registration.
    let name = unsafe { CStr::from_ptr(name) };
    let mut registry = registry();
    registry.variables.insert(
        host.addr(),
        Variable {
            binary: binary.addr(),
            name,
            bytes,
        },
    );
    if let Some(binary) = registry.binaries.get_mut(&binary.addr()) {
        binary.variables.push((name, bytes));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cudaGetKernel(out: *mut *const c_void, host: *const c_void) -> c_int {
    answer(kernel(host).and_then(|kernel| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(ptr::from_ref(kernel).cast()) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetKernel(out: *mut *const c_void, host: *const c_void) -> c_int {
    // SAFETY: as the caller's contract.
    unsafe { __cudaGetKernel(out, host) }
}

/// The driver's function for a kernel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetFuncBySymbol(out: *mut Handle, host: *const c_void) -> c_int {
    answer(kernel(host).and_then(Kernel::function).and_then(|function| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(function) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolAddress(out: *mut Address, symbol: *const c_void) -> c_int {
    answer(variable(symbol).and_then(|(address, _)| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(address) };
        Ok(())
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cudaGetSymbolSize(out: *mut usize, symbol: *const c_void) -> c_int {
    answer(variable(symbol).and_then(|(_, bytes)| {
        if out.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gave a valid output, which is not null.
        unsafe { out.write(bytes) };
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    static IMAGE: u8 = 0;
    static HOST_FUNCTION: u8 = 1;
    static HOST_VARIABLE: u8 = 2;

    fn register() -> *mut *mut c_void {
        let wrapper = Wrapper {
            magic: WRAPPER_MAGIC,
            version: 1,
            data: (&raw const IMAGE).cast(),
            _prelinked: ptr::null(),
        };
        // SAFETY: the wrapper lives through the call.
        unsafe { __cudaRegisterFatBinary((&raw const wrapper).cast()) }
    }

    #[test]
    fn what_is_registered_is_found_until_its_binary_goes() {
        let binary = register();
        let host = (&raw const HOST_FUNCTION).cast();
        let null: Handle = ptr::null_mut();
        // SAFETY: all strings are constants.
        unsafe {
            __cudaRegisterFunction(
                binary,
                host,
                null.cast(),
                c"step".as_ptr(),
                -1,
                null,
                null,
                null,
                null,
                null.cast(),
            );
        }
        let variable = &raw const HOST_VARIABLE;
        // SAFETY: as above.
        unsafe {
            __cudaRegisterVar(
                binary,
                variable.cast(),
                null.cast(),
                c"table".as_ptr(),
                0,
                64,
                1,
                0,
            )
        };

        let mut handle = ptr::null();
        // SAFETY: the output is ours.
        assert_eq!(unsafe { __cudaGetKernel(&raw mut handle, host) }, 0);
        assert_eq!(kernel(handle).map(|kernel| kernel.name), Ok(c"step"));
        assert_eq!(kernel(host).map(|kernel| kernel.name), Ok(c"step"));
        assert_eq!(registry().binaries[&binary.addr()].variables, [(c"table", 64)]);
        assert_eq!(
            registry().binaries[&binary.addr()].image,
            (&raw const IMAGE).addr()
        );

        __cudaUnregisterFatBinary(binary);
        assert_eq!(
            kernel(host).map(|kernel| kernel.name),
            Err(Code::INVALID_FUNCTION)
        );
        assert!(!registry().variables.contains_key(&variable.addr()));
    }
}
