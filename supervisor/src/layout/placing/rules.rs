//! The rules of others, to compare with.

use std::collections::HashMap;

use super::super::{LayoutError, Placement, Profile, ProfileIndex, StateIndex, Table};
use super::{Cost, PlacementRule};

/// First-fit: the first GPU with room, and there the lowest start.
#[derive(Clone, Copy, Debug, Default)]
pub struct LowestStart;

impl PlacementRule for LowestStart {
    fn name(&self) -> &'static str {
        "lowest-start"
    }

    fn cost(&self, _: StateIndex, placement: Placement, _: StateIndex) -> Cost {
        Cost(i64::from(placement.start))
    }

    fn compares_gpus(&self) -> bool {
        false
    }
}

/// A rule by a figure for each state, the larger the better: a create costs what is lost of it.
#[derive(Clone, Debug)]
pub struct Rated {
    name: &'static str,
    figures: Vec<i64>,
    compares_gpus: bool,
}

impl Rated {
    pub(super) fn new(name: &'static str, figures: impl Iterator<Item = f64>) -> Self {
        Self {
            name,
            figures: figures.map(|figure| Cost::of(figure).0).collect(),
            compares_gpus: true,
        }
    }

    /// Least loss of future configuration reachability: how many full layouts can still be reached. On one
    /// GPU this is MIGM's rule (arXiv 2508.18556); over several it is our extension of it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "far fewer layouts than 2^52")]
    pub fn reachability(table: &Table) -> Self {
        Self::new("fcr", table.indices().map(|state| table.reachable(state) as f64))
    }

    /// Minimum fragmentation increment (MFI, arXiv 2511.18906): a state's fragmentation is, over all slots whose
    /// profile would fit by the number of free memory slices and whose place is blocked, the sum of
    /// the profile's memory slices.
    #[must_use]
    pub fn fragmentation(table: &Table) -> Self {
        let figure = |state: StateIndex| {
            let taken = table.taken(state);
            let used: u32 = taken.iter().map(|(_, place)| place.size).sum();
            let free = table.units().saturating_sub(used);
            let blocked = table
                .slots
                .iter()
                .filter(|(_, place)| place.size <= free && taken.iter().any(|(_, at)| place.overlaps(*at)));
            -f64::from(blocked.map(|(_, place)| place.size).sum::<u32>())
        };
        Self::new("mfi", table.indices().map(figure))
    }

    /// The driver's own choice when it is asked to create without a placement, as far as transcripts show it: the
    /// most full layouts of the *plain* profiles (no variants, double memory included) in reach, ties to
    /// the lowest start. It knows one GPU; of several the first with room is taken.
    ///
    /// `plain` is the table of the GPU's plain profiles, or `table` itself where no others are known.
    ///
    /// # Errors
    /// A state of `table` has no like in `plain`: they are tables of different GPUs.
    #[expect(clippy::cast_precision_loss, reason = "far fewer layouts than 2^52")]
    pub fn driver(table: &Table, plain: &Table) -> Result<Self, LayoutError> {
        let like: HashMap<ProfileIndex, ProfileIndex> = table
            .profiles()
            .iter()
            .enumerate()
            .filter_map(|(index, profile)| {
                let alike = || {
                    let same = |other: &Profile| {
                        other.compute == profile.compute && other.placements == profile.placements
                    };
                    plain.profiles().iter().position(same).map(ProfileIndex)
                };
                let named = plain.profile_named(&profile.name);
                Some((ProfileIndex(index), named.or_else(alike)?))
            })
            .collect();
        let mut figures = Vec::new();
        for state in table.indices() {
            let taken = table.taken(state).into_iter();
            let seen: Option<Vec<_>> = taken
                .map(|(profile, place)| Some((*like.get(&profile)?, place)))
                .collect();
            let seen = seen.and_then(|slots| plain.state_of(&slots).ok());
            let seen = seen.ok_or(LayoutError::NotAlike)?;
            figures.push(plain.reachable(seen) as f64);
        }
        Ok(Self {
            compares_gpus: false,
            ..Self::new("driver", figures.into_iter())
        })
    }
}

impl PlacementRule for Rated {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cost(&self, from: StateIndex, _: Placement, to: StateIndex) -> Cost {
        Cost(self.figures[from.0] - self.figures[to.0])
    }

    fn compares_gpus(&self) -> bool {
        self.compares_gpus
    }
}
