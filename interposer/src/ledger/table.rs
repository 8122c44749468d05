//! A map from addresses to one word each, for many threads, without locks.
//!
//! A bucket is one cache line: four keys, each with its value. A key may lie in either of two buckets of each
//! segment. When both are full in all segments, another segment of twice the size is mapped. Nothing is
//! ever moved, so no reader can miss an entry, and an emptied place is simply free: there are no tombstones to
//! walk over. Few live entries touch few lines, which is what makes this fast: a sparse table of 32 MiB costs
//! three times as much, all of it cache misses.
//!
//! The table leans on what addresses are: an address belongs to whoever got it from the driver until it is
//! freed. So the same key is never inserted by two threads at once, and the one who frees it is the only one
//! who looks for it. A table into which [one thread inserts](AddressTable::insert_alone) therefore needs no
//! locked instruction: only that thread fills free places, others can only empty full ones.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

const PLACES: usize = 4;
/// Segments: 1, 2, 4, ... times the size of the first.
const SEGMENTS: usize = 20;

/// A key and its value. Key 0 is a free place.
#[derive(Debug)]
#[repr(C)]
struct Place {
    key: AtomicU64,
    value: AtomicU64,
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Bucket([Place; PLACES]);

impl Bucket {
    /// Puts the entry in a free place, for one of several threads that may want it.
    fn put(&self, key: u64, value: u64) -> bool {
        for place in &self.0 {
            if place.key.load(Relaxed) == 0 && place.key.compare_exchange(0, key, AcqRel, Relaxed).is_ok() {
                place.value.store(value, Relaxed);
                return true;
            }
        }
        false
    }

    /// Puts the entry in a free place, which nobody else fills.
    #[inline]
    fn put_alone(&self, key: u64, value: u64) -> bool {
        for place in &self.0 {
            if place.key.load(Acquire) == 0 {
                place.value.store(value, Relaxed);
                place.key.store(key, Release);
                return true;
            }
        }
        false
    }

    #[inline]
    fn place(&self, key: u64) -> Option<&Place> {
        self.0.iter().find(|place| place.key.load(Acquire) == key)
    }
}

/// A key's hash: the high bits of the product depend on all bits of the key (Fibonacci hashing). The shift
/// keeps keys at equal distances apart: without it, half of those 1 MiB from each other meet in full buckets.
#[inline]
const fn first_hash(key: u64) -> u64 {
    (key ^ key >> 24).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Another one, for the second bucket.
const fn second_hash(key: u64) -> u64 {
    let mixed = first_hash(key);
    (mixed ^ mixed >> 29).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
}

/// A segment's address, with the shift that turns a hash into a bucket's number in the six low bits, which
/// the alignment of a bucket leaves free; null for none. One word, so that both change at once.
#[derive(Clone, Copy, Debug)]
struct Segment(*mut Bucket);

impl Segment {
    const SHIFT: usize = 63;

    fn new(start: NonNull<Bucket>, buckets: usize) -> Self {
        let shift = 64 - buckets.trailing_zeros() as usize;
        debug_assert!(buckets.is_power_of_two() && shift <= Self::SHIFT);
        Self(start.as_ptr().map_addr(|start| start | shift))
    }

    fn shift(self) -> usize {
        self.0.addr() & Self::SHIFT
    }

    fn is_there(self) -> bool {
        !self.0.is_null()
    }

    fn buckets(self) -> usize {
        1 << (64 - self.shift())
    }

    #[inline]
    fn bucket(self, hash: u64) -> &'static Bucket {
        let start = self.0.map_addr(|word| word & !Self::SHIFT);
        #[expect(clippy::cast_possible_truncation, reason = "64 bits on each target")]
        let index = (hash >> self.shift()) as usize;
        let bucket = start.wrapping_add(index);
        // SAFETY: 64 less the shift is the logarithm of the segment's length, so the index is below it; callers
        // have seen that the segment is there, and its mapping is never undone.
        unsafe { &*bucket }
    }
}

/// See the [module](self). `FIRST` is the number of buckets of the first segment, a power of two.
#[derive(Debug)]
pub struct AddressTable<const FIRST: usize> {
    /// The last of `segments` that is there.
    widest: AtomicPtr<Bucket>,
    segments: [AtomicPtr<Bucket>; SEGMENTS],
}

impl<const FIRST: usize> AddressTable<FIRST> {
    /// An empty table, without memory of its own.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it lives in static memory only")]
    pub const fn new() -> Self {
        assert!(FIRST.is_power_of_two() && FIRST > 1, "buckets are chosen by bits");
        Self {
            widest: AtomicPtr::new(ptr::null_mut()),
            segments: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS],
        }
    }

    /// Keeps `value` for `key`; false when there is no memory left for it, or for key 0.
    #[must_use]
    pub fn insert(&self, key: u64, value: u64) -> bool {
        key != 0 && self.insert_with(key, |bucket| bucket.put(key, value))
    }

    /// [`insert`](Self::insert) for the only thread that ever inserts into this table.
    #[must_use]
    pub fn insert_alone(&self, key: u64, value: u64) -> bool {
        key != 0 && self.insert_with(key, |bucket| bucket.put_alone(key, value))
    }

