//! Which GPU instances fit beside which, and where the driver puts one when it is not told.
//!
//! The default place is a model that reproduces the creation orders in NVIDIA's guide and in transcripts: the
//! place that keeps the most *maximal layouts* of base and double-memory profiles reachable, ties to the lowest
//! start. R450 and R460 were seen to put a 3g at the lowest start; what else they do otherwise is not known.

use std::sync::OnceLock;

use crate::driver::Driver;
use crate::model::{Engines, MODELS, Model, Profile};

/// A GPU instance of a layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct Placed {
    /// Index into the model's profiles.
    pub profile: usize,
    /// First unit of the grid.
    pub start: u32,
}

/// The placement rules of one GPU under one driver.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The GPU.
    pub model: &'static Model,
    /// The driver.
    pub driver: Driver,
}

/// A maximal layout: per instance its compute slices, size and start.
type Shape = (u32, u32, u32);

impl Rules {
    fn profile(&self, placed: Placed) -> &'static Profile {
        &self.model.profiles[placed.profile]
    }

    fn overlap(&self, one: Placed, other: Placed) -> bool {
        one.start < other.start + self.profile(other).size && other.start < one.start + self.profile(one).size
    }

    /// Whether `new` can be created beside `present`.
    #[must_use]
    pub fn fits(&self, present: &[Placed], new: Placed) -> bool {
        let profile = self.profile(new);
        let engines = present.iter().fold(profile.engines, |sum: Engines, placed| {
            sum.plus(self.profile(*placed).engines)
        });
        let same = present
            .iter()
            .filter(|placed| placed.profile == new.profile)
            .count();
        let refused_pair = |placed: &Placed| {
            let pair = (self.profile(*placed).compute, profile.compute);
            !self.driver.has_four_with_three() && (pair == (3, 4) || pair == (4, 3))
        };
        profile.starts.contains(&new.start)
            && same < profile.count as usize
            && engines.within(self.model.engines())
            && !present
                .iter()
                .any(|placed| self.overlap(*placed, new) || refused_pair(placed))
    }

    /// Starts that `profile` can take beside `present`.
    pub fn free_starts<'a>(
        &'a self,
        present: &'a [Placed],
        profile: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        self.model.profiles[profile]
            .starts
            .iter()
            .copied()
            .filter(move |&start| self.fits(present, Placed { profile, start }))
    }

    /// How many more of `profile` can be created. A profile's starts are all equal in size and aligned to it, so
    /// taking them in order is best.
    #[must_use]
    pub fn remaining(&self, present: &[Placed], profile: usize) -> u32 {
        let mut layout = present.to_vec();
        for &start in self.model.profiles[profile].starts {
            let placed = Placed { profile, start };
            if self.fits(&layout, placed) {
                layout.push(placed);
            }
        }
        u32::try_from(layout.len() - present.len()).unwrap_or(u32::MAX)
    }

    /// Where the driver puts `profile` when it is not told; `None` when it fits nowhere.
    #[must_use]
    pub fn default_start(&self, present: &[Placed], profile: usize) -> Option<u32> {
        if self.driver.fills_lower_half_first() && self.is_three(profile) {
            return self.free_starts(present, profile).min();
        }
        let shape = |placed: Placed| {
            (
                self.profile(placed).compute,
                self.profile(placed).size,
                placed.start,
            )
        };
        let present_shapes: Vec<Shape> = present.iter().map(|placed| shape(*placed)).collect();
        let layouts: Vec<&Vec<Shape>> = self
            .maximal_layouts()
            .iter()
            .filter(|layout| present_shapes.iter().all(|shape| layout.contains(shape)))
            .collect();
        let kept = |start| {
            layouts
                .iter()
                .filter(|layout| layout.contains(&shape(Placed { profile, start })))
                .count()
        };
        // max_by_key takes the last of equals; the lowest start must win.
        self.free_starts(present, profile)
            .map(|start| (kept(start), start))
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(_, start)| start)
    }

    /// The maximal layouts that default placement scores with: one profile per shape, so base and double memory.
    fn maximal_layouts(&self) -> &'static [Vec<Shape>] {
        static LAYOUTS: [[OnceLock<Vec<Vec<Shape>>>; 2]; MODELS.len()] =
            [const { [const { OnceLock::new() }; 2] }; MODELS.len()];
        let index = MODELS
            .iter()
            .position(|model| std::ptr::eq(model, self.model))
            .unwrap_or(0);
        LAYOUTS[index][usize::from(self.driver.has_four_with_three())].get_or_init(|| {
            let shapes = self.distinct_shapes();
            self.states(&shapes)
                .into_iter()
                .filter(|layout| {
                    shapes
                        .iter()
                        .all(|&profile| self.free_starts(layout, profile).next().is_none())
                })
                .map(|layout| {
                    let shape = |placed: &Placed| {
                        (
                            self.profile(*placed).compute,
                            self.profile(*placed).size,
                            placed.start,
                        )
                    };
                    layout.iter().map(shape).collect()
                })
                .collect()
        })
    }

    /// Per compute slices and size the first profile of the table.
    fn distinct_shapes(&self) -> Vec<usize> {
        let shape = |index: usize| {
            (
                self.model.profiles[index].compute,
                self.model.profiles[index].size,
            )
        };
        (0..self.model.profiles.len())
            .filter(|&index| (0..index).all(|earlier| shape(earlier) != shape(index)))
            .collect()
    }

    /// Every set of instances of these profiles that can exist, each once, the empty one included.
    #[must_use]
    pub fn states(&self, profiles: &[usize]) -> Vec<Vec<Placed>> {
        let candidates: Vec<Placed> = profiles
            .iter()
            .flat_map(|&profile| {
                self.model.profiles[profile]
                    .starts
                    .iter()
                    .map(move |&start| Placed { profile, start })
            })
            .collect();
        let mut states = vec![(0, Vec::new())];
        let mut next = 0;
        while next < states.len() {
            let (from, layout) = states[next].clone();
            for (index, &placed) in candidates.iter().enumerate().skip(from) {
                if self.fits(&layout, placed) {
                    let mut larger = layout.clone();
                    larger.push(placed);
                    states.push((index + 1, larger));
                }
            }
            next += 1;
        }
        states.into_iter().map(|(_, layout)| layout).collect()
    }

    /// The id that the driver gives a GPU instance: a function of its size and place, so the same again when the
    /// place is refilled. Whole grid 0, half 1 and 2, quarter 3 to 6, eighth 7 to 14.
    #[must_use]
    pub fn instance_id(&self, placed: Placed) -> u32 {
        let size = self.profile(placed).size;
        let (parts, part) = (self.model.grid / size, placed.start / size);
        let counted_down = parts == 2 && self.model.grid == 8 && self.driver.fills_lower_half_first();
        parts - 1 + if counted_down { 1 - part } else { part }
    }

    /// A 3g: three compute slices on half the grid.
    fn is_three(&self, profile: usize) -> bool {
        let profile = &self.model.profiles[profile];
        profile.compute == 3 && profile.size * 2 == self.model.grid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::find;

    fn rules(key: &str, branch: u32) -> Rules {
        Rules {
            model: &MODELS[find(key).unwrap()],
            driver: Driver(branch),
        }
    }

    fn profile(rules: &Rules, id: u32) -> usize {
        rules
            .model
            .profiles
            .iter()
            .position(|profile| profile.id == id)
            .unwrap()
    }

    /// Starts that a sequence of creations by profile id gets.
    fn created(rules: &Rules, ids: &[u32]) -> Vec<Option<u32>> {
        let mut present = Vec::new();
        ids.iter()
            .map(|&id| {
                let profile = profile(rules, id);
                let start = rules.default_start(&present, profile)?;
                present.push(Placed { profile, start });
                Some(start)
            })
            .collect()
    }

    #[test]
    fn creation_orders_seen_on_real_a100s() {
        let rules = rules("a100-40gb", 570);
        for (ids, starts) in [
            (&[19, 19, 19, 19, 19, 19, 19][..], &[6, 4, 5, 0, 1, 2, 3][..]),
            (&[9, 9], &[4, 0]),
            (&[19, 14, 5], &[6, 4, 0]),
            (&[14, 19, 19, 19, 19, 19], &[4, 6, 0, 1, 2, 3]),
            (&[9, 19, 14, 19], &[4, 0, 2, 1]),
        ] {
            assert_eq!(
                created(&rules, ids),
                starts.iter().map(|&start| Some(start)).collect::<Vec<_>>(),
                "{ids:?}"
            );
        }
    }

    #[test]
    fn the_guides_failing_order_fails() {
        assert_eq!(
            created(&rules("a100-40gb", 570), &[19, 19, 14, 9]),
            [Some(6), Some(4), Some(0), None]
        );
    }

    #[test]
    fn a30_and_rtx_fill_upwards() {
        assert_eq!(
            created(&rules("a30-24gb", 570), &[14, 14, 14, 14]),
            [Some(0), Some(1), Some(2), Some(3)]
        );
        let rtx = rules("rtx-pro-6000-blackwell-96gb", 575);
        assert_eq!(created(&rtx, &[14, 14, 5]), [Some(0), Some(3), Some(6)]);
    }

    fn counts(key: &str, branch: u32, keep: impl Fn(&Profile) -> bool) -> (usize, usize) {
        let rules = rules(key, branch);
        let profiles: Vec<usize> = (0..rules.model.profiles.len())
            .filter(|&index| keep(&rules.model.profiles[index]))
            .collect();
        let states = rules.states(&profiles);
        let full = |layout: &&Vec<Placed>| {
            profiles
                .iter()
                .all(|&profile| rules.free_starts(layout, profile).next().is_none())
        };
        (states.len(), states.iter().filter(full).count())
    }

    #[test]
    fn state_counts_match_the_published_ones() {
        let base = |profile: &Profile| profile.question <= 4;
        assert_eq!(counts("a100-40gb", 570, base), (298, 19));
        assert_eq!(counts("a100-40gb", 470, base), (297, 18));
        assert_eq!(
            counts("a100-40gb", 570, |profile| base(profile) || profile.question == 9),
            (723, 78)
        );
        for key in ["h100-80gb", "h200-141gb", "gh200-96gb"] {
            assert_eq!(counts(key, 570, |_| true), (2319, 239), "{key}");
        }
        assert_eq!(counts("a30-24gb", 570, base), (26, 5));
        assert_eq!(counts("a30-24gb", 570, |_| true), (76, 17));
        assert_eq!(
            counts("rtx-pro-6000-blackwell-96gb", 575, |profile| !profile
                .is_graphics()),
            (304, 97)
        );
        assert_eq!(counts("rtx-pro-6000-blackwell-96gb", 575, |_| true), (717, 302));
    }

    #[test]
    fn instance_ids_follow_size_and_place() {
        let a100 = rules("a100-40gb", 570);
        let id = |rules: &Rules, profile_id, start| {
            rules.instance_id(Placed {
                profile: profile(rules, profile_id),
                start,
            })
        };
        assert_eq!(id(&a100, 19, 6), 13);
        assert_eq!(id(&a100, 15, 4), 5);
        assert_eq!(
            (id(&a100, 9, 0), id(&a100, 9, 4), id(&a100, 5, 0), id(&a100, 0, 0)),
            (1, 2, 1, 0)
        );
        assert_eq!(id(&rules("a30-24gb", 570), 5, 2), 2);
        let rtx = rules("rtx-pro-6000-blackwell-96gb", 575);
        assert_eq!((id(&rtx, 14, 9), id(&rtx, 5, 0)), (6, 1));
    }

    #[test]
    fn old_drivers_start_with_the_lower_half() {
        let old = rules("a100-40gb", 450);
        assert_eq!(created(&old, &[9, 9]), [Some(0), Some(4)]);
        let id = |start| {
            old.instance_id(Placed {
                profile: profile(&old, 9),
                start,
            })
        };
        assert_eq!((id(0), id(4)), (2, 1));
    }

    #[test]
    fn a_three_beside_a_four_needs_r510() {
        assert_eq!(created(&rules("a100-40gb", 570), &[5, 9]), [Some(0), Some(4)]);
        assert_eq!(created(&rules("a100-40gb", 470), &[5, 9]), [Some(0), None]);
    }

    #[test]
    fn one_jpeg_engine_allows_one_media_instance_on_an_a30() {
        let a30 = rules("a30-24gb", 570);
        assert_eq!(created(&a30, &[21, 6]), [Some(0), None]);
        let present = [Placed {
            profile: profile(&a30, 21),
            start: 0,
        }];
        assert_eq!(a30.remaining(&present, profile(&a30, 6)), 0);
        assert_eq!(a30.remaining(&present, profile(&a30, 14)), 3);
    }
}
