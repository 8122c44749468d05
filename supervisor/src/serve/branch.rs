//! Branch and price: whole GPUs and whole slices out of the program's fractional answer.
//!
//! 1. A node is priced ([`Master::price_out`]). If its bound, rounded up to what prices can sum up to, is no
//!    better than the best plan so far, the node is done.
//! 2. The cheapest mixture of known covers is rounded: each service takes the cover it takes most of, and
//!    [`pack`] finds GPUs for the slices.
//! 3. If the mixture is whole, it is the best plan of the node. Else one fractional count of GPUs, or of a
//!    service's slices, is forced up in one child and down in the other; up first.
//!
//! The search ends with a proof, or when its nodes or its time are spent; then the lowest bound of the open nodes
//! is the proof that is left.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, SolveOptions, Variable};

use super::cover::{Limit, Search};
use super::fleet::PRICE_UNIT;
use super::master::{Fractional, Master, Node, Pool, Priced, Prices};

/// A whole answer to a [`Master`].
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) price: i64,
    /// GPUs by column.
    pub(super) gpus: Vec<u32>,
    /// Slices by service and size.
    pub(super) covers: Vec<Vec<i64>>,
}

/// The search: the open node with the lowest bound first, and from there straight down.
pub(super) struct Branching<'a> {
    pub(super) master: &'a Master,
    pub(super) pool: &'a mut Pool,
    pub(super) search: &'a mut Search,
    /// What the price of any plan is a multiple of.
    pub(super) step: i64,
    /// Nobody needs a plan below this price.
    pub(super) goal: i64,
    pub(super) nodes: u32,
    pub(super) late: &'a dyn Fn() -> bool,
    pub(super) best: Option<Found>,
    open: Vec<Open>,
    /// Least bound of a node that could not be split though a better plan may be in it.
    given_up: i64,
}

/// A node that is not priced yet, with what its parent is known to cost at least.
struct Open {
    bound: i64,
    node: Node,
    prices: Prices,
}

/// Covers of a service that are tried in a plan.
const CHEAP: usize = 8;
/// Distance from a whole number that is taken for rounding error.
const WHOLE: f64 = 1e-6;

/// The next multiple of `step` at or above.
pub(super) fn round_up(price: i64, step: i64) -> i64 {
    (price + step - 1).div_euclid(step) * step
}

impl<'a> Branching<'a> {
    pub(super) fn new(
        master: &'a Master,
        pool: &'a mut Pool,
        search: &'a mut Search,
        late: &'a dyn Fn() -> bool,
    ) -> Self {
        Self {
            master,
            pool,
            search,
            step: 1,
            goal: 0,
            nodes: 0,
            late,
            best: None,
            open: Vec::new(),
            given_up: i64::MAX,
        }
    }

    fn known(&self) -> i64 {
        self.best.as_ref().map_or(i64::MAX, |best| best.price)
    }

    /// Searches from a node on. Gives what no plan of it is cheaper than: the price of the best plan if the
    /// search came to its end.
    pub(super) fn explore(&mut self, node: Node, prices: Prices) -> i64 {
        let bound = 0;
        self.open.push(Open { bound, node, prices });
        while let Some(lowest) = (0..self.open.len()).min_by_key(|&index| self.open[index].bound) {
            let mut next = Some(self.open.swap_remove(lowest));
            while let Some(open) = next {
                if self.known() <= self.goal || self.nodes == 0 || (self.late)() {
                    self.open.push(open);
                    return self.least();
                }
                self.nodes -= 1;
                next = self.step_into(open);
            }
            let known = self.known();
            self.open.retain(|open| open.bound < known);
        }
        self.least()
    }

    fn least(&self) -> i64 {
        let open = self.open.iter().map(|open| open.bound).min();
        self.known().min(self.given_up).min(open.unwrap_or(i64::MAX))
    }

