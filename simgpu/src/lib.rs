//! The simulated GPU.
pub mod machine;
