//! Soft slices, whole: jobs that share a simulated GPU with MIG off, each within its lease.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod growth;
mod leases;
mod seen;
#[path = "../support/mod.rs"]
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
