//! One batch twice: as real processes on a simulated GPU, and in virtual time by `migm simulate`. Both read the same file.
//!
//! The programs are those of `migm play`; the time of each one's main kernel is set by `SIMGPU_COSTS`, and the speeds
//! on each profile follow from it by the law of the simulated driver. What a process takes to start is wall time that
//! no simulated clock knows of: it is measured beforehand, on the same machine, and is part of each job's `duration_s`,
//! as it would be where a person measures it.

use std::fmt::Write as _;
use std::fs;

use serde_json::Value;
use simgpu::compute::compute_profiles;
use simgpu::mig::seconds;
use simgpu::model::{MODELS, find};

use crate::support::{Place, json, migm};

const GPU: &str = "a100-40gb";
/// Wall seconds per simulated second: long enough for the start of a process to be a small part of a job.
const TIME_SCALE: &str = "0.05";
/// What both are run with. A policy that plans by durations is left out: a supervisor meets programs of which it knows none.
pub const POLICIES: [&str; 4] = ["scheme-b", "sequential", "static:3g+2g+1g+1g", "migm"];

/// Some jobs of one program.
#[derive(Clone, Copy)]
struct Program {
    name: &'static str,
    kernel: &'static str,
    /// Seconds of one launch on at least `sms` multiprocessors.
    seconds: f64,
    sms: u32,
    iterations: u32,
    /// Launches in all.
    launches: u32,
    count: u32,
    arrival: u32,
    mem: Option<&'static str>,
    arguments: &'static [(&'static str, u64)],
}

const SHORT: Program = Program {
    name: "boxes",
    kernel: "boxes_force",
    seconds: 1.0,
    sms: 14,
    iterations: 1,
    launches: 1,
    count: 4,
    arrival: 0,
    mem: None,
    arguments: &[],
};

/// Ten jobs: some that any slice serves, some that more multiprocessors speed up, one whose growth is forecast, one that
/// runs out of memory, two that come late. No two of those that matter end at the same time.
const MIXED: [Program; 7] = [
    Program {
        iterations: 16,
        launches: 16,
        count: 3,
        ..SHORT
    },
    Program {
        name: "diffusion",
        kernel: "diffusion_update",
        sms: 28,
        iterations: 11,
        launches: 11,
        count: 2,
        mem: Some("8G"),
        ..SHORT
    },
    Program {
        name: "decoder",
        kernel: "decoder_attend",
        seconds: 0.4,
        iterations: 60,
        launches: 60,
        count: 1,
        arguments: &[("start", 1_500_000_000), ("growth", 80_000_000)],
        ..SHORT
    },
    Program {
        name: "jumper",
        kernel: "jumper_sweep",
        iterations: 14,
        // After the jump there are two buffers to sweep.
        launches: 7 + 2 * 7,
        count: 1,
        arguments: &[("start", 3_800_000_000), ("jump", 8_600_000_000), ("at", 7)],
        ..SHORT
    },
    Program {
        name: "lu",
        kernel: "lu_update",
        sms: 42,
        iterations: 9,
        launches: 9,
        count: 1,
        mem: Some("15G"),
        ..SHORT
    },
    Program {
        name: "particles",
        kernel: "particles_weigh",
        iterations: 15,
        launches: 15,
        count: 1,
        arrival: 6,
        ..SHORT
    },
    Program {
        name: "kmeans",
        kernel: "kmeans_assign",
        sms: 56,
        iterations: 8,
        launches: 8,
        count: 1,
        arrival: 11,
        mem: Some("3G"),
        ..SHORT
    },
];

/// The programs' other kernels, which take next to nothing.
const MINOR: [&str; 16] = [
    "boxes_fill",
    "diffusion_fill",
    "diffusion_coefficient",
    "decoder_fill",
    "decoder_mix",
    "decoder_append",
    "jumper_fill",
    "lu_fill",
    "lu_scale",
    "particles_fill",
    "particles_scan",
    "particles_totals",
    "particles_draw",
    "kmeans_fill",
    "kmeans_seed",
    "kmeans_move",
];

impl Program {
    fn argument(&self, name: &str) -> u64 {
        let found = self.arguments.iter().find(|(known, _)| *known == name);
        found.map_or(0, |argument| argument.1)
    }

    /// Bytes that it holds as its launches go by, where they change.
    fn memory(&self) -> Vec<(u32, u64)> {
        let start = self.argument("start");
        match self.name {
            "decoder" => (0..=self.launches)
                .map(|launch| (launch, start + u64::from(launch) * self.argument("growth")))
                .collect(),
            "jumper" => {
                let jump = (7, self.argument("jump"));
                vec![(0, start), jump, (self.launches, jump.1)]
            }
            _ => Vec::new(),
        }
    }
}

/// The files, and what a start costs on this machine now.
pub struct Twin {
    place: Place,
    /// Simulated seconds from the end of one process to the first kernel of the next on the same slice.
    pub start_up: f64,
}

