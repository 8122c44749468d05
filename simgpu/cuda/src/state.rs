//! All objects of the driver in this process, behind one lock.

use std::collections::BTreeMap;
use std::sync::Arc;

use simgpu::machine::AttachError;

use crate::captures::Captures;
use crate::code::{Answer, Code};
use crate::gate::say;
use crate::graphs::Graphs;
use crate::greens::Greens;
use crate::handle::{Handle, Handles};
use crate::memory::{Allocation, Kind, Memory};
use crate::modules::Modules;
use crate::pools::{Pool, Pools, Released};
use crate::process::Process;
use crate::sharing::Sharing;
use crate::slice::Slice;
use crate::textures::Textures;
use crate::timeline::{EventId, LaneId};

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    pub(crate) limits: BTreeMap<i32, usize>,
    pub(crate) cache_config: i32,
    pub(crate) shared_config: i32,
    /// The legacy default stream.
    pub(crate) legacy: LaneId,
    /// The multiprocessors of a green context; `None` for all that the slice has.
    pub(crate) sms: Option<u32>,
    pub(crate) slice: Arc<Slice>,
}

/// A stream that the program created.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: Handle,
    pub(crate) lane: LaneId,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

/// An event.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Handle,
    pub(crate) id: EventId,
    pub(crate) flags: u32,
}

/// A device's primary context.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// The handle that it has had since it was first made: threads that had it current go on when it is made again.
    pub(crate) handle: Option<Handle>,
    pub(crate) is_active: bool,
    pub(crate) retained: u32,
    pub(crate) flags: u32,
}

/// The objects.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) handles: Handles,
    pub(crate) contexts: BTreeMap<Handle, Context>,
    pub(crate) primaries: Vec<Primary>,
    pub(crate) streams: BTreeMap<Handle, Stream>,
    pub(crate) events: BTreeMap<Handle, Event>,
    pub(crate) memory: Memory,
    pub(crate) modules: Modules,
    pub(crate) pools: Pools,
    pub(crate) captures: Captures,
    pub(crate) graphs: Graphs,
    pub(crate) sharing: Sharing,
    pub(crate) textures: Textures,
    /// Memory of other APIs: bytes of each.
    pub(crate) externals: BTreeMap<Handle, u64>,
    pub(crate) greens: Greens,
    /// This process's place on each device, while it has a context or physical memory there.
    pub(crate) slices: Vec<Option<Arc<Slice>>>,
}

impl State {
    pub(crate) fn new(devices: usize) -> Self {
        let mut handles = Handles::new();
        let mut pools = Pools::default();
        for device in 0..devices {
            pools.add(handles.next(), Pool::new(device, true, 0));
        }
        Self {
            handles,
            contexts: BTreeMap::new(),
            primaries: (0..devices).map(|_| Primary::default()).collect(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            memory: Memory::new(devices),
            modules: Modules::default(),
            pools,
            captures: Captures::default(),
            graphs: Graphs::default(),
            sharing: Sharing::default(),
            textures: Textures::default(),
            externals: BTreeMap::new(),
            greens: Greens::default(),
            slices: (0..devices).map(|_| None).collect(),
        }
    }

    pub(crate) fn context(&self, handle: Handle) -> Answer<&Context> {
        self.contexts.get(&handle).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn context_mut(&mut self, handle: Handle) -> Answer<&mut Context> {
        self.contexts.get_mut(&handle).ok_or(Code::INVALID_CONTEXT)
    }

    pub(crate) fn primary(&mut self, device: usize) -> Answer<&mut Primary> {
        self.primaries.get_mut(device).ok_or(Code::INVALID_DEVICE)
    }

    /// This process's place on a device.
    pub(crate) fn slice(&self, device: usize) -> Answer<&Arc<Slice>> {
        self.slices
            .get(device)
            .and_then(Option::as_ref)
            .ok_or(Code::INVALID_CONTEXT)
    }

    /// The same, taken now if there is none yet: the first context of a process pays for all. Answers also whether
    /// it was the first.
    pub(crate) fn attach(&mut self, process: &Process, device: usize) -> Answer<(Arc<Slice>, bool)> {
        if let Ok(slice) = self.slice(device) {
            return Ok((Arc::clone(slice), false));
        }
        let reference = process.devices.get(device).ok_or(Code::INVALID_DEVICE)?.reference;
        let tenant =
            process
                .machine
                .attach(reference, process.context_bytes)
                .map_err(|error| match error {
                    AttachError::OutOfMemory(_) => Code::OUT_OF_MEMORY,
                    AttachError::DeviceGone | AttachError::TooManyProcesses(_) => {
                        say(format_args!("device {device}: {error}"));
                        Code::DEVICE_UNAVAILABLE
                    }
                })?;
        let slice = Arc::new(Slice(tenant));
        *self.slices.get_mut(device).ok_or(Code::INVALID_DEVICE)? = Some(Arc::clone(&slice));
        Ok((slice, true))
    }

    /// Leaves a device on which the process has neither a context nor physical memory of its own making.
    pub(crate) fn detach_if_unused(&mut self, device: usize) {
        let used = self.contexts.values().any(|context| context.device == device)
            || self.memory.holds_physical(device)
            || self.memory.graphs.holds_memory(device)
            || self.pools.hold_memory(device)
            || self.sharing.holds_memory(device);
        if used {
            return;
        }
        let released = self.pools.release(device, true);
        self.give_chunks(device, released);
        if let Some(slice) = self.slices.get_mut(device) {
            *slice = None;
        }
    }

    /// Gives the memory of an allocation, which is out of the books, back to where it came from.
    pub(crate) fn give_back(&mut self, allocation: Allocation) {
        let Allocation {
            device, place, bytes, ..
        } = allocation;
        match allocation.kind {
            Kind::Plain | Kind::Variable | Kind::Array => {
                let freed = self.memory.give(device, place);
                if freed == 0 {
                    return;
                }
                match self.sharing.take_exported(device, place.unit().0) {
                    Some(segment) => self.leave_segment(segment),
                    None => self.release(device, freed),
                }
            }
            Kind::Pooled(pool) => {
                let released = self.pools.give(pool, place.address, bytes);
                self.give_chunks(device, released);
            }
            Kind::External => self.memory.unreserve(place.address, place.bytes()),
            Kind::Opened(segment, _) => {
                let (start, bytes) = place.unit();
                self.memory.unreserve(start, bytes);
                self.leave_segment(segment);
            }
        }
    }

    /// Gives bytes back to a device's slice.
    pub(crate) fn release(&self, device: usize, bytes: u64) {
        if let Ok(slice) = self.slice(device) {
            slice.0.release(bytes);
        }
    }

    /// Gives what pools released back to the slice.
    pub(crate) fn give_chunks(&mut self, device: usize, released: Released) {
        for (start, bytes) in released {
            self.memory.unreserve(start, bytes);
            self.release(device, bytes);
        }
    }
}
