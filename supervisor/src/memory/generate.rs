//! Runs made up after the shapes that real jobs were seen to have, one class each, the same for the same seed.
//!
//! The ranges come from reports of real jobs (docs/design/prediction.md lists them): slopes, heights of steps, gaps
//! between reserved and allocated bytes. Nothing is drawn to suit a predictor: the classes that no predictor can
//! foresee are here as well.

use fastrand::Rng;
use migm_shared::units::{GIB, MIB};

use super::{Observation, Run, to_bytes, to_float};

/// What a job's memory does.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Class {
    /// A cache that grows with each token, over weights.
    Kv,
    /// Something forgotten in each iteration, after the first steps of a training.
    Leak,
    /// Reserved bytes in steps over allocated bytes in a line: a caching allocator.
    Staircase,
    /// A warm-up of a few iterations, each adding less, then a plateau.
    Hinge,
    /// Growth by a share of what is there until a known stop.
    ConvexKnee,
    /// Growth with the square of x, or by a share, to the end.
    Convex,
    /// New maxima of a heavy-tailed size per iteration, never given back.
    Ratchet,
    /// Stages or epochs that fill and empty.
    Sawtooth,
    /// A pool taken at the start, and used more and more inside.
    Pool,
    /// Level, then one jump.
    Jump,
    /// Loading, then level.
    StartUp,
    /// Level but for one iteration in hundreds.
    Spike,
    /// The gap between reserved and allocated bytes widens until the allocator has enough.
    Fragments,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Kv,
        Self::Leak,
        Self::Staircase,
        Self::Hinge,
        Self::ConvexKnee,
        Self::Convex,
        Self::Ratchet,
        Self::Sawtooth,
        Self::Pool,
        Self::Jump,
        Self::StartUp,
        Self::Spike,
        Self::Fragments,
    ];

    /// In words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kv => "kv",
            Self::Leak => "leak",
            Self::Staircase => "staircase",
            Self::Hinge => "hinge",
            Self::ConvexKnee => "convex with knee",
            Self::Convex => "convex",
            Self::Ratchet => "ratchet",
            Self::Sawtooth => "sawtooth",
            Self::Pool => "pool",
            Self::Jump => "jump",
            Self::StartUp => "start-up",
            Self::Spike => "spike",
            Self::Fragments => "fragments",
        }
    }

    /// A run of this class, one observation an iteration.
    #[must_use]
    pub fn run(self, seed: u64) -> Run {
        let mut draw = Draw(Rng::with_seed(seed ^ ((self as u64) << 56)));
        let seen = match self {
            Self::Kv => draw.kv(),
            Self::Leak => draw.leak(),
            Self::Staircase => draw.staircase(),
            Self::Hinge => draw.hinge(),
            Self::ConvexKnee => draw.convex(true),
            Self::Convex => draw.convex(false),
            Self::Ratchet => draw.ratchet(),
            Self::Sawtooth => draw.sawtooth(),
            Self::Pool => draw.pool(),
            Self::Jump => draw.jump(),
            Self::StartUp => draw.start_up(),
            Self::Spike => draw.spike(),
            Self::Fragments => draw.fragments(),
        };
        Run {
            name: format!("{} {seed}", self.name()),
            seen,
        }
    }
}

/// A line from `start` by `step` over `count` iterations, with normal jitter of this share of the level.
#[must_use]
pub fn line(start: f64, step: f64, count: u32, jitter: f64, seed: u64) -> Run {
    let mut draw = Draw(Rng::with_seed(seed));
    let level = |at: u32| start + step * f64::from(at);
    Run {
        name: format!("line {seed}"),
        seen: draw.reserved(count, jitter, level),
    }
}

struct Draw(Rng);

/// Bytes as PyTorch's allocator takes them from the driver: in blocks.
fn in_blocks(bytes: f64, block: f64) -> f64 {
    (bytes / block).ceil() * block
}

fn observation(at: u32, reserved: f64, allocated: Option<f64>) -> Observation {
    Observation {
        x: f64::from(at),
        requested: to_bytes(allocated.unwrap_or(reserved)),
        reserved: to_bytes(reserved),
        allocated: allocated.map(to_bytes),
    }
}

