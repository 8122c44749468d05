//! The cheapest slices that cover one service, at given prices of the sizes.
//!
//! Sizes are tried by price per rate, best first and as many of each as the rest needs, then fewer. What the
//! rest would cost at the next size's price per rate bounds each branch, so that the search ends at once
//! where one size is clearly best. Prices, rates and costs are whole numbers; the bound on a branch is rounded
//! down by more than the error of its one product, so nothing is cut off that is cheaper.

/// Nodes after which the search settles for the best found and for a lower bound on all.
const MOST_NODES: u32 = 4_000;
/// Far more than the relative error of a product of two floats.
const DOWN: f64 = 1.0 - 1e-12;

/// How many slices of each size.
pub(super) type Counts = Vec<u32>;

/// One service as the search sees it.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// What must be served, millionths of requests per second.
    pub(super) required: i64,
    /// What one slice of each size serves; 0 where the service cannot run.
    pub(super) rates: Vec<i64>,
}

/// Fewest and most slices of one size, set by branching.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Limit {
    pub(super) low: u32,
    pub(super) high: u32,
}

impl Limit {
    pub(super) const FREE: Self = Self {
        low: 0,
        high: u32::MAX,
    };

    pub(super) fn admits(self, count: u32) -> bool {
        (self.low..=self.high).contains(&count)
    }
}

/// A cover, and what no cover is cheaper than.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Cover {
    pub(super) counts: Counts,
    /// Equal to the cost of `counts` unless the search was cut short.
    pub(super) bound: i64,
}

#[derive(Clone, Copy, Debug)]
struct Item {
    size: usize,
    rate: i64,
    price: i64,
    /// Price per rate, rounded down.
    ratio: f64,
    high: u32,
}

/// Room for a search, kept between services.
#[derive(Debug, Default)]
pub(super) struct Search {
    items: Vec<Item>,
    current: Vec<u32>,
    best: Vec<u32>,
    best_cost: i64,
    /// Least bound of what was not looked into.
    open: i64,
    nodes: u32,
}

impl Search {
    /// `limits` is empty where nothing is limited. `None` if no cover keeps the limits.
    pub(super) fn cheapest(&mut self, demand: &Demand, prices: &[i64], limits: &[Limit]) -> Option<Cover> {
        let limit = |size: usize| limits.get(size).copied().unwrap_or(Limit::FREE);
        let mut required = demand.required;
        let mut cost = 0;
        self.items.clear();
        for (size, (&rate, &price)) in demand.rates.iter().zip(prices).enumerate() {
            let Limit { low, high } = limit(size);
            required -= i64::from(low) * rate;
            cost += i64::from(low) * price;
            if rate > 0 && high > low {
                self.items.push(Item {
                    size,
                    rate,
                    price,
                    ratio: price as f64 / rate as f64 * DOWN,
                    high: high - low,
                });
            }
        }
        self.drop_dominated();
        self.items
            .sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then(b.rate.cmp(&a.rate)));
        self.current.clear();
        self.current.resize(self.items.len(), 0);
        self.best.clone_from(&self.current);
        self.best_cost = i64::MAX;
        self.open = i64::MAX;
        self.nodes = 0;
        self.descend(0, required, cost);
        if self.best_cost == i64::MAX {
            return None;
        }
        let mut counts: Counts = (0..prices.len()).map(|size| limit(size).low).collect();
        for (item, count) in self.items.iter().zip(&self.best) {
            counts[item.size] += count;
        }
        Some(Cover {
            counts,
            bound: self.best_cost.min(self.open),
        })
    }

    /// A size is of no use beside one that is no dearer, serves no less and is not limited.
    fn drop_dominated(&mut self) {
        let mut at = 0;
        while at < self.items.len() {
            let item = self.items[at];
            let beaten = self.items.iter().enumerate().any(|(index, other)| {
                let same = other.price == item.price && other.rate == item.rate;
                index != at
                    && other.high > u32::MAX / 2
                    && other.price <= item.price
                    && other.rate >= item.rate
                    && (!same || index < at)
            });
            if beaten {
                self.items.remove(at);
            } else {
                at += 1;
            }
        }
    }

    fn descend(&mut self, level: usize, remaining: i64, cost: i64) {
        if remaining <= 0 {
            if cost < self.best_cost {
                self.best_cost = cost;
                self.best[..level].copy_from_slice(&self.current[..level]);
                self.best[level..].fill(0);
            }
            return;
        }
        let Some(&item) = self.items.get(level) else {
            return;
        };
        self.nodes += 1;
        if self.nodes > MOST_NODES {
            self.open = self.open.min(bound(cost, remaining, item.ratio));
            return;
        }
        let enough = u32::try_from((remaining - 1) / item.rate + 1).unwrap_or(u32::MAX);
        let next = self.items.get(level + 1).map(|item| item.ratio);
        let mut count = enough.min(item.high);
        loop {
            let cost = cost + i64::from(count) * item.price;
            let rest = remaining - i64::from(count) * item.rate;
            if rest <= 0 {
                self.current[level] = count;
                self.descend(level + 1, rest, cost);
            } else {
                // Fewer of this size, and all the others cost no less per rate: the bound only rises.
                let Some(ratio) = next else { return };
                if bound(cost, rest, ratio) >= self.best_cost {
                    return;
                }
                self.current[level] = count;
                self.descend(level + 1, rest, cost);
            }
            if count == 0 {
                return;
            }
            count -= 1;
        }
    }
}

