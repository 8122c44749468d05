//! Our file descriptors in a process that is not ours.
//!
//! A program may have closed 0, 1 or 2, and whatever is opened next becomes its standard output: so ours are
//! moved up. A program may close every descriptor it does not know, and open a file that gets our number: so
//! each use first checks that the number still stands for what we opened. A forked child drops them all.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicI32, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// Where our numbers begin, above those that programs count on.
const LOWEST: c_int = 64;

/// The descriptors held, so that a forked child finds them.
static HELD: [Held; 8] = [const { Held::new() }; 8];

struct Held {
    /// -1 when free.
    number: AtomicI32,
    inode: AtomicU64,
    device: AtomicU64,
}

impl Held {
    const fn new() -> Self {
        Self {
            number: AtomicI32::new(-1),
            inode: AtomicU64::new(0),
            device: AtomicU64::new(0),
        }
    }

    /// The number, if it still stands for what was opened.
    fn number(&self) -> Option<c_int> {
        let number = self.number.load(Acquire);
        let (device, inode) = identity(number)?;
        (inode == self.inode.load(Relaxed) && device == self.device.load(Relaxed)).then_some(number)
    }

    fn close(&self) {
        if let Some(number) = self.number() {
            // SAFETY: the number was just seen to be the file that we opened.
            unsafe { libc::close(number) };
        }
        self.number.store(-1, Release);
    }
}

/// A descriptor of ours; closed on drop.
#[derive(Debug)]
pub struct Descriptor {
    place: usize,
}

impl Descriptor {
    /// Takes over a fresh descriptor and moves it up. `None`, and closed, if that fails.
    #[must_use]
    pub fn adopt(fresh: c_int) -> Option<Self> {
        if fresh < 0 {
            return None;
        }
        let moved = [LOWEST, 3].into_iter().find_map(|lowest| {
            // SAFETY: `fresh` is open; the duplicate is a descriptor of its own.
            let moved = unsafe { libc::fcntl(fresh, libc::F_DUPFD_CLOEXEC, lowest) };
            (moved >= 0).then_some(moved)
        });
        // SAFETY: `fresh` is ours, by the contract of this function.
        unsafe { libc::close(fresh) };
        let number = moved?;
        let (device, inode) = identity(number)?;
        let place = HELD
            .iter()
            .position(|held| held.number.compare_exchange(-1, number, AcqRel, Relaxed).is_ok());
        let Some(place) = place else {
            // SAFETY: as above.
            unsafe { libc::close(number) };
            return None;
        };
        HELD[place].inode.store(inode, Relaxed);
        HELD[place].device.store(device, Release);
        Some(Self { place })
    }

    /// The number, unless the program has closed it.
    #[must_use]
    pub fn number(&self) -> Option<c_int> {
        HELD[self.place].number()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        HELD[self.place].close();
    }
}

/// Drops what a forked child has inherited: the supervisor must see the end of its parent.
pub fn close_inherited() {
    for held in &HELD {
        held.close();
    }
}

fn identity(number: c_int) -> Option<(u64, u64)> {
    let mut status = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the buffer is large enough; an unknown number is answered with an error.
    if number < 0 || unsafe { libc::fstat(number, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: `fstat` has filled it in.
    let status = unsafe { status.assume_init() };
    Some((status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipe() -> (c_int, c_int) {
        let mut ends = [0; 2];
        // SAFETY: room for two numbers.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        (ends[0], ends[1])
    }

    #[test]
    fn a_descriptor_is_moved_above_the_programs_own() {
        let (read, write) = pipe();
        let (read, write) = (
            Descriptor::adopt(read).unwrap(),
            Descriptor::adopt(write).unwrap(),
        );
        assert!(read.number().unwrap() >= LOWEST && write.number().unwrap() >= LOWEST);
    }

    #[test]
    fn a_number_that_the_program_has_given_another_file_is_left_alone() {
        let (read, write) = pipe();
        let ours = Descriptor::adopt(read).unwrap();
        let number = ours.number().unwrap();
        let (other, other_write) = pipe();
        // SAFETY: what a program does that closes all it does not know and opens a file.
        assert_eq!(unsafe { libc::dup2(other, number) }, number);
        assert_eq!(ours.number(), None);
        drop(ours);
        assert!(identity(number).is_some(), "the program's file is still open");
        for number in [number, write, other, other_write] {
            // SAFETY: opened above.
            unsafe { libc::close(number) };
        }
    }
}
