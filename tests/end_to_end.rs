//! Whole jobs: runner, supervisor, interposer and programs as a user starts them, on a simulated GPU.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::{Place, eventually, json, nvcc_or_leave_out, repository};

const LIMIT: Duration = Duration::from_secs(60);

fn status(place: &Place) -> Option<Value> {
    let output = place.migm(&["status", "--json"]).output().unwrap();
    output.status.success().then(|| json(&output))
}

/// The jobs of `migm status` in this state.
fn jobs(place: &Place, state: &str) -> Vec<Value> {
    let all = status(place).and_then(|status| status["jobs"].as_array().cloned());
    all.unwrap_or_default()
        .into_iter()
        .filter(|job| job["state"] == state)
        .collect()
}

fn slices(place: &Place) -> Vec<Value> {
    status(place)
        .and_then(|status| status["gpus"][0]["slices"].as_array().cloned())
        .unwrap_or_default()
}

/// The process that leads the running attempt. The first runner of a place has its private supervisor as a
/// child too.
fn program_of(runner: &Child) -> nix::unistd::Pid {
    eventually("the program runs", LIMIT, || {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", runner.id())).ok()?;
        let plays = |pid: &&str| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // A child that has not come to its exec yet has the runner's own words, of which `play` is a later one.
            line.split(|byte| *byte == 0).nth(1) == Some(b"play")
        };
        children
            .split_whitespace()
            .find(plays)?
            .parse()
            .ok()
            .map(nix::unistd::Pid::from_raw)
    })
}

fn report(place: &Place) -> Value {
    serde_json::from_slice(&std::fs::read(place.path().join("report.json")).unwrap()).unwrap()
}

fn outcomes(report: &Value) -> Vec<&str> {
    let attempts = report["attempts"].as_array().unwrap();
    attempts
        .iter()
        .map(|attempt| attempt["outcome"].as_str().unwrap())
        .collect()
}

/// `migm run --report` of a program of `migm play`.
fn run(place: &Place, options: &[&str], program: &[&str]) -> Command {
    let mut command = place.migm(&["run", "--report"]);
    command
        .arg(place.path().join("report.json"))
        .args(options)
        .arg("--");
    command.arg(support::migm()).arg("play").args(program);
    command.stdout(Stdio::null());
    command
}

#[test]
fn an_unmodified_cuda_program_is_counted_to_the_byte() {
    let Some(nvcc) = nvcc_or_leave_out("an_unmodified_cuda_program_is_counted_to_the_byte") else {
        return;
    };
    // Slow enough for two readings of the driver's charge, a twentieth of a second apart.
    let place = Place::simulated(&["--mig", "--time-scale", "2"]);
    for program in ["kmeans", "decoder", "leak"] {
        let built = place.path().join(program);
        let source = repository().join(format!("examples/cuda/{program}.cu"));
        let mut compile = Command::new(&nvcc);
        compile.args(["-cudart", "shared", "-o"]).arg(&built).arg(source);
        assert!(compile.status().unwrap().success(), "{program}");

        let file = place.path().join("report.json");
        let mut command = place.migm(&["run", "--report"]);
        command
            .arg(&file)
            .arg("--")
            .arg(&built)
            .args(["--iterations", "60"]);
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        );

        // The program prints what its source allocates; migm has counted it from outside.
        let peak = printed
            .split("peak ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let peak: u64 = peak
            .and_then(|peak| peak.parse().ok())
            .unwrap_or_else(|| panic!("{printed}"));
        let report = report(&place);
        assert_eq!(report["peak_bytes"], peak, "{program}");
        assert_eq!(report["peak"]["reserved"], peak, "{program}");
        assert_eq!(outcomes(&report), ["done"], "{program}");
        // What the driver charges is measured from outside too, so a job of a few milliseconds goes without.
        if program == "kmeans" {
            let device = report["peak"]["device"]
                .as_u64()
                .unwrap_or_else(|| panic!("{report:#}"));
            assert!(device > peak, "the context is charged too: {report:#}");
        }
    }
}

