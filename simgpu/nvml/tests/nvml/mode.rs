//! MIG mode, its reset, who may change it, and the event of a change.

use std::time::{Duration, Instant};

use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED;

use crate::bench::*;

#[test]
fn an_ampere_waits_for_a_reset() {
    let bench = Bench::new("a100-40gb", false);
    let device = bench.nvml().device_by_index(0).unwrap();
    assert_eq!(device.set_mig_mode(true).unwrap(), 16);
    let mode = device.mig_mode().unwrap();
    assert_eq!((mode.current, mode.pending), (0, 1));
    assert_eq!(bench.create(19).0, NOT_SUPPORTED);
    assert_eq!(bench.reset(), 0);
    assert_eq!(device.mig_mode().unwrap().current, 1);
    assert_eq!(bench.create(19).0, SUCCESS);
    assert!(matches!(device.set_mig_mode(false), Err(NvmlError::InUse)));
    let values = device.field_values_for(&[nvml_wrapper::structs::device::FieldId(
        NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED,
    )]);
    assert_eq!(
        values.unwrap()[0].as_ref().unwrap().value.as_ref().unwrap(),
        &nvml_wrapper::enums::device::SampleValue::U32(0)
    );
}

#[test]
fn a_hopper_changes_mode_at_once_unless_a_process_is_there() {
    let bench = Bench::new("h100-80gb", false);
    let device = bench.nvml().device_by_index(0).unwrap();
    let tenant = bench.tenant(None, 1);
    assert_eq!(device.set_mig_mode(true).unwrap(), IN_USE);
    assert_eq!(device.mig_mode().unwrap().current, 0);
    kill(tenant);
    assert_eq!(device.set_mig_mode(true).unwrap(), 0);
    assert_eq!(device.mig_mode().unwrap().current, 1);
}

#[test]
fn point_13_without_the_right_nothing_changes() {
    if std::env::var("SIMGPU_NO_PERMISSION").as_deref() != Ok("1") {
        let test = "mode::point_13_without_the_right_nothing_changes";
        return again_with("SIMGPU_NO_PERMISSION", "1", test);
    }
    let bench = Bench::new("a100-40gb", true);
    assert_eq!(bench.create(19).0, NO_PERMISSION);
    let device = bench.nvml().device_by_index(0).unwrap();
    assert!(matches!(device.set_mig_mode(false), Err(NvmlError::NoPermission)));
    assert_eq!(device.mig_mode().unwrap().pending, 1);
    assert_eq!(bench.reset(), 4);
}

#[test]
fn point_18_a_configuration_change_is_an_event() {
    let bench = Bench::new("a100-40gb", true);
    let device = bench.nvml().device_by_index(0).unwrap();
    let set = bench.nvml().create_event_set().unwrap();
    bench.create(19);
    let set = device
        .register_events(EventTypes::MIG_CONFIG_CHANGE, set)
        .unwrap();
    let start = Instant::now();
    assert!(
        matches!(set.wait(30), Err(NvmlError::Timeout)),
        "what came before does not count"
    );
    assert!(start.elapsed() >= Duration::from_millis(30));
    let bench = &bench;
    let event = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            bench.create(19);
        });
        set.wait(10_000).unwrap()
    });
    let (_, instance) = bench.create(19);
    assert_eq!(event.device.index().unwrap(), 0);
    assert!(event.event_type.contains(EventTypes::MIG_CONFIG_CHANGE));
    assert!(set.wait(10_000).is_ok());
    assert_eq!(bench.destroy(instance), SUCCESS);
    assert!(set.wait(10_000).is_ok());
    assert_eq!(bench.create(0).0, INSUFFICIENT_RESOURCES);
    assert!(matches!(set.wait(0), Err(NvmlError::Timeout)), "nothing changed");
}

#[test]
fn point_01_the_mode_is_current_and_pending_and_an_ampere_keeps_it_over_a_reboot() {
    let bench = Bench::new("a100-40gb,h100-80gb", false);
    let (ampere, hopper) = (bench.gpu_at(0), bench.gpu_at(1));
    bench.set_mode(ampere, true);
    bench.set_mode(hopper, true);
    assert_eq!((bench.mode(ampere), bench.mode(hopper)), ([0, 1], [1, 1]));
    assert_eq!(bench.own("simgpuReload"), 0);
    assert_eq!((bench.mode(ampere), bench.mode(hopper)), ([1, 1], [0, 0]));
    // A mode taken back before the reset.
    bench.set_mode(ampere, false);
    assert_eq!(bench.mode(ampere), [1, 0]);
    bench.set_mode(ampere, true);
    assert_eq!(bench.reset(), 0);
    assert_eq!(bench.mode(ampere), [1, 1]);
}

