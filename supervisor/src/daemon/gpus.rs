//! The GPUs that jobs are placed on, each with what may be done to it.

use std::sync::Arc;

use crate::layout::{LayoutError, Placement, Profile, ProfileIndex, Rules, Slot, Table, base};
use crate::node::{Gpu, Instance, MigMode, Node, NodeError};

/// Name of the one profile of a GPU without MIG.
pub const WHOLE: &str = "whole";
/// Name of the one profile of a GPU that is shared.
pub const SOFT: &str = "soft";

/// What may be done to a GPU.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Use {
    /// Instances are made and removed.
    Reshaped,
    /// Instances of others are used while they are idle.
    Existing,
    /// It is one slice.
    Whole,
    /// Jobs share it, each under a memory cap.
    Soft,
}

/// A GPU with its states.
#[derive(Debug)]
pub struct PlacedGpu {
    /// As NVML has it.
    pub gpu: Gpu,
    /// What may be done.
    pub used: Use,
    /// Its states: of its base profiles where it is reshaped.
    pub table: Arc<Table>,
    /// All its kinds of instance, to name those of others.
    pub profiles: Vec<Profile>,
    /// Instances that are not ours.
    pub foreign: Vec<Instance>,
    /// It is put aside: no job gets it until it answers again.
    pub aside: Option<Aside>,
}

/// Why a GPU is put aside.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Aside {
    /// The word that `migm status` shows instead of its mode.
    pub word: &'static str,
    /// One line for people, with the remedy.
    pub why: String,
}

/// A GPU cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The driver refused.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// Its profiles make no table.
    #[error("GPU {gpu}: {source}")]
    Layout {
        /// NVML's index.
        gpu: u32,
        /// Why.
        source: LayoutError,
    },
}

impl PlacedGpu {
    /// Reads what a GPU offers. All its instances count as foreign at first. One without instances is shared by jobs
    /// where `shared`, else it is one slice.
    ///
    /// # Errors
    /// The driver refused, or its profiles make no table.
    pub fn read(node: &dyn Node, gpu: Gpu, driver: &str, shared: bool) -> Result<Self, GpuError> {
        if !gpu.mode.is_on() {
            return Self::whole(gpu, shared);
        }
        let profiles = node.profiles(gpu.index)?;
        let foreign = node.instances(gpu.index)?;
        let table =
            Table::build(base(&profiles), Rules::for_version(driver)).map_err(|source| GpuError::Layout {
                gpu: gpu.index,
                source,
            })?;
        Ok(Self {
            gpu,
            used: Use::Reshaped,
            table: Arc::new(table),
            profiles,
            foreign,
            aside: None,
        })
    }

    /// One that could not be read: put aside from the start.
    ///
    /// # Errors
    /// As [`PlacedGpu::read`].
    pub fn unreadable(index: u32, error: &GpuError) -> Result<Self, GpuError> {
        let mut gpu = Self::whole(
            Gpu {
                index,
                name: format!("GPU {index}"),
                uuid: String::new(),
                memory: 0,
                mode: MigMode::Absent,
            },
            false,
        )?;
        let word = match error {
            GpuError::Node(error) if error.is_gpu_lost() => "lost",
            GpuError::Node(error) if error.needs_reset() => "needs-reset",
            _ => "failing",
        };
        gpu.aside = Some(Aside {
            word,
            why: error.to_string(),
        });
        Ok(gpu)
    }

    /// One slice that is all of it, or many of any size.
    fn whole(gpu: Gpu, shared: bool) -> Result<Self, GpuError> {
        let (used, name) = if shared {
            (Use::Soft, SOFT)
        } else {
            (Use::Whole, WHOLE)
        };
        let profile = Profile {
            id: u32::MAX,
            name: name.to_owned(),
            compute: 1,
            sms: 0,
            memory: gpu.memory,
            count: 1,
            engines: [0; 5],
            placements: vec![Placement { start: 0, size: 1 }],
        };
        let table =
            Table::build(vec![profile.clone()], Rules::default()).map_err(|source| GpuError::Layout {
                gpu: gpu.index,
                source,
            })?;
        Ok(Self {
            gpu,
            used,
            table: Arc::new(table.frozen()),
            profiles: vec![profile],
            foreign: Vec::new(),
            aside: None,
        })
    }

