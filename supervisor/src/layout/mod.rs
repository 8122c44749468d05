//! Layouts of a MIG GPU: which placements can stand together, and what each choice leaves open.
//!
//! One GPU's way through this room:
//!
//! 1. `node` reads the [`Profile`]s of the GPU from NVML. [`base`] keeps one for each count of compute
//!    slices; [`Rules::for_driver`] adds what NVML cannot tell.
//! 2. [`Table::build`] finds every set of [`Slot`]s that can stand together. Such a set is a *state*, kept
//!    as a bit set; from a state an *edge* leads to each state with one slot more. A state that no edge
//!    leaves is a *full layout*. The future configuration reachability of a state, `fcr`, is how many full
//!    layouts edges still lead to.
//! 3. The scheduler names what stands ([`Table::state_of`]) and asks where a profile should go:
//!    [`Table::plan_for`] destroys the fewest idle slices (fission and fusion are its simple cases), then
//!    keeps the most full layouts in reach.
//! 4. Which of the possible creates is taken, [`placing`] decides, by what the jobs want.
//! 5. What cannot be had now, [`Table::explain`] explains by the smallest set of slices that would have to go.
//! 6. [`Table::transition`] orders the steps from what stands to any other layout, so that one may stop
//!    after each of them.
//! 7. A create that the driver refuses takes its edge out ([`Table::without`]).
//!
//! Pure: nothing here knows a GPU model or a grid. The reachability rule is that of MIGM (arXiv 2508.18556).

use std::fmt;

mod build;
mod explain;
mod obstacle;
pub mod placing;
mod plan;
mod rules;
#[cfg(test)]
pub(crate) mod samples;
mod table;
mod transition;

pub use build::LayoutError;
pub use explain::{Holding, Standing, Way, When};
pub use obstacle::{Misfit, Obstacle, SlotError};
pub use plan::Plan;
pub use rules::Rules;
pub use table::{StateIndex, Table};
pub use transition::{Goal, NoWay, Step, Transition};

/// A kind of slice on one GPU, as NVML describes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Profile {
    /// NVML's profile id: what Create takes; means nothing without the GPU.
    pub id: u32,
    /// Name as the driver prints it, without a leading `MIG `: `1g.5gb+me`.
    pub name: String,
    /// Compute slices.
    pub compute: u32,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Memory in bytes, by NVML's MiB figure.
    pub memory: u64,
    /// Most instances of it on one GPU, as NVML says. For display: on the A30 it is wrong, and on every known
    /// GPU placements, compute slices and engines imply the right one. Where they do not, a create is refused
    /// and taken out of the table.
    pub count: u32,
    /// Copy engines, decoders, encoders, JPEG and OFA engines that one instance takes.
    pub engines: [u32; 5],
    /// Legal places.
    pub placements: Vec<Placement>,
}

impl Profile {
    /// Whether the name carries a variant: `1g.5gb+me`, `1g.24gb-me`.
    #[must_use]
    pub fn is_variant(&self) -> bool {
        self.name.contains(['+', '-'])
    }
}

/// Where an instance sits on the memory grid, in memory slices.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Placement {
    /// First unit.
    pub start: u32,
    /// Units.
    pub size: u32,
}

impl Placement {
    /// Whether both claim a unit.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.start.saturating_add(other.size)
            && other.start < self.start.saturating_add(self.size)
    }
}

impl fmt::Display for Placement {
    /// As `nvidia-smi mig -lgi` prints it: `start:size`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.start, self.size)
    }
}

/// Index of a profile in its [`Table`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct ProfileIndex(pub usize);

/// A profile at one of its placements: what a create makes and a slice holds.
pub type Slot = (ProfileIndex, Placement);

/// The base profiles: for each count of compute slices the one with the least memory, variants left out.
/// The order of the input is kept.
#[must_use]
pub fn base(profiles: &[Profile]) -> Vec<Profile> {
    let least = |compute: u32| {
        let same = profiles
            .iter()
            .filter(|p| p.compute == compute && !p.is_variant());
        same.map(|p| p.memory).min()
    };
    let mut kept: Vec<Profile> = Vec::new();
    for profile in profiles {
        let chosen = !profile.is_variant() && least(profile.compute) == Some(profile.memory);
        if chosen && kept.iter().all(|k| k.compute != profile.compute) {
            kept.push(profile.clone());
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(profiles: &[Profile]) -> Vec<&str> {
        profiles.iter().map(|p| p.name.as_str()).collect()
    }

    #[test]
    fn base_leaves_out_double_memory_and_variants() {
        let kept = base(&samples::a100_40gb());
        assert_eq!(
            names(&kept),
            ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]
        );
        let kept = base(&samples::rtx_pro_6000());
        assert_eq!(names(&kept), ["1g.24gb", "2g.48gb", "4g.96gb"]);
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let at = |start, size| Placement { start, size };
        assert!(!at(0, 4).overlaps(at(4, 4)));
        assert!(at(0, 4).overlaps(at(3, 1)));
        assert!(at(2, 2).overlaps(at(0, 8)));
    }
}
