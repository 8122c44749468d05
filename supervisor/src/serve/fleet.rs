//! The fleet: kinds of GPU with their price, the sizes of slice they can be cut into, and their layouts.
//!
//! Where a slice sits makes no difference to a service, so layouts that hold the same slices are one. The
//! placements of one of them are kept for the plan that is handed out.

use crate::layout::{Placement, ProfileIndex, Table};

/// Units of price that 1 of the user's makes. Prices and bounds are whole numbers of these, so that decimal prices
/// have a common step that bounds can be rounded up to.
pub const PRICE_UNIT: i64 = 1_000_000_000;
/// Highest price, so that bounds over a million GPUs stay exact in 64 bits.
const MOST: f64 = 1e3;

/// Index of a [`Size`] in its [`Fleet`].
pub type SizeIndex = usize;

/// One kind of GPU.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The model, such as `a100-40gb`.
    pub name: String,
    /// What one costs, in [`PRICE_UNIT`]s.
    pub price: i64,
    /// How many there are; `None` where the plan may take as many as it needs.
    pub count: Option<u32>,
    /// The size that is the whole GPU.
    pub whole: SizeIndex,
}

/// A size of slice on one kind of GPU.
#[derive(Clone, Debug)]
pub struct Size {
    /// Index of its kind.
    pub kind: usize,
    /// Profile name, such as `1g.5gb`.
    pub profile: String,
    /// Compute slices.
    pub compute: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Where it can sit, lowest first.
    pub placements: Vec<Placement>,
}

/// What one GPU can be cut into: a full layout, by how many slices of each size it has.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Index of its kind.
    pub kind: usize,
    /// Slices by size, over all sizes of the fleet.
    pub counts: Vec<u32>,
    /// Where they sit, most compute slices first.
    pub slots: Vec<(SizeIndex, Placement)>,
}

/// Why there is no such fleet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FleetError {
    /// There is nothing to serve with.
    #[error("the fleet has no GPU")]
    Empty,
    /// Named twice.
    #[error("GPU `{0}` is named twice")]
    Twice(String),
    /// A price that is none.
    #[error("GPU `{kind}` costs {price}, which is no number above 0 and up to {MOST}")]
    Price {
        /// The kind.
        kind: String,
        /// What was given.
        price: f64,
    },
}

/// The kinds of GPU of a plan, with all that they can be cut into.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    /// In the order given.
    pub kinds: Vec<Kind>,
    /// The sizes of all kinds.
    pub sizes: Vec<Size>,
    /// Full layouts of all kinds, no two with the same slices, fewest slices first within a kind.
    pub layouts: Vec<Layout>,
}

impl Fleet {
    /// Adds a kind of GPU by its state table. `count` is how many there are, if that is limited.
    ///
    /// # Errors
    /// The kind is there already, or its price is no price.
    pub fn add(
        &mut self,
        name: &str,
        table: &Table,
        price: f64,
        count: Option<u32>,
    ) -> Result<(), FleetError> {
        if self.kinds.iter().any(|kind| kind.name == name) {
            return Err(FleetError::Twice(name.to_owned()));
        }
        let units = (price * PRICE_UNIT as f64).round();
        if !(units >= 1.0 && price <= MOST) {
            return Err(FleetError::Price {
                kind: name.to_owned(),
                price,
            });
        }
        let kind = self.kinds.len();
        let first = self.sizes.len();
        self.sizes.extend(table.profiles().iter().map(|profile| Size {
            kind,
            profile: profile.name.clone(),
            compute: profile.compute,
            memory: profile.memory,
            placements: profile.placements.clone(),
        }));
        for layout in &mut self.layouts {
            layout.counts.resize(self.sizes.len(), 0);
        }
        let size_of = |profile: ProfileIndex| first + profile.0;
        let mut layouts: Vec<Layout> = Vec::new();
        for taken in table.layouts() {
            let mut counts = vec![0; self.sizes.len()];
            for (profile, _) in &taken {
                counts[size_of(*profile)] += 1;
            }
            if layouts.iter().all(|known| known.counts != counts) {
                let slots = taken.iter().map(|&(profile, place)| (size_of(profile), place));
                let mut slots: Vec<_> = slots.collect();
                slots.sort_by_key(|&(size, place)| (std::cmp::Reverse(self.sizes[size].compute), place));
                layouts.push(Layout { kind, counts, slots });
            }
        }
        layouts.sort_by_key(|layout| (layout.slots.len(), std::cmp::Reverse(layout.counts.clone())));
        self.layouts.extend(layouts);
        self.kinds.push(Kind {
            name: name.to_owned(),
            #[expect(clippy::cast_possible_truncation, reason = "between 1 and 10^12")]
            price: units as i64,
            count,
            whole: size_of(table.full()),
        });
        Ok(())
    }

