//! Virtual memory management: reserved addresses, physical memory by handle, mappings between them. Pure.
//!
//! Physical memory lives while its handle is held *or* it is mapped: a program may release the handle right after
//! mapping and use the mapping for hours. One handle mapped twice is still one piece of memory.

use std::collections::BTreeMap;

use simgpu::segment::SegmentId;

use crate::code::{Answer, Code};
use crate::handle::Handle;

/// Sizes and addresses are multiples of this, bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// A piece of physical memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical<P> {
    pub(crate) bytes: u64,
    /// `None` for host memory, which costs the slice nothing.
    pub(crate) device: Option<usize>,
    /// What the program asked for, to be told again.
    pub(crate) properties: P,
    /// Set once it is shared with other processes.
    pub(crate) segment: Option<SegmentId>,
    held: u32,
    mapped: u32,
}

/// Memory that nobody holds any more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Freed {
    pub(crate) device: usize,
    pub(crate) bytes: u64,
    pub(crate) segment: Option<SegmentId>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    bytes: u64,
    handle: Handle,
    access: i32,
}

/// Reservations, physical memory and mappings of this process.
#[derive(Debug)]
pub(crate) struct VirtualMemory<P = crate::abi::AllocationProperties> {
    reserved: BTreeMap<u64, u64>,
    physical: BTreeMap<Handle, Physical<P>>,
    mappings: BTreeMap<u64, Mapping>,
}

impl<P> Default for VirtualMemory<P> {
    fn default() -> Self {
        Self {
            reserved: BTreeMap::new(),
            physical: BTreeMap::new(),
            mappings: BTreeMap::new(),
        }
    }
}

/// Both not 0 and multiples of the granularity.
fn check(address: u64, bytes: u64) -> Answer<u64> {
    let good = bytes != 0 && bytes.is_multiple_of(GRANULARITY) && address.is_multiple_of(GRANULARITY);
    if good {
        address.checked_add(bytes).ok_or(Code::INVALID_VALUE)
    } else {
        Err(Code::INVALID_VALUE)
    }
}

impl<P: Copy> VirtualMemory<P> {
    /// Notes addresses that were taken for a reservation.
    pub(crate) fn reserve(&mut self, address: u64, bytes: u64) {
        self.reserved.insert(address, bytes);
    }

    /// Ends a reservation: exactly one, with nothing mapped in it.
    pub(crate) fn unreserve(&mut self, address: u64, bytes: u64) -> Answer {
        if self.reserved.get(&address) != Some(&bytes) || self.mappings_in(address, bytes).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.reserved.remove(&address);
        Ok(())
    }

    /// Whether a size is one that physical memory can have.
    pub(crate) fn check_bytes(bytes: u64) -> Answer {
        check(0, bytes).map(drop)
    }

    /// Notes physical memory, held once.
    pub(crate) fn create(&mut self, handle: Handle, bytes: u64, device: Option<usize>, properties: P) {
        self.insert(handle, bytes, device, properties, None);
    }

    /// Notes physical memory of a segment, held once.
    pub(crate) fn open(
        &mut self,
        handle: Handle,
        bytes: u64,
        device: usize,
        properties: P,
        segment: SegmentId,
    ) {
        self.insert(handle, bytes, Some(device), properties, Some(segment));
    }

