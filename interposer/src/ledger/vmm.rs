//! Virtual memory management: physical memory lives by reference.
//!
//! `cuMemCreate` makes physical memory with one reference. `cuMemRetainAllocationHandle` adds one,
//! `cuMemRelease` drops one, and each mapping holds one: programs release the handle right after
//! `cuMemMap`, and the memory lives until `cuMemUnmap`. One handle mapped twice counts once.

use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Relaxed};

use migm_shared::page::Class;

use super::refused_on;
use super::table::AddressTable;
use crate::abi::{Handle, LOCATION_DEVICE, Location};
use crate::attach::{self, Attachment};
use crate::errno;
use crate::thread::Lanes;

/// Handle to [`Physical`].
static HANDLES: AddressTable<64> = AddressTable::new();
/// Start of a mapping to its handle, and to its length.
static MAPPED: AddressTable<64> = AddressTable::new();
static LENGTHS: AddressTable<64> = AddressTable::new();

/// A piece of physical memory: 40 bits of size, 16 of references, 4 of device, 4 of class.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Physical(u64);

const REFERENCE: u64 = 1 << 40;
const REFERENCES: u64 = 0xffff << 40;

impl Physical {
    fn new(bytes: u64, device: usize, class: Class) -> Option<Self> {
        let fits = bytes < REFERENCE && device < 16;
        fits.then_some(Self(
            (class as u64) << 60 | (device as u64) << 56 | REFERENCE | bytes,
        ))
    }

    fn bytes(self) -> u64 {
        self.0 & (REFERENCE - 1)
    }

    fn device(self) -> usize {
        (self.0 >> 56 & 0xf) as usize
    }

    fn class(self) -> Class {
        Class::ALL[(self.0 >> 60 & 0x7) as usize]
    }
}

/// The device that the memory is charged to: the location says it, no context is asked. Host memory goes
/// to the host class, whose device is of no matter.
fn place(attached: &Attachment, location: Location) -> Option<(usize, Class)> {
    if location.kind == LOCATION_DEVICE {
        Some((attached.device_of(location.id)?, Class::Vmm))
    } else {
        Some((attached.any_device()?, Class::Host))
    }
}

/// `cuMemCreate` has made `bytes` of memory.
pub fn created(handle: Handle, location: Location, bytes: u64) {
    errno::kept(|| {
        let Some(attached) = attach::attached() else {
            return;
        };
        let Some((device, class)) = place(attached, location) else {
            return;
        };
        let Some(physical) = Physical::new(bytes, device, class) else {
            return;
        };
        if HANDLES.insert(handle, physical.0) {
            attached.add(Lanes::SHARED, device, class, bytes);
        }
    });
}

/// `cuMemCreate` found no room.
#[cold]
pub fn refused(location: Location, asked: u64) {
    errno::kept(|| {
        let Some(attached) = attach::attached() else {
            return;
        };
        if let Some((device, Class::Vmm)) = place(attached, location) {
            refused_on(attached, device, asked);
        }
    });
}

/// `cuMemImportFromShareableHandle` has opened another process's memory. How much it is shows when it is mapped;
/// the bytes are reported apart.
pub fn imported(handle: Handle) {
    errno::kept(|| {
        let device = attach::attached().and_then(Attachment::current_device);
        if let Some(physical) = device.and_then(|device| Physical::new(0, device, Class::Imported)) {
            let _ = HANDLES.insert(handle, physical.0);
        }
    });
}

/// Imported memory is at least as long as each of its mappings reaches.
fn reaches(handle: Handle, end: u64) {
    let longer = |physical: u64| {
        let known = Physical(physical);
        let grows = known.class() == Class::Imported && end > known.bytes() && end < REFERENCE;
        grows.then_some(physical & !(REFERENCE - 1) | end)
    };
    let grown = HANDLES
        .value(handle)
        .and_then(|physical| physical.fetch_update(AcqRel, Relaxed, longer).ok());
    if let (Some(before), Some(attached)) = (grown.map(Physical), attach::already()) {
        attached.add(
            Lanes::SHARED,
            before.device(),
            Class::Imported,
            end - before.bytes(),
        );
    }
}

/// One more reference to `handle`. A handle we have not seen is another process's: not our bytes.
pub fn retain(handle: Handle) {
    let add = |physical: u64| (physical & REFERENCES != REFERENCES).then(|| physical + REFERENCE);
    if let Some(physical) = HANDLES.value(handle) {
        let _ = physical.fetch_update(AcqRel, Relaxed, add);
    }
}

