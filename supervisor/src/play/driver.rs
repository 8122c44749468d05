//! A device behind `libcuda.so.1`, opened and looked up as a program without a runtime would do it.

use super::device::{Argument, Buffer, Device, Shape, Total};
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::ptr;

/// Why a program did not play to its end.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// There is no program of this name.
    #[error("no program `{0}`")]
    UnknownProgram(String),
    /// An argument that the program cannot work with.
    #[error("{0}")]
    Argument(String),
    /// The driver's library, or a function of it, was not found.
    #[error("libcuda.so.1: {0}")]
    Library(#[from] libloading::Error),
    /// A driver call failed.
    #[error("{program}: {call}: {code}")]
    Driver {
        /// The program that made it.
        program: &'static str,
        /// The call, with the bytes asked for where it allocates.
        call: String,
        /// The name of the driver's code, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        code: String,
    },
}

impl PlayError {
    /// The exit status that tells it: 1 for a failed call, 2 for bad input, 3 for no driver.
    #[must_use]
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Driver { .. } => 1,
            Self::UnknownProgram(_) | Self::Argument(_) => 2,
            Self::Library(_) => 3,
        }
    }
}

type Code = c_int;
type Handle = *mut c_void;

/// The driver functions that programs use, by the names of their present signatures.
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Code,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Code,
    retain: unsafe extern "C" fn(*mut Handle, c_int) -> Code,
    set_current: unsafe extern "C" fn(Handle) -> Code,
    load: unsafe extern "C" fn(*mut Handle, *const c_void) -> Code,
    function: unsafe extern "C" fn(*mut Handle, Handle, *const c_char) -> Code,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> Code,
    free: unsafe extern "C" fn(u64) -> Code,
    upload: unsafe extern "C" fn(u64, *const c_void, usize) -> Code,
    download: unsafe extern "C" fn(*mut c_void, u64, usize) -> Code,
    fill: unsafe extern "C" fn(u64, u8, usize) -> Code,
    launch: unsafe extern "C" fn(
        Handle,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        Handle,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Code,
    synchronize: unsafe extern "C" fn() -> Code,
    error_name: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
}

impl Functions {
    fn open() -> Result<Self, libloading::Error> {
        // SAFETY: loading the CUDA driver's library runs its own start-up code, nothing else.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }?;
        // Never closed: the driver has threads of its own, which run the library's code until the process ends.
        let library = ManuallyDrop::new(library);
        macro_rules! find {
            ($name:literal) => {
                // SAFETY: the driver's symbol of this name has the signature of the field it is put in.
                *unsafe { library.get($name) }?
            };
        }
        Ok(Self {
            init: find!(c"cuInit"),
            device: find!(c"cuDeviceGet"),
            retain: find!(c"cuDevicePrimaryCtxRetain"),
            set_current: find!(c"cuCtxSetCurrent"),
            load: find!(c"cuModuleLoadData"),
            function: find!(c"cuModuleGetFunction"),
            allocate: find!(c"cuMemAlloc_v2"),
            free: find!(c"cuMemFree_v2"),
            upload: find!(c"cuMemcpyHtoD_v2"),
            download: find!(c"cuMemcpyDtoH_v2"),
            fill: find!(c"cuMemsetD8_v2"),
            launch: find!(c"cuLaunchKernel"),
            synchronize: find!(c"cuCtxSynchronize"),
            error_name: find!(c"cuGetErrorName"),
        })
    }

    fn name(&self, code: Code) -> String {
        let mut name = ptr::null();
        // SAFETY: the output is ours.
        let found = unsafe { (self.error_name)(code, &raw mut name) };
        if found != 0 || name.is_null() {
            return format!("error {code}");
        }
        // SAFETY: the driver succeeded and gave a string constant of its own.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }
}

/// The first device, with a program's module loaded in its primary context.
pub(super) struct Driver {
    program: &'static str,
    functions: Functions,
    module: Handle,
    kernels: HashMap<&'static CStr, Handle>,
    sizes: HashMap<Buffer, u64>,
    total: Total,
}

impl Driver {
    /// Starts CUDA on device 0 and loads the program's PTX.
    pub fn open(program: &'static str, ptx: &'static CStr) -> Result<Self, PlayError> {
        let mut driver = Self {
            program,
            functions: Functions::open()?,
            module: ptr::null_mut(),
            kernels: HashMap::new(),
            sizes: HashMap::new(),
            total: Total::default(),
        };
        // SAFETY: no pointer is passed.
        driver.check("cuInit", unsafe { (driver.functions.init)(0) })?;
        let mut device = 0;
        // SAFETY: the output is ours.
        driver.check("cuDeviceGet", unsafe {
            (driver.functions.device)(&raw mut device, 0)
        })?;
        let mut context = ptr::null_mut();
        // SAFETY: the output is ours and the device was just given by the driver.
        let retained = unsafe { (driver.functions.retain)(&raw mut context, device) };
        driver.check("cuDevicePrimaryCtxRetain", retained)?;
        // SAFETY: the context was just retained.
        driver.check("cuCtxSetCurrent", unsafe {
            (driver.functions.set_current)(context)
        })?;
        let mut module = ptr::null_mut();
        // SAFETY: the output is ours; the PTX is a constant that ends in a zero.
        let loaded = unsafe { (driver.functions.load)(&raw mut module, ptx.as_ptr().cast()) };
        driver.check("cuModuleLoadData", loaded)?;
        driver.module = module;
        Ok(driver)
    }