    /// Prices a node, and splits it: one part is kept for later, the other is where to go on.
    fn step_into(&mut self, open: Open) -> Option<Open> {
        let Open { node, prices, bound } = open;
        let enough = self.known().saturating_sub(self.step).saturating_add(1);
        let Priced::Bounded { bound: found, prices } =
            self.master
                .price_out(&node, self.pool, &prices, enough, self.search)
        else {
            return None;
        };
        let bound = round_up(found, self.step).max(bound);
        if bound >= self.known() {
            return None;
        }
        let Some(mixture) = self.master.primal(&node, self.pool) else {
            self.given_up = self.given_up.min(bound);
            return None;
        };
        if self.round(&mixture) {
            self.exchange(&prices, bound);
        }
        let Some(branch) = branch(&mixture, &node) else {
            self.offer(mixture.covers.iter().map(|own| whole(own)).collect());
            // A bound that is still below is one that pricing was too short to raise.
            if bound < self.known() {
                self.given_up = self.given_up.min(bound);
            }
            return None;
        };
        let [up, down] = branch.children().map(|limit| {
            let mut node = node.clone();
            match branch.what {
                What::Gpus(column) => node.gpus[column] = limit,
                What::Slices(service, size) => {
                    let limits = &mut node.slices[service];
                    limits.resize(self.master.sizes, Limit::FREE);
                    limits[size] = limit;
                }
            }
            let prices = prices.clone();
            Open { bound, node, prices }
        });
        self.open.push(down);
        Some(up)
    }

    /// Each service takes the cover it takes most of. Says whether that is the best plan so far.
    fn round(&mut self, mixture: &Fractional) -> bool {
        let most = |own: &Vec<(Vec<i64>, f64)>| {
            let taken = own.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            taken.map(|(counts, _)| counts.clone())
        };
        let covers = mixture.covers.iter().map(most).collect::<Option<Vec<_>>>();
        covers.is_some_and(|covers| self.offer(covers))
    }

    /// Gives one service after the other another of its cheap covers, as long as that saves anything.
    fn exchange(&mut self, prices: &Prices, bound: i64) {
        let mut saved = true;
        while saved {
            saved = false;
            for service in 0..self.master.demands.len() {
                for counts in self.pool.cheap(service, &prices.sizes, CHEAP) {
                    let Some(best) = &self.best else { return };
                    if best.price <= bound || (self.late)() {
                        return;
                    }
                    let mut covers = best.covers.clone();
                    covers[service] = counts;
                    saved |= self.offer(covers);
                }
            }
        }
    }

    /// Takes the covers with the fewest GPUs that hold them, if that is a better plan; says so.
    pub(super) fn offer(&mut self, covers: Vec<Vec<i64>>) -> bool {
        let mut need = self.master.base.clone();
        for (total, size) in covers
            .iter()
            .flat_map(|counts| counts.iter().enumerate())
            .map(|(s, c)| (c, s))
        {
            need[size] += total;
        }
        let Some(gpus) = pack(self.master, &need) else {
            return false;
        };
        let price = price_of(self.master, &gpus);
        let better = price < self.known();
        if better {
            self.best = Some(Found { price, gpus, covers });
        }
        better
    }
}

/// A mixture of covers whose counts are whole is a cover itself.
fn whole(own: &[(Vec<i64>, f64)]) -> Vec<i64> {
    let sizes = own.first().map_or(0, |(counts, _)| counts.len());
    let mixed = |size: usize| {
        own.iter()
            .map(|(counts, share)| counts[size] as f64 * share)
            .sum::<f64>()
    };
    #[expect(clippy::cast_possible_truncation, reason = "a count of slices")]
    let counts = (0..sizes).map(|size| mixed(size).round() as i64).collect();
    counts
}

fn price_of(master: &Master, gpus: &[u32]) -> i64 {
    let prices = master.columns.iter().zip(gpus);
    prices
        .map(|(column, &count)| column.price * i64::from(count))
        .sum()
}

#[derive(Clone, Copy, Debug)]
enum What {
    Gpus(usize),
    Slices(usize, usize),
}

#[derive(Clone, Copy, Debug)]
struct Branch {
    what: What,
    limit: Limit,
    value: f64,
}

impl Branch {
    /// Up, then down.
    fn children(self) -> [Limit; 2] {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count above 0"
        )]
        let below = self.value.floor() as u32;
        [
            Limit {
                low: below + 1,
                ..self.limit
            },
            Limit {
                high: below,
                ..self.limit
            },
        ]
    }
}

/// The count farthest from a whole number: of GPUs where one is fractional, else of slices.
fn branch(mixture: &Fractional, node: &Node) -> Option<Branch> {
    let counts = mixture.gpus.iter().zip(&node.gpus).enumerate();
    let gpus = counts.map(|(column, (&value, &limit))| {
        let what = What::Gpus(column);
        Branch { what, limit, value }
    });
    let mixed = mixture.covers.iter().enumerate().filter(|(_, own)| own.len() > 1);
    let slices = mixed.flat_map(|(service, own)| {
        (0..own[0].0.len()).map(move |size| Branch {
            what: What::Slices(service, size),
            limit: node.slices[service].get(size).copied().unwrap_or(Limit::FREE),
            value: own
                .iter()
                .map(|(counts, share)| counts[size] as f64 * share)
                .sum(),
        })
    });
    farthest(gpus).or_else(|| farthest(slices))
}

