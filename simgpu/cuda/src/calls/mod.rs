//! The exported entry points, by what they are about. Each is a few lines: look up, check, act.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod external;
pub(crate) mod fill;
pub(crate) mod graph;
pub(crate) mod graph_launch;
pub(crate) mod green;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod launch;
pub(crate) mod library;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod occupancy;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod primary;
pub(crate) mod proc_address;
pub(crate) mod stream;
pub(crate) mod stream_memory;
pub(crate) mod texture;
pub(crate) mod virtual_memory;
