//! What the driver knows about a pointer.

use std::ffi::{c_int, c_uint};

use crate::abi::{MEMORY_DEVICE, MEMORY_HOST};
use crate::code::{Answer, Code};
use crate::gate::{In, Out, entries};
use crate::handle::Handle;
use crate::host_memory::HostKind;
use crate::memory::Kind;
use crate::process::Process;
use crate::state::State;

entries! {
    fn cuPointerGetAttribute(value: Out<u8>, attribute: c_int, address: u64) {
        let process = Process::get()?;
        if value.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let state = process.state();
        let found = find(&state, address).ok_or(Code::INVALID_VALUE)?;
        put(&found, value, attribute, address)
    }

    /// Unlike the call for one attribute, a pointer that the driver does not know is no error here: its attributes
    /// are zero.
    fn cuPointerGetAttributes(count: c_uint, attributes: In<c_int>, values: In<Out<u8>>, address: u64) {
        let process = Process::get()?;
        let state = process.state();
        let found = find(&state, address).unwrap_or(Known::NOTHING);
        for index in 0..count as usize {
            let value = values.at(index)?;
            if let Err(code) = put(&found, value, attributes.at(index)?, address)
                && found.memory != 0
            {
                return Err(code);
            }
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: In<c_uint>, attribute: c_int, address: u64) {
        let process = Process::get()?;
        value.get()?;
        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is the only one that can be set; nothing here depends on it.
        let known = find(&process.state(), address).is_some_and(|found| found.memory == MEMORY_DEVICE);
        if attribute == 6 && known { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }
}

/// A live region.
struct Known {
    memory: i32,
    start: u64,
    bytes: u64,
    context: Handle,
    device: usize,
    managed: bool,
    /// A mapping of physical memory, which is no allocation with a context.
    mapped: bool,
    number: u64,
    access: i32,
    /// The pool that it is a piece of, or 0.
    pool: Handle,
    /// Other processes can open it by `cuIpcGetMemHandle`.
    can_be_opened: bool,
}

impl Known {
    const NOTHING: Self = Self {
        memory: 0,
        start: 0,
        bytes: 0,
        context: 0,
        device: 0,
        managed: false,
        mapped: false,
        number: 0,
        access: 0,
        pool: 0,
        can_be_opened: false,
    };
}

fn find(state: &State, address: u64) -> Option<Known> {
    let base = Known {
        access: 3,
        ..Known::NOTHING
    };
    if let Some((start, one)) = state.memory.find(address) {
        let (bytes, context, device) = (one.bytes, one.context, one.device);
        return Some(Known {
            memory: MEMORY_DEVICE,
            start,
            bytes,
            context,
            device,
            number: start,
            pool: match one.kind {
                Kind::Pooled(pool) => pool,
                _ => 0,
            },
            can_be_opened: one.kind == Kind::Plain,
            ..base
        });
    }
    if let Some((start, block)) = state.memory.graphs.find(address) {
        return Some(Known {
            memory: MEMORY_DEVICE,
            start,
            bytes: block.bytes,
            context: block.context,
            device: block.device,
            number: start,
            ..base
        });
    }
    if let Some((start, bytes, device)) = state.memory.virtual_memory.mapping_at(address) {
        let access = state.memory.virtual_memory.access(address).unwrap_or(0);
        let number = start;
        return Some(Known {
            memory: MEMORY_DEVICE,
            start,
            bytes,
            device,
            mapped: true,
            number,
            access,
            ..base
        });
    }
    let (start, region) = state.memory.host.find(address)?;
    let managed = region.kind == HostKind::Managed;
    Some(Known {
        // Managed memory counts as the device's.
        memory: if managed { MEMORY_DEVICE } else { MEMORY_HOST },
        start,
        bytes: region.bytes as u64,
        context: region.context,
        device: region.device,
        managed,
        number: start,
        ..base
    })
}

/// `CU_POINTER_ATTRIBUTE_*` by number; each has its own type behind the pointer.
fn put(known: &Known, value: Out<u8>, attribute: c_int, address: u64) -> Answer {
    let word = |word: u64| value.cast::<u64>().put(word);
    let int = |int: i32| value.cast::<i32>().put(int);
    let nothing = known.memory == 0;
    match attribute {
        1 if known.mapped => {
            word(0)?;
            Err(Code::INVALID_VALUE)
        }
        1 => word(known.context),
        2 => int(known.memory),
        3 => word(if nothing { 0 } else { address }),
        4 if known.memory == MEMORY_DEVICE && !known.managed => {
            word(0)?;
            Err(Code::INVALID_VALUE)
        }
        4 => word(if nothing { 0 } else { address }),
        6 => int(0),
        7 | 20 => word(known.number),
        8 => value.cast::<u8>().put(u8::from(known.managed)),
        // -2: CU_DEVICE_INVALID
        9 => int(if nothing {
            -2
        } else {
            i32::try_from(known.device).unwrap_or(i32::MAX)
        }),
        10 => value.cast::<u8>().put(u8::from(known.can_be_opened)),
        13 | 15 | 21 => value.cast::<u8>().put(u8::from(attribute == 13 && !nothing)),
        11 | 19 => word(known.start),
        12 | 18 => word(known.bytes),
        14 => word(0),
        16 => int(known.access),
        17 => word(known.pool),
        _ => Err(Code::INVALID_VALUE),
    }
}
