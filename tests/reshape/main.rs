//! Reshaping for real: the supervisor as a process on a simulated GPU, killed at every step, and a driver
//! that refuses, hangs and loses GPUs.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod calls;
mod job;
mod killed;
mod mode;
mod older;
mod refusals;
mod unlike;

#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/mod.rs"]
mod support;
