//! How allocations take memory of the slice: large ones whole, small ones out of shared blocks. Pure.
//!
//! The slice is charged in steps of 2 MiB, as real hardware shows in `cuMemGetInfo`: an allocation of 1 MiB or more
//! is rounded up to them, a smaller one shares a block of 2 MiB with others. A block goes back when its last piece
//! does. Pieces start at multiples of 512 bytes.

use std::collections::BTreeMap;

use crate::space::Space;

/// The step in which the slice is charged, bytes.
pub(crate) const BLOCK: u64 = 2 << 20;
/// From this size on an allocation has its blocks to itself, bytes.
pub(crate) const LARGE: u64 = 1 << 20;
/// Pieces of a shared block start at its multiples, bytes.
pub(crate) const PIECE: u64 = 512;

/// Where an allocation lies; give it back to [`Blocks::give`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Place {
    pub(crate) address: u64,
    /// Bytes taken there, after rounding.
    bytes: u64,
    /// Start of the shared block; `None` if the allocation has its own.
    shared: Option<u64>,
}

impl Place {
    /// Addresses that no block of the device lies behind.
    pub(crate) fn elsewhere(address: u64, bytes: u64) -> Self {
        Self {
            address,
            bytes,
            shared: None,
        }
    }

    /// Bytes taken there.
    pub(crate) fn bytes(self) -> u64 {
        self.bytes
    }

    /// What was charged to the slice for it: start and bytes.
    pub(crate) fn unit(self) -> (u64, u64) {
        match self.shared {
            Some(block) => (block, BLOCK),
            None => (self.address, self.bytes),
        }
    }
}

/// The shared blocks of one device.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Per block start: its free pieces, and the bytes in use.
    shared: BTreeMap<u64, (Space, u64)>,
}

impl Blocks {
    /// Takes `bytes` (not 0). `charge` pays for whole blocks and says whether the slice gave them; `None` if it did
    /// not, or if no addresses are left.
    pub(crate) fn take(
        &mut self,
        addresses: &mut Space,
        bytes: u64,
        charge: impl FnOnce(u64) -> bool,
    ) -> Option<Place> {
        if bytes >= LARGE {
            let bytes = bytes.checked_next_multiple_of(BLOCK)?;
            let address = fresh(addresses, bytes, charge)?;
            return Some(Place {
                address,
                bytes,
                shared: None,
            });
        }
        let bytes = bytes.next_multiple_of(PIECE);
        for (&block, (pieces, used)) in &mut self.shared {
            if let Some(address) = pieces.take(bytes, PIECE) {
                *used += bytes;
                return Some(Place {
                    address,
                    bytes,
                    shared: Some(block),
                });
            }
        }
        let block = fresh(addresses, BLOCK, charge)?;
        let mut pieces = Space::new(block, BLOCK);
        let address = pieces.take(bytes, PIECE)?;
        self.shared.insert(block, (pieces, bytes));
        Some(Place {
            address,
            bytes,
            shared: Some(block),
        })
    }

    /// Gives a place back; answers the bytes that the slice has again.
    pub(crate) fn give(&mut self, addresses: &mut Space, place: Place) -> u64 {
        let Some(block) = place.shared else {
            addresses.give(place.address, place.bytes);
            return place.bytes;
        };
        let Some((pieces, used)) = self.shared.get_mut(&block) else {
            return 0;
        };
        pieces.give(place.address, place.bytes);
        *used -= place.bytes;
        if *used > 0 {
            return 0;
        }
        self.shared.remove(&block);
        addresses.give(block, BLOCK);
        BLOCK
    }
}

/// Whole blocks start at multiples of 2 MiB, as on real hardware.
fn fresh(addresses: &mut Space, bytes: u64, charge: impl FnOnce(u64) -> bool) -> Option<u64> {
    let address = addresses.take(bytes, BLOCK)?;
    if charge(bytes) {
        return Some(address);
    }
    addresses.give(address, bytes);
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{DEVICE_BASE, DEVICE_SPAN};

    fn addresses() -> Space {
        Space::new(DEVICE_BASE, DEVICE_SPAN)
    }

    #[test]
    fn small_allocations_share_a_block_and_the_last_one_gives_it_back() {
        let (mut space, mut blocks, mut charged) = (addresses(), Blocks::default(), Vec::new());
        let mut take = |blocks: &mut Blocks, space: &mut Space, bytes| {
            let place = blocks.take(space, bytes, |n| {
                charged.push(n);
                true
            });
            place.unwrap()
        };
        let first = take(&mut blocks, &mut space, 1);
        let second = take(&mut blocks, &mut space, LARGE - 1);
        let third = take(&mut blocks, &mut space, 700);
        assert_eq!(second.address - first.address, PIECE);
        assert_eq!(third.shared, first.shared);
        let fourth = take(&mut blocks, &mut space, LARGE - 1);
        assert_ne!(fourth.shared, first.shared, "the first block has no room for it");
        assert_eq!(charged, [BLOCK, BLOCK]);
        assert_eq!(blocks.give(&mut space, second), 0);
        assert_eq!(blocks.give(&mut space, first), 0);
        assert_eq!(blocks.give(&mut space, third), BLOCK);
        assert_eq!(blocks.give(&mut space, fourth), BLOCK);
    }

    #[test]
    fn one_mebibyte_is_charged_as_two() {
        let (mut space, mut blocks, mut charged) = (addresses(), Blocks::default(), 0);
        let place = blocks.take(&mut space, LARGE, |n| {
            charged += n;
            true
        });
        assert_eq!(charged, BLOCK);
        assert_eq!(blocks.give(&mut space, place.unwrap()), BLOCK);
    }

    #[test]
    fn a_refused_charge_leaves_the_addresses_free() {
        let (mut space, mut blocks) = (addresses(), Blocks::default());
        assert_eq!(blocks.take(&mut space, 5 << 20, |_| false), None);
        assert_eq!(blocks.take(&mut space, 10, |_| false), None);
        assert_eq!(
            blocks.take(&mut space, 5 << 20, |_| true).unwrap().address,
            DEVICE_BASE
        );
    }

    #[test]
    fn a_size_that_overflows_is_refused_without_a_charge() {
        let (mut space, mut blocks) = (addresses(), Blocks::default());
        assert_eq!(blocks.take(&mut space, u64::MAX - 5, |_| panic!("charged")), None);
    }
}
