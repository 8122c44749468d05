//! What rules of placement achieve, and what a decision costs.
//!
//! `cargo bench --bench placement` prints, in this order:
//!
//! 1. how many of the 114 ordered sequences that one A100 can hold each rule fails;
//! 2. the share of jobs, and of compute slices wanted, that each rule lets in when jobs arrive at random, stay for
//!    exponential times and are lost when nothing holds them: on one GPU exactly, beside the best that any
//!    rule can do, and on 16 GPUs by simulation. The load is the compute slices wanted at a time, as a
//!    share of all. All rules meet the same arrivals and stays; `+-` is the standard error of the difference to
//!    first-fit over the runs. `moving` is no rule of placement: busy slices are moved at will, so a job is
//!    lost only if no arrangement holds it. It shows what is left to gain;
//! 3. the time of one decision, of one over 64 GPUs, and of making the rule.
//!
//! `quick` as an argument takes a tenth of the arrivals.

mod gpus;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::hint::black_box;
use std::time::Instant;

use migm_supervisor::layout::placing::chain::{Acceptance, acceptance, optimum};
use migm_supervisor::layout::placing::rules::{LowestStart, Rated};
use migm_supervisor::layout::placing::{Demand, DemandValue, Learned, PlacementRule, cheapest_of};
use migm_supervisor::layout::{Placement, Profile, ProfileIndex, Rules, StateIndex, Table, base};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const GPUS: usize = 16;
const LOADS: [f64; 4] = [0.5, 0.7, 0.85, 0.95];
const MIXES: [(&str, [f64; 5]); 3] = [
    ("uniform", [0.2; 5]),
    ("without 7g", [0.25, 0.25, 0.25, 0.25, 0.0]),
    ("only 1g/2g/3g", [1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0, 0.0]),
];
const RUNS: u64 = 10;

fn table(kept: Vec<Profile>) -> Table {
    Table::build(kept, Rules::default()).expect("a table")
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "quick");
    let five = table(base(&gpus::a100()));
    let plain = table(gpus::a100_plain());
    let all = table(gpus::a100());
    let bench = Bench {
        driver: Rated::driver(&five, &plain).expect("tables of one GPU"),
        fcr: Rated::reachability(&five),
        mfi: Rated::fragmentation(&five),
        table: five,
    };
    bench.sequences();
    bench.one_gpu();
    bench.many_gpus(if quick { 4_000 } else { 40_000 });
    bench.times(&all);
}

struct Bench {
    table: Table,
    driver: Rated,
    fcr: Rated,
    mfi: Rated,
}

impl Bench {
    fn sequences(&self) {
        let table = &self.table;
        let all = sequences(table);
        let fails = |rule: &dyn PlacementRule| {
            let placed = |sequence: &&Vec<ProfileIndex>| {
                let mut state = Table::EMPTY;
                sequence.iter().all(|&profile| {
                    let create = table.cheapest(rule, state, profile);
                    state = create.map_or(state, |create| create.to);
                    create.is_some()
                })
            };
            all.len() - all.iter().filter(placed).count()
        };
        let ours = DemandValue::solve(table, &Demand::unknown(table).mix(), 1);
        println!("failures over {} ordered sequences on one GPU:", all.len());
        let rules: [&dyn PlacementRule; 5] = [&LowestStart, &self.driver, &self.fcr, &self.mfi, &ours];
        for rule in rules {
            println!("  {:14} {:3}", rule.name(), fails(rule));
        }
        let planned = all
            .iter()
            .filter(|wanted| table.plan_batch(&[Table::EMPTY], wanted).is_none());
        println!("  {:14} {:3}", "whole batch", planned.count());
    }

    fn one_gpu(&self) {
        println!("\none GPU, exact: jobs / compute slices let in, percent");
        println!(
            "  {:14} {:>5} {:>13} {:>13} {:>13} {:>13} {:>13} {:>8}",
            "mix", "load", "lowest-start", "driver", "fcr", "mfi", "ours", "optimum"
        );
        let table = &self.table;
        for (name, mix) in MIXES {
            let ours = DemandValue::solve(table, &mix, 1);
            let rules: [&dyn PlacementRule; 5] = [&LowestStart, &self.driver, &self.fcr, &self.mfi, &ours];
            for load in LOADS {
                print!("  {name:14} {load:5}");
                for rule in rules {
                    print!(" {:>13}", shares(acceptance(table, rule, &mix, load)));
                }
                println!(" {:8.2}", 100.0 * optimum(table, &mix, load));
            }
        }
    }

