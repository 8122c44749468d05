//! A deployment: what runs on which slice of which GPU, by names. It is what a plan becomes when it is written down:
//! transitions start and end at one, and continuous planning starts at one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::plan::Plan;
use super::problem::{Problem, Rate};
use crate::layout::{Placement, Slot, Table};

/// The state tables of GPUs, by the name of the kind.
pub type Tables = BTreeMap<String, Table>;

/// A service that is served.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Its name.
    pub name: String,
    /// What must be served.
    pub required: Rate,
}

/// A slice with what runs on it.
#[derive(Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub struct DeployedSlice {
    /// Where it sits.
    pub placement: Placement,
    /// Profile name, such as `1g.5gb`.
    pub profile: String,
    /// Name of the service.
    pub service: String,
    /// Requests in a batch.
    pub batch: u32,
    /// Processes that share the slice.
    pub processes: u32,
    /// What all of them serve.
    pub rate: Rate,
}

/// A GPU in use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeployedGpu {
    /// Model of GPU, such as `a100-40gb`.
    pub kind: String,
    /// By placement.
    pub slices: Vec<DeployedSlice>,
}

/// GPUs in the order they are numbered, and the services that they serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Deployment {
    /// In the order of the demand.
    pub services: Vec<Served>,
    /// One entry for each GPU in use.
    pub gpus: Vec<DeployedGpu>,
}

/// Why a file holds no deployment.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{file}: {fault}")]
pub struct DeploymentError {
    /// As it was named.
    pub file: String,
    /// In words, with the field.
    pub fault: String,
}

/// The part of a plan document that a deployment needs.
#[derive(Deserialize)]
struct Document {
    services: Vec<ServiceEntry>,
    slices: Vec<SliceEntry>,
}

#[derive(Deserialize)]
struct ServiceEntry {
    name: String,
    required_rps: f64,
}

#[derive(Deserialize)]
struct SliceEntry {
    gpu: u64,
    kind: String,
    profile: String,
    start: u32,
    size: u32,
    service: String,
    batch: u32,
    processes: u32,
    throughput_rps: f64,
}

impl Deployment {
    /// Reads what `migm serve plan --json` writes. `file` is its name, for the error.
    ///
    /// # Errors
    /// It is no such document, a rate is none, or a slice runs a service that is not listed.
    pub fn parse(file: &str, text: &str) -> Result<Self, DeploymentError> {
        let fault = |fault: String| DeploymentError {
            file: file.to_owned(),
            fault,
        };
        let document: Document = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
        let mut names = BTreeSet::new();
        let mut services = Vec::new();
        for (index, entry) in document.services.into_iter().enumerate() {
            let required = Rate::from_rps(entry.required_rps).ok_or_else(|| {
                fault(format!(
                    "`services[{index}].required_rps` is {}, which is no rate",
                    entry.required_rps
                ))
            })?;
            if !names.insert(entry.name.clone()) {
                return Err(fault(format!("service {} is listed twice", entry.name)));
            }
            services.push(Served {
                name: entry.name,
                required,
            });
        }
        let mut gpus: BTreeMap<u64, DeployedGpu> = BTreeMap::new();
        for (index, entry) in document.slices.into_iter().enumerate() {
            let rate = Rate::from_rps(entry.throughput_rps).ok_or_else(|| {
                fault(format!(
                    "`slices[{index}].throughput_rps` is {}, which is no rate",
                    entry.throughput_rps
                ))
            })?;
            if !names.contains(&entry.service) {
                return Err(fault(format!(
                    "`slices[{index}].service` is {}, which is not listed in `services`",
                    entry.service
                )));
            }
            let gpu = gpus.entry(entry.gpu).or_insert_with(|| DeployedGpu {
                kind: entry.kind.clone(),
                slices: Vec::new(),
            });
            if gpu.kind != entry.kind {
                return Err(fault(format!(
                    "GPU {} is both {} and {}",
                    entry.gpu, gpu.kind, entry.kind
                )));
            }
            gpu.slices.push(DeployedSlice {
                placement: Placement {
                    start: entry.start,
                    size: entry.size,
                },
                profile: entry.profile,
                service: entry.service,
                batch: entry.batch,
                processes: entry.processes,
                rate,
            });
        }
        let mut gpus: Vec<DeployedGpu> = gpus.into_values().collect();
        for gpu in &mut gpus {
            gpu.slices.sort();
        }
        Ok(Self { services, gpus })
    }

