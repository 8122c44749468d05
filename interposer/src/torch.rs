//! What frameworks themselves say of their memory: how much their tensors hold, of what they have reserved.
//!
//! PyTorch calls `c10::reportMemoryUsageToProfiler` for each tensor that its caching allocator makes or frees,
//! profiler or not, through the dynamic linker and from libc10_cuda.so, so a preloaded definition is called first. Its
//! form has changed twice:
//!
//! | PyTorch | arguments |
//! |---|---|
//! | 1.8, 1.9 | block, bytes, device |
//! | 1.10 to 1.13 | block, bytes, allocated, reserved (signed), device |
//! | 2.0 on | block, bytes, allocated, reserved (unsigned), device |
//!
//! It is called under the allocator's lock for that device, so the figures come in order, and all there is to do
//! is to store them. Then PyTorch's own function is called, for its profiler. `reportOutOfMemoryToProfiler`
//! comes just before PyTorch throws, after it has freed what it kept and tried again.
//!
//! Sizes are PyTorch's: blocks rounded up to 512 bytes. The device is the logical index. A build with its c10
//! inside, or the allocators `cudaMallocAsync` and pluggable ones, report nothing: `reserved` is all there is then,
//! unless the program calls [`migm_report`].

use std::ffi::{CStr, c_void};
use std::num::NonZeroUsize;

use once_cell::race::OnceNonZeroUsize;

use crate::attach::{self, Attachment};
use crate::{driver, elf, errno, gate};

/// `c10::Device`, passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Device {
    /// `c10::DeviceType`.
    kind: i8,
    /// The logical index; -1 for "the current one".
    index: i8,
}

/// `c10::DeviceType::CUDA`.
const CUDA: i8 = 1;

/// PyTorch's own function, behind ours.
struct Next {
    name: &'static CStr,
    address: OnceNonZeroUsize,
}

impl Next {
    /// Stands for "there is none".
    const ABSENT: NonZeroUsize = NonZeroUsize::MAX;

    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: OnceNonZeroUsize::new(),
        }
    }

    /// Looked up in the symbol tables of the loaded objects: `RTLD_NEXT` does not see libraries that were opened
    /// for themselves, as Python's are, and `dlopen` takes the loader's lock, which under the allocator's could
    /// be the wrong order.
    fn get(&self) -> Option<NonZeroUsize> {
        let find = || elf::anywhere(self.name).unwrap_or(Self::ABSENT);
        let found = self
            .address
            .get()
            .unwrap_or_else(|| self.address.get_or_init(find));
        (found != Self::ABSENT).then_some(found)
    }
}

/// Makes the exported functions from lines like `fn NAME = "SYMBOL", (ARGUMENTS) => REPORT;`.
macro_rules! reports {
    ($($(#[$doc:meta])* fn $name:ident = $symbol:literal, ($($argument:ident: $type:ty),*) => $report:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As PyTorch's function of this name.
        #[unsafe(export_name = $symbol)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) {
            static NEXT: Next = Next::new(match CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a symbol has no zero byte"),
            });
            $report;
            if let Some(next) = NEXT.get() {
                // SAFETY: the address is that of PyTorch's function of this name, which has this type.
                let next: unsafe extern "C-unwind" fn($($type),*) = unsafe { std::mem::transmute(next.get()) };
                // SAFETY: it gets the caller's arguments as they are.
                unsafe { next($($argument),*) };
            }
        }
    )*};
}

