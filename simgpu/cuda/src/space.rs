//! Device addresses: a pure allocator of ranges within one window.
//!
//! The window lies above every address that Linux hands to a process, so a device address is never a host address,
//! and a program that dereferences one on the host dies as it would on real hardware.

use std::collections::BTreeMap;

/// First device address: 2^48, not canonical on x86-64, so no host mapping can be there.
pub(crate) const DEVICE_BASE: u64 = 1 << 48;
/// Bytes of device addresses.
pub(crate) const DEVICE_SPAN: u64 = 1 << 47;
/// Addresses for the oldest calls, whose device pointer has 32 bits. Programs of our time have nothing mapped there.
pub(crate) const NARROW_BASE: u64 = 0x8000_0000;
/// Bytes of them.
pub(crate) const NARROW_SPAN: u64 = 0x7fff_0000;

/// Free and taken ranges of a window.
#[derive(Debug)]
pub(crate) struct Space {
    /// Start of each free range, and its length.
    free: BTreeMap<u64, u64>,
}

impl Space {
    pub(crate) fn new(base: u64, span: u64) -> Self {
        Self {
            free: BTreeMap::from([(base, span)]),
        }
    }

    /// Takes the lowest free range of `length` bytes that starts at a multiple of `align` (a power of two).
    pub(crate) fn take(&mut self, length: u64, align: u64) -> Option<u64> {
        let (start, at) = self.free.iter().find_map(|(&start, &free)| {
            let at = start.checked_next_multiple_of(align)?;
            let end = at.checked_add(length)?;
            (end <= start + free).then_some((start, at))
        })?;
        self.carve(start, at, length);
        Some(at)
    }

    /// Takes exactly this range, if all of it is free.
    pub(crate) fn take_at(&mut self, at: u64, length: u64) -> bool {
        let Some((&start, &free)) = self.free.range(..=at).next_back() else {
            return false;
        };
        let fits = at.checked_add(length).is_some_and(|end| end <= start + free);
        if fits {
            self.carve(start, at, length);
        }
        fits
    }

    /// Gives a range back; neighbours merge.
    pub(crate) fn give(&mut self, at: u64, length: u64) {
        let mut start = at;
        let mut end = at + length;
        if let Some((&before, &free)) = self.free.range(..at).next_back()
            && before + free == at
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(free) = self.free.remove(&end) {
            end += free;
        }
        self.free.insert(start, end - start);
    }

    fn carve(&mut self, start: u64, at: u64, length: u64) {
        let Some(free) = self.free.remove(&start) else {
            return;
        };
        if at > start {
            self.free.insert(start, at - start);
        }
        let (end, taken_end) = (start + free, at + length);
        if end > taken_end {
            self.free.insert(taken_end, end - taken_end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_aligned_and_merge_when_given_back() {
        let mut space = Space::new(0x1000, 0x9000);
        let first = space.take(0x1800, 0x1000).unwrap();
        let second = space.take(0x1000, 0x1000).unwrap();
        assert_eq!(
            (first, second),
            (0x1000, 0x3000),
            "the hole at 0x2800 is not aligned"
        );
        assert_eq!(space.take(0x800, 0x800), Some(0x2800));
        space.give(first, 0x1800);
        space.give(second, 0x1000);
        space.give(0x2800, 0x800);
        assert_eq!(space.free, BTreeMap::from([(0x1000, 0x9000)]));
    }

    #[test]
    fn a_fixed_range_is_taken_only_when_all_of_it_is_free() {
        let mut space = Space::new(0x1000, 0x4000);
        assert!(space.take_at(0x2000, 0x1000));
        assert!(!space.take_at(0x1800, 0x1000));
        assert!(!space.take_at(0x4800, 0x1000), "beyond the window");
        assert!(space.take_at(0x3000, 0x2000));
    }

    #[test]
    fn a_length_that_overflows_is_refused() {
        let mut space = Space::new(DEVICE_BASE, DEVICE_SPAN);
        assert_eq!(space.take(u64::MAX, 512), None);
        assert!(!space.take_at(u64::MAX - 10, 100));
    }
}
