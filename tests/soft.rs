//! Soft slices, whole: jobs that share a simulated GPU with MIG off, each within its lease.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{Place, eventually, json};

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A GPU with MIG off that jobs share, and a supervisor that stays, configured so.
struct Shared {
    place: Place,
    supervisor: Child,
}

impl Shared {
    fn new(config: &str) -> Self {
        let place = Place::simulated(&["--time-scale", "0.05"]);
        std::fs::write(place.path().join("migm.toml"), config).unwrap();
        std::fs::write(
            place.path().join("costs.toml"),
            "[kernels]\ndecoder_attend = 0.4\nleak_answer = 0.4\n",
        )
        .unwrap();
        let supervisor = Self::supervise(&place);
        Self { place, supervisor }
    }

    fn supervise(place: &Place) -> Child {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(place.path().join("log"))
            .unwrap();
        let mut command = place.migm(&["supervisor", "--config"]);
        command.arg(place.path().join("migm.toml")).stderr(log);
        let child = command.env("MIGM_LOG", "info").spawn().unwrap();
        eventually("the supervisor answers", LIMIT, || {
            place
                .migm(&["status", "--json"])
                .output()
                .unwrap()
                .status
                .success()
                .then_some(())
        });
        child
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.place.path().join("log")).unwrap()
    }

    fn status(&self) -> Value {
        json(&self.place.migm(&["status", "--json"]).output().unwrap())
    }

    fn slices(&self) -> Vec<Value> {
        self.status()["gpus"][0]["slices"].as_array().unwrap().clone()
    }

    /// Bytes of the one lease there is.
    fn lease(&self) -> Option<u64> {
        self.slices().first()?["memory"].as_u64()
    }

    fn report_of(&self, name: &str) -> PathBuf {
        self.place.path().join(format!("{name}.json"))
    }

    /// `migm run` of a program that is played.
    fn run(&self, name: &str, options: &[&str], program: &[&str]) -> Job {
        let mut command = self.command(name, options);
        command.arg(support::migm()).arg("play").args(program);
        Job(command.spawn().unwrap())
    }

    fn command(&self, name: &str, options: &[&str]) -> Command {
        let mut command = self.place.migm(&["run", "--name", name, "--report"]);
        command.arg(self.report_of(name)).args(options).arg("--");
        command.env("SIMGPU_COSTS", self.place.path().join("costs.toml"));
        command.stdout(Stdio::null());
        command
    }

    fn job(&self, name: &str) -> Option<Value> {
        let status = self.status();
        let jobs = status["jobs"].as_array()?;
        jobs.iter().rev().find(|job| job["name"] == name).cloned()
    }

    fn report(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.report_of(name)).unwrap()).unwrap()
    }

    fn outcomes(&self, name: &str) -> Vec<String> {
        let report = self.report(name);
        let attempts = report["attempts"].as_array().unwrap();
        let outcome = |attempt: &Value| attempt["outcome"].as_str().unwrap().to_owned();
        attempts.iter().map(outcome).collect()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
    }
}

/// A runner, stopped with its program when the test is over, however it ends.
struct Job(Child);

impl Job {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    fn ends_well(mut self) {
        let ended = self.0.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }

    fn stop(self) {}
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.signal(Signal::SIGTERM);
            let _ = self.0.wait();
        }
    }
}

fn leased(slices: &[Value]) -> u64 {
    slices.iter().map(|slice| slice["memory"].as_u64().unwrap()).sum()
}

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

/// Each job sees its lease as the device, less what it and its context have of it.
#[test]
fn a_job_sees_its_lease_as_the_device() {
    let shared = Shared::new("");
    let program = shared.place.path().join("room");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-Wall", "-o"]).arg(&program);
    compile
        .arg(support::repository().join("tests/programs/room.c"))
        .arg("-ldl");
    assert!(compile.status().unwrap().success());
    let beside = shared.run(
        "beside",
        &["--mem", "9Gi"],
        &["stencil", "--size", "1024", "--iterations", "100000"],
    );
    eventually("another job runs beside it", LIMIT, || {
        shared.job("beside")?["figures"]["reserved"]
            .as_u64()
            .filter(|bytes| *bytes > 0)
    });
    let mut command = shared.command("room", &["--mem", "3Gi"]);
    let output = command.arg(&program).stdout(Stdio::piped()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let seen: Vec<u64> = printed
        .split_whitespace()
        .map(|figure| figure.parse().unwrap())
        .collect();
    assert_eq!((seen[0], seen[2]), (3 * GIB, 3 * GIB), "{printed}");
    // The context is charged what those of this machine were measured at, or what is configured before that.
    let context = 3 * GIB - GIB - seen[1];
    assert!((400 * MIB..=512 * MIB).contains(&context), "{context}");
    beside.stop();
}

/// The environment that the runner sets is what the program sees.
#[test]
fn a_program_sees_its_cap_and_its_share_where_mps_runs() {
    let shared = Shared::new("mode = 'soft'\nmps = 'limit'\nsoft_context = '400Mi'\n");
    let pipes = shared.place.path().join("mps");
    std::fs::create_dir(&pipes).unwrap();
    let pipe = pipes.join("control");
    let seen = |own: Option<&str>| {
        let mut command = shared.command("env", &["--mem", "10Gi"]);
        command
            .env("CUDA_MPS_PIPE_DIRECTORY", &pipes)
            .stdout(Stdio::piped());
        if let Some(own) = own {
            command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", own);
        }
        let output = command.args(["sh", "-c", "env"]).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map(str::to_owned)
        };
        let names = [
            "MIGM_CAP",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        ];
        names.map(value)
    };
    let cap = Some(format!("{}:{}:shared", 10 * GIB, 400 * MIB));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        seen(None),
        [cap.clone(), None, None],
        "nobody reads from the pipe"
    );
    let _daemon = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    // A quarter of 40 GiB.
    let limit = Some("0=10240M".to_owned());
    assert_eq!(seen(None), [cap.clone(), Some("25".to_owned()), limit.clone()]);
    assert_eq!(seen(Some("7")), [cap, Some("7".to_owned()), limit]);
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