#[test]
fn a_program_starts_on_the_smallest_slice_and_the_slice_goes_with_the_supervisor() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let costs = place.path().join("costs.toml");
    std::fs::write(&costs, "[kernels]\nstencil_step = 0.2\n").unwrap();
    let mut stencil = run(&place, &[], &["stencil", "--size", "1024", "--iterations", "30"]);
    let mut runner = stencil.env("SIMGPU_COSTS", &costs).spawn().unwrap();
    let running = eventually("the job runs", LIMIT, || jobs(&place, "running").pop());
    assert_eq!(running["name"], "migm");
    let held = slices(&place);
    assert_eq!(held.len(), 1, "{held:?}");
    assert_eq!(
        (held[0]["profile"].as_str(), held[0]["state"].as_str()),
        (Some("1g.5gb"), Some("busy"))
    );
    assert!(runner.wait().unwrap().success());
    let report = report(&place);
    assert_eq!(outcomes(&report), ["done"]);
    assert_eq!(report["attempts"][0]["profile"], "1g.5gb");
    eventually("the private supervisor ends", LIMIT, || {
        status(&place).is_none().then_some(())
    });
}

#[test]
fn a_killed_program_frees_its_slice_and_the_status_says_which_signal() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let mut runner = run(&place, &[], &["stencil", "--iterations", "100000"])
        .spawn()
        .unwrap();
    eventually("the program holds memory", LIMIT, || {
        let job = jobs(&place, "running").pop()?;
        job["peak_bytes"]
            .as_u64()
            .or(job["figures"]["reserved"].as_u64())
            .filter(|bytes| *bytes > 0)
    });
    nix::sys::signal::kill(program_of(&runner), nix::sys::signal::Signal::SIGKILL).unwrap();
    let ended = runner.wait().unwrap();
    assert_eq!((ended.code(), ended.signal()), (Some(137), None));
    let report = report(&place);
    assert_eq!(outcomes(&report), ["failed"]);
    // The page outlives the process that was killed.
    assert_eq!(report["peak_bytes"], 2 * 4096 * 4096 * 4 + 64 * 1024 * 1024);
    // The next job gets a slice at once.
    assert!(
        run(&place, &[], &["lu", "--iterations", "1"])
            .status()
            .unwrap()
            .success()
    );
}

/// The runner has said how many iterations the program runs; the rest is its pace.
#[test]
fn what_is_in_the_way_of_a_slice_is_said_with_the_time_until_it_has_gone() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let options = ["--mem", "30G", "--iterations", "100000"];
    let mut runner = run(&place, &options, &["stencil", "--iterations", "100000"])
        .spawn()
        .unwrap();
    let why = eventually("a pace", LIMIT, || {
        let mut asked = place.migm(&["layout", "--why", "1g.5gb", "--json"]);
        let said: Value = serde_json::from_slice(&asked.output().unwrap().stdout).ok()?;
        Some(said["why"].clone()).filter(|why| why["when"] == "in")
    });
    let blocker = &why["blocked_by"][0];
    assert_eq!(
        (&blocker["slice"], &blocker["state"]),
        (&"7g.40gb@0".into(), &"busy".into())
    );
    assert!(blocker["ends_s"].as_f64().unwrap() > 1.0, "{why}");
    assert_eq!(blocker["ends_s"], why["when_s"], "{why}");
    nix::sys::signal::kill(program_of(&runner), nix::sys::signal::Signal::SIGKILL).unwrap();
    runner.wait().unwrap();
}

#[test]
fn a_signal_to_the_runner_reaches_the_program() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let mut runner = run(&place, &[], &["stencil", "--iterations", "100000"])
        .spawn()
        .unwrap();
    program_of(&runner);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(runner.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(runner.wait().unwrap().code(), Some(143));
    assert_eq!(outcomes(&report(&place)), ["signalled"]);
}

