//! One run of each program, with the allocations that it holds at its peak.

use std::process::Command;

use migm_supervisor::play::PlayArgs;

use super::bench::{Bench, CONTEXT, Ran};

/// The step in which a device charges memory.
const STEP: u64 = 2 << 20;

/// An allocation below this size shares a step with others.
const LARGE: u64 = 1 << 20;

/// One way to run a program: its arguments, the kernel that its last iteration ends with, and the allocations
/// that are live at the peak, read off its source.
pub struct Trial {
    pub name: &'static str,
    pub arguments: PlayArgs,
    last_kernel: &'static str,
    live: Vec<u64>,
}

impl Trial {
    fn steady(name: &'static str, size: u64, last_kernel: &'static str, live: Vec<u64>) -> Self {
        let arguments = PlayArgs {
            size: Some(size),
            iterations: Some(2),
            ..PlayArgs::default()
        };
        Self {
            name,
            arguments,
            last_kernel,
            live,
        }
    }

    pub fn peak(&self) -> u64 {
        self.live.iter().sum()
    }

    /// What the device charges: large allocations in whole steps, small ones together.
    fn charge(&self) -> u64 {
        let (large, small): (Vec<u64>, Vec<u64>) = self.live.iter().partition(|&&bytes| bytes >= LARGE);
        let small: u64 = small.iter().map(|bytes| bytes.next_multiple_of(512)).sum();
        CONTEXT
            + large
                .iter()
                .map(|bytes| bytes.next_multiple_of(STEP))
                .sum::<u64>()
            + small.next_multiple_of(STEP)
    }

    pub fn options(&self) -> Vec<String> {
        let given = [
            ("--size", self.arguments.size),
            ("--iterations", self.arguments.iterations),
            ("--start", self.arguments.start),
            ("--growth", self.arguments.growth),
            ("--jump", self.arguments.jump),
            ("--at", self.arguments.at),
        ];
        let given = given
            .into_iter()
            .filter_map(|(option, value)| Some([option.to_owned(), value?.to_string()]));
        given.flatten().collect()
    }

    /// Whether a program printed its line, and its process was charged what it holds.
    fn hold(&self, ran: &Ran) {
        let name = self.name;
        assert_eq!(ran.status, Some(0), "{name}: {ran:?}");
        assert_eq!(ran.stderr, "", "{name}");
        let iterations = self.arguments.iterations.unwrap();
        let line = format!("{name}: {iterations} iterations, peak {} bytes", self.peak());
        assert!(
            ran.stdout.lines().any(|found| found.ends_with(&line)),
            "{line}: {ran:?}"
        );
        assert_eq!(ran.charged, self.charge(), "{name}: what the device charged");
    }
}

pub fn trials() -> Vec<Trial> {
    const M: u64 = 1 << 20;
    let grow = PlayArgs {
        start: Some(32 * M),
        growth: Some(4 * M),
        iterations: Some(5),
        ..PlayArgs::default()
    };
    vec![
        Trial::steady("stencil", 1024, "stencil_step", vec![4 * M; 3]),
        Trial::steady("lu", 1024, "lu_update", vec![4 * M]),
        Trial::steady("bfs", M, "bfs_advance", vec![4 * (M + 1), 32 * M, 4 * M, M, M]),
        Trial::steady("align", 1000, "align_tile", vec![4 * 1001 * 1001, 1000, 1000]),
        Trial::steady("kmeans", M, "kmeans_move", vec![32 * M, 4 * M, 512, 512, 64]),
        Trial::steady("nearest", M, "nearest_reduce", vec![8 * M, 4 * M, 8]),
        Trial::steady("boxes", 20, "boxes_force", vec![16 * 64 * 8000; 2]),
        Trial::steady("diffusion", 1024, "diffusion_update", vec![4 * M; 3]),
        Trial::steady("sort", M - 5, "sort_fill", vec![4 * M]),
        Trial::steady(
            "particles",
            M,
            "particles_draw",
            [vec![4 * M; 6], vec![4 * 4096]].concat(),
        ),
        Trial {
            name: "decoder",
            arguments: grow,
            last_kernel: "decoder_attend",
            live: [vec![32 * M, 8 * 6, 1024, 1024], vec![4 * M; 5]].concat(),
        },
        Trial {
            name: "jumper",
            arguments: PlayArgs {
                jump: Some(100 * M),
                at: Some(3),
                ..grow
            },
            last_kernel: "jumper_sweep",
            live: vec![32 * M, 68 * M],
        },
        Trial {
            name: "convex",
            arguments: grow,
            last_kernel: "convex_sum",
            live: vec![32 * M, 8, 4 * M, 8 * M, 12 * M, 16 * M, 20 * M],
        },
        Trial {
            name: "leak",
            arguments: grow,
            last_kernel: "leak_answer",
            live: [vec![32 * M, 8 * M], vec![4 * M; 5]].concat(),
        },
    ]
}

/// Runs every program; each keeps its peak for at least one launch of 200 ms, long enough to be seen.
pub fn run_all(bench: &Bench, command: impl Fn(&Trial) -> Command) {
    for trial in trials() {
        bench.cost(trial.last_kernel, if trial.name == "align" { 0.002 } else { 0.2 });
        trial.hold(&bench.run(command(&trial)));
    }
}
