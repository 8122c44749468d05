//! Arrays: memory for textures. Sizes are in elements; an element is a format times channels.
//!
//! The driver lays arrays out as it likes, so the real one may charge more than the elements need; here it is that.

use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::abi::{
    Array3dDescription, Array3dDescriptionV1, ArrayDescription, ArrayDescriptionV1, ArrayRequirements,
};
use crate::captures::refuse_in_capture;
use crate::code::{Answer, Code};
use crate::contexts::{current, current_device};
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::memory::{Array, Kind, Mipmap};
use crate::process::Process;

/// `CUDA_ARRAY3D_LAYERED`
const LAYERED: u32 = 1;
/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: arrays whose memory is mapped later.
const WITHOUT_MEMORY: u32 = 0xc0;

entries! {
    fn cuArrayCreate(array: Out<Handle>, description: In<ArrayDescriptionV1>) {
        let ArrayDescriptionV1 { width, height, format, channels } = description.get()?;
        let (width, height) = (width as usize, height as usize);
        create(array, Array3dDescription { width, height, depth: 0, format, channels, flags: 0 })
    }

    fn cuArrayCreate_v2(array: Out<Handle>, description: In<ArrayDescription>) {
        let ArrayDescription { width, height, format, channels } = description.get()?;
        create(array, Array3dDescription { width, height, depth: 0, format, channels, flags: 0 })
    }

    fn cuArray3DCreate(array: Out<Handle>, description: In<Array3dDescriptionV1>) {
        let Array3dDescriptionV1 { width, height, depth, format, channels, flags } = description.get()?;
        let (width, height, depth) = (width as usize, height as usize, depth as usize);
        create(array, Array3dDescription { width, height, depth, format, channels, flags })
    }

    fn cuArray3DCreate_v2(array: Out<Handle>, description: In<Array3dDescription>) {
        create(array, description.get()?)
    }

    fn cuArrayGetDescriptor(description: Out<ArrayDescriptionV1>, array: Handle) {
        let Array { width, height, format, channels, .. } = find(array)?;
        let narrow = |size| u32::try_from(size).map_err(|_| Code::INVALID_VALUE);
        let (width, height) = (narrow(width)?, narrow(height)?);
        description.put(ArrayDescriptionV1 { width, height, format, channels })
    }

    fn cuArrayGetDescriptor_v2(description: Out<ArrayDescription>, array: Handle) {
        let Array { width, height, format, channels, .. } = find(array)?;
        description.put(ArrayDescription { width, height, format, channels })
    }

    fn cuArray3DGetDescriptor(description: Out<Array3dDescriptionV1>, array: Handle) {
        let Array { width, height, depth, format, channels, flags, .. } = find(array)?;
        let narrow = |size| u32::try_from(size).map_err(|_| Code::INVALID_VALUE);
        let (width, height, depth) = (narrow(width)?, narrow(height)?, narrow(depth)?);
        description.put(Array3dDescriptionV1 { width, height, depth, format, channels, flags })
    }

    fn cuArray3DGetDescriptor_v2(description: Out<Array3dDescription>, array: Handle) {
        let Array { width, height, depth, format, channels, flags, .. } = find(array)?;
        description.put(Array3dDescription { width, height, depth, format, channels, flags })
    }

    fn cuArrayGetMemoryRequirements(requirements: Out<ArrayRequirements>, array: Handle, device: c_int) {
        Process::get()?.device(device)?;
        let array = find(array)?;
        let elements = array.width * array.height.max(1) * array.depth.max(1);
        require(requirements, (elements * array.element_bytes) as u64)
    }

    fn cuMipmappedArrayGetMemoryRequirements(
        requirements: Out<ArrayRequirements>, mipmap: Handle, device: c_int,
    ) {
        let process = Process::get()?;
        process.device(device)?;
        let bytes = process.state().memory.mipmaps.get(&mipmap).ok_or(Code::INVALID_HANDLE)?.bytes;
        require(requirements, bytes)
    }

    /// Work that may still use it is waited for. A level goes with its mipmapped array only.
    fn cuArrayDestroy(array: Handle) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        if find(array)?.mipmap.is_some() {
            return Err(Code::INVALID_HANDLE);
        }
        let mut state = process.state();
        let found = state.memory.arrays.remove(&array).ok_or(Code::INVALID_HANDLE)?;
        drop(state);
        free(process, found.address)
    }

    /// Of the levels asked for there are as many as the sizes can be halved.
    fn cuMipmappedArrayCreate(mipmap: Out<Handle>, description: In<Array3dDescription>, levels: c_uint) {
        let (process, context) = current()?;
        refuse_in_capture(process)?;
        let wanted = description.get()?;
        if mipmap.is_null() || levels == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let mut sizes = vec![wanted];
        while sizes.len() < levels as usize && let Some(next) = sizes.last().copied().and_then(half) {
            sizes.push(next);
        }
        let mut bytes = 0_u64;
        for size in &sizes {
            bytes = bytes.checked_add(bytes_of(size)?.1).ok_or(Code::INVALID_VALUE)?;
        }
        let mut state = process.state();
        let (device, slice) = current_device(&state, context)?;
        let address = state.memory.allocate(&slice, (context, device), bytes, Kind::Array, false)?;
        let handle = state.handles.next();
        let mut levels = Vec::new();
        for size in &sizes {
            let level = state.handles.next();
            let array = made(size, bytes_of(size)?.0, address, Some(handle));
            state.memory.arrays.insert(level, array);
            levels.push(level);
        }
        state.memory.mipmaps.insert(handle, Mipmap { levels, address, bytes });
        mipmap.put(handle)
    }

    fn cuMipmappedArrayGetLevel(array: Out<Handle>, mipmap: Handle, level: c_uint) {
        let state = Process::get()?.state();
        let mipmap = state.memory.mipmaps.get(&mipmap).ok_or(Code::INVALID_HANDLE)?;
        let found = mipmap.levels.get(level as usize).copied();
        array.put(found.ok_or(Code::INVALID_VALUE)?)
    }

    fn cuMipmappedArrayDestroy(mipmap: Handle) {
        let process = Process::get()?;
        refuse_in_capture(process)?;
        let mut state = process.state();
        let found = state.memory.mipmaps.remove(&mipmap).ok_or(Code::INVALID_HANDLE)?;
        for level in found.levels {
            state.memory.arrays.remove(&level);
        }
        drop(state);
        free(process, found.address)
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

/// Bytes of an element, and of all.
fn bytes_of(wanted: &Array3dDescription) -> Answer<(usize, u64)> {
    let channel = channel_bytes(wanted.format).ok_or(Code::INVALID_VALUE)?;
    let shape = wanted.width > 0 && (wanted.height > 0 || wanted.depth == 0 || wanted.flags & LAYERED != 0);
    if !matches!(wanted.channels, 1 | 2 | 4) || !shape {
        return Err(Code::INVALID_VALUE);
    }
    if wanted.flags & WITHOUT_MEMORY != 0 {
        // The device attributes say that there are none.
        return Err(Code::NOT_SUPPORTED);
    }
    let element = channel * wanted.channels as usize;
    // A dimension of 0 is one that the array does not have.
    let elements = wanted
        .width
        .checked_mul(wanted.height.max(1))
        .and_then(|n| n.checked_mul(wanted.depth.max(1)));
    let bytes = elements.and_then(|n| n.checked_mul(element));
    Ok((element, bytes.ok_or(Code::INVALID_VALUE)? as u64))
}

/// The next level: half of each dimension that there is, layers excepted; `None` once all are 1.
fn half(size: Array3dDescription) -> Option<Array3dDescription> {
    let halved = |n: usize| if n > 1 { n / 2 } else { n };
    let layers = size.flags & LAYERED != 0;
    let next = Array3dDescription {
        width: halved(size.width),
        height: halved(size.height),
        depth: if layers { size.depth } else { halved(size.depth) },
        ..size
    };
    (next != size).then_some(next)
}

fn made(wanted: &Array3dDescription, element_bytes: usize, address: u64, mipmap: Option<Handle>) -> Array {
    Array {
        width: wanted.width,
        height: wanted.height,
        depth: wanted.depth,
        format: wanted.format,
        channels: wanted.channels,
        flags: wanted.flags,
        element_bytes,
        address,
        mipmap,
    }
}

fn create(array: Out<Handle>, wanted: Array3dDescription) -> Answer {
    let (process, context) = current()?;
    refuse_in_capture(process)?;
    let (element_bytes, bytes) = bytes_of(&wanted)?;
    if array.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let mut state = process.state();
    let (device, slice) = current_device(&state, context)?;
    let slice = Arc::clone(&slice);
    let address = state
        .memory
        .allocate(&slice, (context, device), bytes, Kind::Array, false)?;
    let handle = state.handles.next();
    let made = made(&wanted, element_bytes, address, None);
    state.memory.arrays.insert(handle, made);
    array.put(handle)
}

fn free(process: &Process, address: u64) -> Answer {
    let allocation = process
        .state()
        .memory
        .remove(address, |kind| kind == Kind::Array)?;
    super::context::synchronize(process, allocation.context);
    process.state().give_back(allocation);
    Ok(())
}

fn require(requirements: Out<ArrayRequirements>, bytes: u64) -> Answer {
    requirements.put(ArrayRequirements {
        bytes,
        alignment: 512,
        reserved: [0; 4],
    })
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