#[test]
fn jobs_live_through_the_death_of_their_supervisor() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let mut decoder = run(
        &place,
        &["--iterations", "60"],
        &[
            "decoder",
            "--start",
            "256Mi",
            "--growth",
            "1Mi",
            "--iterations",
            "60",
        ],
    );
    let costs = place.path().join("costs.toml");
    std::fs::write(&costs, "[kernels]\ndecoder_attend = 0.1\n").unwrap();
    let mut runner = decoder.env("SIMGPU_COSTS", &costs).spawn().unwrap();
    let program = program_of(&runner);
    let first = eventually("the job runs", LIMIT, || {
        let status = status(&place)?;
        let runs = status["jobs"]
            .as_array()?
            .iter()
            .any(|job| job["state"] == "running");
        let uuid = status["gpus"][0]["slices"][0]["uuid"].as_str()?.to_owned();
        runs.then(|| (status["supervisor"].as_i64().unwrap(), uuid))
    });
    let supervisor = nix::unistd::Pid::from_raw(i32::try_from(first.0).unwrap());
    nix::sys::signal::kill(supervisor, nix::sys::signal::Signal::SIGKILL).unwrap();

    let second = eventually("another supervisor has the job and its slice", LIMIT, || {
        let status = status(&place)?;
        let pid = status["supervisor"].as_i64().filter(|pid| *pid != first.0)?;
        let slice = &status["gpus"][0]["slices"][0];
        let adopted = slice["state"] == "busy" && slice["uuid"] == first.1.as_str();
        let runs = status["jobs"]
            .as_array()?
            .iter()
            .any(|job| job["state"] == "running");
        (adopted && runs).then_some(pid)
    });
    assert_ne!(second, first.0);
    assert_eq!(
        program_of(&runner),
        program,
        "the program has not been started again"
    );
    assert!(runner.wait().unwrap().success());
    let report = report(&place);
    assert_eq!(outcomes(&report), ["done"]);
    assert_eq!(
        report["peak_bytes"],
        256 * 1024 * 1024 + 60 * (1024 * 1024 + 8) + 2056
    );
}

