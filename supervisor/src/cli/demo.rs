//! `migm demo`: what migm does, shown by real processes on a simulated GPU.
//!
//! 1. Two private supervisors get a fresh simulated GPU each, with MIG on: ours, and a baseline that gives
//!    the whole GPU, as its full profile, to one job after the other.
//! 2. Each part of the demo is one batch, run on ours and on the baseline: the same programs, the same
//!    arguments, the same costs. A program is `migm play`, a process of its own under the interposer.
//! 3. The report sets the sums against each other. All its figures come from these runs.
//!
//! Memory is chosen in shares of the smallest slice's memory, as the model's NVML tells it, so that the demo
//! makes the same point on each GPU: what starts on the smallest slice, and what outgrows it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use super::{Failure, exit, print_json, print_text};
use crate::control::client::Client;
use crate::control::start::Wanted;
use crate::control::{BatchSummary, Reply, Request};
use crate::daemon::error::DaemonError;
use crate::job::batch::{self, BatchOptions, BatchSpec, JobSpec, Output};
use crate::node::Node;
use crate::node::sim::{self, SimulatedGpu};
use crate::report::progress::Progress;
use crate::report::{BatchReport, all_done, table};
use crate::schedule::PolicyName;

/// Run a batch on a simulated GPU, then the same one job at a time
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The simulated GPU
    #[arg(long, value_name = "G", default_value = "a100-40gb")]
    gpu: String,
    /// Wall seconds per simulated second
    #[arg(long, value_name = "X", default_value = "0.05", value_parser = super::batch::scale)]
    time_scale: f64,
    /// How jobs are placed: scheme-b, which starts each on the tightest slice and so shows what moves them, or another
    /// that `migm supervisor` takes
    #[arg(long, value_name = "P", default_value = "scheme-b", value_parser = str::parse::<PolicyName>)]
    policy: PolicyName,
    /// One JSON document; what the programs print goes to standard error
    #[arg(long)]
    json: bool,
}

/// What one kernel costs: seconds on all multiprocessors of the GPU, and how many of them it can use. Per
/// iteration of a program one of these runs; its other kernels are cheap.
struct Kernel {
    name: &'static str,
    seconds: f64,
    /// Multiprocessors that its grid fills, in smallest slices; a slice of at least so many runs it as fast
    /// as the whole GPU.
    slices: f64,
}

/// The programs' main kernels. A twentieth of a second and more each, so that a job's simulated time is made
/// by its kernels and not by its start.
const KERNELS: &[Kernel] = &[
    Kernel {
        name: "boxes_force",
        seconds: 0.30,
        slices: 1.0,
    },
    Kernel {
        name: "stencil_step",
        seconds: 0.30,
        slices: 1.0,
    },
    Kernel {
        name: "lu_update",
        seconds: 0.28,
        slices: 1.0,
    },
    Kernel {
        name: "diffusion_update",
        seconds: 0.28,
        slices: 2.0,
    },
    Kernel {
        name: "kmeans_assign",
        seconds: 0.26,
        slices: 1.5,
    },
    Kernel {
        name: "particles_weigh",
        seconds: 0.26,
        slices: 1.0,
    },
    Kernel {
        name: "decoder_attend",
        seconds: 0.20,
        slices: 1.0,
    },
    Kernel {
        name: "jumper_sweep",
        seconds: 0.20,
        slices: 1.0,
    },
    Kernel {
        name: "convex_sum",
        seconds: 0.24,
        slices: 1.0,
    },
    Kernel {
        name: "leak_answer",
        seconds: 0.20,
        slices: 1.0,
    },
];

/// All other kernels of the programs: so many seconds on the whole GPU each.
const MINOR_KERNELS: &[&str] = &[
    "boxes_fill",
    "stencil_fill",
    "lu_fill",
    "lu_scale",
    "diffusion_fill",
    "diffusion_coefficient",
    "kmeans_fill",
    "kmeans_seed",
    "kmeans_move",
    "particles_fill",
    "particles_scan",
    "particles_totals",
    "particles_draw",
    "decoder_fill",
    "decoder_mix",
    "decoder_append",
    "jumper_fill",
    "convex_extend",
    "leak_scratch",
];
const MINOR_SECONDS: f64 = 0.001;

