//! Our rule: what a state is worth to the jobs that arrive, by the equations of a loss system.
//!
//! Jobs arrive at random in a known mix, stay for exponential times and are lost when no GPU takes them. On one GPU
//! that is a Markov decision process, and the value of a state is its relative value `h`: how many more
//! jobs are taken from there on than from the empty GPU. The best create is that which loses least of `h`.
//!
//! Over `n` GPUs of a kind the states are too many, so `h` is made for one GPU among `n` that follow the same rule, as
//! in a mean field: the others' states are taken as independent, each with the distribution of this one.
//! A job of profile `p` that meets this GPU in state `s` gains `a = 1 - (h(s) - h(s'))` here, or `M`, the best
//! that one of the others offers; the better is taken:
//!
//! ```text
//! g = sum over p of n * rate(p) * E[max(a, M)]  +  sum over slices in s of (h(s less the slice) - h(s))
//! ```
//!
//! With `n = 1` there is no `M`, and this is the equation of the decision process itself. Value iteration for `h` and
//! the distribution of the states go on side by side. A job is never refused to keep room for others.

use super::super::{ProfileIndex, StateIndex, Table};
use super::rules::Rated;
use super::{Cost, Placement, PlacementRule};

/// The offered load assumed, as a share of all compute slices: one at which places matter. On one GPU, at true loads
/// from 0.5 to 0.95, the rule made for it is within 0.05 point of the optimum.
const LOAD: f64 = 0.85;
/// Sweeps at most; the order of the states settles after some 200.
const SWEEPS: usize = 300;
/// Jobs in a mean stay by which the states may still rise unlike each other, and GPUs that may still change state.
const SETTLED: f64 = 1e-4;
/// More GPUs than this change nothing that can be measured.
const MOST_GPUS: usize = 64;
/// Offers closer than this are one offer.
const SAME: f64 = 1e-9;

/// Ours: a create costs the jobs that will be lost for it.
#[derive(Clone, Debug)]
pub struct DemandValue {
    rated: Rated,
}

impl PlacementRule for DemandValue {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn cost(&self, from: StateIndex, placement: Placement, to: StateIndex) -> Cost {
        self.rated.cost(from, placement, to)
    }
}

impl DemandValue {
    /// The rule for one of `gpus` GPUs when profiles are wanted in these shares, one for each profile.
    #[must_use]
    pub fn solve(table: &Table, mix: &[f64], gpus: usize) -> Self {
        let mut field = Field::new(table, &arrivals(table, mix, LOAD), gpus.clamp(1, MOST_GPUS));
        for _ in 0..SWEEPS {
            if field.sweep() < SETTLED {
                break;
            }
        }
        Self {
            rated: Rated::new("ours", field.worth.into_iter()),
        }
    }
}

/// Arrivals of each profile during a mean stay, on one GPU at an offered load: the compute slices wanted at a time
/// as a share of those there are.
#[must_use]
pub(super) fn arrivals(table: &Table, mix: &[f64], load: f64) -> Vec<f64> {
    let kinds = || table.profiles().iter().zip(mix);
    let mean: f64 = kinds().map(|(kind, share)| share * f64::from(kind.compute)).sum();
    let most = f64::from(table.budget().compute);
    let rate = if mean > 0.0 { load * most / mean } else { 0.0 };
    kinds().map(|(_, share)| share * rate).collect()
}

/// For each state where it goes when one of its slices ends.
pub(super) fn departures(table: &Table) -> Vec<Vec<usize>> {
    let rest = |set: u64| {
        table
            .bits(set)
            .filter_map(move |slot| table.index.get(&(set & !(1 << slot))).copied())
    };
    table.states.iter().map(|&set| rest(set).collect()).collect()
}

/// What this GPU offers for a job in one of its states.
#[derive(Clone, Copy)]
struct Offer {
    gain: f64,
    from: usize,
    to: usize,
}

struct Stream {
    /// Arrivals at all GPUs together.
    rate: f64,
    /// For each state that has room, the states that a create leads to.
    rooms: Vec<(usize, Vec<usize>)>,
    /// States without room.
    without: Vec<usize>,
    /// One for each of `rooms`, kept in the order of the last sweep, which the next hardly changes.
    offers: Vec<(Offer, usize)>,
}

struct Field {
    gpus: i32,
    departures: Vec<Vec<usize>>,
    streams: Vec<Stream>,
    /// Time of one sweep, in mean stays.
    step: f64,
    /// `h`.
    worth: Vec<f64>,
    /// How likely this GPU is to be in each state.
    share: Vec<f64>,
}

