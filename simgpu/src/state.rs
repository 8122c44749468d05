//! The layout of the memory that all processes of one simulated machine share.
//!
//! ```text
//! header | lock | 64 GPUs (mode, energy meter, 16 GPU instances x 8 compute instances) | 4096 process records |
//! 512 shared segments | 2048 holds of them | 32 faults
//! ```
//!
//! Each field is an atomic that is read and written under the lock, so a torn or reordered view cannot be had; a
//! word named `live` or `used` is written last, so that a process killed half-way leaves a slot that counts as
//! free. A GPU instance lives in the slot of its id: both are functions of its size and place.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use crate::driver::Driver;
use crate::faults::FAULTS;
use crate::lock::Lock;
use crate::model::{MODELS, Model, Profile};
use crate::placement::{Placed, Rules};
use crate::process::Process;

/// The first eight bytes of a state.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"MIGMSIMG");
/// Changes with every change of the layout or of its meaning.
pub(crate) const LAYOUT: u64 = 6;
/// GPUs of one machine.
pub const GPUS: usize = 64;
/// GPU instances of one GPU: ids 0 to 14.
pub(crate) const GPU_INSTANCES: usize = 16;
/// Compute instances of one GPU instance.
pub(crate) const COMPUTE_INSTANCES: usize = 8;
/// Processes times devices that each uses.
pub(crate) const RECORDS: usize = 4096;
/// Pieces of memory that are shared between processes.
pub(crate) const SEGMENTS: usize = 512;
/// Processes times shared pieces that each holds.
pub(crate) const HOLDS: usize = 2048;
/// Stands for "the whole GPU" where an instance id is expected, as in NVML.
pub(crate) const WHOLE: u32 = u32::MAX;

/// A 32-bit field.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word32(AtomicU32);

/// A 64-bit field.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Word64(AtomicU64);

impl Word32 {
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Acquire)
    }
    /// Not moved before an earlier `set` by the compiler: what a killed process did is a prefix of its program.
    pub(crate) fn set(&self, value: u32) {
        self.0.store(value, Release);
    }
    pub(crate) fn atomic(&self) -> &AtomicU32 {
        &self.0
    }
}

impl Word64 {
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Release);
    }
    pub(crate) fn get_f64(&self) -> f64 {
        f64::from_bits(self.0.load(Relaxed))
    }
    pub(crate) fn set_f64(&self, value: f64) {
        self.set(value.to_bits());
    }
}

/// See the [module](self).
#[repr(C)]
pub(crate) struct State {
    pub(crate) magic: Word64,
    pub(crate) layout: Word64,
    /// Guards all below but the `config` locks.
    pub(crate) lock: Lock,
    /// Wall seconds per simulated second.
    pub(crate) time_scale: Word64,
    /// Driver version as text, NUL-padded.
    pub(crate) driver: [Word64; 4],
    pub(crate) gpu_count: Word32,
    /// A [`crate::guest::Guest`].
    pub(crate) guest: Word32,
    spare: Word32,
    /// Numbers the lives of instances.
    pub(crate) serials: Word32,
    /// Counts configuration changes of all GPUs; waiters sleep on it.
    pub(crate) changes: Word32,
    /// No record at or above this index was ever used.
    pub(crate) records_end: Word32,
    /// Monotonic nanoseconds of the last look for dead processes.
    pub(crate) reaped_at: Word64,
    /// A process that the state is kept for though nobody uses it: the shell that it was made for. 0 for none.
    pub(crate) keeper_pid: Word64,
    pub(crate) keeper_start: Word64,
    pub(crate) gpus: [Gpu; GPUS],
    pub(crate) records: [Record; RECORDS],
    /// No segment, and no hold, at or above these was ever used.
    pub(crate) segments_end: Word32,
    pub(crate) holds_end: Word32,
    /// Counts segments and holds, in the order in which they came.
    pub(crate) orders: Word64,
    pub(crate) segments: [Segment; SEGMENTS],
    pub(crate) holds: [Hold; HOLDS],
    pub(crate) faults: [FaultSlot; FAULTS],
}

#[repr(C)]
pub(crate) struct Gpu {
    /// Held across a change of instances or mode, time it takes included: the driver serialises these per GPU.
    pub(crate) config: Lock,
    /// Index into [`MODELS`].
    pub(crate) model: Word32,
    pub(crate) mig: Word32,
    pub(crate) mig_pending: Word32,
    /// Which of the two meters counts.
    pub(crate) meter: Word32,
    /// A fault took the GPU away.
    pub(crate) lost: Word32,
    spare: Word32,
    pub(crate) meters: [Meter; 2],
    /// Configuration changes of this GPU.
    pub(crate) changes: Word64,
    /// Per GPU instance id and compute instance id a bit: MIG devices destroyed since the last creation, whose
    /// indices stay empty until then.
    pub(crate) holes: [Word64; 2],
    pub(crate) uuid: [Word64; 2],
    pub(crate) instances: [GpuInstance; GPU_INSTANCES],
}

