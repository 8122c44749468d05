//! What a driver does on a bad day, made to happen.

use std::ffi::{CString, c_char, c_int, c_uint};
use std::process::{Command, Stdio};

use nvml_wrapper::error::NvmlError;

use crate::bench::*;

#[test]
fn the_kth_creation_fails_with_the_code_given() {
    let bench = Bench::with(
        "a100-40gb",
        true,
        "580.82.07",
        "create-gi@2=insufficient-resources",
    );
    assert_eq!(bench.create(9).0, SUCCESS);
    assert_eq!(bench.create(9).0, INSUFFICIENT_RESOURCES);
    assert_eq!(bench.create(9).0, SUCCESS);
    assert_eq!(bench.set_faults("create-ci=999"), 0);
    let (code, instance) = bench.create_at(0, 0, 8);
    assert_eq!((code, instance.is_null()), (INSUFFICIENT_RESOURCES, true));
}

#[test]
fn half_a_slice_stays_when_its_compute_instance_fails() {
    let bench = Bench::with("a100-40gb", true, "580.82.07", "create-ci=unknown");
    let (_, instance) = bench.create(9);
    assert_eq!(bench.compute(instance, 2).0, 999);
    assert_eq!(bench.info(instance).profileId, 9);
    assert_eq!(bench.uuids(), []);
    assert_eq!(bench.compute(instance, 2).0, SUCCESS);
}

#[test]
fn in_use_passes_after_some_tries() {
    let bench = Bench::with(
        "a100-40gb",
        true,
        "580.82.07",
        "destroy-ci@1x2=in-use;destroy-gi=in-use",
    );
    let (instance, compute) = bench.slice(9, 2);
    let codes = [0; 3].map(|_| bench.destroy_compute(compute));
    assert_eq!(codes, [IN_USE, IN_USE, SUCCESS]);
    assert_eq!([0; 2].map(|_| bench.destroy(instance)), [IN_USE, SUCCESS]);
}

#[test]
fn another_process_meets_the_same_faults() {
    let bench = Bench::with("a100-40gb", true, "580.82.07", "gpu0/create-gi@2=in-use");
    // Both count the same calls.
    let other = simgpu::Machine::open_id(bench.id()).unwrap();
    assert!(other.create_gpu_instance(0, 19, None).is_ok());
    assert_eq!(bench.create(19).0, IN_USE);
}

#[test]
fn a_lost_gpu_says_so_to_every_call_and_the_other_works() {
    let bench = Bench::with("a100-40gb:2", true, "580.82.07", "gpu0/destroy-ci=lost");
    let (instance, compute) = bench.slice(9, 2);
    let (gpu, other) = (bench.gpu(), bench.gpu_at(1));
    assert_eq!(bench.destroy_compute(compute), GPU_IS_LOST);
    assert_eq!(bench.destroy(instance), GPU_IS_LOST);
    assert_eq!(bench.create_on(gpu, 19).0, GPU_IS_LOST);
    let mut memory = nvml_wrapper_sys::bindings::nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    // SAFETY: the out pointer is ours.
    let code = unsafe { bench.lib().nvmlDeviceGetMemoryInfo.as_ref().unwrap()(gpu, &raw mut memory) };
    assert_eq!(code, GPU_IS_LOST);
    assert!(matches!(bench.nvml().device_by_index(0), Err(NvmlError::GpuLost)));
    assert_eq!(bench.nvml().device_count().unwrap(), 2);
    assert_eq!(bench.create_on(other, 19).0, SUCCESS);
}

#[test]
fn a_mode_change_is_put_off_by_its_activation_status() {
    let bench = Bench::with(
        "h100-80gb",
        false,
        "580.82.07",
        "set-mode=in-use;set-mode@2=reset-required",
    );
    let device = bench.nvml().device_by_index(0).unwrap();
    for status in [IN_USE, RESET_REQUIRED] {
        assert_eq!(device.set_mig_mode(true).unwrap(), status);
        let mode = device.mig_mode().unwrap();
        assert_eq!((mode.current, mode.pending), (0, 1));
    }
    assert_eq!(device.set_mig_mode(true).unwrap(), SUCCESS);
    assert_eq!(device.mig_mode().unwrap().current, 1);
}

