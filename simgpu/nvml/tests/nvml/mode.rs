//! MIG mode, its reset, who may change it, and the event of a change.

use std::process::Command;
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
fn without_the_right_nothing_changes() {
    if std::env::var_os("SIMGPU_NO_PERMISSION").is_none() {
        // The library reads its environment, which only a fresh process can have changed safely.
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "mode::without_the_right_nothing_changes"])
            .env("SIMGPU_NO_PERMISSION", "1");
        let output = again.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    let bench = Bench::new("a100-40gb", true);
    assert_eq!(bench.create(19).0, NO_PERMISSION);
    let device = bench.nvml().device_by_index(0).unwrap();
    assert!(matches!(device.set_mig_mode(false), Err(NvmlError::NoPermission)));
    assert_eq!(device.mig_mode().unwrap().pending, 1);
    assert_eq!(bench.reset(), 4);
}

#[test]
fn a_configuration_change_is_an_event() {
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
    bench.create(19);
    assert_eq!(event.device.index().unwrap(), 0);
    assert!(event.event_type.contains(EventTypes::MIG_CONFIG_CHANGE));
    assert!(set.wait(10_000).is_ok());
    assert!(matches!(set.wait(0), Err(NvmlError::Timeout)));
}
