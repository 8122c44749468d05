//! `libnvidia-ml.so.1` over the simulated GPU.
//!
//! One call, told:
//! 1. A program, `nvml-wrapper` say, resolves `nvmlDeviceCreateGpuInstance` here as it would in NVIDIA's library.
//!    Only the loader's path decides which of the two it meets.
//! 2. The exported function ([`mig`], [`instances`], [`device`], [`system`], [`events`]) looks its handles up: they are numbers
//!    that say what they mean ([`handles`]).
//! 3. It asks the [`simgpu::Machine`] of this process and hands the answer over through the types of [`edge`],
//!    the only place that follows C's pointers.
//! 4. A refusal becomes the result that NVIDIA's library returns. What has no model here returns
//!    `NOT_SUPPORTED` ([`unmodelled`]).
//!
//! [`control`] adds what only a simulation needs.
//!
//! `SIMGPU_HOLD=0` makes an initialised library hold GPU 0 as a monitor does. `SIMGPU_NO_PERMISSION` says which rights
//! this process lacks (`rights`).

mod code;
pub mod control;
pub mod device;
pub mod edge;
pub mod events;
pub mod handles;
pub mod instances;
mod library;
pub mod mig;
mod rights;
pub mod system;
pub mod unmodelled;
