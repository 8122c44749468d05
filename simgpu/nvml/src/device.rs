//! What a GPU or a MIG device is and has.

use std::ffi::{c_int, c_uint, c_ulonglong};

use nvml_wrapper_sys::bindings::{
    nvmlDeviceAttributes_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t,
    nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t, nvmlValue_t,
};
use simgpu::identity::uuid_text;
use simgpu::machine::pci_address;
use simgpu::mig::ComputeInstanceInfo;
use simgpu::model::Architecture;
use simgpu::{Machine, ProcessUse};

use crate::code::{Code, returned};
use crate::edge::{Buffer, Out, Versioned, text_array};
use crate::handles::{Device, Target};
use crate::library::{export, since};
use crate::rights::{Right, may};

/// Field ids of `nvmlDeviceGetFieldValues`.
mod field {
    pub(super) const TOTAL_ENERGY: u32 = 83;
    pub(super) const RESETLESS_MIG: u32 = 184;
    /// Whether MIG is described while it is off.
    pub(super) const PROFILES_WITHOUT_MIG: u32 = 199;
    pub(super) const POWER_INSTANT: u32 = 186;
}

/// Types of a field's value.
mod value_type {
    pub(super) const UNSIGNED_INT: u32 = 1;
    pub(super) const UNSIGNED_LONG_LONG: u32 = 3;
}

/// The UUID of a MIG device as text: with its parent and ids before R470.
pub(crate) fn mig_name(machine: &Machine, info: &ComputeInstanceInfo) -> String {
    let slice = info
        .device
        .slice
        .filter(|_| !machine.driver_branch().has_mig_uuids());
    match (slice, machine.gpu_uuid(info.device.gpu)) {
        (Some(slice), Some(gpu)) => format!("MIG-GPU-{}/{}/{}", uuid_text(gpu), slice.gi, slice.ci),
        _ => format!("MIG-{}", uuid_text(info.uuid)),
    }
}

