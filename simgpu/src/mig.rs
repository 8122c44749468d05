//! MIG: mode, GPU instances and compute instances, as the driver changes them.
//!
//! One change, told:
//! 1. It takes the GPU's configuration lock: the driver serialises changes per GPU.
//! 2. It checks under the state's lock. A refusal ends it here.
//! 3. It takes its time with the state's lock free, so that memory accounting goes on.
//! 4. It checks again, as a process may have come meanwhile, and commits with one last store. A process killed
//!    before that has changed nothing.
//! 5. It counts the change and wakes whoever waits for events.

use std::time::{Duration, Instant};

use crate::compute::{ComputeProfile, compute_profiles, free_start, remaining};
use crate::identity::mig_uuid;
use crate::machine::{DeviceRef, Machine, MemoryInfo, SliceRef};
use crate::model::{Architecture, Model, Profile};
use crate::placement::Placed;
use crate::state::{COMPUTE_INSTANCES, ComputeInstance, Gpu, GpuInstance, State, WHOLE, monotonic};
use crate::tenant::ProcessUse;

/// How long things take, simulated seconds. Published means: creating 43 ms and deleting 109 ms for an instance
/// with its compute instance (SYSTOR'24, A100); a refused creation 30 ms; a mode change with reset 8 s.
mod seconds {
    pub(super) const CREATE_GPU_INSTANCE: f64 = 0.040;
    pub(super) const CREATE_COMPUTE_INSTANCE: f64 = 0.030;
    pub(super) const DESTROY_GPU_INSTANCE: f64 = 0.080;
    pub(super) const DESTROY_COMPUTE_INSTANCE: f64 = 0.030;
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
    /// Nothing there.
    #[error("not found")]
    NotFound,
    /// Compute instances or processes hold it.
    #[error("in use")]
    InUse,
    /// No free place, the given place is taken, or the count is exhausted: the driver does not tell them apart.
    #[error("insufficient resources")]
    InsufficientResources,
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

impl State {
    fn mig_gpu(&self, index: u32) -> Result<&Gpu, Refusal> {
        let gpu = self.gpu(index).ok_or(Refusal::InvalidArgument)?;
        if gpu.mig.get() == 0 { Err(Refusal::NotSupported) } else { Ok(gpu) }
    }

    fn living(&self, reference: GpuInstanceRef) -> Result<(&Gpu, &GpuInstance), Refusal> {
        let gpu = self.mig_gpu(reference.gpu)?;
        let instance = gpu.gpu_instance(reference.gi).filter(|instance| instance.serial.get() == reference.serial);
        instance.map(|instance| (gpu, instance)).ok_or(Refusal::InvalidArgument)
    }

    fn living_device(&self, device: DeviceRef) -> Result<(&Gpu, &GpuInstance, &ComputeInstance), Refusal> {
        let slice = device.slice.ok_or(Refusal::InvalidArgument)?;
        let gpu = self.mig_gpu(device.gpu)?;
        let instance = gpu.gpu_instance(slice.gi).ok_or(Refusal::InvalidArgument)?;
        let compute = instance.compute_instance(slice.ci).filter(|compute| compute.serial.get() == slice.serial);
        compute.map(|compute| (gpu, instance, compute)).ok_or(Refusal::InvalidArgument)
    }

    fn gpu_instance_info(index: u32, gpu: &Gpu, gi: u32, instance: &GpuInstance) -> GpuInstanceInfo {
        GpuInstanceInfo {
            reference: GpuInstanceRef { gpu: index, gi, serial: instance.serial.get() },
            profile: instance.profile(gpu.model()),
            start: instance.start.get(),
        }
    }

    fn compute_instance_info(
        parent: GpuInstanceInfo,
        gpu: &Gpu,
        ci: u32,
        compute: &ComputeInstance,
    ) -> ComputeInstanceInfo {
        let GpuInstanceRef { gpu: index, gi, .. } = parent.reference;
        let slices = compute.size.get();
        let profiles = compute_profiles(gpu.model(), parent.profile);
        let profile = profiles.into_iter().find(|profile| profile.slices == slices);
        ComputeInstanceInfo {
            device: DeviceRef { gpu: index, slice: Some(SliceRef { gi, ci, serial: compute.serial.get() }) },
            parent,
            profile: profile.unwrap_or(ComputeProfile { number: compute.profile.get(), slices, count: 1, sms: 0 }),
            start: compute.start.get(),
            uuid: mig_uuid(gpu.uuid(), gi, compute.syspipe.get()),
        }
    }

