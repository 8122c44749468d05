//! GPUs for tests, as `nvidia-smi mig -lgip` and `-lgipp` print them.

use super::{Placement, Profile, Rules, Table, base};

type Row = (
    &'static str,
    u32,
    u32,
    u32,
    u64,
    u32,
    [u32; 5],
    &'static [u32],
    u32,
);

/// name, id, compute, SMs, MiB, count, engines, starts, size.
fn profiles(rows: &[Row]) -> Vec<Profile> {
    rows.iter()
        .map(
            |&(name, id, compute, sms, mib, count, engines, starts, size)| Profile {
                id,
                name: name.to_owned(),
                compute,
                sms,
                memory: mib << 20,
                count,
                engines,
                placements: starts.iter().map(|&start| Placement { start, size }).collect(),
            },
        )
        .collect()
}

const SEVEN: &[u32] = &[0, 1, 2, 3, 4, 5, 6];

pub(crate) fn a100_40gb() -> Vec<Profile> {
    profiles(&[
        ("1g.5gb", 19, 1, 14, 4864, 7, [1, 0, 0, 0, 0], SEVEN, 1),
        ("1g.5gb+me", 20, 1, 14, 4864, 1, [1, 1, 0, 1, 1], SEVEN, 1),
        ("1g.10gb", 15, 1, 14, 9984, 4, [1, 1, 0, 0, 0], &[0, 2, 4, 6], 2),
        ("2g.10gb", 14, 2, 28, 9984, 3, [2, 1, 0, 0, 0], &[0, 2, 4], 2),
        ("3g.20gb", 9, 3, 42, 20096, 2, [3, 2, 0, 0, 0], &[0, 4], 4),
        ("4g.20gb", 5, 4, 56, 20096, 1, [4, 2, 0, 0, 0], &[0], 4),
        ("7g.40gb", 0, 7, 98, 40448, 1, [7, 5, 0, 1, 1], &[0], 8),
    ])
}

pub(crate) fn h100_80gb() -> Vec<Profile> {
    profiles(&[
        ("1g.10gb", 19, 1, 16, 9984, 7, [1, 1, 0, 1, 0], SEVEN, 1),
        ("1g.10gb+me", 20, 1, 16, 9984, 1, [1, 1, 0, 1, 1], SEVEN, 1),
        ("1g.20gb", 15, 1, 26, 20096, 4, [1, 1, 0, 1, 0], &[0, 2, 4, 6], 2),
        ("2g.20gb", 14, 2, 32, 20096, 3, [2, 2, 0, 2, 0], &[0, 2, 4], 2),
        ("3g.40gb", 9, 3, 60, 40448, 2, [3, 3, 0, 3, 0], &[0, 4], 4),
        ("4g.40gb", 5, 4, 64, 40448, 1, [4, 4, 0, 4, 0], &[0], 4),
        ("7g.80gb", 0, 7, 132, 81152, 1, [8, 7, 0, 7, 1], &[0], 8),
    ])
}

pub(crate) fn a30_24gb() -> Vec<Profile> {
    profiles(&[
        ("1g.6gb", 14, 1, 14, 5952, 4, [1, 1, 0, 0, 0], &[0, 1, 2, 3], 1),
        ("1g.6gb+me", 21, 1, 14, 5952, 1, [1, 1, 0, 1, 1], &[0, 1, 2, 3], 1),
        ("2g.12gb", 5, 2, 28, 11968, 2, [2, 2, 0, 0, 0], &[0, 2], 2),
        ("2g.12gb+me", 6, 2, 28, 11968, 1, [2, 2, 0, 1, 1], &[0, 2], 2),
        ("4g.24gb", 0, 4, 56, 24000, 1, [4, 4, 0, 1, 1], &[0], 4),
    ])
}

pub(crate) fn rtx_pro_6000() -> Vec<Profile> {
    const QUARTERS: &[u32] = &[0, 3, 6, 9];
    const HALVES: &[u32] = &[0, 6];
    profiles(&[
        ("1g.24gb", 14, 1, 46, 24192, 4, [1, 1, 1, 1, 0], QUARTERS, 3),
        ("1g.24gb+me", 21, 1, 46, 24192, 1, [1, 1, 1, 1, 1], QUARTERS, 3),
        ("1g.24gb+gfx", 47, 1, 46, 24192, 4, [1, 1, 1, 1, 0], QUARTERS, 3),
        (
            "1g.24gb+me.all",
            65,
            1,
            46,
            24192,
            1,
            [1, 4, 4, 4, 1],
            QUARTERS,
            3,
        ),
        ("1g.24gb-me", 67, 1, 46, 24192, 4, [1, 0, 0, 0, 0], QUARTERS, 3),
        ("2g.48gb", 5, 2, 94, 48512, 2, [2, 2, 2, 2, 0], HALVES, 6),
        ("2g.48gb+gfx", 35, 2, 94, 48512, 2, [2, 2, 2, 2, 0], HALVES, 6),
        ("2g.48gb+me.all", 64, 2, 94, 48512, 1, [2, 4, 4, 4, 1], HALVES, 6),
        ("2g.48gb-me", 66, 2, 94, 48512, 2, [2, 0, 0, 0, 0], HALVES, 6),
        ("4g.96gb", 0, 4, 188, 97408, 1, [4, 4, 4, 4, 1], &[0], 12),
        ("4g.96gb+gfx", 32, 4, 188, 97408, 1, [4, 4, 4, 4, 1], &[0], 12),
    ])
}

/// The five base profiles of the A100-40GB under the newest driver.
pub(crate) fn a100_base() -> Table {
    Table::build(base(&a100_40gb()), Rules::default()).unwrap()
}

/// The profiles without a suffix.
pub(crate) fn plain(profiles: Vec<Profile>) -> Table {
    let plain = profiles.into_iter().filter(|profile| !profile.is_variant());
    Table::build(plain.collect(), Rules::default()).unwrap()
}

/// The three base profiles of the A30.
pub(crate) fn a30_base() -> Table {
    Table::build(base(&a30_24gb()), Rules::default()).unwrap()
}
