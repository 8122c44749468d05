//! What one run teaches the next: real programs under `migm run` on a simulated GPU, and writers that are killed.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use migm_supervisor::control::{Outcome, Past};
use migm_supervisor::job::history::{Entry, History};
use serde_json::Value;
use support::{Place, eventually, json};

const LIMIT: Duration = Duration::from_secs(60);

/// A service of the place's own, so that jobs can be explained after their end.
struct Service {
    place: Place,
    child: Child,
}

impl Service {
    fn start() -> Self {
        let mut place = Place::without_gpu();
        // Iterations of a few milliseconds: each is seen.
        let costs = place.path().join("costs.toml");
        std::fs::write(&costs, "[kernels]\njumper_sweep = 0.01\nleak_answer = 0.01\n").unwrap();
        place.set("SIMGPU_COSTS", &costs.display().to_string());
        let log = std::fs::File::create(place.path().join("log")).unwrap();
        let mut command = place.migm(&["supervisor", "--sim", "a100-40gb", "--time-scale", "0.05"]);
        // The size of the first slice is what these tests are about.
        let child = command
            .args(["--policy", "scheme-b"])
            .args(["--socket", place.variable("MIGM_SOCKET").unwrap()])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let service = Self { place, child };
        eventually("the service answers", LIMIT, || {
            service
                .place
                .migm(&["status"])
                .output()
                .unwrap()
                .status
                .success()
                .then_some(())
        });
        service
    }

    /// Runs a program of `migm play` to its end; its attempts as profile and outcome, and what was said.
    fn run(&self, options: &[&str], program: &[&str]) -> (Vec<(String, String)>, String) {
        let file = self.place.path().join("report.json");
        let mut command = self.place.migm(&["run", "--verbose", "--report"]);
        command
            .arg(&file)
            .args(options)
            .arg("--")
            .arg(support::migm())
            .arg("play")
            .args(program);
        let output = command.output().unwrap();
        let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        let word = |attempt: &Value, key: &str| attempt[key].as_str().unwrap().to_owned();
        let attempts = report["attempts"].as_array().unwrap().iter();
        let attempts = attempts.map(|attempt| (word(attempt, "profile"), word(attempt, "outcome")));
        (attempts.collect(), said(&output))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        json(&self.place.migm(arguments).output().unwrap())
    }

    fn explain(&self, job: u64) -> Value {
        self.json(&["explain", &job.to_string(), "--json"])
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.place.path().join("log"));
            eprintln!("supervisor's log:\n{}", log.unwrap_or_default());
        }
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn verdicts(explained: &Value) -> Vec<&str> {
    let decisions = explained["decisions"].as_array().unwrap();
    let mut words: Vec<&str> = decisions
        .iter()
        .map(|decision| decision["verdict"].as_str().unwrap())
        .collect();
    words.dedup();
    words
}

const FALSIFIER: [&str; 9] = [
    "jumper",
    "--start",
    "4G",
    "--jump",
    "9G",
    "--at",
    "50",
    "--iterations",
    "100",
];

