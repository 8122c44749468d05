//! The simulated GPU: one state in shared memory, used by every process on the simulated machine.
//!
//! The story of one job on a slice:
//! 1. Somebody makes a state ([`files`]): some GPUs of known [`model`]s, a time scale, a driver version. Its id
//!    goes into `SIMGPU_ID`.
//! 2. A supervisor, through NVML, creates a GPU instance ([`mig`]); the [`placement`] rules say where. A compute
//!    instance makes it a MIG device with an [`identity`].
//! 3. A program starts. [`machine::Machine::visible`] says which devices CUDA shows it, and
//!    [`machine::Machine::attach`] makes it a [`machine::Tenant`] of one: a record in the state.
//! 4. Its allocations are charged against the slice, together with those of all other tenants. Its kernels and
//!    copies are in the record while they run, so the GPU's power is known, and is summed into joules.
//! 5. It ends, or is killed at any instant. Its record is found dead and taken out; nothing else was kept of it.
//!
//! No kernel is computed: the state holds sizes, times and who uses what.
//!
//! `SIMGPU_ID` is the state's id, `SIMGPU_TIME_SCALE` and `SIMGPU_DRIVER` are read when a state is made through
//! `libnvidia-ml.so.1`; so are `SIMGPU_FAULTS`
//! ([`faults`]) and `SIMGPU_GUEST` ([`guest`]).

pub mod compute;
pub mod device_files;
pub mod driver;
pub mod faults;
pub mod files;
pub mod guest;
pub mod identity;
mod lock;
pub mod machine;
pub mod mig;
pub mod model;
pub mod placement;
mod power;
mod process;
pub mod segment;
mod state;
mod tenant;
mod visible;

pub use machine::{
    AttachError, CopyMark, DeviceInfo, DeviceRef, KernelMark, Machine, MemoryInfo, OpenError, OutOfMemory,
    SliceRef, Tenant,
};
pub use segment::{SegmentId, ShareError};
pub use tenant::ProcessUse;
