//! Initialisation, devices, error texts.

use std::ffi::{c_char, c_int, c_uint};

use simgpu::machine::Machine;

use crate::abi::{LegacyProperties, Uuid};
use crate::attributes;
use crate::code::{self, Code};
use crate::gate::{Out, Text, entries};
use crate::process::Process;

/// What `cuDriverGetVersion` says where no machine is found: the version of the API that is modelled.
const API_VERSION: i32 = 13_000;

entries! {
    fn cuInit(flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        Process::init()
    }

    fn cuDriverGetVersion(version: Out<c_int>) {
        version.put(driver_version())
    }

    fn cuDeviceGetCount(count: Out<c_int>) {
        let devices = Process::get()?.devices.len();
        count.put(c_int::try_from(devices).unwrap_or(c_int::MAX))
    }

    fn cuDeviceGet(device: Out<c_int>, ordinal: c_int) {
        Process::get()?.device(ordinal)?;
        device.put(ordinal)
    }

    fn cuDeviceGetName(name: Out<u8>, room: c_int, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        name.put_text(&found.info.name, room)
    }

    /// The first version knows GPUs only: it gives that of the GPU also for a slice.
    fn cuDeviceGetUuid(uuid: Out<Uuid>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        uuid.put(found.info.gpu_uuid)
    }

    fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        uuid.put(found.info.uuid)
    }

    fn cuDeviceTotalMem(bytes: Out<c_uint>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        bytes.put(c_uint::try_from(found.info.memory_total).unwrap_or(c_uint::MAX))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<u64>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        bytes.put(found.info.memory_total)
    }

    fn cuDeviceGetAttribute(value: Out<c_int>, attribute: c_int, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        value.put(attributes::of(found, attribute)?)
    }

    fn cuDeviceGetProperties(properties: Out<LegacyProperties>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        let of = |attribute| attributes::of(found, attribute);
        properties.put(LegacyProperties {
            max_threads_per_block: of(1)?,
            max_threads_dim: [of(2)?, of(3)?, of(4)?],
            max_grid_size: [of(5)?, of(6)?, of(7)?],
            shared_memory_per_block: of(8)?,
            total_constant_memory: of(9)?,
            simd_width: of(10)?,
            memory_pitch: of(11)?,
            registers_per_block: of(12)?,
            clock_rate: of(13)?,
            texture_align: of(14)?,
        })
    }

    fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        major.put(found.info.compute.0)?;
        minor.put(found.info.compute.1)
    }

    fn cuDeviceGetPCIBusId(text: Out<u8>, room: c_int, device: c_int) {
        let (_, found) = Process::get()?.device(device)?;
        let room = usize::try_from(room).map_err(|_| Code::INVALID_VALUE)?;
        text.put_text(&pci_bus_id(found), room)
    }

    fn cuDeviceGetByPCIBusId(device: Out<c_int>, text: Text) {
        let process = Process::get()?;
        let wanted = text.get()?.to_ascii_lowercase();
        let is_it = |found: &crate::process::Device| {
            let full = pci_bus_id(found);
            // The domain and the function may be left out.
            [&full[..], &full[5..], &full[..10], &full[5..10]].contains(&&wanted[..])
        };
        let index = process.devices.iter().position(is_it).ok_or(Code::INVALID_DEVICE)?;
        device.put(c_int::try_from(index).unwrap_or(c_int::MAX))
    }

    /// Slices and simulated GPUs have no way to each other.
    fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        let process = Process::get()?;
        process.device(device)?;
        process.device(peer)?;
        can.put(0)
    }

    fn cuDeviceGetP2PAttribute(value: Out<c_int>, attribute: c_int, device: c_int, peer: c_int) {
        let process = Process::get()?;
        process.device(device)?;
        process.device(peer)?;
        if device == peer || !(1..=5).contains(&attribute) {
            return Err(Code::INVALID_VALUE);
        }
        value.put(0)
    }

    fn cuGetErrorName(number: c_int, text: Out<*const c_char>) {
        let name = code::name(number);
        text.put(name.map_or(std::ptr::null(), std::ffi::CStr::as_ptr))?;
        name.map(drop).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(number: c_int, text: Out<*const c_char>) {
        let found = code::text(number);
        text.put(found.map_or(std::ptr::null(), std::ffi::CStr::as_ptr))?;
        found.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Profilers have nothing to look at here; the calls do what they do where none is attached.
    fn cuProfilerStart() { Process::get().map(drop) }
    fn cuProfilerStop() { Process::get().map(drop) }
}

/// The version that the driver reports; the real one answers that before `cuInit` as well.
pub(crate) fn driver_version() -> i32 {
    match Process::running() {
        Some(process) => process.machine.driver_version(),
        None => Machine::open().map_or(API_VERSION, |machine| machine.driver_version()),
    }
}

/// `0000:3b:00.0`
fn pci_bus_id(device: &crate::process::Device) -> String {
    let info = &device.info;
    format!(
        "{:04x}:{:02x}:{:02x}.0",
        info.pci_domain & 0xffff,
        info.pci_bus,
        info.pci_device
    )
}