export! {
    fn nvmlDeviceGetName(machine, device: Device, name: Buffer, length: c_uint) {
        let target = device.target(machine)?;
        name.put(length as usize, &machine.device(target.device()).name)
    }

    fn nvmlDeviceGetUUID(machine, device: Device, uuid: Buffer, length: c_uint) {
        let text = match device.target(machine)? {
            Target::Gpu(gpu) => format!("GPU-{}", uuid_text(machine.gpu_uuid(gpu).ok_or(Code::InvalidArgument)?)),
            Target::Mig(info) => mig_name(machine, &info),
        };
        uuid.put(length as usize, &text)
    }

    fn nvmlDeviceGetIndex(machine, device: Device, index: Out<c_uint>) {
        match device.target(machine)? {
            Target::Gpu(gpu) => index.put(gpu),
            Target::Mig(info) => {
                let devices = machine.mig_devices(info.device.gpu);
                let is_it = |other: &Option<ComputeInstanceInfo>| other.is_some_and(|other| other.device == info.device);
                let found = devices.iter().position(is_it).ok_or(Code::InvalidArgument)?;
                index.put(c_uint::try_from(found).unwrap_or(c_uint::MAX))
            }
        }
    }

    fn nvmlDeviceGetMinorNumber(machine, device: Device, minor: Out<c_uint>) {
        minor.put(device.whole(machine)?)
    }

    fn nvmlDeviceGetArchitecture(machine, device: Device, architecture: Out<c_uint>) {
        architecture.put(match model(machine, device)?.architecture {
            Architecture::Ampere => 7,
            Architecture::Hopper => 9,
            Architecture::Blackwell => 10,
        })
    }

    fn nvmlDeviceGetCudaComputeCapability(machine, device: Device, major: Out<c_int>, minor: Out<c_int>) {
        let (high, low) = model(machine, device)?.capability;
        major.put(high)?;
        minor.put(low)
    }

    fn nvmlDeviceGetMemoryBusWidth(machine, device: Device, width: Out<c_uint>) {
        device.whole(machine)?;
        width.put(model(machine, device)?.memory_bus_bits)
    }

    fn nvmlDeviceGetMaxClockInfo(machine, device: Device, domain: c_uint, megahertz: Out<c_uint>) {
        device.whole(machine)?;
        let model = model(machine, device)?;
        match domain {
            0 | 1 => megahertz.put(model.clock_khz / 1000),
            2 => megahertz.put(model.memory_clock_khz / 1000),
            3 => Err(Code::NotSupported),
            _ => Err(Code::InvalidArgument),
        }
    }

    fn nvmlDeviceGetVirtualizationMode(machine, device: Device, mode: Out<c_uint>) {
        device.whole(machine)?;
        mode.put(machine.guest() as c_uint)
    }

    fn nvmlDeviceGetPersistenceMode(machine, device: Device, mode: Out<c_uint>) {
        device.whole(machine)?;
        mode.put(0)
    }

    fn nvmlDeviceGetComputeMode(machine, device: Device, mode: Out<c_uint>) {
        device.target(machine)?;
        mode.put(0)
    }

    fn nvmlDeviceGetPciInfo_v3(machine, device: Device, info: Out<nvmlPciInfo_t>) {
        info.put(pci_info(machine, device)?)
    }

    fn nvmlDeviceGetPciInfo_v2(machine, device: Device, info: Out<nvmlPciInfo_t>) {
        info.put(pci_info(machine, device)?)
    }

    fn nvmlDeviceGetMemoryInfo(machine, device: Device, info: Out<nvmlMemory_t>) {
        let memory = Memory::of(machine, device)?;
        info.put(nvmlMemory_t { total: memory.total, free: memory.free, used: memory.total - memory.free })
    }

    fn nvmlDeviceGetMemoryInfo_v2(machine, device: Device, info: Versioned) {
        since(machine, 510)?;
        let memory = Memory::of(machine, device)?;
        let Memory { total, free, used } = memory;
        info.put_if(2, |version| nvmlMemory_v2_t { version, total, reserved: total - free - used, free, used })
    }

    fn nvmlDeviceGetPowerUsage(machine, device: Device, milliwatts: Out<c_uint>) {
        milliwatts.put(whole_number(machine.watts(device.whole(machine)?) * 1e3))
    }

    fn nvmlDeviceGetPowerManagementLimit(machine, device: Device, milliwatts: Out<c_uint>) {
        device.whole(machine)?;
        milliwatts.put(whole_number(model(machine, device)?.power.limit * 1e3))
    }

    fn nvmlDeviceGetEnforcedPowerLimit(machine, device: Device, milliwatts: Out<c_uint>) {
        device.whole(machine)?;
        milliwatts.put(whole_number(model(machine, device)?.power.limit * 1e3))
    }

    fn nvmlDeviceGetTotalEnergyConsumption(machine, device: Device, millijoules: Out<c_ulonglong>) {
        millijoules.put(energy(machine, device.whole(machine)?))
    }

    fn nvmlDeviceGetComputeRunningProcesses(
        machine, device: Device, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v1_t>
    ) {
        let of = |using: ProcessUse| nvmlProcessInfo_v1_t { pid: using.pid, usedGpuMemory: using.bytes };
        infos.put_list(&count, &processes(machine, device)?.into_iter().map(of).collect::<Vec<_>>())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(
        machine, device: Device, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v2_t>
    ) {
        since(machine, 455)?;
        put_processes(machine, device, &count, &infos)
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(
        machine, device: Device, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v2_t>
    ) {
        since(machine, 510)?;
        put_processes(machine, device, &count, &infos)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(machine, device: Device, count: Out<c_uint>, _infos: Out<()>) {
        nobody(machine, device, &count)
    }

    fn nvmlDeviceGetAttributes_v2(machine, device: Device, attributes: Out<nvmlDeviceAttributes_t>) {
        let info = device.slice(machine)?;
        let (gi, ci) = (info.parent.profile, info.profile);
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: ci.sms,
            sharedCopyEngineCount: gi.engines.copy,
            sharedDecoderCount: gi.engines.decoder,
            sharedEncoderCount: gi.engines.encoder,
            sharedJpegCount: gi.engines.jpeg,
            sharedOfaCount: gi.engines.ofa,
            gpuInstanceSliceCount: gi.compute,
            computeInstanceSliceCount: ci.slices,
            memorySizeMB: gi.memory_mib,
        })
    }

    fn nvmlDeviceGetFieldValues(machine, device: Device, count: c_int, values: Out<nvmlFieldValue_t>) {
        let target = device.target(machine)?;
        for index in 0..usize::try_from(count).map_err(|_| Code::InvalidArgument)? {
            let place = values.at(index);
            let asked = place.get()?;
            let (kind, value, code) = field_value(machine, target, asked.fieldId);
            place.put(nvmlFieldValue_t { valueType: kind, value, nvmlReturn: returned(code), ..asked })?;
        }
        Ok(())
    }
}

fn model(machine: &Machine, device: Device) -> Result<&'static simgpu::model::Model, Code> {
    machine
        .model(device.target(machine)?.gpu())
        .ok_or(Code::InvalidArgument)
}

