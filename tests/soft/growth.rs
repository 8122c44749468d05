//! Jobs that outgrow their lease: it grows in place, or one of them makes room.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::{GIB, Job, LIMIT, Shared, leased};
use crate::support::{self, eventually};

/// 1 GiB and 64 MiB an iteration: 4.75 GiB in the end.
const GROWER: [&str; 7] = [
    "decoder",
    "--start",
    "1Gi",
    "--growth",
    "64Mi",
    "--iterations",
    "60",
];

#[test]
fn a_growing_job_is_never_relaunched_while_there_is_room() {
    let shared = Shared::new("");
    let job = shared.run("grower", &["--mem", "2Gi"], &GROWER);
    let first = eventually("it has a lease", LIMIT, || shared.lease());
    assert_eq!(first, 2 * GIB);
    let grown = eventually("the lease grows", LIMIT, || {
        shared.lease().filter(|bytes| *bytes > first)
    });
    // The file that the next supervisor reads has it too.
    let socket = shared.place.path().join("run/s");
    let file = migm_supervisor::daemon::socket::beside(&socket, "state.json");
    let state = migm_supervisor::daemon::state::State::read(&file).unwrap();
    let grant = state.jobs[0].grant.as_ref().unwrap();
    assert!(grant.memory >= grown, "{state:#?}");
    job.ends_well();
    assert_eq!(shared.outcomes("grower"), ["done"], "{}", shared.log());
    let report = shared.report("grower");
    assert!(report["peak_bytes"].as_u64().unwrap() > 4 * GIB);
    // The attempt tells what its lease had grown to, in the report and in the status.
    let had = report["attempts"][0]["memory"].as_u64().unwrap();
    assert!(had >= grown, "{report:#}");
    assert_eq!(report["attempts"][0]["profile"], "soft");
    assert_eq!(shared.job("grower").unwrap()["attempts"][0]["memory"], had);
}

/// A jump has no forecast: the allocation itself asks, and waits until its lease has grown.
#[test]
fn an_allocation_beyond_the_lease_waits_until_it_has_grown() {
    let shared = Shared::new("");
    let program = [
        "jumper",
        "--start",
        "1Gi",
        "--jump",
        "9Gi",
        "--at",
        "3",
        "--iterations",
        "6",
    ];
    shared.run("jumper", &["--mem", "2Gi"], &program).ends_well();
    assert_eq!(shared.outcomes("jumper"), ["done"]);
    assert!(shared.log().contains("a soft slice grows in place"));
}

/// Two jobs that each want three quarters of the GPU: one is moved or runs out, and waits for the other.
#[test]
fn of_two_growers_one_waits_for_the_other() {
    let shared = Shared::new("");
    let program = [
        "decoder",
        "--start",
        "1Gi",
        "--growth",
        "512Mi",
        "--iterations",
        "56",
    ];
    let jobs = ["one", "two"].map(|name| {
        let options = ["--mem", "10Gi", "--iterations", "56"];
        (name, shared.run(name, &options, &program))
    });
    let mut attempts = 0;
    eventually("one has to go", LIMIT, || {
        let leased = leased(&shared.slices());
        assert!(leased < 40 * GIB, "the driver keeps some of it: {leased}");
        let told = ["one", "two"].map(|name| shared.job(name).map(|job| job["attempts"].clone()));
        let ended = |attempts: &Value| {
            attempts
                .as_array()
                .is_some_and(|all| all.iter().any(|one| !one["end"].is_null()))
        };
        told.iter().flatten().any(ended).then_some(())
    });
    for (name, job) in jobs {
        job.ends_well();
        let outcomes = shared.outcomes(name);
        assert_eq!(
            outcomes.last().map(String::as_str),
            Some("done"),
            "{name}: {outcomes:?}"
        );
        let again = &outcomes[..outcomes.len() - 1];
        assert!(
            again.iter().all(|outcome| outcome == "moved" || outcome == "oom"),
            "{name}: {outcomes:?}"
        );
        attempts += outcomes.len();
    }
    assert_eq!(attempts, 3, "one was started again, once: {}", shared.log());
}

/// The caps live in the counter page and the leases in the state file.
#[test]
fn after_the_supervisors_death_jobs_stay_capped_and_leases_keep_their_size() {
    let mut shared = Shared::new("");
    let program = [
        "decoder",
        "--start",
        "1Gi",
        "--growth",
        "32Mi",
        "--iterations",
        "100",
    ];
    let job = shared.run("grower", &["--mem", "2Gi"], &program);
    let grown = eventually("the lease grows", LIMIT, || {
        shared.lease().filter(|bytes| *bytes > 2 * GIB)
    });
    shared.supervisor.kill().unwrap();
    shared.supervisor.wait().unwrap();
    shared.supervisor = Shared::supervise(&shared.place);
    let adopted = shared.lease().unwrap();
    assert!(adopted >= grown, "{adopted} after {grown}");
    let others = shared.run("other", &["--mem", "38Gi"], &["lu", "--iterations", "1"]);
    eventually("another knows of the lease", LIMIT, || {
        let note = shared.job("other")?["note"].as_str()?.to_owned();
        note.contains("no room").then_some(())
    });
    others.stop();
    job.ends_well();
    assert_eq!(shared.outcomes("grower"), ["done"], "{}", shared.log());
}

/// A stopped supervisor answers nobody: the request is refused after a bounded wait, and the job goes on larger
/// when there is a supervisor again.
#[test]
fn a_raise_that_nobody_answers_ends_out_of_memory() {
    let shared = Shared::new("");
    let script = "until [ -e go ]; do sleep 0.02; done; exec \"$0\" play jumper --start 1Gi --jump 4Gi --at 3 \
                  --iterations 6";
    let mut command = shared.command("jumper", &["--mem", "2Gi"]);
    command.args(["sh", "-c", script]).arg(support::migm());
    let job = Job(command.current_dir(shared.place.path()).spawn().unwrap());
    eventually("it has its lease", LIMIT, || shared.lease());
    let runs = || {
        let children = format!("/proc/{0}/task/{0}/children", job.0.id());
        !std::fs::read_to_string(children).unwrap().trim().is_empty()
    };
    // A lease is there before its program is.
    eventually("the program runs", LIMIT, || runs().then_some(()));
    let supervisor = Pid::from_raw(i32::try_from(shared.supervisor.id()).unwrap());
    kill(supervisor, Signal::SIGSTOP).unwrap();
    std::fs::write(shared.place.path().join("go"), "").unwrap();
    // The program ends on its failed request, and its runner waits for the supervisor with the news.
    eventually("the program has ended", LIMIT, || (!runs()).then_some(()));
    kill(supervisor, Signal::SIGCONT).unwrap();
    job.ends_well();
    assert_eq!(shared.outcomes("jumper"), ["oom", "done"], "{}", shared.log());
}
