//! Local search over lists.

use super::super::shop::{List, STAY, Shop};

/// A small deterministic source of numbers (xorshift64*, Vigna 2016): the same board gives the same plan.
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `bound`, which is at least 1 and below 2^32.
    fn below(&mut self, bound: usize) -> usize {
        let wide = (self.next() >> 32) * u64::try_from(bound).unwrap_or(1);
        usize::try_from(wide >> 32).unwrap_or(0)
    }

    /// Above 0, below 1.
    fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let bits = ((self.next() >> 11) | 1) as f64;
        bits / 9_007_199_254_740_992.0
    }
}

/// One change of a list, and how to take it back.
#[derive(Clone, Copy, Debug)]
enum Change {
    Way { task: usize, to: u8 },
    Swap(usize, usize),
    Shift { from: usize, to: usize },
}

impl Change {
    /// Makes the change; gives the one that undoes it.
    fn make(self, list: &mut List) -> Self {
        match self {
            Self::Way { task, to } => {
                let old = std::mem::replace(&mut list.way[task], to);
                Self::Way { task, to: old }
            }
            Self::Swap(a, b) => {
                list.order.swap(a, b);
                self
            }
            Self::Shift { from, to } => {
                let task = list.order.remove(from);
                list.order.insert(to, task);
                Self::Shift { from: to, to: from }
            }
        }
    }
}

fn draw(shop: &Shop<'_>, list: &List, dice: &mut Dice) -> Option<Change> {
    let length = list.order.len();
    let (a, b) = (dice.below(length), dice.below(length));
    let kind = if shop.strict { 0 } else { dice.below(7) };
    match kind {
        0..=2 => {
            let task = usize::from(list.order[a]);
            let (ways, old) = (shop.tasks[task].ways.len(), list.way[task]);
            if old == STAY || ways < 2 {
                return None;
            }
            let to = match dice.below(4) {
                0 => usize::from(old).checked_sub(1)?,
                1 => usize::from(old) + 1,
                _ => dice.below(ways),
            };
            let to = u8::try_from(to)
                .ok()
                .filter(|&to| usize::from(to) < ways && to != old)?;
            Some(Change::Way { task, to })
        }
        3..=4 => (a != b).then_some(Change::Shift { from: a, to: b }),
        _ => (a != b).then_some(Change::Swap(a, b)),
    }
}

/// Improves a list by `budget` evaluations at most; gives its cost.
///
/// Annealing: a change that costs more by a part h of the cost is kept with a chance of exp(-h / heat), heat
/// falling to 0 in the course; what remains is the best list seen.
pub(super) fn improve(
    shop: &mut Shop<'_>,
    list: &mut List,
    cost: f64,
    budget: u32,
    heat: f64,
    dice: &mut Dice,
) -> f64 {
    if list.order.is_empty() {
        return cost;
    }
    let mut best = list.clone();
    let (mut least, mut current) = (cost, cost);
    for round in 0..budget {
        let Some(change) = draw(shop, list, dice) else {
            continue;
        };
        let undo = change.make(list);
        let warmth = heat * (1.0 - f64::from(round) / f64::from(budget));
        let limit = current * (1.0 - warmth * dice.unit().ln());
        let cost = shop.cost(list, limit);
        if cost > limit {
            undo.make(list);
            continue;
        }
        current = cost;
        if cost < least {
            least = cost;
            best.clone_from(list);
        }
    }
    *list = best;
    least
}
