//! The machine through NVML: the safe wrapper for what it does right, [`Raw`] for instances.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Mutex;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml as Wrapper};
use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::error::{Code, NodeError};
use super::holders::holders;
use super::instances::{CiProfile, OneGpu, retry};
use super::profiles;
use super::raw::{Calls, Raw};
use super::{Gpu, Instance, Memory, MigMode, ModeChange, Needs, Node, Process, Virtual};
use crate::layout::{Placement, Profile};

/// What the loader looks for. Containers often have no plain `.so`.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// NVML, initialised; shut down when dropped, with all instances left as they are.
#[derive(Debug)]
pub struct Nvml {
    wrapper: Wrapper,
    calls: Calls,
    /// What the driver has told of kinds of compute instance, which does not change.
    full: Mutex<HashMap<(u32, u32), Vec<CiProfile>>>,
}

impl Nvml {
    /// The library that the loader finds: the driver's, or the simulated one where the environment says so.
    ///
    /// # Errors
    /// [`NodeError::NoDriver`] without a library or a driver.
    pub fn system() -> Result<Self, NodeError> {
        Self::open(OsStr::new(LIBRARY))
    }

    /// The library at a path.
    ///
    /// # Errors
    /// [`NodeError::NoDriver`] where it cannot be loaded or does not start.
    pub fn at(path: &Path) -> Result<Self, NodeError> {
        Self::open(path.as_os_str())
    }

    fn open(name: &OsStr) -> Result<Self, NodeError> {
        let wrapper = Wrapper::builder()
            .lib_path(name)
            .init()
            .map_err(|error| match error {
                // The loader's own words name the library.
                NvmlError::LibloadingError(error) => NodeError::NoDriver(error.to_string()),
                error => NodeError::NoDriver(format!("{}: {error}", name.display())),
            })?;
        Ok(Self {
            wrapper,
            calls: Calls::default(),
            full: Mutex::default(),
        })
    }

    fn raw(&self) -> Raw<'_> {
        Raw {
            library: self.wrapper.lib(),
            calls: &self.calls,
        }
    }

    /// How often the driver has been asked.
    #[must_use]
    pub const fn calls(&self) -> &Calls {
        &self.calls
    }

    fn device(&self, gpu: u32) -> Result<Device<'_>, NodeError> {
        self.wrapper
            .device_by_index(gpu)
            .map_err(|error| NodeError::from_wrapper(|| format!("opening GPU {gpu}"), &error))
    }

    /// Runs `ask` with what the instance calls need of a GPU.
    fn with<T>(
        &self,
        gpu: u32,
        ask: impl FnOnce(&OneGpu<'_>) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        let device = self.device(gpu)?;
        self.calls.note("nvmlDeviceGetHandleByIndex_v2");
        ask(&OneGpu {
            raw: self.raw(),
            device: handle(&device),
            index: gpu,
            most: &|| {
                self.calls.note("nvmlDeviceGetMaxMigDeviceCount");
                device.mig_device_count().map_err(|error| {
                    NodeError::from_wrapper(|| format!("counting MIG devices of GPU {gpu}"), &error)
                })
            },
            known: &self.full,
        })
    }

    fn mode(device: &Device<'_>) -> Result<MigMode, NodeError> {
        match device.mig_mode() {
            Ok(mode) if mode.current != mode.pending => Ok(MigMode::Pending {
                current: mode.current == 1,
            }),
            Ok(mode) if mode.current == 1 => Ok(MigMode::On),
            Ok(_) => Ok(MigMode::Off),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
                Ok(MigMode::Absent)
            }
            Err(error) => Err(NodeError::from_wrapper(|| "reading the MIG mode".into(), &error)),
        }
    }
}

/// NVML's own handle.
fn handle(device: &Device<'_>) -> nvmlDevice_t {
    // SAFETY: the call only copies the handle out; a stale one is answered by a code.
    unsafe { device.handle() }
}

impl Node for Nvml {
    fn gpus(&self) -> Result<Vec<Gpu>, NodeError> {
        let mut found = Vec::new();
        let mut last = None;
        for index in 0..self.count()? {
            match self.gpu(index) {
                Ok(gpu) => found.push(gpu),
                Err(error) => {
                    tracing::error!(gpu = index, %error, "a GPU does not answer");
                    last = Some(error);
                }
            }
        }
        match last {
            Some(error) if found.is_empty() => Err(error),
            _ => Ok(found),
        }
    }

    fn count(&self) -> Result<u32, NodeError> {
        self.wrapper
            .device_count()
            .map_err(|error| NodeError::from_wrapper(|| "counting GPUs".to_owned(), &error))
    }

    fn gpu(&self, index: u32) -> Result<Gpu, NodeError> {
        let fail = |what: &str, error: &NvmlError| {
            NodeError::from_wrapper(|| format!("reading the {what} of GPU {index}"), error)
        };
        let device = self.device(index)?;
        Ok(Gpu {
            index,
            name: device.name().map_err(|error| fail("name", &error))?,
            uuid: device.uuid().map_err(|error| fail("UUID", &error))?,
            memory: self.raw().memory(handle(&device)).map(|(_, total)| total)?,
            mode: Self::mode(&device)?,
        })
    }

