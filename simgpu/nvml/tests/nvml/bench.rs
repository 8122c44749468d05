//! A simulated machine and the library on it.

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::*;

pub(crate) use crate::children::*;

pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const INVALID_ARGUMENT: c_uint = 2;
pub(crate) const NOT_SUPPORTED: c_uint = 3;
pub(crate) const NO_PERMISSION: c_uint = 4;
pub(crate) const NOT_FOUND: c_uint = 6;
pub(crate) const INSUFFICIENT_SIZE: c_uint = 7;
pub(crate) const FUNCTION_NOT_FOUND: c_uint = 13;
pub(crate) const GPU_IS_LOST: c_uint = 15;
pub(crate) const RESET_REQUIRED: c_uint = 16;
pub(crate) const IN_USE: c_uint = 19;
pub(crate) const INSUFFICIENT_RESOURCES: c_uint = 23;
pub(crate) const VERSION_MISMATCH: c_uint = 25;

/// The library holds one machine per process, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) fn library_path() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.parent().unwrap().join("libsimgpu_nvml.so")
}

/// A machine of a test's own, and the library on it.
pub(crate) struct Bench {
    pub(crate) nvml: Option<Nvml>,
    id: CString,
    pub(crate) control: libloading::Library,
    _turn: MutexGuard<'static, ()>,
}

type Select = unsafe extern "C" fn(*const c_char) -> c_int;
type Create = unsafe extern "C" fn(
    *const c_char,
    c_int,
    f64,
    *const c_char,
    *const c_char,
    *mut c_char,
    usize,
) -> c_int;

/// The code of [`simgpuCreate`](simgpu_nvml::control::simgpuCreate), and the id that it wrote.
pub(crate) fn create_machine(
    control: &libloading::Library,
    gpus: &str,
    mig: bool,
    driver: &str,
    faults: &str,
) -> (c_int, CString) {
    // SAFETY: the function has this type.
    let create = unsafe { control.get::<Create>(b"simgpuCreate\0") }.unwrap();
    let mut id = [0; 64];
    let [gpus, driver, faults] = [gpus, driver, faults].map(|text| CString::new(text).unwrap());
    let (gpus, driver, faults) = (gpus.as_ptr(), driver.as_ptr(), faults.as_ptr());
    // SAFETY: the texts end in NUL, and the buffer is of this many bytes.
    let code = unsafe { create(gpus, mig.into(), 0.01, driver, faults, id.as_mut_ptr(), id.len()) };
    // SAFETY: zeroes, or written by the library with its NUL.
    let id = unsafe { CStr::from_ptr(id.as_ptr()) };
    (code, id.to_owned())
}

impl Bench {
    /// Under the newest driver.
    pub(crate) fn new(gpus: &str, mig: bool) -> Self {
        Self::with(gpus, mig, "580.82.07", "")
    }

    pub(crate) fn with(gpus: &str, mig: bool, driver: &str, faults: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the library's start-up code is Rust's only.
        let control = unsafe { libloading::Library::new(library_path()) }.unwrap();
        let (code, id) = create_machine(&control, gpus, mig, driver, faults);
        assert_eq!(code, 0);
        let mut bench = Self {
            nvml: None,
            id,
            control,
            _turn: turn,
        };
        assert_eq!(bench.control("simgpuSelect"), 0);
        bench.nvml = Some(
            Nvml::builder()
                .lib_path(library_path().as_os_str())
                .init()
                .unwrap(),
        );
        bench
    }

    /// Plays other faults from now on.
    pub(crate) fn set_faults(&self, faults: &str) -> c_int {
        type Faults = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
        // SAFETY: the function has this type.
        let set = unsafe { self.control.get::<Faults>(b"simgpuFaults\0") }.unwrap();
        let faults = CString::new(faults).unwrap();
        // SAFETY: both texts end in NUL.
        unsafe { set(self.id.as_ptr(), faults.as_ptr()) }
    }

    /// The line that the last refused call of the library's own left.
    pub(crate) fn last_error(&self) -> String {
        type LastError = unsafe extern "C" fn() -> *const c_char;
        // SAFETY: the function has this type.
        let last = unsafe { self.control.get::<LastError>(b"simgpuLastError\0") }.unwrap();
        // SAFETY: the function takes nothing.
        let line = unsafe { last() };
        // SAFETY: it returned text that ends in NUL.
        unsafe { CStr::from_ptr(line) }.to_str().unwrap().to_owned()
    }

    pub(crate) fn id(&self) -> &str {
        self.id.to_str().unwrap()
    }

    pub(crate) fn control(&self, name: &str) -> c_int {
        // SAFETY: the functions that take an id have this type.
        let function = unsafe { self.control.get::<Select>(name.as_bytes()) }.unwrap();
        // SAFETY: the id ends in NUL.
        unsafe { function(self.id.as_ptr()) }
    }

