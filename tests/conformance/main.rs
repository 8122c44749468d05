//! One suite for the simulated and for a real driver: programs allocate through every path to device memory, and the
//! ledger must show what they asked for, to the byte.
//!
//! 1. `DRIVER=sim` (the default) gives each test a simulated GPU; `DRIVER=real` leaves the programs to the driver that is
//!    there.
//! 2. A test starts `paths ROW` ([`programs`]) under the interposer, with a scripted supervisor that hands out a counter
//!    page. After each step the program says what it holds by class, and by how much `cuMemGetInfo` has changed since
//!    its start.
//! 3. The page must say the same, and the change must lie between what is held and that rounded up to the driver's
//!    steps of 2 MiB.
//! 4. A row that a real device has not got is left out by name. On the simulated GPU none is left out.
//! 5. `migm run --report` must tell the same peak and counts, and CUDA programs over both kinds of runtime must come
//!    out as those over the driver do.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod identity;
#[path = "../interposer/peer.rs"]
#[expect(dead_code, reason = "the interposer's own tests use more of it")]
mod peer;
mod programs;
mod pytorch;
mod report;
mod rows;
mod runtime;
#[path = "../support/mod.rs"]
mod support;
