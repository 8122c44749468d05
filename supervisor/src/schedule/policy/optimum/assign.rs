//! Which job on which slot: the outer branch and bound.

use super::floor::{Floor, Spots, bits};
use super::sequence::Sequence;
use super::{CLOSE, Place, Search};

/// Steps of mirror ascent on the prices before the search, and at each node.
const STEPS: (u32, u32) = (400, 4);
/// First assignments that are improved by single changes before the search.
const STARTS: u64 = 12;

/// The search for one batch.
#[derive(Debug)]
pub(super) struct Assign<'a> {
    floor: &'a Floor,
    /// Jobs in the order in which they get their slot.
    order: Vec<usize>,
    /// Whether the job at a place of the order is like the one before.
    like: Vec<bool>,
    spot: Vec<usize>,
    /// Jobs' seconds on each clique so far.
    load: Vec<f64>,
    used: Spots,
    best: f64,
    /// Each job's place in the best schedule; none before one is found.
    chosen: Vec<Place>,
    nodes: u64,
    limit: u64,
}

/// Prices of the cliques, and what they say of a node.
#[derive(Clone, Debug)]
struct Prices {
    of: Vec<f64>,
    bound: f64,
}

impl<'a> Assign<'a> {
    /// Looks for what ends before `best` with fewer than `limit` nodes.
    pub(super) fn new(floor: &'a Floor, best: f64, limit: u64) -> Self {
        let jobs = floor.seconds.len();
        Self {
            floor,
            order: (0..jobs).collect(),
            like: vec![false; jobs],
            spot: vec![0; jobs],
            load: Self::start(floor),
            used: 0,
            best,
            chosen: Vec::new(),
            nodes: 0,
            limit,
        }
    }

    /// The cliques' seconds before any job has a spot.
    fn start(floor: &Floor) -> Vec<f64> {
        (0..floor.cliques.len())
            .map(|clique| floor.before(clique))
            .collect()
    }

    pub(super) fn run(mut self) -> Search {
        #[expect(clippy::cast_precision_loss, reason = "a few cliques")]
        let even = 1.0 / self.load.len() as f64;
        let mut prices = Prices {
            of: vec![even; self.load.len()],
            bound: 0.0,
        };
        let all = self.floor.fits.clone();
        self.raise(&mut prices, 0, &all, STEPS.0);
        let shares: Vec<f64> = (0..all.len())
            .map(|job| self.share(job, all[job], &prices.of).0)
            .collect();
        let floor = self.floor;
        let like = |a: usize, b: usize| floor.seconds[a] == floor.seconds[b];
        let class: Vec<usize> = (0..all.len())
            .map(|a| (0..a).find(|&b| like(a, b)).unwrap_or(a))
            .collect();
        self.order.sort_by(|&a, &b| {
            shares[b]
                .total_cmp(&shares[a])
                .then(class[a].cmp(&class[b]))
                .then(a.cmp(&b))
        });
        for at in 1..self.order.len() {
            self.like[at] = like(self.order[at - 1], self.order[at]);
        }
        self.first();
        self.descend(0, &prices);
        Search {
            makespan: self.best,
            places: self.chosen,
            proven: self.nodes < self.limit,
            nodes: self.nodes,
        }
    }

    /// The time of a clique as assigned so far: no schedule of it is shorter.
    fn time(&self, clique: usize) -> f64 {
        self.load[clique] + self.floor.overhead(clique, self.used)
    }

    /// The longest clique of a spot with one more job there.
    fn with(&self, job: usize, spot: usize) -> f64 {
        let used = self.used | 1 << spot;
        let of = self.floor.member[spot]
            .iter()
            .map(|&clique| self.load[clique] + self.floor.overhead(clique, used));
        of.fold(0.0, f64::max) + self.floor.seconds[job][spot]
    }

    fn put(&mut self, job: usize, spot: usize) {
        self.spot[job] = spot;
        for &clique in &self.floor.member[spot] {
            self.load[clique] += self.floor.seconds[job][spot];
        }
    }

    /// The least time x price of a job, and where.
    fn share(&self, job: usize, allowed: Spots, prices: &[f64]) -> (f64, usize) {
        let mut least = (f64::INFINITY, 0);
        for spot in bits(allowed) {
            let price: f64 = self.floor.member[spot].iter().map(|&clique| prices[clique]).sum();
            let share = self.floor.seconds[job][spot] * price;
            if share < least.0 {
                least = (share, spot);
            }
        }
        least
    }

    /// Improves the prices for the jobs from `depth` on, until their bound cuts or the steps are spent.
    fn raise(&self, prices: &mut Prices, depth: usize, allowed: &[Spots], steps: u32) {
        let times: Vec<f64> = (0..self.load.len()).map(|clique| self.time(clique)).collect();
        let mut now = prices.of.clone();
        let mut whole = vec![0.0; times.len()];
        prices.bound = 0.0;
        for step in 0..=steps {
            whole.clone_from(&times);
            let mut bound: f64 = times.iter().zip(&now).map(|(time, price)| time * price).sum();
            for &job in &self.order[depth..] {
                let (share, spot) = self.share(job, allowed[job], &now);
                bound += share;
                for &clique in &self.floor.member[spot] {
                    whole[clique] += self.floor.seconds[job][spot];
                }
            }
            if bound > prices.bound {
                prices.bound = bound;
                prices.of.clone_from(&now);
            }
            if bound >= self.best || bound <= 0.0 {
                return;
            }
            let stride = 2.0 / f64::from(step + 1).sqrt() / bound;
            for (price, time) in now.iter_mut().zip(&whole) {
                *price *= ((time - bound) * stride).clamp(-2.0, 2.0).exp();
            }
            let sum: f64 = now.iter().sum();
            now.iter_mut().for_each(|price| *price /= sum);
        }
    }

