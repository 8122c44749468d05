//! Green contexts: contexts on a part of the slice's multiprocessors.
//!
//! A part is cut off by number alone; which multiprocessors it has is not modelled. Memory is that of the device: a
//! green context allocates as any other does, and costs nothing itself.

use std::collections::BTreeMap;

use crate::code::{Answer, Code};
use crate::handle::Handle;

/// A green context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Green {
    pub(crate) device: usize,
    pub(crate) context: Handle,
    pub(crate) sms: u32,
}

/// Green contexts, and the descriptions that they are made of: multiprocessors each.
#[derive(Debug, Default)]
pub(crate) struct Greens {
    pub(crate) greens: BTreeMap<Handle, Green>,
    pub(crate) descriptions: BTreeMap<Handle, u32>,
}

impl Greens {
    pub(crate) fn get(&self, green: Handle) -> Answer<Green> {
        self.greens.get(&green).copied().ok_or(Code::INVALID_HANDLE)
    }

    /// The green context that a context is of.
    pub(crate) fn of_context(&self, context: Handle) -> Option<Handle> {
        let mut all = self.greens.iter();
        all.find(|(_, green)| green.context == context)
            .map(|(&handle, _)| handle)
    }
}

/// The least part and what parts are multiples of, by compute capability: the table of the driver API's section on
/// green contexts.
pub(crate) fn steps((major, _): (i32, i32)) -> (u32, u32) {
    match major {
        ..=6 => (1, 1),
        7 => (2, 2),
        8 => (4, 2),
        _ => (8, 8),
    }
}

/// Cuts `sms` multiprocessors into at most `most` parts of at least `wanted` each: how many parts, their size, and
/// what is left over.
pub(crate) fn split(sms: u32, (least, step): (u32, u32), wanted: u32, most: u32) -> Answer<(u32, u32, u32)> {
    let size = wanted.max(least).next_multiple_of(step);
    let parts = (sms / size).min(most);
    if parts == 0 {
        return Err(Code::INVALID_RESOURCE_CONFIGURATION);
    }
    Ok((parts, size, sms - parts * size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_steps_and_the_rest_is_left_over() {
        assert_eq!(split(98, steps((8, 0)), 15, 9), Ok((6, 16, 2)));
        assert_eq!(split(98, steps((8, 0)), 0, 2), Ok((2, 4, 90)));
        assert_eq!(
            split(14, steps((9, 0)), 9, 4),
            Err(Code::INVALID_RESOURCE_CONFIGURATION)
        );
    }
}
