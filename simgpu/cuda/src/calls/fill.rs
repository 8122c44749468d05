//! Memset: checked and timed; device memory has no contents, managed and pinned memory is really filled.

use std::ffi::{c_uchar, c_uint, c_ushort};

use crate::code::Answer;
use crate::contexts::current;
use crate::fills::{Extent, Fill};
use crate::gate::entries;
use crate::graphs::NodeWork;
use crate::handle::Handle;
use crate::timeline::Work;

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
    let place = process.capture_place(stream, per_thread)?;
    let fill = Fill::plan(process, &process.state(), address, value, extent)?;
    if process.capture(place, |_| Ok(NodeWork::Fill(fill)))?.is_some() {
        return Ok(());
    }
    match fill {
        Fill::Nothing => Ok(()),
        Fill::Host { .. } => {
            let ticket = process.player.submit(place.lane, Work::Wait, Vec::new())?;
            if on_host_waits {
                process.player.wait(&[ticket]);
            }
            fill.write();
            Ok(())
        }
        // On device memory even the call without Async in its name does not wait.
        Fill::Device(seconds) => process
            .player
            .submit(place.lane, Work::Pause(seconds), Vec::new())
            .map(drop),
    }
}
