//! Where instances go, what they are numbered, and in which order they are listed.

use nvml_wrapper_sys::bindings::*;

use crate::bench::*;

fn created(driver: &str, profiles: &[u32]) -> Vec<Result<(u32, u32), u32>> {
    let bench = Bench::with("a100-40gb", true, driver, "");
    profiles.iter().map(|&profile| bench.created(profile)).collect()
}

#[test]
fn point_05_a_four_beside_a_three_depends_on_the_driver() {
    assert_eq!(created("450", &[5, 9]), [Ok((0, 2)), Err(INSUFFICIENT_RESOURCES)]);
    assert_eq!(created("510", &[5, 9]), [Ok((0, 1)), Ok((4, 2))]);
}

#[test]
fn point_06_the_drivers_own_places_are_those_of_the_guide_with_its_failing_order() {
    let starts = |profiles: &[u32]| -> Vec<Option<u32>> {
        let all = created("580", profiles);
        all.iter().map(|made| made.ok().map(|(start, _)| start)).collect()
    };
    assert_eq!(starts(&[19, 19, 14, 9]), [Some(6), Some(4), Some(0), None]);
    assert_eq!(starts(&[9, 19, 14, 19]), [4, 0, 2, 1].map(Some));
    assert_eq!(starts(&[14, 19, 19, 19, 19, 19]), [4, 6, 0, 1, 2, 3].map(Some));
    // Not 0, as the go-nvml mock has it for all.
    assert_eq!(starts(&[19; 7]), [6, 4, 5, 0, 1, 2, 3].map(Some));
}

#[test]
fn point_07_an_id_is_a_place_and_comes_back_with_it() {
    let bench = Bench::new("a100-40gb", true);
    let at = |profile, start, size| bench.create_at(profile, start, size).1;
    let id = |instance| bench.info(instance).id;
    let small: Vec<_> = (0..7).map(|start| at(19, start, 1)).collect();
    let ids: Vec<u32> = small.iter().map(|&instance| id(instance)).collect();
    // Sorted by place, not by order of creation as from a counter.
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
    for &instance in &small[..4] {
        assert_eq!(bench.destroy(instance), SUCCESS);
    }
    let three = at(9, 0, 4);
    assert_eq!(id(three), 1);
    assert_eq!(bench.destroy(three), SUCCESS);
    let four = at(5, 0, 4);
    assert_eq!(id(four), 1, "the id of the 3g, for another profile");
    assert_eq!(
        bench.destroy(three),
        INVALID_ARGUMENT,
        "a handle does not come back"
    );
    assert_eq!(bench.destroy(four), SUCCESS);
    let doubles = [0, 2].map(|start| id(at(15, start, 2)));
    assert_eq!(doubles, [3, 4]);
}

#[test]
fn point_07_old_drivers_number_the_halves_the_other_way_round() {
    assert_eq!(created("450", &[9, 9]), [Ok((0, 2)), Ok((4, 1))]);
    assert_eq!(created("470", &[9, 9]), [Ok((4, 2)), Ok((0, 1))]);
}

#[test]
fn point_08_indices_follow_instance_ids_and_shift() {
    let bench = Bench::new("a30-24gb", true);
    let slice = |profile, start, size| {
        let (code, instance) = bench.create_at(profile, start, size);
        assert_eq!(code, SUCCESS);
        bench.compute(instance, if size == 1 { 0 } else { 1 }).1
    };
    let (low, high) = (slice(14, 0, 1), slice(14, 1, 1));
    let before = bench.uuids();
    assert_eq!(before.len(), 2);
    // GPU instance 2 comes before 3 and 4.
    slice(5, 2, 2);
    let after = bench.uuids();
    assert_eq!(after[1..], before[..]);
    assert!(!before.contains(&after[0]));
    assert_eq!(bench.destroy_compute(low), SUCCESS);
    assert_eq!(
        bench.uuids(),
        [after[0].clone(), None, after[2].clone()],
        "a hole"
    );
    assert_eq!(bench.destroy_compute(high), SUCCESS);
    assert_eq!(bench.uuids(), [after[0].clone()]);
}

#[test]
fn point_19_a_grid_of_twelve_for_four_compute_slices() {
    let bench = Bench::new("rtx-pro-6000-blackwell-96gb", true);
    let gpu = bench.gpu();
    assert_eq!(bench.placements(gpu, 14), [(0, 3), (3, 3), (6, 3), (9, 3)]);
    assert_eq!(bench.placements(gpu, 5), [(0, 6), (6, 6)]);
    assert_eq!(bench.placements(gpu, 0), [(0, 12)]);
    assert_eq!(bench.created(14), Ok((0, 3)));
    assert_eq!(bench.created(5), Ok((6, 2)));
    assert_eq!(bench.create_at(14, 1, 3).0, INVALID_ARGUMENT);
    assert_eq!([14, 5, 0].map(|profile| bench.capacity(profile)), [1, 0, 0]);
    // Beside +me.all there is nothing but -me: it has all engines.
    let bench = {
        drop(bench);
        Bench::new("rtx-pro-6000-blackwell-96gb", true)
    };
    assert!(bench.created(65).is_ok());
    assert_eq!(
        [14, 5, 21, 64, 67].map(|profile| bench.capacity(profile)),
        [0, 0, 0, 0, 3]
    );
    // Graphics needs a mode of the driver that is off.
    assert_eq!(bench.create(47).0, NOT_SUPPORTED);
}

#[test]
fn the_go_nvml_mock_is_not_followed() {
    let bench = Bench::new("h100-80gb", true);
    let gpu = bench.gpu();
    // Placement sizes 3, 7 and 1 there, and multiprocessors 48 and 112.
    assert_eq!(bench.placements(gpu, 9), [(0, 4), (4, 4)]);
    assert_eq!(bench.placements(gpu, 0), [(0, 8)]);
    assert_eq!(bench.placements(gpu, 15), [(0, 2), (2, 2), (4, 2), (6, 2)]);
    let profile = |question| bench.profile(gpu, question).unwrap();
    assert_eq!(
        [2, 4, 9].map(|question| profile(question).multiprocessorCount),
        [60, 132, 26]
    );
    // Peer to peer there.
    assert_eq!(profile(2).isP2pSupported, 0);
    // No check of overlap, of capacity or of compute instances there.
    let (_, instance) = bench.create_at(9, 4, 4);
    assert_eq!(bench.create_at(19, 4, 1).0, INSUFFICIENT_RESOURCES);
    assert_eq!(bench.compute(instance, 2).0, SUCCESS);
    assert_eq!(bench.compute(instance, 0).0, INSUFFICIENT_RESOURCES);
    assert_eq!(bench.destroy(instance), IN_USE);
    // Placement 0 after any plain creation there.
    assert_eq!(bench.created(9), Ok((0, 1)));
    let mut other: nvmlGpuInstance_t = std::ptr::null_mut();
    let by_id = bench.lib().nvmlDeviceGetGpuInstanceById.as_ref().unwrap();
    // SAFETY: the out pointer is ours.
    let code = unsafe { by_id(gpu, 2, &raw mut other) };
    assert_eq!((code, other), (SUCCESS, instance));
}
