//! What the CUDA side sees of a simulated machine: its devices, and a process's place on one of them.

use std::sync::Arc;

/// One mapped state, shared with every other process on the same simulated machine. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct Machine {
    _p: Arc<()>,
}

/// Why no state could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `SIMGPU_ID` is not in the environment.
    #[error("SIMGPU_ID is not set")]
    NotSet,
}

/// A slice, or a whole GPU, that [`Machine::visible`] found. It names one life of the slice: once that is
/// destroyed, the reference stays dead, also when an equal slice takes its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct DeviceRef {
    /// GPU index.
    pub gpu: u32,
    /// GPU instance and compute instance; `None` for the whole GPU.
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

/// This process on one slice. Dropping it gives everything back. After a fork the child's copy does nothing.
#[derive(Debug)]
pub struct Tenant {
    _p: Arc<()>,
}

/// A kernel that runs; give it to [`Tenant::kernel_end`].
#[must_use]
#[derive(Debug)]
pub struct KernelMark {
    sms: u32,
}

/// A copy over the bus that runs; give it to [`Tenant::copy_end`].
#[must_use]
#[derive(Debug)]
pub struct CopyMark(());

impl Machine {
    /// Maps the state that `SIMGPU_ID` names.
    pub fn open() -> Result<Self, OpenError> {
        todo!()
    }
    /// Wall seconds per simulated second.
    #[must_use]
    pub fn time_scale(&self) -> f64 {
        todo!()
    }
    /// Simulated seconds: the machine's monotonic clock divided by the time scale.
    #[must_use]
    pub fn sim_now(&self) -> f64 {
        todo!()
    }
    /// The CUDA version that the driver reports, 1000 x major + 10 x minor.
    #[must_use]
    pub fn driver_version(&self) -> i32 {
        todo!()
    }
    /// The devices that CUDA shows under this `CUDA_VISIBLE_DEVICES` (`None` = unset), in order.
    #[must_use]
    pub fn visible(&self, _cuda_visible_devices: Option<&str>) -> Vec<DeviceRef> {
        todo!()
    }
    /// What a device is. Answers also for a slice that has been destroyed meanwhile, with what it was sized as
    /// where that is still known, else zero sizes.
    #[must_use]
    pub fn device(&self, _device: DeviceRef) -> DeviceInfo {
        todo!()
    }
    /// Makes this process a user of the device and charges its context.
    pub fn attach(&self, _device: DeviceRef, _context_bytes: u64) -> Result<Tenant, AttachError> {
        todo!()
    }
}

impl Tenant {
    /// Takes memory; the limit is the slice's, over all its processes.
    pub fn charge(&self, _bytes: u64) -> Result<(), OutOfMemory> {
        todo!()
    }
    /// Gives memory back.
    pub fn release(&self, _bytes: u64) {
        todo!()
    }
    /// Bytes of the slice.
    #[must_use]
    pub fn memory(&self) -> MemoryInfo {
        todo!()
    }
    /// A kernel that wants `sms` multiprocessors starts.
    pub fn kernel_begin(&self, sms: u32) -> KernelMark {
        KernelMark { sms }
    }
    /// It ends.
    pub fn kernel_end(&self, mark: KernelMark) {
        let _ = mark.sms;
    }
    /// The part (0..1] of the multiprocessors it wants that a running kernel gets on average at this moment. Call
    /// it between [`kernel_begin`](Self::kernel_begin) and [`kernel_end`](Self::kernel_end).
    #[must_use]
    pub fn sm_share(&self, _wanted: u32) -> f64 {
        todo!()
    }
    /// A copy between host and device starts.
    pub fn copy_begin(&self) -> CopyMark {
        CopyMark(())
    }
    /// It ends.
    pub fn copy_end(&self, mark: CopyMark) {
        let CopyMark(()) = mark;
    }
    /// Bytes per simulated second that one running copy gets at this moment: the GPU's one bus budget over all
    /// running copies of all its slices. Call it between begin and end.
    #[must_use]
    pub fn copy_bandwidth(&self) -> f64 {
        todo!()
    }
}
