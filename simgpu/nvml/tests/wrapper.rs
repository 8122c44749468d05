//! The built shared object as `nvml-wrapper` and the raw bindings see it.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED;
use nvml_wrapper_sys::bindings::*;

const SUCCESS: c_uint = 0;
const INVALID_ARGUMENT: c_uint = 2;
const NOT_SUPPORTED: c_uint = 3;
const NO_PERMISSION: c_uint = 4;
const NOT_FOUND: c_uint = 6;
const IN_USE: c_uint = 19;
const INSUFFICIENT_RESOURCES: c_uint = 23;
const VERSION_MISMATCH: c_uint = 25;

/// The library holds one machine per process, so one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn library_path() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    exe.parent().unwrap().join("libsimgpu_nvml.so")
}

/// A machine of a test's own, and the library on it.
struct Bench {
    nvml: Option<Nvml>,
    id: CString,
    control: libloading::Library,
    _turn: MutexGuard<'static, ()>,
}

type Select = unsafe extern "C" fn(*const c_char) -> c_int;

impl Bench {
    fn new(gpus: &str, mig: bool) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the library's start-up code is Rust's only.
        let control = unsafe { libloading::Library::new(library_path()) }.unwrap();
        let mut id = [0; 64];
        {
            type Create = unsafe extern "C" fn(*const c_char, c_int, f64, *mut c_char, usize) -> c_int;
            // SAFETY: the function has this type.
            let create = unsafe { control.get::<Create>(b"simgpuCreate\0") }.unwrap();
            let gpus = CString::new(gpus).unwrap();
            // SAFETY: the pointers are of this many bytes.
            let created = unsafe { create(gpus.as_ptr(), mig.into(), 0.01, id.as_mut_ptr(), id.len()) };
            assert_eq!(created, 0);
        }
        // SAFETY: written by the library with its NUL.
        let id = unsafe { CStr::from_ptr(id.as_ptr()) }.to_owned();
        let mut bench = Self {
            nvml: None,
            id,
            control,
            _turn: turn,
        };
        assert_eq!(bench.control("simgpuSelect"), 0);
        bench.nvml = Some(
            Nvml::builder()
                .lib_path(library_path().as_os_str())
                .init()
                .unwrap(),
        );
        bench
    }

    fn control(&self, name: &str) -> c_int {
        // SAFETY: the functions that take an id have this type.
        let function = unsafe { self.control.get::<Select>(name.as_bytes()) }.unwrap();
        // SAFETY: the id ends in NUL.
        unsafe { function(self.id.as_ptr()) }
    }

    fn reset(&self) -> c_int {
        // SAFETY: the function has this type.
        let function = unsafe {
            self.control
                .get::<unsafe extern "C" fn(c_uint) -> c_int>(b"simgpuReset\0")
        }
        .unwrap();
        // SAFETY: it takes a number.
        unsafe { function(0) }
    }

    fn nvml(&self) -> &Nvml {
        self.nvml.as_ref().unwrap()
    }

    fn lib(&self) -> &NvmlLib {
        self.nvml().lib()
    }

    fn gpu(&self) -> nvmlDevice_t {
        // SAFETY: the handle is used with this library only.
        unsafe { self.nvml().device_by_index(0).unwrap().handle() }
    }

    fn create(&self, profile: c_uint) -> (c_uint, nvmlGpuInstance_t) {
        let mut instance = std::ptr::null_mut();
        let create = self.lib().nvmlDeviceCreateGpuInstance.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        (
            unsafe { create(self.gpu(), profile, &raw mut instance) },
            instance,
        )
    }

    fn create_at(&self, profile: c_uint, start: c_uint, size: c_uint) -> (c_uint, nvmlGpuInstance_t) {
        let mut instance = std::ptr::null_mut();
        let place = nvmlGpuInstancePlacement_t { start, size };
        let create = self
            .lib()
            .nvmlDeviceCreateGpuInstanceWithPlacement
            .as_ref()
            .unwrap();
        // SAFETY: the pointers are ours.
        (
            unsafe { create(self.gpu(), profile, &raw const place, &raw mut instance) },
            instance,
        )
    }

    fn info(&self, instance: nvmlGpuInstance_t) -> nvmlGpuInstanceInfo_t {
        // SAFETY: plain numbers and pointers.
        let mut info: nvmlGpuInstanceInfo_t = unsafe { std::mem::zeroed() };
        let get = self.lib().nvmlGpuInstanceGetInfo.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        let code = unsafe { get(instance, &raw mut info) };
        assert_eq!(code, SUCCESS);
        info
    }

    fn destroy(&self, instance: nvmlGpuInstance_t) -> c_uint {
        // SAFETY: any number may stand for a handle here.
        unsafe { self.lib().nvmlGpuInstanceDestroy.as_ref().unwrap()(instance) }
    }

    fn compute(&self, instance: nvmlGpuInstance_t, profile: c_uint) -> (c_uint, nvmlComputeInstance_t) {
        let mut compute = std::ptr::null_mut();
        let create = self.lib().nvmlGpuInstanceCreateComputeInstance.as_ref().unwrap();
        // SAFETY: the out pointer is ours.
        (unsafe { create(instance, profile, &raw mut compute) }, compute)
    }

    fn destroy_compute(&self, compute: nvmlComputeInstance_t) -> c_uint {
        // SAFETY: any number may stand for a handle here.
        unsafe { self.lib().nvmlComputeInstanceDestroy.as_ref().unwrap()(compute) }
    }

    /// A slice of its own: GPU instance and its full-size compute instance.
    fn slice(&self, profile: c_uint, compute_profile: c_uint) -> (nvmlGpuInstance_t, nvmlComputeInstance_t) {
        let (code, instance) = self.create(profile);
        assert_eq!(code, SUCCESS);
        let (code, compute) = self.compute(instance, compute_profile);
        assert_eq!(code, SUCCESS);
        (instance, compute)
    }

    /// Per index the UUID of the MIG device, or none.
    fn uuids(&self) -> Vec<Option<String>> {
        let gpu = self.nvml().device_by_index(0).unwrap();
        let at = |index| match gpu.mig_device_by_index(index) {
            Ok(device) => Some(device.uuid().unwrap()),
            Err(error) => {
                assert!(matches!(error, NvmlError::NotFound), "{error}");
                None
            }
        };
        let mut uuids: Vec<_> = (0..gpu.mig_device_count().unwrap()).map(at).collect();
        while uuids.last() == Some(&None) {
            uuids.pop();
        }
        uuids
    }

    /// A process that attaches to what `CUDA_VISIBLE_DEVICES` names, and holds `bytes`.
    fn tenant(&self, visible: Option<&str>, bytes: u64) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_that_holds_memory", "--nocapture"]);
        command
            .env("SIMGPU_ID", self.id.to_str().unwrap())
            .env("TEST_BYTES", bytes.to_string());
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("holding") {
            line.clear();
            assert_ne!(
                std::io::BufRead::read_line(&mut output, &mut line).unwrap(),
                0,
                "the child ended"
            );
        }
        child.stdout = Some(output.into_inner());
        child
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(self.nvml.take());
        self.control("simgpuRemove");
    }
}