    /// Somebody may be about to let go of the GPU, so `IN_USE` is tried again as for a destroy.
    fn set_mode(&self, gpu: u32, on: bool) -> Result<ModeChange, NodeError> {
        let before = self.gpu(gpu)?;
        let is_so = |mode: MigMode| mode == if on { MigMode::On } else { MigMode::Off };
        if is_so(before.mode) {
            return Ok(ModeChange::Already);
        }
        let ask = |on: bool| self.raw().set_mode(handle(&self.device(gpu)?), gpu, on);
        let tried = format!("turning MIG {} on GPU {gpu}", if on { "on" } else { "off" });
        let mut activation = Code::SUCCESS;
        let asked = retry(&tried, || {
            activation = ask(on)?;
            match activation {
                Code::IN_USE => Err(NodeError::answered(tried.clone(), Code::IN_USE, "")),
                _ => Ok(()),
            }
        });
        match asked {
            Ok(()) => {}
            Err(error) if error.is_in_use() => {
                let was_on = before.mode.pending() == "on";
                // The request has been noted all the same, and would come into force at some later reset.
                if self.gpu(gpu)?.mode != before.mode {
                    ask(was_on)?;
                }
                let minor = self.device(gpu)?.minor_number().ok();
                let processes = self.processes(gpu).unwrap_or_default();
                return Ok(ModeChange::InUse(holders(&processes, None, minor)));
            }
            Err(error) => return Err(error),
        }
        let found = self.gpu(gpu)?.mode;
        let wanted_next = found.pending() == if on { "on" } else { "off" };
        match activation {
            Code::SUCCESS | Code::RESET_REQUIRED if is_so(found) => Ok(ModeChange::Done),
            Code::SUCCESS | Code::RESET_REQUIRED if wanted_next => {
                Ok(ModeChange::Pending(Needs::of(self.virtualisation(gpu))))
            }
            Code::SUCCESS => Err(NodeError::Unconfirmed {
                tried,
                found: format!("the mode is {}", found.now()),
            }),
            refused => Err(NodeError::answered(
                format!("{tried}, putting it into force"),
                refused,
                "SetMigMode",
            )),
        }
    }

    fn virtualisation(&self, gpu: u32) -> Virtual {
        let mode = self
            .device(gpu)
            .and_then(|device| self.raw().virtualisation(handle(&device)));
        match mode {
            Ok(1) => Virtual::Passthrough,
            Ok(2) => Virtual::Vgpu,
            _ => Virtual::No,
        }
    }

    fn driver(&self) -> Result<String, NodeError> {
        self.wrapper
            .sys_driver_version()
            .map_err(|error| NodeError::from_wrapper(|| "reading the driver's version".into(), &error))
    }

    fn profiles(&self, gpu: u32) -> Result<Vec<Profile>, NodeError> {
        profiles::profiles(self.raw(), handle(&self.device(gpu)?))
    }

    fn instances(&self, gpu: u32) -> Result<Vec<Instance>, NodeError> {
        let profiles = self.profiles(gpu)?;
        self.with(gpu, |one| one.instances(&profiles))
    }

    fn create(&self, gpu: u32, profile: &Profile, placement: Placement) -> Result<Instance, NodeError> {
        self.with(gpu, |one| one.create(profile, placement))
    }

    fn destroy(&self, gpu: u32, gi: u32) -> Result<(), NodeError> {
        let Err(error) = self.with(gpu, |one| one.destroy(gi)) else {
            return Ok(());
        };
        let error = match error {
            NodeError::InUse {
                tried,
                tries,
                seconds,
                ..
            } => {
                let minor = self.device(gpu)?.minor_number().ok();
                NodeError::InUse {
                    tried,
                    tries,
                    seconds,
                    holders: holders(&self.processes(gpu).unwrap_or_default(), Some(gi), minor),
                }
            }
            error => error,
        };
        match self.with(gpu, |one| one.is_hollow(gi)) {
            Ok(true) => Err(NodeError::HalfGone {
                gi,
                cause: Box::new(error),
            }),
            _ => Err(error),
        }
    }

    fn energy_mj(&self, gpu: u32) -> Result<Option<u64>, NodeError> {
        match self.device(gpu)?.total_energy_consumption() {
            Ok(millijoules) => Ok(Some(millijoules)),
            Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound) => {
                Ok(None)
            }
            Err(error) => Err(NodeError::from_wrapper(
                || format!("reading the energy counter of GPU {gpu}"),
                &error,
            )),
        }
    }

    fn memory(&self, gpu: u32) -> Result<Memory, NodeError> {
        self.raw().all_memory(handle(&self.device(gpu)?))
    }

    fn slice_memory(&self, uuid: &str) -> Result<Memory, NodeError> {
        let device = self
            .wrapper
            .device_by_uuid(uuid)
            .map_err(|error| NodeError::from_wrapper(|| format!("opening {uuid}"), &error))?;
        self.raw().all_memory(handle(&device))
    }

    fn processes(&self, gpu: u32) -> Result<Vec<Process>, NodeError> {
        self.with(gpu, |one| one.processes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_no_driver_in_one_line() {
        let error = Nvml::at(Path::new("/nowhere/libnvidia-ml.so.1")).unwrap_err();
        assert!(matches!(error, NodeError::NoDriver(_)), "{error:?}");
        let said = error.to_string();
        assert!(
            said.starts_with("no NVIDIA driver on this machine") && !said.contains('\n'),
            "{said}"
        );
        assert_eq!(error.code(), None);
    }
}
