//! Two deployments in one numbering: services with their floors, and GPUs with what stands on them before and after.

use std::collections::BTreeMap;

use super::super::deployment::{DeployedGpu, Deployment, Tables};
use super::matching::match_up;
use crate::layout::{Slot, Table};

/// What runs on a slice. Two instances that are equal can stand for one another.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Instance {
    /// Index into [`Stage::services`].
    pub service: usize,
    /// Requests in a batch.
    pub batch: u32,
    /// Processes.
    pub processes: u32,
    /// What it serves, millionths of requests per second.
    pub rate: i64,
}

/// An instance on a slice.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct Resident {
    /// The slice.
    pub slot: Slot,
    /// What runs there.
    pub instance: Instance,
}

/// A service during the transition.
#[derive(Clone, Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What it must get at any time, millionths of requests per second: the lesser of what is required before and
    /// after, where each counts for no more than its deployment serves.
    pub floor: i64,
}

/// A GPU that takes part.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Index into [`Stage::kinds`].
    pub kind: usize,
    /// What runs on it at first.
    pub before: Vec<Resident>,
    /// What shall run on it in the end.
    pub after: Vec<Resident>,
    /// Its number in the old deployment.
    pub from: Option<usize>,
    /// Its number in the new deployment.
    pub to: Option<usize>,
    /// Whether it is used during the transition only.
    pub extra: bool,
}

/// Where a transition is played.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Kinds of GPU with their tables.
    pub kinds: Vec<(String, Table)>,
    /// Services of either deployment.
    pub services: Vec<Service>,
    /// GPUs of either deployment, those of the old one first and in its order.
    pub gpus: Vec<Gpu>,
}

/// Why there is no transition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TransitionError {
    /// The old deployment is impossible.
    #[error("the deployment to start from: {0}")]
    From(String),
    /// The new deployment is impossible.
    #[error("the deployment to reach: {0}")]
    To(String),
}

/// What a matched pair of GPUs keeps counts this much more than a slice that only has its profile in place.
const KEPT: i64 = 100;

impl Stage {
    /// Gives two deployments one numbering and matches their GPUs.
    ///
    /// # Errors
    /// A GPU of either is not known, or its slices cannot stand together.
    pub fn set(from: &Deployment, to: &Deployment, tables: &Tables) -> Result<Self, TransitionError> {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let mut services = Vec::new();
        for served in from.services.iter().chain(&to.services) {
            numbers.entry(&served.name).or_insert_with(|| {
                let floor = |deployment: &Deployment| {
                    let own = deployment.services.iter().find(|own| own.name == served.name);
                    own.map_or(0, |own| own.required.min(deployment.served(&own.name)).0)
                };
                services.push(Service {
                    name: served.name.clone(),
                    floor: floor(from).min(floor(to)),
                });
                services.len() - 1
            });
        }
        let names = from.kinds().into_iter().chain(to.kinds());
        let used: BTreeMap<&str, &Table> = names.filter_map(|kind| Some((kind, tables.get(kind)?))).collect();
        let kinds: Vec<(String, Table)> = used
            .iter()
            .map(|(&kind, &table)| (kind.to_owned(), table.clone()))
            .collect();
        let residents = |deployment: &Deployment, index: usize, gpu: &DeployedGpu| {
            let slots = deployment.slots(index, tables)?;
            let all = slots.into_iter().zip(&gpu.slices).map(|(slot, slice)| {
                let service = numbers.get(slice.service.as_str()).copied();
                let service = service.ok_or_else(|| format!("service {} is not listed", slice.service))?;
                let instance = Instance {
                    service,
                    batch: slice.batch,
                    processes: slice.processes,
                    rate: slice.rate.0,
                };
                Ok(Resident { slot, instance })
            });
            let mut all: Vec<Resident> = all.collect::<Result<_, String>>()?;
            all.sort();
            Ok(all)
        };
        let all = |deployment: &Deployment| -> Result<Vec<Vec<Resident>>, String> {
            let gpus = deployment.gpus.iter().enumerate();
            gpus.map(|(index, gpu)| residents(deployment, index, gpu))
                .collect()
        };
        let before = all(from).map_err(TransitionError::From)?;
        let after = all(to).map_err(TransitionError::To)?;
        let kind_of = |gpu: &DeployedGpu| kinds.iter().position(|(name, _)| *name == gpu.kind).unwrap_or(0);
        let mut gpus: Vec<Gpu> = from
            .gpus
            .iter()
            .zip(before)
            .enumerate()
            .map(|(index, (gpu, before))| Gpu {
                kind: kind_of(gpu),
                before,
                after: Vec::new(),
                from: Some(index),
                to: None,
                extra: false,
            })
            .collect();
        let new_kind: Vec<usize> = to.gpus.iter().map(kind_of).collect();
        for kind in 0..kinds.len() {
            let old: Vec<usize> = (0..from.gpus.len())
                .filter(|&gpu| gpus[gpu].kind == kind)
                .collect();
            let new: Vec<usize> = (0..after.len()).filter(|&gpu| new_kind[gpu] == kind).collect();
            let old_content: Vec<&[Resident]> = old.iter().map(|&gpu| gpus[gpu].before.as_slice()).collect();
            let new_content: Vec<&[Resident]> = new.iter().map(|&gpu| after[gpu].as_slice()).collect();
            let pairs = match_up(&old_content, &new_content, |a, b| {
                kept(old_content[a], new_content[b])
            });
            for (&number, pair) in new.iter().zip(pairs) {
                match pair {
                    Some(pair) => {
                        gpus[old[pair]].after.clone_from(&after[number]);
                        gpus[old[pair]].to = Some(number);
                    }
                    None => gpus.push(Gpu {
                        kind,
                        before: Vec::new(),
                        after: after[number].clone(),
                        from: None,
                        to: Some(number),
                        extra: false,
                    }),
                }
            }
        }
        Ok(Self {
            kinds,
            services,
            gpus,
        })
    }

    /// The table of a GPU.
    #[must_use]
    pub fn table(&self, gpu: &Gpu) -> &Table {
        &self.kinds[gpu.kind].1
    }
}

/// How much two GPUs share: instances that can stay, and slices that need not be cut anew.
fn kept(old: &[Resident], new: &[Resident]) -> i64 {
    let mut sum = 0;
    for resident in new {
        if let Some(there) = old.iter().find(|there| there.slot == resident.slot) {
            sum += 1 + if there == resident { KEPT } else { 0 };
        }
    }
    sum
}
