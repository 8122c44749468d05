//! MIG mode, MIG devices and GPU instances.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuInstanceProfileInfo_v3_t,
};
use simgpu::Machine;
use simgpu::mig::Activation;
use simgpu::model::Profile;

use crate::code::{Code, returned};
use crate::edge::{In, Out, Versioned, device_pointer, text_array};
use crate::handles::{Device, GpuInstance, Target};
use crate::library::{export, since};
use crate::rights::{Right, may};

/// `NVML_GPU_INSTANCE_PROFILE_CAPS_GFX`.
const GRAPHICS: c_uint = 2;

export! {
    fn nvmlDeviceGetMigMode(machine, device: Device, current: Out<c_uint>, pending: Out<c_uint>) {
        let (now, next) = machine.mig_mode(device.parent(machine)?)?;
        current.put(now.into())?;
        pending.put(next.into())
    }

    fn nvmlDeviceSetMigMode(machine, device: Device, mode: c_uint, activation: Out<c_uint>) {
        let gpu = device.parent(machine)?;
        let on = match mode {
            0 => false,
            1 => true,
            _ => return Err(Code::InvalidArgument),
        };
        may(Right::Mode)?;
        let status = match machine.set_mig_mode(gpu, on) {
            Ok(Activation::Done) => Ok(()),
            Ok(Activation::ResetRequired) => Err(Code::ResetRequired),
            Ok(Activation::InUse) => Err(Code::InUse),
            Err(refusal) => {
                activation.put(returned(Err(refusal.into())))?;
                return Err(refusal.into());
            }
        };
        activation.put(returned(status))
    }

    fn nvmlDeviceIsMigDeviceHandle(machine, device: Device, answer: Out<c_uint>) {
        answer.put(matches!(device.target(machine)?, Target::Mig(_)).into())
    }

    fn nvmlDeviceGetMaxMigDeviceCount(machine, device: Device, count: Out<c_uint>) {
        let gpu = device.parent(machine)?;
        let (on, _) = machine.mig_mode(gpu)?;
        let most = machine.model(gpu).map_or(0, |model| model.max_instances());
        count.put(if on { most } else { 0 })
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(machine, device: Device, index: c_uint, mig: Out<Device>) {
        let gpu = device.parent(machine)?;
        if !machine.mig_mode(gpu)?.0 {
            return Err(Code::NotSupported);
        }
        let most = machine.model(gpu).map_or(0, |model| model.max_instances());
        if index >= most {
            return Err(Code::InvalidArgument);
        }
        // What a process may not see is not there for it.
        may(Right::Monitor).map_err(|_| Code::NotFound)?;
        let found = machine.mig_devices(gpu).get(index as usize).copied().flatten();
        mig.put(Device::mig(&found.ok_or(Code::NotFound)?))
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(machine, mig: Device, device: Out<Device>) {
        match mig.target(machine)? {
            Target::Mig(info) => device.put(Device::gpu(info.device.gpu)),
            Target::Gpu(_) => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetGpuInstanceId(machine, device: Device, id: Out<c_uint>) {
        id.put(device.slice(machine)?.parent.reference.gi)
    }

    fn nvmlDeviceGetComputeInstanceId(machine, device: Device, id: Out<c_uint>) {
        id.put(device.slice(machine)?.device.slice.map_or(0, |slice| slice.ci))
    }

    fn nvmlDeviceGetGpuInstanceProfileInfo(
        machine, device: Device, question: c_uint, info: Out<nvmlGpuInstanceProfileInfo_t>
    ) {
        let profile = by_question(machine, device, question)?;
        info.put(nvmlGpuInstanceProfileInfo_t {
            id: profile.id,
            isP2pSupported: 0,
            sliceCount: profile.compute,
            instanceCount: profile.count,
            multiprocessorCount: profile.sms,
            copyEngineCount: profile.engines.copy,
            decoderCount: profile.engines.decoder,
            encoderCount: profile.engines.encoder,
            jpegCount: profile.engines.jpeg,
            ofaCount: profile.engines.ofa,
            memorySizeMB: profile.memory_mib,
        })
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoV(machine, device: Device, question: c_uint, info: Versioned) {
        since(machine, 510)?;
        put_profile(machine, &info, by_question(machine, device, question)?)
    }

    fn nvmlDeviceGetGpuInstanceProfileInfoByIdV(machine, device: Device, id: c_uint, info: Versioned) {
        since(machine, 580)?;
        put_profile(machine, &info, by_id(machine, device, id)?)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        machine, device: Device, id: c_uint, placements: Out<nvmlGpuInstancePlacement_t>, count: Out<c_uint>
    ) {
        since(machine, 470)?;
        put_placements(by_id(machine, device, id)?, &placements, &count)
    }

    fn nvmlDeviceGetGpuInstancePossiblePlacements(
        machine, device: Device, id: c_uint, placements: Out<nvmlGpuInstancePlacement_t>, count: Out<c_uint>
    ) {
        put_placements(by_id(machine, device, id)?, &placements, &count)
    }

    fn nvmlDeviceGetGpuInstanceRemainingCapacity(machine, device: Device, id: c_uint, count: Out<c_uint>) {
        count.put(machine.remaining_gpu_instances(device.parent(machine)?, id)?)
    }

    fn nvmlDeviceCreateGpuInstance(machine, device: Device, id: c_uint, instance: Out<GpuInstance>) {
        create(machine, device, id, None, &instance)
    }

    fn nvmlDeviceCreateGpuInstanceWithPlacement(
        machine, device: Device, id: c_uint, placement: In<nvmlGpuInstancePlacement_t>, instance: Out<GpuInstance>
    ) {
        since(machine, 460)?;
        let place = placement.get()?;
        create(machine, device, id, Some((place.start, place.size)), &instance)
    }

    fn nvmlGpuInstanceDestroy(machine, instance: GpuInstance) {
        let reference = instance.reference()?;
        may(Right::Config)?;
        Ok(machine.destroy_gpu_instance(reference)?)
    }

    fn nvmlDeviceGetGpuInstances(
        machine, device: Device, id: c_uint, instances: Out<GpuInstance>, count: Out<c_uint>
    ) {
        may(Right::Monitor)?;
        by_id(machine, device, id)?;
        let mut found = machine.gpu_instances(device.parent(machine)?)?;
        found.retain(|info| info.profile.id == id);
        instances.put_all(&found.iter().map(|info| GpuInstance::of(info.reference)).collect::<Vec<_>>())?;
        count.put(c_uint::try_from(found.len()).unwrap_or(c_uint::MAX))
    }

    fn nvmlDeviceGetGpuInstanceById(machine, device: Device, id: c_uint, instance: Out<GpuInstance>) {
        may(Right::Monitor)?;
        let all = machine.gpu_instances(device.parent(machine)?)?;
        let found = all.iter().find(|info| info.reference.gi == id).ok_or(Code::NotFound)?;
        instance.put(GpuInstance::of(found.reference))
    }

    fn nvmlGpuInstanceGetInfo(machine, instance: GpuInstance, info: Out<nvmlGpuInstanceInfo_t>) {
        let found = machine.gpu_instance(instance.reference()?)?;
        info.put(nvmlGpuInstanceInfo_t {
            device: device_pointer(Device::gpu(found.reference.gpu).raw()),
            id: found.reference.gi,
            profileId: found.profile.id,
            placement: nvmlGpuInstancePlacement_t { start: found.start, size: found.profile.size },
        })
    }
}

/// The profiles of a GPU that the driver knows.
fn profiles(machine: &Machine, device: Device) -> Result<impl Iterator<Item = &'static Profile>, Code> {
    let gpu = device.parent(machine)?;
    let driver = machine.driver_branch();
    if !driver.lists_profiles_without_mig() && !machine.mig_mode(gpu)?.0 {
        return Err(Code::NotSupported);
    }
    let model = machine.model(gpu).ok_or(Code::InvalidArgument)?;
    Ok(model.profiles.iter().filter(move |profile| driver.knows(profile)))
}

fn by_question(machine: &Machine, device: Device, question: c_uint) -> Result<&'static Profile, Code> {
    let known = if question < machine.driver_branch().gpu_instance_questions() {
        Code::NotSupported
    } else {
        Code::InvalidArgument
    };
    profiles(machine, device)?
        .find(|profile| profile.question == question)
        .ok_or(known)
}

fn by_id(machine: &Machine, device: Device, id: c_uint) -> Result<&'static Profile, Code> {
    profiles(machine, device)?
        .find(|profile| profile.id == id)
        .ok_or(Code::InvalidArgument)
}

fn put_profile(machine: &Machine, info: &Versioned, profile: &Profile) -> Result<(), Code> {
    let name = format!("MIG {}", profile.name);
    let second = |version| nvmlGpuInstanceProfileInfo_v2_t {
        version,
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.compute,
        instanceCount: profile.count,
        multiprocessorCount: profile.sms,
        copyEngineCount: profile.engines.copy,
        decoderCount: profile.engines.decoder,
        encoderCount: profile.engines.encoder,
        jpegCount: profile.engines.jpeg,
        ofaCount: profile.engines.ofa,
        memorySizeMB: profile.memory_mib,
        name: text_array(&name),
    };
    let third = |version| nvmlGpuInstanceProfileInfo_v3_t {
        version,
        id: profile.id,
        sliceCount: profile.compute,
        instanceCount: profile.count,
        multiprocessorCount: profile.sms,
        copyEngineCount: profile.engines.copy,
        decoderCount: profile.engines.decoder,
        encoderCount: profile.engines.encoder,
        jpegCount: profile.engines.jpeg,
        ofaCount: profile.engines.ofa,
        memorySizeMB: profile.memory_mib,
        name: text_array(&name),
        capabilities: if profile.is_graphics() { GRAPHICS } else { 0 },
    };
    match info.put_if(2, second) {
        Err(Code::ArgumentVersionMismatch) if machine.driver_branch().has_third_profile_structure() => {
            info.put_if(3, third)
        }
        answer => answer,
    }
}

/// All legal places, taken or not; only their count when there is no room for them.
fn put_placements(
    profile: &Profile,
    placements: &Out<nvmlGpuInstancePlacement_t>,
    count: &Out<c_uint>,
) -> Result<(), Code> {
    let all: Vec<nvmlGpuInstancePlacement_t> = profile
        .starts
        .iter()
        .map(|&start| nvmlGpuInstancePlacement_t {
            start,
            size: profile.size,
        })
        .collect();
    if !placements.is_null() {
        placements.put_all(&all)?;
    }
    count.put(c_uint::try_from(all.len()).unwrap_or(c_uint::MAX))
}

fn create(
    machine: &Machine,
    device: Device,
    id: c_uint,
    place: Option<(u32, u32)>,
    instance: &Out<GpuInstance>,
) -> Result<(), Code> {
    let gpu = device.parent(machine)?;
    if instance.is_null() {
        return Err(Code::InvalidArgument);
    }
    may(Right::Config)?;
    instance.put(GpuInstance::of(
        machine.create_gpu_instance(gpu, id, place)?.reference,
    ))
}
