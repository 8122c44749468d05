//! Initialisation, versions, and finding devices.

use std::ffi::{c_char, c_int, c_uint};

use simgpu::identity::uuid_text;
use simgpu::machine::pci_address;

use crate::code::{Code, words};
use crate::edge::{Buffer, Out, Text};
use crate::handles::Device;
use crate::library::{export, guarded, initialise, shut_down};

/// `nvmlInit_v2` of nvml.h.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    guarded(initialise)
}

/// `nvmlInit` of nvml.h.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> c_uint {
    guarded(initialise)
}

/// `nvmlInitWithFlags` of nvml.h. There is nothing that the flags could leave out.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    guarded(initialise)
}

/// `nvmlShutdown` of nvml.h.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    guarded(shut_down)
}

/// `nvmlErrorString` of nvml.h.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    words(result).as_ptr()
}

export! {
    fn nvmlSystemGetDriverVersion(machine, version: Buffer, length: c_uint) {
        version.put(length as usize, &machine.driver())
    }

    fn nvmlSystemGetNVMLVersion(machine, version: Buffer, length: c_uint) {
        let major = machine.driver_version() / 1000;
        version.put(length as usize, &format!("{major}.{}", machine.driver()))
    }

    fn nvmlSystemGetCudaDriverVersion(machine, version: Out<c_int>) {
        version.put(machine.driver_version())
    }

    fn nvmlSystemGetCudaDriverVersion_v2(machine, version: Out<c_int>) {
        version.put(machine.driver_version())
    }

    fn nvmlSystemGetProcessName(_machine, pid: c_uint, name: Buffer, length: c_uint) {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Code::NotFound)?;
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        name.put(length as usize, &String::from_utf8_lossy(first))
    }

    fn nvmlDeviceGetCount_v2(machine, count: Out<c_uint>) {
        count.put(machine.gpu_count())
    }

    fn nvmlDeviceGetCount(machine, count: Out<c_uint>) {
        count.put(machine.gpu_count())
    }

    fn nvmlDeviceGetHandleByIndex_v2(machine, index: c_uint, device: Out<Device>) {
        device.put(by_index(machine, index)?)
    }

    fn nvmlDeviceGetHandleByIndex(machine, index: c_uint, device: Out<Device>) {
        device.put(by_index(machine, index)?)
    }

    fn nvmlDeviceGetHandleByUUID(machine, uuid: Text, device: Out<Device>) {
        device.put(by_uuid(machine, uuid.read()?)?)
    }

    fn nvmlDeviceGetHandleByPciBusId_v2(machine, bus_id: Text, device: Out<Device>) {
        device.put(by_bus(machine, bus_id.read()?)?)
    }

    fn nvmlDeviceGetHandleByPciBusId(machine, bus_id: Text, device: Out<Device>) {
        device.put(by_bus(machine, bus_id.read()?)?)
    }
}

fn by_index(machine: &simgpu::Machine, index: c_uint) -> Result<Device, Code> {
    let device = Device::gpu(index);
    if index >= machine.gpu_count() {
        return Err(Code::InvalidArgument);
    }
    device.target(machine).map(|_| device)
}

fn by_uuid(machine: &simgpu::Machine, text: &str) -> Result<Device, Code> {
    for gpu in 0..machine.gpu_count() {
        if machine
            .gpu_uuid(gpu)
            .is_some_and(|uuid| text == format!("GPU-{}", uuid_text(uuid)))
        {
            return by_index(machine, gpu);
        }
        let mut devices = machine.mig_devices(gpu).into_iter().flatten();
        if let Some(info) = devices.find(|info| text == crate::device::mig_name(machine, info)) {
            return Ok(Device::mig(&info));
        }
    }
    Err(Code::NotFound)
}

/// Reads `0000:07:00.0`, with a domain of any length or none.
fn by_bus(machine: &simgpu::Machine, text: &str) -> Result<Device, Code> {
    let (address, function) = text.split_once('.').unwrap_or((text, "0"));
    let numbers: Option<Vec<u32>> = address
        .split(':')
        .map(|part| u32::from_str_radix(part, 16).ok())
        .collect();
    let wanted = match numbers.as_deref() {
        Some(&[domain, bus, device]) => (domain, bus, device),
        Some(&[bus, device]) => (0, bus, device),
        _ => return Err(Code::InvalidArgument),
    };
    let found = (0..machine.gpu_count()).find(|&gpu| pci_address(gpu) == wanted && function == "0");
    by_index(machine, found.ok_or(Code::NotFound)?)
}
