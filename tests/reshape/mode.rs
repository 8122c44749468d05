//! The MIG mode, changed by `migm node` and by others.

use std::path::Path;
use std::process::{Child, Stdio};

use migm_supervisor::node::Node;
use migm_supervisor::node::sim::SimulatedGpu;
use simgpu::device_files::DeviceFile;

use crate::daemon::{PATIENCE, slot, turn};
use crate::support::{Place, eventually, json};

/// A process that does not outlive its test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `migm node` on a simulated GPU of the test's own, without a supervisor.
pub fn node(place: &Place, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let arguments = [&["node"], arguments, &["--json"]].concat();
    let output = place.migm(&arguments).output().unwrap();
    (output.status.code(), json(&output))
}

#[test]
fn the_mode_is_changed_when_asked_read_back_and_told_with_its_remedy() {
    let ampere = Place::simulated(&["--gpu", "a100-40gb"]);
    let (code, said) = node(&ampere, &["list"]);
    assert_eq!((code, &said["gpus"][0]["current"]), (Some(0), &"off".into()));
    assert!(said["gpus"][0]["remedy"].as_str().unwrap().contains("enable-mig"));
    // A reset is due: asked for, and not yet so.
    let (code, said) = node(&ampere, &["enable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (code, &gpu["outcome"], &gpu["current"]),
        (Some(1), &"pending".into(), &"off".into())
    );
    assert!(gpu["said"].as_str().unwrap().contains("--gpu-reset"), "{said}");
    let (_, said) = node(&ampere, &["list"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (&gpu["pending"], &gpu["mode"]),
        (&"on".into(), &"mig-pending".into())
    );
    assert!(gpu["remedy"].as_str().unwrap().contains("reset"), "{said}");

    let mut hopper = Place::simulated(&["--gpu", "h100-80gb"]);
    let (code, said) = node(&hopper, &["enable-mig"]);
    assert_eq!(
        (code, &said["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{said}"
    );
    let (code, said) = node(&hopper, &["enable-mig"]);
    assert_eq!((code, &said["gpus"][0]["outcome"]), (Some(0), &"already".into()));
    // Somebody's instance is not touched, and named.
    let theirs = {
        let _turn = turn();
        let id = hopper.variable("SIMGPU_ID").unwrap();
        let folder = Path::new(
            hopper
                .variable("LD_LIBRARY_PATH")
                .unwrap()
                .split(':')
                .next()
                .unwrap(),
        );
        let gpu = SimulatedGpu::attach(folder, id).unwrap();
        let nvml = gpu.node().unwrap();
        let (kind, place) = slot(&nvml, 0, "2g.20gb", 2);
        let made = nvml.create(0, &kind, place).unwrap();
        let (code, said) = node(&hopper, &["disable-mig"]);
        let gpu = &said["gpus"][0];
        assert_eq!(
            (code, &gpu["outcome"], &gpu["current"]),
            (Some(1), &"refused".into(), &"on".into())
        );
        assert!(
            gpu["said"].as_str().unwrap().contains("2g.20gb@2 is foreign"),
            "{said}"
        );
        assert_eq!(nvml.instances(0).unwrap(), std::slice::from_ref(&made));
        nvml.destroy(0, made.gi).unwrap();
        made
    };
    assert!(theirs.uuid.is_some());
    // In use by a monitor: it is named, and nothing stays pending.
    let machine = simgpu::Machine::open_id(hopper.variable("SIMGPU_ID").unwrap()).unwrap();
    let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
    let (code, said) = node(&hopper, &["disable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!(
        (code, &gpu["outcome"], &gpu["pending"]),
        (Some(1), &"refused".into(), &"on".into()),
        "{said}"
    );
    assert!(
        gpu["holders"]
            .to_string()
            .contains(&format!("pid {}", std::process::id())),
        "{said}"
    );
    drop(held);
    hopper.set("SIMGPU_NO_PERMISSION", "1");
    let output = hopper.migm(&["node", "disable-mig"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("NO_PERMISSION") && said.contains("CAP_SYS_ADMIN"),
        "{said}"
    );
    hopper.set("SIMGPU_NO_PERMISSION", "0");
    let (code, said) = node(&hopper, &["disable-mig"]);
    assert_eq!(
        (code, &said["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{said}"
    );
    let output = hopper
        .migm(&["node", "enable-mig", "--device", "4"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// A place on a machine that is a guest of another.
fn guest(kind: &str) -> Place {
    let mut place = Place::without_gpu();
    place.set("SIMGPU_GUEST", kind);
    let output = place
        .migm(&["sim", "env", "--gpu", "a100-40gb"])
        .output()
        .unwrap();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        place.set(name, value.trim_matches('\''));
    }
    place
}

#[test]
fn in_a_virtual_machine_the_remedy_is_the_guests_reboot_or_the_host() {
    let place = guest("passthrough");
    let (code, said) = node(&place, &["enable-mig"]);
    let gpu = &said["gpus"][0];
    assert_eq!((code, &gpu["outcome"]), (Some(1), &"pending".into()), "{said}");
    assert!(
        gpu["said"]
            .as_str()
            .unwrap()
            .contains("reboot the virtual machine"),
        "{said}"
    );
    let place = guest("vgpu");
    let output = place.migm(&["node", "enable-mig"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("its host can"), "{said}");
}

#[test]
fn a_supervisor_that_runs_takes_up_a_mode_that_was_changed() {
    let place = Place::simulated(&["--gpu", "h100-80gb"]);
    let tightest = ["supervisor", "--policy", "scheme-b"];
    let mut supervisor = Killed(place.migm(&tightest).stderr(Stdio::null()).spawn().unwrap());
    let mode = || {
        let output = place.migm(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        Some(status["gpus"][0]["mode"].as_str()?.to_owned())
    };
    eventually("a GPU that jobs share", PATIENCE, || {
        mode().filter(|mode| mode == "soft")
    });
    assert_eq!(node(&place, &["enable-mig"]).0, Some(0));
    eventually("a GPU to be cut", PATIENCE, || {
        mode().filter(|mode| mode == "mig")
    });
    let ran = place
        .migm(&["run", "--mem", "1G", "--", "true"])
        .status()
        .unwrap();
    assert!(ran.success());
    // The picture, as a pipe gets it: the slice is where it was made, and all else is free.
    let output = place.migm(&["status"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.is_ascii() && said.contains("|1g.10gb ") && said.contains("|idle "),
        "{said}"
    );
    assert!(said.lines().all(|line| line.len() <= 80), "{said}");
    // Off again: our idle slice is no hindrance, and goes.
    let (code, changed) = node(&place, &["disable-mig"]);
    assert_eq!(
        (code, &changed["gpus"][0]["outcome"]),
        (Some(0), &"done".into()),
        "{changed}"
    );
    eventually("a shared GPU again", PATIENCE, || {
        mode().filter(|mode| mode == "soft")
    });
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(supervisor.0.id().cast_signed(), libc::SIGTERM) };
    assert!(supervisor.0.wait().unwrap().success());
}
