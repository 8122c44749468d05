//! GPU instances and compute instances from creation to destruction.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::*;

use crate::bench::*;

#[test]
fn point_10_the_life_of_a_slice() {
    let bench = Bench::new("a100-40gb", true);
    let (instance, compute) = bench.slice(9, 2);
    let info = bench.info(instance);
    assert_eq!(
        (info.id, info.profileId, info.placement.start, info.placement.size),
        (2, 9, 4, 4)
    );
    let gpu = bench.nvml().device_by_index(0).unwrap();
    let device = gpu.mig_device_by_index(0).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA A100-SXM4-40GB MIG 3g.20gb");
    let attributes = device.attributes().unwrap();
    assert_eq!(
        (
            attributes.multiprocessor_count,
            attributes.gpu_instance_slice_count
        ),
        (42, 3)
    );
    assert_eq!(device.memory_info().unwrap().total, 20_096 << 20);
    assert_eq!(
        device.mig_parent_device().unwrap().uuid().unwrap(),
        gpu.uuid().unwrap()
    );
    assert!(matches!(device.power_usage(), Err(NvmlError::NotSupported)));
    assert!(matches!(
        device.total_energy_consumption(),
        Err(NvmlError::NotSupported)
    ));
    assert!(matches!(device.utilization_rates(), Err(NvmlError::NotSupported)));

    let uuid = device.uuid().unwrap();
    assert_eq!(
        bench
            .nvml()
            .device_by_uuid(uuid.as_str())
            .unwrap()
            .index()
            .unwrap(),
        0
    );
    let tenant = bench.tenant(Some(&uuid), 1 << 30);
    assert_eq!(device.memory_info().unwrap().used, 1 << 30);
    assert_eq!(gpu.memory_info().unwrap().used, 1 << 30);
    let processes = device.running_compute_processes().unwrap();
    assert_eq!(processes.len(), 1);
    assert_eq!(processes[0].pid, tenant.id());
    assert_eq!(
        (processes[0].gpu_instance_id, processes[0].compute_instance_id),
        (Some(2), Some(0))
    );
    assert_eq!(bench.destroy_compute(compute), IN_USE);
    assert_eq!(bench.destroy(instance), IN_USE);
    kill(tenant);
    assert_eq!(device.memory_info().unwrap().used, 0);
    assert_eq!(bench.destroy(instance), IN_USE, "it still has a compute instance");
    assert_eq!(bench.destroy_compute(compute), SUCCESS);
    assert_eq!(bench.destroy_compute(compute), INVALID_ARGUMENT);
    assert!(matches!(device.name(), Err(NvmlError::InvalidArg)));
    assert_eq!(bench.destroy(instance), SUCCESS);
    assert_eq!(bench.destroy(instance), INVALID_ARGUMENT);
}

#[test]
fn refusals_have_the_drivers_codes() {
    let bench = Bench::new("a100-40gb", true);
    assert_eq!(bench.create(77).0, INVALID_ARGUMENT);
    assert_eq!(bench.create_at(9, 2, 4).0, INVALID_ARGUMENT);
    assert_eq!(bench.create_at(9, 0, 3).0, INVALID_ARGUMENT);
    assert_eq!(bench.create_at(9, 0, 4).0, SUCCESS);
    assert_eq!(bench.create_at(9, 0, 4).0, INSUFFICIENT_RESOURCES);
    assert_eq!(bench.create(0).0, INSUFFICIENT_RESOURCES);
    let by_id = bench.lib().nvmlDeviceGetGpuInstanceById.as_ref().unwrap();
    let mut instance = std::ptr::null_mut();
    // SAFETY: the out pointer is ours.
    let code = unsafe { by_id(bench.gpu(), 2, &raw mut instance) };
    assert_eq!(code, NOT_FOUND);
    // SAFETY: as above.
    let code = unsafe { by_id(bench.gpu(), 1, &raw mut instance) };
    assert_eq!(code, SUCCESS);
    assert_eq!(bench.compute(instance, 4).0, INVALID_ARGUMENT);
    assert_eq!(bench.compute(instance, 2).0, SUCCESS);
    assert_eq!(bench.compute(instance, 0).0, INSUFFICIENT_RESOURCES);
}

#[test]
fn compute_instances_share_out_a_gpu_instance() {
    let bench = Bench::new("a100-40gb", true);
    let (_, instance) = bench.create(9);
    let capacity = bench
        .lib()
        .nvmlGpuInstanceGetComputeInstanceRemainingCapacity
        .as_ref()
        .unwrap();
    let remaining = |profile| {
        let mut count = 99;
        // SAFETY: the out pointer is ours.
        let code = unsafe { capacity(instance, profile, &raw mut count) };
        assert_eq!(code, SUCCESS);
        count
    };
    assert_eq!([0, 1, 2].map(remaining), [3, 1, 1]);
    let (code, first) = bench.compute(instance, 0);
    assert_eq!(code, SUCCESS);
    assert_eq!([0, 1, 2].map(remaining), [2, 0, 0]);
    bench.compute(instance, 0);
    bench.destroy_compute(first);
    let (_, third) = bench.compute(instance, 0);
    let get = bench.lib().nvmlComputeInstanceGetInfo_v2.as_ref().unwrap();
    // SAFETY: plain numbers and pointers.
    let mut info: nvmlComputeInstanceInfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the out pointer is ours.
    let code = unsafe { get(third, &raw mut info) };
    assert_eq!(code, SUCCESS);
    assert_eq!(
        (info.id, info.profileId, info.placement.start, info.placement.size),
        (0, 0, 0, 1)
    );
    assert_eq!((info.device, info.gpuInstance), (bench.gpu(), instance));
    let gpu = bench.nvml().device_by_index(0).unwrap();
    let device = gpu.mig_device_by_index(1).unwrap();
    assert_eq!(device.name().unwrap(), "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb");
    let attributes = device.attributes().unwrap();
    assert_eq!(
        (attributes.multiprocessor_count, attributes.memory_size_mb),
        (14, 20_096)
    );
}

