//! The daemon as a process, on a simulated GPU, with scripted runners, commands and processes as peers.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod between;
mod choice;
mod ends;
mod loaded;
mod moves;
mod peer;
mod policy;
mod service;
mod strangers;

#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/mod.rs"]
mod support;