#[test]
fn faults_that_are_not_understood_leave_a_line_and_make_no_machine() {
    let bench = Bench::new("a100-40gb", true);
    assert_eq!(bench.set_faults("gpu0/crate-gi=in-use"), 2);
    let said = "SIMGPU_FAULTS: `gpu0/crate-gi=in-use`: `crate-gi` is none of the calls create-gi, create-ci, \
                destroy-gi, destroy-ci, set-mode, change";
    assert_eq!(bench.last_error(), said);
    type Create = unsafe extern "C" fn(
        *const c_char,
        c_int,
        f64,
        *const c_char,
        *const c_char,
        *mut c_char,
        usize,
    ) -> c_int;
    // SAFETY: the function has this type.
    let create = unsafe { bench.control.get::<Create>(b"simgpuCreate\0") }.unwrap();
    let faults = CString::new("gpu1/create-gi=in-use").unwrap();
    let (model, driver, mut id) = (c"a100-40gb", std::ptr::null(), [0; 64]);
    // SAFETY: the texts end in NUL or are null, and the buffer is of this many bytes.
    let code = unsafe {
        create(
            model.as_ptr(),
            1,
            1.0,
            driver,
            faults.as_ptr(),
            id.as_mut_ptr(),
            id.len(),
        )
    };
    assert_eq!((code, id[0]), (2, 0));
    assert!(
        bench
            .last_error()
            .ends_with("`gpu1` is none of the GPUs gpu0 to gpu0")
    );
}

/// Not a test by itself: a monitor, as [`a_monitor_that_holds_a_handle_is_found_by_its_open_file`] runs one.
#[test]
fn child_that_monitors() {
    if std::env::var_os("SIMGPU_HOLD").is_none() {
        return;
    }
    let nvml = nvml_wrapper::Nvml::builder()
        .lib_path(library_path().as_os_str())
        .init();
    match &nvml {
        Ok(_) => println!("monitoring"),
        Err(error) => println!("monitoring not: {error}"),
    }
    // Until it is told to end.
    let _ = std::io::read_to_string(std::io::stdin());
}

fn monitor(bench: &Bench, gpus: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::child_that_monitors", "--nocapture"])
        .env("SIMGPU_ID", bench.id())
        .env("SIMGPU_HOLD", gpus)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_monitor_that_holds_a_handle_is_found_by_its_open_file() {
    let bench = Bench::new("a100-40gb", true);
    let (instance, compute) = bench.slice(9, 2);
    let mut monitor = monitor(&bench, "0");
    wait_for_line(&mut monitor, "monitoring");
    assert_eq!(bench.destroy_compute(compute), SUCCESS);
    assert_eq!(bench.destroy(instance), IN_USE);
    let device = bench.nvml().device_by_index(0).unwrap();
    assert!(device.running_compute_processes().unwrap().is_empty());
    let files = std::fs::read_dir(format!("/proc/{}/fd", monitor.id())).unwrap();
    let mut open = files.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    assert!(open.any(|path| path.ends_with("dev/nvidia0")));
    kill(monitor);
    assert_eq!(bench.destroy(instance), SUCCESS);
}

#[test]
fn a_monitor_of_a_gpu_that_is_not_there_is_refused() {
    let bench = Bench::new("a100-40gb", true);
    let mut monitor = monitor(&bench, "1");
    wait_for_line(&mut monitor, "monitoring not");
    kill(monitor);
}

#[test]
fn point_13_a_capability_of_one_instance_holds_that_one() {
    let bench = Bench::new("a100-40gb", true);
    let (first, first_compute) = bench.slice(19, 0);
    let (second, second_compute) = bench.slice(19, 0);
    type Hold = unsafe extern "C" fn(c_uint, c_uint, c_uint) -> c_int;
    // SAFETY: the function has this type.
    let hold = unsafe { bench.control.get::<Hold>(b"simgpuHold\0") }.unwrap();
    // SAFETY: it takes numbers.
    let code = unsafe { hold(0, bench.info(first).id, c_uint::MAX) };
    assert_eq!(code, 0);
    let machine = simgpu::Machine::open_id(bench.id()).unwrap();
    let file = simgpu::device_files::DeviceFile::GpuInstance(0, bench.info(first).id);
    // The first 1g is number 13: 3 + 9 x 13.
    let path = machine.device_file(file).unwrap();
    assert!(
        path.ends_with("dev/nvidia-caps/nvidia-cap120") && path.exists(),
        "{path:?}"
    );
    assert_eq!(bench.destroy_compute(first_compute), IN_USE);
    assert_eq!(bench.destroy_compute(second_compute), SUCCESS);
    assert_eq!(bench.destroy(second), SUCCESS);
    // SAFETY: the function has this type.
    let release = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn() -> c_int>(b"simgpuRelease\0")
    }
    .unwrap();
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { release() }, 0);
    assert_eq!(bench.destroy_compute(first_compute), SUCCESS);
    assert_eq!(bench.destroy(first), SUCCESS);
}