reports! {
    /// PyTorch 1.8 and 1.9: a tensor's block was made, or freed if `bytes` is negative.
    fn memory_changed = "_ZN3c1027reportMemoryUsageToProfilerEPvlNS_6DeviceE",
        (block: *mut c_void, bytes: i64, device: Device) => changed(device, bytes);

    /// PyTorch 1.10 to 1.13, with the totals after it.
    fn memory_is_signed = "_ZN3c1027reportMemoryUsageToProfilerEPvlllNS_6DeviceE",
        (block: *mut c_void, bytes: i64, allocated: i64, reserved: i64, device: Device) =>
        is(device, bytes, unsigned(allocated), unsigned(reserved));

    /// PyTorch since 2.0, with the totals after it.
    fn memory_is = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE",
        (block: *mut c_void, bytes: i64, allocated: usize, reserved: usize, device: Device) =>
        is(device, bytes, allocated as u64, reserved as u64);

    /// PyTorch 1.10 to 1.13 is about to throw out of memory.
    fn out_of_memory_signed = "_ZN3c1027reportOutOfMemoryToProfilerElllNS_6DeviceE",
        (bytes: i64, allocated: i64, reserved: i64, device: Device) =>
        out_of_memory(device, bytes, unsigned(allocated), unsigned(reserved));

    /// PyTorch since 2.0 is about to throw out of memory.
    fn out_of_memory_unsigned = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE",
        (bytes: i64, allocated: usize, reserved: usize, device: Device) =>
        out_of_memory(device, bytes, allocated as u64, reserved as u64);
}

fn unsigned(figure: i64) -> u64 {
    u64::try_from(figure).unwrap_or(0)
}

/// The attachment and the page's index of a CUDA device. The allocator has asked the driver for memory before it
/// reports any, so whoever is not attached by then will not be.
#[inline]
fn place(device: Device) -> Option<(&'static Attachment, usize)> {
    if device.kind != CUDA {
        return None;
    }
    let attached = attach::already()?;
    Some((attached, attached.device_of(device.index.into())?))
}

#[inline]
fn is(device: Device, bytes: i64, allocated: u64, reserved: u64) {
    let Some((attached, device)) = place(device) else {
        return;
    };
    attached
        .page
        .report_allocated_alone(attached.slot, device, allocated);
    attached.page.report_reserved(attached.slot, device, reserved);
    if let Ok(made) = u64::try_from(bytes) {
        attached.page.meet(attached.slot, made);
    }
}

/// The totals are summed up here.
fn changed(device: Device, bytes: i64) {
    let Some((attached, device)) = place(device) else {
        return;
    };
    let before = attached.page.process_allocated(attached.slot, device);
    let allocated = before.saturating_add_signed(bytes);
    attached
        .page
        .report_allocated_alone(attached.slot, device, allocated);
    if let Ok(made) = u64::try_from(bytes) {
        attached.page.meet(attached.slot, made);
    }
}

/// A refusal by the driver has been noted already; a limit of PyTorch's own refuses without asking it.
#[cold]
fn out_of_memory(device: Device, bytes: i64, allocated: u64, reserved: u64) {
    let Some((attached, device)) = place(device) else {
        return;
    };
    attached
        .page
        .report_allocated_alone(attached.slot, device, allocated);
    attached.page.report_reserved(attached.slot, device, reserved);
    if !attached.page.is_unmet(attached.slot) {
        errno::kept(|| attached.refused(device, unsigned(bytes)));
    }
}

/// For programs with an allocator of their own: `allocated` bytes of the current device are in use, of
/// `reserved` bytes that the allocator has of the driver. Call it whenever they change; each call costs a few
/// nanoseconds. C programs declare it weak, and skip it where it is null:
///
/// ```c
/// extern void migm_report(uint64_t allocated, uint64_t reserved) __attribute__((weak));
/// if (migm_report) migm_report(in_use, in_pool);
/// ```
///
/// Call it from one thread at a time for a device, as under the allocator's lock: else the peak may be off by what is
/// under way. Without a loaded driver, or with the interposer turned off, nothing happens.
#[unsafe(no_mangle)]
pub extern "C" fn migm_report(allocated: u64, reserved: u64) {
    let place = || {
        let attached = match attach::already() {
            Some(attached) => attached,
            None if driver::is_loaded() => errno::kept(attach::attached)?,
            None => return None,
        };
        Some((attached, gate::unseen(|| attached.current_device())?))
    };
    if let Some((attached, device)) = place() {
        attached.page.report_allocated(attached.slot, device, allocated);
        attached.page.report_reserved(attached.slot, device, reserved);
    }
}
