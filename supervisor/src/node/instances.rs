//! Making, finding and removing instances on one GPU.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    nvmlComputeInstance_t, nvmlDevice_t, nvmlGpuInstance_t, nvmlGpuInstancePlacement_t,
};

use super::error::{Code, NodeError};
use super::raw::Raw;
use super::{Instance, Memory, Process};
use crate::layout::{Placement, Profile};

/// The device is in use for a while after a process's end. About three seconds in all, then it is told.
const RETRIES: [Duration; 8] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(400),
    Duration::from_millis(500),
    Duration::from_millis(800),
    Duration::from_millis(1000),
];
/// How long the MIG device of a compute instance may take to be listed.
const LISTED_WITHIN: Duration = Duration::from_secs(2);
/// No driver has that many kinds of compute instance.
const FAR: u32 = 64;

/// A MIG device: what CUDA sees of a pair of instances.
struct MigDevice {
    gi: u32,
    ci: u32,
    uuid: String,
    memory: Option<Memory>,
}

/// One GPU, for the time of one call.
pub(super) struct OneGpu<'a> {
    pub raw: Raw<'a>,
    pub device: nvmlDevice_t,
    pub index: u32,
    /// The most MIG devices that the GPU can have.
    pub most: &'a dyn Fn() -> Result<u32, NodeError>,
    /// Kinds of compute instance by GPU and GPU instance profile, as far as the driver has been asked.
    pub known: &'a Mutex<HashMap<(u32, u32), Vec<CiProfile>>>,
}

/// A kind of compute instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct CiProfile {
    id: u32,
    slices: u32,
    /// The most there can be in one GPU instance.
    most: u32,
}

