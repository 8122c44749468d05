//! What the default policy does, seen over whole runs.

use std::sync::Arc;

use proptest::prelude::*;

use super::{End, Gpu, Job, Outcome, Run, Settings, Workload, parameters, simulate};
use crate::layout::samples;
use crate::schedule::PASSED_AT_MOST;

/// Speeds on 1g 2g 3g 4g 7g of jobs that lose on every slice, and of jobs that hardly do.
const STEEP: [f64; 5] = [0.07, 0.18, 0.3, 0.43, 1.0];
const FLAT: [f64; 5] = [0.9, 0.95, 0.97, 0.98, 1.0];

fn job<const N: usize>(arrival: f64, work: f64, speeds: [f64; N], checkpoints: bool) -> Job {
    Job {
        program: format!("{speeds:?}"),
        arrival,
        checkpoints,
        ..Job::plain(work, &speeds)
    }
}

fn load(gpus: usize, jobs: Vec<Job>, batch: bool) -> Workload {
    let gpu = Gpu {
        table: Arc::new(samples::a100_base()),
        kind: 0,
        power: parameters::Power::A100,
    };
    Workload {
        gpus: vec![gpu; gpus],
        jobs,
        batch,
    }
}

fn settings() -> Settings {
    Settings {
        search: 600,
        ..Settings::default()
    }
}

fn run(load: &Workload, settings: &Settings) -> Outcome {
    simulate(load, Run::named("migm", load, settings).unwrap(), settings, false)
}

#[test]
fn a_batch_whose_jobs_are_slower_than_thought_starts_them_again() {
    for checkpoints in [true, false] {
        let jobs = (0..14).map(|_| job(0.0, 200.0, STEEP, checkpoints)).collect();
        let load = load(2, jobs, true);
        let learns = Settings {
            learn: true,
            ..settings()
        };
        let moved = run(&load, &learns);
        let stays = run(
            &load,
            &Settings {
                moves: false,
                ..learns
            },
        );
        assert!(
            moved.moves > 0 && stays.moves == 0,
            "{} and {} moves",
            moved.moves,
            stays.moves
        );
        assert!(
            moved.makespan < 0.8 * stays.makespan,
            "{} after {} without moves",
            moved.makespan,
            stays.makespan
        );
        // Nothing is moved twice: what it is moved for is known by then.
        for index in 0..load.jobs.len() {
            let stops = moved
                .attempts
                .iter()
                .filter(|attempt| attempt.job == index && attempt.how == End::Moved);
            assert!(stops.count() <= 1, "job {index} is moved again and again");
        }
    }
}

#[test]
fn a_program_that_loses_on_every_slice_is_tried_with_few_jobs() {
    let jobs = (0..30).map(|_| job(0.0, 30.0, STEEP, false)).collect();
    let load = load(1, jobs, true);
    let learns = Settings {
        learn: true,
        ..settings()
    };
    let outcome = run(&load, &learns);
    let early = |start: f64| start < parameters::LEARN_S;
    let tried = outcome.attempts.iter().filter(|attempt| early(attempt.start));
    assert!((1..=3).contains(&tried.count()), "{:?}", outcome.attempts);
    // One after the other on the whole GPU they take 900 s.
    assert!(outcome.makespan < 1.15 * 900.0, "{} s", outcome.makespan);
}

#[test]
fn a_batch_that_goes_as_planned_moves_nobody() {
    let jobs = (0..40).map(|index| job(0.0, 20.0 + f64::from(index), FLAT, true));
    let outcome = run(&load(2, jobs.collect(), true), &settings());
    assert_eq!(outcome.moves, 0);
}

#[test]
fn a_job_waits_for_a_place_of_its_own_that_is_near() {
    // The second GPU is free after 40 s; a place beside the first job would cost that one a move, and the third too.
    let jobs = vec![
        job(0.0, 2000.0, FLAT, true),
        job(0.0, 540.0, STEEP, true),
        job(500.0, 2000.0, [0.3, 0.5, 0.6, 0.7, 1.0], true),
    ];
    let outcome = run(&load(2, jobs, false), &settings());
    assert_eq!(outcome.moves, 0);
    let third = outcome.attempts.iter().find(|attempt| attempt.job == 2).unwrap();
    assert_eq!(third.profile().0, 4, "on the whole of a GPU");
    assert!(third.start > 540.0, "when the second job has ended");
}

#[test]
fn jobs_that_end_before_their_speed_is_measured_show_it() {
    // None runs for so long that its speed would be measured on the way.
    let work = 0.9 * parameters::LEARN_S * STEEP[0];
    let jobs = (0..70).map(|_| job(0.0, work, STEEP, false));
    let learns = Settings {
        learn: true,
        ..settings()
    };
    let outcome = run(&load(1, jobs.collect(), true), &learns);
    let whole = outcome.attempts.iter().filter(|attempt| attempt.profile().0 == 4);
    assert!(whole.count() > 35, "most run whole once the first have ended");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

    /// However long the queue and whatever is moved: with n before it when it comes, a job starts before the
    /// (n + 1) [`PASSED_AT_MOST`]-th start of later jobs, those promised a place by then left out.
    #[test]
    fn no_job_waits_longer_than_for_a_stated_number_of_later_ones(
        long in proptest::collection::vec((50_u32..200, any::<bool>()), 1..3),
        checkpoints in any::<bool>(),
        moves in any::<bool>(),
    ) {
        // Long jobs that need the whole GPU come first, then short ones that do not, at nearly the rate that it bears.
        let (only_whole, flat) = ([0.0, 0.0, 1.0], [0.9, 0.95, 1.0]);
        let mut jobs: Vec<Job> = vec![job(0.0, 10.0, flat, checkpoints)];
        jobs.extend(long.iter().map(|&(work, keeps)| job(1.0, f64::from(work), only_whole, keeps)));
        let later = 450_u32;
        jobs.extend((0..later).map(|index| job(2.0 + f64::from(index) * 3.0, 10.0, flat, checkpoints)));
        let mut load = load(1, jobs, false);
        load.gpus[0].table = Arc::new(samples::a30_base());
        let outcome = run(&load, &Settings { moves, search: 100, ..settings() });
        let start = |index: usize| {
            let mut attempts = outcome.attempts.iter().filter(|attempt| attempt.job == index);
            attempts.next().map_or(f64::INFINITY, |attempt| attempt.start)
        };
        for (before, index) in (1..=long.len()).enumerate() {
            let passed = (index + 1..load.jobs.len()).filter(|&later| start(later) < start(index)).count();
            // Places promised already when the job's turn comes: what fits beside each other on the GPU.
            let most = (before + 1) * (PASSED_AT_MOST as usize + 4);
            prop_assert!(passed <= most, "{passed} of {most} passed job {index}");
        }
        // The streams are long enough to show it.
        prop_assert!(later as usize > long.len() * (PASSED_AT_MOST as usize + 4));
    }
}
