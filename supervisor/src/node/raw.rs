//! The unsafe edge: one function for each NVML call that the safe wrapper lacks or gets wrong.
//!
//! All rest on the same facts. The library stays loaded as long as the `NvmlLib` that is borrowed. Handles
//! come from that library, and a stale one is answered by a code. Structures are plain integers, so that
//! all-zero is a value, and out pointers point to live locals of the type that the header names.

use std::ffi::{c_char, c_uint};
use std::mem::size_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlComputeInstance_t, nvmlComputeInstanceProfileInfo_t, nvmlDevice_t, nvmlGpuInstance_t,
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t,
};

use super::error::{Code, NodeError};

/// How often the driver has been asked. What only the safe wrapper asks (names, energy, processes) is not counted.
#[derive(Debug, Default)]
pub struct Calls {
    changes: AtomicU64,
    reads: AtomicU64,
}

impl Calls {
    /// Calls that make, remove or set something.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// All others.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Relaxed)
    }

    /// One call of a function of that name.
    pub(super) fn note(&self, function: &str) {
        let is_change = ["Create", "Destroy", "SetMig"]
            .iter()
            .any(|verb| function.contains(verb));
        let counter = if is_change { &self.changes } else { &self.reads };
        counter.fetch_add(1, Relaxed);
    }
}

/// NVML's functions as they are, with answers turned into [`NodeError`]s that say what was tried.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    pub library: &'a NvmlLib,
    pub calls: &'a Calls,
}

/// Calls a function of the library if this driver has it.
macro_rules! call {
    ($raw:expr, $tried:expr, $function:ident($($argument:expr),*)) => {
        match $raw.library.$function.as_ref() {
            Err(_) => Err(NodeError::Missing { tried: $tried, function: stringify!($function) }),
            Ok(function) => {
                $raw.calls.note(stringify!($function));
                // SAFETY: handles from this library and pointers to live locals; see the module's text.
                match unsafe { function($($argument),*) } {
                    0 => Ok(()),
                    code => Err(NodeError::answered($tried, Code(code), stringify!($function))),
                }
            }
        }
    };
}

pub(super) use call;

/// A structure of integers and pointers that the driver fills.
macro_rules! blank {
    ($kind:ty) => {
        // SAFETY: only integers, integer arrays and raw pointers inside: all-zero is a value.
        unsafe { std::mem::zeroed::<$kind>() }
    };
}
pub(super) use blank;

/// `NVML_STRUCT_VERSION`: the size, and the version in the top byte.
pub(super) const fn version<T>(number: u32) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "NVML's structures are below 2^24 bytes"
    )]
    let size = size_of::<T>() as u32;
    size | number << 24
}