/// Bytes as NVML counts them: `total` includes what the driver keeps.
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

impl Memory {
    fn of(machine: &Machine, device: Device) -> Result<Self, Code> {
        match device.target(machine)? {
            Target::Gpu(gpu) => {
                if machine.mig_mode(gpu)?.0 {
                    may(Right::Monitor)?;
                }
                let memory = machine.memory(gpu, None);
                let total = machine.model(gpu).map_or(0, |model| model.framebuffer_mib << 20);
                Ok(Self {
                    total,
                    free: memory.free,
                    used: memory.used,
                })
            }
            Target::Mig(info) => {
                let memory = machine.memory(info.device.gpu, Some(info.parent.reference.gi));
                Ok(Self {
                    total: memory.total,
                    free: memory.free,
                    used: memory.used,
                })
            }
        }
    }
}

fn processes(machine: &Machine, device: Device) -> Result<Vec<ProcessUse>, Code> {
    let target = device.target(machine)?;
    let mut processes = machine.processes(target.gpu());
    if let Target::Mig(info) = target {
        let place = info.device.slice.map(|slice| (slice.gi, slice.ci));
        processes.retain(|using| using.slice == place);
    }
    Ok(processes)
}

fn put_processes(
    machine: &Machine,
    device: Device,
    count: &Out<c_uint>,
    infos: &Out<nvmlProcessInfo_v2_t>,
) -> Result<(), Code> {
    let of = |using: ProcessUse| {
        let (gi, ci) = using.slice.unwrap_or((c_uint::MAX, c_uint::MAX));
        nvmlProcessInfo_v2_t {
            pid: using.pid,
            usedGpuMemory: using.bytes,
            gpuInstanceId: gi,
            computeInstanceId: ci,
        }
    };
    infos.put_list(
        count,
        &processes(machine, device)?
            .into_iter()
            .map(of)
            .collect::<Vec<_>>(),
    )
}

/// No process draws, and there is no MPS.
fn nobody(machine: &Machine, device: Device, count: &Out<c_uint>) -> Result<(), Code> {
    device.target(machine)?;
    count.put(0)
}

fn pci_info(machine: &Machine, device: Device) -> Result<nvmlPciInfo_t, Code> {
    let gpu = device.target(machine)?.gpu();
    let (domain, bus, slot) = pci_address(gpu);
    Ok(nvmlPciInfo_t {
        busIdLegacy: text_array(&format!("{domain:04X}:{bus:02X}:{slot:02X}.0")),
        domain,
        bus,
        device: slot,
        pciDeviceId: model(machine, device)?.pci_id,
        pciSubSystemId: 0,
        busId: text_array(&format!("{domain:08X}:{bus:02X}:{slot:02X}.0")),
    })
}

fn field_value(machine: &Machine, target: Target, id: u32) -> (u32, nvmlValue_t, Result<(), Code>) {
    let int = |value| (value_type::UNSIGNED_INT, nvmlValue_t { uiVal: value }, Ok(()));
    match (target, id) {
        (Target::Gpu(gpu), field::TOTAL_ENERGY) => (
            value_type::UNSIGNED_LONG_LONG,
            nvmlValue_t {
                ullVal: energy(machine, gpu),
            },
            Ok(()),
        ),
        (Target::Gpu(gpu), field::POWER_INSTANT) => int(whole_number(machine.watts(gpu) * 1e3)),
        (Target::Gpu(gpu), field::RESETLESS_MIG) if machine.driver_branch().tells_resetless_mig() => {
            let ampere = machine
                .model(gpu)
                .is_some_and(|model| model.architecture == Architecture::Ampere);
            int(u32::from(!ampere))
        }
        (Target::Gpu(_), field::PROFILES_WITHOUT_MIG)
            if machine.driver_branch().lists_profiles_without_mig() =>
        {
            int(1)
        }
        _ => (
            value_type::UNSIGNED_INT,
            nvmlValue_t { ullVal: 0 },
            Err(Code::NotSupported),
        ),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "joules are not negative; `as` saturates"
)]
fn energy(machine: &Machine, gpu: u32) -> u64 {
    (machine.energy_joules(gpu) * 1e3) as u64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "watts are not negative; `as` saturates"
)]
fn whole_number(value: f64) -> u32 {
    value.round() as u32
}
