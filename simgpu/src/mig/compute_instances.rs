//! Compute instances, and the MIG devices that they make.

use super::{ComputeInstanceInfo, GpuInstanceInfo, GpuInstanceRef, Refusal, seconds};
use crate::compute::{ComputeProfile, compute_profiles, free_start, remaining};
use crate::device_files::DeviceFile;
use crate::faults::Call;
use crate::identity::mig_uuid;
use crate::machine::{DeviceRef, Machine, SliceRef};
use crate::state::{COMPUTE_INSTANCES, ComputeInstance, Gpu, GpuInstance, State};

impl State {
    fn living_device(&self, device: DeviceRef) -> Result<(&Gpu, &GpuInstance, &ComputeInstance), Refusal> {
        let slice = device.slice.ok_or(Refusal::InvalidArgument)?;
        let gpu = self.mig_gpu(device.gpu)?;
        let instance = gpu.gpu_instance(slice.gi).ok_or(Refusal::InvalidArgument)?;
        let compute = instance
            .compute_instance(slice.ci)
            .filter(|compute| compute.serial.get() == slice.serial);
        compute
            .map(|compute| (gpu, instance, compute))
            .ok_or(Refusal::InvalidArgument)
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
            device: DeviceRef {
                gpu: index,
                slice: Some(SliceRef {
                    gi,
                    ci,
                    serial: compute.serial.get(),
                }),
            },
            parent,
            profile: profile.unwrap_or(ComputeProfile {
                number: compute.profile.get(),
                slices,
                count: 1,
                sms: 0,
            }),
            start: compute.start.get(),
            uuid: mig_uuid(gpu.uuid(), gi, compute.syspipe.get()),
        }
    }

    /// All MIG devices of a GPU, by GPU instance id and compute instance id.
    pub(crate) fn mig_devices(&self, index: u32) -> Vec<ComputeInstanceInfo> {
        let Some(gpu) = self.gpu(index) else {
            return Vec::new();
        };
        let of = |(gi, instance): (u32, &GpuInstance)| {
            let parent = Self::gpu_instance_info(index, gpu, gi, instance);
            let computes = instance.compute_instances();
            computes
                .map(|(ci, compute)| Self::compute_instance_info(parent, gpu, ci, compute))
                .collect::<Vec<_>>()
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

    pub(super) fn close_holes(&self) {
        self.holes.iter().for_each(|word| word.set(0));
    }
}

impl Machine {
    /// Compute instances of a GPU instance, by id.
    pub fn compute_instances(&self, reference: GpuInstanceRef) -> Result<Vec<ComputeInstanceInfo>, Refusal> {
        let state = self.mapping().locked();
        let (gpu, instance) = state.living(reference)?;
        let parent = State::gpu_instance_info(reference.gpu, gpu, reference.gi, instance);
        let computes = instance.compute_instances();
        Ok(computes
            .map(|(ci, compute)| State::compute_instance_info(parent, gpu, ci, compute))
            .collect())
    }

    /// A compute instance, if it still lives.
    pub fn compute_instance(&self, device: DeviceRef) -> Result<ComputeInstanceInfo, Refusal> {
        let state = self.mapping().locked();
        state.living_device(device)?;
        let found = state
            .mig_devices(device.gpu)
            .into_iter()
            .find(|info| info.device == device);
        found.ok_or(Refusal::InvalidArgument)
    }

    /// How many more compute instances of a profile fit into a GPU instance.
    pub fn remaining_compute_instances(
        &self,
        reference: GpuInstanceRef,
        profile: u32,
    ) -> Result<u32, Refusal> {
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
            if place.is_some_and(|(start, size)| {
                size != profile.slices || profile.starts().all(|legal| legal != start)
            }) {
                return Err(Refusal::InvalidArgument);
            }
            let start = free_start(instance, profile, place.map(|(start, _)| start));
            let ci = (0..COMPUTE_INSTANCES).find(|&ci| instance.instances[ci].live.get() == 0);
            start
                .zip(ci)
                .map(|(start, ci)| (profile, start, ci))
                .ok_or(Refusal::InsufficientResources)
        };
        let seconds = seconds::CREATE_COMPUTE_INSTANCE;
        self.configure(
            reference.gpu,
            Some(Call::CreateComputeInstance),
            seconds,
            check,
            |state, gpu, (profile, start, ci)| {
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
            },
        )
    }

    /// Destroys a compute instance; refused while a process uses it.
    pub fn destroy_compute_instance(&self, device: DeviceRef) -> Result<(), Refusal> {
        let SliceRef { gi, ci, .. } = device.slice.ok_or(Refusal::InvalidArgument)?;
        let idle = |state: &State, _: &Gpu| {
            state.living_device(device)?;
            let held = state.is_used(device.gpu, Some(gi), Some(ci))
                || self.is_held(DeviceFile::GpuInstance(device.gpu, gi))
                || self.is_held(DeviceFile::ComputeInstance(device.gpu, gi, ci));
            if held { Err(Refusal::InUse) } else { Ok(()) }
        };
        self.configure(
            device.gpu,
            Some(Call::DestroyComputeInstance),
            seconds::DESTROY_COMPUTE_INSTANCE,
            idle,
            |_, gpu, ()| {
                gpu.leave_hole(gi, ci);
                gpu.instances[gi as usize].instances[ci as usize].live.set(0);
            },
        )
    }

    /// MIG devices by index. They are in order of GPU instance id after a creation; a destroyed one leaves its
    /// index empty until the next creation.
    #[must_use]
    pub fn mig_devices(&self, gpu: u32) -> Vec<Option<ComputeInstanceInfo>> {
        let state = self.mapping().locked();
        let Ok(of) = state.answering(gpu) else {
            return Vec::new();
        };
        let devices = state.mig_devices(gpu);
        let at = |gi, ci| {
            let is_it = |info: &&ComputeInstanceInfo| {
                info.device
                    .slice
                    .is_some_and(|slice| (slice.gi, slice.ci) == (gi, ci))
            };
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
}

fn compute_profile(gpu: &Gpu, instance: &GpuInstance, number: u32) -> Result<ComputeProfile, Refusal> {
    let profiles = compute_profiles(gpu.model(), instance.profile(gpu.model()));
    profiles
        .into_iter()
        .find(|profile| profile.number == number)
        .ok_or(Refusal::InvalidArgument)
}