    fn many_gpus(&self, arrivals: usize) {
        println!("\n{GPUS} GPUs, {RUNS} runs of {arrivals} arrivals: jobs / compute slices let in, percent");
        println!(
            "  {:14} {:>5} {:>13} {:>19} {:>19} {:>19} {:>19} {:>19} {:>13}",
            "mix", "load", "lowest-start", "driver", "fcr", "mfi", "ours", "ours, learning", "moving"
        );
        let table = &self.table;
        let fresh = Learned::new(table, GPUS);
        // The last is 0.85 of the memory slices, which a 3g wastes least of.
        let rows = MIXES.iter().flat_map(|mix| LOADS.map(|load| (mix, load)));
        for ((name, mix), load) in rows.chain([(&MIXES[2], 0.85 * (8.0 / (7.0 / 3.0)) / (7.0 / 2.0))]) {
            print!("  {name:14} {load:5.3}");
            let fleet = |seed: u64| Fleet::new(table, mix, load, arrivals, seed);
            let by_rule = |rule: &dyn PlacementRule| -> Vec<Acceptance> {
                let system = || ByRule {
                    table,
                    rule,
                    gpus: vec![Table::EMPTY; GPUS],
                };
                (0..RUNS).map(|seed| fleet(seed).run(system())).collect()
            };
            let first_fit = by_rule(&LowestStart);
            print!(" {:>13}", shares(mean(&first_fit)));
            let ours = DemandValue::solve(table, mix, GPUS);
            let rules: [&dyn PlacementRule; 4] = [&self.driver, &self.fcr, &self.mfi, &ours];
            let mut columns: Vec<Vec<Acceptance>> = rules.into_iter().map(by_rule).collect();
            let learning = || Learning {
                table,
                rule: fresh.clone(),
                gpus: vec![Table::EMPTY; GPUS],
            };
            columns.push((0..RUNS).map(|seed| fleet(seed).run(learning())).collect());
            for figures in columns {
                print!(
                    " {:>13} +-{:3.2}",
                    shares(mean(&figures)),
                    error(&figures, &first_fit)
                );
            }
            let moving: Vec<Acceptance> = (0..RUNS)
                .map(|seed| fleet(seed).run(Moving { counts: [0; 5] }))
                .collect();
            println!(" {:>13}", shares(mean(&moving)));
        }
    }

    fn times(&self, all: &Table) {
        println!("\ntimes, microseconds:");
        let mix = Demand::unknown(&self.table).mix();
        let ours = DemandValue::solve(&self.table, &mix, GPUS);
        let table = &self.table;
        let kinds: Vec<ProfileIndex> = (0..table.profiles().len()).map(ProfileIndex).collect();
        let every: Vec<StateIndex> = layouts(table);
        let taken: Vec<_> = every.iter().map(|&state| table.taken(state)).collect();
        let decisions = every.len() * kinds.len();
        time("a decision, state known", decisions, || {
            for &state in &every {
                for &profile in &kinds {
                    black_box(table.cheapest(&ours, state, profile));
                }
            }
        });
        time("a decision from a list of slices", decisions, || {
            for slots in &taken {
                for &profile in &kinds {
                    let state = table.state_of(slots).expect("a state");
                    black_box(table.cheapest(&ours, state, profile));
                }
            }
        });
        let fleet: Vec<StateIndex> = every.iter().step_by(4).take(64).copied().collect();
        time("a decision over 64 GPUs", kinds.len(), || {
            for &profile in &kinds {
                black_box(cheapest_of(table, &ours, &fleet, profile));
            }
        });
        let many = DemandValue::solve(all, &Demand::unknown(all).mix(), 1);
        let wide: Vec<StateIndex> = layouts(all).into_iter().step_by(37).take(64).collect();
        let profiles: Vec<ProfileIndex> = (0..all.profiles().len()).map(ProfileIndex).collect();
        time("a decision over 64 GPUs, 2319 states", profiles.len(), || {
            for &profile in &profiles {
                black_box(cheapest_of(all, &many, &wide, profile));
            }
        });
        time("table of 2319 states, reachability included", 1, || {
            black_box(Table::build(all.profiles().to_vec(), Rules::default()).expect("a table"));
        });
        for (what, table, gpus) in [
            ("making the rule, 298 states, 1 GPU", table, 1),
            ("making the rule, 298 states, 16 GPUs", table, GPUS),
            ("making the rule, 2319 states, 1 GPU", all, 1),
            ("making the rule, 2319 states, 16 GPUs", all, GPUS),
        ] {
            let mix = Demand::unknown(table).mix();
            time(what, 1, || {
                black_box(DemandValue::solve(table, &mix, gpus));
            });
        }
    }
}

