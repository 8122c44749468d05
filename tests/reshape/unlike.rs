//! GPUs of two kinds, or in two modes, under one supervisor.

use std::process::Stdio;

use migm_supervisor::control::Grant;

use crate::daemon::{Daemon, PATIENCE, SCALE};
use crate::job::{Job, run};
use crate::mode::{Killed, node};
use crate::support::{Place, eventually, migm};

/// Each profile name means something else on each, and so does each table.
#[test]
fn gpus_of_two_kinds_each_get_what_fits_them_and_neither_waits_for_the_other() {
    let daemon = Daemon::tightest("a100-40gb:1,a30-24gb:1");
    let on = |grant: &Grant| if grant.gpu.contains("A30") { "A30" } else { "A100" };
    // The tightest of both: 1g.5gb has 4.75 GiB, 1g.6gb has 5.8.
    let mut jobs = Vec::new();
    for (mem, profile, gpu) in [
        (4_000_000_000, "1g.5gb", "A100"),
        (5_500_000_000, "1g.6gb", "A30"),
        (20_000_000_000, "4g.20gb", "A100"),
        (11_000_000_000, "2g.12gb", "A30"),
    ] {
        let mut job = Job::submit(&daemon, mem);
        let grant = job.grant();
        assert_eq!((grant.profile.as_str(), on(&grant)), (profile, gpu));
        jobs.push((job, grant));
    }
    let status = daemon.status();
    assert!(status.gpus[0].name.contains("A100") && status.gpus[1].name.contains("A30"));
    let kinds = |index: usize| {
        let slices = status.gpus[index].slices.iter();
        slices.map(|slice| slice.profile.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        (kinds(0), kinds(1)),
        (vec!["4g.20gb", "1g.5gb"], vec!["1g.6gb", "2g.12gb"])
    );
    // One refuses whatever is asked of it: who needs no more than the other has gets it there.
    daemon.faults("gpu1/create-gi@1x1000=insufficient-resources");
    let mut spills = Job::submit(&daemon, 5_600_000_000);
    let grant = spills.grant();
    assert_eq!((grant.profile.as_str(), on(&grant)), ("2g.10gb", "A100"));
    spills.end(&grant);
    // One is lost: its jobs are told, and the other runs on and serves.
    daemon.faults("gpu1/0s=lost");
    let status = eventually("the A30 put aside", PATIENCE, || {
        let status = daemon.status();
        (status.gpus[1].mode == "lost").then_some(status)
    });
    assert_eq!(status.gpus[0].mode, "mig");
    let said = daemon.migm(&["status"]);
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("A100") && said.contains("lost"), "{said}");
    let grant = run(&daemon, 4_500_000_000);
    assert_eq!(on(&grant), "A100");
    daemon.faults("");
    eventually("the A30 is back", PATIENCE, || {
        (daemon.status().gpus[1].mode == "mig").then_some(())
    });
    for (job, grant) in jobs {
        job.end(&grant);
    }
    assert_eq!(on(&run(&daemon, 5_500_000_000)), "A30");
}

/// A machine of two GPUs of which the first alone is cut, and a supervisor there.
fn half_cut(permission: Option<&str>) -> (Place, Killed) {
    let mut place = Place::simulated(&["--gpu", "h100-80gb:2", "--time-scale", SCALE]);
    assert_eq!(node(&place, &["enable-mig", "--device", "0"]).0, Some(0));
    if let Some(kind) = permission {
        place.set("SIMGPU_NO_PERMISSION", kind);
    }
    let child = place.migm(&["supervisor"]).stderr(Stdio::null()).spawn().unwrap();
    let supervisor = Killed(child);
    let modes = eventually("the supervisor answers", PATIENCE, || {
        let output = place.migm(&["status", "--json"]).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let gpus = status["gpus"].as_array()?.clone();
        Some(
            gpus.iter()
                .map(|gpu| gpu["mode"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>(),
        )
    });
    assert_eq!(modes, ["mig", "soft"]);
    (place, supervisor)
}

/// One job that needs so much: the profile and bytes of its only attempt.
fn granted(place: &Place, mem: &str, program: &[&str]) -> (String, u64) {
    let report = place.path().join(format!("{mem}.json"));
    let mut command = place.migm(&["run", "--mem", mem, "--report"]);
    let output = command.arg(&report).arg("--").args(program).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let attempt = &said["attempts"][0];
    (
        attempt["profile"].as_str().unwrap().to_owned(),
        attempt["memory"].as_u64().unwrap(),
    )
}

#[test]
fn where_one_gpu_is_cut_and_one_is_shared_both_serve() {
    let (place, _supervisor) = half_cut(None);
    // A slice that isolates comes first; beside it, what is too much for the rest of that GPU is shared.
    let inner = [
        migm().display().to_string(),
        "run --own-slice --mem 70G --report inner.json -- true".into(),
    ];
    let script = format!("cd {} && {} {}", place.path().display(), inner[0], inner[1]);
    let (profile, _) = granted(&place, "60G", &["sh", "-c", &script]);
    assert_eq!(profile, "7g.80gb");
    let inner: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path().join("inner.json")).unwrap()).unwrap();
    assert_eq!(
        (&inner["attempts"][0]["profile"], &inner["attempts"][0]["memory"]),
        (&"soft".into(), &70_000_000_000_u64.into())
    );
}

#[test]
fn without_the_right_to_cut_jobs_go_to_the_gpu_that_is_shared() {
    let (place, _supervisor) = half_cut(Some("config"));
    // The first finds out, the second is let in although it is known by then.
    for mem in ["5G", "6G"] {
        let bytes = mem[..1].parse::<u64>().unwrap() * 1_000_000_000;
        assert_eq!(granted(&place, mem, &["true"]), ("soft".to_owned(), bytes));
    }
    // Who wants the other one, or more than the shared one has, hears why there is no slice.
    for (name, value, mem) in [("CUDA_VISIBLE_DEVICES", "0", "5G"), ("UNUSED", "", "90G")] {
        let mut command = place.migm(&["run", "--mem", mem, "--", "true"]);
        let output = command.env(name, value).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(125), "{said}");
        assert!(
            said.contains("NO_PERMISSION") && said.contains("--use-existing"),
            "{said}"
        );
    }
}
