//! The program behind a plan, split by service: GPUs of each layout above, covers of each service below.
//!
//! Dantzig and Wolfe's decomposition. Prices of the sizes join the two: at given prices each service takes its
//! cheapest [`Cover`](super::cover::Cover) on its own, and the sum of those costs is below the price of any
//! plan, if no layout is worth more than its GPU costs. [`Master::evaluate`] forms that sum in whole numbers,
//! so the bound holds whatever rounding led to the prices. [`Master::price_out`] looks for the prices with the
//! highest sum: cutting planes over one variable per size and one per group of services, with each trial drawn
//! half-way to the best prices so far. This bound is above that of the plain linear program, because each
//! service covers its demand with whole slices.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};

use super::cover::{Counts, Demand, Limit, Search};
use super::fleet::PRICE_UNIT;

/// A layout as the program sees it.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) kind: usize,
    pub(super) price: i64,
    pub(super) counts: Vec<i64>,
}

/// The program: services, slices that are needed whatever these do, layouts.
#[derive(Clone, Debug)]
pub(super) struct Master {
    pub(super) sizes: usize,
    pub(super) columns: Vec<Column>,
    /// Most GPUs of each kind.
    pub(super) stock: Vec<Option<u32>>,
    pub(super) demands: Vec<Demand>,
    /// Slices of each size that other services have taken.
    pub(super) base: Vec<i64>,
}

/// What branching has fixed.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// GPUs by column.
    pub(super) gpus: Vec<Limit>,
    /// Slices by service and size; an empty list where a service is free.
    pub(super) slices: Vec<Vec<Limit>>,
}

/// Prices of the sizes, and rents of the kinds that are limited: what one GPU more of it would save.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    pub(super) sizes: Vec<i64>,
    pub(super) rents: Vec<i64>,
}

/// How pricing ended.
#[derive(Clone, Debug)]
pub(super) enum Priced {
    /// No plan keeps the node's limits.
    Infeasible,
    /// The bound reached what was asked for, or no plan of the node is below it.
    Bounded {
        /// Below the price of every plan of the node.
        bound: i64,
        prices: Prices,
    },
}

/// Covers known so far, by group; a group with one service has its covers, one with several their sums.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    /// First service of each group, and the end.
    starts: Vec<usize>,
    cuts: Vec<Vec<Cut>>,
    rounds: u32,
}

#[derive(Clone, Debug)]
struct Cut {
    counts: Vec<i64>,
    /// Round in which it last mattered.
    used: u32,
}

/// A solution of the linear program over the pool.
#[derive(Clone, Debug)]
pub(super) struct Fractional {
    /// GPUs by column.
    pub(super) gpus: Vec<f64>,
    /// Covers by service, with their shares, which sum up to 1.
    pub(super) covers: Vec<Vec<(Vec<i64>, f64)>>,
}

/// Cuts that did not matter for so many rounds are dropped once groups are sums of services.
const STALE: u32 = 8;
/// Rounds after which the best bound so far must do.
const MOST_ROUNDS: u32 = 300;
/// Most that a slice or a rent may cost, in the price of the dearest GPU.
const DEAR: f64 = 100.0;
const EPSILON: f64 = 1e-9;

fn units(price: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "prices are below 10^12 units")]
    let units = (price * PRICE_UNIT as f64).floor() as i64;
    units.max(0)
}

fn dot(counts: &[i64], prices: &[i64]) -> i64 {
    counts
        .iter()
        .zip(prices)
        .map(|(count, price)| count * price)
        .sum()
}

fn worth(counts: &[i64], prices: &[f64]) -> f64 {
    counts
        .iter()
        .zip(prices)
        .map(|(&count, price)| count as f64 * price)
        .sum()
}

impl Node {
    /// Nothing fixed.
    pub(super) fn root(master: &Master) -> Self {
        Self {
            gpus: vec![Limit::FREE; master.columns.len()],
            slices: vec![Vec::new(); master.demands.len()],
        }
    }

    fn admits(&self, service: usize, counts: &[i64]) -> bool {
        self.slices[service]
            .iter()
            .zip(counts)
            .all(|(limit, &count)| u32::try_from(count).is_ok_and(|count| limit.admits(count)))
    }
}

