//! Memory of other APIs (Vulkan and the like): imported by a descriptor, seen through mapped buffers. Its bytes are
//! charged to whoever allocated them, so nothing is charged here.

use std::os::fd::{FromRawFd, OwnedFd};

use crate::abi::{ExternalBuffer, ExternalMemory};
use crate::blocks::{BLOCK, Place};
use crate::code::Code;
use crate::contexts::current;
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::memory::{Allocation, Kind};
use crate::process::Process;
use crate::shareable::bytes_behind;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`
const OPAQUE_DESCRIPTOR: i32 = 1;
/// `CUDA_EXTERNAL_MEMORY_DEDICATED`
const DEDICATED: u32 = 1;

entries! {
    /// The descriptor is the driver's from then on, which closes it. Any file that is large enough stands for the
    /// memory of another API.
    fn cuImportExternalMemory(memory: Out<Handle>, description: In<ExternalMemory>) {
        let (process, _) = current()?;
        let wanted = description.get()?;
        if memory.is_null() || wanted.bytes == 0 || wanted.flags & !DEDICATED != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if wanted.kind != OPAQUE_DESCRIPTOR {
            return Err(if (2..=8).contains(&wanted.kind) { Code::NOT_SUPPORTED } else { Code::INVALID_VALUE });
        }
        let [first, _] = wanted.handle;
        let descriptor = i32::try_from(first & u64::from(u32::MAX)).map_err(|_| Code::INVALID_VALUE)?;
        if bytes_behind(descriptor)? < wanted.bytes {
            return Err(Code::INVALID_VALUE);
        }
        let mut state = process.state();
        let handle = state.handles.next();
        memory.put(handle)?;
        state.externals.insert(handle, wanted.bytes);
        // SAFETY: it is open, as its size was read, and by this call the program gave it away.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        Ok(())
    }

    /// The buffers that were mapped from it stay until they are freed.
    fn cuDestroyExternalMemory(memory: Handle) {
        let mut state = Process::get()?.state();
        state.externals.remove(&memory).map(drop).ok_or(Code::INVALID_HANDLE)
    }

    /// Freed by `cuMemFree`.
    fn cuExternalMemoryGetMappedBuffer(address: Out<u64>, memory: Handle, description: In<ExternalBuffer>) {
        let (process, context) = current()?;
        let wanted = description.get()?;
        let mut state = process.state();
        let bytes = *state.externals.get(&memory).ok_or(Code::INVALID_HANDLE)?;
        let end = wanted.offset.checked_add(wanted.bytes).ok_or(Code::INVALID_VALUE)?;
        if address.is_null() || wanted.bytes == 0 || wanted.flags != 0 || end > bytes {
            return Err(Code::INVALID_VALUE);
        }
        let device = state.context(context)?.device;
        let length = wanted.bytes.next_multiple_of(BLOCK);
        let start = state.memory.reserve(length, BLOCK, 0).ok_or(Code::OUT_OF_MEMORY)?;
        state.memory.insert(Allocation {
            bytes: wanted.bytes,
            place: Place::elsewhere(start, length),
            context,
            device,
            kind: Kind::External,
        });
        address.put(start)
    }
}