/// Energy up to a moment.
#[repr(C)]
pub(crate) struct Meter {
    /// Millijoules of simulated time, a float.
    pub(crate) millijoules: Word64,
    /// Wall clock, monotonic nanoseconds.
    pub(crate) at: Word64,
}

#[repr(C)]
pub(crate) struct GpuInstance {
    pub(crate) live: Word32,
    /// Index into the model's profiles.
    pub(crate) profile: Word32,
    pub(crate) start: Word32,
    pub(crate) serial: Word32,
    pub(crate) instances: [ComputeInstance; COMPUTE_INSTANCES],
}

#[repr(C)]
pub(crate) struct ComputeInstance {
    pub(crate) live: Word32,
    /// NVML's number of the profile.
    pub(crate) profile: Word32,
    pub(crate) start: Word32,
    pub(crate) size: Word32,
    /// The graphics engine it got.
    pub(crate) syspipe: Word32,
    pub(crate) serial: Word32,
}

/// A process on a device.
#[repr(C)]
pub(crate) struct Record {
    pub(crate) used: Word32,
    pub(crate) pid: Word32,
    pub(crate) start: Word64,
    pub(crate) gpu: Word32,
    /// [`WHOLE`] for the whole GPU.
    pub(crate) gi: Word32,
    pub(crate) ci: Word32,
    pub(crate) copies: Word32,
    pub(crate) bytes: Word64,
    /// Multiprocessors wanted by its running kernels, summed.
    pub(crate) sms: Word64,
}

/// Memory that several processes can hold; see [`crate::segment`].
#[repr(C)]
pub(crate) struct Segment {
    pub(crate) used: Word32,
    pub(crate) gpu: Word32,
    pub(crate) gi: Word32,
    spare: Word32,
    pub(crate) id: Word64,
    pub(crate) bytes: Word64,
}

/// A process that holds a segment.
#[repr(C)]
pub(crate) struct Hold {
    pub(crate) used: Word32,
    pub(crate) pid: Word32,
    pub(crate) start: Word64,
    pub(crate) segment: Word64,
    pub(crate) order: Word64,
    pub(crate) ci: Word32,
    spare: Word32,
}

/// A fault to come; see [`crate::faults`].
#[repr(C)]
pub(crate) struct FaultSlot {
    pub(crate) used: Word32,
    /// [`WHOLE`] for any GPU.
    pub(crate) gpu: Word32,
    /// Kinds of calls, as bits; none for a fault at a time.
    pub(crate) calls: Word32,
    pub(crate) effect: Word32,
    /// Number of the first call that it strikes, or monotonic nanoseconds.
    pub(crate) first: Word64,
    /// Number of the last.
    pub(crate) last: Word64,
    /// Such calls so far.
    pub(crate) seen: Word64,
    /// NVML result, or nanoseconds.
    pub(crate) value: Word64,
}

impl Hold {
    pub(crate) fn process(&self) -> Process {
        Process {
            pid: self.pid.get(),
            start: self.start.get(),
        }
    }
}

impl Record {
    pub(crate) fn process(&self) -> Process {
        Process {
            pid: self.pid.get(),
            start: self.start.get(),
        }
    }

    pub(crate) fn is_on(&self, gpu: u32, gi: u32) -> bool {
        self.gpu.get() == gpu && self.gi.get() == gi
    }
}

impl Gpu {
    pub(crate) fn model(&self) -> &'static Model {
        // A model index of a newer build is refused by the layout number.
        &MODELS[self.model.get() as usize % MODELS.len()]
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&self.uuid[0].get().to_le_bytes());
        uuid[8..].copy_from_slice(&self.uuid[1].get().to_le_bytes());
        uuid
    }

    pub(crate) fn set_uuid(&self, uuid: [u8; 16]) {
        let (words, _) = uuid.as_chunks::<8>();
        for (field, bytes) in self.uuid.iter().zip(words) {
            field.set(u64::from_le_bytes(*bytes));
        }
    }

    /// The living GPU instances with their ids.
    pub(crate) fn gpu_instances(&self) -> impl Iterator<Item = (u32, &GpuInstance)> {
        (0_u32..)
            .zip(&self.instances)
            .filter(|(_, instance)| instance.live.get() != 0)
    }

    pub(crate) fn gpu_instance(&self, gi: u32) -> Option<&GpuInstance> {
        self.instances
            .get(gi as usize)
            .filter(|instance| instance.live.get() != 0)
    }

    /// What stands where.
    pub(crate) fn layout(&self) -> Vec<Placed> {
        self.gpu_instances()
            .map(|(_, instance)| instance.placed())
            .collect()
    }
}