    /// The deployment that a plan describes.
    #[must_use]
    pub fn of(plan: &Plan, problem: &Problem) -> Self {
        let services = problem.services.iter().map(|service| Served {
            name: service.name.clone(),
            required: service.required,
        });
        let gpus = plan.gpus.iter().map(|gpu| {
            let slices = gpu.slices.iter().filter_map(|slice| {
                let service = &problem.services[slice.service];
                let point = service.points[slice.size]?;
                Some(DeployedSlice {
                    placement: slice.placement,
                    profile: problem.fleet.sizes[slice.size].profile.clone(),
                    service: service.name.clone(),
                    batch: point.batch,
                    processes: point.processes,
                    rate: point.rate,
                })
            });
            let mut slices: Vec<DeployedSlice> = slices.collect();
            slices.sort();
            DeployedGpu {
                kind: problem.fleet.kinds[gpu.kind].name.clone(),
                slices,
            }
        });
        Self {
            services: services.collect(),
            gpus: gpus.collect(),
        }
    }

    /// Kinds of GPU in use, each once.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<&str> {
        self.gpus.iter().map(|gpu| gpu.kind.as_str()).collect()
    }

    /// What a service gets.
    #[must_use]
    pub fn served(&self, service: &str) -> Rate {
        let slices = self.gpus.iter().flat_map(|gpu| &gpu.slices);
        let own = slices.filter(|slice| slice.service == service);
        Rate(own.map(|slice| slice.rate.0).sum())
    }

    /// The slots of a GPU, as its state table counts them.
    ///
    /// # Errors
    /// The kind has no table, or its slices cannot stand together; in words.
    pub(super) fn slots(&self, gpu: usize, tables: &Tables) -> Result<Vec<Slot>, String> {
        let deployed = &self.gpus[gpu];
        let table = tables
            .get(&deployed.kind)
            .ok_or_else(|| format!("GPU {gpu}: {} is not known", deployed.kind))?;
        let mut slots = Vec::new();
        for slice in &deployed.slices {
            let profile = table
                .profile_named(&slice.profile)
                .ok_or_else(|| format!("GPU {gpu}: {} has no profile {}", deployed.kind, slice.profile))?;
            slots.push((profile, slice.placement));
        }
        table
            .state_of(&slots)
            .map_err(|misfit| format!("GPU {gpu}: {misfit}"))?;
        Ok(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(service: &str, rate: &str) -> String {
        format!(
            r#"{{"services": [{{"name": "a", "required_rps": 5}}], "slices": [{{"gpu": 3, "kind": "k",
            "profile": "1g", "start": 0, "size": 1, "service": "{service}", "batch": 1, "processes": 1,
            "throughput_rps": {rate}}}], "more": 1}}"#
        )
    }

    #[test]
    fn what_is_no_deployment_is_refused_by_field() {
        let read = Deployment::parse("p.json", &document("a", "7.5")).unwrap();
        assert_eq!((read.gpus.len(), read.served("a")), (1, Rate(7_500_000)));
        for (text, said) in [
            (
                document("b", "7"),
                "p.json: `slices[0].service` is b, which is not listed",
            ),
            (
                document("a", "-7"),
                "p.json: `slices[0].throughput_rps` is -7, which is no rate",
            ),
            ("{}".to_owned(), "p.json: missing field `services`"),
        ] {
            let error = Deployment::parse("p.json", &text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