impl Field {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "at most 64 GPUs and 64 instances"
    )]
    fn new(table: &Table, arrivals: &[f64], gpus: usize) -> Self {
        let departures = departures(table);
        let most = departures.iter().map(Vec::len).max().unwrap_or(0) as f64;
        let rate = |profile: usize| arrivals[profile] * gpus as f64;
        let stream = |profile: usize| {
            let (mut rooms, mut without) = (Vec::new(), Vec::new());
            for state in table.indices() {
                let to: Vec<usize> = table
                    .edges_of(state, ProfileIndex(profile))
                    .map(|edge| edge.to)
                    .collect();
                if to.is_empty() {
                    without.push(state.0);
                } else {
                    rooms.push((state.0, to));
                }
            }
            let blank = |room: usize| {
                let offer = Offer {
                    gain: 0.0,
                    from: 0,
                    to: 0,
                };
                (offer, room)
            };
            Stream {
                rate: rate(profile),
                offers: (0..rooms.len()).map(blank).collect(),
                rooms,
                without,
            }
        };
        let wanted = (0..arrivals.len()).filter(|&profile| arrivals[profile] > 0.0);
        let streams: Vec<Stream> = wanted.map(stream).collect();
        let events = most + streams.iter().map(|stream| stream.rate).sum::<f64>();
        let mut share = vec![0.0; departures.len()];
        share[Table::EMPTY.0] = 1.0;
        Self {
            gpus: gpus as i32,
            worth: vec![0.0; departures.len()],
            departures,
            streams,
            step: 1.0 / events.max(1.0),
            share,
        }
    }

    /// One step of value iteration, and one step in time of the states' distribution. Says how far both are from
    /// settled: how much more one state has risen than another, and how much of the distribution has moved.
    fn sweep(&mut self) -> f64 {
        let total = self.worth.len();
        let (mut rise, mut flow) = (vec![0.0; total], vec![0.0; total]);
        for (from, rest) in self.departures.iter().enumerate() {
            for &to in rest {
                rise[from] += self.worth[to] - self.worth[from];
                flow[to] += self.share[from];
                flow[from] -= self.share[from];
            }
        }
        for stream in &mut self.streams {
            stream.serve(self.gpus, &self.worth, &self.share, &mut rise, &mut flow);
        }
        for state in 0..total {
            self.worth[state] += rise[state] * self.step;
            self.share[state] = (self.share[state] + flow[state] * self.step).max(0.0);
        }
        let empty = self.worth[Table::EMPTY.0];
        self.worth.iter_mut().for_each(|worth| *worth -= empty);
        let least = rise.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rise.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let moved: f64 = flow.iter().map(|flow| flow.abs()).sum();
        (most - least).max(moved)
    }
}

impl Stream {
    /// Adds what this stream's arrivals do to the worth and the distribution of the states.
    fn serve(&mut self, gpus: i32, worth: &[f64], share: &[f64], rise: &mut [f64], flow: &mut [f64]) {
        if gpus == 1 {
            // No others, so nothing depends on how likely a state is.
            for (from, tos) in &self.rooms {
                let best = tos.iter().map(|&to| worth[to]).max_by(f64::total_cmp);
                rise[*from] += self.rate * best.map_or(0.0, |best| 1.0 - (worth[*from] - best));
            }
            return;
        }
        for (offer, room) in &mut self.offers {
            let (from, tos) = &self.rooms[*room];
            let best = tos.iter().copied().max_by(|&a, &b| worth[a].total_cmp(&worth[b]));
            let to = best.unwrap_or(*from);
            *offer = Offer {
                gain: 1.0 - (worth[*from] - worth[to]),
                from: *from,
                to,
            };
        }
        self.offers.sort_by(|(a, _), (b, _)| a.gain.total_cmp(&b.gain));
        // How likely another GPU offers less, from the bottom up; then what the others' best is worth where it is
        // more, from the top down.
        let mut below: f64 = self.without.iter().map(|&state| share[state]).sum();
        let mut groups = Vec::new();
        let mut rest = &self.offers[..];
        while let Some((first, _)) = rest.first() {
            let size = rest.partition_point(|(offer, _)| offer.gain - first.gain < SAME);
            let (group, others) = rest.split_at(size);
            let at: f64 = group.iter().map(|(offer, _)| share[offer.from]).sum();
            groups.push((group, below.min(1.0), (below + at).min(1.0)));
            below += at;
            rest = others;
        }
        let all_of = |probability: f64, count: i32| probability.powi(count);
        let mut better = 0.0;
        for (group, less, at_most) in groups.into_iter().rev() {
            let gain = group[0].0.gain;
            let value = gain * all_of(at_most, gpus - 1) + better;
            // GPUs that offer the same share the arrivals.
            let rate = if at_most - less > 1e-12 {
                (all_of(at_most, gpus) - all_of(less, gpus)) / (f64::from(gpus) * (at_most - less))
            } else {
                all_of(at_most, gpus - 1)
            };
            for (offer, _) in group {
                rise[offer.from] += self.rate * value;
                let moved = self.rate * rate * share[offer.from];
                flow[offer.to] += moved;
                flow[offer.from] -= moved;
            }
            better += gain * (all_of(at_most, gpus - 1) - all_of(less, gpus - 1));
        }
        for &state in &self.without {
            rise[state] += self.rate * better;
        }
    }
}
