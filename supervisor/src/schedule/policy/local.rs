//! Local search over lists.

use super::shop::{List, STAY, Shop};

/// A small deterministic source of numbers (xorshift64*, Vigna 2016): the same plan comes from the same board.
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

    /// Below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Between 0 and 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Improves a list by `budget` evaluations; gives its cost. Annealing: a change that costs more is kept with a
/// chance that falls with the cost and with the time; the best list seen is what remains.
pub(super) fn improve(shop: &mut Shop<'_>, list: &mut List, cost: f64, budget: u32, heat: f64, movable: &[u16], dice: &mut Dice) -> f64 {
    let mut best = list.clone();
    let mut least = cost;
    let mut current = cost;
    if list.order.is_empty() {
        return cost;
    }
    let mut now = list.clone();
    for round in 0..budget {
        let mut next_order: Option<(usize, usize)> = None;
        let mut swap: Option<(usize, usize)> = None;
        let mut option: Option<(usize, u8)> = None;
        let length = now.order.len();
        match dice.below(8) {
            0..=2 => {
                let task = usize::from(now.order[dice.below(length)]);
                if now.option[task] == STAY { continue; }
                let options = shop.tasks[task].options.len();
                if options < 2 { continue; }
                let old = usize::from(now.option[task]);
                let new = if dice.below(2) == 0 {
                    let step = if dice.below(2) == 0 { old + 1 } else { old.wrapping_sub(1) };
                    if step >= options { continue; }
                    step
                } else { dice.below(options) };
                if new == old { continue; }
                option = Some((task, new as u8));
            }
            3..=4 => {
                if shop.strict { continue; }
                next_order = Some((dice.below(length), dice.below(length)));
            }
            5..=6 => {
                if shop.strict { continue; }
                swap = Some((dice.below(length), dice.below(length)));
            }
            _ => {
                if movable.is_empty() { continue; }
                let task = usize::from(movable[dice.below(movable.len())]);
                if now.option[task] == STAY {
                    option = Some((task, dice.below(shop.tasks[task].options.len()) as u8));
                } else {
                    option = Some((task, STAY));
                }
            }
        }
        let mut undo_option = None;
        if let Some((task, new)) = option {
            undo_option = Some((task, now.option[task]));
            now.option[task] = new;
        }
        if let Some((a, b)) = swap {
            if a == b { continue; }
            now.order.swap(a, b);
        }
        if let Some((from, to)) = next_order {
            if from == to { continue; }
            let task = now.order.remove(from);
            now.order.insert(to, task);
        }
        let warmth = heat * (1.0 - f64::from(round) / f64::from(budget));
        let limit = current * (1.0 - warmth * dice.unit().max(1e-9).ln());
        let cost = shop.cost(&now, limit);
        if cost <= limit {
            current = cost;
            if cost < least {
                least = cost;
                best.clone_from(&now);
            }
        } else {
            if let Some((task, old)) = undo_option { now.option[task] = old; }
            if let Some((a, b)) = swap { now.order.swap(a, b); }
            if let Some((from, to)) = next_order {
                let task = now.order.remove(to);
                now.order.insert(from, task);
            }
        }
    }
    *list = best;
    least
}
