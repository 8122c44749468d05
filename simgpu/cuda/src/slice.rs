//! A process's place on a device, as the timeline and the memory of this crate use it.

use simgpu::machine::{CopyMark, KernelMark, Tenant};

use crate::memory::Allocation;
use crate::player::HostCall;
use crate::timeline::{Hardware, Load};

/// This process on one slice. The slice has everything back when the last reference goes.
#[derive(Debug)]
pub(crate) struct Slice(pub(crate) Tenant);

/// Memory freed in stream order: it goes back when the stream gets there.
#[derive(Debug)]
pub(crate) struct GivenBack(pub(crate) Allocation);

/// A load that runs on the slice.
#[derive(Debug)]
pub(crate) enum Mark {
    Kernel(KernelMark),
    Copy(CopyMark),
}

impl Hardware for Slice {
    type Mark = Mark;
    type Effect = GivenBack;
    type Call = HostCall;

    fn begin(&self, load: Load) -> Mark {
        match load {
            Load::Kernel { sms } => Mark::Kernel(self.0.kernel_begin(sms)),
            Load::Copy => Mark::Copy(self.0.copy_begin()),
        }
    }

    fn end(&self, mark: Mark) {
        match mark {
            Mark::Kernel(mark) => self.0.kernel_end(mark),
            Mark::Copy(mark) => self.0.copy_end(mark),
        }
    }

    fn rate(&self, load: Load) -> f64 {
        match load {
            Load::Kernel { sms } => self.0.sm_share(sms),
            Load::Copy => self.0.copy_bandwidth(),
        }
    }
}
