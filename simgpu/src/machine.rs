//! What the CUDA side sees of a simulated machine: its devices, and a process's place on one of them.

use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::Driver;
use crate::files::{FileError, Mapping, Plan};
use crate::model::Model;
use crate::state::{Gpu, State, monotonic};

pub use crate::tenant::{CopyMark, KernelMark, Tenant};

/// One mapped state, shared with every other process on the same simulated machine. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Machine {
    mapping: Arc<Mapping>,
}

/// Why no state could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing says which state.
    #[error("SIMGPU_ID is not set; `migm sim env` makes a simulated machine and prints it")]
    NotSet,
    /// There is none, or it is of another version.
    #[error("SIMGPU_ID: {0}")]
    File(#[from] FileError),
}

/// A slice, or a whole GPU, that [`Machine::visible`] found. It names one life of the slice: once that is
/// destroyed, the reference stays dead, also when an equal slice takes its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct DeviceRef {
    /// GPU index.
    pub gpu: u32,
    /// The compute instance; `None` for the whole GPU.
    pub slice: Option<SliceRef>,
}

/// One life of a compute instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct SliceRef {
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id within it.
    pub ci: u32,
    /// Number of this life; never shown to programs.
    pub serial: u32,
}

/// What a device is. Sizes in bytes, clocks in kHz.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// `NVIDIA A100-SXM4-40GB`, or `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    pub name: String,
    /// UUID bytes: of the MIG device if it is one.
    pub uuid: [u8; 16],
    /// UUID bytes of the GPU.
    pub gpu_uuid: [u8; 16],
    /// GPU index.
    pub gpu: u32,
    /// Whether it is a MIG device.
    pub is_mig: bool,
    /// GPU instance id; `None` for a whole GPU.
    pub gi: Option<u32>,
    /// Compute instance id; `None` for a whole GPU.
    pub ci: Option<u32>,
    /// Streaming multiprocessors that it may use.
    pub sms: u32,
    /// Memory that programs can have, over all processes.
    pub memory_total: u64,
    /// Compute capability.
    pub compute: (i32, i32),
    /// PCI domain.
    pub pci_domain: u32,
    /// PCI bus.
    pub pci_bus: u32,
    /// PCI device.
    pub pci_device: u32,
    /// Clock of the multiprocessors.
    pub clock_khz: u32,
    /// Clock of the memory.
    pub memory_clock_khz: u32,
    /// Width of the memory bus, bits.
    pub memory_bus_bits: u32,
    /// Second-level cache of the GPU.
    pub l2_bytes: u32,
}

/// Bytes of one slice (over all its processes), or of the whole GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MemoryInfo {
    /// All that programs can have.
    pub total: u64,
    /// Held by processes.
    pub used: u64,
    /// `total - used`.
    pub free: u64,
}

/// The slice cannot give that much.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{asked} bytes asked, {free} of {total} free")]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub asked: u64,
    /// Bytes free at that moment.
    pub free: u64,
    /// Bytes of the slice.
    pub total: u64,
}

/// Why a process cannot use a device.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The context does not fit.
    #[error("the context does not fit: {0}")]
    OutOfMemory(#[from] OutOfMemory),
    /// The slice has been destroyed, or MIG took the whole GPU away.
    #[error("the device is gone")]
    DeviceGone,
    /// All process records are taken.
    #[error("all {0} process records are in use")]
    TooManyProcesses(usize),
}

/// The state that [`select`] chose for this process.
static SELECTED: Mutex<Option<String>> = Mutex::new(None);

/// The machine that this process uses from now on, in place of `SIMGPU_ID`.
pub fn select(id: &str) -> Result<(), OpenError> {
    Mapping::open(id)?;
    *SELECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(id.to_owned());
    Ok(())
}

impl Machine {
    /// Maps the state that [`select`] chose, or else `SIMGPU_ID` names.
    pub fn open() -> Result<Self, OpenError> {
        let selected = SELECTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let id = selected.or_else(|| std::env::var("SIMGPU_ID").ok().filter(|id| !id.is_empty()));
        Ok(Self {
            mapping: Mapping::open(&id.ok_or(OpenError::NotSet)?)?,
        })
    }

