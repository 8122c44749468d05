//! What a program asks of a device, and the device that only counts.

use super::driver::PlayError;
use std::collections::HashMap;
use std::ffi::CStr;

/// Device memory: its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Buffer(pub u64);

/// One kernel argument, with the width that the kernel declares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Argument {
    Buffer(Buffer),
    U32(u32),
    U64(u64),
    F32(f32),
}

impl From<Buffer> for Argument {
    fn from(buffer: Buffer) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<u32> for Argument {
    fn from(value: u32) -> Self {
        Self::U32(value)
    }
}

impl From<u64> for Argument {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<f32> for Argument {
    fn from(value: f32) -> Self {
        Self::F32(value)
    }
}

/// Blocks of a launch, and threads of a block, along x, y and z.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
}

impl Shape {
    /// `grid` blocks of `block` threads in a row.
    pub const fn row(grid: u32, block: u32) -> Self {
        Self {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
        }
    }

    /// At least one thread for each of `threads`, in blocks of 256.
    pub fn cover(threads: u64) -> Result<Self, PlayError> {
        Ok(Self::row(narrow(threads.div_ceil(256))?, 256))
    }

    /// At least one thread for each cell of a square of side `n`, in blocks of 16 x 16.
    pub const fn square(n: u32) -> Self {
        let side = n.div_ceil(16);
        Self {
            grid: [side, side, 1],
            block: [16, 16, 1],
        }
    }

    /// For a loop over `count` values in strides of the grid: at most 65,536 blocks of 256.
    pub fn stride(count: u64) -> Result<Self, PlayError> {
        Ok(Self::row(narrow(count.div_ceil(256).clamp(1, 65_536))?, 256))
    }
}

/// A number as kernels take it.
pub(super) fn narrow(value: u64) -> Result<u32, PlayError> {
    u32::try_from(value).map_err(|_| PlayError::Argument(format!("{value} is above {}", u32::MAX)))
}

/// A product of sizes.
pub(super) fn product(factors: &[u64]) -> Result<u64, PlayError> {
    let all = factors
        .iter()
        .try_fold(1_u64, |product, &factor| product.checked_mul(factor));
    all.ok_or_else(|| PlayError::Argument(format!("{factors:?} multiplied is more than 2^64 - 1")))
}

/// What a program does to a device.
pub(super) trait Device {
    /// Allocates exactly `bytes`; nothing is asked of the driver for 0.
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, PlayError>;
    /// Returns memory that `allocate` gave.
    fn release(&mut self, buffer: Buffer) -> Result<(), PlayError>;
    /// Starts a kernel of the program's PTX.
    fn launch(
        &mut self,
        kernel: &'static CStr,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), PlayError>;
    /// Copies to the device, `offset` bytes into a buffer.
    fn upload(&mut self, to: Buffer, offset: u64, bytes: &[u8]) -> Result<(), PlayError>;
    /// Copies from the start of a buffer.
    fn download(&mut self, from: Buffer, bytes: &mut [u8]) -> Result<(), PlayError>;
    /// Sets the first `bytes` of a buffer to 0.
    fn clear(&mut self, buffer: Buffer, bytes: u64) -> Result<(), PlayError>;
    /// Waits until all that was launched is done: the end of an iteration.
    fn synchronize(&mut self) -> Result<(), PlayError>;
    /// Whether copies move bytes. Where they do not, a program need not make up data.
    fn copies(&self) -> bool {
        true
    }
}

/// Counts the bytes that are allocated, and does nothing.
#[derive(Debug, Default)]
pub(super) struct Counter {
    live: HashMap<Buffer, u64>,
    next: u64,
    total: Total,
}

/// Live bytes and their peak.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    live: u64,
    pub peak: u64,
}

impl Total {
    pub fn add(&mut self, bytes: u64) {
        self.live += bytes;
        self.peak = self.peak.max(self.live);
    }

    pub fn take(&mut self, bytes: u64) {
        self.live -= bytes;
    }
}

impl Counter {
    pub fn peak(&self) -> u64 {
        self.total.peak
    }

    /// Bytes that were allocated and not released.
    #[cfg(test)]
    pub fn live(&self) -> u64 {
        self.total.live
    }
}

impl Device for Counter {
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, PlayError> {
        self.next += 1;
        let buffer = Buffer(self.next);
        self.live.insert(buffer, bytes);
        self.total.add(bytes);
        Ok(buffer)
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), PlayError> {
        self.total.take(self.live.remove(&buffer).unwrap_or(0));
        Ok(())
    }

    fn launch(&mut self, _: &'static CStr, _: Shape, _: &[Argument]) -> Result<(), PlayError> {
        Ok(())
    }

    fn upload(&mut self, _: Buffer, _: u64, _: &[u8]) -> Result<(), PlayError> {
        Ok(())
    }

    fn download(&mut self, _: Buffer, _: &mut [u8]) -> Result<(), PlayError> {
        Ok(())
    }

    fn clear(&mut self, _: Buffer, _: u64) -> Result<(), PlayError> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), PlayError> {
        Ok(())
    }

    fn copies(&self) -> bool {
        false
    }
}
