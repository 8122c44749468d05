//! Supervisors that are killed, or whose machine goes from under them.

use std::time::Duration;

use migm_supervisor::control::Reply;
use migm_supervisor::node::{Instance, Node};

use crate::daemon::{Daemon, PATIENCE};
use crate::job::{Job, run};
use crate::support::eventually;

/// What must be true of a machine after a supervisor was killed and the next one has looked around: foreign
/// instances as they were, all else ours by number, nothing half made, nothing in the file still under way.
fn nothing_is_lost(daemon: &Daemon, foreign: &[Instance], when: &str) {
    let status = daemon.status();
    let there = daemon.instances(0);
    for one in foreign {
        assert!(
            there.contains(one),
            "{when}: a foreign instance is gone: {there:?}"
        );
    }
    for one in &there {
        assert!(!one.cis.is_empty(), "{when}: half an instance: {there:?}");
        let slice = status.gpus[0]
            .slices
            .iter()
            .find(|slice| slice.start == one.placement.start);
        let slice = slice.unwrap_or_else(|| panic!("{when}: unknown {one:?}"));
        let is_foreign = foreign.contains(one);
        assert_eq!(
            slice.state,
            if is_foreign { "foreign" } else { "idle" },
            "{when}: {status:?}"
        );
        assert_eq!(slice.incarnation.is_some(), !is_foreign, "{when}: {status:?}");
        assert_eq!(slice.uuid, one.uuid, "{when}");
    }
    assert_eq!(status.gpus[0].slices.len(), there.len(), "{when}: {status:?}");
    let file = daemon.state();
    let slices = file["slices"].as_array().unwrap();
    assert!(
        slices.iter().all(|slice| slice["step"] == "ready"),
        "{when}: {file}"
    );
}

/// A reshape is a chain of NVML calls: compute instance and GPU instance of each slice that goes, then of the
/// slice that comes. The supervisor dies within each of these calls in turn (simgpu holds up the k-th), and the
/// one after it goes on from there: fusion first, then fission, on a GPU half of which belongs to somebody else.
#[test]
fn killed_at_every_step_the_next_supervisor_goes_on_from_a_legal_layout() {
    killed_at_every_step("scheme-b");
}

/// The same with orders that a decider gives, of one that takes the tightest slice too.
#[test]
fn killed_at_every_step_of_a_decider_the_next_supervisor_goes_on() {
    killed_at_every_step("mfi");
}

fn killed_at_every_step(policy: &str) {
    let mut daemon = Daemon::by(policy, "a100-40gb");
    let foreign = vec![daemon.foreign("4g.20gb", 0)];
    let (small, large) = (4_000_000_000, 19_000_000_000);
    let mut kills = Vec::new();
    for (name, before, wanted) in [("fusion", small, large), ("fission", large, small)] {
        for step in 1.. {
            // Two small slices, or the large one.
            let mut first = Job::submit(&daemon, before);
            let grant = first.grant();
            if before == small {
                run(&daemon, before);
            }
            first.end(&grant);
            nothing_is_lost(&daemon, &foreign, name);
            daemon.faults(&format!("change@{step}=200000ms"));
            let mut job = Job::submit(&daemon, wanted);
            if let Some(Reply::Grant(grant)) = job.hear(Duration::from_millis(400)) {
                // The chain has no such step: all have had their turn.
                job.end(&grant);
                daemon.faults("");
                break;
            }
            daemon.kill();
            daemon.faults("");
            let when = format!("{name}, killed in call {step}");
            kills.push(when.clone());
            daemon.launch();
            nothing_is_lost(&daemon, &foreign, &when);
            // The job that it was for comes back with its runner, and gets its slice.
            run(&daemon, wanted);
            nothing_is_lost(&daemon, &foreign, &when);
        }
    }
    assert!(
        kills.len() >= 8,
        "the chains are shorter than they can be: {kills:?}"
    );
    let last = daemon.driver();
    assert!(daemon.terminate().success());
    assert_eq!(
        last.node.instances(0).unwrap(),
        foreign,
        "something of ours was left"
    );
    drop(last);
}

#[test]
fn a_supervisor_ends_although_the_driver_never_answers() {
    let mut daemon = Daemon::tightest("a100-40gb");
    // Some minutes of wall time.
    daemon.faults("change@1=10000000ms");
    let _waits = Job::submit(&daemon, 4_000_000_000);
    eventually("a create in hand", PATIENCE, || {
        let status = daemon.status();
        let slices = &status.gpus[0].slices;
        slices.iter().any(|slice| slice.state == "creating").then_some(())
    });
    assert!(daemon.terminate().success());
}

#[test]
fn a_supervisor_whose_simulated_gpu_is_taken_away_ends_when_asked() {
    let mut daemon = Daemon::tightest("a100-40gb");
    let mut job = Job::submit(&daemon, 4_000_000_000);
    let grant = job.grant();
    let id = daemon.state()["simulated"]["id"].as_str().unwrap().to_owned();
    simgpu::files::remove(&id).unwrap();
    job.end(&grant);
    assert!(daemon.terminate().success());
    assert!(!daemon.path("migm.sim").exists(), "something of it was left");
}

#[test]
fn a_gpu_lost_while_no_supervisor_ran_comes_back_with_the_slices_of_the_state_file() {
    let mut daemon = Daemon::tightest("a100-40gb:2");
    let grant = Job::on(&daemon, 4_000_000_000, Some("1")).grant();
    daemon.kill();
    daemon.faults("gpu1/0s=lost");
    daemon.launch();
    let status = daemon.status();
    assert_eq!(
        (status.gpus[0].mode.as_str(), status.gpus[1].mode.as_str()),
        ("mig", "lost")
    );
    assert_eq!(run(&daemon, 4_000_000_000).gpu_uuid, status.gpus[0].uuid);
    let named = daemon.state()["slices"].to_string();
    assert!(
        named.contains(&grant.gpu_uuid),
        "the file no longer names it: {named}"
    );
    daemon.faults("");
    let slice = eventually("GPU 1 back", PATIENCE, || {
        let status = daemon.status();
        let mut slices = status.gpus[1].slices.iter();
        slices.find(|slice| slice.start == grant.start).cloned()
    });
    assert_eq!(slice.incarnation, Some(grant.slice), "{slice:?}");
    assert_ne!(slice.state, "foreign");
}