    /// Maps the state of this id.
    pub fn open_id(id: &str) -> Result<Self, OpenError> {
        Ok(Self {
            mapping: Mapping::open(id)?,
        })
    }

    /// Makes a machine of its own.
    pub fn create(plan: &Plan) -> Result<Self, FileError> {
        Ok(Self {
            mapping: Mapping::create(plan)?,
        })
    }

    /// What `SIMGPU_ID` must be for another process to use this machine.
    #[must_use]
    pub fn id(&self) -> &str {
        self.mapping.id()
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Number of GPUs.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        u32::try_from(self.mapping().gpus().count()).unwrap_or(0)
    }

    /// What kind of GPU it is.
    #[must_use]
    pub fn model(&self, gpu: u32) -> Option<&'static Model> {
        self.mapping().gpu(gpu).map(Gpu::model)
    }

    /// UUID of a GPU.
    #[must_use]
    pub fn gpu_uuid(&self, gpu: u32) -> Option<[u8; 16]> {
        self.mapping().gpu(gpu).map(Gpu::uuid)
    }

    /// Wall seconds per simulated second.
    #[must_use]
    pub fn time_scale(&self) -> f64 {
        self.mapping.time_scale.get_f64()
    }

    /// Simulated seconds: the machine's monotonic clock divided by the time scale.
    #[must_use]
    pub fn sim_now(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "nanoseconds since boot stay below 2^53 for 104 days"
        )]
        let wall = monotonic() as f64 / 1e9;
        wall / self.time_scale()
    }

    /// Driver version as text.
    #[must_use]
    pub fn driver(&self) -> String {
        self.mapping.driver()
    }

    /// What the driver's branch can do.
    #[must_use]
    pub fn driver_branch(&self) -> Driver {
        Driver::of(&self.driver()).unwrap_or(Driver(0))
    }

    /// The CUDA version that the driver reports, 1000 x major + 10 x minor: what its branch came with.
    #[must_use]
    pub fn driver_version(&self) -> i32 {
        self.driver_branch().cuda()
    }

    /// What a device is. Of a slice destroyed meanwhile: no multiprocessors, no memory.
    #[must_use]
    pub fn device(&self, device: DeviceRef) -> DeviceInfo {
        let state: &State = &self.mapping;
        let gpu = &state.gpus[device.gpu as usize % state.gpus.len()];
        let model = gpu.model();
        let (pci_domain, pci_bus, pci_device) = pci_address(device.gpu);
        let whole = DeviceInfo {
            name: model.product.to_owned(),
            uuid: gpu.uuid(),
            gpu_uuid: gpu.uuid(),
            gpu: device.gpu,
            is_mig: false,
            gi: None,
            ci: None,
            sms: model.sms,
            memory_total: (model.framebuffer_mib - model.reserved_mib) << 20,
            compute: model.capability,
            pci_domain,
            pci_bus,
            pci_device,
            clock_khz: model.clock_khz,
            memory_clock_khz: model.memory_clock_khz,
            memory_bus_bits: model.memory_bus_bits,
            l2_bytes: model.l2_bytes,
        };
        let Some(slice) = device.slice else { return whole };
        let mig = DeviceInfo {
            is_mig: true,
            gi: Some(slice.gi),
            ci: Some(slice.ci),
            ..whole
        };
        match self.compute_instance(device) {
            Ok(info) => DeviceInfo {
                name: format!("{} MIG {}", model.product, info.profile.name(info.parent.profile)),
                uuid: info.uuid,
                sms: info.profile.sms,
                memory_total: info.parent.profile.memory_mib << 20,
                ..mig
            },
            Err(_) => DeviceInfo {
                uuid: [0; 16],
                sms: 0,
                memory_total: 0,
                ..mig
            },
        }
    }

    /// Makes this process a user of the device and charges its context.
    pub fn attach(&self, device: DeviceRef, context_bytes: u64) -> Result<Tenant, AttachError> {
        Tenant::attach(&self.mapping, device, context_bytes)
    }
}

/// Domain, bus and device of a GPU.
#[must_use]
pub fn pci_address(gpu: u32) -> (u32, u32, u32) {
    (gpu / 28, 7 + 8 * (gpu % 28), 0)
}
