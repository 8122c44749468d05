//! What the program holds: one record per allocation, and the totals in the counter page.
//!
//! The table knows the size, class and device of each live allocation, so that a free takes off what its
//! allocation put on, from the device it was on. The page has the sums, which outlive the process.

pub mod contexts;
pub mod graph;
pub mod pools;
pub mod table;
pub mod vmm;

use migm_shared::clock::Mark;
use migm_shared::page::{Class, LANES};

use crate::attach::{self, Attachment};
use crate::errno;
use crate::thread::{Lanes, Thread};
use table::AddressTable;

/// Where allocations are kept.
static RECORDS: Records = Records([const { AddressTable::new() }; LANES]);

/// The records of one lane. 64 buckets are a page of memory, for 256 allocations.
pub type LaneRecords = AddressTable<64>;

/// The records of all lanes: each is in the table of the lane of the thread that made the allocation, into which
/// only that thread inserts. Lane 0, which threads share, is the exception.
#[derive(Debug)]
struct Records([LaneRecords; LANES]);

impl Records {
    /// Keeps a record in a lane's table; false where there is no room.
    fn insert(&self, lane: usize, key: Key, record: Record) -> bool {
        let Some(records) = self.0.get(lane) else {
            return false;
        };
        if lane == Lanes::SHARED {
            records.insert(key.0, record.0)
        } else {
            records.insert_alone(key.0, record.0)
        }
    }

    /// Takes a record out of a lane's table, or of whichever it is in.
    fn take(&self, lane: usize, key: Key) -> Option<Record> {
        let found = self.0.get(lane).and_then(|records| records.take_owned(key.0));
        let mut others = self.0.iter().enumerate().filter(|&(other, _)| other != lane);
        let found = found.or_else(|| others.find_map(|(_, records)| records.take_owned(key.0)));
        found.map(Record)
    }

    /// The records that are there, by key; see [`AddressTable::entries`].
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().flat_map(AddressTable::entries)
    }

    fn clear(&self) {
        self.0.iter().for_each(AddressTable::clear);
    }
}

/// The records of a lane.
#[must_use]
pub fn records(lane: usize) -> Option<&'static LaneRecords> {
    RECORDS.0.get(lane)
}

/// What an allocation is known by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Key(u64);

impl Key {
    /// A device, managed or host address: all are of one address space, whoever allocated them.
    #[must_use]
    #[inline]
    pub const fn address(address: u64) -> Self {
        Self(address)
    }

    /// An array's handle, or external memory's: a pointer of the driver's own heap, kept apart by a bit that
    /// no address has.
    #[must_use]
    #[inline]
    pub const fn object(handle: u64) -> Self {
        Self(if handle == 0 { 0 } else { handle | 1 << 63 })
    }

    /// The address, unless it is an object's.
    #[must_use]
    pub const fn as_address(self) -> Option<u64> {
        if self.0 >> 63 == 0 { Some(self.0) } else { None }
    }
}

/// What the driver has handed out.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    /// What the free will name.
    pub key: Key,
    /// Kind of memory.
    pub class: Class,
    /// Its size, after pitch.
    pub bytes: u64,
}

/// One live allocation: 52 bits of size, 8 of device, 4 of class.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record(u64);

impl Record {
    const SIZE_BITS: u32 = 52;

    #[inline]
    fn new(bytes: u64, device: usize, class: Class) -> Self {
        debug_assert!(bytes >> Self::SIZE_BITS == 0 && device < 256);
        Self(bytes << 12 | (device as u64 & 0xff) << 4 | class as u64)
    }

    #[inline]
    fn bytes(self) -> u64 {
        self.0 >> 12
    }

    #[inline]
    fn device(self) -> usize {
        (self.0 >> 4 & 0xff) as usize
    }

    #[inline]
    fn class(self) -> Class {
        Class::ALL[(self.0 & 0x7) as usize]
    }
}

/// Counts an allocation that the driver has granted.
#[inline(always)]
pub fn record(thread: &Thread, grant: Grant) {
    if let Some(place) = thread.simple_place() {
        let record = Record::new(grant.bytes, place.device, grant.class);
        if place.records.insert_quickly(grant.key.0, record.0) {
            return place.add(grant.class, grant.bytes);
        }
    }
    record_slowly(thread, grant);
}

/// The first allocation of a process or thread, one of several devices, or a full bucket.
#[cold]
fn record_slowly(thread: &Thread, grant: Grant) {
    let Some(attached) = attach::attached() else {
        return;
    };
    if let Some(device) = attached.current_device() {
        record_on(thread, attached, device, grant);
    }
}

/// [`record`], on a device that is known.
fn record_on(thread: &Thread, attached: &'static Attachment, device: usize, grant: Grant) {
    let Some(place) = thread.place(attached, device) else {
        return;
    };
    let record = Record::new(grant.bytes, device, grant.class);
    if RECORDS.insert(thread.lane(attached), grant.key, record) {
        place.add(grant.class, grant.bytes);
    }
}

/// Takes the record of an allocation out before the driver frees it; `None` for what we have not seen.
#[inline]
#[must_use]
pub fn take(thread: &Thread, key: Key) -> Option<Record> {
    if let Some(place) = thread.simple_place()
        && let Some(record) = place.records.take_quickly(key.0).map(Record)
    {
        place.remove(record.class(), record.bytes());
        return Some(record);
    }
    take_slowly(thread, key)
}

/// The free of another thread's allocation, of one of several devices, of one kept elsewhere in the table, or of
/// one we have not seen.
#[cold]
fn take_slowly(thread: &Thread, key: Key) -> Option<Record> {
    let attached = attach::already()?;
    let record = RECORDS.take(thread.lane(attached), key)?;
    let place = thread.place(attached, record.device())?;
    place.remove(record.class(), record.bytes());
    Some(record)
}

/// Undoes [`take`] after the driver has refused the free.
#[cold]
pub fn put_back(thread: &Thread, key: Key, record: Record) {
    let Some(attached) = attach::already() else { return };
    let Some(place) = thread.place(attached, record.device()) else {
        return;
    };
    if RECORDS.insert(thread.lane(attached), key, record) {
        place.restore(record.class(), record.bytes());
    }
}

/// Notes that the driver had no room for `asked` bytes.
#[cold]
pub fn refused(asked: u64) {
    errno::kept(|| {
        let Some(attached) = attach::attached() else {
            return;
        };
        let Some(device) = attached.current_device() else {
            return;
        };
        refused_on(attached, device, asked);
    });
}

#[cold]
fn refused_on(attached: &Attachment, device: usize, asked: u64) {
    attached.refused(device, asked);
}

/// An event that may mark an iteration, once there is something to count it with: it alone attaches nothing.
#[inline]
pub fn tick(event: Mark) {
    if matches!(event, Mark::ContextSync | Mark::StreamSync) {
        graph::refresh();
    }
    if let Some(attached) = attach::already() {
        attached.tick(event);
    }
}

/// Forgets all records. For the one thread of a forked child: what it inherited is not its own.
pub fn clear() {
    RECORDS.clear();
    contexts::clear();
    graph::clear();
    pools::clear();
    vmm::clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_its_parts() {
        for class in Class::ALL {
            let record = Record::new((1 << 52) - 1, 15, class);
            assert_eq!(record.bytes(), (1 << 52) - 1);
            assert_eq!((record.device(), record.class()), (15, class));
        }
    }

    #[test]
    fn an_object_is_no_address() {
        assert_ne!(Key::object(0x5000), Key::address(0x5000));
        assert_eq!(Key::object(0), Key::address(0));
    }
}