/// What [`release`] and [`unmap`] dropped, to be put back if the driver refuses.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    handle: Handle,
    /// The memory, if this was its last reference.
    last: Option<Physical>,
}

/// Drops one reference to `handle`, before the driver does.
pub fn release(handle: Handle) -> Option<Dropped> {
    let attached = attach::already()?;
    let physical: &AtomicU64 = HANDLES.value(handle)?;
    let before = physical
        .fetch_update(AcqRel, Relaxed, |physical| {
            (physical & REFERENCES != 0).then(|| physical - REFERENCE)
        })
        .ok()?;
    let last = (before & REFERENCES == REFERENCE)
        .then(|| HANDLES.take(handle).map(|_| Physical(before)))
        .flatten();
    if let Some(memory) = last {
        attached
            .page
            .remove(attached.slot, memory.device(), memory.class(), memory.bytes());
    }
    Some(Dropped { handle, last })
}

/// Undoes [`release`].
#[cold]
pub fn put_back(dropped: Dropped) {
    let Some(memory) = dropped.last else {
        return retain(dropped.handle);
    };
    let Some(attached) = attach::already() else { return };
    if HANDLES.insert(dropped.handle, memory.0) {
        attached
            .page
            .restore(attached.slot, memory.device(), memory.class(), memory.bytes());
    }
}

/// `cuMemMap` has mapped `bytes` of `handle`, from `offset` on, at `start`.
pub fn map(start: u64, bytes: u64, offset: u64, handle: Handle) {
    reaches(handle, offset.saturating_add(bytes));
    if HANDLES.value(handle).is_some() && MAPPED.insert(start, handle) {
        if LENGTHS.insert(start, bytes) {
            retain(handle);
        } else {
            let _ = MAPPED.take(start);
        }
    }
}

/// Mappings taken out by one `cuMemUnmap` before the real call. A range of more than these is finished after
/// it, when the driver can no longer refuse.
const AHEAD: usize = 32;

/// What one `cuMemUnmap` has taken out so far.
#[derive(Debug)]
pub struct Unmapped {
    taken: [Option<(u64, u64, Dropped)>; AHEAD],
    /// The rest of the range.
    rest: (u64, u64),
}

/// Takes the mappings of a range out, before the driver does. A range covers whole mappings only.
#[must_use]
pub fn unmap(start: u64, bytes: u64) -> Unmapped {
    let end = start.saturating_add(bytes);
    let mut unmapped = Unmapped {
        taken: [None; AHEAD],
        rest: (start, end),
    };
    for place in &mut unmapped.taken {
        let at = unmapped.rest.0;
        let Some((length, dropped)) = take_mapping(at, end) else {
            break;
        };
        *place = dropped.map(|dropped| (at, length, dropped));
        unmapped.rest.0 = at.saturating_add(length);
    }
    unmapped
}

fn take_mapping(at: u64, end: u64) -> Option<(u64, Option<Dropped>)> {
    if at >= end {
        return None;
    }
    let handle = MAPPED.take(at)?;
    let length = LENGTHS.take(at)?;
    Some((length, release(handle)))
}

/// The driver has unmapped the range.
pub fn finish(unmapped: Unmapped) {
    let (mut at, end) = unmapped.rest;
    while let Some((length, _)) = take_mapping(at, end) {
        at = at.saturating_add(length);
    }
}

/// The driver has refused to unmap the range.
#[cold]
pub fn remap(unmapped: Unmapped) {
    for &(start, length, dropped) in unmapped.taken.iter().flatten() {
        put_back(dropped);
        if MAPPED.insert(start, dropped.handle) {
            let _ = LENGTHS.insert(start, length);
        }
    }
}

/// Forgets all, in a forked child.
pub fn clear() {
    HANDLES.clear();
    MAPPED.clear();
    LENGTHS.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_memory_keeps_its_parts() {
        let memory = Physical::new(REFERENCE - 1, 15, Class::Vmm).unwrap();
        assert_eq!(memory.bytes(), REFERENCE - 1);
        assert_eq!((memory.device(), memory.class()), (15, Class::Vmm));
        assert_eq!(memory.0 & REFERENCES, REFERENCE);
        assert_eq!(Physical::new(REFERENCE, 0, Class::Vmm), None);
    }
}
