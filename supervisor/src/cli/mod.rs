//! Placeholder.
pub mod supervisor;
