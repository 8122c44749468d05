//! What an older driver has not, or has otherwise.

use nvml_wrapper_sys::bindings::*;

use crate::bench::*;

/// Per driver how many profiles an A100 has, and the first question that is not understood.
#[test]
fn profiles_came_with_drivers() {
    for (driver, profiles, questions) in [
        ("450", 5, 6),
        ("470", 6, 8),
        ("510", 6, 8),
        ("525", 7, 10),
        ("570", 7, 13),
        ("580", 7, 17),
        ("595", 7, 18),
    ] {
        let bench = Bench::with("a100-40gb", true, driver, "");
        let (found, end) = bench.profiles(bench.gpu());
        assert_eq!((found.len(), end), (profiles, questions), "{driver}");
    }
    let bench = Bench::with("a100-40gb", true, "510", "");
    assert_eq!(
        bench.create(15).0,
        INVALID_ARGUMENT,
        "double memory came with R525"
    );
}

#[test]
fn profiles_have_names_from_r510_and_a_third_structure_from_r545() {
    let third = |bench: &Bench| {
        // SAFETY: plain numbers.
        let mut info: nvmlGpuInstanceProfileInfo_v3_t = unsafe { std::mem::zeroed() };
        info.version = u32::try_from(size_of_val(&info)).unwrap() | (3 << 24);
        let get = bench.lib().nvmlDeviceGetGpuInstanceProfileInfoV.as_ref().unwrap();
        // SAFETY: the function writes the version that it is told.
        unsafe { get(bench.gpu(), 0, (&raw mut info).cast()) }
    };
    for (driver, name, code) in [
        ("470", Err(FUNCTION_NOT_FOUND), FUNCTION_NOT_FOUND),
        ("510", Ok("MIG 1g.5gb"), VERSION_MISMATCH),
        ("535", Ok("MIG 1g.5gb"), VERSION_MISMATCH),
        ("550", Ok("MIG 1g.5gb"), SUCCESS),
    ] {
        let bench = Bench::with("a100-40gb", true, driver, "");
        let named = bench.profile_name(bench.gpu(), 0);
        assert_eq!(named.as_deref().map_err(|code| *code), name, "{driver}");
        assert_eq!(third(&bench), code, "{driver}");
    }
}

#[test]
fn r450_creates_where_it_likes_only() {
    let bench = Bench::with("a100-40gb", true, "450", "");
    assert_eq!(bench.create_at(9, 0, 4).0, FUNCTION_NOT_FOUND);
    assert_eq!(bench.created(9), Ok((0, 2)));
}

#[test]
fn processes_have_instances_from_r455_and_a_third_list_from_r510() {
    for (driver, codes) in [
        ("450", [FUNCTION_NOT_FOUND, FUNCTION_NOT_FOUND]),
        ("455.32.00", [SUCCESS, FUNCTION_NOT_FOUND]),
        ("495.29.05", [SUCCESS, FUNCTION_NOT_FOUND]),
        ("510", [SUCCESS, SUCCESS]),
    ] {
        let bench = Bench::with("a100-40gb", true, driver, "");
        let ask =
            |function: unsafe extern "C" fn(nvmlDevice_t, *mut u32, *mut nvmlProcessInfo_v2_t) -> u32| {
                let mut count = 0;
                // SAFETY: no room is given, and nobody runs there.
                unsafe { function(bench.gpu(), &raw mut count, std::ptr::null_mut()) }
            };
        let lib = bench.lib();
        let second = ask(*lib.nvmlDeviceGetComputeRunningProcesses_v2.as_ref().unwrap());
        let third = ask(*lib.nvmlDeviceGetComputeRunningProcesses_v3.as_ref().unwrap());
        assert_eq!([second, third], codes, "{driver}");
    }
}

#[test]
fn before_r470_a_mig_device_is_called_by_its_gpu_and_ids() {
    let name = |driver| {
        let bench = Bench::with("a100-40gb", true, driver, "");
        bench.slice(9, 2);
        let gpu = bench.nvml().device_by_index(0).unwrap().uuid().unwrap();
        let uuid = bench.uuids()[0].clone().unwrap();
        assert!(bench.nvml().device_by_uuid(uuid.as_str()).is_ok());
        (gpu, uuid)
    };
    let (gpu, uuid) = name("460");
    assert_eq!(uuid, format!("MIG-{gpu}/2/0"));
    let (_, uuid) = name("470");
    assert!(!uuid.contains('/'), "{uuid}");
}

#[test]
fn with_mig_off_r535_lists_no_profiles() {
    let bench = Bench::with("a100-40gb", false, "535", "");
    assert_eq!(bench.profile(bench.gpu(), 0).err(), Some(NOT_SUPPORTED));
    drop(bench);
    let bench = Bench::with("a100-40gb", false, "570", "");
    assert_eq!(bench.profile(bench.gpu(), 0).unwrap().id, 19);
}

#[test]
fn a_process_sees_one_mig_device_before_r570_and_one_of_each_instance_since() {
    let seen = |driver| {
        let bench = Bench::with("a100-40gb", true, driver, "");
        bench.slice(9, 2);
        bench.slice(9, 2);
        let uuids: Vec<String> = bench.uuids().into_iter().flatten().collect();
        let machine = simgpu::Machine::open_id(bench.id()).unwrap();
        machine.visible(Some(&uuids.join(","))).len()
    };
    assert_eq!((seen("535"), seen("570")), (1, 2));
}

#[test]
fn a_gpu_younger_than_the_driver_is_refused() {
    let bench = Bench::new("a100-40gb", true);
    let (code, _) = create_machine(&bench.control, "a100-40gb,h200-141gb", true, "535", "");
    assert_eq!(code, 2);
    assert_eq!(
        bench.last_error(),
        "`h200-141gb` needs driver 550.90.07 or later, not 535.183.01"
    );
}