impl Raw<'_> {
    pub fn profile_v3(
        self,
        device: nvmlDevice_t,
        number: u32,
    ) -> Result<nvmlGpuInstanceProfileInfo_v3_t, NodeError> {
        let mut info = blank!(nvmlGpuInstanceProfileInfo_v3_t);
        info.version = version::<nvmlGpuInstanceProfileInfo_v3_t>(3);
        // The header declares one function for all versions, by way of the second one's type.
        let pointer = (&raw mut info).cast::<nvmlGpuInstanceProfileInfo_v2_t>();
        let tried = || format!("reading GPU instance profile {number}");
        call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstanceProfileInfoV(device, number, pointer)
        )?;
        Ok(info)
    }

    pub fn profile_v2(
        self,
        device: nvmlDevice_t,
        number: u32,
    ) -> Result<nvmlGpuInstanceProfileInfo_v2_t, NodeError> {
        let mut info = blank!(nvmlGpuInstanceProfileInfo_v2_t);
        info.version = version::<nvmlGpuInstanceProfileInfo_v2_t>(2);
        let tried = || format!("reading GPU instance profile {number}");
        call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstanceProfileInfoV(device, number, &raw mut info)
        )?;
        Ok(info)
    }

    pub fn profile_v1(
        self,
        device: nvmlDevice_t,
        number: u32,
    ) -> Result<nvmlGpuInstanceProfileInfo_t, NodeError> {
        let mut info = blank!(nvmlGpuInstanceProfileInfo_t);
        let tried = || format!("reading GPU instance profile {number}");
        call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstanceProfileInfo(device, number, &raw mut info)
        )?;
        Ok(info)
    }

    pub fn create_gi(
        self,
        tried: &str,
        device: nvmlDevice_t,
        profile: u32,
        place: nvmlGpuInstancePlacement_t,
    ) -> Result<nvmlGpuInstance_t, NodeError> {
        let mut gi: nvmlGpuInstance_t = std::ptr::null_mut();
        call!(
            self,
            tried.to_owned(),
            nvmlDeviceCreateGpuInstanceWithPlacement(device, profile, &raw const place, &raw mut gi)
        )?;
        Ok(gi)
    }

    pub fn destroy_gi(self, tried: &str, gi: nvmlGpuInstance_t) -> Result<(), NodeError> {
        call!(self, tried.to_owned(), nvmlGpuInstanceDestroy(gi))
    }

    pub fn create_ci(
        self,
        tried: &str,
        gi: nvmlGpuInstance_t,
        profile: u32,
    ) -> Result<nvmlComputeInstance_t, NodeError> {
        let mut ci: nvmlComputeInstance_t = std::ptr::null_mut();
        call!(
            self,
            tried.to_owned(),
            nvmlGpuInstanceCreateComputeInstance(gi, profile, &raw mut ci)
        )?;
        Ok(ci)
    }

    pub fn destroy_ci(self, tried: &str, ci: nvmlComputeInstance_t) -> Result<(), NodeError> {
        call!(self, tried.to_owned(), nvmlComputeInstanceDestroy(ci))
    }

    /// The instances of one profile; `most` is the profile's instance count.
    pub fn gis(
        self,
        device: nvmlDevice_t,
        profile: u32,
        most: u32,
    ) -> Result<Vec<nvmlGpuInstance_t>, NodeError> {
        let tried = || format!("listing GPU instances of profile id {profile}");
        let mut found: Vec<nvmlGpuInstance_t> = vec![std::ptr::null_mut(); most.max(1) as usize];
        let mut count: c_uint = most.max(1);
        let buffer = found.as_mut_ptr();
        call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstances(device, profile, buffer, &raw mut count)
        )?;
        found.truncate(count as usize);
        Ok(found)
    }

    pub fn gi_by_id(self, device: nvmlDevice_t, id: u32) -> Result<nvmlGpuInstance_t, NodeError> {
        let mut gi: nvmlGpuInstance_t = std::ptr::null_mut();
        let tried = || format!("looking up GPU instance {id}");
        call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstanceById(device, id, &raw mut gi)
        )?;
        Ok(gi)
    }

    pub fn gi_info(self, gi: nvmlGpuInstance_t) -> Result<nvmlGpuInstanceInfo_t, NodeError> {
        let mut info = blank!(nvmlGpuInstanceInfo_t);
        let tried = || "reading a GPU instance".to_owned();
        call!(self, tried(), nvmlGpuInstanceGetInfo(gi, &raw mut info))?;
        Ok(info)
    }

    /// A kind of compute instance with engines shared (engine profile 0).
    pub fn ci_profile(
        self,
        gi: nvmlGpuInstance_t,
        number: u32,
    ) -> Result<nvmlComputeInstanceProfileInfo_t, NodeError> {
        let mut info = blank!(nvmlComputeInstanceProfileInfo_t);
        let tried = || format!("reading compute instance profile {number}");
        call!(
            self,
            tried(),
            nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, number, 0, &raw mut info)
        )?;
        Ok(info)
    }

    /// The compute instances of one profile; `most` is the profile's instance count.
    pub fn cis(
        self,
        gi: nvmlGpuInstance_t,
        profile: u32,
        most: u32,
    ) -> Result<Vec<nvmlComputeInstance_t>, NodeError> {
        let tried = || format!("listing compute instances of profile id {profile}");
        let mut found: Vec<nvmlComputeInstance_t> = vec![std::ptr::null_mut(); most.max(1) as usize];
        let mut count: c_uint = most.max(1);
        let buffer = found.as_mut_ptr();
        call!(
            self,
            tried(),
            nvmlGpuInstanceGetComputeInstances(gi, profile, buffer, &raw mut count)
        )?;
        found.truncate(count as usize);
        Ok(found)
    }

    /// The compute instance with an id.
    pub fn ci_by_id(self, gi: nvmlGpuInstance_t, id: u32) -> Result<nvmlComputeInstance_t, NodeError> {
        let mut ci: nvmlComputeInstance_t = std::ptr::null_mut();
        let tried = || format!("looking up compute instance {id}");
        call!(
            self,
            tried(),
            nvmlGpuInstanceGetComputeInstanceById(gi, id, &raw mut ci)
        )?;
        Ok(ci)
    }

    /// The MIG device at an index; `None` where there is a hole.
    pub fn mig_device(self, device: nvmlDevice_t, index: u32) -> Result<Option<nvmlDevice_t>, NodeError> {
        let mut found: nvmlDevice_t = std::ptr::null_mut();
        let tried = || format!("opening MIG device {index}");
        let answer = call!(
            self,
            tried(),
            nvmlDeviceGetMigDeviceHandleByIndex(device, index, &raw mut found)
        );
        match answer {
            Ok(()) => Ok(Some(found)),
            Err(error) if matches!(error.code(), Some(Code::NOT_FOUND | Code::INVALID_ARGUMENT)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `GPU-...` or `MIG-...`.
    pub fn uuid(self, device: nvmlDevice_t) -> Result<String, NodeError> {
        // NVML_DEVICE_UUID_V2_BUFFER_SIZE
        let mut text: [c_char; 96] = [0; 96];
        let (buffer, length) = (text.as_mut_ptr(), 96);
        let tried = || "reading the UUID of a MIG device".to_owned();
        call!(self, tried(), nvmlDeviceGetUUID(device, buffer, length))?;
        let bytes: Vec<u8> = text
            .iter()
            .map(|letter| letter.cast_unsigned())
            .take_while(|letter| *letter != 0)
            .collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Asks for a MIG mode; gives the activation status, which is not the answer to the request.
    pub fn set_mode(self, device: nvmlDevice_t, gpu: u32, on: bool) -> Result<Code, NodeError> {
        let mut activation: c_uint = 0;
        let tried = || format!("turning MIG {} on GPU {gpu}", if on { "on" } else { "off" });
        call!(
            self,
            tried(),
            nvmlDeviceSetMigMode(device, on.into(), &raw mut activation)
        )?;
        Ok(Code(activation))
    }

    /// `NVML_GPU_VIRTUALIZATION_MODE_*`: 1 passed through, 2 a vGPU guest.
    pub fn virtualisation(self, device: nvmlDevice_t) -> Result<u32, NodeError> {
        let mut mode: c_uint = 0;
        let tried = || "reading the virtualisation mode".to_owned();
        call!(
            self,
            tried(),
            nvmlDeviceGetVirtualizationMode(device, &raw mut mode)
        )?;
        Ok(mode)
    }

    /// GPU instance and compute instance behind a MIG device.
    pub fn mig_ids(self, device: nvmlDevice_t) -> Result<(u32, u32), NodeError> {
        let (mut gi, mut ci): (c_uint, c_uint) = (0, 0);
        let tried = || "reading the ids of a MIG device".to_owned();
        call!(self, tried(), nvmlDeviceGetGpuInstanceId(device, &raw mut gi))?;
        call!(self, tried(), nvmlDeviceGetComputeInstanceId(device, &raw mut ci))?;
        Ok((gi, ci))
    }
}
