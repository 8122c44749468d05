//! Detached jobs: submitted, listed, followed, cancelled, explained, and outliving their supervisor.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use support::{Place, eventually, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn place() -> Place {
    Place::simulated(&["--gpu", "a100-40gb", "--mig", "--time-scale", "0.05"])
}

fn run(place: &Place, arguments: &[&str]) -> Output {
    place.migm(arguments).current_dir(place.path()).output().unwrap()
}

/// What it prints, without the end of the line.
fn said(place: &Place, arguments: &[&str]) -> String {
    let output = run(place, arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// What it complains of, and its exit code.
fn refused(place: &Place, arguments: &[&str]) -> (i32, String) {
    let output = run(place, arguments);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments:?}");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn submit(place: &Place, options: &[&str], script: &str) -> String {
    said(
        place,
        &[&["submit"], options, &["--", "sh", "-c", script]].concat(),
    )
}

/// Jobs by number as it is shown.
fn jobs(place: &Place) -> Vec<(String, Value)> {
    let list = json(&run(place, &["jobs", "--all", "--json"]));
    let jobs = list["jobs"].as_array().unwrap().iter();
    jobs.map(|job| {
        let id = &job["id"];
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        (id, job.clone())
    })
    .collect()
}

fn job(place: &Place, id: &str) -> Value {
    let found = jobs(place).into_iter().find(|(known, _)| known == id);
    found
        .unwrap_or_else(|| panic!("no job {id}: {:?}", jobs(place)))
        .1
}

/// Until a job is in this state.
fn until(place: &Place, id: &str, state: &str) -> Value {
    eventually(&format!("job {id} is {state}"), PATIENCE, || {
        Some(job(place, id)).filter(|job| job["state"] == state)
    })
}

/// A script that ends when a file is there.
fn until_file(place: &Path, file: &str) -> String {
    format!("while [ ! -e {}/{file} ]; do sleep 0.02; done", place.display())
}

fn touch(place: &Place, file: &str) {
    std::fs::write(place.path().join(file), "").unwrap();
}

fn nothing_is_kept(place: &Place) -> bool {
    let jobs = place.path().join("state/migm/jobs");
    std::fs::read_dir(jobs).is_ok_and(|mut left| left.next().is_none())
}

fn follow(place: &Place, id: &str) -> Child {
    let mut command = place.migm(&["logs", "--follow", id]);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_job_is_submitted_listed_followed_and_explained_after_all_have_gone() {
    let place = place();
    let wait = until_file(place.path(), "go");
    let script =
        format!("echo $PWD $OWN; echo bad >&2; read line && echo got input; {wait}; echo late; exit 3");
    let mut command = place.migm(&["submit", "--name", "train", "--json", "--priority", "-4", "--"]);
    command
        .args(["sh", "-c", &script])
        .env("OWN", "mine")
        .current_dir(place.path());
    let told = json(&command.output().unwrap());
    let id = told["id"].to_string();
    // It may run already.
    let keys = ["id", "name", "state", "profile", "attempts"];
    assert!(keys.iter().all(|key| told.get(key).is_some()), "{told}");
    assert_eq!(told["name"], "train");
    let running = until(&place, &id, "running");
    assert_eq!(
        (&running["profile"], &running["wishes"]["priority"]),
        (&"1g.5gb".into(), &(-4).into())
    );
    assert!(said(&place, &["explain", &id]).contains("asked for: priority -4"));
    let following = follow(&place, "train");
    // It shares no session, terminal or process group with whoever submitted it.
    let runner = std::fs::read_dir(place.path().join("state/migm/jobs"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let record: Value =
        serde_json::from_slice(&std::fs::read(runner.path().join("job.json")).unwrap()).unwrap();
    let pid = Pid::from_raw(i32::try_from(record["runner"]["pid"].as_i64().unwrap()).unwrap());
    let session = nix::unistd::getsid(Some(pid)).unwrap();
    assert!(session != nix::unistd::getsid(None).unwrap() && session != pid);
    touch(&place, "go");
    let followed = following.wait_with_output().unwrap();
    let expected = format!("{} mine\nlate\n", place.path().canonicalize().unwrap().display());
    assert_eq!(String::from_utf8(followed.stdout).unwrap(), expected);
    assert_eq!(run(&place, &["wait", &id]).status.code(), Some(3));
    eventually("the private supervisor ends", PATIENCE, || {
        run(&place, &["status"]).status.code().filter(|code| *code == 3)
    });
    let ended = job(&place, &id);
    assert_eq!(
        (&ended["state"], &ended["outcome"], &ended["status"]),
        (&"ended".into(), &"failed".into(), &3.into())
    );
    assert_eq!(said(&place, &["logs", &id]) + "\n", expected);
    assert_eq!(said(&place, &["logs", "--err", "train"]), "bad");
    assert!(said(&place, &["explain", "train"]).contains("grant: "));
    // The next private supervisor gives another number.
    let next = submit(&place, &[], "true");
    assert!(
        next.parse::<u64>().unwrap() > id.parse().unwrap(),
        "{next} after {id}"
    );
    assert!(run(&place, &["wait", &next]).status.success());
    let files = json(&run(&place, &["logs", "--json", &id]));
    assert_eq!((files["id"].to_string(), &files["state"]), (id, &"ended".into()));
    let err = std::fs::read_to_string(files["err"].as_str().unwrap()).unwrap();
    assert_eq!(err, "bad\n");
}

#[test]
fn what_cannot_be_submitted_leaves_nothing() {
    let place = place();
    let command = ["--", "true"];
    for (options, code, words) in [
        (
            &["--profile", "9g.1gb"][..],
            1,
            "has profile `9g.1gb`; there are 1g.5gb, ",
        ),
        (&["--device", "3"], 1, "--device names GPU 3"),
        (&["--after", "nobody"], 2, "there is no job `nobody` to wait for"),
        (&["--after", "7_1"], 2, "there is no job 7_1 to wait for"),
        (&["--array", "5-2"], 2, "`5-2` ends before it begins"),
        (&["--array", "0-3", "--profile", "9g"], 1, "has profile `9g`"),
        (&["--profile", "1g.5gb", "--exclusive"], 2, "cannot be used with"),
    ] {
        let (found, line) = refused(&place, &[&["submit"], options, &command].concat());
        assert_eq!((found, line.lines().count()), (code, 1), "{options:?}: {line}");
        assert!(line.contains(words), "{options:?}: {line}");
    }
    assert!(nothing_is_kept(&place));
    let (code, line) = refused(&place, &["run", "--profile", "9g", "--", "true"]);
    assert_eq!(code, 125, "{line}");
    let (code, line) = refused(&place, &["cancel", "9"]);
    assert_eq!((code, line.as_str()), (2, "migm: there is no job 9\n"));
    assert_eq!(refused(&place, &["logs", "nobody"]).0, 2);
}

#[test]
fn an_array_runs_so_many_at_once_and_is_one_thing_to_wait_for_and_to_cancel() {
    let place = place();
    let go = until_file(place.path(), "go");
    let script = format!("echo $MIGM_ARRAY_JOB $MIGM_ARRAY_INDEX $MIGM_ARRAY_COUNT; {go}");
    let array = submit(&place, &["--array", "1,4-6%2"], &script);
    let element = |index: u32| format!("{array}_{index}");
    let after = submit(&place, &["--name", "after", "--after", &array], "echo after");
    for index in [1, 4] {
        until(&place, &element(index), "running");
    }
    for index in [5, 6] {
        let held = job(&place, &element(index));
        assert_eq!(held["state"], "held");
        assert!(
            held["note"]
                .as_str()
                .unwrap()
                .starts_with("2 of its array at once"),
            "{held}"
        );
    }
    assert_eq!(job(&place, &after)["state"], "held");
    touch(&place, "go");
    assert!(run(&place, &["wait", &array, &after]).status.success());
    assert_eq!(said(&place, &["logs", &element(5)]), format!("{array} 5 4"));
    assert!(
        refused(&place, &["logs", &array])
            .1
            .contains(&format!("say which, as {array}_1"))
    );

    let sleeping = submit(
        &place,
        &["--array", "0-2%1", "--grace", "0.2"],
        "trap '' TERM; while :; do sleep 0.02; done",
    );
    until(&place, &format!("{sleeping}_0"), "running");
    let cancelled = json(&run(&place, &["cancel", "--json", &sleeping]));
    assert_eq!(cancelled["jobs"].as_array().unwrap().len(), 3);
    assert!(!run(&place, &["wait", &sleeping]).status.success());
    for index in 0..3 {
        let ended = job(&place, &format!("{sleeping}_{index}"));
        assert_eq!(
            (&ended["state"], &ended["outcome"]),
            (&"ended".into(), &"cancelled".into())
        );
        assert_eq!(
            ended["attempts"].as_array().unwrap().len(),
            usize::from(index == 0),
            "{ended}"
        );
    }
}

#[test]
fn a_supervisor_that_is_killed_again_and_again_loses_and_repeats_no_job() {
    let place = place();
    let ran = place.path().join("ran");
    let lines = || std::fs::read_to_string(&ran).map_or(0, |text| text.lines().count());
    let script = format!("echo $MIGM_ARRAY_INDEX >> {}; sleep 0.05", ran.display());
    let array = submit(&place, &["--array", "0-79"], &script);
    let mut waiting = place.migm(&["wait", &array]).spawn().unwrap();
    let mut killed = 0;
    let status = loop {
        if let Some(status) = waiting.try_wait().unwrap() {
            break status;
        }
        let told = run(&place, &["status", "--json"]);
        if told.status.success() && lines() > 10 * (killed + 1) {
            let pid = json(&told)["supervisor"].as_i64().unwrap();
            kill(Pid::from_raw(i32::try_from(pid).unwrap()), Signal::SIGKILL).unwrap();
            killed += 1;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success() && killed > 2, "{status}, killed {killed} times");
    let ran = std::fs::read_to_string(&ran).unwrap();
    let mut indices: Vec<u32> = ran.lines().map(|line| line.parse().unwrap()).collect();
    indices.sort_unstable();
    assert_eq!(indices, (0..80).collect::<Vec<u32>>());
}

#[test]
fn those_after_a_job_that_failed_are_cancelled_down_the_line() {
    let place = place();
    let go = until_file(place.path(), "go");
    submit(&place, &["--name", "prepare"], &format!("{go}; exit 3"));
    submit(&place, &["--name", "train", "--after", "prepare"], "true");
    let last = submit(&place, &["--name", "report", "--after", "train"], "true");
    let any = submit(
        &place,
        &["--name", "clean", "--after-any", "prepare,report"],
        "echo cleaned",
    );
    touch(&place, "go");
    assert!(run(&place, &["wait", &any]).status.success());
    assert_eq!(said(&place, &["logs", "clean"]), "cleaned");
    assert_eq!(run(&place, &["wait", &last]).status.code(), Some(1));
    let reason = |name: &str| {
        let found = jobs(&place)
            .into_iter()
            .find(|(_, job)| job["name"] == name)
            .unwrap()
            .1;
        assert_eq!(found["outcome"], "cancelled", "{found}");
        found["note"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason("train"), "`prepare` failed with 3");
    assert_eq!(reason("report"), "`train` was cancelled: `prepare` failed with 3");
    eventually("the private supervisor ends", PATIENCE, || {
        run(&place, &["status"]).status.code().filter(|code| *code == 3)
    });
    // Their recorded end counts, now that no supervisor knows them.
    let (code, line) = refused(&place, &["submit", "--after", "prepare", "--", "true"]);
    assert_eq!((code, line.as_str()), (1, "migm: `prepare` failed with 3\n"));
    let next = submit(&place, &["--after", "clean", "--after-any", "prepare"], "true");
    assert!(run(&place, &["wait", &next]).status.success());
}

#[test]
fn held_waiting_and_running_jobs_outlive_their_supervisor() {
    let place = place();
    let go = until_file(place.path(), "go");
    let running = submit(&place, &["--mem", "30G"], &format!("{go}; echo ran"));
    until(&place, &running, "running");
    let waiting = submit(&place, &["--mem", "30G"], "echo waited");
    until(&place, &waiting, "waiting");
    let held = submit(&place, &["--after", &waiting], "echo held");
    until(&place, &held, "held");
    let supervisor = json(&run(&place, &["status", "--json"]))["supervisor"]
        .as_i64()
        .unwrap();
    kill(Pid::from_raw(i32::try_from(supervisor).unwrap()), Signal::SIGKILL).unwrap();
    eventually("another supervisor has all three", PATIENCE, || {
        let output = run(&place, &["status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        let is_live = |job: &&Value| job["state"] != "ended";
        let live = status["jobs"].as_array()?.iter().filter(is_live).count();
        (status["supervisor"] != supervisor && live == 3).then_some(())
    });
    until(&place, &held, "held");
    touch(&place, "go");
    assert!(run(&place, &["wait", &running, &waiting, &held]).status.success());
    for (id, word) in [(&running, "ran"), (&waiting, "waited"), (&held, "held")] {
        assert_eq!(said(&place, &["logs", id]), word);
        assert_eq!(job(&place, id)["attempts"].as_array().unwrap().len(), 1, "{id}");
    }
}

#[test]
fn a_job_submitted_from_within_a_job_is_none_of_it() {
    let place = place();
    let go = until_file(place.path(), "go");
    let inner = format!(
        "{} submit --name inner -- sh -c '{go}; echo $MIGM_ATTEMPT'",
        support::migm().display()
    );
    // The outer one ends while the inner one runs.
    assert!(
        run(&place, &["run", "--name", "outer", "--", "sh", "-c", &inner])
            .status
            .success()
    );
    let found = jobs(&place)
        .into_iter()
        .find(|(_, job)| job["name"] == "inner")
        .unwrap();
    until(&place, &found.0, "running");
    touch(&place, "go");
    assert!(run(&place, &["wait", "inner"]).status.success());
    assert!(said(&place, &["logs", "inner"]).starts_with(&format!("{}.1.", found.0)));
}

#[test]
fn jobs_of_a_batch_come_after_others_and_one_that_fails_takes_those_after_it_along() {
    let place = place();
    std::fs::write(
        place.path().join("b.toml"),
        "[[job]]\nname = 'last'\ncommand = 'cat order; echo last >> order'\nafter = ['sweep']\n\
         [[job]]\nname = 'first'\ncommand = 'echo first > order'\n\
         [[job]]\nname = 'sweep'\ncommand = 'echo $MIGM_ARRAY_INDEX >> order'\narray = '3-4%1'\nafter = ['first']\n\
         [[job]]\nname = 'bad'\ncommand = 'exit 4'\n\
         [[job]]\nname = 'lost'\ncommand = 'echo lost >> order'\nafter = ['bad']\n\
         [[job]]\nname = 'late'\ncommand = 'echo late >> order'\nafter = ['bad']\narrival_s = 1\n",
    )
    .unwrap();
    let output = run(&place, &["batch", "--json", "b.toml"]);
    assert_eq!(output.status.code(), Some(1));
    let report = json(&output);
    let outcome = |name: &str| {
        let jobs = report["jobs"].as_array().unwrap();
        let job = jobs.iter().find(|job| job["name"] == name).unwrap();
        job["attempts"]
            .as_array()
            .unwrap()
            .last()
            .map(|last| last["outcome"].as_str().unwrap().to_owned())
    };
    for name in ["first", "sweep-3", "sweep-4", "last"] {
        assert_eq!(outcome(name).as_deref(), Some("done"), "{name}");
    }
    assert_eq!(outcome("bad").as_deref(), Some("failed"));
    assert_eq!((outcome("lost"), outcome("late")), (None, None));
    let order = std::fs::read_to_string(place.path().join("order")).unwrap();
    assert_eq!(order, "first\n3\n4\nlast\n");
}

#[test]
fn an_array_whose_command_is_killed_meanwhile_is_nobodys() {
    let place = place();
    let mut command = place.migm(&["submit", "--array", "0-299", "--", "touch", "ran"]);
    let mut command = command
        .current_dir(place.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually("some of it are held", PATIENCE, || {
        let list = json(&run(&place, &["jobs", "--json"]));
        let jobs = list["jobs"].as_array().unwrap();
        (jobs.len() > 2 && jobs.iter().all(|job| job["state"] == "held")).then_some(())
    });
    command.kill().unwrap();
    command.wait().unwrap();
    eventually("nothing of it is kept", PATIENCE, || {
        let jobs = std::fs::read_dir(place.path().join("state/migm/jobs"))
            .unwrap()
            .flatten();
        // One that had no number yet may have lost its command before its runner was there to see to it.
        let mut named = jobs.filter(|job| !job.file_name().to_string_lossy().starts_with('.'));
        named.next().is_none().then_some(())
    });
    assert!(!place.path().join("ran").exists());
}

#[test]
fn a_job_gets_the_gpu_that_its_user_names_of_those_that_are_visible() {
    let place = Place::simulated(&["--gpu", "a100-40gb:2", "--mig", "--time-scale", "0.05"]);
    let go = until_file(place.path(), "go");
    let id = submit(&place, &["--device", "1"], &go);
    until(&place, &id, "running");
    let status = json(&run(&place, &["status", "--json"]));
    let busy = |gpu: usize| status["gpus"][gpu]["slices"].as_array().unwrap().len();
    assert_eq!((busy(0), busy(1)), (0, 1), "{status}");
    let hidden = place
        .migm(&["submit", "--device", "1", "--", "true"])
        .env("CUDA_VISIBLE_DEVICES", "0")
        .output()
        .unwrap();
    let line = String::from_utf8(hidden.stderr).unwrap();
    assert_eq!(
        line,
        "migm: --device names no GPU that CUDA_VISIBLE_DEVICES leaves\n"
    );
    touch(&place, "go");
    assert!(run(&place, &["wait", &id]).status.success());
}
