//! Why a slot cannot be added to a state: the rules of a layout, and the words for them.

use std::fmt;

use super::table::Table;
use super::{Slot, StateIndex};

/// The engines of [`super::Profile::engines`], in order.
const ENGINES: [&str; 5] = ["copy", "decoder", "encoder", "JPEG", "OFA"];

/// One rule that a create would break.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Obstacle {
    /// No profile of the GPU has this placement.
    NoSuchPlace,
    /// The slot itself, or memory that it needs, is taken.
    Taken {
        /// By this instance.
        by: String,
    },
    /// The driver refuses the two together on one GPU.
    Forbidden {
        /// With this instance.
        with: String,
    },
    /// More compute slices than the GPU has.
    Compute {
        /// Needed in all.
        needed: u32,
        /// There are.
        most: u32,
    },
    /// More engines than the GPU has.
    Engines {
        /// Kind.
        engine: &'static str,
        /// Needed in all.
        needed: u32,
        /// There are.
        most: u32,
    },
    /// The driver refused this create when it was tried.
    Refused,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchPlace => write!(f, "the GPU has no such placement"),
            Self::Taken { by } => write!(f, "{by} is in the way"),
            Self::Forbidden { with } => write!(f, "the driver refuses it together with {with}"),
            Self::Compute { needed, most } => write!(f, "{needed} compute slices needed, the GPU has {most}"),
            Self::Engines { engine, needed, most } => {
                write!(f, "{needed} {engine} engines needed, the GPU has {most}")
            }
            Self::Refused => write!(f, "the driver refused it"),
        }
    }
}

/// Slots that cannot stand together.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{slot} cannot be placed: {obstacle}")]
pub struct Misfit {
    /// The slot, as `1g.5gb@6`.
    pub slot: String,
    /// The rule it breaks.
    pub obstacle: Obstacle,
}

impl Table {
    /// The first rule that adding `slot` to the set `state` breaks, apart from refusals.
    pub(super) fn obstacle(&self, state: u64, slot: usize) -> Option<Obstacle> {
        let (profile, place) = self.slot(slot);
        let wanted = self.profile(profile);
        let mut compute = wanted.compute;
        let mut engines = wanted.engines;
        for other in self.bits(state) {
            let (kind, at) = self.slot(other);
            let known = self.profile(kind);
            if place.overlaps(at) {
                return Some(Obstacle::Taken {
                    by: self.named((kind, at)),
                });
            }
            if self.rules().forbids(wanted.compute, known.compute) {
                return Some(Obstacle::Forbidden {
                    with: self.named((kind, at)),
                });
            }
            compute += known.compute;
            for (sum, own) in engines.iter_mut().zip(known.engines) {
                *sum += own;
            }
        }
        let budget = self.budget();
        if compute > budget.compute {
            return Some(Obstacle::Compute {
                needed: compute,
                most: budget.compute,
            });
        }
        let over = (0..ENGINES.len()).find(|&kind| engines[kind] > budget.engines[kind])?;
        Some(Obstacle::Engines {
            engine: ENGINES[over],
            needed: engines[over],
            most: budget.engines[over],
        })
    }

    /// Why a create is not possible in a state, refusals included; `None` when it is.
    pub(super) fn blocked(&self, state: StateIndex, slot: usize) -> Option<Obstacle> {
        if self.bitset(state) >> slot & 1 == 1 {
            Some(Obstacle::Taken {
                by: self.named(self.slot(slot)),
            })
        } else if self.is_refused(state, slot) {
            Some(Obstacle::Refused)
        } else {
            self.obstacle(self.bitset(state), slot)
        }
    }

    /// A slot as people write it: `1g.5gb@6`.
    #[must_use]
    pub fn named(&self, (profile, place): Slot) -> String {
        match self.profiles().get(profile.0) {
            Some(profile) => format!("{}@{}", profile.name, place.start),
            None => format!("profile {}@{}", profile.0, place.start),
        }
    }

    /// Reads a slot from `PROFILE@START`.
    ///
    /// # Errors
    /// Text for people: which part is unknown, and what is known.
    pub fn slot_named(&self, text: &str) -> Result<Slot, SlotError> {
        let (name, start) = text
            .split_once('@')
            .ok_or_else(|| SlotError::Form(text.to_owned()))?;
        let start: u32 = start.parse().map_err(|_| SlotError::Form(text.to_owned()))?;
        let profile = self.profile_named(name).ok_or_else(|| SlotError::Profile {
            name: name.to_owned(),
            known: self
                .profiles()
                .iter()
                .map(|p| p.name.as_str())
                .collect::<Vec<_>>()
                .join(", "),
        })?;
        let places = &self.profile(profile).placements;
        let place = places.iter().find(|place| place.start == start);
        place
            .map(|&place| (profile, place))
            .ok_or_else(|| SlotError::Start {
                name: name.to_owned(),
                start,
                known: places
                    .iter()
                    .map(|p| p.start.to_string())
                    .collect::<Vec<_>>()
                    .join(", "),
            })
    }
}