    /// All MIG devices of a GPU, by GPU instance id and compute instance id.
    pub(crate) fn mig_devices(&self, index: u32) -> Vec<ComputeInstanceInfo> {
        let Some(gpu) = self.gpu(index) else { return Vec::new() };
        let of = |(gi, instance): (u32, &GpuInstance)| {
            let parent = Self::gpu_instance_info(index, gpu, gi, instance);
            let computes = instance.compute_instances();
            computes.map(|(ci, compute)| Self::compute_instance_info(parent, gpu, ci, compute)).collect::<Vec<_>>()
        };
        gpu.gpu_instances().flat_map(of).collect()
    }
}

/// Which bit of which word of [`Gpu::holes`].
fn hole(gi: u32, ci: u32) -> (usize, u64) {
    let bit = gi * 8 + ci;
    ((bit / 64) as usize & 1, 1 << (bit % 64))
}

impl Gpu {
    fn profile(&self, id: u32) -> Result<(usize, &'static Profile), Refusal> {
        let model = self.model();
        let index = model.profiles.iter().position(|profile| profile.id == id).ok_or(Refusal::InvalidArgument)?;
        let profile = &model.profiles[index];
        // Graphics instances need a driver mode of their own.
        if profile.is_graphics() { Err(Refusal::NotSupported) } else { Ok((index, profile)) }
    }

    /// The lowest graphics engine that no compute instance has.
    fn free_syspipe(&self) -> u32 {
        let taken = |pipe| {
            self.gpu_instances()
                .flat_map(|(_, instance)| instance.compute_instances())
                .any(|(_, compute)| compute.syspipe.get() == pipe)
        };
        (0..).find(|&pipe| !taken(pipe)).unwrap_or(0)
    }

    fn leave_hole(&self, gi: u32, ci: u32) {
        let (word, bit) = hole(gi, ci);
        self.holes[word].set(self.holes[word].get() | bit);
    }

    fn close_holes(&self) {
        self.holes.iter().for_each(|word| word.set(0));
    }
}

impl Machine {
    /// Runs one change as the [module](self) tells.
    fn configure<P, T>(
        &self,
        index: u32,
        seconds: f64,
        check: impl Fn(&State, &Gpu) -> Result<P, Refusal>,
        commit: impl FnOnce(&State, &Gpu, P) -> T,
    ) -> Result<T, Refusal> {
        let gpu = self.mapping().gpu(index).ok_or(Refusal::InvalidArgument)?;
        let _config = gpu.config.lock();
        let first = check(&self.mapping().locked(), gpu).map(drop);
        match first {
            Err(Refusal::InsufficientResources) => self.take(seconds::REFUSED),
            Err(_) => {}
            Ok(()) => self.take(seconds),
        }
        first?;
        let state = self.mapping().locked();
        let plan = check(&state, gpu)?;
        let done = commit(&state, gpu, plan);
        gpu.changes.set(gpu.changes.get() + 1);
        state.changes.set(state.changes.get().wrapping_add(1));
        drop(state);
        self.wake_waiters();
        Ok(done)
    }

    fn take(&self, seconds: f64) {
        std::thread::sleep(Duration::from_secs_f64(seconds * self.time_scale()));
    }

    fn wake_waiters(&self) {
        let word = self.mapping().changes.atomic().as_ptr();
        // SAFETY: the word is in the mapped state; waking touches no memory.
        unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Configuration changes of a GPU so far.
    #[must_use]
    pub fn changes(&self, gpu: u32) -> u64 {
        self.mapping().gpu(gpu).map_or(0, |gpu| gpu.changes.get())
    }

    /// Sleeps until `happened` or the deadline; woken by configuration changes.
    pub fn wait_for_change(&self, deadline: Instant, happened: impl Fn() -> bool) -> bool {
        loop {
            let seen = self.mapping().changes.get();
            if happened() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = libc::timespec {
                tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            let word = self.mapping().changes.atomic().as_ptr();
            // SAFETY: the word is in the mapped state and `timeout` outlives the call. Any early return only leads
            // round the loop.
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, seen, &raw const timeout) };
        }
    }

