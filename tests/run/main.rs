//! `migm run` and `migm batch`, with real programs and real signals, against a supervisor that follows a
//! script.

mod batch;
mod binary;
mod ends;
mod input;
mod lost;
mod moves;
mod scripted;
mod signals;
mod terminal;
