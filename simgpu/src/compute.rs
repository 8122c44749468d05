//! Compute instances: which fit into a GPU instance.

use crate::model::{Model, Profile};
use crate::state::{GpuInstance, compute_sms};

/// A kind of compute instance within one kind of GPU instance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ComputeProfile {
    /// `NVML_COMPUTE_INSTANCE_PROFILE_*`; it is also what create takes.
    pub number: u32,
    /// Compute slices.
    pub slices: u32,
    /// How many fit at most.
    pub count: u32,
    /// Multiprocessors of one.
    pub sms: u32,
}

impl ComputeProfile {
    /// Where it may start in the GPU instance.
    pub fn starts(&self) -> impl Iterator<Item = u32> + use<> {
        // Aligned as GPU instances are: twos at even places, threes in either half.
        let step = match self.slices {
            3 => 4,
            slices => slices,
        };
        (0..self.count).map(move |n| n * step)
    }

    /// `1g.5gb` for one that fills its GPU instance, else `1c.3g.20gb`.
    #[must_use]
    pub fn name(&self, gi: &Profile) -> String {
        if self.slices == gi.compute {
            gi.name.to_owned()
        } else {
            format!("{}c.{}", self.slices, gi.name)
        }
    }
}

/// All compute instance profiles of a GPU instance of this profile, by number.
#[must_use]
pub fn compute_profiles(model: &'static Model, gi: &Profile) -> Vec<ComputeProfile> {
    // The double-memory 1g has a profile of its own.
    let doubled = gi.compute == 1 && model.compute_slices > 1 && gi.size > smallest(model);
    let sizes: &[(u32, u32, u32)] = match gi.compute {
        1 if doubled => &[(7, 1, 1)],
        1 => &[(0, 1, 1)],
        2 => &[(0, 1, 2), (1, 2, 1)],
        3 => &[(0, 1, 3), (1, 2, 1), (2, 3, 1)],
        4 => &[(0, 1, 4), (1, 2, 2), (3, 4, 1)],
        7 => &[(0, 1, 7), (1, 2, 3), (2, 3, 2), (3, 4, 1), (4, 7, 1)],
        _ => &[],
    };
    sizes
        .iter()
        .map(|&(number, slices, count)| ComputeProfile {
            number,
            slices,
            count,
            sms: compute_sms(model, gi, slices),
        })
        .collect()
}

fn smallest(model: &Model) -> u32 {
    model
        .profiles
        .iter()
        .map(|profile| profile.size)
        .min()
        .unwrap_or(0)
}

/// The lowest start, or the one asked for, at which the profile fits beside what is there.
pub(crate) fn free_start(instance: &GpuInstance, profile: ComputeProfile, asked: Option<u32>) -> Option<u32> {
    profile
        .starts()
        .filter(|start| asked.is_none_or(|asked| asked == *start))
        .find(|&start| {
            instance.compute_instances().all(|(_, other)| {
                start + profile.slices <= other.start.get() || other.start.get() + other.size.get() <= start
            })
        })
}

/// How many more of the profile fit.
pub(crate) fn remaining(instance: &GpuInstance, profile: ComputeProfile) -> u32 {
    let free = profile
        .starts()
        .filter(|&start| free_start(instance, profile, Some(start)).is_some())
        .count();
    u32::try_from(free).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{MODELS, find};

    fn names(key: &str, question: u32) -> Vec<(String, u32, u32)> {
        let model = &MODELS[find(key).unwrap()];
        let gi = model
            .profiles
            .iter()
            .find(|profile| profile.question == question)
            .unwrap();
        compute_profiles(model, gi)
            .iter()
            .map(|profile| (profile.name(gi), profile.count, profile.sms))
            .collect()
    }

    #[test]
    fn compute_profiles_as_listed_for_a_3g() {
        let expected = [("1c.3g.20gb", 3, 14), ("2c.3g.20gb", 1, 28), ("3g.20gb", 1, 42)];
        assert_eq!(
            names("a100-40gb", 2),
            expected.map(|(name, count, sms)| (name.to_owned(), count, sms))
        );
    }

    #[test]
    fn a_full_3g_of_an_h100_has_60_multiprocessors() {
        assert_eq!(
            names("h100-80gb", 2).last().unwrap(),
            &("3g.40gb".to_owned(), 1, 60)
        );
    }

    #[test]
    fn the_double_memory_1g_has_its_own_profile() {
        let model = &MODELS[find("a100-40gb").unwrap()];
        let doubled = model
            .profiles
            .iter()
            .find(|profile| profile.question == 9)
            .unwrap();
        assert_eq!(compute_profiles(model, doubled)[0].number, 7);
    }

    #[test]
    fn starts_stay_inside() {
        for model in &MODELS {
            for gi in model.profiles {
                for profile in compute_profiles(model, gi) {
                    assert!(
                        profile.starts().all(|start| start + profile.slices <= gi.compute),
                        "{}",
                        gi.name
                    );
                }
            }
        }
    }
}
