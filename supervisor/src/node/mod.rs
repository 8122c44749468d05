//! The machine: GPUs, their MIG instances, memory and energy, behind one trait.
//!
//! One slice's life, as [`Nvml`] makes it:
//!
//! 1. The profiles of this GPU are read from the driver, with their places. No model is known by name.
//! 2. [`Node::create`]: GPU instance at a given place, then its full-size compute instance. A GPU instance
//!    without a compute instance is no CUDA device, so the two are one transaction: where the second fails
//!    the first is removed again.
//! 3. The driver is asked what it made. Another profile or place than asked for is removed and an error.
//! 4. The MIG device that carries the pair is found by walking all handles: indices have holes.
//! 5. [`Node::destroy`]: compute instances first. `IN_USE` may be transient after a process's end, so there
//!    are retries with a limit; then the error names who holds the instance.
//!
//! Nothing here is destroyed by being dropped: instances outlive the supervisor on purpose.

use crate::layout::{Placement, Profile};

mod error;
mod holders;
mod instances;
mod nvml;
mod profiles;
mod raw;
pub mod sim;
pub mod soft;

pub use error::{Code, Holder, NodeError};
pub use nvml::Nvml;

/// A GPU of this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Gpu {
    /// NVML's index.
    pub index: u32,
    /// Model name as NVML prints it.
    pub name: String,
    /// `GPU-...`.
    pub uuid: String,
    /// Memory of the whole GPU, bytes.
    pub memory: u64,
    /// MIG mode.
    pub mode: MigMode,
}

/// Whether a GPU is cut into instances.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MigMode {
    /// The model or the driver has no MIG.
    Absent,
    /// Off.
    Off,
    /// On.
    On,
    /// Asked for and not yet so: a reset is due. Holds the current mode.
    Pending {
        /// On until the reset.
        current: bool,
    },
}

impl MigMode {
    /// Whether instances can be made.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On | Self::Pending { current: true })
    }

    /// The word that `migm status` shows.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "mig",
            Self::Absent | Self::Off => "whole",
            Self::Pending { .. } => "mig-pending",
        }
    }
}

/// A GPU instance with its compute instances.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Instance {
    /// NVML's id: meaningful on its GPU while the instance lives, used again afterwards.
    pub gi: u32,
    /// Profile id, as in [`Profile::id`].
    pub profile: u32,
    /// Where it sits.
    pub placement: Placement,
    /// Ids of its compute instances.
    pub cis: Vec<u32>,
    /// UUID of the first compute instance's MIG device: not unique in time.
    pub uuid: Option<String>,
    /// Its memory by NVML in bytes; `None` while there is no MIG device.
    pub memory: Option<u64>,
}

/// Device memory in bytes, context and modules included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Memory {
    /// In use.
    pub used: u64,
    /// All.
    pub total: u64,
    /// Of it, what the driver keeps for itself and does not count as used; 0 where it counts that as used.
    pub reserved: u64,
}

/// A process on a GPU, as NVML lists it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Bytes it uses; `None` where the driver does not say.
    pub used: Option<u64>,
    /// The GPU instance it runs on.
    pub gi: Option<u32>,
}

/// The machine. Methods take NVML's index of a GPU, ask the driver each time and hold no handles between
/// calls, so that monitors and resets do not meet stale ones.
pub trait Node: Send {
    /// All GPUs by index.
    ///
    /// # Errors
    /// The driver refused.
    fn gpus(&self) -> Result<Vec<Gpu>, NodeError>;

    /// The driver's version, such as `535.129.03`.
    ///
    /// # Errors
    /// The driver refused.
    fn driver(&self) -> Result<String, NodeError>;

    /// The kinds of GPU instance that the GPU offers, with all their legal places.
    ///
    /// # Errors
    /// The driver refused; `NOT_SUPPORTED` where there is no MIG.
    fn profiles(&self, gpu: u32) -> Result<Vec<Profile>, NodeError>;

    /// The instances that are there, ours or not, by start.
    ///
    /// # Errors
    /// The driver refused.
    fn instances(&self, gpu: u32) -> Result<Vec<Instance>, NodeError>;

    /// Makes a GPU instance at a place with its full-size compute instance, and reads it back.
    ///
    /// # Errors
    /// The driver refused either, or made something else. Nothing is left then, except by
    /// [`NodeError::LeftBehind`].
    fn create(&self, gpu: u32, profile: &Profile, placement: Placement) -> Result<Instance, NodeError>;

    /// Removes an instance and what it contains. One that is not there counts as removed.
    ///
    /// # Errors
    /// [`NodeError::InUse`] after bounded retries; else what the driver said.
    fn destroy(&self, gpu: u32, gi: u32) -> Result<(), NodeError>;

    /// Energy that the whole GPU has used since the driver was loaded, millijoules; `None` where the model
    /// has no counter. There is none for an instance.
    ///
    /// # Errors
    /// The driver refused for another reason.
    fn energy_mj(&self, gpu: u32) -> Result<Option<u64>, NodeError>;

    /// Memory of the whole GPU.
    ///
    /// # Errors
    /// The driver refused.
    fn memory(&self, gpu: u32) -> Result<Memory, NodeError>;

    /// Memory of an instance, by the UUID of its MIG device.
    ///
    /// # Errors
    /// The driver refused, or there is no such device.
    fn slice_memory(&self, uuid: &str) -> Result<Memory, NodeError>;

    /// Compute processes on the GPU and its instances.
    ///
    /// # Errors
    /// The driver refused.
    fn processes(&self, gpu: u32) -> Result<Vec<Process>, NodeError>;
}
