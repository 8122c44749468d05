//! A driver that refuses and loses GPUs, and instances that somebody holds.

use std::time::Duration;

use migm_supervisor::control::NodeStatus;
use simgpu::device_files::DeviceFile;

use crate::daemon::{Daemon, PATIENCE};
use crate::job::{Job, run};
use crate::support::{eventually, json};

#[test]
fn a_create_that_the_driver_refuses_is_planned_elsewhere() {
    let daemon = Daemon::tightest("a100-40gb");
    daemon.faults("create-gi@1=insufficient-resources");
    let mut job = Job::submit(&daemon, 4_000_000_000);
    let grant = job.grant();
    assert_ne!(
        grant.start, 6,
        "the place that was refused is where the table would have it"
    );
    job.end(&grant);
    // Half-made ones are taken back.
    daemon.faults("create-ci@1=insufficient-resources");
    let grant = run(&daemon, 9_000_000_000);
    assert_eq!(grant.profile, "2g.10gb");
    assert!(daemon.instances(0).iter().all(|one| !one.cis.is_empty()));
}

#[test]
fn what_the_driver_refuses_a_decider_is_had_elsewhere_or_later() {
    for policy in ["migm", "mfi"] {
        let daemon = Daemon::by(policy, "a100-40gb");
        for fault in ["create-gi", "create-ci"] {
            daemon.faults(&format!("{fault}@1x2=insufficient-resources"));
            run(&daemon, 9_000_000_000);
            let there = daemon.instances(0);
            assert!(there.iter().all(|one| !one.cis.is_empty()), "{policy}: {there:?}");
            // The next job needs a create too.
            daemon.migm(&["node", "clear", "--sim", "a100-40gb"]);
        }
    }
}

#[test]
fn a_gpu_lost_in_a_reshape_is_put_aside_and_the_other_goes_on() {
    for policy in ["scheme-b", "mfi"] {
        lost_in_a_reshape(policy);
    }
}

fn lost_in_a_reshape(policy: &str) {
    let daemon = Daemon::by(policy, "a100-40gb:2");
    let small = 4_000_000_000;
    let mut here = Job::on(&daemon, small, Some("0"));
    let (mut there, lost) = (Job::on(&daemon, small, Some("1")), "gpu1/create-gi@1=lost");
    let (on_0, on_1) = (here.grant(), there.grant());
    let before = daemon.instances(1);
    daemon.faults(lost);
    // In the middle of a transition on GPU 1.
    let mut waits = Job::on(&daemon, 9_000_000_000, Some("1"));
    let status = eventually("GPU 1 put aside", PATIENCE, || {
        let status = daemon.status();
        (status.gpus[1].mode == "lost").then_some(status)
    });
    assert_eq!(status.gpus[0].mode, "mig");
    let note = |status: &NodeStatus, id| {
        status
            .jobs
            .iter()
            .find(|job| job.id == id)
            .and_then(|job| job.note.clone())
            .unwrap_or_default()
    };
    let said = note(&status, on_1.attempt.job);
    assert!(
        said.contains("GPU 1 is put aside") && said.contains("GPU_IS_LOST"),
        "{said}"
    );
    assert!(!note(&status, on_0.attempt.job).contains("put aside"));
    // Others are served, and the first one is left alone.
    let anywhere = run(&daemon, 9_000_000_000);
    assert_eq!(anywhere.gpu_uuid, on_0.gpu_uuid);
    here.end(&on_0);
    assert!(
        waits.hear(Duration::ZERO).is_none(),
        "it waits for the GPU that it named"
    );
    let listed = json(&daemon.migm(&["node", "list", "--json", "--sim", "a100-40gb:2"]));
    assert_eq!(
        (&listed["gpus"][0]["mode"], &listed["gpus"][1]["mode"]),
        (&"mig".into(), &"lost".into())
    );
    // It comes back with its instances: ours is ours, its job keeps it, and the wait is over.
    daemon.faults("");
    let grant = waits.grant();
    assert_eq!(grant.gpu_uuid, on_1.gpu_uuid);
    assert!(daemon.instances(1).contains(&before[0]));
    let status = daemon.status();
    let slice = status.gpus[1]
        .slices
        .iter()
        .find(|slice| slice.start == on_1.start)
        .unwrap();
    assert_eq!(
        (slice.state.as_str(), slice.incarnation),
        ("busy", Some(on_1.slice))
    );
    there.end(&on_1);
    waits.end(&grant);
}

#[test]
fn clear_takes_idle_slices_of_ours_and_names_what_stays_and_who_holds_it() {
    let mut daemon = Daemon::tightest("a100-40gb");
    let foreign = daemon.foreign("1g.5gb", 0);
    let mut busy = Job::submit(&daemon, 19_000_000_000);
    let grant = busy.grant();
    run(&daemon, 4_000_000_000);
    // In use for a moment after the end of a process: tried again.
    daemon.faults("destroy-ci@1x2=in-use");
    let clear = ["node", "clear", "--json", "--sim", "a100-40gb"];
    let output = daemon.migm(&clear);
    let said = json(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said["removed"], 1);
    let kept = said["kept"].to_string();
    assert!(
        kept.contains("is busy with job") && kept.contains("1g.5gb@0 on GPU 0 is foreign"),
        "{kept}"
    );
    assert_eq!(daemon.instances(0).len(), 2);
    // Somebody who is no CUDA process holds the GPU: the compute instance goes, the GPU instance does not.
    run(&daemon, 4_000_000_000);
    let id = daemon.state()["simulated"]["id"].as_str().unwrap().to_owned();
    let machine = simgpu::Machine::open_id(&id).unwrap();
    let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
    let output = daemon.migm(&clear);
    let said = json(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let failed = said["failed"].to_string();
    let holder = format!("pid {}", std::process::id());
    assert!(failed.contains("IN_USE") && failed.contains(&holder), "{failed}");
    drop(held);
    // No job may get what is left of it.
    let status = daemon.status();
    assert!(
        status.gpus[0].slices.iter().any(|slice| slice.state == "stuck"),
        "{status:?}"
    );
    let hollow: Vec<u32> = daemon
        .instances(0)
        .iter()
        .filter(|one| one.cis.is_empty())
        .map(|one| one.placement.start)
        .collect();
    assert_eq!(hollow.len(), 1);
    let next = run(&daemon, 4_000_000_000);
    assert_ne!(next.start, hollow[0]);
    assert!(daemon.instances(0).contains(&foreign));
    busy.end(&grant);
}
