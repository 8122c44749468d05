//! MIG: mode, GPU instances and compute instances, as the driver changes them.
//!
//! One change, told:
//! 1. It takes the GPU's configuration lock: the driver serialises changes per GPU.
//! 2. It checks under the state's lock, after asking whether a fault strikes it ([`crate::faults`]). A refusal ends
//!    it here.
//! 3. It takes its time with the state's lock free, so that memory accounting goes on.
//! 4. It checks again, as a process may have come meanwhile, and commits with one last store. A process killed
//!    before that has changed nothing.
//! 5. It wakes whoever waits for events.

mod compute_instances;
mod events;
mod gpu_instances;

use std::time::Duration;

use crate::compute::ComputeProfile;
use crate::device_files::DeviceFile;
use crate::faults::Call;
use crate::guest::Guest;
use crate::machine::{DeviceRef, Machine};
use crate::model::{Architecture, Profile};
use crate::state::{Gpu, GpuInstance, State};

/// How long things take, simulated seconds. Published means: creating 43 ms and deleting 109 ms for an instance
/// with its compute instance (SYSTOR'24, A100); a refused creation 30 ms; a mode change with reset 8 s.
pub mod seconds {
    /// Creating a GPU instance.
    pub const CREATE_GPU_INSTANCE: f64 = 0.040;
    /// Creating a compute instance in it.
    pub const CREATE_COMPUTE_INSTANCE: f64 = 0.030;
    /// Destroying a GPU instance.
    pub const DESTROY_GPU_INSTANCE: f64 = 0.080;
    /// Destroying a compute instance.
    pub const DESTROY_COMPUTE_INSTANCE: f64 = 0.030;
    pub(super) const REFUSED: f64 = 0.030;
    pub(super) const RESET: f64 = 8.0;
}

/// Why the driver says no; each is an NVML result.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// No such profile, an illegal place, or a handle of something that is gone.
    #[error("invalid argument")]
    InvalidArgument,
    /// MIG is off, or the GPU cannot do it.
    #[error("not supported")]
    NotSupported,
    /// Compute instances or processes hold it.
    #[error("in use")]
    InUse,
    /// No free place, the given place is taken, or the count is exhausted: the driver does not tell them apart.
    #[error("insufficient resources")]
    InsufficientResources,
    /// The GPU does not answer any more.
    #[error("the GPU is lost")]
    Lost,
    /// A fault was set that refuses this call with this NVML result.
    #[error("refused by a fault with NVML result {0}")]
    Injected(u32),
}

/// What became of an accepted mode change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Activation {
    /// The mode is in force.
    Done,
    /// It waits for a GPU reset.
    ResetRequired,
    /// A process uses the GPU.
    InUse,
}

/// One life of a GPU instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash)]
pub struct GpuInstanceRef {
    /// GPU index.
    pub gpu: u32,
    /// GPU instance id.
    pub gi: u32,
    /// Number of this life.
    pub serial: u32,
}

/// A GPU instance.
#[derive(Clone, Copy, Debug)]
pub struct GpuInstanceInfo {
    /// Which.
    pub reference: GpuInstanceRef,
    /// Its profile.
    pub profile: &'static Profile,
    /// First unit of the grid.
    pub start: u32,
}

/// A compute instance, and so a MIG device.
#[derive(Clone, Copy, Debug)]
pub struct ComputeInstanceInfo {
    /// Which.
    pub device: DeviceRef,
    /// Its GPU instance.
    pub parent: GpuInstanceInfo,
    /// Its profile.
    pub profile: ComputeProfile,
    /// First compute slice in the GPU instance.
    pub start: u32,
    /// UUID of the MIG device.
    pub uuid: [u8; 16],
}

impl Activation {
    /// What a mode change became that a fault refused with this NVML result; `None` where the result is of the call.
    fn put_off(code: u32) -> Option<Self> {
        match code {
            16 => Some(Self::ResetRequired),
            19 => Some(Self::InUse),
            _ => None,
        }
    }
}

impl State {
    /// A GPU that is there.
    fn answering(&self, index: u32) -> Result<&Gpu, Refusal> {
        let gpu = self.gpu(index).ok_or(Refusal::InvalidArgument)?;
        if self.is_lost(index) {
            Err(Refusal::Lost)
        } else {
            Ok(gpu)
        }
    }

    fn mig_gpu(&self, index: u32) -> Result<&Gpu, Refusal> {
        let gpu = self.answering(index)?;
        if gpu.mig.get() == 0 {
            Err(Refusal::NotSupported)
        } else {
            Ok(gpu)
        }
    }

    fn living(&self, reference: GpuInstanceRef) -> Result<(&Gpu, &GpuInstance), Refusal> {
        let gpu = self.mig_gpu(reference.gpu)?;
        let instance = gpu
            .gpu_instance(reference.gi)
            .filter(|instance| instance.serial.get() == reference.serial);
        instance
            .map(|instance| (gpu, instance))
            .ok_or(Refusal::InvalidArgument)
    }
}

