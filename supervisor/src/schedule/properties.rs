//! Random runs of the policies that serve in order. Overtaking is bounded by none within a user's jobs of one priority, and there
//! is none by jobs of a lower level: see [`World`](super::world::World).

use migm_shared::ids::Incarnation;
use proptest::prelude::*;

use super::world::{MACHINES, play, turn};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_in_any_run(
        machine in 0..MACHINES,
        turns in proptest::collection::vec(turn(), 1..120),
        sequential in any::<bool>(),
        speaks in any::<bool>(),
    ) {
        let policy = if sequential { Policy::Sequential } else { Policy::SchemeB };
        let run = || play(Scheduler::new(policy, Incarnation(1)), machine, speaks, &turns);
        prop_assert_eq!(run(), run(), "the same events give the same actions");
    }
}