impl Twin {
    /// Measures the start of a process, and writes the files.
    pub fn new() -> Self {
        let mut twin = Self {
            place: Place::without_gpu(),
            start_up: 0.0,
        };
        twin.write(&[SHORT]);
        let makespan = figure(&twin.real("sequential"), "makespan_s");
        let create = seconds::CREATE_GPU_INSTANCE + seconds::CREATE_COMPUTE_INSTANCE;
        twin.start_up = (makespan - create) / f64::from(SHORT.count) - SHORT.seconds;
        twin.write(&MIXED);
        twin
    }

    fn write(&self, programs: &[Program]) {
        let model = &MODELS[find(GPU).unwrap()];
        let mut costs = "[kernels]\n".to_owned();
        let mut speeds = "model,batch,profile,median_seconds_per_batch,samples\n".to_owned();
        let mut batch = String::new();
        for name in MINOR {
            writeln!(costs, "{name} = 0.0001").unwrap();
        }
        for program in programs {
            let Program {
                name, kernel, sms, ..
            } = program;
            let start_up = self.start_up / f64::from(program.launches);
            writeln!(
                costs,
                "{kernel} = {{ seconds = {}, sms = {sms} }}",
                program.seconds
            )
            .unwrap();
            for profile in model.profiles.iter().filter(|profile| !profile.is_graphics()) {
                // A slice is its GPU instance's largest compute instance.
                let all = compute_profiles(model, profile);
                let of = all.iter().map(|compute| compute.sms).max().unwrap();
                let seconds = program.seconds * (f64::from(*sms) / f64::from(of)).max(1.0) + start_up;
                writeln!(speeds, "{name},1,{},{seconds},1", profile.name).unwrap();
            }
            let mut command = format!("'{}', 'play', '{name}'", migm().display());
            for (argument, value) in program.arguments {
                write!(command, ", '--{argument}', '{value}'").unwrap();
            }
            writeln!(
                batch,
                "[[job]]\nname = '{name}_train1'\ncommand = [{command}, '--iterations', '{iterations}']\n\
                 iterations = {iterations}\ncount = {}\narrival_s = {}\nduration_s = {}\n\
                 env = {{ SIMGPU_COSTS = '{}' }}",
                program.count,
                program.arrival,
                program.seconds * f64::from(program.launches) + self.start_up,
                self.place.path().join("costs.toml").display(),
                iterations = program.iterations,
            )
            .unwrap();
            if let Some(mem) = program.mem {
                writeln!(batch, "mem = '{mem}'").unwrap();
            }
            let memory = program.memory();
            if !memory.is_empty() {
                let mut trace = "x,allocated_bytes,reserved_bytes,requested_bytes\n".to_owned();
                for (launch, bytes) in memory {
                    writeln!(trace, "{launch},,{bytes},").unwrap();
                }
                fs::write(self.place.path().join(format!("{name}.csv")), trace).unwrap();
                writeln!(batch, "trace = '{name}.csv'").unwrap();
            }
        }
        for (name, text) in [
            ("costs.toml", costs),
            ("speeds.csv", speeds),
            ("batch.toml", batch),
        ] {
            fs::write(self.place.path().join(name), text).unwrap();
        }
    }

    /// The report of `migm batch`: every job done by real processes, under a supervisor and on a GPU of its own.
    pub fn real(&self, policy: &str) -> Value {
        let run = tempfile::tempdir_in(self.place.path()).unwrap();
        let mut command = self.place.migm(&["batch", "batch.toml", "--json", "--sim", GPU]);
        command
            .args(["--time-scale", TIME_SCALE, "--policy", policy])
            .env("MIGM_SOCKET", run.path().join("s"))
            .env("MIGM_HISTORY", "off")
            .current_dir(self.place.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{policy}: {said}");
        json(&output)
    }

    /// The figures of `migm simulate` for the same file. Policies are told no more than a supervisor is, which has not seen
    /// the programs before.
    pub fn simulated(&self, policy: &str) -> Value {
        let create = seconds::CREATE_GPU_INSTANCE + seconds::CREATE_COMPUTE_INSTANCE;
        let destroy = seconds::DESTROY_GPU_INSTANCE + seconds::DESTROY_COMPUTE_INSTANCE;
        let (create, destroy) = (format!("{create}s"), format!("{destroy}s"));
        let mut command = self
            .place
            .migm(&["simulate", "batch.toml", "--json", "--gpu", GPU]);
        command
            .args([
                "--speeds",
                "speeds.csv",
                "--learn",
                "--remaining",
                "unknown",
                "--policy",
                policy,
            ])
            .args(["--create-cost", &create, "--destroy-cost", &destroy])
            .current_dir(self.place.path());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{policy}: {said}");
        json(&output)["policies"][policy].clone()
    }
}

/// A number of a report.
pub fn figure(report: &Value, key: &str) -> f64 {
    report[key].as_f64().unwrap_or_else(|| panic!("{key}: {report}"))
}
