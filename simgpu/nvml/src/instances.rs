//! Compute instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstanceInfo_t, nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t,
    nvmlComputeInstanceProfileInfo_v2_t, nvmlComputeInstanceProfileInfo_v3_t, nvmlDevice_t,
    nvmlGpuInstance_t,
};
use simgpu::Machine;
use simgpu::compute::{ComputeProfile, compute_profiles};
use simgpu::mig::GpuInstanceInfo;

use crate::code::Code;
use crate::edge::{In, Out, Versioned, device_pointer, instance_pointer, text_array};
use crate::handles::{ComputeInstance, Device, GpuInstance};
use crate::library::{export, since};
use crate::rights::{Right, may};

/// `NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED`, the only one.
const SHARED_ENGINES: c_uint = 0;

/// `nvmlComputeInstanceInfo_t` of drivers before R460, which does not say where.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ComputeInstanceInfoV1 {
    device: nvmlDevice_t,
    gpu_instance: nvmlGpuInstance_t,
    id: c_uint,
    profile_id: c_uint,
}

export! {
    fn nvmlGpuInstanceGetComputeInstanceProfileInfo(
        machine,
        instance: GpuInstance,
        question: c_uint,
        engines: c_uint,
        info: Out<nvmlComputeInstanceProfileInfo_t>,
    ) {
        let (gi, profile) = profile_of(machine, instance, question, engines)?;
        let engines = gi.profile.engines;
        info.put(nvmlComputeInstanceProfileInfo_t {
            id: profile.number,
            sliceCount: profile.slices,
            instanceCount: profile.count,
            multiprocessorCount: profile.sms,
            sharedCopyEngineCount: engines.copy,
            sharedDecoderCount: engines.decoder,
            sharedEncoderCount: engines.encoder,
            sharedJpegCount: engines.jpeg,
            sharedOfaCount: engines.ofa,
        })
    }

    fn nvmlGpuInstanceGetComputeInstanceProfileInfoV(
        machine,
        instance: GpuInstance,
        question: c_uint,
        engines: c_uint,
        info: Versioned,
    ) {
        since(machine, 510)?;
        let (gi, profile) = profile_of(machine, instance, question, engines)?;
        put_profile(machine, &info, gi, profile)
    }

    fn nvmlGpuInstanceGetComputeInstanceRemainingCapacity(
        machine, instance: GpuInstance, id: c_uint, count: Out<c_uint>
    ) {
        count.put(machine.remaining_compute_instances(instance.reference()?, id)?)
    }

    fn nvmlGpuInstanceGetComputeInstancePossiblePlacements(
        machine, instance: GpuInstance, id: c_uint, placements: Out<nvmlComputeInstancePlacement_t>, count: Out<c_uint>
    ) {
        since(machine, 525)?;
        let (_, profile) = profile_of(machine, instance, id, SHARED_ENGINES)?;
        let place = |start| nvmlComputeInstancePlacement_t { start, size: profile.slices };
        let all: Vec<_> = profile.starts().map(place).collect();
        if !placements.is_null() {
            placements.put_all(&all)?;
        }
        count.put(c_uint::try_from(all.len()).unwrap_or(c_uint::MAX))
    }

    fn nvmlGpuInstanceCreateComputeInstance(
        machine, instance: GpuInstance, id: c_uint, compute: Out<ComputeInstance>
    ) {
        create(machine, instance, id, None, &compute)
    }

    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(
        machine,
        instance: GpuInstance,
        id: c_uint,
        placement: In<nvmlComputeInstancePlacement_t>,
        compute: Out<ComputeInstance>,
    ) {
        since(machine, 525)?;
        let place = placement.get()?;
        create(machine, instance, id, Some((place.start, place.size)), &compute)
    }

    fn nvmlComputeInstanceDestroy(machine, compute: ComputeInstance) {
        let device = compute.device()?;
        may(Right::Config)?;
        Ok(machine.destroy_compute_instance(device)?)
    }

    fn nvmlGpuInstanceGetComputeInstances(
        machine, instance: GpuInstance, id: c_uint, computes: Out<ComputeInstance>, count: Out<c_uint>
    ) {
        profile_of(machine, instance, id, SHARED_ENGINES)?;
        let mut found = machine.compute_instances(instance.reference()?)?;
        found.retain(|info| info.profile.number == id);
        computes.put_all(&found.iter().map(|info| ComputeInstance::of(info.device)).collect::<Vec<_>>())?;
        count.put(c_uint::try_from(found.len()).unwrap_or(c_uint::MAX))
    }

    fn nvmlGpuInstanceGetComputeInstanceById(
        machine, instance: GpuInstance, id: c_uint, compute: Out<ComputeInstance>
    ) {
        let all = machine.compute_instances(instance.reference()?)?;
        let found = all.iter().find(|info| info.device.slice.is_some_and(|slice| slice.ci == id));
        compute.put(ComputeInstance::of(found.ok_or(Code::NotFound)?.device))
    }

    fn nvmlComputeInstanceGetInfo(machine, compute: ComputeInstance, info: Out<ComputeInstanceInfoV1>) {
        let found = machine.compute_instance(compute.device()?)?;
        info.put(ComputeInstanceInfoV1 {
            device: device_pointer(Device::gpu(found.device.gpu).raw()),
            gpu_instance: instance_pointer(GpuInstance::of(found.parent.reference).raw()),
            id: found.device.slice.map_or(0, |slice| slice.ci),
            profile_id: found.profile.number,
        })
    }

    fn nvmlComputeInstanceGetInfo_v2(machine, compute: ComputeInstance, info: Out<nvmlComputeInstanceInfo_t>) {
        since(machine, 460)?;
        let found = machine.compute_instance(compute.device()?)?;
        info.put(nvmlComputeInstanceInfo_t {
            device: device_pointer(Device::gpu(found.device.gpu).raw()),
            gpuInstance: instance_pointer(GpuInstance::of(found.parent.reference).raw()),
            id: found.device.slice.map_or(0, |slice| slice.ci),
            profileId: found.profile.number,
            placement: nvmlComputeInstancePlacement_t { start: found.start, size: found.profile.slices },
        })
    }
}

