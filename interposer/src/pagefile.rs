//! The counter page that this process adds to: the job's, one of its own, or static memory.

use std::ffi::{CString, c_int, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use migm_shared::page::CounterPage;

use crate::descriptor::Descriptor;

const BYTES: usize = size_of::<CounterPage>();
const MFD_CLOEXEC: libc::c_uint = 1;
const MFD_ALLOW_SEALING: libc::c_uint = 2;

/// A page, and its file where it has one.
#[derive(Debug)]
pub struct PageFile {
    /// The page, mapped for the life of the process.
    pub page: &'static CounterPage,
    /// Kept to be shown to the next supervisor.
    pub file: Option<Descriptor>,
    /// Made just now, by this process: nobody else has been in it.
    pub fresh: bool,
}

impl PageFile {
    /// The page of the job, as the supervisor has sent it. It must be as long as a page, sealed against
    /// shrinking, as else reading it could kill us, and of our layout.
    #[must_use]
    pub fn received(file: Descriptor) -> Option<Self> {
        let number = file.number()?;
        let mut status = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the buffer is large enough and the descriptor is open.
        if unsafe { libc::fstat(number, status.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: `fstat` has filled it in.
        let size = unsafe { status.assume_init() }.st_size;
        // SAFETY: takes no argument; a file without seals is answered with an error.
        let seals = unsafe { libc::fcntl(number, libc::F_GET_SEALS) };
        if usize::try_from(size) != Ok(BYTES) || seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return None;
        }
        let page = map(number, libc::MAP_SHARED)?;
        page.is_formatted().then_some(Self {
            page,
            file: Some(file),
            fresh: false,
        })
    }

    /// The page in the memfd of this name that `path` leads to.
    #[must_use]
    pub fn named(path: &Path, name: &str) -> Option<Self> {
        let target = std::fs::read_link(path).ok()?;
        let target = target.to_str()?.strip_prefix("/memfd:")?;
        if target.strip_suffix(" (deleted)").unwrap_or(target) != name {
            return None;
        }
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: the path ends in a zero byte.
        let fresh = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        Self::received(Descriptor::adopt(fresh)?)
    }

    /// A page of this process's own: a file, so that it can be shown, or else memory that nobody else sees.
    /// `None` when there is no memory for it at all.
    #[must_use]
    pub fn own() -> Option<Self> {
        Self::own_file().or_else(|| {
            let page = map(-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
            page.format();
            Some(Self {
                page,
                file: None,
                fresh: true,
            })
        })
    }

    fn own_file() -> Option<Self> {
        if file_size_limit() < BYTES as u64 {
            // Growing the file would raise SIGXFSZ, which ends the program.
            return None;
        }
        // By number: the C library's wrapper is younger than the oldest C library we want to load into.
        // SAFETY: the name ends in a zero byte.
        let fresh = unsafe {
            libc::syscall(
                libc::SYS_memfd_create,
                c"migm-counters".as_ptr(),
                MFD_CLOEXEC | MFD_ALLOW_SEALING,
            )
        };
        let file = Descriptor::adopt(c_int::try_from(fresh).ok()?)?;
        let number = file.number()?;
        // SAFETY: the file is ours and empty.
        let sized = unsafe { libc::ftruncate(number, libc::off_t::try_from(BYTES).ok()?) } == 0;
        // SAFETY: the file allows seals.
        let sealed = unsafe { libc::fcntl(number, libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) } == 0;
        if !sized || !sealed {
            return None;
        }
        let page = map(number, libc::MAP_SHARED)?;
        page.format();
        Some(Self {
            page,
            file: Some(file),
            fresh: true,
        })
    }
}

fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a place to write to.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

fn map(number: c_int, sharing: c_int) -> Option<&'static CounterPage> {
    // SAFETY: a mapping at an address of the kernel's choice touches nothing that exists.
    let start: *mut c_void = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            sharing,
            number,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping is as long as a page, and so is the file behind it, which is sealed against
    // shrinking; it is never undone; any bytes are a valid page, and all of its fields are atomics, as others
    // write to it.
    Some(unsafe { &*start.cast::<CounterPage>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memfd(bytes: i64, seals: c_int) -> Descriptor {
        let name = c"test".as_ptr();
        // SAFETY: the name ends in a zero byte.
        let fresh = unsafe { libc::syscall(libc::SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING) };
        let file = Descriptor::adopt(c_int::try_from(fresh).unwrap()).unwrap();
        // SAFETY: the file is the test's own.
        assert_eq!(unsafe { libc::ftruncate(file.number().unwrap(), bytes) }, 0);
        // SAFETY: as above.
        unsafe { libc::fcntl(file.number().unwrap(), libc::F_ADD_SEALS, seals) };
        file
    }

    #[test]
    fn an_own_page_passes_the_check_for_a_received_one() {
        let own = PageFile::own().unwrap();
        let index = own.page.device_index([9; 16]).unwrap();
        let seen = PageFile::received(own.file.unwrap()).unwrap();
        assert_eq!(seen.page.read()[index].uuid, [9; 16]);
    }

    #[test]
    fn a_short_unsealed_or_foreign_file_is_no_page() {
        let bytes = i64::try_from(BYTES).unwrap();
        assert!(PageFile::received(memfd(bytes - 1, libc::F_SEAL_SHRINK)).is_none());
        assert!(PageFile::received(memfd(bytes, 0)).is_none());
        assert!(
            PageFile::received(memfd(bytes, libc::F_SEAL_SHRINK)).is_none(),
            "not formatted"
        );
    }
}