#[test]
fn point_02_the_return_is_of_the_request_and_the_status_of_the_activation() {
    let bench = Bench::new("a100-40gb,h100-80gb", false);
    let (ampere, hopper) = (bench.gpu_at(0), bench.gpu_at(1));
    assert_eq!(bench.set_mode(ampere, true), (SUCCESS, RESET_REQUIRED));
    assert_eq!(bench.set_mode(hopper, true), (SUCCESS, SUCCESS));
    let mut status = 77;
    let set = bench.lib().nvmlDeviceSetMigMode.as_ref().unwrap();
    // SAFETY: the out pointer is ours.
    let code = unsafe { set(hopper, 2, &raw mut status) };
    assert_eq!((code, status), (INVALID_ARGUMENT, 77));
    assert_eq!(bench.create_on(hopper, 19).0, SUCCESS);
    assert_eq!(bench.set_mode(hopper, false), (IN_USE, IN_USE));
    assert_eq!(bench.mode(hopper), [1, 1]);
}

#[test]
fn point_09_the_first_gpu_instance_needs_an_idle_gpu() {
    let bench = Bench::new("a100-40gb", true);
    let machine = simgpu::Machine::open_id(bench.id()).unwrap();
    let held = machine.hold(simgpu::device_files::DeviceFile::Gpu(0)).unwrap();
    assert_eq!(bench.create(19).0, IN_USE);
    drop(held);
    assert_eq!(bench.create(19).0, SUCCESS);
    let _held = machine.hold(simgpu::device_files::DeviceFile::Gpu(0)).unwrap();
    assert_eq!(bench.create(19).0, SUCCESS);
}

#[test]
fn point_13_without_the_right_to_see_there_are_no_instances() {
    if std::env::var("SIMGPU_NO_PERMISSION").as_deref() != Ok("monitor") {
        let test = "mode::point_13_without_the_right_to_see_there_are_no_instances";
        return again_with("SIMGPU_NO_PERMISSION", "monitor", test);
    }
    let bench = Bench::new("a100-40gb", true);
    let (instance, _) = bench.slice(9, 2);
    assert_eq!(bench.uuids(), []);
    let list = bench.lib().nvmlDeviceGetGpuInstances.as_ref().unwrap();
    let (mut found, mut count) = ([std::ptr::null_mut(); 2], 0);
    // SAFETY: there is room for as many as the profile has at most.
    let code = unsafe { list(bench.gpu(), 9, found.as_mut_ptr(), &raw mut count) };
    assert_eq!(code, NO_PERMISSION);
    assert!(matches!(
        bench.nvml().device_by_index(0).unwrap().memory_info(),
        Err(NvmlError::NoPermission)
    ));
    assert_eq!(bench.info(instance).id, 2, "a handle that it has stays good");
}

#[test]
fn point_13_instances_and_mode_are_rights_apart() {
    if std::env::var("SIMGPU_NO_PERMISSION").as_deref() != Ok("mode") {
        let test = "mode::point_13_instances_and_mode_are_rights_apart";
        return again_with("SIMGPU_NO_PERMISSION", "mode", test);
    }
    let bench = Bench::new("a100-40gb", true);
    assert_eq!(bench.create(19).0, SUCCESS);
    assert_eq!(bench.set_mode(bench.gpu(), false).0, NO_PERMISSION);
    assert_eq!(bench.reset(), 4);
}

#[test]
fn a_guest_reboots_for_a_mode() {
    if std::env::var("SIMGPU_GUEST").is_err() {
        return again_with("SIMGPU_GUEST", "passthrough", "mode::a_guest_reboots_for_a_mode");
    }
    let bench = Bench::new("h100-80gb", false);
    let mut mode = 77;
    let get = bench.lib().nvmlDeviceGetVirtualizationMode.as_ref().unwrap();
    // SAFETY: the out pointer is ours.
    let code = unsafe { get(bench.gpu(), &raw mut mode) };
    assert_eq!((code, mode), (SUCCESS, 1));
    assert_eq!(bench.set_mode(bench.gpu(), true), (SUCCESS, RESET_REQUIRED));
    assert_eq!(bench.reset(), 3);
    assert_eq!(bench.own("simgpuReload"), 0);
    assert_eq!(bench.mode(bench.gpu()), [1, 1]);
}

#[test]
fn point_16_a_reset_and_a_reboot_take_all_instances() {
    let bench = Bench::new("a100-40gb:2", true);
    let other = bench.gpu_at(1);
    let (instance, compute) = bench.slice(9, 2);
    let (code, elsewhere) = bench.create_on(other, 9);
    assert_eq!(code, SUCCESS);
    let uuid = bench.uuids()[0].clone().unwrap();
    let tenant = bench.tenant(Some(&uuid), 1);
    assert_eq!(bench.reset(), 19, "a process is there");
    assert_eq!(bench.own("simgpuReload"), 19);
    kill(tenant);
    assert_eq!(bench.reset(), 0);
    assert_eq!(bench.destroy_compute(compute), INVALID_ARGUMENT);
    assert_eq!(bench.destroy(instance), INVALID_ARGUMENT);
    assert_eq!(bench.uuids(), []);
    assert_eq!(bench.info(elsewhere).id, 2, "only the GPU that was reset");
    assert_eq!(bench.own("simgpuReload"), 0);
    assert_eq!(bench.destroy(elsewhere), INVALID_ARGUMENT);
    assert_eq!(bench.mode(other), [1, 1]);
}
