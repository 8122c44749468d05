//! Calls of which a driver has one version or another: the newest one that it knows is made.
//!
//! Which branch brought what is read from the nvml.h of each CUDA version. An older driver's library has no such
//! name; where a newer library meets an older driver, the call answers `FUNCTION_NOT_FOUND`. Both are
//! [`NodeError::Missing`].

use std::ffi::{c_uint, c_void};

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlComputeInstanceInfo_t, nvmlDevice_t, nvmlGpuInstancePlacement_t, nvmlMemory_t,
    nvmlMemory_v2_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
};

use super::error::{Code, NodeError};
use super::raw::{Raw, blank, call, version};
use super::{Memory, Process};

/// More places than any profile has: before R470 there is no asking how many they are.
const PLACES: usize = 64;
/// Room for processes that start between the question how many there are and the list.
const HEADROOM: c_uint = 8;
/// `NVML_VALUE_NOT_AVAILABLE`.
const UNKNOWN_BYTES: u64 = u64::MAX;

/// A compute instance as R450 describes it: without its place.
#[repr(C)]
struct ComputeInstanceInfoV1 {
    device: nvmlDevice_t,
    gpu_instance: *mut c_void,
    id: c_uint,
    profile: c_uint,
}

/// What an older version is tried after.
fn is_missing(error: &NodeError) -> bool {
    matches!(error, NodeError::Missing { .. })
}

impl Raw<'_> {
    /// The places where a profile may be. The second version came with R470.
    pub fn placements(
        self,
        device: nvmlDevice_t,
        profile: u32,
    ) -> Result<Vec<nvmlGpuInstancePlacement_t>, NodeError> {
        let tried = || format!("reading the places of GPU instance profile id {profile}");
        let none = std::ptr::null_mut();
        let mut count: c_uint = 0;
        let asked = call!(
            self,
            tried(),
            nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile, none, &raw mut count)
        );
        let by_count = match asked {
            Ok(()) => true,
            Err(error) if is_missing(&error) => false,
            Err(error) => return Err(error),
        };
        let room = if by_count { count as usize } else { PLACES };
        let mut places = vec![nvmlGpuInstancePlacement_t { start: 0, size: 0 }; room];
        if places.is_empty() {
            return Ok(places);
        }
        let buffer = places.as_mut_ptr();
        if by_count {
            call!(
                self,
                tried(),
                nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile, buffer, &raw mut count)
            )?;
        } else {
            call!(
                self,
                tried(),
                nvmlDeviceGetGpuInstancePossiblePlacements(device, profile, buffer, &raw mut count)
            )?;
        }
        places.truncate(count as usize);
        Ok(places)
    }

    /// The id of a compute instance. The second version, with the place, came with R460.
    pub fn ci_id(self, ci: nvmlComputeInstance_t) -> Result<u32, NodeError> {
        let tried = || "reading a compute instance".to_owned();
        let mut info = blank!(nvmlComputeInstanceInfo_t);
        match call!(self, tried(), nvmlComputeInstanceGetInfo_v2(ci, &raw mut info)) {
            Ok(()) => return Ok(info.id),
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
        let mut info = blank!(ComputeInstanceInfoV1);
        // The header of today declares the first version by way of the second one's longer structure.
        let pointer = (&raw mut info).cast();
        call!(self, tried(), nvmlComputeInstanceGetInfo(ci, pointer))?;
        Ok(info.id)
    }

    /// Used and total bytes.
    pub fn memory(self, device: nvmlDevice_t) -> Result<(u64, u64), NodeError> {
        self.all_memory(device).map(|memory| (memory.used, memory.total))
    }

    /// Memory with what the driver keeps for itself told apart, where it does. The second version, which counts
    /// that apart from what is used, came with R510.
    pub fn all_memory(self, device: nvmlDevice_t) -> Result<Memory, NodeError> {
        let tried = || "reading memory".to_owned();
        let mut info = blank!(nvmlMemory_v2_t);
        info.version = version::<nvmlMemory_v2_t>(2);
        match call!(self, tried(), nvmlDeviceGetMemoryInfo_v2(device, &raw mut info)) {
            Ok(()) => {
                return Ok(Memory {
                    used: info.used,
                    total: info.total,
                    reserved: info.reserved,
                });
            }
            Err(error) if is_missing(&error) => {}
            Err(error) if error.code() == Some(Code::ARGUMENT_VERSION_MISMATCH) => {}
            Err(error) => return Err(error),
        }
        let mut info = blank!(nvmlMemory_t);
        call!(self, tried(), nvmlDeviceGetMemoryInfo(device, &raw mut info))?;
        Ok(Memory {
            used: info.used,
            total: info.total,
            reserved: 0,
        })
    }

    /// Compute processes of a device with the GPU instance of each. The third version came with R510 and fills the
    /// second one's structure; R450 has neither.
    pub fn processes(self, device: nvmlDevice_t) -> Result<Vec<Process>, NodeError> {
        let newest = list(blank!(nvmlProcessInfo_v2_t), |infos, count| {
            call!(
                self,
                "listing processes".to_owned(),
                nvmlDeviceGetComputeRunningProcesses_v3(device, count, infos.cast())
            )
        });
        let infos = match newest {
            Err(error) if is_missing(&error) => list(blank!(nvmlProcessInfo_v2_t), |infos, count| {
                call!(
                    self,
                    "listing processes".to_owned(),
                    nvmlDeviceGetComputeRunningProcesses_v2(device, count, infos)
                )
            })?,
            answer => answer?,
        };
        let of = |info: nvmlProcessInfo_v2_t| process(info.pid, info.usedGpuMemory, info.gpuInstanceId);
        Ok(infos.into_iter().map(of).collect())
    }

    /// The same by the first version, which does not say the instance.
    pub fn processes_v1(self, device: nvmlDevice_t) -> Result<Vec<Process>, NodeError> {
        let infos = list(blank!(nvmlProcessInfo_v1_t), |infos, count| {
            call!(
                self,
                "listing processes".to_owned(),
                nvmlDeviceGetComputeRunningProcesses(device, count, infos)
            )
        })?;
        let of = |info: nvmlProcessInfo_v1_t| process(info.pid, info.usedGpuMemory, u32::MAX);
        Ok(infos.into_iter().map(of).collect())
    }
}