fn shares(figures: Acceptance) -> String {
    format!("{:.2}/{:.2}", 100.0 * figures.jobs, 100.0 * figures.slices)
}

#[expect(clippy::cast_precision_loss, reason = "a few runs")]
fn mean(runs: &[Acceptance]) -> Acceptance {
    let count = runs.len() as f64;
    Acceptance {
        jobs: runs.iter().map(|run| run.jobs).sum::<f64>() / count,
        slices: runs.iter().map(|run| run.slices).sum::<f64>() / count,
    }
}

/// Standard error of the mean difference of jobs let in, in percent.
#[expect(clippy::cast_precision_loss, reason = "a few runs")]
fn error(runs: &[Acceptance], against: &[Acceptance]) -> f64 {
    let apart: Vec<f64> = runs.iter().zip(against).map(|(a, b)| a.jobs - b.jobs).collect();
    let count = apart.len() as f64;
    let middle = apart.iter().sum::<f64>() / count;
    let squares: f64 = apart.iter().map(|d| (d - middle).powi(2)).sum();
    100.0 * (squares / (count - 1.0) / count).sqrt()
}

/// Median over 50 runs of the time for one of `each` things that a run does.
#[expect(clippy::cast_precision_loss, reason = "a few thousand")]
fn time(what: &str, each: usize, mut run: impl FnMut()) {
    let mut seconds: Vec<f64> = (0..50)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let micro = |index: usize| seconds[index] * 1e6 / each as f64;
    println!("  {what:46} median {:10.3}   worst {:10.3}", micro(25), micro(49));
}

/// Every state, found by creates from the empty one.
fn layouts(table: &Table) -> Vec<StateIndex> {
    let mut found = BTreeSet::from([Table::EMPTY]);
    let mut open = vec![Table::EMPTY];
    while let Some(state) = open.pop() {
        for (profile, place, _) in table.placements(state) {
            let mut slots = table.taken(state);
            slots.push((profile, place));
            let next = table.state_of(&slots).expect("a state");
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found.into_iter().collect()
}

/// Every order of each set of slices that one GPU can hold.
fn sequences(table: &Table) -> Vec<Vec<ProfileIndex>> {
    let kinds = |state: &StateIndex| {
        let mut kinds: Vec<ProfileIndex> = table.taken(*state).iter().map(|slot| slot.0).collect();
        kinds.sort_unstable();
        kinds
    };
    let sets: BTreeSet<Vec<ProfileIndex>> = layouts(table).iter().map(kinds).collect();
    let mut all = Vec::new();
    let mut open: Vec<(Vec<ProfileIndex>, Vec<ProfileIndex>)> =
        sets.into_iter().map(|set| (Vec::new(), set)).collect();
    while let Some((so_far, left)) = open.pop() {
        if left.is_empty() {
            all.push(so_far);
            continue;
        }
        for (index, first) in left.iter().enumerate() {
            if !left[..index].contains(first) {
                let mut rest = left.clone();
                let mut longer = so_far.clone();
                longer.push(rest.remove(index));
                open.push((longer, rest));
            }
        }
    }
    all
}

/// A loss system of several GPUs of one kind. Arrivals, profiles and stays come from streams of their own, so they are
/// the same whatever a rule does.
struct Fleet<'a> {
    table: &'a Table,
    mix: &'a [f64],
    /// Arrivals during a mean stay.
    rate: f64,
    arrivals: usize,
    jobs: Xoshiro256PlusPlus,
}

/// What jobs come to.
trait System {
    /// What a job holds.
    type Held;
    fn admit(&mut self, profile: ProfileIndex) -> Option<Self::Held>;
    fn leave(&mut self, held: Self::Held);
}

/// GPU, kind and place.
type Seat = (usize, ProfileIndex, Placement);

fn leave(table: &Table, gpus: &mut [StateIndex], (gpu, profile, place): Seat) {
    gpus[gpu] = table.less(gpus[gpu], profile, place).expect("it stands there");
}

struct ByRule<'a> {
    table: &'a Table,
    rule: &'a dyn PlacementRule,
    gpus: Vec<StateIndex>,
}

impl System for ByRule<'_> {
    type Held = Seat;

    fn admit(&mut self, profile: ProfileIndex) -> Option<Seat> {
        let (gpu, create) = cheapest_of(self.table, self.rule, &self.gpus, profile)?;
        self.gpus[gpu] = create.to;
        Some((gpu, profile, create.placement))
    }

    fn leave(&mut self, held: Seat) {
        leave(self.table, &mut self.gpus, held);
    }
}