impl Draw {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.f64()
    }

    fn log_between(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.f64() < share
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.0.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.0.f64()).cos()
    }

    fn iterations(&mut self) -> u32 {
        to_count(self.log_between(110.0, 800.0))
    }

    /// Weights and the like: what a job holds before anything grows.
    fn base(&mut self) -> f64 {
        self.log_between(1.0, 30.0) * to_float(GIB)
    }

    fn reserved(&mut self, count: u32, jitter: f64, level: impl Fn(u32) -> f64) -> Vec<Observation> {
        (0..count)
            .map(|at| observation(at, level(at) * (1.0 + jitter * self.normal()), None))
            .collect()
    }

    fn kv(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let step = base * self.between(0.3, 2.5) / f64::from(count);
        let jitter = self.between(0.0, 0.003);
        self.reserved(count, jitter, |at| base + step * f64::from(at))
    }

    fn leak(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let step = base * self.between(0.3, 2.0) / f64::from(count);
        let jitter = self.between(0.0, 0.01);
        // The optimizer's state comes with the first step, at 5 to 140 % of what was there.
        let first = base / (1.0 + self.between(0.05, 1.4));
        self.reserved(count, jitter, |at| {
            if at == 0 {
                first
            } else {
                base + step * f64::from(at)
            }
        })
    }

    fn staircase(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let step = base * self.between(0.3, 2.0) / f64::from(count);
        // From the allocator's 2 and 20 MiB to a cache that grows by a twentieth of the base at a time.
        let block = self.log_between(2.0 * to_float(MIB), base / 20.0);
        let gap = self.between(1.0, 1.1);
        let mut reserved = 0.0_f64;
        (0..count)
            .map(|at| {
                let allocated = (base + step * f64::from(at)) * (1.0 + 0.001 * self.normal());
                reserved = reserved.max(in_blocks(allocated * gap, block));
                observation(at, reserved, Some(allocated))
            })
            .collect()
    }

    fn hinge(&mut self) -> Vec<Observation> {
        let (top, count) = (self.base(), self.iterations());
        let first = self.between(0.3, 0.9);
        // Each iteration closes this share of what is left to the plateau.
        let closing = self.between(0.15, 0.8);
        let jitter = self.between(0.0, 0.005);
        self.reserved(count, jitter, |at| {
            top * (1.0 - (1.0 - first) * (1.0 - closing).powf(f64::from(at)))
        })
    }

    fn convex(&mut self, knee: bool) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let jitter = self.between(0.0, 0.003);
        let growth = self.between(0.5, 4.0);
        let stop = if knee { self.between(0.3, 0.6) } else { 1.0 };
        let by_share = self.chance(0.5);
        self.reserved(count, jitter, |at| {
            let way = (f64::from(at) / (f64::from(count) * stop)).min(1.0);
            let share = if by_share {
                (1.0 + growth).powf(way) - 1.0
            } else {
                growth * way * way
            };
            base * (1.0 + share)
        })
    }

    fn ratchet(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let (scale, sigma) = (base * self.log_between(0.02, 0.3), self.between(0.4, 1.0));
        let mut top = 0.0_f64;
        (0..count)
            .map(|at| {
                top = top.max(base + scale * (sigma * self.normal()).exp());
                observation(at, in_blocks(top, 2.0 * to_float(MIB)), None)
            })
            .collect()
    }

    fn sawtooth(&mut self) -> Vec<Observation> {
        let (top, count) = (self.base(), self.iterations());
        let (low, stages) = (1.0 - self.between(0.75, 0.96), self.0.u32(2..=5));
        let period = self.0.u32(4..=60);
        let levels: Vec<f64> = (0..stages)
            .map(|stage| if stage == 0 { 1.0 } else { self.between(low, 1.0) })
            .collect();
        let ramps = self.chance(0.3);
        let jitter = self.between(0.0, 0.01);
        (0..count)
            .map(|at| {
                let within = f64::from(at % period) / f64::from(period);
                let level = if ramps {
                    low + (1.0 - low) * within
                } else {
                    let stage = to_count(within * f64::from(stages)) as usize;
                    levels[levels.len() - 1 - stage.min(levels.len() - 1)]
                };
                observation(at, top * level * (1.0 + jitter * self.normal()), None)
            })
            .collect()
    }

    fn pool(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let pool = base * self.between(1.2, 3.0);
        let filled = self.between(0.3, 1.0) * (pool - base) / f64::from(count);
        (0..count)
            .map(|at| observation(at, pool, Some(base + filled * f64::from(at))))
            .collect()
    }

    fn jump(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let (height, at) = (
            self.between(0.3, 1.4),
            to_count(f64::from(count) * self.between(0.05, 0.95)),
        );
        let jitter = self.between(0.0, 0.01);
        self.reserved(
            count,
            jitter,
            |now| if now < at { base } else { base * (1.0 + height) },
        )
    }

    fn start_up(&mut self) -> Vec<Observation> {
        let (top, count) = (self.base(), self.iterations());
        // Weights load at an even pace to 60 to 95 % of the plateau; the rest comes with the first work.
        let (loaded, ramp) = (self.between(0.6, 0.95), self.0.u32(2..=40));
        let (context, unsteady) = (self.between(0.02, 0.1), self.between(0.0, 0.3));
        let jitter = self.between(0.0, 0.005);
        let mut level = context;
        (0..count)
            .map(|at| {
                if at > 0 && at <= ramp {
                    let pace = (loaded - context) / f64::from(ramp);
                    level += pace * (1.0 + unsteady * self.normal()).max(0.0);
                } else if at > ramp {
                    level = level.max(1.0);
                }
                observation(at, top * level.min(1.0) * (1.0 + jitter * self.normal()), None)
            })
            .collect()
    }

    fn spike(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let (height, at) = (self.between(1.3, 4.0), self.0.u32(1..count));
        let jitter = self.between(0.0, 0.01);
        self.reserved(count, jitter, |now| if now == at { base * height } else { base })
    }

    fn fragments(&mut self) -> Vec<Observation> {
        let (base, count) = (self.base(), self.iterations());
        let (gap, scale) = (
            self.between(0.02, 0.45),
            f64::from(count) * self.between(0.05, 0.4),
        );
        let mut reserved = 0.0_f64;
        (0..count)
            .map(|at| {
                let allocated = base * (1.0 + 0.01 * self.normal());
                let widened = 1.0 + gap * (1.0 - (-f64::from(at) / scale).exp());
                // A new segment is taken when no cached block fits, which happens by chance.
                if at == 0 || self.chance(0.3) {
                    reserved = reserved.max(in_blocks(base * widened, 20.0 * to_float(MIB)));
                }
                observation(at, reserved.max(allocated), Some(allocated))
            })
            .collect()
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of iterations, thousands at most"
)]
fn to_count(value: f64) -> u32 {
    value as u32
}
