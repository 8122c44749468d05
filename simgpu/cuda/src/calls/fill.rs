//! Memset: checked and timed; device memory has no contents, managed and pinned memory is really filled.

use std::ffi::{c_uchar, c_uint, c_ushort};

use crate::code::{Answer, Code};
use crate::contexts::current;
use crate::gate::{Host, entries};
use crate::handle::Handle;
use crate::timeline::Work;

/// A box of elements: bytes of one, how many in a row, rows, bytes from row to row.
#[derive(Clone, Copy)]
struct Extent {
    element: usize,
    width: usize,
    rows: usize,
    pitch: usize,
}

fn line(element: usize, count: usize) -> Extent {
    Extent {
        element,
        width: count,
        rows: 1,
        pitch: 0,
    }
}

macro_rules! fills {
    ($($element:literal $value:ty: $old:ident $new:ident $new_ptds:ident $later:ident $later_ptsz:ident
        $old_2d:ident $new_2d:ident $new_2d_ptds:ident $later_2d:ident $later_2d_ptsz:ident;)*) => {$(entries! {
        fn $old(address: c_uint, value: $value, count: c_uint) {
            fill(u64::from(address), u32::from(value), line($element, count as usize), 0, false, true)
        }
        fn $new(address: u64, value: $value, count: usize) {
            fill(address, u32::from(value), line($element, count), 0, false, true)
        }
        fn $new_ptds(address: u64, value: $value, count: usize) {
            fill(address, u32::from(value), line($element, count), 0, true, true)
        }
        fn $later(address: u64, value: $value, count: usize, stream: Handle) {
            fill(address, u32::from(value), line($element, count), stream, false, false)
        }
        fn $later_ptsz(address: u64, value: $value, count: usize, stream: Handle) {
            fill(address, u32::from(value), line($element, count), stream, true, false)
        }
        fn $old_2d(address: c_uint, pitch: c_uint, value: $value, width: c_uint, height: c_uint) {
            let extent = Extent {
                element: $element,
                width: width as usize,
                rows: height as usize,
                pitch: pitch as usize,
            };
            fill(u64::from(address), u32::from(value), extent, 0, false, true)
        }
        fn $new_2d(address: u64, pitch: usize, value: $value, width: usize, height: usize) {
            let extent = Extent { element: $element, width, rows: height, pitch };
            fill(address, u32::from(value), extent, 0, false, true)
        }
        fn $new_2d_ptds(address: u64, pitch: usize, value: $value, width: usize, height: usize) {
            let extent = Extent { element: $element, width, rows: height, pitch };
            fill(address, u32::from(value), extent, 0, true, true)
        }
        fn $later_2d(
            address: u64, pitch: usize, value: $value, width: usize, height: usize, stream: Handle,
        ) {
            let extent = Extent { element: $element, width, rows: height, pitch };
            fill(address, u32::from(value), extent, stream, false, false)
        }
        fn $later_2d_ptsz(
            address: u64, pitch: usize, value: $value, width: usize, height: usize, stream: Handle,
        ) {
            let extent = Extent { element: $element, width, rows: height, pitch };
            fill(address, u32::from(value), extent, stream, true, false)
        }
    })*};
}

fills! {
    1 c_uchar: cuMemsetD8 cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz
        cuMemsetD2D8 cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz;
    2 c_ushort: cuMemsetD16 cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD16Async cuMemsetD16Async_ptsz
        cuMemsetD2D16 cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz;
    4 c_uint: cuMemsetD32 cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32Async cuMemsetD32Async_ptsz
        cuMemsetD2D32 cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
}

fn fill(
    address: u64,
    value: u32,
    extent: Extent,
    stream: Handle,
    per_thread: bool,
    on_host_waits: bool,
) -> Answer {
    let (process, _) = current()?;
    let (lane, _) = process.lane(stream, per_thread)?;
    let width = extent
        .width
        .checked_mul(extent.element)
        .ok_or(Code::INVALID_VALUE)?;
    if width == 0 || extent.rows == 0 {
        return Ok(());
    }
    let step = if extent.rows == 1 { width } else { extent.pitch };
    if step < width || !address.is_multiple_of(extent.element as u64) {
        return Err(Code::INVALID_VALUE);
    }
    let before_last = step.checked_mul(extent.rows - 1).ok_or(Code::INVALID_VALUE)?;
    let span = before_last.checked_add(width).ok_or(Code::INVALID_VALUE)? as u64;
    let state = process.state();
    if let Some((start, region)) = state.memory.host.find(address) {
        if address
            .checked_add(span)
            .is_none_or(|end| end > start + region.bytes as u64)
        {
            return Err(Code::INVALID_VALUE);
        }
        drop(state);
        let ticket = process.player.submit(lane, Work::Wait, Vec::new())?;
        if on_host_waits {
            process.player.wait(&[ticket]);
        }
        for row in 0..extent.rows {
            fill_row(address + (row * step) as u64, value, extent.element, width);
        }
        return Ok(());
    }
    let device = state.memory.device_of(address, span)?;
    drop(state);
    let bandwidth = process
        .devices
        .get(device)
        .ok_or(Code::INVALID_DEVICE)?
        .memory_bandwidth;
    #[expect(clippy::cast_precision_loss, reason = "byte counts are far below 2^53")]
    let seconds = (width * extent.rows) as f64 / bandwidth;
    // On device memory even the call without Async in its name does not wait.
    process
        .player
        .submit(lane, Work::Pause(seconds), Vec::new())
        .map(drop)
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