impl Pool {
    /// At most so many groups, of neighbouring services.
    pub(super) fn new(services: usize, groups: usize) -> Self {
        let groups = groups.min(services).max(1);
        Self {
            starts: (0..=groups).map(|group| group * services / groups).collect(),
            cuts: vec![Vec::new(); groups],
            rounds: 0,
        }
    }

    fn groups(&self) -> usize {
        self.cuts.len()
    }

    fn is_single(&self) -> bool {
        self.starts.windows(2).all(|pair| pair[1] - pair[0] == 1)
    }

    /// Adds a cover of a service, in a pool with a group for each.
    pub(super) fn add(&mut self, service: usize, counts: Vec<i64>) -> bool {
        let known = self.cuts[service].iter().any(|cut| cut.counts == counts);
        if !known {
            let used = self.rounds;
            self.cuts[service].push(Cut { counts, used });
        }
        !known
    }

    /// Covers of a service, cheapest at these prices first, up to so many.
    pub(super) fn cheap(&self, service: usize, prices: &[i64], most: usize) -> Vec<Vec<i64>> {
        let mut known: Vec<&Vec<i64>> = self.cuts[service].iter().map(|cut| &cut.counts).collect();
        known.sort_by_key(|counts| dot(counts, prices));
        known.into_iter().take(most).cloned().collect()
    }

    /// Adds the covers of one evaluation; says whether any is new.
    fn learn(&mut self, covers: &[Counts], sizes: usize) -> bool {
        let mut fresh = false;
        for group in 0..self.groups() {
            let mut sum = vec![0; sizes];
            for counts in &covers[self.starts[group]..self.starts[group + 1]] {
                for (total, &count) in sum.iter_mut().zip(counts) {
                    *total += i64::from(count);
                }
            }
            fresh |= self.add(group, sum);
        }
        fresh
    }

    fn forget_stale(&mut self) {
        if !self.is_single() {
            let now = self.rounds;
            for cuts in &mut self.cuts {
                cuts.retain(|cut| cut.used + STALE >= now);
            }
        }
    }
}

impl Master {
    /// Prices by compute alone, to start from: the smallest share of a GPU that a size can be.
    pub(super) fn first_prices(&self) -> Prices {
        let sizes = (0..self.sizes).map(|size| {
            let holding = self.columns.iter().filter(|column| column.counts[size] > 0);
            let shares = holding.map(|column| column.price / column.counts.iter().sum::<i64>().max(1));
            shares.min().unwrap_or(0)
        });
        Prices {
            sizes: sizes.collect(),
            rents: vec![0; self.stock.len()],
        }
    }

    /// A bound on the price of every plan of the node, and the covers that attain it. Prices at which an
    /// unlimited layout is worth more than its GPU are scaled down first. `None` where a service has no cover.
    pub(super) fn evaluate(
        &self,
        node: &Node,
        prices: &mut Prices,
        search: &mut Search,
    ) -> Option<(i64, Vec<Counts>)> {
        let mut scale = 1.0_f64;
        for (column, limit) in self.columns.iter().zip(&node.gpus) {
            if limit.high == u32::MAX {
                let (cost, worth) = (
                    column.price + prices.rents[column.kind],
                    dot(&column.counts, &prices.sizes),
                );
                if worth > cost {
                    scale = scale.min(cost as f64 / worth as f64 * (1.0 - EPSILON));
                }
            }
        }
        if scale < 1.0 {
            for price in &mut prices.sizes {
                #[expect(clippy::cast_possible_truncation, reason = "smaller than it was")]
                let scaled = (*price as f64 * scale).floor() as i64;
                *price = scaled;
            }
        }
        let mut bound = dot(&self.base, &prices.sizes);
        for (rent, stock) in prices.rents.iter().zip(&self.stock) {
            bound -= rent * i64::from(stock.unwrap_or(0));
        }
        for (column, limit) in self.columns.iter().zip(&node.gpus) {
            let reduced = column.price + prices.rents[column.kind] - dot(&column.counts, &prices.sizes);
            // An unlimited layout has no negative reduced price any more.
            let gpus = if reduced < 0 { limit.high } else { limit.low };
            bound += reduced * i64::from(gpus);
        }
        let mut covers = Vec::with_capacity(self.demands.len());
        for (demand, limits) in self.demands.iter().zip(&node.slices) {
            let cover = search.cheapest(demand, &prices.sizes, limits)?;
            bound += cover.bound;
            covers.push(cover.counts);
        }
        Some((bound, covers))
    }

