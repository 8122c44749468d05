//! Allocations of this process: where they are, how long, whose. The bytes behind them do not exist.

use std::collections::BTreeMap;

use simgpu::segment::SegmentId;

use crate::blocks::{Blocks, Place};
use crate::code::{Answer, Code};
use crate::graph_memory::GraphMemory;
use crate::handle::Handle;
use crate::host_memory::HostMemory;
use crate::slice::Slice;
use crate::space::{DEVICE_BASE, DEVICE_SPAN, NARROW_BASE, NARROW_SPAN, Space};
use crate::virtual_memory::VirtualMemory;

/// Which call made an allocation; only that call's counterpart frees it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// `cuMemAlloc`, `cuMemAllocPitch`: freed by `cuMemFree` or `cuMemFreeAsync`.
    Plain,
    /// A piece of a pool: freed by the same.
    Pooled(Handle),
    /// A view of external memory, whose bytes are another API's: freed by `cuMemFree`.
    External,
    /// Another process's memory, opened so many times: closed by `cuIpcCloseMemHandle`.
    Opened(SegmentId, u32),
    /// A variable of a module.
    Variable,
    /// The texels of an array.
    Array,
}

/// One allocation in device memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    /// As asked.
    pub(crate) bytes: u64,
    pub(crate) place: Place,
    pub(crate) context: Handle,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
}

/// A CUDA array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Array {
    pub(crate) width: usize,
    /// 0 for one dimension.
    pub(crate) height: usize,
    /// 0 for one or two dimensions.
    pub(crate) depth: usize,
    pub(crate) format: i32,
    pub(crate) channels: u32,
    pub(crate) flags: u32,
    pub(crate) element_bytes: usize,
    /// Where its allocation starts.
    pub(crate) address: u64,
    /// The mipmapped array that it is a level of; that has the memory.
    pub(crate) mipmap: Option<Handle>,
}

/// A mipmapped array: levels, each with half the size of the one before.
#[derive(Clone, Debug)]
pub(crate) struct Mipmap {
    pub(crate) levels: Vec<Handle>,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Addresses of one width, and the shared blocks of each device in them.
#[derive(Debug)]
struct Range {
    addresses: Space,
    blocks: Vec<Blocks>,
}

/// All memory of this process that the driver knows of.
#[derive(Debug)]
pub(crate) struct Memory {
    wide: Range,
    /// For the oldest calls, which have 32 bits for an address.
    narrow: Range,
    allocations: BTreeMap<u64, Allocation>,
    pub(crate) arrays: BTreeMap<Handle, Array>,
    pub(crate) mipmaps: BTreeMap<Handle, Mipmap>,
    pub(crate) host: HostMemory,
    pub(crate) virtual_memory: VirtualMemory,
    pub(crate) graphs: GraphMemory,
}

impl Memory {
    pub(crate) fn new(devices: usize) -> Self {
        let range = |base, span| Range {
            addresses: Space::new(base, span),
            blocks: (0..devices).map(|_| Blocks::default()).collect(),
        };
        Self {
            wide: range(DEVICE_BASE, DEVICE_SPAN),
            narrow: range(NARROW_BASE, NARROW_SPAN),
            allocations: BTreeMap::new(),
            arrays: BTreeMap::new(),
            mipmaps: BTreeMap::new(),
            host: HostMemory::default(),
            virtual_memory: VirtualMemory::default(),
            graphs: GraphMemory::new(devices),
        }
    }

    /// Allocates on the slice; answers the address.
    pub(crate) fn allocate(
        &mut self,
        slice: &Slice,
        (context, device): (Handle, usize),
        bytes: u64,
        kind: Kind,
        narrow: bool,
    ) -> Answer<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let Range { addresses, blocks } = if narrow { &mut self.narrow } else { &mut self.wide };
        let blocks = blocks.get_mut(device).ok_or(Code::INVALID_DEVICE)?;
        let place = blocks.take(addresses, bytes, |bytes| slice.0.charge(bytes).is_ok());
        let place = place.ok_or(Code::OUT_OF_MEMORY)?;
        self.allocations.insert(
            place.address,
            Allocation {
                bytes,
                place,
                context,
                device,
                kind,
            },
        );
        Ok(place.address)
    }

