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
