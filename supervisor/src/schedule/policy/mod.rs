//! The policies that decide by [`Strategy`](super::Strategy): each in a file of its own.

mod fixed;
mod migm;

pub use fixed::{Fixed, Rule};
pub use migm::{Choice, Migm};