impl Machine {
    /// Runs one change as the [module](self) tells.
    fn configure<P, T>(
        &self,
        index: u32,
        call: Option<Call>,
        seconds: f64,
        check: impl Fn(&State, &Gpu) -> Result<P, Refusal>,
        commit: impl FnOnce(&State, &Gpu, P) -> T,
    ) -> Result<T, Refusal> {
        let gpu = self.mapping().gpu(index).ok_or(Refusal::InvalidArgument)?;
        let _config = gpu.config.lock();
        let (strike, first) = {
            let state = self.mapping().locked();
            let strike = call.map(|call| state.strike(index, call)).unwrap_or_default();
            let first = match (state.is_lost(index), strike.refused) {
                (true, _) => Err(Refusal::Lost),
                (false, Some(code)) => Err(Refusal::Injected(code)),
                (false, None) => check(&state, gpu).map(drop),
            };
            (strike, first)
        };
        let delay = strike.delay.as_secs_f64();
        match first {
            Err(Refusal::InsufficientResources | Refusal::Injected(_)) => self.take(seconds::REFUSED + delay),
            Err(_) => {}
            Ok(()) => self.take(seconds + delay),
        }
        first?;
        let state = self.mapping().locked();
        state.answering(index)?;
        let plan = check(&state, gpu)?;
        // Counted first: who is killed between the two leaves an event without a change, not the reverse. Nobody
        // can look before the lock is free.
        gpu.changes.set(gpu.changes.get() + 1);
        state.changes.set(state.changes.get().wrapping_add(1));
        let done = commit(&state, gpu, plan);
        drop(state);
        self.wake_waiters();
        Ok(done)
    }

    /// Whether any process uses or holds the GPU.
    fn is_busy(&self, state: &State, gpu: u32) -> bool {
        state.is_used(gpu, None, None) || self.is_held(DeviceFile::Gpu(gpu))
    }

    fn take(&self, seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64(seconds * self.time_scale()));
    }

    /// Whether MIG is on, and whether it will be after the next reset.
    pub fn mig_mode(&self, gpu: u32) -> Result<(bool, bool), Refusal> {
        let state = self.mapping().locked();
        let gpu = state.answering(gpu)?;
        Ok((gpu.mig.get() != 0, gpu.mig_pending.get() != 0))
    }

    /// Asks for a mode. Refused with [`Refusal::InUse`] while GPU instances exist. A process on the GPU puts it
    /// off; so do Ampere, until [`reset`](Self::reset), and a guest, until [`reload`](Self::reload).
    pub fn set_mig_mode(&self, gpu: u32, on: bool) -> Result<Activation, Refusal> {
        let wanted = u32::from(on);
        let check = |state: &State, gpu: &Gpu| {
            if state.guest() == Guest::Vgpu {
                return Err(Refusal::NotSupported);
            }
            let refused = gpu.mig.get() != wanted && gpu.gpu_instances().next().is_some();
            if refused { Err(Refusal::InUse) } else { Ok(()) }
        };
        let changed = self.configure(gpu, Some(Call::SetMode), 0.0, check, |state, changed, ()| {
            changed.mig_pending.set(wanted);
            if changed.mig.get() == wanted {
                Activation::Done
            } else if self.is_busy(state, gpu) {
                Activation::InUse
            } else if state.guest() == Guest::Passthrough
                || changed.model().architecture == Architecture::Ampere
            {
                Activation::ResetRequired
            } else {
                changed.mig.set(wanted);
                Activation::Done
            }
        });
        let Err(Refusal::Injected(code)) = changed else {
            return changed;
        };
        let put_off = Activation::put_off(code).ok_or(Refusal::Injected(code))?;
        self.configure(gpu, None, 0.0, check, |_, changed, ()| {
            changed.mig_pending.set(wanted);
            put_off
        })
    }

    /// Resets a GPU: a pending mode comes into force, all instances go. Refused while a process uses it.
    pub fn reset(&self, gpu: u32) -> Result<(), Refusal> {
        let idle = |state: &State, _: &Gpu| {
            if state.guest() != Guest::No {
                Err(Refusal::NotSupported)
            } else if self.is_busy(state, gpu) {
                Err(Refusal::InUse)
            } else {
                Ok(())
            }
        };
        self.configure(gpu, None, seconds::RESET, idle, |_, gpu, ()| {
            gpu.clear_instances();
            gpu.mig.set(gpu.mig_pending.get());
        })
    }

    /// Unloads the driver's modules and loads them again, as a reboot does: all instances of all GPUs go. The mode of an
    /// Ampere is written in the board, that of a guest's GPU is kept by the host, and a pending one comes into force; other
    /// GPUs forget theirs. Refused while a
    /// process uses any GPU.
    pub fn reload(&self) -> Result<(), Refusal> {
        let count = self.gpu_count();
        let idle = |state: &State, _: &Gpu| {
            if (0..count).any(|gpu| self.is_busy(state, gpu)) {
                Err(Refusal::InUse)
            } else {
                Ok(())
            }
        };
        for gpu in 0..count {
            // The modules are loaded once for all GPUs.
            let seconds = if gpu == 0 { seconds::RESET } else { 0.0 };
            self.configure(gpu, None, seconds, idle, |state, gpu, ()| {
                gpu.clear_instances();
                let forgets = gpu.model().architecture != Architecture::Ampere;
                if forgets && state.guest() == Guest::No {
                    gpu.mig_pending.set(0);
                }
                gpu.mig.set(gpu.mig_pending.get());
            })?;
        }
        Ok(())
    }
}

impl Gpu {
    fn clear_instances(&self) {
        for (_, instance) in self.gpu_instances() {
            instance
                .compute_instances()
                .for_each(|(_, compute)| compute.live.set(0));
            instance.live.set(0);
        }
        self.close_holes();
    }
}