    /// [`insert_alone`](Self::insert_alone) where that is quick: false also if there is no room in the bucket
    /// that is looked at first.
    #[must_use]
    #[inline]
    pub fn insert_quickly(&self, key: u64, value: u64) -> bool {
        let widest = self.widest();
        key != 0 && widest.is_there() && widest.bucket(first_hash(key)).put_alone(key, value)
    }

    /// Tries the buckets of all segments, the widest first, and then those of another one.
    fn insert_with(&self, key: u64, put: impl Fn(&Bucket) -> bool) -> bool {
        loop {
            let widest = self.widest();
            if self.buckets(key).any(&put) {
                return true;
            }
            if !self.grow(widest) {
                return false;
            }
        }
    }

    /// Takes `key` out and returns its value. Of several takers one gets it.
    pub fn take(&self, key: u64) -> Option<u64> {
        let place = self.find(key)?;
        let value = place.value.load(Relaxed);
        place.key.compare_exchange(key, 0, AcqRel, Relaxed).ok()?;
        Some(value)
    }

    /// [`take`](Self::take) for whoever has the address: if two threads of a faulty program free it at the same
    /// instant, both may get its value.
    pub fn take_owned(&self, key: u64) -> Option<u64> {
        let place = self.find(key)?;
        let value = place.value.load(Relaxed);
        place.key.store(0, Release);
        Some(value)
    }

    /// [`take_owned`](Self::take_owned) where that is quick: `None` also if the key is not in the bucket that is
    /// looked at first.
    #[inline]
    pub fn take_quickly(&self, key: u64) -> Option<u64> {
        let widest = self.widest();
        if key == 0 || !widest.is_there() {
            return None;
        }
        let place = widest.bucket(first_hash(key)).place(key)?;
        let value = place.value.load(Relaxed);
        place.key.store(0, Release);
        Some(value)
    }

    fn find(&self, key: u64) -> Option<&'static Place> {
        if key == 0 {
            return None;
        }
        self.buckets(key).find_map(|bucket| bucket.place(key))
    }

    /// The value of `key`, to read or change in place.
    #[must_use]
    pub fn value(&self, key: u64) -> Option<&AtomicU64> {
        self.find(key).map(|place| &place.value)
    }

    /// The entries, in no order. One that comes or goes meanwhile may be there or not, and a fresh one may have
    /// the value of an entry that had its place before.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let of_segment = |segment: Segment| {
            let hashes = (0..segment.buckets() as u64).map(move |bucket| bucket << segment.shift());
            hashes.flat_map(move |hash| &segment.bucket(hash).0)
        };
        let places = self.segments().flat_map(of_segment);
        let entries = places.map(|place| (place.key.load(Acquire), place.value.load(Relaxed)));
        entries.filter(|&(key, _)| key != 0)
    }

    /// Empties the table. For the one thread of a forked child.
    pub fn clear(&self) {
        for segment in self.segments() {
            for bucket in 0..segment.buckets() as u64 {
                let hash = bucket << segment.shift();
                for place in &segment.bucket(hash).0 {
                    // What is not written stays shared with the parent.
                    if place.key.load(Relaxed) != 0 {
                        place.key.store(0, Relaxed);
                    }
                }
            }
        }
    }

    #[inline]
    fn widest(&self) -> Segment {
        Segment(self.widest.load(Acquire))
    }

    /// The segments that are there, the widest first.
    fn segments(&self) -> impl Iterator<Item = Segment> {
        let words = self.segments.iter().rev();
        words
            .map(|word| Segment(word.load(Acquire)))
            .filter(|segment| segment.is_there())
    }

    /// The buckets where a key may be, in the order in which they are filled.
    fn buckets(&self, key: u64) -> impl Iterator<Item = &'static Bucket> {
        let hashes = [first_hash(key), second_hash(key)];
        self.segments()
            .flat_map(move |segment| hashes.map(|hash| segment.bucket(hash)))
    }

    /// Adds a segment to those up to `widest`, unless another thread already has.
    #[cold]
    fn grow(&self, widest: Segment) -> bool {
        let there = self
            .segments
            .iter()
            .position(|word| word.load(Acquire) == widest.0);
        let next = if widest.is_there() {
            there.map(|index| index + 1)
        } else {
            Some(0)
        };
        let Some((index, place)) = next.and_then(|index| Some((index, self.segments.get(index)?))) else {
            return false;
        };
        let buckets = FIRST << index;
        let Some(start) = map_buckets(buckets) else {
            return false;
        };
        let fresh = Segment::new(start, buckets).0;
        match place.compare_exchange(ptr::null_mut(), fresh, AcqRel, Acquire) {
            Ok(_) => {
                // Whoever has grown the table meanwhile has made it wider still.
                let _ = self.widest.compare_exchange(widest.0, fresh, AcqRel, Relaxed);
            }
            Err(other) => {
                unmap_buckets(start, buckets);
                let _ = self.widest.compare_exchange(widest.0, other, AcqRel, Relaxed);
            }
        }
        true
    }
}

