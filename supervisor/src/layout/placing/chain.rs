//! Exactly what a rule achieves on one GPU under random arrivals and exponential stays without a queue, and what the
//! best rule would. Both by the Markov chain over the states, not by simulation.

use super::super::{ProfileIndex, StateIndex, Table};
use super::PlacementRule;
use super::value::{arrivals, departures};

/// Sweeps until a distribution or a value stands still: far more than any known GPU needs.
const MOST_SWEEPS: usize = 20_000;
/// What still counts as movement, as a probability or a share of jobs.
const STILL: f64 = 1e-10;

/// Shares of what was wanted and let in, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acceptance {
    /// Of the jobs.
    pub jobs: f64,
    /// Of the compute slices that they want.
    pub slices: f64,
}

/// What `rule` achieves on one GPU when profiles are wanted in the shares `mix`, at an offered load given as the
/// share of all compute slices that would be in use were nothing lost. A job is taken whenever it fits.
#[must_use]
pub fn acceptance<R: PlacementRule + ?Sized>(table: &Table, rule: &R, mix: &[f64], load: f64) -> Acceptance {
    let rates = arrivals(table, mix, load);
    let next: Vec<Vec<Option<usize>>> = (0..rates.len())
        .map(|profile| {
            let to = |state| table.cheapest(rule, state, ProfileIndex(profile));
            table.indices().map(|state| to(state).map(|c| c.to.0)).collect()
        })
        .collect();
    let rest = departures(table);
    let step = step(&rates, &rest);
    let mut share = vec![0.0; rest.len()];
    share[Table::EMPTY.0] = 1.0;
    for _ in 0..MOST_SWEEPS {
        let mut flow = vec![0.0; share.len()];
        let mut carry = |from: usize, to: usize, rate: f64| {
            flow[from] -= rate * share[from];
            flow[to] += rate * share[from];
        };
        for (from, gone) in rest.iter().enumerate() {
            gone.iter().for_each(|&to| carry(from, to, 1.0));
        }
        for (nexts, &rate) in next.iter().zip(&rates) {
            for (from, to) in nexts.iter().enumerate() {
                to.iter().for_each(|&to| carry(from, to, rate));
            }
        }
        let moved: f64 = flow.iter().map(|flow| flow.abs() * step).sum();
        share
            .iter_mut()
            .zip(&flow)
            .for_each(|(share, flow)| *share += flow * step);
        if moved < STILL {
            break;
        }
    }
    let (mut jobs, mut slices) = ((0.0, 0.0), (0.0, 0.0));
    for (profile, (nexts, &rate)) in next.iter().zip(&rates).enumerate() {
        let taken: f64 = (nexts.iter().zip(&share).filter(|(to, _)| to.is_some()))
            .map(|(_, share)| share)
            .sum();
        let compute = f64::from(table.profile(ProfileIndex(profile)).compute);
        jobs = (jobs.0 + rate * taken, jobs.1 + rate);
        slices = (slices.0 + rate * taken * compute, slices.1 + rate * compute);
    }
    Acceptance {
        jobs: jobs.0 / jobs.1,
        slices: slices.0 / slices.1,
    }
}

/// The largest share of jobs that any rule lets in on one GPU, by relative value iteration. Of rules that take a
/// job whenever it fits: none may refuse one to keep room.
#[must_use]
pub fn optimum(table: &Table, mix: &[f64], load: f64) -> f64 {
    let rates = arrivals(table, mix, load);
    let rest = departures(table);
    let step = step(&rates, &rest);
    let creates: Vec<Vec<Vec<usize>>> = (0..rates.len())
        .map(|profile| {
            let of = |state: StateIndex| table.edges_of(state, ProfileIndex(profile)).map(|edge| edge.to);
            table.indices().map(|state| of(state).collect()).collect()
        })
        .collect();
    let all: f64 = rates.iter().sum();
    let mut worth = vec![0.0; rest.len()];
    let mut gain = 0.0;
    for _ in 0..MOST_SWEEPS {
        let rise = |state: usize| {
            let left: f64 = rest[state].iter().map(|&to| worth[to] - worth[state]).sum();
            let came = creates.iter().zip(&rates).map(|(creates, rate)| {
                let best = creates[state].iter().map(|&to| 1.0 + worth[to] - worth[state]);
                rate * best.max_by(f64::total_cmp).unwrap_or(0.0)
            });
            left + came.sum::<f64>()
        };
        let rises: Vec<f64> = (0..worth.len()).map(rise).collect();
        let least = rises.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rises.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        gain = f64::midpoint(least, most);
        worth
            .iter_mut()
            .zip(&rises)
            .for_each(|(worth, rise)| *worth += (rise - rises[0]) * step);
        if most - least < 1e-7 * all {
            break;
        }
    }
    gain / all
}

/// A time in which at most one event happens in any state, in mean stays.
#[expect(clippy::cast_precision_loss, reason = "at most 64 instances")]
fn step(rates: &[f64], departures: &[Vec<usize>]) -> f64 {
    let most = departures.iter().map(Vec::len).max().unwrap_or(0);
    1.0 / (rates.iter().sum::<f64>() + most as f64).max(1.0)
}
