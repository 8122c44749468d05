//! What a device is called, and where it is found.

use nvml_wrapper::error::NvmlError;

use crate::bench::*;

#[test]
fn what_a_program_sees_first() {
    let bench = Bench::new("a100-40gb:2", false);
    let nvml = bench.nvml();
    assert_eq!(nvml.device_count().unwrap(), 2);
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.82.07");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13_000);
    let device = nvml.device_by_index(1).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA A100-SXM4-40GB");
    assert_eq!(device.index().unwrap(), 1);
    let uuid = device.uuid().unwrap();
    assert_eq!(nvml.device_by_uuid(uuid.as_str()).unwrap().index().unwrap(), 1);
    let pci = device.pci_info().unwrap();
    assert_eq!(pci.bus_id, "00000000:0F:00.0");
    assert_eq!(nvml.device_by_pci_bus_id(pci.bus_id).unwrap().index().unwrap(), 1);
    let memory = device.memory_info().unwrap();
    assert_eq!((memory.total >> 20, memory.used), (40_960, 0));
    assert_eq!(memory.total, memory.reserved + memory.free);
    let mode = device.mig_mode().unwrap();
    assert_eq!((mode.current, mode.pending), (0, 0));
    assert_eq!(device.mig_device_count().unwrap(), 0);
    assert!(matches!(nvml.device_by_index(2), Err(NvmlError::InvalidArg)));
    assert!(matches!(
        device.temperature(nvml_wrapper::enum_wrappers::device::TemperatureSensor::Gpu),
        Err(NvmlError::NotSupported)
    ));
}

#[test]
fn point_08_a_destroyed_device_leaves_a_hole_until_the_next_creation() {
    let bench = Bench::new("a100-40gb", true);
    let slices: Vec<_> = (0..3).map(|_| bench.slice(19, 0)).collect();
    let before = bench.uuids();
    assert_eq!(before.len(), 3);
    // The first two were created at 6 and 4, the third at 5: indices follow the instance ids, so 4, 5, 6.
    let (instance, compute) = slices[1];
    assert_eq!(bench.destroy_compute(compute), SUCCESS);
    assert_eq!(bench.uuids(), [None, before[1].clone(), before[2].clone()]);
    assert_eq!(bench.destroy(instance), SUCCESS);
    bench.slice(14, 1);
    let after = bench.uuids();
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(Option::is_some), "{after:?}");
}

#[test]
fn point_12_a_uuid_comes_back_with_its_place() {
    let bench = Bench::new("a100-40gb", true);
    let (instance, compute) = bench.slice(9, 2);
    let first = bench.uuids();
    bench.destroy_compute(compute);
    bench.destroy(instance);
    bench.slice(9, 2);
    assert_eq!(bench.uuids(), first);
}

#[test]
fn point_12_another_history_gives_another_uuid() {
    let bench = Bench::new("a100-40gb", true);
    let (instance, compute) = bench.slice(9, 2);
    let first = bench.uuids()[0].clone().unwrap();
    bench.destroy_compute(compute);
    bench.destroy(instance);
    bench.slice(19, 0);
    bench.create_at(9, 0, 4);
    let (code, instance) = bench.create_at(19, 4, 1);
    assert_eq!(code, SUCCESS);
    bench.compute(instance, 0);
    assert!(!bench.uuids().contains(&Some(first)));
}

#[test]
fn point_12_a_uuid_is_of_instance_and_engine_and_so_of_another_profile_too() {
    let bench = Bench::new("a100-40gb", true);
    let of = |profile, compute_profile| {
        let (code, instance) = bench.create_at(profile, 0, 4);
        assert_eq!(code, SUCCESS);
        let (code, compute) = bench.compute(instance, compute_profile);
        assert_eq!(code, SUCCESS);
        let uuid = bench.uuids()[0].clone().unwrap();
        assert_eq!(bench.destroy_compute(compute), SUCCESS);
        assert_eq!(bench.destroy(instance), SUCCESS);
        uuid
    };
    let three = of(9, 2);
    assert_eq!(of(5, 3), three);
    assert_eq!((three.len(), &three[..4], &three[18..19]), (40, "MIG-", "5"));
}
