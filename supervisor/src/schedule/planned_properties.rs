//! Random runs of the policies that decide by the board: see [`World`](super::world::World). Overtaking is bounded: see
//! `the_first_in_the_queue_is_passed_a_bounded_number_of_times`.

use migm_shared::ids::{Incarnation, JobId};
use proptest::prelude::*;

use super::PASSED_AT_MOST;
use super::policy::{Choice, Far, Mfi, Migm, Miso, Waves};
use super::world::{Arrival, MACHINES, Turn, World, play, turn};
use super::*;

/// Deciders that are tried.
pub(super) const POLICIES: u8 = 8;

fn policy(which: u8) -> Box<dyn super::Decider> {
    let choice = Choice {
        fifo: which == 1,
        moves: which < 3,
        search: if which == 2 { 0 } else { 30 },
        create: 0.3,
        destroy: 0.2,
    };
    match which {
        0..=3 => Box::new(Migm::new(choice)),
        4 => Box::new(Miso::default()),
        5 => Box::new(Mfi),
        6 => Box::new(Waves),
        _ => Box::new(Far::new(0.3, 0.2)),
    }
}

pub(super) fn scheduler(which: u8) -> Scheduler {
    Scheduler::with_decider(policy(which), Incarnation(1))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_the_policy(
        which in 0..POLICIES,
        machine in 0..MACHINES,
        turns in proptest::collection::vec(turn(), 1..60),
        speaks in any::<bool>(),
    ) {
        let run = || play(scheduler(which), machine, speaks, &turns);
        prop_assert_eq!(run(), run(), "the same events give the same actions");
    }
}

fn job(gib: u64, work: u16, terms: Terms) -> Arrival {
    Arrival {
        gib,
        work,
        kept: false,
        known: true,
        terms,
    }
}

#[test]
fn the_first_in_the_queue_is_passed_a_bounded_number_of_times() {
    // A long job that needs the whole GPU, and an endless stream of short ones that do not.
    let mut world = World::new(scheduler(3), 0, false);
    let short = job(1, 10, Terms::default());
    world.arrive(&short);
    world.step(Event::Settled);
    let long = world.arrive(&job(30, 60_000, Terms::default()));
    let mut passed = 0;
    while world.waiting.contains(&long) {
        world.arrive(&short);
        world.step(Event::Settled);
        world.answer_all();
        let running: Vec<JobId> = world.running.keys().copied().collect();
        world.now += 10.0;
        if let Some(first) = running.first() {
            world.end(*first, None);
            world.step(Event::Settled);
        }
        passed = world.running.len() + world.over.len();
        assert!(passed < 4 * PASSED_AT_MOST as usize, "the long job starves");
    }
    assert!(passed > 1, "it was passed at all");
}

/// Runs that once broke a rule: jobs that waited for ever after a refusal, or ran twice after their slice had gone.
#[test]
fn past_faults_stay_mended() {
    let arrive = |gib, work, kept, known| {
        Turn::Arrive(Arrival {
            gib,
            work,
            kept,
            known,
            terms: Terms::default(),
        })
    };
    let answer = |which, how| Turn::Answer { which, how };
    let end = |which| Turn::End { which, again: None };
    let runs: [(u8, u8, Vec<Turn>); 5] = [
        (5, 0, vec![arrive(10, 1, false, false), answer(0, 246)]),
        (
            5,
            1,
            vec![
                arrive(0, 1, false, false),
                answer(0, 0),
                arrive(5, 1, false, false),
                answer(0, 246),
            ],
        ),
        (
            0,
            1,
            vec![
                arrive(0, 1, false, false),
                arrive(0, 1, false, false),
                answer(0, 246),
                answer(0, 0),
                answer(1, 122),
                end(1),
                arrive(1, 1320, false, false),
                arrive(8, 1826, false, true),
                end(1),
            ],
        ),
        (
            4,
            0,
            vec![
                arrive(0, 1, true, false),
                answer(0, 0),
                Turn::Wait { seconds: 10 },
                arrive(0, 1, false, false),
                Turn::Vanish { which: 0 },
                answer(0, 230),
            ],
        ),
        (
            0,
            1,
            vec![
                arrive(5, 1, false, false),
                answer(0, 230),
                arrive(0, 1, false, false),
                Turn::Withdraw { which: 0 },
                answer(0, 188),
            ],
        ),
    ];
    for (which, machine, turns) in runs {
        play(scheduler(which), machine, false, &turns);
    }
}
