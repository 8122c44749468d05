//! The job's counter page: a sealed memfd, made by the runner and mapped for as long as it lives.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::ptr::NonNull;

use migm_shared::page::{CounterPage, file_name as page_name};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::control::{Figures, Unmet};

const SIZE: NonZeroUsize = match NonZeroUsize::new(size_of::<CounterPage>()) {
    Some(size) => size,
    None => panic!("a counter page has a size"),
};

/// See the [module](self).
#[derive(Debug)]
pub struct JobPage {
    file: File,
    page: NonNull<CounterPage>,
}

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
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at a place of the kernel's choice touches no other memory.
        let mapped = unsafe { mmap(None, SIZE, access, MapFlags::MAP_SHARED, &file, 0) }?;
        let page = Self {
            file,
            page: mapped.cast(),
        };
        page.format();
        Ok(page)
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
        // SAFETY: the mapping was made in `create` with this size, and no borrow outlives `self`.
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
}
