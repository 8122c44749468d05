//! The built interposer, preloaded into real programs over a small driver, with a scripted supervisor.
//!
//! The programs and the driver are in `tests/programs`, and are compiled when a test needs them. What the
//! interposer counted is read from the page that the scripted supervisor handed out, after the program's end.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod cap;
mod clock;
mod counting;
mod crowds;
mod cudart;
mod exports;
mod nvtx;
mod paths;
mod peer;
mod processes;
mod programs;
mod refusal;
mod report;
mod supervisor;
mod ways_in;