    pub(crate) fn reset(&self) -> c_int {
        // SAFETY: the function has this type.
        let function = unsafe {
            self.control
                .get::<unsafe extern "C" fn(c_uint) -> c_int>(b"simgpuReset\0")
        }
        .unwrap();
        // SAFETY: it takes a number.
        unsafe { function(0) }
    }

    pub(crate) fn nvml(&self) -> &Nvml {
        self.nvml.as_ref().unwrap()
    }

    pub(crate) fn lib(&self) -> &NvmlLib {
        self.nvml().lib()
    }

    /// GPU 0.
    pub(crate) fn gpu(&self) -> nvmlDevice_t {
        self.gpu_at(0)
    }

    pub(crate) fn gpu_at(&self, index: u32) -> nvmlDevice_t {
        // SAFETY: the handle is used with this library only.
        unsafe { self.nvml().device_by_index(index).unwrap().handle() }
    }

    pub(crate) fn create(&self, profile: c_uint) -> (c_uint, nvmlGpuInstance_t) {
        self.create_on(self.gpu(), profile)
    }

    pub(crate) fn create_on(&self, gpu: nvmlDevice_t, profile: c_uint) -> (c_uint, nvmlGpuInstance_t) {
        let mut instance = std::ptr::null_mut();
        let create = self.lib().nvmlDeviceCreateGpuInstance.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        (unsafe { create(gpu, profile, &raw mut instance) }, instance)
    }

    /// What asking for a mode returned, and the activation status.
    pub(crate) fn set_mode(&self, gpu: nvmlDevice_t, on: bool) -> (c_uint, c_uint) {
        let mut status = 77;
        let set = self.lib().nvmlDeviceSetMigMode.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        let code = unsafe { set(gpu, on.into(), &raw mut status) };
        (code, status)
    }

    /// Current and pending mode.
    pub(crate) fn mode(&self, gpu: nvmlDevice_t) -> [c_uint; 2] {
        let (mut current, mut pending) = (77, 77);
        let get = self.lib().nvmlDeviceGetMigMode.as_ref().unwrap();
        // SAFETY: the out pointers are ours.
        let code = unsafe { get(gpu, &raw mut current, &raw mut pending) };
        assert_eq!(code, SUCCESS);
        [current, pending]
    }

    /// The answer to a question for a profile.
    pub(crate) fn profile(
        &self,
        gpu: nvmlDevice_t,
        question: c_uint,
    ) -> Result<nvmlGpuInstanceProfileInfo_t, c_uint> {
        // SAFETY: plain numbers.
        let mut info: nvmlGpuInstanceProfileInfo_t = unsafe { std::mem::zeroed() };
        let get = self.lib().nvmlDeviceGetGpuInstanceProfileInfo.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        match unsafe { get(gpu, question, &raw mut info) } {
            SUCCESS => Ok(info),
            code => Err(code),
        }
    }

    /// The name of a profile by question, in the second version of its structure.
    pub(crate) fn profile_name(&self, gpu: nvmlDevice_t, question: c_uint) -> Result<String, c_uint> {
        // SAFETY: plain numbers.
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = u32::try_from(size_of_val(&info)).unwrap() | (2 << 24);
        let get = self.lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref().unwrap();
        // SAFETY: the out pointer is ours, of this version.
        match unsafe { get(gpu, question, &raw mut info) } {
            // SAFETY: the name ends in NUL.
            SUCCESS => Ok(unsafe { CStr::from_ptr(info.name.as_ptr()) }
                .to_str()
                .unwrap()
                .to_owned()),
            code => Err(code),
        }
    }

    /// Per profile that the GPU has, question, id and name; and the first question that no driver of this age knows.
    pub(crate) fn profiles(&self, gpu: nvmlDevice_t) -> (Vec<(c_uint, c_uint)>, c_uint) {
        let mut found = Vec::new();
        for question in 0.. {
            match self.profile(gpu, question) {
                Ok(info) => found.push((question, info.id)),
                Err(NOT_SUPPORTED) => {}
                Err(code) => {
                    assert_eq!(code, INVALID_ARGUMENT);
                    return (found, question);
                }
            }
        }
        unreachable!("there are fewer than 2^32 questions")
    }

    /// All places that a profile may take, `(start, size)`.
    pub(crate) fn placements(&self, gpu: nvmlDevice_t, profile: c_uint) -> Vec<(c_uint, c_uint)> {
        let list = self
            .lib()
            .nvmlDeviceGetGpuInstancePossiblePlacements_v2
            .as_ref()
            .unwrap();
        let mut count = 0;
        // SAFETY: no room is given, so only the count is written.
        let code = unsafe { list(gpu, profile, std::ptr::null_mut(), &raw mut count) };
        assert_eq!(code, SUCCESS);
        let mut places = vec![nvmlGpuInstancePlacement_t { start: 99, size: 99 }; count as usize];
        // SAFETY: there is room for as many.
        let code = unsafe { list(gpu, profile, places.as_mut_ptr(), &raw mut count) };
        assert_eq!(code, SUCCESS);
        places.iter().map(|place| (place.start, place.size)).collect()
    }