/// Not a test by itself: what [`Bench::tenant`] runs.
#[test]
fn child_that_holds_memory() {
    let Ok(bytes) = std::env::var("TEST_BYTES") else {
        return;
    };
    let machine = simgpu::Machine::open().unwrap();
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let device = machine.visible(visible.as_deref())[0];
    let tenant = machine.attach(device, 0).unwrap();
    tenant.charge(bytes.parse().unwrap()).unwrap();
    println!("holding");
    std::thread::sleep(Duration::from_secs(600));
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

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
fn profiles_are_asked_for_up_to_invalid_argument() {
    let bench = Bench::new("a100-40gb", true);
    let get = bench.lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref().unwrap();
    let mut names = Vec::new();
    for question in 0.. {
        // SAFETY: plain numbers.
        let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
        info.version = u32::try_from(size_of_val(&info)).unwrap() | (2 << 24);
        // SAFETY: the out pointer is ours, of this version.
        match unsafe { get(bench.gpu(), question, &raw mut info) } {
            // SAFETY: the name ends in NUL.
            SUCCESS => names.push((
                unsafe { CStr::from_ptr(info.name.as_ptr()) }
                    .to_str()
                    .unwrap()
                    .to_owned(),
                info.id,
            )),
            NOT_SUPPORTED => {}
            code => {
                assert_eq!((code, question), (INVALID_ARGUMENT, 18));
                break;
            }
        }
    }
    let expected = [
        ("MIG 1g.5gb", 19),
        ("MIG 2g.10gb", 14),
        ("MIG 3g.20gb", 9),
        ("MIG 4g.20gb", 5),
        ("MIG 7g.40gb", 0),
        ("MIG 1g.5gb+me", 20),
        ("MIG 1g.10gb", 15),
    ];
    assert_eq!(names, expected.map(|(name, id)| (name.to_owned(), id)));
}

#[test]
fn a_structure_without_its_version_is_refused() {
    let bench = Bench::new("a100-40gb", true);
    // SAFETY: plain numbers.
    let mut info: nvmlGpuInstanceProfileInfo_v2_t = unsafe { std::mem::zeroed() };
    let by_question = bench.lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref().unwrap();
    // SAFETY: the out pointer is ours.
    let code = unsafe { by_question(bench.gpu(), 0, &raw mut info) };
    assert_eq!(code, VERSION_MISMATCH);
    // SAFETY: plain numbers.
    let mut third: nvmlGpuInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
    third.version = u32::try_from(size_of_val(&third)).unwrap() | (3 << 24);
    let by_id = bench
        .lib()
        .nvmlDeviceGetGpuInstanceProfileInfoByIdV
        .as_ref()
        .unwrap();
    // SAFETY: the function writes the version that it is told.
    let code = unsafe { by_id(bench.gpu(), 9, (&raw mut third).cast()) };
    assert_eq!(code, SUCCESS);
    assert_eq!(
        (third.sliceCount, third.multiprocessorCount, third.memorySizeMB),
        (3, 42, 20_096)
    );
    // SAFETY: plain numbers.
    let mut memory: nvmlMemory_v2_t = unsafe { std::mem::zeroed() };
    let get = bench.lib().nvmlDeviceGetMemoryInfo_v2.as_ref().unwrap();
    // SAFETY: the out pointer is ours.
    let code = unsafe { get(bench.gpu(), &raw mut memory) };
    assert_eq!(code, VERSION_MISMATCH);
}

#[test]
fn placements_are_listed_taken_or_not_and_capacity_knows() {
    let bench = Bench::new("a100-40gb", true);
    bench.create(9);
    let placements = bench
        .lib()
        .nvmlDeviceGetGpuInstancePossiblePlacements_v2
        .as_ref()
        .unwrap();
    let mut count = 0;
    // SAFETY: no room is given, so only the count is written.
    let code = unsafe { placements(bench.gpu(), 9, std::ptr::null_mut(), &raw mut count) };
    assert_eq!(code, SUCCESS);
    assert_eq!(count, 2);
    let mut places = [nvmlGpuInstancePlacement_t { start: 9, size: 9 }; 2];
    // SAFETY: there is room for two.
    let code = unsafe { placements(bench.gpu(), 9, places.as_mut_ptr(), &raw mut count) };
    assert_eq!(code, SUCCESS);
    assert_eq!(places.map(|place| (place.start, place.size)), [(0, 4), (4, 4)]);
    let capacity = bench
        .lib()
        .nvmlDeviceGetGpuInstanceRemainingCapacity
        .as_ref()
        .unwrap();
    let remaining = |profile| {
        let mut count = 99;
        // SAFETY: the out pointer is ours.
        let code = unsafe { capacity(bench.gpu(), profile, &raw mut count) };
        assert_eq!(code, SUCCESS);
        count
    };
    assert_eq!([9, 5, 0, 19].map(remaining), [1, 1, 0, 4]);
}

#[test]
fn the_life_of_a_slice() {
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
fn without_the_right_nothing_changes() {
    if std::env::var_os("SIMGPU_NO_PERMISSION").is_none() {
        // The library reads its environment, which only a fresh process can have changed safely.
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "without_the_right_nothing_changes"])
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
fn a_destroyed_device_leaves_a_hole_until_the_next_creation() {
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
fn a_uuid_comes_back_with_its_place() {
    let bench = Bench::new("a100-40gb", true);
    let (instance, compute) = bench.slice(9, 2);
    let first = bench.uuids();
    bench.destroy_compute(compute);
    bench.destroy(instance);
    bench.slice(9, 2);
    assert_eq!(bench.uuids(), first);
}

#[test]
fn another_history_gives_another_uuid() {
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

#[test]
fn a_bad_specification_leaves_a_line() {
    let bench = Bench::new("a100-40gb", true);
    type Create = unsafe extern "C" fn(*const c_char, c_int, f64, *mut c_char, usize) -> c_int;
    // SAFETY: the function has this type.
    let create = unsafe { bench.control.get::<Create>(b"simgpuCreate\0") }.unwrap();
    let mut id = [0; 64];
    // SAFETY: the pointers are of this many bytes.
    let code = unsafe { create(c"b200-180gb".as_ptr(), 0, 1.0, id.as_mut_ptr(), id.len()) };
    assert_eq!(code, 2);
    // SAFETY: the function has this type.
    let last = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn() -> *const c_char>(b"simgpuLastError\0")
    }
    .unwrap();
    // SAFETY: the function takes nothing.
    let line = unsafe { last() };
    // SAFETY: it returned text that ends in NUL.
    let line = unsafe { CStr::from_ptr(line) }.to_str().unwrap();
    assert!(
        line.starts_with("placements of `b200-180gb` are not known"),
        "{line}"
    );
}

#[test]
fn the_file_is_named_as_nvidias() {
    let file = std::fs::read(library_path()).unwrap();
    let name = b"libnvidia-ml.so.1\0";
    assert!(file.windows(name.len()).any(|window| window == name));
}

#[test]
fn nothing_answers_before_init_and_after_shutdown() {
    let mut bench = Bench::new("a100-40gb", true);
    drop(bench.nvml.take());
    // SAFETY: the function has this type.
    let count = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn(*mut c_uint) -> c_uint>(b"nvmlDeviceGetCount_v2\0")
    };
    let mut devices = 77;
    // SAFETY: the out pointer is ours.
    let code = unsafe { count.unwrap()(&raw mut devices) };
    assert_eq!((code, devices), (1, 77));
    // SAFETY: the function has this type.
    let shutdown = unsafe {
        bench
            .control
            .get::<unsafe extern "C" fn() -> c_uint>(b"nvmlShutdown\0")
    }
    .unwrap();
    // SAFETY: it takes nothing.
    assert_eq!(unsafe { shutdown() }, 1);
}

#[test]
fn no_pointer_of_the_caller_is_needed_to_be_good() {
    let bench = Bench::new("a100-40gb", true);
    let nowhere: nvmlDevice_t = std::ptr::without_provenance_mut(0xdead_beef);
    let name = bench.lib().nvmlDeviceGetName.as_ref().unwrap();
    let mut buffer = [0; 4];
    // SAFETY: handles are numbers to this library; the buffer is of this length.
    let wrong_handle = unsafe { name(nowhere, buffer.as_mut_ptr(), 4) };
    // SAFETY: as above.
    let short_buffer = unsafe { name(bench.gpu(), buffer.as_mut_ptr(), 4) };
    // SAFETY: null is allowed to be given, and refused.
    let no_buffer = unsafe { name(bench.gpu(), std::ptr::null_mut(), 4) };
    assert_eq!(
        (wrong_handle, short_buffer, no_buffer),
        (INVALID_ARGUMENT, 7, INVALID_ARGUMENT)
    );
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
