//! A job's counter page, mapped here: exact figures even after its processes are gone.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use migm_shared::page::{CounterPage, DEVICES};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The descriptor is no counter page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Another size.
    #[error("counter page has {found} bytes instead of {}", size_of::<CounterPage>())]
    Size {
        /// Its size.
        found: u64,
    },
    /// It can shrink under us, and reading it would end us.
    #[error("counter page is not sealed against shrinking")]
    NotSealed,
    /// No page of this layout.
    #[error("counter page is of another layout")]
    Layout,
    /// The system refused.
    #[error("counter page cannot be mapped: {0}")]
    System(#[from] std::io::Error),
}

/// A mapped page with its descriptor, which processes of the job are given.
#[derive(Debug)]
pub struct JobPage {
    mapped: NonNull<CounterPage>,
    descriptor: OwnedFd,
}

// SAFETY: the page consists of atomics alone, and the mapping lives as long as this value.
unsafe impl Send for JobPage {}
// SAFETY: as above.
unsafe impl Sync for JobPage {}

impl JobPage {
    /// Maps a page after a check that it is one, and that it cannot shrink.
    ///
    /// # Errors
    /// It is none, or the system refused.
    pub fn map(descriptor: OwnedFd) -> Result<Self, PageError> {
        let seals = fcntl(descriptor.as_fd(), FcntlArg::F_GET_SEALS).map_err(std::io::Error::from)?;
        if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(PageError::NotSealed);
        }
        // The size is asked after the seal: from then on it only grows.
        let file = std::fs::File::from(descriptor);
        let found = file.metadata()?.len();
        let descriptor = OwnedFd::from(file);
        if found != size_of::<CounterPage>() as u64 {
            return Err(PageError::Size { found });
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_of::<CounterPage>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }
        .map_err(std::io::Error::from)?;
        let mapped = NonNull::new(address.cast()).ok_or_else(|| std::io::Error::other("mapped at zero"))?;
        let page = Self { mapped, descriptor };
        if page.counters().is_formatted() {
            Ok(page)
        } else {
            Err(PageError::Layout)
        }
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> &CounterPage {
        // SAFETY: page-aligned, of the right size and sealed against shrinking; any bytes are valid atomics.
        unsafe { self.mapped.as_ref() }
    }

    /// A descriptor to hand on.
    ///
    /// # Errors
    /// This process has too many open.
    pub fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.descriptor.try_clone()
    }

    /// Reserved bytes over all devices that the job has used: those of earlier attempts hold none.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        // The totals alone: a reading of all counts walks every slot of the page, and this is asked for often.
        let counters = self.counters();
        (0..DEVICES).map(|device| counters.reserved(device).0).sum()
    }
}

impl Drop for JobPage {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and nothing borrows from it any more.
        let _ = unsafe { munmap(self.mapped.as_ptr().cast(), size_of::<CounterPage>()) };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use std::fs::File;

    /// A page as a runner makes it.
    pub fn fresh(sealed: bool) -> OwnedFd {
        let memfd = memfd_create("page", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        let file = File::from(memfd);
        file.set_len(size_of::<CounterPage>() as u64).unwrap();
        if sealed {
            fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        }
        file.into()
    }

    #[test]
    fn a_page_that_could_shrink_is_refused() {
        assert!(matches!(JobPage::map(fresh(false)), Err(PageError::NotSealed)));
    }

    #[test]
    fn a_plain_file_is_no_page() {
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        assert!(JobPage::map(file).is_err());
        let memfd = memfd_create("page", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        fcntl(&memfd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        assert!(matches!(JobPage::map(memfd), Err(PageError::Size { found: 0 })));
    }

    #[test]
    fn an_unformatted_page_is_refused_and_a_formatted_one_is_read() {
        let memfd = fresh(true);
        let again = memfd.try_clone().unwrap();
        assert!(matches!(JobPage::map(memfd), Err(PageError::Layout)));
        // SAFETY: a fresh mapping of the test's own memfd.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                size_of::<CounterPage>(),
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &again,
                0,
            )
        }
        .unwrap();
        // SAFETY: mapped just above with this size.
        let page = unsafe { &*address.cast::<CounterPage>() };
        page.format();
        let device = page.device_index([1; 16]).unwrap();
        let slot = page.join(1, 1, 1).unwrap();
        page.add(slot, device, migm_shared::page::Class::Device, 42);
        let mapped = JobPage::map(again).unwrap();
        assert_eq!(mapped.reserved(), 42);
    }
}