struct Learning<'a> {
    table: &'a Table,
    rule: Learned,
    gpus: Vec<StateIndex>,
}

impl System for Learning<'_> {
    type Held = Seat;

    fn admit(&mut self, profile: ProfileIndex) -> Option<Seat> {
        self.rule.seen(self.table, profile);
        let (gpu, create) = cheapest_of(self.table, &self.rule, &self.gpus, profile)?;
        self.gpus[gpu] = create.to;
        Some((gpu, profile, create.placement))
    }

    fn leave(&mut self, held: Seat) {
        leave(self.table, &mut self.gpus, held);
    }
}

/// Any arrangement of 1g 2g 3g 4g 7g on the A100's grid, by how many there are of each.
struct Moving {
    counts: [usize; 5],
}

impl System for Moving {
    type Held = ProfileIndex;

    fn admit(&mut self, profile: ProfileIndex) -> Option<ProfileIndex> {
        self.counts[profile.0] += 1;
        if self.fits() {
            return Some(profile);
        }
        self.counts[profile.0] -= 1;
        None
    }

    fn leave(&mut self, held: ProfileIndex) {
        self.counts[held.0] -= 1;
    }
}

impl Moving {
    /// A 7g takes a GPU, a 4g the lower half; a 3g goes beside a 4g, beside another 3g, or into a GPU of its own.
    /// Beside a 4g are left one place for a 2g and 3 compute slices, beside one 3g two and 4, on an
    /// empty GPU three and 7, beside two 3g none.
    fn fits(&self) -> bool {
        let [ones, twos, threes, fours, sevens] = self.counts;
        let Some(free) = GPUS.checked_sub(sevens + fours) else {
            return false;
        };
        (0..=threes.min(fours)).any(|beside| {
            let rest = threes - beside;
            (0..=rest / 2).any(|pairs| {
                let single = rest - 2 * pairs;
                let Some(empty) = free.checked_sub(pairs + single) else {
                    return false;
                };
                let lone = fours - beside;
                twos <= lone + 2 * single + 3 * empty && ones + 2 * twos <= 3 * lone + 4 * single + 7 * empty
            })
        })
    }
}

impl<'a> Fleet<'a> {
    #[expect(clippy::cast_precision_loss, reason = "a few GPUs")]
    fn new(table: &'a Table, mix: &'a [f64], load: f64, arrivals: usize, seed: u64) -> Self {
        let compute = |p: &Profile| f64::from(p.compute);
        let most = table.profiles().iter().map(compute).fold(0.0, f64::max);
        let wanted: f64 = table
            .profiles()
            .iter()
            .zip(mix)
            .map(|(p, share)| compute(p) * share)
            .sum();
        Self {
            table,
            mix,
            rate: load * most * GPUS as f64 / wanted,
            arrivals,
            jobs: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    fn run<S: System>(mut self, mut system: S) -> Acceptance {
        let mut held: Vec<Option<S::Held>> = Vec::new();
        // By time, in its bits, which order as positive times do.
        let mut ends: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
        let mut now = 0.0;
        let (mut jobs, mut slices) = ((0.0, 0.0), (0.0, 0.0));
        for arrival in 0..self.arrivals {
            now += self.exponential() / self.rate;
            let profile = self.profile();
            let end = now + self.exponential();
            while let Some(&Reverse((at, job))) = ends.peek() {
                if f64::from_bits(at) > now {
                    break;
                }
                ends.pop();
                held[job].take().into_iter().for_each(|one| system.leave(one));
            }
            let admitted = system.admit(profile);
            let taken = f64::from(u8::from(admitted.is_some()));
            if admitted.is_some() {
                ends.push(Reverse((end.to_bits(), arrival)));
            }
            held.push(admitted);
            // The first tenth fills the GPUs.
            if arrival >= self.arrivals / 10 {
                let compute = f64::from(self.table.profile(profile).compute);
                jobs = (jobs.0 + taken, jobs.1 + 1.0);
                slices = (slices.0 + taken * compute, slices.1 + compute);
            }
        }
        Acceptance {
            jobs: jobs.0 / jobs.1,
            slices: slices.0 / slices.1,
        }
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.jobs.random::<f64>()).ln()
    }

    fn profile(&mut self) -> ProfileIndex {
        let mut left = self.jobs.random::<f64>();
        let mut last = 0;
        for (index, &share) in self.mix.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            last = index;
            if left < share {
                break;
            }
            left -= share;
        }
        ProfileIndex(last)
    }
}
