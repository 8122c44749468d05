//! The kinds of GPU instance that a GPU offers, as the driver lists them.

use std::ffi::c_char;

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::error::{Code, NodeError};
use super::raw::Raw;
use crate::layout::{Placement, Profile};

/// No driver has that many; the walk ends there even if one never says so.
const FAR: u32 = 256;

/// Walks the profile numbers upwards until the driver says `INVALID_ARGUMENT`, and skips those that this
/// GPU does not have. The count in a header hides what a later driver adds.
pub(super) fn profiles(raw: Raw<'_>, device: nvmlDevice_t) -> Result<Vec<Profile>, NodeError> {
    let mut found = Vec::new();
    for number in 0..FAR {
        match profile(raw, device, number) {
            Ok(mut profile) => {
                profile.placements = raw
                    .placements(device, profile.id)?
                    .iter()
                    .map(|place| Placement {
                        start: place.start,
                        size: place.size,
                    })
                    .collect();
                profile.placements.sort_unstable();
                found.push(profile);
            }
            Err(error) if error.code() == Some(Code::INVALID_ARGUMENT) => break,
            Err(error) if error.code() == Some(Code::NOT_SUPPORTED) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The versions of the structure name their fields alike.
macro_rules! described {
    ($info:expr, $name:expr) => {
        Profile {
            id: $info.id,
            name: $name,
            compute: $info.sliceCount,
            sms: $info.multiprocessorCount,
            memory: mebibytes($info.memorySizeMB),
            count: $info.instanceCount,
            engines: [
                $info.copyEngineCount,
                $info.decoderCount,
                $info.encoderCount,
                $info.jpegCount,
                $info.ofaCount,
            ],
            placements: Vec::new(),
        }
    };
}

/// One profile by number, from the newest version of the call that the driver knows.
fn profile(raw: Raw<'_>, device: nvmlDevice_t, number: u32) -> Result<Profile, NodeError> {
    match raw.profile_v3(device, number) {
        Ok(info) => return Ok(described!(info, plain_name(&info.name))),
        Err(error) if is_unknown_version(&error) => {}
        Err(error) => return Err(error),
    }
    match raw.profile_v2(device, number) {
        Ok(info) => return Ok(described!(info, plain_name(&info.name))),
        Err(error) if is_unknown_version(&error) => {}
        Err(error) => return Err(error),
    }
    let info = raw.profile_v1(device, number)?;
    Ok(described!(
        info,
        composed_name(number, info.sliceCount, info.memorySizeMB)
    ))
}

fn is_unknown_version(error: &NodeError) -> bool {
    matches!(error, NodeError::Missing { .. }) || error.code() == Some(Code::ARGUMENT_VERSION_MISMATCH)
}

const fn mebibytes(count: u64) -> u64 {
    count.saturating_mul(1 << 20)
}

/// `MIG 1g.5gb+me` as `1g.5gb+me`.
fn plain_name(raw: &[c_char]) -> String {
    let bytes: Vec<u8> = raw
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| byte.to_ne_bytes()[0])
        .collect();
    let name = String::from_utf8_lossy(&bytes);
    let name = name.trim();
    name.strip_prefix("MIG ").unwrap_or(name).to_owned()
}

/// The name that drivers give, made from slices and memory, for a driver that gives none: before R510. The only
/// variant that such a driver has is the one with media engines, nvml.h's `1_SLICE_REV1` and `2_SLICE_REV1`.
fn composed_name(number: u32, slices: u32, mebibytes: u64) -> String {
    let variant = if matches!(number, 7 | 8) { "+me" } else { "" };
    format!("{slices}g.{}gb{variant}", mebibytes.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chars(text: &str) -> Vec<c_char> {
        text.bytes()
            .chain([0, b'x'])
            .map(|byte| c_char::from_ne_bytes([byte]))
            .collect()
    }

    #[test]
    fn names_lose_the_prefix_that_some_drivers_print() {
        assert_eq!(plain_name(&chars("MIG 1g.5gb+me")), "1g.5gb+me");
        assert_eq!(plain_name(&chars("1g.5gb")), "1g.5gb");
    }

    #[test]
    fn a_driver_without_names_gets_the_usual_ones() {
        assert_eq!(composed_name(0, 1, 4864), "1g.5gb");
        assert_eq!(composed_name(7, 1, 4864), "1g.5gb+me");
        assert_eq!(composed_name(2, 3, 20096), "3g.20gb");
        assert_eq!(composed_name(4, 7, 40192), "7g.40gb");
    }
}
