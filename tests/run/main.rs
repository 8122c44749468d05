//! `migm run` and `migm batch`, with real programs and real signals, against a supervisor that follows a
//! script.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod batch;
mod ends;
mod input;
mod lost;
mod moves;
mod scripted;
mod signals;
mod terminal;

#[path = "../support/mod.rs"]
mod support;
