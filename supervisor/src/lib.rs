//! The supervisor of migm, from the pure ground floor up: a room never uses one above it.
pub mod cli;
pub mod control;
pub mod daemon;
pub mod job;
pub mod layout;
pub mod memory;
pub mod node;
pub mod play;
pub mod report;
pub mod schedule;
pub mod serve;
pub mod whatif;