const fn process(pid: u32, used: u64, gi: u32) -> Process {
    Process {
        pid,
        used: if used == UNKNOWN_BYTES { None } else { Some(used) },
        gi: if gi == u32::MAX { None } else { Some(gi) },
    }
}

/// A list whose room is asked for first, and may have become too small by the time it is filled.
fn list<T: Copy>(
    blank: T,
    mut fill: impl FnMut(*mut T, *mut c_uint) -> Result<(), NodeError>,
) -> Result<Vec<T>, NodeError> {
    let mut found = Vec::new();
    for _ in 0..4 {
        let mut count = c_uint::try_from(found.len()).unwrap_or(c_uint::MAX);
        match fill(found.as_mut_ptr(), &raw mut count) {
            Ok(()) => {
                found.truncate(count as usize);
                return Ok(found);
            }
            Err(error) if error.code() == Some(Code::INSUFFICIENT_SIZE) => {
                found.resize(count.saturating_add(HEADROOM) as usize, blank);
            }
            Err(error) => return Err(error),
        }
    }
    Err(NodeError::Nvml {
        tried: "listing processes, of which there are more each time".to_owned(),
        code: Code::INSUFFICIENT_SIZE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn too_small() -> NodeError {
        NodeError::Nvml {
            tried: "listing".into(),
            code: Code::INSUFFICIENT_SIZE,
        }
    }

    /// Lists `lengths` processes, one length a call.
    fn listed(lengths: &[u32]) -> Result<Vec<u32>, NodeError> {
        let mut lengths = lengths.iter();
        list(0, |numbers, count| {
            // SAFETY: the count is a live local of the list's.
            let room = unsafe { *count };
            let length = *lengths.next().expect("no more calls than there are lengths");
            // SAFETY: as above.
            unsafe { *count = length };
            if room < length {
                return Err(too_small());
            }
            for number in 0..length {
                // SAFETY: there is room for as many.
                let place = unsafe { numbers.add(number as usize) };
                // SAFETY: as above.
                unsafe { place.write(number) };
            }
            Ok(())
        })
    }

    #[test]
    fn a_list_that_grows_meanwhile_is_asked_for_again() {
        assert_eq!(listed(&[0]).unwrap(), [0; 0]);
        assert_eq!(listed(&[2, 3]).unwrap(), [0, 1, 2]);
        assert_eq!(listed(&[1, 30, 2]).unwrap(), [0, 1]);
        let error = listed(&[1, 100, 1_000, 10_000]).unwrap_err();
        assert_eq!(error.code(), Some(Code::INSUFFICIENT_SIZE));
    }
}