    /// Notes an allocation that takes nothing of the device's blocks.
    pub(crate) fn insert(&mut self, allocation: Allocation) {
        self.allocations.insert(allocation.place.address, allocation);
    }

    /// The allocation that starts at an address.
    pub(crate) fn starting_at(&mut self, address: u64) -> Option<&mut Allocation> {
        self.allocations.get_mut(&address)
    }

    /// The memory of another process that is open already.
    pub(crate) fn opened(&mut self, segment: SegmentId, context: Handle) -> Option<&mut Allocation> {
        self.allocations
            .values_mut()
            .find(|one| matches!(one.kind, Kind::Opened(of, _) if of == segment) && one.context == context)
    }

    /// Takes an allocation out of the books, if it starts there and is of a kind that matches. Its place is still
    /// taken.
    pub(crate) fn remove(&mut self, address: u64, is_right: impl Fn(Kind) -> bool) -> Answer<Allocation> {
        match self.allocations.get(&address) {
            Some(allocation) if is_right(allocation.kind) => {
                let allocation = *allocation;
                self.allocations.remove(&address);
                Ok(allocation)
            }
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// Frees a place; answers the bytes that the slice is to have back.
    pub(crate) fn give(&mut self, device: usize, place: Place) -> u64 {
        let Range { addresses, blocks } = if place.address < DEVICE_BASE {
            &mut self.narrow
        } else {
            &mut self.wide
        };
        blocks
            .get_mut(device)
            .map_or(0, |blocks| blocks.give(addresses, place))
    }

    /// All allocations of a context, out of the books.
    pub(crate) fn remove_context(&mut self, context: Handle) -> Vec<Allocation> {
        let of_context = |allocation: &Allocation| allocation.context == context;
        let gone: Vec<_> = self
            .allocations
            .values()
            .filter(|one| of_context(one))
            .copied()
            .collect();
        self.allocations.retain(|_, allocation| !of_context(allocation));
        let is_gone = |address| gone.iter().any(|one| one.place.address == address);
        self.arrays.retain(|_, array| !is_gone(array.address));
        self.mipmaps.retain(|_, mipmap| !is_gone(mipmap.address));
        gone
    }

    /// Takes device addresses without memory behind them.
    pub(crate) fn reserve(&mut self, length: u64, align: u64, wish: u64) -> Option<u64> {
        let addresses = &mut self.wide.addresses;
        if wish != 0 && wish.is_multiple_of(align) && addresses.take_at(wish, length) {
            return Some(wish);
        }
        addresses.take(length, align)
    }

    /// Gives reserved addresses back.
    pub(crate) fn unreserve(&mut self, address: u64, length: u64) {
        self.wide.addresses.give(address, length);
    }

    /// The allocation that an address is in, and where that starts.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&start, allocation) = self.allocations.range(..=address).next_back()?;
        (address - start < allocation.bytes).then_some((start, allocation))
    }

    /// The live range that an address is in: start, bytes and device. Allocations and mappings alike, and what graphs
    /// allocate: that is there from the moment its node is, for other nodes to name.
    pub(crate) fn range_of(&self, address: u64) -> Option<(u64, u64, usize)> {
        if let Some((start, allocation)) = self.find(address) {
            return Some((start, allocation.bytes, allocation.device));
        }
        if let Some((start, block)) = self.graphs.find(address) {
            return Some((start, block.bytes, block.device));
        }
        self.virtual_memory.mapping_at(address)
    }

    /// The device that holds all of these bytes, which must be live; mappings that touch count as one.
    pub(crate) fn device_of(&self, address: u64, bytes: u64) -> Answer<usize> {
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let (mut start, mut length, device) = self.range_of(address).ok_or(Code::INVALID_VALUE)?;
        while start + length < end {
            (start, length, _) = self
                .virtual_memory
                .mapping_at(start + length)
                .ok_or(Code::INVALID_VALUE)?;
        }
        Ok(device)
    }

    /// Whether the process holds memory on the device that belongs to no context.
    pub(crate) fn holds_physical(&self, device: usize) -> bool {
        self.virtual_memory.holds_physical(device)
    }
}