impl GpuInstance {
    pub(crate) fn placed(&self) -> Placed {
        Placed {
            profile: self.profile.get() as usize,
            start: self.start.get(),
        }
    }

    pub(crate) fn profile(&self, model: &'static Model) -> &'static Profile {
        &model.profiles[self.profile.get() as usize % model.profiles.len()]
    }

    pub(crate) fn compute_instances(&self) -> impl Iterator<Item = (u32, &ComputeInstance)> {
        (0_u32..)
            .zip(&self.instances)
            .filter(|(_, instance)| instance.live.get() != 0)
    }

    pub(crate) fn compute_instance(&self, ci: u32) -> Option<&ComputeInstance> {
        self.instances
            .get(ci as usize)
            .filter(|instance| instance.live.get() != 0)
    }
}

impl ComputeInstance {
    /// Multiprocessors. One that spans its GPU instance has them all; a smaller one has those of as many 1g.
    pub(crate) fn sms(&self, model: &'static Model, gi: &GpuInstance) -> u32 {
        compute_sms(model, gi.profile(model), self.size.get())
    }
}

/// Multiprocessors of a compute instance of `slices` slices in a GPU instance of this profile.
pub(crate) fn compute_sms(model: &'static Model, gi: &Profile, slices: u32) -> u32 {
    if slices >= gi.compute {
        return gi.sms;
    }
    let one = model
        .profiles
        .iter()
        .find(|profile| profile.compute == 1)
        .map_or(0, |profile| profile.sms);
    one * slices
}

impl State {
    /// The process that the state is kept for.
    pub(crate) fn keeper(&self) -> Option<Process> {
        let pid = u32::try_from(self.keeper_pid.get())
            .ok()
            .filter(|pid| *pid != 0)?;
        Some(Process {
            pid,
            start: self.keeper_start.get(),
        })
    }

    pub(crate) fn gpu(&self, index: u32) -> Option<&Gpu> {
        self.gpus[..(self.gpu_count.get() as usize).min(GPUS)].get(index as usize)
    }

    pub(crate) fn gpus(&self) -> impl Iterator<Item = (u32, &Gpu)> {
        (0..).zip(&self.gpus[..(self.gpu_count.get() as usize).min(GPUS)])
    }

    /// Records in use, those of the dead included until they are reaped.
    pub(crate) fn used_records(&self) -> impl Iterator<Item = &Record> {
        let end = (self.records_end.get() as usize).min(RECORDS);
        self.records[..end].iter().filter(|record| record.used.get() != 0)
    }

    pub(crate) fn driver(&self) -> String {
        let bytes: Vec<u8> = self
            .driver
            .iter()
            .flat_map(|word| word.get().to_le_bytes())
            .collect();
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
    }

    pub(crate) fn set_driver(&self, driver: &str) {
        let mut bytes = [0; 32];
        let length = driver.len().min(31);
        bytes[..length].copy_from_slice(&driver.as_bytes()[..length]);
        let (words, _) = bytes.as_chunks::<8>();
        for (field, word) in self.driver.iter().zip(words) {
            field.set(u64::from_le_bytes(*word));
        }
    }

    pub(crate) fn rules(&self, gpu: &Gpu) -> Rules {
        Rules {
            model: gpu.model(),
            driver: Driver::of(&self.driver()).unwrap_or(Driver(0)),
        }
    }

    pub(crate) fn next_serial(&self) -> u32 {
        let serial = self.serials.get().wrapping_add(1);
        self.serials.set(serial);
        serial
    }

    /// Bytes held on a GPU's instance, or on the whole GPU with [`WHOLE`].
    pub(crate) fn bytes_used(&self, gpu: u32, gi: u32) -> u64 {
        let own = self.used_records().filter(|record| record.is_on(gpu, gi));
        let shared = self
            .live_segments()
            .filter(|segment| segment.gpu.get() == gpu && segment.gi.get() == gi);
        own.map(|record| record.bytes.get()).sum::<u64>()
            + shared.map(|segment| segment.bytes.get()).sum::<u64>()
    }
}

/// The machine's monotonic clock, nanoseconds. One clock for all processes.
pub(crate) fn monotonic() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .unwrap_or_else(|_| nix::sys::time::TimeSpec::new(0, 0));
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_pinned() {
        assert_eq!(size_of::<Record>(), 48);
        assert_eq!((size_of::<Segment>(), size_of::<Hold>()), (32, 40));
        assert_eq!(size_of::<ComputeInstance>(), 24);
        assert_eq!(size_of::<GpuInstance>(), 16 + 8 * 24);
        assert_eq!(std::mem::offset_of!(State, lock), 16);
        assert_eq!(size_of::<FaultSlot>(), 48);
        assert_eq!(size_of::<Gpu>(), 40 + 24 + 2 * 16 + 8 + 16 + 16 + 16 * 208);
    }
}
