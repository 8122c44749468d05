//! `libcuda.so.1` over the simulated GPU.
//!
//! The story of one program on it:
//! 1. The loader, or a `dlopen`, finds this library by its soname. The program looks entry points up by the linker,
//!    `dlsym` or `cuGetProcAddress`: all come from one [`table`]. What is not modelled is there too, says its name
//!    once on stderr and answers `CUDA_ERROR_NOT_SUPPORTED`.
//! 2. `cuInit` opens the machine that `SIMGPU_ID` names and sees which devices `CUDA_VISIBLE_DEVICES` leaves
//!    ([`process`]). Without a machine it answers `CUDA_ERROR_NO_DEVICE`. A child forked after that gets
//!    `CUDA_ERROR_NOT_INITIALIZED` from every call, as from the real driver.
//! 3. The first context on a device makes the process a tenant of the slice and is charged to it ([`contexts`]).
//! 4. Allocations get addresses that exist nowhere ([`space`]) and are charged in steps of 2 MiB ([`blocks`]) against
//!    the slice's limit, beyond which they fail with `CUDA_ERROR_OUT_OF_MEMORY`. Pools keep what they reserved
//!    ([`pools`]), physical memory lives by reference ([`virtual_memory`]), and what other processes open is paid by
//!    who exported it ([`sharing`]).
//! 5. Launches, copies and events become steps of lanes ([`timeline`]), played in simulated time by one thread
//!    ([`player`]): kernels share the slice's multiprocessors, copies the GPU's bus, across processes.
//! 6. Or they become nodes of a graph, on a stream that captures ([`captures`]) or one by one ([`graphs`]). What graphs
//!    allocate is charged when they are launched ([`graph_memory`]).
//! 7. The process ends, however it does; the machine finds its record dead and takes everything back.
//!
//! Device memory has no contents and kernels compute nothing: what is copied out of a device is zeros. Copies that
//! stay on the host, and memset of managed or pinned memory, are real.
//!
//! Rules that NVIDIA documents are followed to the code that is returned. Where its documentation leaves something
//! open, the module says what was chosen. Exported pools, sparse arrays, events between processes, multicast objects
//! and external semaphores are not modelled.
//!
//! `SIMGPU_CONTEXT_BYTES` and `SIMGPU_CONTEXT_SECONDS` set what a context costs; `SIMGPU_COSTS` names a table of
//! kernel times ([`costs`]).

// The story above links to modules for those who read the source.
#![expect(
    rustdoc::private_intra_doc_links,
    reason = "everything in this crate is private: it is a C library"
)]

mod abi;
mod attributes;
mod blocks;
mod calls;
mod captures;
mod code;
mod contexts;
mod costs;
mod fills;
mod gate;
mod graph_memory;
mod graph_store;
mod graphs;
mod greens;
mod handle;
mod host_memory;
mod image;
mod memory;
mod modules;
mod player;
mod pools;
mod process;
mod ptx;
mod shareable;
mod sharing;
mod slice;
mod space;
mod state;
mod table;
mod textures;
mod timeline;
mod transfer;
mod virtual_memory;

/// The names that this library exports: those of the driver API, and the few that our own runtime needs. For the
/// tests that compare the built file with it.
pub fn exported_names() -> impl Iterator<Item = &'static str> {
    table::ENTRIES.iter().map(|entry| entry.name)
}
