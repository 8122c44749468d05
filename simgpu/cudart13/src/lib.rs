//! `libcudart.so.13`: the runtime of [`simgpu_runtime`] under the name and version of CUDA 13.0.
//!
//! Nothing is defined here. `build.rs` sets the SONAME and the version node; the entry points come with the
//! runtime crate, which answers as 13.0 by default.

use simgpu_runtime as _;
