//! The built shared object as `nvml-wrapper` and the raw bindings see it.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

mod bench;
mod children;
mod control;
mod drivers;
mod faults;
mod identity;
mod life;
mod mode;
mod placement;
mod profiles;
