//! Calls into the library by name.

use std::ffi::{CStr, CString, c_int};

use libloading::os::unix::Library;

pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_INITIALIZED: i32 = 3;
pub const NO_DEVICE: i32 = 100;
pub const INVALID_CONTEXT: i32 = 201;
pub const INVALID_PTX: i32 = 218;
pub const INVALID_HANDLE: i32 = 400;
pub const NOT_FOUND: i32 = 500;
pub const NOT_READY: i32 = 600;
pub const CONTEXT_IS_DESTROYED: i32 = 709;
pub const NOT_SUPPORTED: i32 = 801;

/// A PTX module with one kernel and one variable of 4,096 bytes.
pub const PTX: &CStr = c".version 7.0\n.target sm_80\n.address_size 64\n\
    .visible .global .align 8 .b8 table[4096];\n.visible .entry axpy() { ret; }\n.visible .entry slow() { ret; }\n\
    .visible .entry hold() { ret; }\n";

/// What can be an argument: numbers and addresses, which go in the same registers.
pub trait Argument {
    fn word(self) -> u64;
}

impl Argument for i32 {
    fn word(self) -> u64 {
        u64::from(self.cast_unsigned())
    }
}

impl Argument for u32 {
    fn word(self) -> u64 {
        u64::from(self)
    }
}

impl Argument for u64 {
    fn word(self) -> u64 {
        self
    }
}

impl Argument for usize {
    fn word(self) -> u64 {
        self as u64
    }
}

impl<T> Argument for &mut T {
    fn word(self) -> u64 {
        std::ptr::from_mut(self).expose_provenance() as u64
    }
}

impl<T> Argument for &T {
    fn word(self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }
}

impl Argument for &CStr {
    fn word(self) -> u64 {
        self.as_ptr().expose_provenance() as u64
    }
}

/// The library, loaded as programs load it.
pub struct Driver {
    library: Library,
}

/// One call; the result code.
#[macro_export]
macro_rules! call {
    ($driver:expr, $name:ident $(, $argument:expr)* $(,)?) => {
        $driver.call(stringify!($name), &[$($crate::calls::Argument::word($argument)),*])
    };
}

/// One call that must succeed.
#[macro_export]
macro_rules! good {
    ($driver:expr, $name:ident $(, $argument:expr)* $(,)?) => {
        assert_eq!($crate::call!($driver, $name $(, $argument)*), 0, stringify!($name $(, $argument)*))
    };
}

impl Driver {
    pub fn load() -> Self {
        // SAFETY: the library's initialisers are those of Rust's standard library.
        let library = unsafe { Library::new(crate::bench::library()) }.unwrap();
        Self { library }
    }

    /// With a context on device 0 current.
    pub fn with_context() -> Self {
        let driver = Self::load();
        good!(driver, cuInit, 0);
        let mut context = 0_u64;
        good!(driver, cuCtxCreate_v2, &mut context, 0, 0);
        driver
    }

    pub fn address(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).unwrap();
        // SAFETY: only the address is used.
        let symbol = unsafe {
            self.library
                .get::<unsafe extern "C" fn()>(name.as_bytes_with_nul())
        };
        symbol.ok().map(|symbol| *symbol as usize as u64)
    }

    pub fn call(&self, name: &str, arguments: &[u64]) -> i32 {
        let address = self
            .address(name)
            .unwrap_or_else(|| panic!("{name} is not exported"));
        call_address(address, arguments)
    }

    pub fn allocate(&self, bytes: u64) -> u64 {
        let mut address = 0_u64;
        good!(self, cuMemAlloc_v2, &mut address, bytes);
        address
    }

    pub fn free_bytes(&self) -> u64 {
        let (mut free, mut total) = (0_u64, 0_u64);
        good!(self, cuMemGetInfo_v2, &mut free, &mut total);
        free
    }

    pub fn stream(&self, flags: u32) -> u64 {
        let mut stream = 0_u64;
        good!(self, cuStreamCreate, &mut stream, flags);
        stream
    }

    pub fn function(&self, name: &CStr) -> u64 {
        let (mut module, mut function) = (0_u64, 0_u64);
        good!(self, cuModuleLoadData, &mut module, PTX);
        good!(self, cuModuleGetFunction, &mut function, module, name);
        function
    }

    pub fn launch(&self, function: u64, stream: u64) {
        good!(
            self,
            cuLaunchKernel,
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            stream,
            0_u64,
            0_u64
        );
    }

    pub fn event(&self) -> u64 {
        let mut event = 0_u64;
        good!(self, cuEventCreate, &mut event, 0);
        event
    }

    pub fn record(&self, stream: u64) -> u64 {
        let event = self.event();
        good!(self, cuEventRecord, event, stream);
        event
    }

    /// Holds streams until all that the test submits meanwhile is queued, so that no gap between two calls counts;
    /// answers the event at which they start.
    pub fn hold(&self, streams: &[u64]) -> u64 {
        let (hold, aside) = (self.function(c"hold"), self.stream(1));
        self.launch(hold, aside);
        let start = self.record(aside);
        streams
            .iter()
            .for_each(|&stream| good!(self, cuStreamWaitEvent, stream, start, 0));
        start
    }

    /// Simulated seconds between two events, once both happened.
    pub fn seconds(&self, start: u64, end: u64) -> f64 {
        good!(self, cuEventSynchronize, end);
        let mut milliseconds = 0_f32;
        good!(self, cuEventElapsedTime, &mut milliseconds, start, end);
        f64::from(milliseconds) / 1e3
    }
}

/// Calls a function of the driver by its address.
pub fn call_address(address: u64, arguments: &[u64]) -> i32 {
    type Function = extern "C" fn(u64, u64, u64, u64, u64, u64, u64, u64, u64, u64, u64) -> c_int;
    let mut words = [0_u64; 11];
    words[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f, g, h, i, j, k] = words;
    // SAFETY: the address is that of a C function that takes words; those beyond what it takes are the caller's.
    let function: Function = unsafe { std::mem::transmute(pointer(address)) };
    function(a, b, c, d, e, f, g, h, i, j, k)
}

/// An address that the driver told, as a pointer.
pub fn pointer(address: u64) -> *const u8 {
    std::ptr::with_exposed_provenance(usize::try_from(address).unwrap())
}
