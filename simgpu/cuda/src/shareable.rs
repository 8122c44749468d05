//! What stands in a descriptor that physical memory was exported as: a sealed file that names a segment.
//!
//! On a real driver the descriptor itself keeps the memory; here a process must open it while another still holds
//! the memory.

use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use simgpu::segment::SegmentId;

use crate::code::{Answer, Code};

/// The first word of the file.
const MAGIC: u64 = u64::from_le_bytes(*b"SIMGVMM1");
/// Words of it: magic, segment, bytes, handle kinds.
const WORDS: usize = 4;

/// Physical memory that another process may open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Shareable {
    pub(crate) segment: SegmentId,
    pub(crate) bytes: u64,
    pub(crate) handle_types: i32,
}

impl Shareable {
    /// A descriptor that is the caller's to close.
    pub(crate) fn export(self) -> Answer<RawFd> {
        // SAFETY: the name is a string that ends in a zero byte.
        let made = unsafe { libc::memfd_create(c"simgpu-memory".as_ptr(), libc::MFD_CLOEXEC) };
        if made < 0 {
            return Err(Code::OPERATING_SYSTEM);
        }
        // SAFETY: the descriptor was made just now, and nobody else has it.
        let mut file = unsafe { File::from_raw_fd(made) };
        let words = [
            MAGIC,
            self.segment.0,
            self.bytes,
            u64::from(self.handle_types.unsigned_abs()),
        ];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        file.write_all(&bytes).map_err(|_| Code::OPERATING_SYSTEM)?;
        Ok(file.into_raw_fd())
    }

    /// Reads a descriptor, which stays the caller's; one that was not exported here is refused.
    pub(crate) fn import(descriptor: RawFd) -> Answer<Self> {
        let file = File::from(own_copy(descriptor)?);
        let mut bytes = [0; WORDS * 8];
        let read = std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0);
        read.map_err(|_| Code::INVALID_VALUE)?;
        let (words, _) = bytes.as_chunks::<8>();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        if word(0) != MAGIC {
            return Err(Code::INVALID_VALUE);
        }
        Ok(Self {
            segment: SegmentId(word(1)),
            bytes: word(2),
            handle_types: i32::try_from(word(3)).map_err(|_| Code::INVALID_VALUE)?,
        })
    }
}

/// Bytes behind a descriptor; of one that this module made, those of the memory.
pub(crate) fn bytes_behind(descriptor: RawFd) -> Answer<u64> {
    if let Ok(known) = Shareable::import(descriptor) {
        return Ok(known.bytes);
    }
    let file = File::from(own_copy(descriptor)?);
    file.metadata()
        .map(|metadata| metadata.len())
        .map_err(|_| Code::INVALID_VALUE)
}

fn own_copy(descriptor: RawFd) -> Answer<OwnedFd> {
    if descriptor < 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the program says that the descriptor is open; if it is not, the copy below fails.
    let theirs = unsafe { BorrowedFd::borrow_raw(descriptor) };
    theirs.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_exported_is_imported_and_other_files_are_not() {
        let shared = Shareable {
            segment: SegmentId(77),
            bytes: 4 << 20,
            handle_types: 1,
        };
        let descriptor = shared.export().unwrap();
        assert_eq!(Shareable::import(descriptor), Ok(shared));
        assert_eq!(
            Shareable::import(descriptor),
            Ok(shared),
            "reading it leaves it as it is"
        );
        assert_eq!(bytes_behind(descriptor), Ok(4 << 20));
        // SAFETY: the descriptor is this test's.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        assert_eq!(Shareable::import(-1), Err(Code::INVALID_VALUE));
        let mut other = tempfile::tempfile().unwrap();
        other.write_all(&[1; 100]).unwrap();
        assert_eq!(Shareable::import(other.as_raw_fd()), Err(Code::INVALID_VALUE));
        assert_eq!(bytes_behind(other.as_raw_fd()), Ok(100));
    }
}
