//! A map from addresses to one word each, for many threads, without locks.
//!
//! A bucket is two cache lines: eight keys, eight values. A key may lie in either of two buckets of each
//! segment. The first segment is static memory; when both buckets are full in all segments, another one of
//! four times the size is mapped. Nothing is ever moved, so no reader can miss an entry, and an emptied place
//! is simply free: there are no tombstones to walk over. Few live entries touch few lines, which is what makes
//! this fast: a sparse table of 32 MiB costs three times as much, all of it cache misses.
//!
//! The table leans on what addresses are: an address belongs to whoever got it from the driver until it is
//! freed, so the same key is never inserted by two threads at once, and a value is stored after its key.

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
};

const PLACES: usize = 8;
/// Segments after the first: 4, 16, ... 4^8 times its size.
const SEGMENTS: usize = 8;

/// Eight keys and their values. Key 0 is a free place.
#[derive(Debug)]
#[repr(C, align(128))]
struct Bucket {
    keys: [AtomicU64; PLACES],
    values: [AtomicU64; PLACES],
}

impl Bucket {
    const fn new() -> Self {
        Self {
            keys: [const { AtomicU64::new(0) }; PLACES],
            values: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    fn put(&self, key: u64, value: u64) -> bool {
        for (place, held) in self.keys.iter().zip(&self.values) {
            if place.load(Relaxed) == 0 && place.compare_exchange(0, key, AcqRel, Relaxed).is_ok() {
                held.store(value, Relaxed);
                return true;
            }
        }
        false
    }

    fn place(&self, key: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        let index = self.keys.iter().position(|place| place.load(Acquire) == key)?;
        Some((&self.keys[index], &self.values[index]))
    }
}

/// See the [module](self). `FIRST` is the number of buckets in static memory, a power of two.
#[derive(Debug)]
pub struct AddressTable<const FIRST: usize> {
    first: [Bucket; FIRST],
    more: [AtomicPtr<Bucket>; SEGMENTS],
    /// How many of `more` are there.
    grown: AtomicUsize,
}

impl<const FIRST: usize> AddressTable<FIRST> {
    /// An empty table.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it lives in static memory only")]
    pub const fn new() -> Self {
        assert!(FIRST.is_power_of_two(), "buckets are chosen by bits");
        Self {
            first: [const { Bucket::new() }; FIRST],
            more: [const { AtomicPtr::new(ptr::null_mut()) }; SEGMENTS],
            grown: AtomicUsize::new(0),
        }
    }

    /// Keeps `value` for `key`; false when there is no memory left for it, or for key 0.
    #[must_use]
    #[inline]
    pub fn insert(&self, key: u64, value: u64) -> bool {
        let grown = self.grown.load(Acquire);
        let [one, two] = self.buckets(grown, key);
        key != 0 && (one.put(key, value) || two.put(key, value) || self.insert_elsewhere(key, value))
    }

    /// Both buckets of the widest segment are full: the older segments, or another one.
    #[cold]
    fn insert_elsewhere(&self, key: u64, value: u64) -> bool {
        loop {
            let grown = self.grown.load(Acquire);
            let mut buckets = (0..=grown).rev().flat_map(|index| self.buckets(index, key));
            if buckets.any(|bucket| bucket.put(key, value)) {
                return true;
            }
            if !self.grow(grown) {
                return false;
            }
        }
    }

    /// Takes `key` out and returns its value. Of several takers one gets it.
    #[inline]
    pub fn take(&self, key: u64) -> Option<u64> {
        let (place, value) = self.find(key)?;
        let value = value.load(Relaxed);
        place.compare_exchange(key, 0, AcqRel, Relaxed).ok()?;
        Some(value)
    }

    #[inline]
    fn find(&self, key: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        let grown = self.grown.load(Acquire);
        let [one, two] = self.buckets(grown, key);
        if key == 0 {
            return None;
        }
        one.place(key)
            .or_else(|| two.place(key))
            .or_else(|| self.find_elsewhere(grown, key))
    }

    #[cold]
    fn find_elsewhere(&self, grown: usize, key: u64) -> Option<(&AtomicU64, &AtomicU64)> {
        let mut buckets = (0..grown).rev().flat_map(|index| self.buckets(index, key));
        buckets.find_map(|bucket| bucket.place(key))
    }

    /// The value of `key`, to read or change in place.
    #[must_use]
    pub fn value(&self, key: u64) -> Option<&AtomicU64> {
        self.find(key).map(|(_, value)| value)
    }

    /// The entries, in no order. One that comes or goes meanwhile may be there or not, and a fresh one may have
    /// the value of an entry that had its place before.
    pub fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let buckets = (0..=self.grown.load(Acquire)).flat_map(|segment| self.segment(segment));
        let places = buckets.flat_map(|bucket| bucket.keys.iter().zip(&bucket.values));
        let entries = places.map(|(key, value)| (key.load(Acquire), value.load(Relaxed)));
        entries.filter(|&(key, _)| key != 0)
    }

    /// Empties the table. For the one thread of a forked child.
    pub fn clear(&self) {
        for segment in 0..=self.grown.load(Acquire) {
            for bucket in self.segment(segment) {
                for place in &bucket.keys {
                    place.store(0, Relaxed);
                }
            }
        }
    }

    /// The two buckets of a segment where a key may be.
    #[inline]
    fn buckets(&self, segment: usize, key: u64) -> [&Bucket; 2] {
        // Fibonacci hashing: the high bits of the product depend on all bits of the key.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let segment = self.segment(segment);
        let mask = segment.len() - 1;
        let (one, two) = ((hash >> 40) as usize & mask, (hash >> 20) as usize & mask);
        [&segment[one], &segment[two]]
    }

    #[inline]
    fn segment(&self, index: usize) -> &[Bucket] {
        let Some(more) = index.checked_sub(1) else {
            return &self.first;
        };
        let start = self.more[more].load(Acquire);
        // SAFETY: `index` is at most `grown`, which is raised only after `more[index - 1]` points to that
        // many zeroed buckets in a mapping that is never undone.
        unsafe { std::slice::from_raw_parts(start, FIRST << (2 * index)) }
    }

    /// Adds the segment after the first `grown`, unless another thread already has.
    #[cold]
    fn grow(&self, grown: usize) -> bool {
        let Some(place) = self.more.get(grown) else {
            return false;
        };
        let buckets = FIRST << (2 * (grown + 1));
        let Some(fresh) = map_buckets(buckets) else {
            return false;
        };
        if place
            .compare_exchange(ptr::null_mut(), fresh.as_ptr(), AcqRel, Acquire)
            .is_err()
        {
            unmap_buckets(fresh, buckets);
        }
        self.grown.fetch_max(grown + 1, AcqRel);
        true
    }
}

fn map_buckets(count: usize) -> Option<NonNull<Bucket>> {
    const _: () = assert!(size_of::<MaybeUninit<Bucket>>() == 128);
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
        assert!(TABLE.grown.load(Relaxed) > 3);
        for key in keys {
            assert_eq!(TABLE.take(key), Some(key >> 21));
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
        assert_eq!(TABLE.grown.load(Relaxed), 0);
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
