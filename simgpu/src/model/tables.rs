//! The profiles of each GPU.
//!
//! From NVIDIA's MIG user guide and `nvidia-smi mig` transcripts. Sizes are those of one driver.

use super::{Engines, Profile};

const ONES: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
const DOUBLE: &[u32] = &[0, 2, 4, 6];
const TWOS: &[u32] = &[0, 2, 4];
const HALVES: &[u32] = &[0, 4];
const FIRST: &[u32] = &[0];

#[expect(clippy::too_many_arguments, reason = "one row of a table")]
const fn row(
    name: &'static str,
    id: u32,
    question: u32,
    (compute, size): (u32, u32),
    count: u32,
    memory_mib: u64,
    sms: u32,
    engines: [u32; 5],
    starts: &'static [u32],
) -> Profile {
    let [copy, decoder, encoder, jpeg, ofa] = engines;
    let engines = Engines::new(copy, decoder, encoder, jpeg, ofa);
    Profile {
        name,
        id,
        question,
        compute,
        size,
        count,
        memory_mib,
        sms,
        engines,
        starts,
    }
}

#[rustfmt::skip]
pub(super) const A100_40: &[Profile] = &[
    row("1g.5gb",    19, 0, (1, 1), 7,  4_864, 14, [1, 0, 0, 0, 0], ONES),
    row("2g.10gb",   14, 1, (2, 2), 3,  9_984, 28, [2, 1, 0, 0, 0], TWOS),
    row("3g.20gb",    9, 2, (3, 4), 2, 20_096, 42, [3, 2, 0, 0, 0], HALVES),
    row("4g.20gb",    5, 3, (4, 4), 1, 20_096, 56, [4, 2, 0, 0, 0], FIRST),
    row("7g.40gb",    0, 4, (7, 8), 1, 40_448, 98, [7, 5, 0, 1, 1], FIRST),
    row("1g.5gb+me", 20, 7, (1, 1), 1,  4_864, 14, [1, 1, 0, 1, 1], ONES),
    row("1g.10gb",   15, 9, (1, 2), 4,  9_984, 14, [1, 1, 0, 0, 0], DOUBLE),
];

#[rustfmt::skip]
pub(super) const A100_80: &[Profile] = &[
    row("1g.10gb",    19, 0, (1, 1), 7,  9_728, 14, [1, 0, 0, 0, 0], ONES),
    row("2g.20gb",    14, 1, (2, 2), 3, 19_968, 28, [2, 1, 0, 0, 0], TWOS),
    row("3g.40gb",     9, 2, (3, 4), 2, 40_192, 42, [3, 2, 0, 0, 0], HALVES),
    row("4g.40gb",     5, 3, (4, 4), 1, 40_192, 56, [4, 2, 0, 0, 0], FIRST),
    row("7g.80gb",     0, 4, (7, 8), 1, 80_640, 98, [7, 5, 0, 1, 1], FIRST),
    row("1g.10gb+me", 20, 7, (1, 1), 1,  9_728, 14, [1, 1, 0, 1, 1], ONES),
    row("1g.20gb",    15, 9, (1, 2), 4, 19_968, 14, [1, 1, 0, 0, 0], DOUBLE),
];

// Not derivable from slices: the double-memory 1g has 26 multiprocessors, a 3g has 60.
#[rustfmt::skip]
pub(super) const H100_80: &[Profile] = &[
    row("1g.10gb",    19, 0, (1, 1), 7,  9_984,  16, [1, 1, 0, 1, 0], ONES),
    row("2g.20gb",    14, 1, (2, 2), 3, 20_096,  32, [2, 2, 0, 2, 0], TWOS),
    row("3g.40gb",     9, 2, (3, 4), 2, 40_448,  60, [3, 3, 0, 3, 0], HALVES),
    row("4g.40gb",     5, 3, (4, 4), 1, 40_448,  64, [4, 4, 0, 4, 0], FIRST),
    row("7g.80gb",     0, 4, (7, 8), 1, 81_152, 132, [8, 7, 0, 7, 1], FIRST),
    row("1g.10gb+me", 20, 7, (1, 1), 1,  9_984,  16, [1, 1, 0, 1, 1], ONES),
    row("1g.20gb",    15, 9, (1, 2), 4, 20_096,  26, [1, 1, 0, 1, 0], DOUBLE),
];

