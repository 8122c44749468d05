//! What may happen in a random run.

use proptest::prelude::*;

use crate::schedule::{Terms, Wish};

/// What the executor may do next; numbers choose among what there is.
#[derive(Clone, Debug)]
pub(in crate::schedule) enum Turn {
    Arrive(Arrival),
    Answer {
        which: usize,
        how: u8,
    },
    End {
        which: usize,
        again: Option<u64>,
    },
    Forecast {
        which: usize,
        gib: u64,
    },
    Withdraw {
        which: usize,
    },
    Retell {
        which: usize,
        terms: Terms,
    },
    Vanish {
        which: usize,
    },
    Wait {
        seconds: u16,
    },
    /// The policy that serves from here on: one of [`POLICIES`].
    Policy {
        which: u8,
    },
}

/// Policies that a run may change to. A static layout is none of them: what stands on its places may never go.
pub(in crate::schedule) const POLICIES: u8 = 9;

#[derive(Clone, Debug)]
pub(in crate::schedule) struct Arrival {
    pub(in crate::schedule) gib: u64,
    pub(in crate::schedule) work: u16,
    pub(in crate::schedule) kept: bool,
    pub(in crate::schedule) known: bool,
    pub(in crate::schedule) terms: Terms,
}

fn terms() -> impl Strategy<Value = Terms> {
    const NAMES: [&str; 7] = [
        "1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb", "1g.6gb", "4g.24gb", "9g.99gb",
    ];
    let wish = prop_oneof![
        8 => Just(Wish::Any),
        2 => (0..NAMES.len()).prop_map(|which| Wish::Profile(NAMES[which].to_owned())),
        1 => Just(Wish::Exclusive),
    ];
    (0_u32..3, -1_i32..2, wish).prop_map(|(user, priority, wish)| Terms { user, priority, wish })
}

pub(in crate::schedule) fn turn() -> impl Strategy<Value = Turn> {
    let index = any::<usize>;
    let arrival = (0_u64..45, 1_u16..2000, any::<bool>(), any::<bool>(), terms()).prop_map(
        |(gib, work, kept, known, terms)| {
            Turn::Arrive(Arrival {
                gib,
                work,
                kept,
                known,
                terms,
            })
        },
    );
    prop_oneof![
        6 => arrival,
        12 => (index(), any::<u8>()).prop_map(|(which, how)| Turn::Answer { which, how }),
        6 => (index(), proptest::option::weighted(0.25, 0_u64..45)).prop_map(|(which, again)| Turn::End { which, again }),
        3 => (index(), 0_u64..45).prop_map(|(which, gib)| Turn::Forecast { which, gib }),
        1 => index().prop_map(|which| Turn::Withdraw { which }),
        1 => (index(), terms()).prop_map(|(which, terms)| Turn::Retell { which, terms }),
        1 => index().prop_map(|which| Turn::Vanish { which }),
        3 => (0_u16..200).prop_map(|seconds| Turn::Wait { seconds }),
        1 => (3000_u16..9000).prop_map(|seconds| Turn::Wait { seconds }),
    ]
}

/// As [`turn`], with changes of policy in between.
pub(in crate::schedule) fn turn_or_policy() -> impl Strategy<Value = Turn> {
    prop_oneof![
        7 => turn(),
        1 => (0..POLICIES).prop_map(|which| Turn::Policy { which }),
    ]
}
