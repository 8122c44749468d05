//! The CUDA runtime API over whatever driver the loader finds.
//!
//! The story of one `cudaMalloc`:
//!
//! 1. Before `main`, the program registers its embedded kernels and variables (`__cudaRegister*`). Only names
//!    and host addresses are noted: no driver is looked for yet (`registry`).
//! 2. The program calls `cudaMalloc`. `driver` opens `libcuda.so.1`, asks it by `dlsym` for
//!    `cuGetProcAddress_v2`, and that function for every other one, by name and by the CUDA version that
//!    introduced its signature. Nothing is linked: an interposer sees what it sees with NVIDIA's runtime.
//! 3. `context` makes the primary context of the thread's device current, once a thread.
//! 4. `cuMemAlloc` answers. Its code is the runtime's code too (`error`); a failure is also kept as the
//!    thread's last error until it is read.
//! 5. A kernel launch finds its function by host address; the module that holds it is loaded on the first
//!    use on a device, and its variables are defined then (`registry`, `launch`).
//!
//! The crate is linked into `libcudart.so.12` and `libcudart.so.13`, which only add a version, and is itself
//! a static library for `nvcc -cudart none`. An entry point that is not modelled is not exported.
//!
//! NVIDIA's own runtime cannot run on the simulated driver (it needs undocumented tables), hence this one.

mod array;
mod array_copy;
mod context;
mod copy;
mod device;
mod driver;
mod error;
mod event;
mod launch;
mod memory;
mod pool;
mod properties;
mod registry;
mod stream;

pub use device::answer_as;