    /// Whether jobs get instances of it.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        !matches!(self.used, Use::Whole | Use::Soft)
    }

    /// Turns to the use of what is there: this user may not make instances. The table then holds the
    /// instances that exist and nothing else.
    ///
    /// # Errors
    /// There is no instance.
    pub fn only_existing(&mut self) -> Result<(), LayoutError> {
        let there: Vec<Profile> = self
            .profiles
            .iter()
            .filter_map(|profile| {
                let mut profile = profile.clone();
                profile.placements.retain(|place| {
                    let is_it = |one: &Instance| one.profile == profile.id && one.placement == *place;
                    self.foreign.iter().any(is_it)
                });
                (!profile.placements.is_empty()).then_some(profile)
            })
            .collect();
        self.used = Use::Existing;
        self.table = Arc::new(Table::build(there, Rules::default())?.frozen());
        Ok(())
    }

    /// The table's slot of an instance, if it has one.
    #[must_use]
    pub fn slot(&self, profile: u32, placement: Placement) -> Option<Slot> {
        let index = self.table.profiles().iter().position(|one| one.id == profile)?;
        let legal = self.table.profiles()[index].placements.contains(&placement);
        legal.then_some((ProfileIndex(index), placement))
    }

    /// Slots that the foreign instances hold. The table has base profiles only: an instance of another kind
    /// is told as the table's smallest slots within its place, or as the smallest one that covers it.
    #[must_use]
    pub fn foreign_slots(&self) -> Vec<Slot> {
        let all: Vec<Slot> = self
            .table
            .profiles()
            .iter()
            .enumerate()
            .flat_map(|(index, profile)| {
                let slot = move |&place| (ProfileIndex(index), place);
                profile.placements.iter().map(slot)
            })
            .collect();
        let mut held: Vec<Slot> = Vec::new();
        for instance in &self.foreign {
            let place = instance.placement;
            if let Some(slot) = self.slot(instance.profile, place) {
                held.push(slot);
                continue;
            }
            let within = |slot: &&Slot| {
                slot.1.start >= place.start && slot.1.start + slot.1.size <= place.start + place.size
            };
            let least = all.iter().filter(within).map(|slot| slot.1.size).min();
            let inside = all
                .iter()
                .filter(within)
                .filter(|slot| Some(slot.1.size) == least);
            let before = held.len();
            for slot in inside {
                if held[before..].iter().all(|other| !other.1.overlaps(slot.1)) {
                    held.push(*slot);
                }
            }
            if held.len() == before {
                let covering = all.iter().filter(|slot| slot.1.overlaps(place));
                held.extend(covering.min_by_key(|slot| slot.1.size));
            }
        }
        held
    }

    /// Memory slices of the GPU: the end of the placement that ends last.
    #[must_use]
    pub fn grid(&self) -> u32 {
        let places = self.profiles.iter().flat_map(|profile| &profile.placements);
        places.map(|place| place.start + place.size).max().unwrap_or(1)
    }

    /// The driver's name of a profile id.
    #[must_use]
    pub fn profile_name(&self, id: u32) -> String {
        self.profiles
            .iter()
            .find(|profile| profile.id == id)
            .map_or_else(|| format!("profile {id}"), |profile| profile.name.clone())
    }

    /// What `migm run` tells people of how jobs are placed here.
    #[must_use]
    pub fn notice(&self) -> Option<String> {
        let index = self.gpu.index;
        if let Some(aside) = &self.aside {
            return Some(format!("GPU {index} is put aside: {}", aside.why));
        }
        match self.used {
            Use::Reshaped => None,
            Use::Existing => Some(format!(
                "no instances can be made on GPU {index} here; idle slices that exist are used"
            )),
            Use::Soft => Some(super::soft::notice(&self.gpu)),
            Use::Whole => Some(match self.gpu.mode {
                MigMode::Absent => {
                    format!("GPU {index} has no MIG: jobs get it whole, one at a time")
                }
                MigMode::Pending { .. } => format!(
                    "the MIG mode of GPU {index} changes at its next reset: until then jobs get it whole, one at a time"
                ),
                _ => format!(
                    "MIG is off on GPU {index}: jobs get it whole, one at a time (`migm node enable-mig --device {index}` turns it on)"
                ),
            }),
        }
    }
}