#[test]
fn a_job_that_first_allocates_while_no_supervisor_lives_is_counted() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    // Started by hand: no runner starts another in its place.
    let mut supervisor = place.migm(&["supervisor"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("the supervisor answers", LIMIT, || status(&place));
    let mut command = place.migm(&["run", "--report"]);
    command
        .arg(place.path().join("report.json"))
        .args(["--", "sh", "-c"]);
    command
        .arg("until [ -e go ]; do sleep 0.02; done; exec \"$0\" play leak --iterations 30")
        .arg(support::migm());
    let mut runner = command
        .current_dir(place.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the job runs", LIMIT, || jobs(&place, "running").pop());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    std::fs::write(place.path().join("go"), "").unwrap();
    assert!(runner.wait().unwrap().success());
    let report = report(&place);
    assert_eq!(outcomes(&report), ["done"]);
    assert_eq!(report["peak_bytes"], (256 + 8 * 32) << 20);
    assert_eq!(
        (report["allocations"].as_u64(), report["frees"].as_u64()),
        (Some(61), Some(31))
    );
}

#[test]
fn a_program_preloaded_by_hand_is_watched() {
    let place = Place::simulated(&["--mig", "--time-scale", "0.05"]);
    // A supervisor that stays, for there is no runner to start one.
    let mut supervisor = place.migm(&["supervisor"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("the supervisor answers", LIMIT, || status(&place));
    // A slice that somebody else has made, since nobody leases one.
    let mut job = run(
        &place,
        &[],
        &["stencil", "--size", "1024", "--iterations", "100000"],
    )
    .spawn()
    .unwrap();
    let uuid = eventually("a slice is there", LIMIT, || {
        slices(&place)
            .first()
            .and_then(|slice| slice["uuid"].as_str().map(str::to_owned))
    });
    let mut watched = place.command(support::migm());
    watched.args([
        "play",
        "leak",
        "--start",
        "64Mi",
        "--growth",
        "1Mi",
        "--iterations",
        "100000",
    ]);
    watched.env("LD_PRELOAD", support::shared_object("migm_interposer"));
    watched.env("CUDA_VISIBLE_DEVICES", uuid).stdout(Stdio::null());
    let mut watched = watched.spawn().unwrap();
    let seen = eventually("its growth is seen", LIMIT, || {
        let job = jobs(&place, "watched").pop()?;
        let figure = job["peak_bytes"]
            .as_u64()
            .or(job["figures"]["reserved"].as_u64())?;
        (figure > 70 << 20).then_some(job)
    });
    assert_eq!(seen["name"], "migm");
    for child in [&mut watched, &mut job] {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        child.wait().unwrap();
    }
    let pid = nix::unistd::Pid::from_raw(i32::try_from(supervisor.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(supervisor.wait().unwrap().success());
}

/// A shell put on a simulated GPU keeps it while another shell clears up, and not longer than it lives.
#[test]
fn a_simulated_gpu_lives_as_long_as_the_shell_that_asked_for_it() {
    let place = Place::without_gpu();
    for shell in ["sh", "bash"] {
        let script = "eval \"$(\"$0\" sim env --mig)\"; \"$0\" sim clear; \"$0\" layout >&2 || exit 1; echo $SIMGPU_ID";
        let mut command = place.command(shell);
        let output = command
            .args(["-c", script])
            .arg(support::migm())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let id = String::from_utf8(output.stdout).unwrap();
        place.migm(&["sim", "clear"]).status().unwrap();
        // Gone: taking it away again is an error.
        assert!(simgpu::files::remove(id.trim()).is_err(), "{shell}: {id}");
    }
}

/// The supervisor of the first lives on for a while, and knows other GPUs.
#[test]
fn two_shells_on_different_simulated_machines_have_a_supervisor_each() {
    let place = Place::without_gpu();
    let run = "\"$0\" run -- \"$0\" play kmeans --iterations 2";
    let env = "\"$0\" sim env --mig --time-scale 0.05 --gpu";
    let script = format!(
        "eval \"$({env} a100-40gb)\" && {run} && \"$0\" status && first=$MIGM_SOCKET &&
         eval \"$({env} a30-24gb)\" && {run} && \"$0\" status && test \"$first\" != \"$MIGM_SOCKET\""
    );
    let mut command = place.command("sh");
    let output = command
        .env_remove("MIGM_SOCKET")
        .args(["-c", &script])
        .arg(support::migm())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        shown.contains("A100-SXM4-40GB") && shown.contains("A30"),
        "{shown}"
    );
}

/// The faults and the driver of a shell's simulated GPU; wrong ones in one line.
#[test]
fn a_shell_chooses_the_driver_and_the_faults_of_its_simulated_gpu() {
    let place = Place::without_gpu();
    let script = "eval \"$(\"$0\" sim env --mig --driver 535)\" && \"$0\" sim faults create-gi=in-use && \
                  \"$0\" layout --json | grep -q '\"driver\": \"535.183.01\"' && \"$0\" sim faults '' || exit 9; \
                  \"$0\" sim faults gpu1/20s=lost";
    let output = place
        .command("sh")
        .args(["-c", script])
        .arg(support::migm())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.ends_with("SIMGPU_FAULTS: `gpu1/20s=lost`: `gpu1` is none of the GPUs gpu0 to gpu0\n"),
        "{said}"
    );
    place.migm(&["sim", "clear"]).status().unwrap();
    let output = place
        .migm(&["sim", "env", "--gpu", "h200-141gb", "--driver", "535"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.ends_with("`h200-141gb` needs driver 550.90.07 or later, not 535.183.01\n"),
        "{said}"
    );
}

#[test]
fn without_a_driver_each_command_says_so_in_one_line() {
    let place = Place::without_gpu();
    for (arguments, code) in [
        (&["run", "--", "true"][..], 125),
        (&["layout"][..], 3),
        (&["supervisor"][..], 3),
    ] {
        let output = place.migm(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert_eq!(
            said.lines().filter(|line| !line.contains("INFO")).count(),
            1,
            "{arguments:?}: {said}"
        );
        assert!(said.contains("libnvidia-ml.so.1"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}