    /// Looks for the highest bound of the node. Ends early once the bound is at `enough`.
    pub(super) fn price_out(
        &self,
        node: &Node,
        pool: &mut Pool,
        start: &Prices,
        enough: i64,
        search: &mut Search,
    ) -> Priced {
        let mut best = start.clone();
        let Some((mut bound, covers)) = self.evaluate(node, &mut best, search) else {
            return Priced::Infeasible;
        };
        pool.learn(&covers, self.sizes);
        for _ in 0..MOST_ROUNDS {
            pool.rounds += 1;
            if bound >= enough {
                break;
            }
            let Some((highest, trial)) = self.dual(node, pool) else {
                break;
            };
            let close = (bound as f64).abs() * 1e-9 + 64.0;
            if highest * PRICE_UNIT as f64 - bound as f64 <= close {
                break;
            }
            let half = |a: i64, b: i64| a + (b - a) / 2;
            let mut between = Prices {
                sizes: best
                    .sizes
                    .iter()
                    .zip(&trial.sizes)
                    .map(|(&a, &b)| half(a, b))
                    .collect(),
                rents: best
                    .rents
                    .iter()
                    .zip(&trial.rents)
                    .map(|(&a, &b)| half(a, b))
                    .collect(),
            };
            let mut fresh = false;
            let mut trial = trial;
            let mut better = false;
            for prices in [&mut between, &mut trial] {
                let Some((value, covers)) = self.evaluate(node, prices, search) else {
                    return Priced::Infeasible;
                };
                fresh |= pool.learn(&covers, self.sizes);
                if value > bound {
                    (bound, best, better) = (value, prices.clone(), true);
                }
                if better && fresh {
                    break;
                }
            }
            if !fresh && !better {
                break;
            }
            pool.forget_stale();
        }
        Priced::Bounded { bound, prices: best }
    }

    /// The prices with the highest sum over the covers known so far, and that sum.
    fn dual(&self, node: &Node, pool: &mut Pool) -> Option<(f64, Prices)> {
        let mut program = Program::new(OptimizationDirection::Maximize);
        let free = (f64::NEG_INFINITY, f64::INFINITY);
        let money = |units: i64| units as f64 / PRICE_UNIT as f64;
        // Where the covers known so far need more GPUs than there are, prices rise until others are found.
        let dearest = self.columns.iter().map(|column| column.price).max();
        let positive = (0.0, money(dearest.unwrap_or(0)) * DEAR);
        let prices: Vec<Variable> = self
            .base
            .iter()
            .map(|&base| program.add_var(base as f64, positive))
            .collect();
        let rents: Vec<Option<Variable>> = self
            .stock
            .iter()
            .map(|stock| stock.map(|count| program.add_var(-f64::from(count), positive)))
            .collect();
        for (column, limit) in self.columns.iter().zip(&node.gpus) {
            // Reduced price = price + rent - worth; `least` * reduced is what it adds to the bound.
            let mut row: Vec<(Variable, f64)> = column
                .counts
                .iter()
                .zip(&prices)
                .filter(|(count, _)| **count > 0)
                .map(|(&count, &price)| (price, count as f64))
                .collect();
            if let Some(rent) = rents[column.kind] {
                row.push((rent, -1.0));
            }
            let price = money(column.price);
            if limit.high == u32::MAX && limit.low == 0 {
                program.add_constraint(&row, ComparisonOp::Le, price);
                continue;
            }
            if limit.high == u32::MAX {
                program.add_constraint(&row, ComparisonOp::Le, price);
            }
            let share = program.add_var(1.0, free);
            for end in [limit.low, limit.high] {
                if end < u32::MAX {
                    let end = f64::from(end);
                    let mut row: Vec<(Variable, f64)> = row.iter().map(|&(v, c)| (v, c * end)).collect();
                    row.push((share, 1.0));
                    program.add_constraint(&row, ComparisonOp::Le, price * end);
                }
            }
        }
        let mut tops = Vec::with_capacity(pool.groups());
        for (group, cuts) in pool.cuts.iter().enumerate() {
            let top = program.add_var(1.0, free);
            tops.push(top);
            for cut in cuts
                .iter()
                .filter(|cut| !pool_is_limited(node, pool, group) || node.admits(group, &cut.counts))
            {
                let mut row: Vec<(Variable, f64)> = cut
                    .counts
                    .iter()
                    .zip(&prices)
                    .filter(|(count, _)| **count > 0)
                    .map(|(&count, &price)| (price, -(count as f64)))
                    .collect();
                row.push((top, 1.0));
                program.add_constraint(&row, ComparisonOp::Le, 0.0);
            }
        }
        let outcome = program.solve().ok()?;
        let solution = outcome.solution()?;
        let value = |variable: Variable| solution.var_value(variable);
        let at: Vec<f64> = prices.iter().map(|&price| value(price)).collect();
        let now = pool.rounds;
        for (cuts, &top) in pool.cuts.iter_mut().zip(&tops) {
            for cut in cuts {
                if worth(&cut.counts, &at) <= value(top) + 1e-6 {
                    cut.used = now;
                }
            }
        }
        let found = Prices {
            sizes: at.iter().map(|&price| units(price)).collect(),
            rents: rents
                .iter()
                .map(|rent| rent.map_or(0, |rent| units(value(rent))))
                .collect(),
        };
        Some((solution.objective(), found))
    }