fn farthest(branches: impl Iterator<Item = Branch>) -> Option<Branch> {
    let distance = |branch: &Branch| (branch.value - branch.value.round()).abs();
    let fractional = branches.filter(|branch| distance(branch) > WHOLE);
    fractional.max_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// GPUs by column that hold so many slices of each size, as cheap as a short search finds. What the continuous
/// answer takes for certain is taken, so that the search is over a few GPUs however many are needed.
pub(super) fn pack(master: &Master, need: &[i64]) -> Option<Vec<u32>> {
    let none = vec![0; master.columns.len()];
    let relaxed = enclose(master, need, &none, false)?;
    let certain: Vec<i64> = relaxed
        .iter()
        .map(|&count| (floor(count) - LEFT_OPEN).max(0))
        .collect();
    let up = || {
        relaxed
            .iter()
            .map(|&count| -floor(-(count - WHOLE)))
            .collect::<Vec<i64>>()
    };
    let whole = match enclose(master, need, &certain, true) {
        Some(more) => certain
            .iter()
            .zip(more)
            .map(|(&sure, more)| sure + floor(more + 0.5))
            .collect(),
        None => up(),
    };
    let held = |size: usize| -> i64 {
        let columns = master.columns.iter().zip(&whole);
        columns.map(|(column, &count)| column.counts[size] * count).sum()
    };
    let in_stock = |kind: usize| {
        let of_kind = master
            .columns
            .iter()
            .zip(&whole)
            .filter(|(column, _)| column.kind == kind);
        let used: i64 = of_kind.map(|(_, count)| count).sum();
        master.stock[kind].is_none_or(|stock| used <= i64::from(stock))
    };
    let legal = (0..need.len()).all(|size| held(size) >= need[size]) && (0..master.stock.len()).all(in_stock);
    if !legal {
        return None;
    }
    whole.iter().map(|&count| u32::try_from(count).ok()).collect()
}

/// GPUs of each layout that the continuous answer takes and the search may still take back.
const LEFT_OPEN: i64 = 2;
/// Nodes of the search for whole GPUs.
const PACK_NODES: u64 = 200;

fn floor(count: f64) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "a count of GPUs")]
    let floor = (count + WHOLE).floor() as i64;
    floor
}

/// The cheapest GPUs, in parts or whole, that hold what is needed beside those already taken.
fn enclose(master: &Master, need: &[i64], taken: &[i64], whole: bool) -> Option<Vec<f64>> {
    let mut program = Program::new(OptimizationDirection::Minimize);
    let most = i32::try_from(need.iter().sum::<i64>()).ok()?;
    let gpus: Vec<Variable> = master
        .columns
        .iter()
        .map(|column| {
            let price = column.price as f64 / PRICE_UNIT as f64;
            if whole {
                program.add_integer_var(price, (0, most))
            } else {
                program.add_var(price, (0.0, f64::INFINITY))
            }
        })
        .collect();
    for (size, &count) in need.iter().enumerate() {
        let columns = || master.columns.iter().map(|column| column.counts[size]);
        let left = count - columns().zip(taken).map(|(held, gpus)| held * gpus).sum::<i64>();
        if left > 0 {
            let row = columns().zip(&gpus).filter(|(held, _)| *held > 0);
            let row: Vec<(Variable, f64)> = row.map(|(held, &gpu)| (gpu, held as f64)).collect();
            program.add_constraint(&row, ComparisonOp::Ge, left as f64);
        }
    }
    for (kind, stock) in master.stock.iter().enumerate() {
        if let Some(stock) = stock {
            let of_kind = || (0..gpus.len()).filter(|&column| master.columns[column].kind == kind);
            let row: Vec<(Variable, f64)> = of_kind().map(|column| (gpus[column], 1.0)).collect();
            let left = i64::from(*stock) - of_kind().map(|column| taken[column]).sum::<i64>();
            program.add_constraint(&row, ComparisonOp::Le, left as f64);
        }
    }
    let mut options = SolveOptions::default();
    options.node_limit = Some(PACK_NODES);
    let outcome = program.solve_with(options).ok()?;
    let solution = outcome.solution()?;
    Some(gpus.iter().map(|&gpu| solution.var_value(gpu)).collect())
}