    /// The most bytes that were allocated at once.
    pub const fn peak(&self) -> u64 {
        self.total.peak
    }

    fn check(&self, call: impl Into<String>, code: Code) -> Result<(), PlayError> {
        if code == 0 {
            return Ok(());
        }
        Err(PlayError::Driver {
            program: self.program,
            call: call.into(),
            code: self.functions.name(code),
        })
    }

    fn kernel(&mut self, name: &'static CStr) -> Result<Handle, PlayError> {
        if let Some(&known) = self.kernels.get(name) {
            return Ok(known);
        }
        let mut function = ptr::null_mut();
        // SAFETY: the output is ours, the module is loaded and the name is a C string.
        let code = unsafe { (self.functions.function)(&raw mut function, self.module, name.as_ptr()) };
        self.check(format!("cuModuleGetFunction of {}", name.to_string_lossy()), code)?;
        self.kernels.insert(name, function);
        Ok(function)
    }
}

/// Bytes as the driver takes them.
fn wide(bytes: u64) -> Result<usize, PlayError> {
    usize::try_from(bytes).map_err(|_| PlayError::Argument(format!("{bytes} bytes cannot be addressed")))
}

impl Device for Driver {
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, PlayError> {
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: the output is ours.
            let code = unsafe { (self.functions.allocate)(&raw mut address, wide(bytes)?) };
            self.check(format!("cuMemAlloc of {bytes} bytes"), code)?;
            self.sizes.insert(Buffer(address), bytes);
            self.total.add(bytes);
        }
        Ok(Buffer(address))
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), PlayError> {
        let Some(bytes) = self.sizes.remove(&buffer) else {
            return Ok(());
        };
        self.total.take(bytes);
        // SAFETY: the address was given by the driver and is freed once.
        self.check("cuMemFree", unsafe { (self.functions.free)(buffer.0) })
    }

    fn launch(&mut self, name: &'static CStr, shape: Shape, arguments: &[Argument]) -> Result<(), PlayError> {
        let kernel = self.kernel(name)?;
        // The driver reads as many bytes at each pointer as the kernel declares.
        let mut pointers: Vec<*mut c_void> = arguments
            .iter()
            .map(|argument| {
                let value: *const c_void = match argument {
                    Argument::Buffer(Buffer(address)) => ptr::from_ref(address).cast(),
                    Argument::U32(value) => ptr::from_ref(value).cast(),
                    Argument::U64(value) => ptr::from_ref(value).cast(),
                    Argument::F32(value) => ptr::from_ref(value).cast(),
                };
                value.cast_mut()
            })
            .collect();
        let (grid, block) = (shape.grid, shape.block);
        // SAFETY: the kernel is of the loaded module. The arguments have the count and widths that its PTX
        // declares, which a test checks for every launch, and live until the call returns.
        let code = unsafe {
            (self.functions.launch)(
                kernel,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                ptr::null_mut(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check(format!("cuLaunchKernel of {}", name.to_string_lossy()), code)
    }

    fn upload(&mut self, to: Buffer, offset: u64, bytes: &[u8]) -> Result<(), PlayError> {
        // SAFETY: the source is of this length; the driver checks the destination.
        let code = unsafe { (self.functions.upload)(to.0 + offset, bytes.as_ptr().cast(), bytes.len()) };
        self.check("cuMemcpyHtoD", code)
    }

    fn download(&mut self, from: Buffer, bytes: &mut [u8]) -> Result<(), PlayError> {
        // SAFETY: the destination is of this length; the driver checks the source.
        let code = unsafe { (self.functions.download)(bytes.as_mut_ptr().cast(), from.0, bytes.len()) };
        self.check("cuMemcpyDtoH", code)
    }

    fn clear(&mut self, buffer: Buffer, bytes: u64) -> Result<(), PlayError> {
        // SAFETY: no host memory is passed; the driver checks the destination.
        self.check("cuMemsetD8", unsafe {
            (self.functions.fill)(buffer.0, 0, wide(bytes)?)
        })
    }

    fn synchronize(&mut self) -> Result<(), PlayError> {
        // SAFETY: no pointer is passed.
        self.check("cuCtxSynchronize", unsafe { (self.functions.synchronize)() })
    }
}