    /// Number of GPUs.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        u32::try_from(self.mapping().gpus().count()).unwrap_or(0)
    }

    /// What kind of GPU it is.
    #[must_use]
    pub fn model(&self, gpu: u32) -> Option<&'static Model> {
        self.mapping().gpu(gpu).map(Gpu::model)
    }

    /// UUID of a GPU.
    #[must_use]
    pub fn gpu_uuid(&self, gpu: u32) -> Option<[u8; 16]> {
        self.mapping().gpu(gpu).map(Gpu::uuid)
    }

    /// Whether MIG is on, and whether it will be after the next reset.
    pub fn mig_mode(&self, gpu: u32) -> Result<(bool, bool), Refusal> {
        let state = self.mapping().locked();
        let gpu = state.gpu(gpu).ok_or(Refusal::InvalidArgument)?;
        Ok((gpu.mig.get() != 0, gpu.mig_pending.get() != 0))
    }

    /// Asks for a mode. Refused with [`Refusal::InUse`] while GPU instances exist. A process on the GPU puts it
    /// off; so does Ampere, until [`reset`](Self::reset), as in a virtual machine.
    pub fn set_mig_mode(&self, gpu: u32, on: bool) -> Result<Activation, Refusal> {
        let wanted = u32::from(on);
        let check = |_: &State, gpu: &Gpu| {
            let refused = gpu.mig.get() != wanted && gpu.gpu_instances().next().is_some();
            if refused { Err(Refusal::InUse) } else { Ok(()) }
        };
        self.configure(gpu, 0.0, check, |state, changed, ()| {
            changed.mig_pending.set(wanted);
            if changed.mig.get() == wanted {
                Activation::Done
            } else if state.is_used(gpu, None, None) {
                Activation::InUse
            } else if changed.model().architecture == Architecture::Ampere {
                Activation::ResetRequired
            } else {
                changed.mig.set(wanted);
                Activation::Done
            }
        })
    }

    /// Resets a GPU: a pending mode comes into force, all instances go. Refused while a process uses it.
    pub fn reset(&self, gpu: u32) -> Result<(), Refusal> {
        let idle = |state: &State, _: &Gpu| if state.is_used(gpu, None, None) { Err(Refusal::InUse) } else { Ok(()) };
        self.configure(gpu, seconds::RESET, idle, |_, gpu, ()| {
            for (_, instance) in gpu.gpu_instances() {
                instance.compute_instances().for_each(|(_, compute)| compute.live.set(0));
                instance.live.set(0);
            }
            gpu.close_holes();
            gpu.mig.set(gpu.mig_pending.get());
        })
    }

    /// GPU instances by id.
    pub fn gpu_instances(&self, gpu: u32) -> Result<Vec<GpuInstanceInfo>, Refusal> {
        let state = self.mapping().locked();
        let of = state.mig_gpu(gpu)?;
        Ok(of.gpu_instances().map(|(gi, instance)| State::gpu_instance_info(gpu, of, gi, instance)).collect())
    }

    /// A GPU instance, if it still lives.
    pub fn gpu_instance(&self, reference: GpuInstanceRef) -> Result<GpuInstanceInfo, Refusal> {
        let state = self.mapping().locked();
        let (gpu, instance) = state.living(reference)?;
        Ok(State::gpu_instance_info(reference.gpu, gpu, reference.gi, instance))
    }

    /// How many more GPU instances of a profile (by id) can be created.
    pub fn remaining_gpu_instances(&self, gpu: u32, profile: u32) -> Result<u32, Refusal> {
        let state = self.mapping().locked();
        let gpu = state.mig_gpu(gpu)?;
        let (index, _) = gpu.profile(profile)?;
        Ok(state.rules(gpu).remaining(&gpu.layout(), index))
    }

    /// Creates a GPU instance of a profile (by id), at `(start, size)` or where the driver likes it.
    pub fn create_gpu_instance(
        &self,
        gpu: u32,
        profile: u32,
        place: Option<(u32, u32)>,
    ) -> Result<GpuInstanceInfo, Refusal> {
        let check = |state: &State, gpu: &Gpu| {
            if gpu.mig.get() == 0 {
                return Err(Refusal::NotSupported);
            }
            let (index, profile) = gpu.profile(profile)?;
            let (rules, layout) = (state.rules(gpu), gpu.layout());
            let start = match place {
                Some((start, size)) if size != profile.size || !profile.starts.contains(&start) => {
                    return Err(Refusal::InvalidArgument);
                }
                Some((start, _)) => rules.fits(&layout, Placed { profile: index, start }).then_some(start),
                None => rules.default_start(&layout, index),
            };
            let placed = Placed { profile: index, start: start.ok_or(Refusal::InsufficientResources)? };
            Ok((placed, rules.instance_id(placed)))
        };
        self.configure(gpu, seconds::CREATE_GPU_INSTANCE, check, |state, changed, (placed, gi)| {
            let instance = &changed.instances[gi as usize];
            instance.profile.set(u32::try_from(placed.profile).unwrap_or(0));
            instance.start.set(placed.start);
            instance.serial.set(state.next_serial());
            instance.instances.iter().for_each(|compute| compute.live.set(0));
            instance.live.set(1);
            State::gpu_instance_info(gpu, changed, gi, instance)
        })
    }

    /// Destroys a GPU instance; refused while it has compute instances or processes.
    pub fn destroy_gpu_instance(&self, reference: GpuInstanceRef) -> Result<(), Refusal> {
        let GpuInstanceRef { gpu, gi, .. } = reference;
        let idle = |state: &State, _: &Gpu| {
            let (_, instance) = state.living(reference)?;
            let held = instance.compute_instances().next().is_some() || state.is_used(gpu, Some(gi), None);
            if held { Err(Refusal::InUse) } else { Ok(()) }
        };
        self.configure(gpu, seconds::DESTROY_GPU_INSTANCE, idle, |_, gpu, ()| {
            gpu.instances[gi as usize].live.set(0);
        })
    }

    /// Compute instances of a GPU instance, by id.
    pub fn compute_instances(&self, reference: GpuInstanceRef) -> Result<Vec<ComputeInstanceInfo>, Refusal> {
        let state = self.mapping().locked();
        let (gpu, instance) = state.living(reference)?;
        let parent = State::gpu_instance_info(reference.gpu, gpu, reference.gi, instance);
        let computes = instance.compute_instances();
        Ok(computes.map(|(ci, compute)| State::compute_instance_info(parent, gpu, ci, compute)).collect())
    }

    /// A compute instance, if it still lives.
    pub fn compute_instance(&self, device: DeviceRef) -> Result<ComputeInstanceInfo, Refusal> {
        let state = self.mapping().locked();
        state.living_device(device)?;
        let found = state.mig_devices(device.gpu).into_iter().find(|info| info.device == device);
        found.ok_or(Refusal::InvalidArgument)
    }

    /// How many more compute instances of a profile fit into a GPU instance.
    pub fn remaining_compute_instances(&self, reference: GpuInstanceRef, profile: u32) -> Result<u32, Refusal> {
        let state = self.mapping().locked();
        let (gpu, instance) = state.living(reference)?;
        Ok(remaining(instance, compute_profile(gpu, instance, profile)?))
    }

    /// Creates a compute instance, at `(start, size)` within the GPU instance or at the lowest free place.
    pub fn create_compute_instance(
        &self,
        reference: GpuInstanceRef,
        profile: u32,
        place: Option<(u32, u32)>,
    ) -> Result<ComputeInstanceInfo, Refusal> {
        let check = |state: &State, _: &Gpu| {
            let (gpu, instance) = state.living(reference)?;
            let profile = compute_profile(gpu, instance, profile)?;
            if place.is_some_and(|(start, size)| size != profile.slices || profile.starts().all(|legal| legal != start)) {
                return Err(Refusal::InvalidArgument);
            }
            let start = free_start(instance, profile, place.map(|(start, _)| start));
            let ci = (0..COMPUTE_INSTANCES).find(|&ci| instance.instances[ci].live.get() == 0);
            start.zip(ci).map(|(start, ci)| (profile, start, ci)).ok_or(Refusal::InsufficientResources)
        };
        let seconds = seconds::CREATE_COMPUTE_INSTANCE;
        self.configure(reference.gpu, seconds, check, |state, gpu, (profile, start, ci)| {
            let instance = &gpu.instances[reference.gi as usize];
            let compute = &instance.instances[ci];
            compute.profile.set(profile.number);
            compute.start.set(start);
            compute.size.set(profile.slices);
            compute.syspipe.set(gpu.free_syspipe());
            compute.serial.set(state.next_serial());
            gpu.close_holes();
            compute.live.set(1);
            let parent = State::gpu_instance_info(reference.gpu, gpu, reference.gi, instance);
            State::compute_instance_info(parent, gpu, u32::try_from(ci).unwrap_or(0), compute)
        })
    }

    /// Destroys a compute instance; refused while a process uses it.
    pub fn destroy_compute_instance(&self, device: DeviceRef) -> Result<(), Refusal> {
        let SliceRef { gi, ci, .. } = device.slice.ok_or(Refusal::InvalidArgument)?;
        let idle = |state: &State, _: &Gpu| {
            state.living_device(device)?;
            if state.is_used(device.gpu, Some(gi), Some(ci)) { Err(Refusal::InUse) } else { Ok(()) }
        };
        self.configure(device.gpu, seconds::DESTROY_COMPUTE_INSTANCE, idle, |_, gpu, ()| {
            gpu.leave_hole(gi, ci);
            gpu.instances[gi as usize].instances[ci as usize].live.set(0);
        })
    }

    /// MIG devices by index. They are in order of GPU instance id after a creation; a destroyed one leaves its
    /// index empty until the next creation.
    #[must_use]
    pub fn mig_devices(&self, gpu: u32) -> Vec<Option<ComputeInstanceInfo>> {
        let state = self.mapping().locked();
        let Some(of) = state.gpu(gpu) else { return Vec::new() };
        let devices = state.mig_devices(gpu);
        let at = |gi, ci| {
            let is_it = |info: &&ComputeInstanceInfo| info.device.slice.is_some_and(|slice| (slice.gi, slice.ci) == (gi, ci));
            devices.iter().find(is_it).copied()
        };
        let places = (0..16).flat_map(|gi| (0..8).map(move |ci| (gi, ci)));
        places
            .filter_map(|(gi, ci)| {
                let (word, bit) = hole(gi, ci);
                let device = at(gi, ci);
                (device.is_some() || of.holes[word].get() & bit != 0).then_some(device)
            })
            .collect()
    }

    /// Bytes of a GPU instance; or of the whole GPU: with MIG on the sum over its instances.
    #[must_use]
    pub fn memory(&self, gpu: u32, gi: Option<u32>) -> MemoryInfo {
        let state = self.mapping().locked();
        state.reap(monotonic());
        if let Some(gi) = gi {
            return state.memory(gpu, gi);
        }
        let total = state.gpu(gpu).map_or(0, |gpu| state.capacity(gpu, WHOLE));
        let on_gpu = state.used_records().filter(|record| record.gpu.get() == gpu);
        let used = on_gpu.map(|record| record.bytes.get()).sum();
        MemoryInfo { total, used, free: total.saturating_sub(used) }
    }

    /// Living processes on a GPU.
    #[must_use]
    pub fn processes(&self, gpu: u32) -> Vec<ProcessUse> {
        self.mapping().locked().processes(gpu)
    }

    /// Joules of simulated time since the state was made.
    #[must_use]
    pub fn energy_joules(&self, gpu: u32) -> f64 {
        let state = self.mapping().locked();
        let Some(of) = state.gpu(gpu) else { return 0.0 };
        let now = monotonic();
        state.reap(now);
        state.advance_meter(gpu, of, now);
        state.millijoules(of) / 1e3
    }

    /// Watts at this moment.
    #[must_use]
    pub fn watts(&self, gpu: u32) -> f64 {
        let state = self.mapping().locked();
        let Some(of) = state.gpu(gpu) else { return 0.0 };
        state.reap(monotonic());
        state.watts(gpu, of)
    }
}

fn compute_profile(gpu: &Gpu, instance: &GpuInstance, number: u32) -> Result<ComputeProfile, Refusal> {
    let profiles = compute_profiles(gpu.model(), instance.profile(gpu.model()));
    profiles.into_iter().find(|profile| profile.number == number).ok_or(Refusal::InvalidArgument)
}