    /// How many more of a profile can be created.
    pub(crate) fn capacity(&self, profile: c_uint) -> c_uint {
        let get = self
            .lib()
            .nvmlDeviceGetGpuInstanceRemainingCapacity
            .as_ref()
            .unwrap();
        let mut count = 99;
        // SAFETY: the out pointer is ours.
        let code = unsafe { get(self.gpu(), profile, &raw mut count) };
        assert_eq!(code, SUCCESS);
        count
    }

    /// Creates where the driver likes it: `(start, id)`, or the code.
    pub(crate) fn created(&self, profile: c_uint) -> Result<(c_uint, c_uint), c_uint> {
        match self.create(profile) {
            (SUCCESS, instance) => {
                let info = self.info(instance);
                assert_eq!(info.profileId, profile);
                Ok((info.placement.start, info.id))
            }
            (code, _) => Err(code),
        }
    }

    /// A call of the library's own that takes nothing.
    pub(crate) fn own(&self, name: &str) -> c_int {
        // SAFETY: the functions of these names have this type.
        let function = unsafe {
            self.control
                .get::<unsafe extern "C" fn() -> c_int>(name.as_bytes())
        }
        .unwrap();
        // SAFETY: it takes nothing.
        unsafe { function() }
    }

    pub(crate) fn create_at(
        &self,
        profile: c_uint,
        start: c_uint,
        size: c_uint,
    ) -> (c_uint, nvmlGpuInstance_t) {
        let mut instance = std::ptr::null_mut();
        let place = nvmlGpuInstancePlacement_t { start, size };
        let create = self
            .lib()
            .nvmlDeviceCreateGpuInstanceWithPlacement
            .as_ref()
            .unwrap();
        // SAFETY: the pointers are ours.
        (
            unsafe { create(self.gpu(), profile, &raw const place, &raw mut instance) },
            instance,
        )
    }

    pub(crate) fn info(&self, instance: nvmlGpuInstance_t) -> nvmlGpuInstanceInfo_t {
        // SAFETY: plain numbers and pointers.
        let mut info: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        let get = self.lib().nvmlGpuInstanceGetInfo.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        let code = unsafe { get(instance, &raw mut info) };
        assert_eq!(code, SUCCESS);
        info
    }

    pub(crate) fn destroy(&self, instance: nvmlGpuInstance_t) -> c_uint {
        // SAFETY: any number may stand for a handle here.
        unsafe { self.lib().nvmlGpuInstanceDestroy.as_ref().unwrap()(instance) }
    }

    pub(crate) fn compute(
        &self,
        instance: nvmlGpuInstance_t,
        profile: c_uint,
    ) -> (c_uint, nvmlComputeInstance_t) {
        let mut compute = std::ptr::null_mut();
        let create = self.lib().nvmlGpuInstanceCreateComputeInstance.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        (unsafe { create(instance, profile, &raw mut compute) }, compute)
    }

    pub(crate) fn destroy_compute(&self, compute: nvmlComputeInstance_t) -> c_uint {
        // SAFETY: any number may stand for a handle here.
        unsafe { self.lib().nvmlComputeInstanceDestroy.as_ref().unwrap()(compute) }
    }

    /// A slice of its own: GPU instance and its full-size compute instance.
    pub(crate) fn slice(
        &self,
        profile: c_uint,
        compute_profile: c_uint,
    ) -> (nvmlGpuInstance_t, nvmlComputeInstance_t) {
        let (code, instance) = self.create(profile);
        assert_eq!(code, SUCCESS);
        let (code, compute) = self.compute(instance, compute_profile);
        assert_eq!(code, SUCCESS);
        (instance, compute)
    }

    /// Per index the UUID of the MIG device, or none.
    pub(crate) fn uuids(&self) -> Vec<Option<String>> {
        let gpu = self.nvml().device_by_index(0).unwrap();
        let at = |index| match gpu.mig_device_by_index(index) {
            Ok(device) => Some(device.uuid().unwrap()),
            Err(error) => {
                assert!(matches!(error, NvmlError::NotFound), "{error}");
                None
            }
        };
        let mut uuids: Vec<_> = (0..gpu.mig_device_count().unwrap()).map(at).collect();
        while uuids.last() == Some(&None) {
            uuids.pop();
        }
        uuids
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.nvml.take());
        self.control("simgpuRemove");
    }
}
