use proptest::prelude::*;

use super::*;
use crate::layout::{StateIndex, samples};

const CREATE: f64 = 0.32;
const DESTROY: f64 = 0.21;

/// Every order of creates, destroys and starts, with no bound but the best so far.
struct Brute<'a> {
    table: &'a Table,
    /// Seconds of each job by profile.
    jobs: Vec<&'a Vec<f64>>,
    best: f64,
}

impl Brute<'_> {
    fn go(&mut self, driver: f64, state: StateIndex, standing: &[(Slot, f64, bool)], left: u32, end: f64) {
        if end >= self.best {
            return;
        }
        if left == 0 {
            self.best = end;
            return;
        }
        let empty = standing.iter().filter(|slice| !slice.2).count();
        for (at, slice) in standing.iter().enumerate() {
            for job in (0..self.jobs.len()).filter(|job| left >> job & 1 == 1) {
                let ends = slice.1 + self.jobs[job][slice.0.0.0];
                if ends.is_finite() {
                    let mut after = standing.to_vec();
                    after[at] = (slice.0, ends, true);
                    self.go(driver, state, &after, left & !(1 << job), end.max(ends));
                }
            }
            // One that was made and has run nothing is not worth a destroy.
            if slice.2 {
                let mut after = standing.to_vec();
                after.remove(at);
                let slots: Vec<Slot> = after.iter().map(|slice| slice.0).collect();
                let gone = driver.max(slice.1) + DESTROY;
                self.go(gone, self.table.state_of(&slots).unwrap(), &after, left, end);
            }
        }
        if empty < left.count_ones() as usize {
            for (slot, next) in self.table.steps(state) {
                let made = driver + CREATE;
                let mut after = standing.to_vec();
                after.push((slot, made, false));
                self.go(made, next, &after, left, end);
            }
        }
    }
}

fn brute(batch: &Batch<'_>) -> f64 {
    let gpu = &batch.gpus[0];
    let mut brute = Brute {
        table: gpu.table,
        jobs: batch.jobs.iter().map(|job| &job[0]).collect(),
        best: f64::INFINITY,
    };
    let slots: Vec<Slot> = gpu.standing.iter().map(|one| one.slot).collect();
    let standing: Vec<_> = gpu
        .standing
        .iter()
        .map(|one| (one.slot, one.release, true))
        .collect();
    let end = gpu.standing.iter().map(|one| one.release).fold(0.0, f64::max);
    let state = gpu.table.state_of(&slots).unwrap();
    brute.go(gpu.driver, state, &standing, (1 << batch.jobs.len()) - 1, end);
    brute.best
}

/// Seconds that fall with the profile; infinite on the smallest ones, perhaps.
fn job(profiles: usize, shortest: f64) -> impl Strategy<Value = Vec<f64>> {
    let steps = prop::collection::vec(0.0..1.0_f64, profiles - 1);
    (shortest..20.0 * shortest, steps, 0..profiles).prop_map(move |(work, steps, small)| {
        let mut seconds = vec![work; profiles];
        for at in (0..profiles - 1).rev() {
            seconds[at] = seconds[at + 1] / (0.25 + 0.75 * steps[at]);
        }
        seconds[..small / 2].fill(f64::INFINITY);
        seconds
    })
}

/// Jobs as short as a create, so that the driver's order matters.
fn jobs(profiles: usize, most: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    (0.3..30.0_f64).prop_flat_map(move |shortest| prop::collection::vec(job(profiles, shortest), 1..=most))
}

/// Which steps from the empty GPU were taken, how long what runs there goes on, and how long the driver is busy.
fn before() -> impl Strategy<Value = (Vec<(usize, bool, f64)>, f64)> {
    let one = (0..64_usize, any::<bool>(), 0.1..40.0_f64);
    (
        prop::collection::vec(one, 0..=3),
        prop_oneof![Just(0.0), 0.0..2.0_f64],
    )
}

fn batch<'a>(table: &'a Table, jobs: &[Vec<f64>], before: &(Vec<(usize, bool, f64)>, f64)) -> Batch<'a> {
    let (mut state, mut standing) = (Table::EMPTY, Vec::new());
    for &(step, runs, seconds) in &before.0 {
        let steps: Vec<_> = table.steps(state).collect();
        if let Some(&(slot, after)) = steps.get(step % steps.len().max(1)) {
            let release = if runs { seconds } else { 0.0 };
            standing.push(Standing { slot, release });
            state = after;
        }
    }
    Batch {
        gpus: vec![Gpu {
            kind: 0,
            table,
            standing,
            driver: before.1,
        }],
        jobs: jobs.iter().map(|job| vec![job.clone()]).collect(),
        create: CREATE,
        destroy: DESTROY,
    }
}

/// As brute force; what starts at once has a place beside what runs, and nothing is found that ends before the best.
fn is_the_best(batch: &Batch<'_>) {
    let found = search(batch, f64::INFINITY, u64::MAX).unwrap();
    let other = brute(batch);
    assert!(found.proven);
    assert!(
        (found.makespan - other).abs() < 1e-6,
        "{found:?} and by brute force {other}"
    );
    let gpu = &batch.gpus[0];
    let running = gpu
        .standing
        .iter()
        .filter(|one| one.release > 0.0)
        .map(|one| one.slot);
    let starts = found
        .places
        .iter()
        .filter(|place| place.at_once)
        .map(|place| place.slot);
    let together: Vec<Slot> = running.chain(starts).collect();
    assert!(gpu.table.state_of(&together).is_ok(), "{found:?}");
    for (place, job) in found.places.iter().zip(&batch.jobs) {
        assert!(
            place.begin + job[0][place.slot.0.0] <= found.makespan + 1e-6,
            "{found:?}"
        );
    }
    let better = search(batch, found.makespan, u64::MAX).unwrap();
    assert!(better.proven && better.places.is_empty(), "{better:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_other_order_is_better_on_an_empty_a30(jobs in jobs(3, 4)) {
        is_the_best(&batch(&samples::a30_base(), &jobs, &(Vec::new(), 0.0)));
    }

    #[test]
    fn no_other_order_is_better_on_an_empty_a100(jobs in jobs(5, 3)) {
        is_the_best(&batch(&samples::a100_base(), &jobs, &(Vec::new(), 0.0)));
    }

    #[test]
    fn no_other_order_is_better_beside_what_stands_on_an_a30(jobs in jobs(3, 3), before in before()) {
        is_the_best(&batch(&samples::a30_base(), &jobs, &before));
    }

    #[test]
    fn no_other_order_is_better_beside_what_stands_on_an_a100(jobs in jobs(5, 2), before in before()) {
        is_the_best(&batch(&samples::a100_base(), &jobs, &before));
    }
}

#[test]
fn a_slice_is_left_idle_for_a_job_that_is_to_have_more() {
    // One half is free, the other for 10 s more: the job takes 100 s on a half and 50 s on the whole.
    let table = samples::a100_base();
    let job = vec![f64::INFINITY, f64::INFINITY, 100.0, 100.0, 50.0];
    let half = table.slot_named("3g.20gb@4").unwrap();
    let mut waits = batch(&table, &[job], &(Vec::new(), 0.0));
    waits.gpus[0].standing.push(Standing {
        slot: half,
        release: 10.0,
    });
    let found = search(&waits, f64::INFINITY, 1000).unwrap();
    assert!(
        (found.makespan - (10.0 + DESTROY + CREATE + 50.0)).abs() < 1e-9,
        "{found:?}"
    );
    assert!(!found.places[0].at_once);
}
