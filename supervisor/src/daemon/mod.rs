//! The daemon.
pub mod config;
pub mod connection;
pub mod error;
pub mod page;
pub mod socket;
