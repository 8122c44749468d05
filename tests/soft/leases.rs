//! What is leased to whom, beside other jobs and beside those that are not ours.

use std::process::Stdio;
use std::time::Duration;

use super::{GIB, Job, LIMIT, Shared, leased};
use crate::support::{self, Place, eventually};

#[test]
fn several_jobs_share_a_gpu_each_on_a_lease_of_its_own() {
    let shared = Shared::new("");
    let program = ["stencil", "--size", "1024", "--iterations", "100000"];
    let jobs: Vec<Job> = (0..3)
        .map(|number| shared.run(&format!("job{number}"), &["--mem", "6Gi"], &program))
        .collect();
    let slices = eventually("all three run", LIMIT, || {
        let slices = shared.slices();
        (slices.len() == 3).then_some(slices)
    });
    for slice in &slices {
        assert_eq!(slice["profile"], "soft", "{slice}");
        assert_eq!(slice["memory"], 6 * GIB, "{slice}");
        assert_eq!(slice["state"], "busy", "{slice}");
    }
    assert_eq!(shared.status()["gpus"][0]["mode"], "soft");
    let text = shared.place.migm(&["status"]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("6.00 GiB  busy"), "{text}");
    // Leases together never pass what there is: one that does not fit beside them waits.
    let fourth = shared.run("fourth", &["--mem", "30Gi"], &["lu", "--iterations", "1"]);
    let note = eventually("the fourth says why it waits", LIMIT, || {
        let job = shared.job("fourth").filter(|job| job["state"] == "waiting")?;
        job["note"]
            .as_str()
            .filter(|note| note.contains("no room"))
            .map(str::to_owned)
    });
    assert!(note.contains("18.00 GiB of it leased"), "{note}");
    assert_eq!(leased(&shared.slices()), 18 * GIB);
    jobs.into_iter().for_each(Job::stop);
    fourth.ends_well();
    assert_eq!(shared.outcomes("fourth"), ["done"]);
    assert_eq!(shared.slices().len(), 0);
}

/// A job's second program needs little of what the first made its lease grow to.
#[test]
fn a_lease_gives_back_what_it_does_not_need_to_a_job_that_waits() {
    let shared = Shared::new("");
    let script = "\"$0\" play decoder --start 1Gi --growth 512Mi --iterations 40 && \
                  exec \"$0\" play stencil --size 1024 --iterations 100000";
    let mut command = shared.command("first", &["--mem", "2Gi"]);
    command.args(["sh", "-c", script]).arg(support::migm());
    let first = Job(command.spawn().unwrap());
    let grown = eventually("its lease has grown", LIMIT, || {
        shared.lease().filter(|bytes| *bytes > 20 * GIB)
    });
    let second = shared.run("second", &["--mem", "30Gi"], &["lu", "--iterations", "1"]);
    second.ends_well();
    let left = shared.lease().unwrap();
    assert!(
        (2 * GIB..=10 * GIB).contains(&left),
        "{left} of {grown}: {}",
        shared.log()
    );
    let attempts = shared.job("first").unwrap()["attempts"].clone();
    assert_eq!(attempts.as_array().unwrap().len(), 1, "{attempts}");
    assert!(attempts[0]["memory"].as_u64().unwrap() >= grown, "{attempts}");
    assert!(shared.log().contains("gives back what it does not need"));
    first.stop();
}

/// What a process that is not ours holds is not leased, read at each decision.
#[test]
fn what_others_hold_is_not_leased() {
    let shared = Shared::new("");
    let mut theirs = shared.place.command(support::migm());
    theirs.args([
        "play",
        "jumper",
        "--start",
        "20Gi",
        "--jump",
        "20Gi",
        "--iterations",
        "100000",
    ]);
    let mut theirs = theirs.stdout(Stdio::null()).spawn().unwrap();
    let job = eventually("it has its memory", LIMIT, || {
        std::thread::sleep(Duration::from_millis(200));
        let job = shared.run("large", &["--mem", "25Gi"], &["lu", "--iterations", "1"]);
        let note = eventually("it waits or is over", LIMIT, || {
            let job = shared.job("large")?;
            let waits = job["note"]
                .as_str()
                .is_some_and(|note| note.contains("held by others"));
            (waits || job["state"] == "ended").then_some(waits)
        });
        note.then_some(job)
    });
    // A small one runs beside it, and is disturbed as little as it disturbs.
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    job.ends_well();
}

#[test]
fn a_gpu_in_another_mode_is_left_out_and_never_changed() {
    let place = Place::simulated(&["--time-scale", "0.05"]);
    let config = place.path().join("migm.toml");
    std::fs::write(&config, "mode = 'mig'\n").unwrap();
    let output = place
        .migm(&["supervisor", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("never changes a GPU's MIG mode"), "{said}");
}
