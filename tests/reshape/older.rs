//! Drivers that lack calls which came later.

use std::process::Stdio;

use migm_supervisor::node::Node;
use migm_supervisor::node::sim::{SimulatedGpu, objects};

use crate::daemon::{PATIENCE, SCALE, turn};
use crate::mode::Killed;
use crate::support::{Place, eventually, migm};

fn place(driver: &str, mig: &[&str]) -> Place {
    Place::simulated(&[&["--driver", driver, "--time-scale", SCALE], mig].concat())
}

/// What a job that needs so much sees and hears.
fn job(place: &Place) -> (Option<i32>, String, String) {
    let mut command = place.migm(&["run", "--mem", "4G", "--", "sh", "-c"]);
    let output = command.arg("echo $CUDA_VISIBLE_DEVICES").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// R460 lists places by the first version of the call; R510 was the first to tell the memory that it keeps apart.
#[test]
fn drivers_from_r460_on_are_cut_as_the_newest() {
    for (driver, uuid) in [("460", "MIG-GPU-"), ("470", "MIG-"), ("495.29.05", "MIG-")] {
        let (code, seen, said) = job(&place(driver, &["--mig"]));
        assert_eq!(code, Some(0), "R{driver}: {said}");
        assert!(seen.starts_with(uuid), "R{driver}: {seen}");
    }
}

#[test]
fn r450_says_in_a_line_that_it_cannot_be_cut() {
    let (code, _, said) = job(&place("450", &["--mig"]));
    assert_eq!((code, said.lines().count()), (Some(125), 1), "{said}");
    assert!(
        said.contains("no nvmlDeviceCreateGpuInstanceWithPlacement, which came with R460; update the driver"),
        "{said}"
    );
}

#[test]
fn r450_lends_what_is_there_and_tells_whose_process_is_where() {
    let place = place("450", &["--mig"]);
    // Somebody else's 2g.10gb, which the driver has placed, with its full compute instance.
    let id = place.variable("SIMGPU_ID").unwrap();
    let machine = simgpu::Machine::open_id(id).unwrap();
    let made = machine.create_gpu_instance(0, 14, None).unwrap();
    machine.create_compute_instance(made.reference, 1, None).unwrap();
    let mut command = place.migm(&["run", "--use-existing", "--mem", "4G", "--"]);
    command
        .arg(migm())
        .args(["play", "stencil", "--iterations", "3000"]);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut runner = Killed(child);
    let _turn = turn();
    let links = tempfile::tempdir().unwrap();
    objects().unwrap().link(links.path(), true).unwrap();
    let node = SimulatedGpu::attach(links.path(), id).unwrap().node().unwrap();
    // The process is found in its instance, although the list of all does not say where it is.
    let found = eventually("the process is listed", PATIENCE, || {
        node.processes(0).unwrap().first().copied()
    });
    let [instance] = &node.instances(0).unwrap()[..] else {
        panic!("{:?}", node.instances(0));
    };
    assert_eq!((found.gi, instance.cis.len()), (Some(instance.gi), 1));
    let uuid = instance.uuid.as_deref().unwrap_or_default();
    assert!(uuid.starts_with("MIG-GPU-"), "{uuid}");
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(runner.0.id().cast_signed(), libc::SIGTERM) };
    assert!(!runner.0.wait().unwrap().success(), "it was told to end");
}

#[test]
fn r450_without_mig_is_shared() {
    let (code, seen, said) = job(&place("450", &[]));
    assert_eq!(code, Some(0), "{said}");
    assert!(seen.starts_with("GPU-"), "{seen}");
}
