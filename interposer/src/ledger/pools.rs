//! Pools that a program has made itself: where their memory lies is the pool's business, not the current
//! context's.

use std::sync::atomic::Ordering::Relaxed;

use migm_shared::page::Class;

use super::table::AddressTable;
use super::{Grant, record_on, refused_on};
use crate::abi::{LOCATION_DEVICE, Location, Opaque, Ordinal};
use crate::attach;
use crate::errno;
use crate::thread::Thread;

/// Pool to [`Pool`].
static POOLS: AddressTable<16> = AddressTable::new();

/// Where a pool's memory lies: class above 32 bits, the device's ordinal, or all ones for host memory, below.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Pool(u64);

const HOST: u64 = 0xffff_ffff;
/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const MANAGED: i32 = 2;

impl Pool {
    /// Of memory of a kind at a location, as `CUmemPoolProps` has them.
    #[must_use]
    pub fn new(kind: i32, location: Location) -> Self {
        let ordinal = u64::try_from(location.id).ok();
        match ordinal.filter(|_| location.kind == LOCATION_DEVICE) {
            Some(ordinal) if kind == MANAGED => Self((Class::Managed as u64) << 32 | ordinal),
            Some(ordinal) => Self((Class::Pool as u64) << 32 | ordinal),
            // Where managed memory of no one device resides is not known.
            None if kind == MANAGED => Self((Class::Managed as u64) << 32 | HOST),
            None => Self((Class::Host as u64) << 32 | HOST),
        }
    }

    fn class(self) -> Class {
        Class::ALL[(self.0 >> 32 & 0x7) as usize]
    }

    fn ordinal(self) -> Option<Ordinal> {
        Ordinal::try_from(self.0 & 0xffff_ffff).ok()
    }

    fn device(self, attached: &attach::Attachment) -> Option<usize> {
        match self.ordinal() {
            Some(ordinal) => attached.device_of(ordinal),
            None => attached.any_device(),
        }
    }
}

/// Keeps a pool that was just made.
pub fn created(handle: Opaque, pool: Pool) {
    let _ = POOLS.insert(handle as u64, pool.0);
}

/// Takes a pool out, before the driver does. Its allocations live until each is freed, with it or without.
#[must_use]
pub fn take(handle: Opaque) -> Option<Pool> {
    POOLS.take(handle as u64).map(Pool)
}

/// The pool behind a handle, if the program has made it.
#[must_use]
#[inline]
pub fn find(handle: Opaque) -> Option<Pool> {
    POOLS.value(handle as u64).map(|pool| Pool(pool.load(Relaxed)))
}

/// Counts an allocation from a pool where its memory lies.
pub fn granted(pool: Pool, grant: Grant) {
    let Some(attached) = attach::attached() else {
        return;
    };
    if let Some(device) = pool.device(attached) {
        let class = pool.class();
        Thread::with(|thread| record_on(thread, attached, device, Grant { class, ..grant }));
    }
}

/// A pool had no room for `asked` bytes.
#[cold]
pub fn refused(pool: Pool, asked: u64) {
    errno::kept(|| {
        let Some(attached) = attach::attached() else {
            return;
        };
        if let Some(device) = pool.device(attached).filter(|_| pool.class() == Class::Pool) {
            refused_on(attached, device, asked);
        }
    });
}

/// Forgets all, in a forked child.
pub fn clear() {
    POOLS.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_says_where_its_memory_lies() {
        let at = |kind, id| Location { kind, id };
        let device = Pool::new(1, at(LOCATION_DEVICE, 3));
        assert_eq!((device.class(), device.ordinal()), (Class::Pool, Some(3)));
        let host = Pool::new(1, at(3, 1));
        assert_eq!((host.class(), host.ordinal()), (Class::Host, None));
        let managed = Pool::new(MANAGED, at(LOCATION_DEVICE, 2));
        assert_eq!((managed.class(), managed.ordinal()), (Class::Managed, Some(2)));
        assert_eq!(Pool::new(MANAGED, at(0, 0)).class(), Class::Managed);
    }
}
