//! GPU instances: list, create, destroy.

use super::{GpuInstanceInfo, GpuInstanceRef, Refusal, seconds};
use crate::device_files::DeviceFile;
use crate::faults::Call;
use crate::guest::Guest;
use crate::machine::Machine;
use crate::model::Profile;
use crate::placement::Placed;
use crate::state::{Gpu, GpuInstance, State};

impl State {
    /// The profile of this id, where the driver knows it, with its place in the model's table.
    fn profile(&self, gpu: &Gpu, id: u32) -> Result<(usize, &'static Profile), Refusal> {
        let rules = self.rules(gpu);
        let is_it = |profile: &Profile| profile.id == id && rules.driver.knows(profile);
        let index = rules.model.profiles.iter().position(is_it);
        let index = index.ok_or(Refusal::InvalidArgument)?;
        let profile = &rules.model.profiles[index];
        // Graphics instances need a driver mode of their own.
        if profile.is_graphics() {
            Err(Refusal::NotSupported)
        } else {
            Ok((index, profile))
        }
    }

    pub(super) fn gpu_instance_info(
        index: u32,
        gpu: &Gpu,
        gi: u32,
        instance: &GpuInstance,
    ) -> GpuInstanceInfo {
        GpuInstanceInfo {
            reference: GpuInstanceRef {
                gpu: index,
                gi,
                serial: instance.serial.get(),
            },
            profile: instance.profile(gpu.model()),
            start: instance.start.get(),
        }
    }
}

impl Machine {
    /// GPU instances by id.
    pub fn gpu_instances(&self, gpu: u32) -> Result<Vec<GpuInstanceInfo>, Refusal> {
        let state = self.mapping().locked();
        let of = state.mig_gpu(gpu)?;
        Ok(of
            .gpu_instances()
            .map(|(gi, instance)| State::gpu_instance_info(gpu, of, gi, instance))
            .collect())
    }

    /// A GPU instance, if it still lives.
    pub fn gpu_instance(&self, reference: GpuInstanceRef) -> Result<GpuInstanceInfo, Refusal> {
        let state = self.mapping().locked();
        let (gpu, instance) = state.living(reference)?;
        Ok(State::gpu_instance_info(
            reference.gpu,
            gpu,
            reference.gi,
            instance,
        ))
    }

    /// How many more GPU instances of a profile (by id) can be created.
    pub fn remaining_gpu_instances(&self, gpu: u32, profile: u32) -> Result<u32, Refusal> {
        let state = self.mapping().locked();
        let gpu = state.mig_gpu(gpu)?;
        let (index, _) = state.profile(gpu, profile)?;
        Ok(state.rules(gpu).remaining(&gpu.layout(), index))
    }

    /// Creates a GPU instance of a profile (by id), at `(start, size)` or where the driver likes it.
    pub fn create_gpu_instance(
        &self,
        gpu: u32,
        profile: u32,
        place: Option<(u32, u32)>,
    ) -> Result<GpuInstanceInfo, Refusal> {
        let which = gpu;
        let check = |state: &State, gpu: &Gpu| {
            if gpu.mig.get() == 0 || state.guest() == Guest::Vgpu {
                return Err(Refusal::NotSupported);
            }
            let (index, profile) = state.profile(gpu, profile)?;
            // The first one makes the driver partition the memory, which it does on an idle GPU only.
            if gpu.gpu_instances().next().is_none() && self.is_busy(state, which) {
                return Err(Refusal::InUse);
            }
            let (rules, layout) = (state.rules(gpu), gpu.layout());
            let start = match place {
                Some((start, size)) if size != profile.size || !profile.starts.contains(&start) => {
                    return Err(Refusal::InvalidArgument);
                }
                Some((start, _)) => rules
                    .fits(
                        &layout,
                        Placed {
                            profile: index,
                            start,
                        },
                    )
                    .then_some(start),
                None => rules.default_start(&layout, index),
            };
            let placed = Placed {
                profile: index,
                start: start.ok_or(Refusal::InsufficientResources)?,
            };
            Ok((placed, rules.instance_id(placed)))
        };
        self.configure(
            gpu,
            Some(Call::CreateGpuInstance),
            seconds::CREATE_GPU_INSTANCE,
            check,
            |state, changed, (placed, gi)| {
                let instance = &changed.instances[gi as usize];
                instance.profile.set(u32::try_from(placed.profile).unwrap_or(0));
                instance.start.set(placed.start);
                instance.serial.set(state.next_serial());
                instance.instances.iter().for_each(|compute| compute.live.set(0));
                instance.live.set(1);
                State::gpu_instance_info(gpu, changed, gi, instance)
            },
        )
    }

    /// Destroys a GPU instance; refused while it has compute instances or processes.
    pub fn destroy_gpu_instance(&self, reference: GpuInstanceRef) -> Result<(), Refusal> {
        let GpuInstanceRef { gpu, gi, .. } = reference;
        let idle = |state: &State, _: &Gpu| {
            let (_, instance) = state.living(reference)?;
            let held = instance.compute_instances().next().is_some()
                || state.is_used(gpu, Some(gi), None)
                || self.is_held(DeviceFile::Gpu(gpu))
                || self.is_held(DeviceFile::GpuInstance(gpu, gi));
            if held { Err(Refusal::InUse) } else { Ok(()) }
        };
        let call = Some(Call::DestroyGpuInstance);
        self.configure(gpu, call, seconds::DESTROY_GPU_INSTANCE, idle, |_, gpu, ()| {
            gpu.instances[gi as usize].live.set(0);
        })
    }
}
