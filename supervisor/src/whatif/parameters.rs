//! Every number of the simulation, each with its source or marked as assumed.

/// Seconds to create one GPU instance with its compute instance. MIGRANT, 2026-05, A100-PCIE-40GB, mean of 21
/// partial reconfigurations (0.22 to 0.58).
pub const CREATE_S: f64 = 0.32;
/// Seconds to destroy one. Same source, mean of 32 cases (0.11 to 0.45).
pub const DESTROY_S: f64 = 0.21;
/// Seconds that a move costs a job: checkpoint, stop, start, load. The figure of MISO's simulator (SoCC'22).
pub const MOVE_S: f64 = 30.0;
/// Seconds until a job that never fits has met the end of its memory. Assumed: it loads its model first.
pub const DOOMED_S: f64 = 5.0;
/// Iterations that a job is taken to have for the forecast of its memory. Assumed.
pub const ITERATIONS: u32 = 100;
/// Evaluations of the local search for a batch: less than a second in all for 60 jobs on one GPU.
pub const SEARCH: u32 = 24_000;

/// Power of one GPU, watts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// With nothing running. Assumed, as in the simulated driver.
    pub idle: f64,
    /// More with all multiprocessors busy: the board limit of NVIDIA's data sheet less idle.
    pub busy: f64,
}

impl Power {
    /// A100-SXM4-40GB: 400 W limit.
    pub const A100: Self = Self {
        idle: 55.0,
        busy: 345.0,
    };

    /// Of a GPU model by its name on the command line: board limits of NVIDIA's data sheets.
    #[must_use]
    pub fn of(model: &str) -> Self {
        let limit = match model.to_ascii_lowercase().as_str() {
            name if name.starts_with("a30") => 165.0,
            name if name.starts_with("h100") || name.starts_with("h200") => 700.0,
            name if name.starts_with("rtx-pro-6000") => 600.0,
            _ => return Self::A100,
        };
        Self::from_limit(limit)
    }

    /// From a board limit in watts; idle is taken as the same share of it as on the A100.
    #[must_use]
    pub fn from_limit(limit: f64) -> Self {
        let idle = limit * Self::A100.idle / (Self::A100.idle + Self::A100.busy);
        Self {
            idle,
            busy: limit - idle,
        }
    }
}

/// Busy multiprocessors at speed 1, as a share of the whole GPU, from a job's speed on its smallest slice,
/// which has `share` of the multiprocessors. Assumed: that slice is busy all the time.
#[must_use]
pub fn active(share: f64, speed: f64) -> f64 {
    if speed > 0.0 {
        (share / speed).min(1.0)
    } else {
        1.0
    }
}
pub use crate::schedule::speed::{LEARN_S, SERIAL};
