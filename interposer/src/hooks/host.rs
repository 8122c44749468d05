//! Page-locked host memory: a class of its own, never device bytes.

use std::ffi::{c_uint, c_void};

use migm_shared::page::Class;

use super::{hooks, written};
use crate::abi::Status;
use crate::gate;
use crate::ledger::{Grant, Key};

fn allocate(real: impl FnOnce() -> Status, pointer: *const *mut c_void, bytes: u64) -> Status {
    let granted = || {
        // SAFETY: read after the driver has written it.
        let address = unsafe { written(pointer) }?;
        Some(Grant {
            key: Key::address(address as u64),
            class: Class::Host,
            bytes,
        })
    };
    gate::allocate_apart(real, granted)
}

fn register(real: impl FnOnce() -> Status, pointer: *mut c_void, bytes: u64) -> Status {
    let key = Key::address(pointer as u64);
    let class = Class::Host;
    gate::allocate_apart(real, || Some(Grant { key, class, bytes }))
}

hooks! {
    /// Page-locked memory, with a 32-bit size.
    fn cuMemAllocHost = (c"cuMemAllocHost", 2000, Legacy), (pointer: *mut *mut c_void, bytes: c_uint) => |real|
        allocate(real, pointer, bytes.into());

    /// Page-locked memory.
    fn cuMemAllocHost_v2 = (c"cuMemAllocHost", 3020, Legacy), (pointer: *mut *mut c_void, bytes: usize) => |real|
        allocate(real, pointer, bytes as u64);

    /// Page-locked memory with flags.
    fn cuMemHostAlloc = (c"cuMemHostAlloc", 2020, Legacy),
        (pointer: *mut *mut c_void, bytes: usize, flags: c_uint) => |real| allocate(real, pointer, bytes as u64);

    /// Frees page-locked memory.
    fn cuMemFreeHost = (c"cuMemFreeHost", 2000, Legacy), (pointer: *mut c_void) => |real|
        gate::free(Key::address(pointer as u64), real);

    /// Page-locks memory that the program has.
    fn cuMemHostRegister = (c"cuMemHostRegister", 4000, Legacy),
        (pointer: *mut c_void, bytes: usize, flags: c_uint) => |real| register(real, pointer, bytes as u64);

    /// The same since 6.5.
    fn cuMemHostRegister_v2 = (c"cuMemHostRegister", 6050, Legacy),
        (pointer: *mut c_void, bytes: usize, flags: c_uint) => |real| register(real, pointer, bytes as u64);

    /// Gives such memory back to the pager.
    fn cuMemHostUnregister = (c"cuMemHostUnregister", 4000, Legacy), (pointer: *mut c_void) => |real|
        gate::free(Key::address(pointer as u64), real);
}