    fn descend(&mut self, depth: usize, above: &Prices) {
        self.nodes += 1;
        if self.nodes >= self.limit {
            return;
        }
        let ends = (0..self.load.len())
            .map(|clique| self.time(clique))
            .fold(0.0, f64::max);
        if ends >= self.best - CLOSE {
            return;
        }
        let Some(&job) = self.order.get(depth) else {
            self.schedule(ends);
            return;
        };
        let mut allowed = vec![0; self.spot.len()];
        for &other in &self.order[depth..] {
            let fits =
                bits(self.floor.fits[other]).filter(|&spot| self.with(other, spot) < self.best - CLOSE);
            allowed[other] = fits.fold(0, |set, spot| set | 1 << spot);
            if allowed[other] == 0 {
                return;
            }
        }
        let mut prices = above.clone();
        self.raise(&mut prices, depth, &allowed, STEPS.1);
        if prices.bound >= self.best - CLOSE {
            return;
        }
        // A job like the one before takes no earlier spot.
        let from = if self.like[depth] {
            self.spot[self.order[depth - 1]]
        } else {
            0
        };
        let mut tries: Vec<(f64, usize)> = bits(allowed[job])
            .filter(|&spot| spot >= from && !self.is_image(spot))
            .map(|spot| (self.share(job, 1 << spot, &prices.of).0, spot))
            .collect();
        tries.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, spot) in tries {
            if self.with(job, spot) >= self.best - CLOSE {
                continue;
            }
            let (load, used) = (self.load.clone(), self.used);
            self.put(job, spot);
            self.used |= 1 << spot;
            self.descend(depth + 1, &prices);
            (self.load, self.used) = (load, used);
        }
    }

    /// Whether an exchange of slots that all have no job yet, and do not stand, makes it an earlier spot.
    fn is_image(&self, spot: usize) -> bool {
        let used = self.used | self.floor.standing;
        let mut swaps = self.floor.swaps.iter();
        swaps.any(|swap| {
            let moved = || (0..swap.len()).filter(|&from| swap[from] != from);
            swap[spot] < spot && moved().all(|from| used >> from & 1 == 0)
        })
    }

    /// All jobs have a slot: the best order of each GPU's creates and destroys.
    fn schedule(&mut self, least: f64) {
        let mut ends = least;
        let mut places = vec![Place::default(); self.spot.len()];
        for gpu in 0..self.floor.roots.len() {
            let mut sequence = Sequence::new(
                self.floor,
                gpu,
                &self.spot,
                least,
                self.best,
                self.limit.saturating_sub(self.nodes),
            );
            let end = sequence.run();
            self.nodes += sequence.nodes();
            match end {
                Some(end) => ends = ends.max(end),
                None => return,
            }
            sequence.tell(&mut places);
        }
        if ends < self.best {
            self.best = ends;
            self.chosen = places;
        }
    }

    /// Good assignments to begin with: some at random, made better by one job elsewhere or two exchanged.
    fn first(&mut self) {
        let mut dice = fastrand::Rng::with_seed(1);
        let mut least = f64::INFINITY;
        let jobs = self.spot.len();
        for _ in 0..STARTS {
            let mut chosen: Vec<usize> = (0..jobs)
                .map(|job| {
                    let count = self.floor.fits[job].count_ones() as usize;
                    bits(self.floor.fits[job]).nth(dice.usize(..count)).unwrap_or(0)
                })
                .collect();
            let mut cost = self.cost(&chosen);
            loop {
                let mut better: Option<(f64, Vec<usize>)> = None;
                let mut offer = |cost: f64, other: &[usize]| {
                    if better.as_ref().is_none_or(|(least, _)| cost < *least) {
                        better = Some((cost, other.to_vec()));
                    }
                };
                let mut other = chosen.clone();
                for job in 0..jobs {
                    for spot in bits(self.floor.fits[job]) {
                        other[job] = spot;
                        offer(self.cost(&other), &other);
                    }
                    other[job] = chosen[job];
                    for second in 0..job {
                        other.swap(job, second);
                        offer(self.cost(&other), &other);
                        other.swap(job, second);
                    }
                }
                match better {
                    Some((now, other)) if now < cost - CLOSE => (cost, chosen) = (now, other),
                    _ => break,
                }
            }
            if cost < least && cost.is_finite() {
                least = cost;
                self.load = Self::start(self.floor);
                self.used = 0;
                for (job, &spot) in chosen.iter().enumerate() {
                    self.put(job, spot);
                    self.used |= 1 << spot;
                }
                let ends = (0..self.load.len())
                    .map(|clique| self.time(clique))
                    .fold(0.0, f64::max);
                self.schedule(ends);
            }
        }
        self.load = Self::start(self.floor);
        self.used = 0;
    }

    /// The fullest clique, and a little of all others, so that a change that only helps later counts.
    fn cost(&self, chosen: &[usize]) -> f64 {
        let used = chosen.iter().fold(0, |set: Spots, &spot| set | 1 << spot);
        let (mut most, mut sum) = (0.0_f64, 0.0);
        for (number, &clique) in self.floor.cliques.iter().enumerate() {
            let jobs = chosen
                .iter()
                .enumerate()
                .filter(|(_, spot)| clique >> **spot & 1 == 1);
            let load: f64 = jobs.map(|(job, &spot)| self.floor.seconds[job][spot]).sum();
            let time = self.floor.before(number) + load + self.floor.overhead(number, used);
            most = most.max(time);
            sum += time * time;
        }
        most + 1e-3 * sum.sqrt()
    }
}
