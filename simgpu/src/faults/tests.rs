//! How faults are written, and what a machine that plays them answers.

use super::*;
use crate::files::{DEFAULT_DRIVER, Plan, remove};
use crate::mig::{Activation, Refusal};

/// Gone from the directory as soon as it is open.
fn machine(gpus: &str, faults: &str) -> Machine {
    let plan = Plan::parse(gpus, true, 0.001, DEFAULT_DRIVER).unwrap();
    let machine = Machine::create(&plan.with_faults(faults).unwrap()).unwrap();
    remove(machine.id()).unwrap();
    machine
}

#[test]
fn a_fault_is_read_as_written() {
    let one = |text| parse(text, 2).unwrap()[0];
    let calls = |calls, first, last| When::Calls { calls, first, last };
    assert_eq!(
        one("create-gi@3=insufficient-resources"),
        Fault {
            gpu: None,
            when: calls(1, 3, 3),
            effect: Effect::Refuse(23)
        }
    );
    assert_eq!(
        one("gpu1/destroy-ci@2x4=19"),
        Fault {
            gpu: Some(1),
            when: calls(8, 2, 5),
            effect: Effect::Refuse(19)
        }
    );
    assert_eq!(
        one("changex*=1.5ms"),
        Fault {
            gpu: None,
            when: calls(31, 1, u64::MAX),
            effect: Effect::Delay(Duration::from_micros(1500))
        }
    );
    assert_eq!(
        one("2.5s=lost"),
        Fault {
            gpu: None,
            when: When::After(2.5),
            effect: Effect::Lose
        }
    );
    assert_eq!(parse(" ; create-gi=3;;set-mode=in-use ", 1).unwrap().len(), 2);
    assert_eq!(parse("", 1).unwrap(), []);
}

#[test]
fn a_malformed_fault_is_refused_in_one_line_that_names_it() {
    let text = |text: &str| parse(text, 2).unwrap_err().to_string();
    for (given, said) in [
        ("create-gi", "`create-gi`: no `=` with what is to happen"),
        (
            "gpu2/create-gi=3",
            "`gpu2/create-gi=3`: `gpu2` is none of the GPUs gpu0 to gpu1",
        ),
        (
            "x/create-gi=3",
            "`x/create-gi=3`: `x` is none of the GPUs gpu0 to gpu1",
        ),
        ("make=3", "`make=3`: `make` is none of the calls create-gi, "),
        (
            "create-gi@0=3",
            "`create-gi@0=3`: `0` is no number of calls (1 or more)",
        ),
        ("create-gi@=3", "`create-gi@=3`: `` is no number of calls"),
        ("create-gix-1=3", "`create-gix-1=3`: `-1` is no number of calls"),
        ("create-gi=0", "`create-gi=0`: `0` is neither lost, nor a time"),
        (
            "create-gi=busy",
            "`create-gi=busy`: `busy` is neither lost, nor a time",
        ),
        (
            "create-gi=-1ms",
            "`create-gi=-1ms`: `-1ms` is no number of milliseconds",
        ),
        (
            "create-gi=NaNms",
            "`create-gi=NaNms`: `NaNms` is no number of milliseconds",
        ),
        ("1e9s=lost", "`1e9s=lost`: `1e9s` is no number of seconds"),
        ("1s=in-use", "`1s=in-use`: at a time a GPU can only be `lost`"),
    ] {
        let line = text(given);
        assert!(line.starts_with(&format!("SIMGPU_FAULTS: {said}")), "{line}");
        assert!(!line.contains('\n'));
    }
    let many = "create-gi=3;".repeat(FAULTS + 1);
    assert_eq!(
        text(&many),
        "SIMGPU_FAULTS: 33 faults, a simulated machine has room for 32"
    );
}

#[test]
fn the_third_creation_fails_and_changes_nothing() {
    let machine = machine("a100-40gb", "create-gi@3=insufficient-resources");
    let create = || machine.create_gpu_instance(0, 19, None).map(|info| info.start);
    assert_eq!((create(), create()), (Ok(6), Ok(4)));
    assert_eq!(create(), Err(Refusal::Injected(23)));
    assert_eq!(machine.gpu_instances(0).unwrap().len(), 2);
    assert_eq!(create(), Ok(5));
}

#[test]
fn a_destroy_is_in_use_for_a_while() {
    let machine = machine("a100-40gb", "destroy-gi@1x2=in-use");
    let reference = machine.create_gpu_instance(0, 19, None).unwrap().reference;
    let destroy = || machine.destroy_gpu_instance(reference);
    assert_eq!(destroy(), Err(Refusal::Injected(19)));
    assert_eq!(destroy(), Err(Refusal::Injected(19)));
    assert_eq!(destroy(), Ok(()));
}

#[test]
fn a_fault_of_one_gpu_leaves_the_other_alone() {
    let machine = machine("a100-40gb:2", "gpu1/create-gix*=unknown");
    assert!(machine.create_gpu_instance(0, 19, None).is_ok());
    assert_eq!(
        machine.create_gpu_instance(1, 19, None).unwrap_err(),
        Refusal::Injected(999)
    );
}

#[test]
fn a_mode_that_is_put_off_stays_pending() {
    let machine = machine(
        "h100-80gb",
        "set-mode=in-use;set-mode@2=reset-required;set-mode@3=no-permission",
    );
    assert_eq!(machine.set_mig_mode(0, false), Ok(Activation::InUse));
    assert_eq!(machine.mig_mode(0), Ok((true, false)));
    assert_eq!(machine.set_mig_mode(0, false), Ok(Activation::ResetRequired));
    assert_eq!(machine.set_mig_mode(0, true), Err(Refusal::Injected(4)));
    assert_eq!(machine.mig_mode(0), Ok((true, false)));
    assert_eq!(machine.set_mig_mode(0, false), Ok(Activation::Done));
}

#[test]
fn a_lost_gpu_answers_nothing_until_the_faults_are_set_anew() {
    let machine = machine("a100-40gb:2", "gpu0/change@2=lost");
    let reference = machine.create_gpu_instance(0, 19, None).unwrap().reference;
    let device = machine.create_compute_instance(reference, 0, None);
    assert_eq!(device.unwrap_err(), Refusal::Lost);
    assert_eq!(machine.mig_mode(0), Err(Refusal::Lost));
    assert_eq!(machine.gpu_instance(reference).unwrap_err(), Refusal::Lost);
    assert_eq!(machine.reset(0), Err(Refusal::Lost));
    assert!(!machine.is_lost(1));
    assert!(machine.create_gpu_instance(1, 19, None).is_ok());
    machine.set_faults("").unwrap();
    assert!(machine.gpu_instance(reference).is_ok());
}

#[test]
fn a_gpu_is_lost_at_a_time() {
    let machine = machine("a100-40gb", "1000s=lost");
    assert!(!machine.is_lost(0));
    machine.set_faults("0s=lost").unwrap();
    assert!(machine.is_lost(0));
    assert_eq!(machine.visible(None), []);
}

#[test]
fn a_delay_is_simulated_time_on_top() {
    let machine = machine("a100-40gb", "create-gi=20000ms");
    let start = std::time::Instant::now();
    machine.create_gpu_instance(0, 19, None).unwrap();
    // A thousandth of twenty seconds.
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn wrong_faults_set_at_run_time_change_none_of_those_there() {
    let machine = machine("a100-40gb", "create-gix*=in-use");
    assert!(machine.set_faults("create-gi=4;nonsense").is_err());
    assert_eq!(
        machine.create_gpu_instance(0, 19, None).unwrap_err(),
        Refusal::Injected(19)
    );
}
