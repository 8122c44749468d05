//! What a memset does: to the program's own memory for real, to device memory for as long as it would take.

use crate::code::{Answer, Code};
use crate::gate::Host;
use crate::process::Process;
use crate::state::State;

/// A box to fill: bytes of an element, elements in a row, rows, bytes from row to row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) element: usize,
    pub(crate) width: usize,
    pub(crate) rows: usize,
    pub(crate) pitch: usize,
}

/// A memset that may go ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fill {
    /// Nothing to fill.
    Nothing,
    /// Rows of host memory that the driver knows.
    Host {
        address: u64,
        value: u32,
        element: usize,
        /// Bytes of a row, rows, and bytes from row to row.
        width: usize,
        rows: usize,
        step: usize,
    },
    /// Device memory, for this many seconds.
    Device(f64),
}

impl Fill {
    /// Checks that what is to be filled is live.
    pub(crate) fn plan(
        process: &Process,
        state: &State,
        address: u64,
        value: u32,
        extent: Extent,
    ) -> Answer<Self> {
        let Extent { element, rows, .. } = extent;
        let width = extent.width.checked_mul(element).ok_or(Code::INVALID_VALUE)?;
        if width == 0 || rows == 0 {
            return Ok(Self::Nothing);
        }
        let step = if rows == 1 { width } else { extent.pitch };
        if step < width || !address.is_multiple_of(element as u64) {
            return Err(Code::INVALID_VALUE);
        }
        let before_last = step.checked_mul(rows - 1).ok_or(Code::INVALID_VALUE)?;
        let span = before_last.checked_add(width).ok_or(Code::INVALID_VALUE)? as u64;
        if let Some((start, region)) = state.memory.host.find(address) {
            let end = address.checked_add(span);
            return if end.is_some_and(|end| end <= start + region.bytes as u64) {
                Ok(Self::Host {
                    address,
                    value,
                    element,
                    width,
                    rows,
                    step,
                })
            } else {
                Err(Code::INVALID_VALUE)
            };
        }
        let device = state.memory.device_of(address, span)?;
        let device = process.devices.get(device).ok_or(Code::INVALID_DEVICE)?;
        #[expect(clippy::cast_precision_loss, reason = "byte counts are far below 2^53")]
        let bytes = (width * rows) as f64;
        Ok(Self::Device(bytes / device.memory_bandwidth))
    }

    /// Writes to host memory, if that is what it fills.
    pub(crate) fn write(&self) {
        let Self::Host {
            address,
            value,
            element,
            width,
            rows,
            step,
        } = *self
        else {
            return;
        };
        for row in 0..rows {
            fill_row(address + (row * step) as u64, value, element, width);
        }
    }
}

/// Fills a row of host memory: one element, then what is filled copied behind itself.
fn fill_row(start: u64, value: u32, element: usize, width: usize) {
    for (offset, byte) in (0..).zip(value.to_le_bytes()).take(element) {
        Host::from_address(start + offset).fill(byte, 1);
    }
    let mut filled = element;
    while filled < width {
        let more = filled.min(width - filled);
        Host::from_address(start + filled as u64).copy_from(Host::from_address(start), more);
        filled += more;
    }
}
