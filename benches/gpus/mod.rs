//! GPUs that the benchmarks cut, as `nvidia-smi mig -lgip` and `-lgipp` print them.
#![allow(dead_code, reason = "each benchmark uses its own part")]

use migm_supervisor::layout::{Placement, Profile};

/// Name, compute slices, SMs, MiB, engines, starts, size.
type Row = (&'static str, u32, u32, u64, [u32; 5], &'static [u32], u32);

/// All profiles of an A100-40GB.
pub fn a100() -> Vec<Profile> {
    const SEVEN: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
    profiles(&[
        ("1g.5gb", 1, 14, 4864, [1, 0, 0, 0, 0], SEVEN, 1),
        ("1g.5gb+me", 1, 14, 4864, [1, 1, 0, 1, 1], SEVEN, 1),
        ("1g.10gb", 1, 14, 9984, [1, 1, 0, 0, 0], &[0, 2, 4, 6], 2),
        ("2g.10gb", 2, 28, 9984, [2, 1, 0, 0, 0], &[0, 2, 4], 2),
        ("3g.20gb", 3, 42, 20096, [3, 2, 0, 0, 0], &[0, 4], 4),
        ("4g.20gb", 4, 56, 20096, [4, 2, 0, 0, 0], &[0], 4),
        ("7g.40gb", 7, 98, 40448, [7, 5, 0, 1, 1], &[0], 8),
    ])
}

/// Those without a suffix.
pub fn a100_plain() -> Vec<Profile> {
    let plain = |profile: &Profile| !profile.is_variant();
    a100().into_iter().filter(plain).collect()
}

/// The base profiles of an A30.
pub fn a30_base() -> Vec<Profile> {
    profiles(&[
        ("1g.6gb", 1, 14, 5952, [1, 1, 0, 0, 0], &[0, 1, 2, 3], 1),
        ("2g.12gb", 2, 28, 11968, [2, 2, 0, 0, 0], &[0, 2], 2),
        ("4g.24gb", 4, 56, 24000, [4, 4, 0, 1, 1], &[0], 4),
    ])
}

fn profiles(rows: &[Row]) -> Vec<Profile> {
    let profile = |&(name, compute, sms, mib, engines, starts, size): &Row| Profile {
        id: 0,
        name: name.to_owned(),
        compute,
        sms,
        memory: mib << 20,
        count: 0,
        engines,
        placements: starts.iter().map(|&start| Placement { start, size }).collect(),
    };
    rows.iter().map(profile).collect()
}