    /// The cheapest mixture of known covers, in a pool with a group for each service.
    pub(super) fn primal(&self, node: &Node, pool: &Pool) -> Option<Fractional> {
        let mut program = Program::new(OptimizationDirection::Minimize);
        let gpus: Vec<Variable> = self
            .columns
            .iter()
            .zip(&node.gpus)
            .map(|(column, limit)| {
                let high = if limit.high == u32::MAX {
                    f64::INFINITY
                } else {
                    f64::from(limit.high)
                };
                program.add_var(
                    column.price as f64 / PRICE_UNIT as f64,
                    (f64::from(limit.low), high),
                )
            })
            .collect();
        let mut balance: Vec<Vec<(Variable, f64)>> = (0..self.sizes)
            .map(|size| {
                let holding = self
                    .columns
                    .iter()
                    .zip(&gpus)
                    .filter(|(column, _)| column.counts[size] > 0);
                holding
                    .map(|(column, &gpu)| (gpu, column.counts[size] as f64))
                    .collect()
            })
            .collect();
        let mut covers: Vec<Vec<(&Vec<i64>, Variable)>> = Vec::with_capacity(pool.groups());
        for (service, cuts) in pool.cuts.iter().enumerate() {
            let mut own = Vec::new();
            for cut in cuts.iter().filter(|cut| node.admits(service, &cut.counts)) {
                let share = program.add_var(0.0, (0.0, f64::INFINITY));
                own.push((&cut.counts, share));
                for (row, &count) in balance.iter_mut().zip(&cut.counts) {
                    if count > 0 {
                        row.push((share, -(count as f64)));
                    }
                }
            }
            let one: Vec<(Variable, f64)> = own.iter().map(|&(_, share)| (share, 1.0)).collect();
            program.add_constraint(&one, ComparisonOp::Eq, 1.0);
            covers.push(own);
        }
        for (row, &base) in balance.iter().zip(&self.base) {
            program.add_constraint(row, ComparisonOp::Ge, base as f64);
        }
        for (kind, stock) in self.stock.iter().enumerate() {
            if let Some(stock) = stock {
                let all = self
                    .columns
                    .iter()
                    .zip(&gpus)
                    .filter(|(column, _)| column.kind == kind);
                let row: Vec<(Variable, f64)> = all.map(|(_, &gpu)| (gpu, 1.0)).collect();
                program.add_constraint(&row, ComparisonOp::Le, f64::from(*stock));
            }
        }
        let outcome = program.solve().ok()?;
        let solution = outcome.solution()?;
        let share = |&(counts, share): &(&Vec<i64>, Variable)| (counts.clone(), solution.var_value(share));
        Some(Fractional {
            gpus: gpus.iter().map(|&gpu| solution.var_value(gpu)).collect(),
            covers: covers
                .iter()
                .map(|own| {
                    own.iter()
                        .map(share)
                        .filter(|(_, share)| *share > EPSILON)
                        .collect()
                })
                .collect(),
        })
    }
}

/// Whether covers of a group have to be checked against the node: only single services are branched on.
fn pool_is_limited(node: &Node, pool: &Pool, group: usize) -> bool {
    pool.is_single() && !node.slices[group].is_empty()
}
