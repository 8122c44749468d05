//! What profiles there are, and where they may stand.

use std::ffi::CStr;

use nvml_wrapper_sys::bindings::*;

use crate::bench::*;

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
                assert_eq!((code, question), (INVALID_ARGUMENT, 17));
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
fn point_15_a_structure_without_its_version_is_refused() {
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
fn point_03_the_question_is_not_the_id() {
    let bench = Bench::new("a100-40gb,a30-24gb", true);
    let (a100, _) = bench.profiles(bench.gpu_at(0));
    assert_eq!(a100, [(0, 19), (1, 14), (2, 9), (3, 5), (4, 0), (7, 20), (9, 15)]);
    let (a30, _) = bench.profiles(bench.gpu_at(1));
    assert_eq!(a30, [(0, 14), (1, 5), (3, 0), (7, 21), (8, 6)]);
    // Creation takes the id: question 3, the 4g of the A100, is no id of it.
    assert_eq!(bench.create(3).0, INVALID_ARGUMENT);
}

#[test]
fn point_04_seven_profiles_within_a_budget_of_engines() {
    let bench = Bench::new("a100-40gb", true);
    let engines = |question| {
        let info = bench.profile(bench.gpu(), question).unwrap();
        [
            info.copyEngineCount,
            info.decoderCount,
            info.encoderCount,
            info.jpegCount,
            info.ofaCount,
        ]
    };
    assert_eq!(engines(4), [7, 5, 0, 1, 1]);
    assert_eq!((engines(0), engines(7)), ([1, 0, 0, 0, 0], [1, 1, 0, 1, 1]));
    assert_eq!(bench.profiles(bench.gpu()).0.len(), 7);
    assert!(bench.created(20).is_ok());
    assert_eq!((bench.capacity(20), bench.capacity(19)), (0, 6));
    assert_eq!(bench.create(20).0, INSUFFICIENT_RESOURCES);
    // On an A30 the one JPEG engine is what forbids 2g+me beside 1g+me: there is a place.
    drop(bench);
    let bench = Bench::new("a30-24gb", true);
    assert_eq!(bench.create_at(21, 0, 1).0, SUCCESS);
    assert_eq!(bench.create_at(6, 2, 2).0, INSUFFICIENT_RESOURCES);
    assert_eq!(bench.create_at(5, 2, 2).0, SUCCESS);
}

#[test]
fn point_15_room_that_is_too_small_says_so() {
    let bench = Bench::new("a100-40gb", true);
    bench.slice(0, 4);
    let uuid = bench.uuids()[0].clone().unwrap();
    let tenants = [(), ()].map(|()| bench.tenant(Some(&uuid), 1));
    let list = bench
        .lib()
        .nvmlDeviceGetComputeRunningProcesses_v3
        .as_ref()
        .unwrap();
    let mut count = 1;
    // SAFETY: plain numbers.
    let mut processes: [nvmlProcessInfo_t; 2] = unsafe { std::mem::zeroed() };
    // SAFETY: there is room for more than the count says.
    let code = unsafe { list(bench.gpu(), &raw mut count, processes.as_mut_ptr()) };
    assert_eq!((code, count), (INSUFFICIENT_SIZE, 2));
    // SAFETY: there is room for two.
    let code = unsafe { list(bench.gpu(), &raw mut count, processes.as_mut_ptr()) };
    assert_eq!((code, count), (SUCCESS, 2));
    tenants.into_iter().for_each(kill);
    let name = bench.lib().nvmlDeviceGetUUID.as_ref().unwrap();
    let mut text = [0; 41];
    // SAFETY: the buffer is of this length.
    let short = unsafe { name(bench.gpu(), text.as_mut_ptr(), 40) };
    // SAFETY: as above.
    let enough = unsafe { name(bench.gpu(), text.as_mut_ptr(), 41) };
    assert_eq!((short, enough), (INSUFFICIENT_SIZE, SUCCESS));
}

#[test]
fn point_20_one_name_means_another_profile_on_another_gpu() {
    let bench = Bench::new("a100-40gb,a100-80gb", true);
    let named = |index| -> Vec<u32> {
        let gpu = bench.gpu_at(index);
        let (found, _) = bench.profiles(gpu);
        let is_it =
            |(question, _): &&(u32, u32)| bench.profile_name(gpu, *question).as_deref() == Ok("MIG 1g.10gb");
        found.iter().filter(is_it).map(|(_, id)| *id).collect()
    };
    assert_eq!((named(0), named(1)), (vec![15], vec![19]));
    // 15 is a 1g.20gb there: what an id is worth on another GPU.
    let (code, instance) = bench.create_on(bench.gpu_at(1), 15);
    assert_eq!(code, SUCCESS);
    assert_eq!(bench.info(instance).placement.size, 2);
    assert_eq!(bench.uuids(), []);
}