    /// The layouts that hold more than any other of their kind would, counting only sizes that are `used`:
    /// a plan needs no others. Indices into [`Fleet::layouts`].
    #[must_use]
    pub fn largest(&self, used: &[bool]) -> Vec<usize> {
        let holds = |one: usize, other: usize| {
            let (one, other) = (&self.layouts[one], &self.layouts[other]);
            one.kind == other.kind
                && (0..used.len()).all(|size| !used[size] || one.counts[size] >= other.counts[size])
        };
        (0..self.layouts.len())
            .filter(|&layout| {
                let rivals = (0..self.layouts.len()).filter(|&rival| rival != layout);
                // Of two that hold the same, the first stays.
                let mut beaten =
                    rivals.filter(|&rival| holds(rival, layout) && (rival < layout || !holds(layout, rival)));
                beaten.next().is_none()
            })
            .collect()
    }

    /// What the prices of all kinds are multiples of.
    #[must_use]
    pub fn price_step(&self) -> i64 {
        let gcd = |mut a: i64, mut b: i64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        self.kinds
            .iter()
            .fold(0, |step, kind| gcd(step, kind.price))
            .max(1)
    }
}

/// A price in the user's unit.
#[must_use]
pub fn price(units: i64) -> f64 {
    units as f64 / PRICE_UNIT as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Rules, base, samples};

    fn fleet(profiles: &[crate::layout::Profile]) -> Fleet {
        let table = Table::build(base(profiles), Rules::default()).unwrap();
        let mut fleet = Fleet::default();
        fleet.add("g", &table, 1.0, None).unwrap();
        fleet
    }

    #[test]
    fn layouts_with_the_same_slices_are_one() {
        let a100 = fleet(&samples::a100_40gb());
        assert_eq!(a100.layouts.len(), 14);
        // 3-2-1 and 3-1-1-1 leave memory unused: 3-2-1-1 and 3-1-1-1-1 hold more.
        assert_eq!(a100.largest(&[true; 5]).len(), 12);
        assert_eq!(fleet(&samples::a30_24gb()).layouts.len(), 4);
    }

    #[test]
    fn a_plan_that_cuts_nothing_smaller_than_4g_needs_two_layouts() {
        let a100 = fleet(&samples::a100_40gb());
        let used: Vec<bool> = a100.sizes.iter().map(|size| size.compute >= 4).collect();
        assert_eq!(a100.largest(&used).len(), 2);
    }

    #[test]
    fn kinds_share_one_numbering_of_sizes() {
        let mut both = fleet(&samples::a100_40gb());
        let a30 = Table::build(base(&samples::a30_24gb()), Rules::default()).unwrap();
        both.add("a30", &a30, 0.35, Some(4)).unwrap();
        assert!(both.layouts.iter().all(|layout| layout.counts.len() == 8));
        assert_eq!(both.sizes[both.kinds[1].whole].profile, "4g.24gb");
        assert_eq!(
            both.add("a30", &a30, 1.0, None),
            Err(FleetError::Twice("a30".into()))
        );
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(both.add("x", &a30, wrong, None).is_err());
        }
    }
}