/// Least cost of a branch. The cost is whole, so the bound may be rounded up once it is surely below.
fn bound(cost: i64, remaining: i64, ratio: f64) -> i64 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "below the price of a million GPUs"
    )]
    let rest = (remaining as f64 * ratio * DOWN).floor() as i64;
    cost + rest
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn demand(required: i64, rates: &[i64]) -> Demand {
        Demand {
            required,
            rates: rates.to_vec(),
        }
    }

    fn cost(counts: &[u32], prices: &[i64]) -> i64 {
        counts.iter().zip(prices).map(|(&n, p)| i64::from(n) * p).sum()
    }

    #[test]
    fn the_best_size_per_rate_is_not_always_part_of_the_cover() {
        // 100 at 3 a 10 would be 10 pieces; one of 100 costs 31 alone and wins over 30 with rounding.
        let cover = Search::default()
            .cheapest(&demand(101, &[10, 101]), &[3, 31], &[])
            .unwrap();
        assert_eq!(cover.counts, [0, 1]);
        assert_eq!(cover.bound, 31);
    }

    #[test]
    fn limits_that_no_cover_keeps_are_said() {
        let none = Limit { low: 0, high: 1 };
        assert_eq!(
            Search::default().cheapest(&demand(20, &[10]), &[1], &[none]),
            None
        );
    }

    #[test]
    fn a_free_size_costs_nothing() {
        let cover = Search::default()
            .cheapest(&demand(25, &[10, 30]), &[0, 5], &[])
            .unwrap();
        assert_eq!((cover.counts, cover.bound), (vec![3, 0], 0));
    }

    proptest! {
        #[test]
        fn no_cover_is_cheaper(
            required in 1_i64..200,
            rates in prop::collection::vec(0_i64..60, 3),
            prices in prop::collection::vec(0_i64..50, 3),
            limits in prop::collection::vec((0_u32..3, 0_u32..6), 3),
        ) {
            let limits: Vec<Limit> =
                limits.into_iter().map(|(low, more)| Limit { low, high: low + more }).collect();
            let mut least: Option<i64> = None;
            for a in limits[0].low..=limits[0].high {
                for b in limits[1].low..=limits[1].high {
                    for c in limits[2].low..=limits[2].high {
                        let counts = [a, b, c];
                        if cost(&counts, &rates) >= required {
                            let cost = cost(&counts, &prices);
                            least = Some(least.map_or(cost, |least| least.min(cost)));
                        }
                    }
                }
            }
            let found = Search::default().cheapest(&demand(required, &rates), &prices, &limits);
            prop_assert_eq!(found.as_ref().map(|cover| cover.bound), least);
            if let Some(cover) = found {
                prop_assert_eq!(cost(&cover.counts, &prices), cover.bound);
                prop_assert!(cost(&cover.counts, &rates) >= required);
                prop_assert!(cover.counts.iter().zip(&limits).all(|(&n, limit)| limit.admits(n)));
            }
        }
    }
}