/// One line of the demo.
struct Role {
    name: &'static str,
    program: &'static str,
    count: usize,
    iterations: u64,
    /// `--start`, `--growth` and `--jump` of growers and `--mem` of all, in smallest slices.
    start: f64,
    growth: f64,
    jump: f64,
    mem: Option<f64>,
}

const STEADY: Role = Role {
    name: "",
    program: "",
    count: 1,
    iterations: 100,
    start: 0.0,
    growth: 0.0,
    jump: 0.0,
    mem: None,
};

/// Many small jobs of one kind: the paper's homogeneous batches.
const SMALL: &[Role] = &[Role {
    name: "boxes",
    program: "boxes",
    count: 21,
    ..STEADY
}];

/// Jobs of all sizes, with hints and without, and the four kinds of growth.
const MIXED: &[Role] = &[
    Role {
        name: "decoder",
        program: "decoder",
        iterations: 130,
        start: 0.3,
        growth: 0.01,
        ..STEADY
    },
    Role {
        name: "jumper",
        program: "jumper",
        start: 0.78,
        jump: 1.76,
        ..STEADY
    },
    Role {
        name: "stencil",
        program: "stencil",
        count: 2,
        ..STEADY
    },
    Role {
        name: "kmeans",
        program: "kmeans",
        mem: Some(1.8),
        ..STEADY
    },
    Role {
        name: "leak",
        program: "leak",
        iterations: 120,
        start: 0.2,
        growth: 0.0095,
        ..STEADY
    },
    Role {
        name: "convex",
        program: "convex",
        iterations: 110,
        start: 0.2,
        growth: 0.000_21,
        ..STEADY
    },
    Role {
        name: "diffusion",
        program: "diffusion",
        mem: Some(1.8),
        ..STEADY
    },
    Role {
        name: "lu",
        program: "lu",
        ..STEADY
    },
    Role {
        name: "particles",
        program: "particles",
        ..STEADY
    },
];

const PARTS: &[(&str, &[Role])] = &[("small", SMALL), ("mixed", MIXED)];

/// What the demo needs to know of the simulated GPU before a supervisor runs it.
struct Model {
    /// Memory of the smallest slice, bytes.
    slice: u64,
    /// Multiprocessors of the smallest slice.
    multiprocessors: u32,
}

pub(super) fn main(args: Args) -> Result<ExitCode, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("migm-demo-")
        .tempdir()
        .map_err(failed("make a folder"))?;
    if args.policy == PolicyName::BestStatic {
        return Err(Failure::input(DaemonError::Unsearched));
    }
    let model = look(&args.gpu)?;
    let costs = folder.path().join("costs.toml");
    std::fs::write(&costs, cost_table(model.multiprocessors)).map_err(failed("write the cost table"))?;
    let migm = std::env::current_exe().map_err(failed("find migm itself"))?;
    let stage = Stage {
        args: &args,
        model,
        costs,
        migm,
        folder: folder.path(),
    };

    let ours = stage.run("ours", &args.policy)?;
    let baseline = stage.run("baseline", &PolicyName::Sequential)?;

    let report = BatchReport::of_parts(&ours, &baseline)
        .ok_or_else(|| Failure::new(exit::FAILED, "the demo has no parts"))?;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&table::batch(&report))?;
    }
    let good = ours.iter().chain(&baseline).all(|(_, summary)| all_done(summary));
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

/// Reads the smallest slice's figures from the NVML of a GPU of that model.
fn look(gpu: &str) -> Result<Model, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("migm-look-")
        .tempdir()
        .map_err(failed("make a folder"))?;
    sim::objects()
        .and_then(|objects| objects.link(folder.path(), true))
        .map_err(Failure::no_gpu)?;
    let simulated = SimulatedGpu::create(folder.path(), gpu, true, 1.0).map_err(Failure::input)?;
    let profiles = simulated
        .node()
        .and_then(|node| Ok(node.profiles(0)?))
        .map_err(Failure::no_gpu);
    // It has served its purpose; what is left of it is removed by `migm sim clear` too.
    let _ = simulated.remove();
    let smallest = profiles?
        .into_iter()
        .min_by_key(|profile| (profile.memory, profile.sms));
    smallest
        .map(|profile| Model {
            slice: profile.memory,
            multiprocessors: profile.sms,
        })
        .ok_or_else(|| Failure::input(format_args!("{gpu} offers no MIG profiles")))
}

