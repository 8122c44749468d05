//! Arrays: memory for textures. Sizes are in elements; an element is a format times channels.

use std::sync::Arc;

use crate::abi::{Array3dDescription, ArrayDescription};
use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::memory::{Array, Kind};
use crate::process::Process;

entries! {
    fn cuArrayCreate_v2(array: Out<Handle>, description: In<ArrayDescription>) {
        let ArrayDescription { width, height, format, channels } = description.get()?;
        create(array, Array3dDescription { width, height, depth: 0, format, channels, flags: 0 })
    }

    fn cuArray3DCreate_v2(array: Out<Handle>, description: In<Array3dDescription>) {
        create(array, description.get()?)
    }

    fn cuArrayGetDescriptor_v2(description: Out<ArrayDescription>, array: Handle) {
        let Array { width, height, format, channels, .. } = find(array)?;
        description.put(ArrayDescription { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor_v2(description: Out<Array3dDescription>, array: Handle) {
        let Array { width, height, depth, format, channels, flags, .. } = find(array)?;
        description.put(Array3dDescription { width, height, depth, format, channels, flags })
    }

    /// Work that may still use it is waited for.
    fn cuArrayDestroy(array: Handle) {
        let process = Process::get()?;
        let mut state = process.state();
        let found = state.memory.arrays.remove(&array).ok_or(Code::INVALID_HANDLE)?;
        let allocation = state.memory.remove(found.address, Kind::Array)?;
        drop(state);
        super::context::synchronize(process, allocation.context);
        process.state().give_back(allocation.device, allocation.place);
        Ok(())
    }
}

/// Bytes of one channel: `CU_AD_FORMAT_*`; the formats of video and of compressed blocks are not modelled.
fn channel_bytes(format: i32) -> Option<usize> {
    Some(match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return None,
    })
}

fn create(array: Out<Handle>, wanted: Array3dDescription) -> Answer {
    let (process, context) = current()?;
    let channel = channel_bytes(wanted.format).ok_or(Code::INVALID_VALUE)?;
    let shape = wanted.width > 0 && (wanted.height > 0 || wanted.depth == 0 || wanted.flags & 1 != 0);
    if array.is_null() || !matches!(wanted.channels, 1 | 2 | 4) || !shape {
        return Err(Code::INVALID_VALUE);
    }
    let element_bytes = channel * wanted.channels as usize;
    // A dimension of 0 is one that the array does not have.
    let elements = wanted
        .width
        .checked_mul(wanted.height.max(1))
        .and_then(|n| n.checked_mul(wanted.depth.max(1)));
    let bytes = elements
        .and_then(|n| n.checked_mul(element_bytes))
        .ok_or(Code::INVALID_VALUE)?;
    let mut state = process.state();
    let (device, slice) = current_device(&state, context)?;
    let slice = Arc::clone(&slice);
    let address = state
        .memory
        .allocate(&slice, (context, device), bytes as u64, Kind::Array, false)?;
    let handle = state.handles.next();
    let Array3dDescription {
        width,
        height,
        depth,
        format,
        channels,
        flags,
    } = wanted;
    let made = Array {
        width,
        height,
        depth,
        format,
        channels,
        flags,
        element_bytes,
        address,
    };
    state.memory.arrays.insert(handle, made);
    array.put(handle)
}

fn find(array: Handle) -> Answer<Array> {
    Process::get()?
        .state()
        .memory
        .arrays
        .get(&array)
        .copied()
        .ok_or(Code::INVALID_HANDLE)
}
