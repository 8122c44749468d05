//! The job's counter page: a sealed memfd, made by the runner, and mapped by whoever is handed it.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;

use migm_shared::page::{CounterPage, DEVICES, file_name as page_name};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::control::{Figures, Unmet};

const SIZE: NonZeroUsize = match NonZeroUsize::new(size_of::<CounterPage>()) {
    Some(size) => size,
    None => panic!("a counter page has a size"),
};

/// The descriptor is no counter page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Another size.
    #[error("counter page has {found} bytes instead of {SIZE}")]
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
    System(#[from] io::Error),
}

/// See the [module](self).
#[derive(Debug)]
pub struct JobPage {
    file: File,
    page: NonNull<CounterPage>,
}

// SAFETY: the page consists of atomics alone, and the mapping lives as long as this value.
unsafe impl Send for JobPage {}
// SAFETY: as above.
unsafe impl Sync for JobPage {}

impl JobPage {
    /// Makes an empty page, named after the job's nonce.
    ///
    /// # Errors
    /// The kernel has no memory or no memfd for us.
    pub fn create(nonce: u64) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(page_name(nonce).as_str(), flags)?);
        file.set_len(SIZE.get() as u64)?;
        // A peer that maps the page would die of SIGBUS if another could cut it short.
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let page = Self::mapped(file)?;
        page.format();
        Ok(page)
    }

    /// Maps a page of another process after a check that it is one, and that it cannot shrink.
    ///
    /// # Errors
    /// It is none, or the system refused.
    pub fn map(descriptor: OwnedFd) -> Result<Self, PageError> {
        let seals = fcntl(descriptor.as_fd(), FcntlArg::F_GET_SEALS).map_err(io::Error::from)?;
        if !SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK) {
            return Err(PageError::NotSealed);
        }
        // The size is asked after the seal: from then on it only grows.
        let file = File::from(descriptor);
        let found = file.metadata()?.len();
        if found != SIZE.get() as u64 {
            return Err(PageError::Size { found });
        }
        let page = Self::mapped(file)?;
        if page.is_formatted() {
            Ok(page)
        } else {
            Err(PageError::Layout)
        }
    }

    /// `file` is of [`SIZE`] and sealed against shrinking.
    fn mapped(file: File) -> io::Result<Self> {
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at a place of the kernel's choice touches no other memory.
        let mapped = unsafe { mmap(None, SIZE, access, MapFlags::MAP_SHARED, &file, 0) }?;
        let page = mapped.cast();
        Ok(Self { file, page })
    }

    /// A descriptor to hand on.
    ///
    /// # Errors
    /// This process has too many open.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Reserved bytes over all devices that the job has used: those of earlier attempts hold none.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        // The totals alone: a reading of all counts walks every slot of the page, and this is asked for often.
        (0..DEVICES).map(|device| self.reserved(device).0).sum()
    }

    /// Where this user's other processes find the page, for as long as this process lives. It needs no
    /// supervisor, so a job that starts its work while that is away is counted like any other.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The job's figures over all attempts and devices. A relaunched job meets a new device each time, so
    /// the peak is the largest of the devices' peaks.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let readings = self.read();
        Figures {
            allocated: readings.iter().filter_map(|reading| reading.allocated_peak).max(),
            reserved: readings
                .iter()
                .map(|reading| reading.reserved_peak)
                .max()
                .unwrap_or(0),
            device: None,
            allocations: readings.iter().map(|reading| reading.allocations).sum(),
            frees: readings.iter().map(|reading| reading.frees).sum(),
        }
    }

    /// What an attempt asked for in vain, if that was not made good.
    #[must_use]
    pub fn unmet_of(&self, attempt: u32) -> Option<Unmet> {
        self.unmet(attempt).map(|unmet| Unmet {
            asked: unmet.asked,
            in_use: unmet.in_use,
        })
    }

    /// Takes what the dead left out of the totals. To be called when no process of the job lives.
    pub fn clear_dead(&self) {
        for occupant in self.occupants() {
            self.leave(occupant);
        }
    }
}

impl Deref for JobPage {
    type Target = CounterPage;

    fn deref(&self) -> &CounterPage {
        // SAFETY: the mapping is `SIZE` bytes at a page boundary, lives until `drop`, and the file cannot
        // shrink under it; all of a counter page is atomics, for which every bit pattern is a value.
        unsafe { self.page.as_ref() }
    }
}

impl AsFd for JobPage {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for JobPage {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `mapped` with this size, and no borrow outlives `self`.
        let unmapped = unsafe { munmap(self.page.cast(), SIZE.get()) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::page::Class;
    use nix::unistd::ftruncate;

    #[test]
    fn the_page_is_formatted_and_cannot_shrink() {
        let page = JobPage::create(1).unwrap();
        assert!(page.is_formatted());
        assert!(ftruncate(&page.file, 4096).is_err());
    }

    #[test]
    fn figures_outlive_the_process_and_the_largest_device_counts() {
        let page = JobPage::create(1).unwrap();
        for (device, bytes) in [(1_u8, 5_000), (2, 9_000)] {
            let index = page.device_index([device; 16]).unwrap();
            let slot = page.join(100, 1, u32::from(device)).unwrap();
            page.add(slot, index, Class::Device, bytes);
            page.refuse(slot, index, 70);
            page.clear_dead();
        }
        let figures = page.figures();
        assert_eq!(
            (figures.reserved, figures.allocations, figures.frees),
            (9_000, 2, 0)
        );
        assert_eq!(page.read()[1].reserved, 0);
        let unmet = page.unmet_of(2);
        assert_eq!(
            unmet,
            Some(Unmet {
                asked: 70,
                in_use: 9_000
            })
        );
        page.next_attempt();
        assert_eq!(page.unmet_of(2), None);
    }

    /// A page as a runner makes it, not formatted yet.
    fn fresh(sealed: bool) -> OwnedFd {
        let memfd = memfd_create("page", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).unwrap();
        let file = File::from(memfd);
        file.set_len(SIZE.get() as u64).unwrap();
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
        assert!(matches!(JobPage::map(fresh(true)), Err(PageError::Layout)));
        let page = JobPage::create(1).unwrap();
        let device = page.device_index([1; 16]).unwrap();
        let slot = page.join(1, 1, 1).unwrap();
        page.add(slot, device, Class::Device, 42);
        let mapped = JobPage::map(page.descriptor().unwrap()).unwrap();
        assert_eq!(mapped.reserved_bytes(), 42);
    }
}
