//! The driver as programs meet it: real processes that load the built `libsimgpu_cuda.so`.
//!
//! 1. A test makes a simulated machine ([`bench::Bench`]) and starts its own test binary again, for the same test, in
//!    the machine's environment.
//! 2. There [`bench::role`] is set, and the test plays the program: it loads the library and makes calls ([`calls`]).
//! 3. The first process looks at how the program ended, what it wrote, and what the machine says meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bench;
mod calls;
mod code;
mod contexts;
mod copies;
mod entry_points;
mod graphs;
mod memory;
mod pools;
mod sharing;
mod timing;
mod views;
mod virtual_memory;