/// Flat at 4 GB, 9 GB from iteration 50 on, and nothing announces it.
#[test]
fn a_jump_costs_one_oom_and_the_second_run_starts_on_the_slice_that_held_it() {
    let service = Service::start();
    let (attempts, _) = service.run(&[], &FALSIFIER);
    let shown: Vec<_> = attempts
        .iter()
        .map(|(at, how)| (at.as_str(), how.as_str()))
        .collect();
    assert_eq!(shown, [("1g.5gb", "oom"), ("2g.10gb", "done")]);

    let (attempts, _) = service.run(&[], &FALSIFIER);
    assert_eq!(attempts, [("2g.10gb".to_owned(), "done".to_owned())]);

    let first = service.explain(1);
    assert_eq!(
        first["start"],
        "nothing is known of its memory: the smallest slice"
    );
    let words: Vec<&str> = verdicts(&first)
        .into_iter()
        .filter(|word| *word != "stay")
        .collect();
    assert_eq!(words, ["size", "grant", "relaunch", "grant"], "{first:#}");
    let second = service.explain(2);
    let start = second["start"].as_str().unwrap();
    assert!(
        start.starts_with("history: 1 run of the same command peaked at"),
        "{start}"
    );
    let stay = second["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["verdict"] == "stay");
    let inputs = &stay.unwrap()["inputs"];
    assert!(inputs["slice"].as_u64().unwrap() > 9_000_000_000, "{second:#}");
    assert!(
        inputs["history_peak"].as_u64().unwrap() > 9_000_000_000,
        "{second:#}"
    );

    let known = service.json(&["history", "--json"]);
    let entries = known["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{known:#}");
    let past = &entries[0]["past"];
    assert_eq!((&past["runs"], &past["done"]), (&2.into(), &2.into()));
    assert_eq!(past["peaks"][1]["reserved"], 9_000_000_000_u64);
    // The runner and the interposer see 100 marks; the last may come after the last look.
    assert!(
        (90..=101).contains(&past["iterations"].as_u64().unwrap()),
        "{past:#}"
    );
}

#[test]
fn a_job_far_below_its_slice_starts_on_a_smaller_one_next_time_and_says_so() {
    let service = Service::start();
    let program = ["kmeans", "--iterations", "20"];
    let (attempts, told) = service.run(&["--mem", "15G"], &program);
    assert_eq!(attempts[0].0, "4g.20gb");
    assert!(told.contains("1g.5gb with 4.75 GiB is enough"), "{told}");
    assert!(told.contains("a smaller --mem, or none"), "{told}");
    let (attempts, _) = service.run(&[], &program);
    assert_eq!(attempts, [("1g.5gb".to_owned(), "done".to_owned())]);
    // The user's word still goes first.
    let (attempts, _) = service.run(&["--mem", "15G"], &program);
    assert_eq!(attempts[0].0, "4g.20gb");
    let why = service.explain(3);
    let start = why["start"].as_str().unwrap();
    assert!(
        start.starts_with("--mem says 13.97 GiB, and counts alone; history: 2 runs"),
        "{start}"
    );
}

#[test]
fn a_job_that_fits_no_slice_is_told_so_with_the_figure_and_may_try_again() {
    let service = Service::start();
    let program = [
        "jumper",
        "--start",
        "1G",
        "--jump",
        "90G",
        "--at",
        "5",
        "--iterations",
        "10",
    ];
    let (attempts, told) = service.run(&[], &program);
    assert_eq!(attempts, [("1g.5gb".to_owned(), "oom".to_owned())]);
    assert!(
        told.contains("the largest slice to be had here is 7g.40gb with 39.50 GiB"),
        "{told}"
    );
    // History refuses nobody: the data may have become smaller. It starts where it gets furthest.
    let (attempts, _) = service.run(&[], &program);
    assert_eq!(attempts, [("7g.40gb".to_owned(), "oom".to_owned())]);
    let explained = service.explain(2);
    let start = explained["start"].as_str().unwrap();
    assert!(start.contains("more than any slice here holds"), "{start}");
    assert_eq!(verdicts(&explained).last(), Some(&"refuse"), "{explained:#}");
}

/// By its growth the job would be moved; it has run before, and was done before it came so far.
#[test]
fn a_second_run_of_a_job_that_fits_is_not_moved_on_a_forecast() {
    let service = Service::start();
    // 1 GB and 20 MB an iteration, 100 of them: 3 GB, as said truly in the first run and not in the second.
    let program = ["leak", "--start", "1G", "--growth", "20M", "--iterations", "100"];
    let (attempts, _) = service.run(&["--iterations", "100"], &program);
    assert_eq!(attempts, [("1g.5gb".to_owned(), "done".to_owned())]);
    let (attempts, _) = service.run(&["--iterations", "400"], &program);
    assert_eq!(attempts, [("1g.5gb".to_owned(), "done".to_owned())]);
    let explained = service.explain(2);
    let decisions = explained["decisions"].as_array().unwrap();
    let held = decisions
        .iter()
        .any(|one| one["reason"].as_str().unwrap().starts_with("earlier runs fit"));
    assert!(held, "{explained:#}");
}

#[test]
fn history_is_listed_exported_forgotten_and_turned_off() {
    let mut service = Service::start();
    let program = ["lu", "--iterations", "3"];
    assert_eq!(
        said_by(&service.place, &["history"]),
        "nothing has been learnt yet\n"
    );
    service.run(&[], &program);
    service.run(&[], &["lu", "--iterations", "4"]);
    let listed = said_by(&service.place, &["history"]);
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(listed.contains("play lu --iterations 4"), "{listed}");
    let exported = said_by(&service.place, &["history", "export"]);
    assert_eq!(exported.lines().count(), 2, "{exported}");
    let entry: Value = serde_json::from_str(exported.lines().next().unwrap()).unwrap();
    let signature = entry["signature"].as_str().unwrap();
    assert_eq!(
        said_by(&service.place, &["history", "forget", &signature[..8]]),
        "1 forgotten\n"
    );
    assert_eq!(said_by(&service.place, &["history", "export"]).lines().count(), 1);

    for (arguments, words) in [
        (vec!["history", "forget", signature], "no signature starts with"),
        (vec!["history", "forget"], "required"),
        (vec!["explain", "99"], "there is no job 99"),
    ] {
        let output = service.place.migm(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_eq!(said(&output).lines().count(), 1, "{}", said(&output));
        assert!(said(&output).contains(words), "{}", said(&output));
    }

    service.place.set("MIGM_HISTORY", "off");
    service.run(&[], &program);
    let output = service.place.migm(&["history"]).output().unwrap();
    assert_eq!(
        (output.status.code(), said(&output).lines().count()),
        (Some(2), 1)
    );
    service.place.set("MIGM_HISTORY", "");
    assert_eq!(said_by(&service.place, &["history", "export"]).lines().count(), 1);
    assert_eq!(
        said_by(&service.place, &["history", "forget", "--all"]),
        "1 forgotten\n"
    );
}

fn said_by(place: &Place, arguments: &[&str]) -> String {
    let output = place.migm(arguments).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_history_of_another_version_is_set_aside_and_the_job_runs() {
    let service = Service::start();
    let folder = service.place.path().join("state/migm");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("history.jsonl"), "{\"migm_history\":7}\n").unwrap();
    let (attempts, told) = service.run(&[], &["lu", "--iterations", "3"]);
    assert_eq!(attempts[0].1, "done");
    assert!(told.contains("it has version 7, and this is version 1"), "{told}");
    let kept = folder.join("history.version-7.1");
    assert!(told.contains(&kept.display().to_string()), "{told}");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "{\"migm_history\":7}\n");
    assert_eq!(said_by(&service.place, &["history", "export"]).lines().count(), 1);
}

/// The supervisor that decided is gone, with what it knew; the runner has kept it.
#[test]
fn a_job_is_explained_after_its_private_supervisor_has_ended() {
    let place = Place::without_gpu();
    let mut command = place.migm(&[
        "run",
        "--sim",
        "a100-40gb",
        "--name",
        "short",
        "--mem",
        "3G",
        "--",
    ]);
    command
        .arg(support::migm())
        .args(["play", "lu", "--iterations", "3"]);
    assert!(command.output().unwrap().status.success());
    eventually("the supervisor ends", LIMIT, || {
        let answer = place.migm(&["status"]).output().unwrap();
        (answer.status.code() == Some(3)).then_some(())
    });
    let text = said_by(&place, &["explain", "1"]);
    assert!(text.starts_with("job 1 `short`, ended "), "{text}");
    assert!(text.contains("--mem says 2.79 GiB"), "{text}");
    assert!(text.contains("attempt 1 grant: need 2.79 GiB: 1g.5gb@"), "{text}");
    let output = place.migm(&["explain", "2"]).output().unwrap();
    assert_eq!(
        (output.status.code(), said(&output).lines().count()),
        (Some(3), 1)
    );
}

const WRITER: &str = "MIGM_TEST_WRITER";
/// Small enough for several compactions among the runs that are added.
const SMALL: usize = 96 << 10;

fn entry(writer: u64, command: u64) -> Entry {
    Entry {
        family: "f0".into(),
        signature: format!("{writer:08x}{command:08x}"),
        program: "/bin/p".into(),
        words: vec!["x".repeat(100)],
        environment: Vec::new(),
        numbers: Vec::new(),
        content: String::new(),
        gpu: String::new(),
        simulated: true,
        last_run: 0,
        past: Past {
            runs: 1,
            done: 0,
            peaks: Vec::new(),
            at_least: 1,
            iterations: 0,
            law: None,
            outcome: Outcome::Failed,
            paces: Vec::new(),
        },
    }
}

/// Not a test of its own: a writer, when it is started as one. It says each run that it has added.
#[test]
fn writer() {
    let Ok(given) = std::env::var(WRITER) else { return };
    let (writer, path) = given.split_once(' ').unwrap();
    let history = History::with_limit(path.into(), SMALL);
    for number in 0..400 {
        history.add(&entry(writer.parse().unwrap(), number % 5)).unwrap();
        let mut out = std::io::stderr().lock();
        out.write_all(b"added\n").unwrap();
    }
}

/// How many runs a writer says that it has added, until it ends or is killed after `end`.
fn listen(writer: &mut Child, end: Option<usize>) -> u64 {
    let mut said = 0;
    let heard = BufReader::new(writer.stderr.take().unwrap());
    for line in heard.lines() {
        said += u64::from(line.unwrap() == "added");
        if usize::try_from(said).ok() == end {
            writer.kill().unwrap();
        }
    }
    writer.wait().unwrap();
    said
}

#[test]
fn writers_that_are_killed_lose_nothing_of_what_they_or_others_have_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history.jsonl");
    let mut writers: Vec<Child> = (0..6)
        .map(|writer| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "writer", "--nocapture"])
                .env(WRITER, format!("{writer} {}", path.display()))
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let added: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter_mut()
            .enumerate()
            // Half of them are killed in the midst of it, at places of their own.
            .map(|(index, writer)| {
                scope.spawn(move || listen(writer, (index % 2 == 1).then_some(20 + 45 * index)))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (entries, _) = History::new(path.clone()).read().unwrap();
    for (writer, &added) in added.iter().enumerate() {
        let of_it = |entry: &&Entry| entry.signature.starts_with(&format!("{writer:08x}"));
        let found: u64 = entries.iter().filter(of_it).map(|entry| entry.past.runs).sum();
        // One may be added whose word did not come through.
        assert!(
            (added..=added + 1).contains(&found),
            "writer {writer}: {found} of {added}"
        );
        assert_eq!(added == 400, writer % 2 == 0, "writer {writer} added {added}");
    }
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!(bytes <= SMALL as u64, "{bytes}: never compacted");
}