/// Text that is no slot of this GPU.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SlotError {
    /// Not `PROFILE@START`.
    #[error("`{0}` is not of the form PROFILE@START")]
    Form(String),
    /// No such profile.
    #[error("there is no profile `{name}` here; there are {known}")]
    Profile {
        /// As given.
        name: String,
        /// All names.
        known: String,
    },
    /// No placement starts there.
    #[error("{name} cannot start at {start}; it can at {known}")]
    Start {
        /// Profile.
        name: String,
        /// As given.
        start: u32,
        /// All starts.
        known: String,
    },
}

#[cfg(test)]
mod tests {
    use super::super::{Placement, ProfileIndex, Rules, samples};
    use super::*;

    #[test]
    fn an_overlap_is_named() {
        let table = samples::a100_base();
        let slots = ["3g.20gb@4", "1g.5gb@6"].map(|text| table.slot_named(text).unwrap());
        let misfit = table.state_of(&slots).unwrap_err();
        assert_eq!(
            misfit.to_string(),
            "1g.5gb@6 cannot be placed: 3g.20gb@4 is in the way"
        );
        let twice = table.state_of(&[slots[0], slots[0]]).unwrap_err();
        assert_eq!(
            twice.to_string(),
            "3g.20gb@4 cannot be placed: 3g.20gb@4 is in the way"
        );
    }

    #[test]
    fn an_unknown_place_is_named() {
        let table = samples::a100_base();
        let stray = (ProfileIndex(0), Placement { start: 7, size: 1 });
        let misfit = table.state_of(&[stray]).unwrap_err();
        assert_eq!(
            misfit.to_string(),
            "1g.5gb@7 cannot be placed: the GPU has no such placement"
        );
    }

    /// For each placement of a profile why it cannot be created in a state; empty when one can.
    fn why_not(table: &Table, taken: &[Slot], profile: ProfileIndex) -> Vec<(Placement, Obstacle)> {
        let state = table.state_of(taken).unwrap();
        let reasons = table
            .slots_of(profile)
            .map(|(slot, place)| Some((place, table.blocked(state, slot)?)));
        reasons.collect::<Option<_>>().unwrap_or_default()
    }

    #[test]
    fn each_rule_has_its_own_words() {
        let why = |table: &Table, taken: &[&str], wanted: &str| {
            let taken: Vec<_> = taken.iter().map(|text| table.slot_named(text).unwrap()).collect();
            let reasons = why_not(table, &taken, table.profile_named(wanted).unwrap());
            reasons
                .iter()
                .map(|(at, why)| format!("@{} {why}", at.start))
                .collect::<Vec<_>>()
        };
        let base = samples::a100_base();
        assert_eq!(
            why(&base, &["4g.20gb@0", "1g.5gb@6"], "3g.20gb"),
            ["@0 4g.20gb@0 is in the way", "@4 1g.5gb@6 is in the way"]
        );
        assert_eq!(why(&base, &["4g.20gb@0"], "3g.20gb"), [""; 0]);
        let old = Table::build(base.profiles().to_vec(), Rules::for_driver(470)).unwrap();
        assert_eq!(
            why(&old, &["4g.20gb@0"], "3g.20gb")[1],
            "@4 the driver refuses it together with 4g.20gb@0"
        );
        let a30 = Table::build(samples::a30_24gb(), Rules::default()).unwrap();
        assert_eq!(
            why(&a30, &["1g.6gb+me@0"], "2g.12gb+me")[1],
            "@2 2 JPEG engines needed, the GPU has 1"
        );
        let state = base.state_of(&[]).unwrap();
        let seven = base.slot_named("7g.40gb@0").unwrap();
        assert_eq!(
            why(&base.without(state, seven), &[], "7g.40gb"),
            ["@0 the driver refused it"]
        );
    }

    #[test]
    fn compute_slices_run_out_before_memory() {
        // A grid of 8 units where three profiles of 3 compute slices would fit by memory alone.
        let mut profiles = super::super::base(&samples::a100_40gb());
        profiles[2].placements = [0, 2, 4].map(|start| Placement { start, size: 2 }).to_vec();
        let table = Table::build(profiles, Rules::default()).unwrap();
        let taken = [0, 2].map(|start| (ProfileIndex(2), Placement { start, size: 2 }));
        let reasons = why_not(&table, &taken, ProfileIndex(2));
        assert_eq!(reasons[2].1.to_string(), "9 compute slices needed, the GPU has 7");
    }

    #[test]
    fn slots_are_read_as_written() {
        let table = samples::a100_base();
        let slot = table.slot_named("2g.10gb@4").unwrap();
        assert_eq!(table.named(slot), "2g.10gb@4");
        assert_eq!(
            table.slot_named("2g.10gb@6").unwrap_err().to_string(),
            "2g.10gb cannot start at 6; it can at 0, 2, 4"
        );
        assert_eq!(
            table.slot_named("2g@0").unwrap_err().to_string(),
            "there is no profile `2g` here; there are 1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"
        );
        assert_eq!(
            table.slot_named("2g.10gb").unwrap_err().to_string(),
            "`2g.10gb` is not of the form PROFILE@START"
        );
    }
}
