//! Plans for placers that decide by themselves where a slice goes: Kubernetes and mig-parted are told profiles, not
//! placements, and take the first that fits. The same profiles in another order end in another layout, or in none: 3g, 2g,
//! 1g, 1g on one A100 leaves the last 1g without a place, 2g, 1g, 1g, 3g holds all four.

use super::deployment::{DeployedGpu, DeployedSlice, Deployment, Tables};
use crate::layout::{Slot, Table};

/// A placer that takes GPUs by number, and on each the lowest placement that is free.
#[derive(Debug)]
pub struct FirstFit<'a> {
    table: &'a Table,
    gpus: Vec<Vec<Slot>>,
}

impl<'a> FirstFit<'a> {
    /// Over so many empty GPUs of one kind.
    #[must_use]
    pub fn new(table: &'a Table, gpus: usize) -> Self {
        Self {
            table,
            gpus: vec![Vec::new(); gpus],
        }
    }

    /// Places a slice: the index of its GPU and its slot, or `None` where no GPU has room.
    pub fn place(&mut self, profile: &str) -> Option<(usize, Slot)> {
        let profile = self.table.profile_named(profile)?;
        let mut places = self.table.profile(profile).placements.clone();
        places.sort_unstable();
        for (gpu, taken) in self.gpus.iter_mut().enumerate() {
            for &place in &places {
                taken.push((profile, place));
                let free = !taken[..taken.len() - 1].contains(&(profile, place));
                if free && self.table.state_of(taken).is_ok() {
                    return Some((gpu, (profile, place)));
                }
                taken.pop();
            }
        }
        None
    }
}

/// The deployment that a first-fit placer makes of one: the same instances on as many GPUs. GPUs are ordered anew, fullest
/// first within a kind, and listed slice by slice in their order the placer gets exactly this. `None` if no such
/// order was found.
#[must_use]
pub fn settle(deployment: &Deployment, tables: &Tables) -> Option<Deployment> {
    let mut settled = Deployment {
        services: deployment.services.clone(),
        gpus: Vec::new(),
    };
    let units = |gpu: &DeployedGpu| gpu.slices.iter().map(|slice| slice.placement.size).sum::<u32>();
    for kind in deployment.kinds() {
        let table = tables.get(kind)?;
        let mut own: Vec<&DeployedGpu> = deployment.gpus.iter().filter(|gpu| gpu.kind == kind).collect();
        // A gap on an early GPU would draw in what belongs on a later one.
        own.sort_by_key(|gpu| std::cmp::Reverse(units(gpu)));
        let mut placer = FirstFit::new(table, own.len());
        let mut gpus: Vec<DeployedGpu> = own
            .iter()
            .map(|_| DeployedGpu {
                kind: kind.to_owned(),
                slices: Vec::new(),
            })
            .collect();
        for gpu in own {
            let mut slices: Vec<&DeployedSlice> = gpu.slices.iter().collect();
            slices.sort_by_key(|slice| slice.placement);
            for slice in slices {
                let (index, (_, placement)) = placer.place(&slice.profile)?;
                gpus[index].slices.push(DeployedSlice {
                    placement,
                    ..slice.clone()
                });
            }
        }
        gpus.retain(|gpu| !gpu.slices.is_empty());
        for gpu in &mut gpus {
            gpu.slices.sort();
        }
        settled.gpus.extend(gpus);
    }
    replays(&settled, tables).then_some(settled)
}

/// Whether a first-fit placer that is given a deployment's slices in their order makes this very deployment.
#[must_use]
pub fn replays(deployment: &Deployment, tables: &Tables) -> bool {
    deployment.kinds().into_iter().all(|kind| {
        let Some(table) = tables.get(kind) else {
            return false;
        };
        let own: Vec<&DeployedGpu> = deployment.gpus.iter().filter(|gpu| gpu.kind == kind).collect();
        let mut placer = FirstFit::new(table, own.len());
        own.iter().enumerate().all(|(index, gpu)| {
            gpu.slices.iter().all(|slice| {
                placer
                    .place(&slice.profile)
                    .is_some_and(|(at, (_, place))| at == index && place == slice.placement)
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layout::{Placement, samples};
    use crate::serve::problem::Rate;

    fn tables() -> Tables {
        Tables::from([("k".to_owned(), samples::plain(samples::a100_40gb()))])
    }

    fn gpu(slices: &[(&str, u32, u32)]) -> DeployedGpu {
        let slices = slices.iter().map(|&(profile, start, size)| DeployedSlice {
            placement: Placement { start, size },
            profile: profile.to_owned(),
            service: "a".into(),
            batch: 1,
            processes: 1,
            rate: Rate(1),
        });
        DeployedGpu {
            kind: "k".into(),
            slices: slices.collect(),
        }
    }

    #[test]
    fn the_largest_slice_first_leaves_the_last_without_a_place() {
        let tables = tables();
        let place = |order: &[&str]| {
            let mut placer = FirstFit::new(&tables["k"], 1);
            order
                .iter()
                .filter(|profile| placer.place(profile).is_some())
                .count()
        };
        assert_eq!(place(&["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]), 3);
        assert_eq!(place(&["2g.10gb", "1g.5gb", "1g.5gb", "3g.20gb"]), 4);
    }

    #[test]
    fn a_gap_does_not_draw_in_what_belongs_elsewhere() {
        let deployment = Deployment {
            services: Vec::new(),
            gpus: vec![
                gpu(&[("3g.20gb", 4, 4)]),
                gpu(&[
                    ("2g.10gb", 0, 2),
                    ("1g.5gb", 2, 1),
                    ("1g.5gb", 3, 1),
                    ("3g.20gb", 4, 4),
                ]),
            ],
        };
        assert!(!replays(&deployment, &tables()));
        let settled = settle(&deployment, &tables()).unwrap();
        assert_eq!(settled.gpus.len(), 2);
        assert_eq!(settled.gpus[0], deployment.gpus[1]);
        assert_eq!(settled.gpus[1], gpu(&[("3g.20gb", 0, 4)]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        #[test]
        fn full_gpus_are_settled_on_no_more_gpus(layouts in prop::collection::vec(any::<prop::sample::Index>(), 1..6)) {
            let tables = tables();
            let table = &tables["k"];
            let all: Vec<Vec<Slot>> = table.layouts().collect();
            let gpus = layouts.iter().map(|index| {
                let slots = all[index.index(all.len())].iter();
                let slots = slots.map(|(profile, place)| {
                    (table.profile(*profile).name.as_str(), place.start, place.size)
                });
                gpu(&slots.collect::<Vec<_>>())
            });
            let deployment = Deployment { services: Vec::new(), gpus: gpus.collect() };
            let settled = settle(&deployment, &tables).unwrap();
            let profiles = |deployment: &Deployment| {
                let slices = deployment.gpus.iter().flat_map(|gpu| &gpu.slices);
                let mut names: Vec<String> = slices.map(|slice| slice.profile.clone()).collect();
                names.sort();
                names
            };
            prop_assert_eq!(profiles(&settled), profiles(&deployment));
            prop_assert!(settled.gpus.len() <= deployment.gpus.len());
        }
    }
}