#[test]
fn point_10_in_use_by_a_process_a_handle_a_compute_instance_or_for_a_while() {
    let bench = Bench::new("a100-40gb", true);
    let machine = simgpu::Machine::open_id(bench.id()).unwrap();
    let (instance, compute) = bench.slice(9, 2);
    assert_eq!(bench.destroy(instance), IN_USE, "a compute instance");
    let uuid = bench.uuids()[0].clone().unwrap();
    let tenant = bench.tenant(Some(&uuid), 1);
    assert_eq!(bench.destroy_compute(compute), IN_USE, "a process");
    kill(tenant);
    bench.set_faults("destroy-ci@1x2=in-use");
    let tries = [(); 3].map(|()| bench.destroy_compute(compute));
    assert_eq!(tries, [IN_USE, IN_USE, SUCCESS], "for a while");
    let held = machine.hold(simgpu::device_files::DeviceFile::Gpu(0)).unwrap();
    assert_eq!(bench.destroy(instance), IN_USE, "a monitor");
    drop(held);
    assert_eq!(bench.destroy(instance), SUCCESS);
}

#[test]
fn point_11_what_came_before_the_creation_that_fails_stays() {
    let bench = Bench::with(
        "a100-40gb",
        true,
        "580",
        "create-gi@3=unknown;create-ci@2=insufficient-resources",
    );
    let made: Vec<_> = [19, 19, 19].map(|profile| bench.create(profile)).to_vec();
    assert_eq!(
        made.iter().map(|(code, _)| *code).collect::<Vec<_>>(),
        [SUCCESS, SUCCESS, 999]
    );
    let computes = [made[0].1, made[1].1].map(|instance| bench.compute(instance, 0).0);
    assert_eq!(computes, [SUCCESS, INSUFFICIENT_RESOURCES]);
    // One slice, one GPU instance without compute instance, nothing of the third.
    assert_eq!(bench.uuids().len(), 1);
    assert_eq!(bench.capacity(19), 5);
    assert_eq!(bench.destroy(made[1].1), SUCCESS);
    assert_eq!(bench.destroy(made[0].1), IN_USE);
}

#[test]
fn point_14_a_mig_device_has_no_power_clocks_or_utilisation() {
    let bench = Bench::new("a100-40gb", true);
    bench.slice(9, 2);
    let gpu = bench.nvml().device_by_index(0).unwrap();
    let device = gpu.mig_device_by_index(0).unwrap();
    let is_refused = |error: NvmlError| matches!(error, NvmlError::NotSupported);
    assert!(is_refused(device.power_usage().unwrap_err()));
    assert!(is_refused(device.total_energy_consumption().unwrap_err()));
    assert!(is_refused(device.utilization_rates().unwrap_err()));
    assert!(is_refused(device.encoder_utilization().unwrap_err()));
    assert!(is_refused(device.num_cores().unwrap_err()));
    let clock = nvml_wrapper::enum_wrappers::device::Clock::SM;
    assert!(is_refused(device.max_clock_info(clock).unwrap_err()));
    assert!(
        is_refused(gpu.utilization_rates().unwrap_err()),
        "nor has its GPU"
    );
    assert!(gpu.power_usage().is_ok() && gpu.total_energy_consumption().is_ok());
    assert!(device.memory_info().is_ok() && device.attributes().is_ok());
    assert!(device.running_compute_processes().is_ok() && device.uuid().is_ok());
}

#[test]
fn point_17_changes_take_their_time_and_a_mode_change_most() {
    let bench = Bench::new("a100-40gb", true);
    // The machine's time is a hundredth of the simulated one. Only that it takes no less can be said of a busy machine.
    let least = |milliseconds: u64, change: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        change();
        let taken = start.elapsed();
        assert!(
            taken >= std::time::Duration::from_micros(milliseconds * 10),
            "{taken:?}"
        );
    };
    let (mut instance, mut compute) = (std::ptr::null_mut(), std::ptr::null_mut());
    least(40, &mut || instance = bench.create(9).1);
    least(30, &mut || compute = bench.compute(instance, 2).1);
    least(30, &mut || assert_eq!(bench.create(0).0, INSUFFICIENT_RESOURCES));
    least(30, &mut || assert_eq!(bench.destroy_compute(compute), SUCCESS));
    least(80, &mut || assert_eq!(bench.destroy(instance), SUCCESS));
    least(8000, &mut || assert_eq!(bench.reset(), 0));
}