fn map_buckets(count: usize) -> Option<NonNull<Bucket>> {
    const _: () = assert!(size_of::<MaybeUninit<Bucket>>() == 64);
    let bytes = count * size_of::<Bucket>();
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists. Fresh
    // pages are zero, and zero is a valid, empty bucket.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    NonNull::new(start.cast())
}

fn unmap_buckets(start: NonNull<Bucket>, count: usize) {
    // SAFETY: the mapping comes from `map_buckets` with the same count, and was never published.
    unsafe { libc::munmap(start.as_ptr().cast(), count * size_of::<Bucket>()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_is_taken_out_once() {
        static TABLE: AddressTable<4> = AddressTable::new();
        assert!(TABLE.insert(0x7f00_0000, 9));
        assert_eq!(TABLE.value(0x7f00_0000).unwrap().load(Relaxed), 9);
        assert_eq!(TABLE.take(0x7f00_0000), Some(9));
        assert_eq!(TABLE.take(0x7f00_0000), None);
        assert!(!TABLE.insert(0, 1), "zero marks a free place");
        assert_eq!(TABLE.take(0), None);
    }

    #[test]
    fn it_grows_and_forgets_nothing() {
        static TABLE: AddressTable<2> = AddressTable::new();
        let keys = (1..=20_000_u64).map(|n| n << 21);
        for key in keys.clone() {
            assert!(TABLE.insert(key, key >> 21));
        }
        assert!(TABLE.segments().count() > 4);
        for key in keys {
            assert_eq!(TABLE.take(key), Some(key >> 21));
        }
    }

    #[test]
    fn keys_at_equal_distances_fill_it_evenly() {
        for shift in [8, 9, 12, 16, 20, 21, 22, 25] {
            static TABLE: AddressTable<64> = AddressTable::new();
            for n in 1..=100_000_u64 {
                assert!(TABLE.insert(n << shift, n));
            }
            // Nine segments have 130,816 places.
            assert!(
                TABLE.segments().count() <= 9,
                "{shift}: {}",
                TABLE.segments().count()
            );
            TABLE.clear();
        }
    }

    #[test]
    fn emptied_places_are_used_again() {
        static TABLE: AddressTable<4> = AddressTable::new();
        for round in 0..100_000_u64 {
            let key = (round + 1) << 9;
            assert!(TABLE.insert(key, round));
            assert_eq!(TABLE.take(key), Some(round));
        }
        assert_eq!(TABLE.segments().count(), 1);
    }

    #[test]
    fn all_entries_are_listed() {
        static TABLE: AddressTable<2> = AddressTable::new();
        for key in 1..=500_u64 {
            assert!(TABLE.insert(key << 9, key));
        }
        let mut listed: Vec<_> = TABLE.entries().collect();
        listed.sort_unstable();
        assert_eq!(listed, (1..=500).map(|key| (key << 9, key)).collect::<Vec<_>>());
    }

    #[test]
    fn a_forked_child_starts_empty() {
        static TABLE: AddressTable<2> = AddressTable::new();
        for key in 1..500 {
            assert!(TABLE.insert(key << 9, 1));
        }
        TABLE.clear();
        assert!((1..500).all(|key| TABLE.take(key << 9).is_none()));
    }

    #[test]
    fn what_one_thread_puts_in_all_may_take_out() {
        static TABLE: AddressTable<2> = AddressTable::new();
        assert!(!TABLE.insert_alone(0, 1), "zero marks a free place");
        let key = |n: u64| (n + 1) << 21;
        let handed_out = std::sync::mpsc::sync_channel::<u64>(64);
        std::thread::scope(|scope| {
            let (sender, receiver) = handed_out;
            scope.spawn(move || {
                for n in receiver {
                    assert_eq!(TABLE.take_owned(key(n)), Some(n));
                    assert_eq!(TABLE.take_owned(key(n)), None);
                }
            });
            for n in 0..20_000 {
                if n % 2 == 0 || !TABLE.insert_quickly(key(n), n) {
                    assert!(TABLE.insert_alone(key(n), n));
                }
                if n % 3 == 0 {
                    let taken = TABLE.take_quickly(key(n)).or_else(|| TABLE.take_owned(key(n)));
                    assert_eq!(taken, Some(n));
                } else {
                    sender.send(n).unwrap();
                }
            }
        });
        assert!((0..20_000).all(|n| TABLE.value(key(n)).is_none()));
        assert!(TABLE.segments().count() < 12, "places are used again");
    }

    #[test]
    fn many_threads_lose_no_entry() {
        static TABLE: AddressTable<2> = AddressTable::new();
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                scope.spawn(move || {
                    for round in 0..200 {
                        let key = |n: u64| (thread << 40) | ((round * 64 + n + 1) << 9);
                        for n in 0..64 {
                            assert!(TABLE.insert(key(n), n));
                        }
                        for n in 0..64 {
                            assert_eq!(TABLE.take(key(n)), Some(n));
                        }
                    }
                });
            }
        });
    }
}
