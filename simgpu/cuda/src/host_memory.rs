//! Host memory that the driver knows of: pinned, registered, and managed.
//!
//! Managed memory is host memory here: the program reads and writes it, and nothing is charged to the slice. On real
//! hardware pages move to the device when a kernel touches them; kernels do not run here.

use std::collections::BTreeMap;

use crate::code::{Answer, Code};
use crate::gate::Host;
use crate::handle::Handle;

/// How a region came to be known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum HostKind {
    /// `cuMemHostAlloc`, `cuMemAllocHost`
    Pinned,
    /// `cuMemHostRegister`: the program's own memory.
    Registered,
    /// `cuMemAllocManaged`
    Managed,
}

/// One region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostRegion {
    pub(crate) bytes: usize,
    pub(crate) kind: HostKind,
    pub(crate) flags: u32,
    pub(crate) context: Handle,
    pub(crate) device: usize,
}

/// All regions by their start.
#[derive(Debug, Default)]
pub(crate) struct HostMemory {
    regions: BTreeMap<u64, HostRegion>,
}

impl HostMemory {
    /// Maps fresh zeroed pages; answers the address.
    pub(crate) fn allocate(&mut self, region: HostRegion) -> Answer<u64> {
        if region.bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: an anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let pages = unsafe { libc::mmap(std::ptr::null_mut(), region.bytes, protection, flags, -1, 0) };
        if pages == libc::MAP_FAILED {
            return Err(Code::OUT_OF_MEMORY);
        }
        let address = Host(pages).address();
        self.regions.insert(address, region);
        Ok(address)
    }

    /// Frees what `allocate` made with this kind.
    pub(crate) fn free(&mut self, address: u64, kind: HostKind) -> Answer {
        let region = self.regions.get(&address).filter(|region| region.kind == kind);
        let bytes = region.ok_or(Code::INVALID_VALUE)?.bytes;
        self.regions.remove(&address);
        unmap(address, bytes);
        Ok(())
    }

    /// Notes memory of the program's own.
    pub(crate) fn register(&mut self, address: u64, region: HostRegion) -> Answer {
        let end = address
            .checked_add(region.bytes as u64)
            .ok_or(Code::INVALID_VALUE)?;
        if address == 0 || region.bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let before = self.regions.range(..end).next_back();
        if before.is_some_and(|(&start, other)| start + other.bytes as u64 > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.regions.insert(address, region);
        Ok(())
    }

    pub(crate) fn unregister(&mut self, address: u64) -> Answer {
        match self.regions.get(&address) {
            Some(region) if region.kind == HostKind::Registered => {
                self.regions.remove(&address);
                Ok(())
            }
            Some(_) => Err(Code::INVALID_VALUE),
            None => Err(Code::HOST_MEMORY_NOT_REGISTERED),
        }
    }

    /// The region that an address is in, and where that starts.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, &HostRegion)> {
        let (&start, region) = self.regions.range(..=address).next_back()?;
        (address - start < region.bytes as u64).then_some((start, region))
    }

    /// Frees or forgets all regions of a context.
    pub(crate) fn remove_context(&mut self, context: Handle) {
        self.regions.retain(|&address, region| {
            if region.context == context && region.kind != HostKind::Registered {
                unmap(address, region.bytes);
            }
            region.context != context
        });
    }
}

fn unmap(address: u64, bytes: usize) {
    // SAFETY: `allocate` mapped exactly these pages, and the program has given them up by the call that came here.
    unsafe { libc::munmap(Host::from_address(address).0, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(bytes: usize, kind: HostKind) -> HostRegion {
        HostRegion {
            bytes,
            kind,
            flags: 0,
            context: 1,
            device: 0,
        }
    }

    #[test]
    fn each_kind_is_freed_by_its_own_call_once() {
        let mut host = HostMemory::default();
        let pinned = host.allocate(region(100, HostKind::Pinned)).unwrap();
        Host::from_address(pinned).fill(7, 100);
        assert_eq!(host.free(pinned, HostKind::Managed), Err(Code::INVALID_VALUE));
        assert_eq!(host.unregister(pinned), Err(Code::INVALID_VALUE));
        assert_eq!(host.free(pinned + 1, HostKind::Pinned), Err(Code::INVALID_VALUE));
        assert_eq!(host.free(pinned, HostKind::Pinned), Ok(()));
        assert_eq!(host.free(pinned, HostKind::Pinned), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn registering_twice_or_over_an_edge_is_refused() {
        let mut host = HostMemory::default();
        assert_eq!(
            host.register(0x1000, region(0x1000, HostKind::Registered)),
            Ok(())
        );
        let again = region(0x2000, HostKind::Registered);
        assert_eq!(
            host.register(0x1000, again),
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED)
        );
        assert_eq!(
            host.register(0x1fff, again),
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED)
        );
        assert_eq!(
            host.register(0x0800, again),
            Err(Code::HOST_MEMORY_ALREADY_REGISTERED)
        );
        assert_eq!(host.register(0x2000, again), Ok(()));
        assert_eq!(host.unregister(0x1800), Err(Code::HOST_MEMORY_NOT_REGISTERED));
        assert_eq!(host.unregister(0x1000), Ok(()));
    }
}