    /// Notes that physical memory is shared from now on.
    pub(crate) fn set_segment(&mut self, handle: Handle, segment: SegmentId) {
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.segment = Some(segment);
        }
    }

    fn insert(
        &mut self,
        handle: Handle,
        bytes: u64,
        device: Option<usize>,
        properties: P,
        segment: Option<SegmentId>,
    ) {
        self.physical.insert(
            handle,
            Physical {
                bytes,
                device,
                properties,
                segment,
                held: 1,
                mapped: 0,
            },
        );
    }

    pub(crate) fn physical(&self, handle: Handle) -> Answer<&Physical<P>> {
        self.physical
            .get(&handle)
            .filter(|physical| physical.held > 0)
            .ok_or(Code::INVALID_VALUE)
    }

    /// One hold less.
    pub(crate) fn release(&mut self, handle: Handle) -> Answer<Option<Freed>> {
        let physical = self
            .physical
            .get_mut(&handle)
            .filter(|physical| physical.held > 0);
        physical.ok_or(Code::INVALID_VALUE)?.held -= 1;
        Ok(self.free_if_unused(handle))
    }

    /// One hold more, by an address that the memory is mapped at.
    pub(crate) fn retain(&mut self, address: u64) -> Answer<Handle> {
        let (_, mapping) = self.find(address).ok_or(Code::INVALID_VALUE)?;
        let handle = mapping.handle;
        self.physical.get_mut(&handle).ok_or(Code::INVALID_VALUE)?.held += 1;
        Ok(handle)
    }

    /// Maps all of a piece of physical memory inside a reservation, where nothing is mapped yet.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, offset: u64, handle: Handle) -> Answer {
        let end = check(address, bytes)?;
        // The driver takes no other offset than 0.
        if offset != 0 || self.physical(handle)?.bytes != bytes {
            return Err(Code::INVALID_VALUE);
        }
        let (&start, &reserved) = self
            .reserved
            .range(..=address)
            .next_back()
            .ok_or(Code::INVALID_VALUE)?;
        if end > start + reserved || self.mappings_in(address, bytes).next().is_some() {
            return Err(Code::INVALID_VALUE);
        }
        self.mappings.insert(
            address,
            Mapping {
                bytes,
                handle,
                access: 0,
            },
        );
        if let Some(physical) = self.physical.get_mut(&handle) {
            physical.mapped += 1;
        }
        Ok(())
    }

    /// Unmaps a range that whole mappings fill; answers the memory that went.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64) -> Answer<Vec<Freed>> {
        let starts = self.filled_by(address, bytes)?;
        let mut freed = Vec::new();
        for start in starts {
            let Some(mapping) = self.mappings.remove(&start) else {
                continue;
            };
            if let Some(physical) = self.physical.get_mut(&mapping.handle) {
                physical.mapped -= 1;
            }
            freed.extend(self.free_if_unused(mapping.handle));
        }
        Ok(freed)
    }

    /// Sets what the devices may do with a range that whole mappings fill.
    pub(crate) fn set_access(&mut self, address: u64, bytes: u64, access: i32) -> Answer {
        for start in self.filled_by(address, bytes)? {
            if let Some(mapping) = self.mappings.get_mut(&start) {
                mapping.access = access;
            }
        }
        Ok(())
    }

    /// What the devices may do at an address.
    pub(crate) fn access(&self, address: u64) -> Answer<i32> {
        self.find(address)
            .map(|(_, mapping)| mapping.access)
            .ok_or(Code::INVALID_VALUE)
    }

    /// The mapping that an address is in, if devices may use it: start, bytes, device (0 for host memory).
    pub(crate) fn mapping_at(&self, address: u64) -> Option<(u64, u64, usize)> {
        let (start, mapping) = self.find(address)?;
        let device = self.physical.get(&mapping.handle)?.device.unwrap_or(0);
        (mapping.access != 0).then_some((start, mapping.bytes, device))
    }

    /// Whether any physical memory of the device is left that is this process's alone.
    pub(crate) fn holds_physical(&self, device: usize) -> bool {
        let own = |physical: &Physical<P>| physical.device == Some(device) && physical.segment.is_none();
        self.physical.values().any(own)
    }

    fn find(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address - start < mapping.bytes).then_some((start, mapping))
    }

    /// Mappings with a byte in the range.
    fn mappings_in(&self, address: u64, bytes: u64) -> impl Iterator<Item = (u64, &Mapping)> {
        let all = self.mappings.range(..address.saturating_add(bytes)).rev();
        let in_range = all.take_while(move |&(&start, mapping)| start + mapping.bytes > address);
        in_range.map(|(&start, mapping)| (start, mapping))
    }

    /// The starts of the mappings that fill the range, none of them cut.
    fn filled_by(&self, address: u64, bytes: u64) -> Answer<Vec<u64>> {
        let end = check(address, bytes)?;
        let (mut starts, mut at) = (Vec::new(), address);
        while at < end {
            let mapping = self.mappings.get(&at).ok_or(Code::INVALID_VALUE)?;
            starts.push(at);
            at += mapping.bytes;
        }
        if at == end {
            Ok(starts)
        } else {
            Err(Code::INVALID_VALUE)
        }
    }

    fn free_if_unused(&mut self, handle: Handle) -> Option<Freed> {
        let physical = *self.physical.get(&handle)?;
        if physical.held > 0 || physical.mapped > 0 {
            return None;
        }
        self.physical.remove(&handle);
        physical.device.map(|device| Freed {
            device,
            bytes: physical.bytes,
            segment: physical.segment,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = GRANULARITY;

    fn freed(bytes: u64) -> Freed {
        Freed {
            device: 0,
            bytes,
            segment: None,
        }
    }

    fn memory() -> VirtualMemory<()> {
        let mut memory = VirtualMemory::default();
        memory.reserve(16 * G, 8 * G);
        memory
    }

    #[test]
    fn memory_outlives_its_handle_while_it_is_mapped() {
        let mut memory = memory();
        memory.create(1, 2 * G, Some(0), ());
        memory.map(16 * G, 2 * G, 0, 1).unwrap();
        assert_eq!(memory.release(1), Ok(None));
        assert_eq!(
            memory.release(1),
            Err(Code::INVALID_VALUE),
            "nobody holds it any more"
        );
        assert_eq!(memory.unmap(16 * G, 2 * G), Ok(vec![freed(2 * G)]));
    }

    #[test]
    fn a_handle_mapped_twice_is_one_piece_and_goes_with_the_last_mapping() {
        let mut memory = memory();
        memory.create(1, G, Some(0), ());
        memory.map(16 * G, G, 0, 1).unwrap();
        memory.map(17 * G, G, 0, 1).unwrap();
        assert_eq!(memory.release(1), Ok(None));
        assert_eq!(memory.unmap(16 * G, G), Ok(vec![]));
        assert_eq!(memory.unmap(17 * G, G), Ok(vec![freed(G)]));
    }

    #[test]
    fn a_retained_handle_needs_a_release_of_its_own() {
        let mut memory = memory();
        memory.create(1, G, Some(0), ());
        memory.map(16 * G, G, 0, 1).unwrap();
        assert_eq!(memory.retain(16 * G + 5), Ok(1));
        assert_eq!(memory.release(1), Ok(None));
        assert_eq!(memory.unmap(16 * G, G), Ok(vec![]));
        assert_eq!(memory.release(1), Ok(Some(freed(G))));
    }

    #[test]
    fn host_memory_is_never_given_back_to_a_device() {
        let mut memory = memory();
        memory.create(1, G, None, ());
        assert_eq!(memory.release(1), Ok(None));
        assert!(!memory.holds_physical(0));
    }

    #[test]
    fn bad_ranges_are_refused() {
        let mut memory = memory();
        memory.create(1, 2 * G, Some(0), ());
        memory.create(2, 2 * G, Some(0), ());
        for (address, bytes, offset, handle) in [
            (16 * G + 1, 2 * G, 0, 1),
            (16 * G, 2 * G - 1, 0, 1),
            (16 * G, 2 * G, G, 1),
            (16 * G, G, 0, 1),
            (23 * G, 2 * G, 0, 1),
            (2 * G, 2 * G, 0, 1),
            (16 * G, 2 * G, 0, 9),
            (16 * G, 0, 0, 1),
        ] {
            assert_eq!(
                memory.map(address, bytes, offset, handle),
                Err(Code::INVALID_VALUE)
            );
        }
        memory.map(16 * G, 2 * G, 0, 1).unwrap();
        memory.map(18 * G, 2 * G, 0, 2).unwrap();
        assert_eq!(
            memory.map(17 * G, 2 * G, 0, 2),
            Err(Code::INVALID_VALUE),
            "overlap"
        );
        assert_eq!(
            memory.unmap(16 * G, G),
            Err(Code::INVALID_VALUE),
            "a mapping would be cut"
        );
        assert_eq!(memory.unmap(17 * G, 3 * G), Err(Code::INVALID_VALUE));
        assert_eq!(
            memory.unreserve(16 * G, 8 * G),
            Err(Code::INVALID_VALUE),
            "mapped"
        );
        assert_eq!(memory.mapping_at(16 * G), None, "no access was given");
        memory.set_access(16 * G, 4 * G, 3).unwrap();
        assert_eq!(memory.mapping_at(17 * G), Some((16 * G, 2 * G, 0)));
        assert_eq!(memory.unmap(16 * G, 4 * G), Ok(vec![]));
        assert_eq!(
            memory.unreserve(16 * G, 4 * G),
            Err(Code::INVALID_VALUE),
            "not what was reserved"
        );
        assert_eq!(memory.unreserve(16 * G, 8 * G), Ok(()));
    }
}
