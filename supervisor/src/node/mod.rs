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
mod mode;
mod nvml;
mod profiles;
mod raw;
pub mod sim;
pub mod soft;
mod versions;

pub use error::{Code, Holder, NodeError};
pub use mode::{MigMode, ModeChange, Needs, Virtual};
pub use nvml::Nvml;
pub use raw::Calls;

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
/// calls, so that monitors and resets do not meet stale ones. Calls about different GPUs may be made at the
/// same time.
pub trait Node: Send + Sync {
    /// All GPUs that answer, by index.
    ///
    /// # Errors
    /// The driver does not count them, or none of them answers.
    fn gpus(&self) -> Result<Vec<Gpu>, NodeError>;

    /// How many GPUs there are, lost ones included: indices run from 0.
    ///
    /// # Errors
    /// The driver refused.
    fn count(&self) -> Result<u32, NodeError> {
        let gpus = self.gpus()?;
        Ok(gpus.iter().map(|gpu| gpu.index + 1).max().unwrap_or(0))
    }

    /// One GPU.
    ///
    /// # Errors
    /// The driver refused, as it does where the GPU is lost.
    fn gpu(&self, index: u32) -> Result<Gpu, NodeError> {
        let found = self.gpus()?.into_iter().find(|gpu| gpu.index == index);
        found.ok_or_else(|| NodeError::Nvml {
            tried: format!("opening GPU {index}"),
            code: Code::NOT_FOUND,
        })
    }

    /// Turns the MIG mode of a GPU on or off, and reads back what came of it. Nothing but a wish of the user
    /// for this very thing leads here.
    ///
    /// # Errors
    /// The driver refused the request. That it could not be put into force is a [`ModeChange`].
    fn set_mode(&self, gpu: u32, on: bool) -> Result<ModeChange, NodeError> {
        let _ = on;
        Err(NodeError::Nvml {
            tried: format!("setting the MIG mode of GPU {gpu}"),
            code: Code::NOT_SUPPORTED,
        })
    }

    /// Whether the GPU is one of a virtual machine.
    fn virtualisation(&self, gpu: u32) -> Virtual {
        let _ = gpu;
        Virtual::No
    }

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
    /// [`NodeError::InUse`] after bounded retries; [`NodeError::HalfGone`] where only a part of it went; else
    /// what the driver said.
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