// The sizes that the guide and a transcript print, GiB to MiB. The whole GPU's size is in no source read and is
// assumed: two halves and 256 MiB, as on the A100s and the H100.
#[rustfmt::skip]
pub(super) const H200_141: &[Profile] = &[
    row("1g.18gb",    19, 0, (1, 1), 7,  16_384,  16, [1, 1, 0, 1, 0], ONES),
    row("2g.35gb",    14, 1, (2, 2), 3,  33_024,  32, [2, 2, 0, 2, 0], TWOS),
    row("3g.71gb",     9, 2, (3, 4), 2,  71_168,  60, [3, 3, 0, 3, 0], HALVES),
    row("4g.71gb",     5, 3, (4, 4), 1,  71_168,  64, [4, 4, 0, 4, 0], FIRST),
    row("7g.141gb",    0, 4, (7, 8), 1, 142_592, 132, [8, 7, 0, 7, 1], FIRST),
    row("1g.18gb+me", 20, 7, (1, 1), 1,  16_384,  16, [1, 1, 0, 1, 1], ONES),
    row("1g.35gb",    15, 9, (1, 2), 4,  33_024,  26, [1, 1, 0, 1, 0], DOUBLE),
];

// Places are inferred, see [`super::find`]; all else is from a transcript, GiB to MiB.
#[rustfmt::skip]
pub(super) const GH200_96: &[Profile] = &[
    row("1g.12gb",    19, 0, (1, 1), 7, 11_264,  16, [1, 1, 0, 1, 0], ONES),
    row("2g.24gb",    14, 1, (2, 2), 3, 23_552,  32, [2, 2, 0, 2, 0], TWOS),
    row("3g.48gb",     9, 2, (3, 4), 2, 47_616,  60, [3, 3, 0, 3, 0], HALVES),
    row("4g.48gb",     5, 3, (4, 4), 1, 47_616,  64, [4, 4, 0, 4, 0], FIRST),
    row("7g.96gb",     0, 4, (7, 8), 1, 95_232, 132, [8, 7, 0, 7, 1], FIRST),
    row("1g.12gb+me", 20, 7, (1, 1), 1, 11_264,  16, [1, 1, 0, 1, 1], ONES),
    row("1g.24gb",    15, 9, (1, 2), 4, 23_552,  26, [1, 1, 0, 1, 0], DOUBLE),
];

#[rustfmt::skip]
pub(super) const A30: &[Profile] = &[
    row("1g.6gb",     14, 0, (1, 1), 4,  5_952, 14, [1, 1, 0, 0, 0], &[0, 1, 2, 3]),
    row("2g.12gb",     5, 1, (2, 2), 2, 11_968, 28, [2, 2, 0, 0, 0], &[0, 2]),
    row("4g.24gb",     0, 3, (4, 4), 1, 24_000, 56, [4, 4, 0, 1, 1], FIRST),
    row("1g.6gb+me",  21, 7, (1, 1), 1,  5_952, 14, [1, 1, 0, 1, 1], &[0, 1, 2, 3]),
    row("2g.12gb+me",  6, 8, (2, 2), 1, 11_968, 28, [2, 2, 0, 1, 1], &[0, 2]),
];

// Four compute slices on a grid of twelve.
const QUARTERS: &[u32] = &[0, 3, 6, 9];
#[rustfmt::skip]
pub(super) const RTX_PRO_6000: &[Profile] = &[
    row("1g.24gb",        14,  0, (1,  3), 4, 24_192,  46, [1, 1, 1, 1, 0], QUARTERS),
    row("2g.48gb",         5,  1, (2,  6), 2, 48_512,  94, [2, 2, 2, 2, 0], &[0, 6]),
    row("4g.96gb",         0,  3, (4, 12), 1, 97_408, 188, [4, 4, 4, 4, 1], FIRST),
    row("1g.24gb+me",     21,  7, (1,  3), 1, 24_192,  46, [1, 1, 1, 1, 1], QUARTERS),
    row("1g.24gb+gfx",    47, 10, (1,  3), 4, 24_192,  46, [1, 1, 1, 1, 0], QUARTERS),
    row("2g.48gb+gfx",    35, 11, (2,  6), 2, 48_512,  94, [2, 2, 2, 2, 0], &[0, 6]),
    row("4g.96gb+gfx",    32, 12, (4, 12), 1, 97_408, 188, [4, 4, 4, 4, 1], FIRST),
    row("1g.24gb-me",     67, 13, (1,  3), 4, 24_192,  46, [1, 0, 0, 0, 0], QUARTERS),
    row("2g.48gb-me",     66, 14, (2,  6), 2, 48_512,  94, [2, 0, 0, 0, 0], &[0, 6]),
    row("1g.24gb+me.all", 65, 15, (1,  3), 1, 24_192,  46, [1, 4, 4, 4, 1], QUARTERS),
    row("2g.48gb+me.all", 64, 16, (2,  6), 1, 48_512,  94, [2, 4, 4, 4, 1], &[0, 6]),
];
