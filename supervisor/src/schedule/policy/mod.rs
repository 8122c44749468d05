//! The policies that decide by [`Strategy`](super::Strategy): each in a file of its own.

mod fixed;
mod flow;
mod local;
mod migm;
mod shop;

pub use fixed::{Fixed, Rule};
pub use migm::{Choice, Migm};