fn profile_of(
    machine: &Machine,
    instance: GpuInstance,
    question: c_uint,
    engines: c_uint,
) -> Result<(GpuInstanceInfo, ComputeProfile), Code> {
    let gi = machine.gpu_instance(instance.reference()?)?;
    if question >= machine.driver_branch().compute_instance_questions() || engines != SHARED_ENGINES {
        return Err(Code::InvalidArgument);
    }
    let model = machine.model(gi.reference.gpu).ok_or(Code::InvalidArgument)?;
    let found = compute_profiles(model, gi.profile)
        .into_iter()
        .find(|profile| profile.number == question);
    found.map(|profile| (gi, profile)).ok_or(Code::NotSupported)
}

fn put_profile(
    machine: &Machine,
    info: &Versioned,
    gi: GpuInstanceInfo,
    profile: ComputeProfile,
) -> Result<(), Code> {
    let engines = gi.profile.engines;
    let name = text_array(&format!("MIG {}", profile.name(gi.profile)));
    let second = |version| nvmlComputeInstanceProfileInfo_v2_t {
        version,
        id: profile.number,
        sliceCount: profile.slices,
        instanceCount: profile.count,
        multiprocessorCount: profile.sms,
        sharedCopyEngineCount: engines.copy,
        sharedDecoderCount: engines.decoder,
        sharedEncoderCount: engines.encoder,
        sharedJpegCount: engines.jpeg,
        sharedOfaCount: engines.ofa,
        name,
    };
    let third = |version| nvmlComputeInstanceProfileInfo_v3_t {
        version,
        id: profile.number,
        sliceCount: profile.slices,
        instanceCount: profile.count,
        multiprocessorCount: profile.sms,
        sharedCopyEngineCount: engines.copy,
        sharedDecoderCount: engines.decoder,
        sharedEncoderCount: engines.encoder,
        sharedJpegCount: engines.jpeg,
        sharedOfaCount: engines.ofa,
        name,
        capabilities: 0,
    };
    match info.put_if(2, second) {
        Err(Code::ArgumentVersionMismatch) if machine.driver_branch().has_third_profile_structure() => {
            info.put_if(3, third)
        }
        answer => answer,
    }
}

fn create(
    machine: &Machine,
    instance: GpuInstance,
    id: c_uint,
    place: Option<(u32, u32)>,
    compute: &Out<ComputeInstance>,
) -> Result<(), Code> {
    let reference = instance.reference()?;
    if compute.is_null() {
        return Err(Code::InvalidArgument);
    }
    may(Right::Config)?;
    compute.put(ComputeInstance::of(
        machine.create_compute_instance(reference, id, place)?.device,
    ))
}
