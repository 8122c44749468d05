//! GPUs that the benchmarks cut: the profiles of the simulator's models.
#![allow(dead_code, reason = "each benchmark uses its own part")]

use migm_supervisor::layout::{Placement, Profile};
use simgpu::model;

/// All profiles of an A100-40GB.
pub fn a100() -> Vec<Profile> {
    of("a100-40gb")
}

/// Those without a suffix.
pub fn a100_plain() -> Vec<Profile> {
    let plain = |profile: &Profile| !profile.is_variant();
    a100().into_iter().filter(plain).collect()
}

/// All profiles of a model, by its key.
pub fn of(key: &str) -> Vec<Profile> {
    let model = &model::MODELS[model::find(key).expect("a GPU that can be simulated")];
    let profile = |profile: &model::Profile| {
        let engines = profile.engines;
        let starts = profile.starts.iter();
        Profile {
            id: profile.id,
            name: profile.name.to_owned(),
            compute: profile.compute,
            sms: profile.sms,
            memory: profile.memory_mib << 20,
            count: profile.count,
            engines: [
                engines.copy,
                engines.decoder,
                engines.encoder,
                engines.jpeg,
                engines.ofa,
            ],
            placements: starts
                .map(|&start| Placement {
                    start,
                    size: profile.size,
                })
                .collect(),
        }
    };
    model.profiles.iter().map(profile).collect()
}