struct Stage<'a> {
    args: &'a Args,
    model: Model,
    costs: PathBuf,
    migm: PathBuf,
    folder: &'a Path,
}

impl Stage<'_> {
    /// All parts, one after the other, under a supervisor and on a GPU of their own.
    fn run(&self, who: &str, policy: &PolicyName) -> Result<Vec<(&'static str, BatchSummary)>, Failure> {
        let socket = self.folder.join(format!("{who}.sock"));
        let wanted = Wanted {
            sim: Some(self.args.gpu.clone()),
            time_scale: Some(self.args.time_scale),
            socket: Some(socket),
            policy: Some(policy.to_string()),
            for_batch: true,
            ..Wanted::default()
        };
        // Held until the end, so that the supervisor stays between the parts.
        let mut client = wanted.connect_or_start().map_err(Failure::no_gpu)?;
        let options = BatchOptions {
            migm: self.migm.clone(),
            wanted: wanted.clone(),
            output: if self.args.json {
                Output::Stderr
            } else {
                Output::Discard
            },
        };
        let mut summaries = Vec::new();
        for (part, roles) in PARTS {
            crate::job::say(format_args!("{policy}: part `{part}`"));
            let spec = BatchSpec {
                name: format!("demo-{part}"),
                jobs: self.jobs(part, roles),
            };
            let mut progress = Progress::new();
            let ended = batch::run(&spec, &options, &mut |news| progress.show(news));
            progress.end();
            summaries.push((*part, ended.map_err(super::batch::failure)?));
        }
        end(&mut client);
        Ok(summaries)
    }

    fn jobs(&self, part: &str, roles: &[Role]) -> Vec<JobSpec> {
        let mut jobs = Vec::new();
        for role in roles {
            for number in 1..=role.count {
                let name = if role.count == 1 {
                    role.name.to_owned()
                } else {
                    format!("{}-{number}", role.name)
                };
                jobs.push(self.job(name, part, role));
            }
        }
        jobs
    }

    fn job(&self, name: String, part: &str, role: &Role) -> JobSpec {
        let bytes = |share: f64| share_of(self.model.slice, share);
        let mut command: Vec<std::ffi::OsString> =
            vec![self.migm.clone().into(), "play".into(), role.program.into()];
        let mut argument = |name: &str, value: u64| {
            command.push(name.into());
            command.push(value.to_string().into());
        };
        argument("--iterations", role.iterations);
        for (name, share) in [
            ("--start", role.start),
            ("--growth", role.growth),
            ("--jump", role.jump),
        ] {
            if share > 0.0 {
                argument(name, bytes(share));
            }
        }
        JobSpec {
            name,
            command,
            mem: role.mem.map(bytes),
            iterations: Some(role.iterations),
            env: BTreeMap::from([
                ("SIMGPU_COSTS".to_owned(), self.costs.display().to_string()),
                // A measurement must not depend on what ran here before.
                ("MIGM_HISTORY".to_owned(), "off".to_owned()),
            ]),
            part: Some(part.to_owned()),
            ..JobSpec::default()
        }
    }
}

/// Asks the supervisor to end and waits for that: its GPU goes with it.
fn end(client: &mut Client) {
    if client.send(&Request::Shutdown, None).is_ok() {
        while let Ok(Some(reply)) = client.receive(Duration::from_secs(10)) {
            if matches!(reply, Reply::Done) {
                break;
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "shares are small and positive, and a byte more or less is no matter"
)]
fn share_of(slice: u64, share: f64) -> u64 {
    (slice as f64 * share) as u64
}

/// What each kernel costs, for the simulated driver.
fn cost_table(slice_multiprocessors: u32) -> String {
    let mut text = String::from("[kernels]\n");
    for kernel in KERNELS {
        let multiprocessors = (f64::from(slice_multiprocessors) * kernel.slices).round();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{} = {{ seconds = {}, sms = {multiprocessors} }}",
            kernel.name, kernel.seconds
        );
    }
    for name in MINOR_KERNELS {
        let _ = writeln!(text, "{name} = {MINOR_SECONDS}");
    }
    text
}

fn failed(tried: &'static str) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::new(exit::FAILED, format_args!("cannot {tried}: {error}"))
}