impl OneGpu<'_> {
    /// All instances by start.
    pub fn instances(&self, profiles: &[Profile]) -> Result<Vec<Instance>, NodeError> {
        let devices = self.mig_devices()?;
        let mut found = Vec::new();
        for profile in profiles {
            for gi in self.raw.gis(self.device, profile.id, profile.count)? {
                match self.describe(gi, &devices) {
                    Ok(instance) => found.push(instance),
                    // Someone removed it between the list and the look.
                    Err(error) if error.code() == Some(Code::NOT_FOUND) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        found.sort_by_key(|instance: &Instance| (instance.placement.start, instance.gi));
        found.dedup_by_key(|instance| instance.gi);
        Ok(found)
    }

    pub fn create(&self, profile: &Profile, place: Placement) -> Result<Instance, NodeError> {
        let tried = format!(
            "creating {} at {} on GPU {}",
            profile.name, place.start, self.index
        );
        let wanted = nvmlGpuInstancePlacement_t {
            start: place.start,
            size: place.size,
        };
        let gi = self.raw.create_gi(&tried, self.device, profile.id, wanted)?;
        self.fill(&tried, gi, profile, place).map_err(|cause| {
            let id = self.raw.gi_info(gi).map_or(u32::MAX, |info| info.id);
            match self.remove(&format!("removing it again after {tried}"), gi) {
                Ok(()) => cause,
                Err(rollback) => NodeError::LeftBehind {
                    gi: id,
                    cause: Box::new(cause),
                    rollback: Box::new(rollback),
                },
            }
        })
    }

    /// Second half of a create: checks the GPU instance and puts the compute instance in.
    fn fill(
        &self,
        tried: &str,
        gi: nvmlGpuInstance_t,
        profile: &Profile,
        place: Placement,
    ) -> Result<Instance, NodeError> {
        let info = self.raw.gi_info(gi)?;
        let found = Placement {
            start: info.placement.start,
            size: info.placement.size,
        };
        if info.profileId != profile.id || found != place {
            return Err(NodeError::mismatch(tried, info.profileId, found));
        }
        let ci = self.create_full_ci(tried, gi, profile)?;
        let ci = self.raw.ci_id(ci)?;
        let until = Instant::now() + LISTED_WITHIN;
        loop {
            if let Some(device) = self.mig_device(info.id, ci)? {
                return Ok(Instance {
                    gi: info.id,
                    profile: info.profileId,
                    placement: found,
                    cis: vec![ci],
                    uuid: Some(self.raw.uuid(device)?),
                    memory: self.raw.all_memory(device).ok().map(|memory| memory.total),
                });
            }
            if Instant::now() >= until {
                return Err(NodeError::Unconfirmed {
                    tried: tried.to_owned(),
                    found: format!(
                        "no MIG device shows GPU instance {} and compute instance {ci}",
                        info.id
                    ),
                });
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// The compute instance that takes all of a GPU instance. Which profile that is depends on the kind of
    /// the GPU instance (1g with double memory and 7g with NVLink have kinds of their own), so those of
    /// the right size are tried in order until one is not `NOT_SUPPORTED`.
    fn create_full_ci(
        &self,
        tried: &str,
        gi: nvmlGpuInstance_t,
        kind: &Profile,
    ) -> Result<nvmlComputeInstance_t, NodeError> {
        let tried = format!("{tried}, compute instance");
        let mut last = NodeError::Unconfirmed {
            tried: tried.clone(),
            found: format!(
                "no compute instance profile with {} slices is offered",
                kind.compute
            ),
        };
        let profiles = self.ci_profiles(gi, kind.id)?;
        for profile in profiles.iter().filter(|profile| profile.slices == kind.compute) {
            match self.raw.create_ci(&tried, gi, profile.id) {
                Ok(ci) => return Ok(ci),
                Err(error) if error.code() == Some(Code::NOT_SUPPORTED) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// The kinds of compute instance that a GPU instance of this profile can have. The driver is asked once.
    fn ci_profiles(&self, gi: nvmlGpuInstance_t, profile: u32) -> Result<Vec<CiProfile>, NodeError> {
        let key = (self.index, profile);
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(&key) {
            return Ok(found.clone());
        }
        let mut found = Vec::new();
        for number in 0..FAR {
            match self.raw.ci_profile(gi, number) {
                Ok(info) => found.push(CiProfile {
                    id: info.id,
                    slices: info.sliceCount,
                    most: info.instanceCount,
                }),
                Err(error) if error.code() == Some(Code::INVALID_ARGUMENT) => break,
                Err(error) if error.code() == Some(Code::NOT_SUPPORTED) => {}
                Err(error) => return Err(error),
            }
        }
        found.dedup_by_key(|profile| profile.id);
        known().insert(key, found.clone());
        Ok(found)
    }

    fn cis(&self, gi: nvmlGpuInstance_t) -> Result<Vec<(u32, nvmlComputeInstance_t)>, NodeError> {
        let kind = self.raw.gi_info(gi)?.profileId;
        let mut found = Vec::new();
        for profile in self.ci_profiles(gi, kind)? {
            for ci in self.raw.cis(gi, profile.id, profile.most)? {
                found.push((self.raw.ci_id(ci)?, ci));
            }
        }
        found.sort_by_key(|(id, _)| *id);
        found.dedup_by_key(|(id, _)| *id);
        Ok(found)
    }

    /// Removes the instance with an id; `Ok(false)` when there is none. `IN_USE` is not yet named.
    pub fn destroy(&self, id: u32) -> Result<bool, NodeError> {
        let gi = match self.raw.gi_by_id(self.device, id) {
            Ok(gi) => gi,
            Err(error) if error.code() == Some(Code::NOT_FOUND) => return Ok(false),
            Err(error) => return Err(error),
        };
        let tried = format!("removing GPU instance {id} on GPU {}", self.index);
        self.remove(&tried, gi)?;
        match self.raw.gi_by_id(self.device, id) {
            Err(error) if error.code() == Some(Code::NOT_FOUND) => Ok(true),
            Ok(_) => Err(NodeError::Unconfirmed {
                tried,
                found: "it is still listed".to_owned(),
            }),
            Err(error) => Err(error),
        }
    }

    /// Whether the instance is there without any compute instance.
    pub fn is_hollow(&self, id: u32) -> Result<bool, NodeError> {
        let gi = self.raw.gi_by_id(self.device, id)?;
        Ok(self.cis(gi)?.is_empty())
    }

    /// What we have made has one compute instance, the first: it is looked up by its id, and what else may be there
    /// only where the GPU instance does not go after it.
    fn remove(&self, tried: &str, gi: nvmlGpuInstance_t) -> Result<(), NodeError> {
        let remove = |id: u32, ci| {
            let tried = format!("{tried}, compute instance {id}");
            retry(&tried, || self.raw.destroy_ci(&tried, ci))
        };
        match self.raw.ci_by_id(gi, 0) {
            Ok(first) => remove(0, first)?,
            Err(error) if error.code() == Some(Code::NOT_FOUND) => {}
            Err(NodeError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.raw.destroy_gi(tried, gi) {
            Err(error) if error.is_in_use() => {}
            done => return done,
        }
        for (id, ci) in self.cis(gi)? {
            remove(id, ci)?;
        }
        retry(tried, || self.raw.destroy_gi(tried, gi))
    }

    fn describe(&self, gi: nvmlGpuInstance_t, devices: &[MigDevice]) -> Result<Instance, NodeError> {
        let info = self.raw.gi_info(gi)?;
        let device = devices.iter().find(|device| device.gi == info.id);
        Ok(Instance {
            gi: info.id,
            profile: info.profileId,
            placement: Placement {
                start: info.placement.start,
                size: info.placement.size,
            },
            cis: self.cis(gi)?.into_iter().map(|(id, _)| id).collect(),
            uuid: device.map(|device| device.uuid.clone()),
            memory: device.and_then(|device| device.memory).map(|memory| memory.total),
        })
    }

    /// Walks all indices: those of removed devices are holes with live ones behind them.
    fn mig_devices(&self) -> Result<Vec<MigDevice>, NodeError> {
        let mut found = Vec::new();
        self.walk(|device, (gi, ci)| {
            found.push(MigDevice {
                gi,
                ci,
                uuid: self.raw.uuid(device)?,
                memory: self.raw.all_memory(device).ok(),
            });
            Ok(false)
        })?;
        found.sort_by_key(|device| (device.gi, device.ci));
        Ok(found)
    }

    /// Compute processes. R450 does not say in which GPU instance one runs, so its MIG devices are asked.
    pub fn processes(&self) -> Result<Vec<Process>, NodeError> {
        match self.raw.processes(self.device) {
            Err(NodeError::Missing { .. }) => {}
            answer => return answer,
        }
        let mut found = self.raw.processes_v1(self.device)?;
        let located = self.walk(|device, (gi, _)| {
            let inside = self.raw.processes_v1(device)?;
            for process in &mut found {
                if inside.iter().any(|one| one.pid == process.pid) {
                    process.gi = Some(gi);
                }
            }
            Ok(false)
        });
        match located {
            Err(error) if !error.is_not_supported() => Err(error),
            _ => Ok(found),
        }
    }

    /// The MIG device of a pair of instances, once it is listed.
    fn mig_device(&self, gi: u32, ci: u32) -> Result<Option<nvmlDevice_t>, NodeError> {
        let mut found = None;
        self.walk(|device, ids| {
            found = (ids == (gi, ci)).then_some(device);
            Ok(found.is_some())
        })?;
        Ok(found)
    }

    /// Shows MIG devices with the ids of their instances, until told that this was the one.
    fn walk(
        &self,
        mut is_it: impl FnMut(nvmlDevice_t, (u32, u32)) -> Result<bool, NodeError>,
    ) -> Result<(), NodeError> {
        for index in 0..(self.most)()? {
            let Some(device) = self.raw.mig_device(self.device, index)? else {
                continue;
            };
            let ids = match self.raw.mig_ids(device) {
                Ok(ids) => ids,
                // It has gone since.
                Err(error) if error.code() == Some(Code::NOT_FOUND) => continue,
                Err(error) => return Err(error),
            };
            if is_it(device, ids)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Tries again while the answer is `IN_USE`, with growing pauses, and says at the end how often.
pub(super) fn retry(
    tried: &str,
    mut attempt: impl FnMut() -> Result<(), NodeError>,
) -> Result<(), NodeError> {
    let start = Instant::now();
    for pause in RETRIES {
        match attempt() {
            Err(error) if error.is_in_use() => sleep(pause),
            other => return other,
        }
    }
    match attempt() {
        Err(error) if error.is_in_use() => Err(NodeError::InUse {
            tried: tried.to_owned(),
            tries: u32::try_from(RETRIES.len()).map_or(u32::MAX, |pauses| pauses + 1),
            seconds: start.elapsed().as_secs_f64(),
            holders: Vec::new(),
        }),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use() -> NodeError {
        NodeError::Nvml {
            tried: "removing".into(),
            code: Code::IN_USE,
        }
    }

    #[test]
    fn in_use_that_passes_is_no_error() {
        let mut calls = 0;
        let answer = retry("removing", || {
            calls += 1;
            if calls < 3 { Err(in_use()) } else { Ok(()) }
        });
        assert!(answer.is_ok());
        assert_eq!(calls, 3);
    }

    #[test]
    fn in_use_for_good_ends_and_says_how_often() {
        let answer = retry("removing", || Err(in_use()));
        assert!(
            matches!(answer, Err(NodeError::InUse { tries: 9, .. })),
            "{answer:?}"
        );
    }
}
