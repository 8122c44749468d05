//! MIG-serving's order, exchange and compact (arXiv 2109.11067, section 6), one action after the other: what ours is
//! measured against.
//!
//! *Exchange*: each new instance of a service is paired with unneeded ones that together serve no more; it is created,
//! on an extra GPU if there is no room, then they are deleted. What is left of the new is created, then what is left
//! of the unneeded deleted. *Compact*: GPUs that are not full take instances from the emptiest others, until none can.
//! Open in the paper and chosen here: room is sought on the fullest GPU first; an extra GPU is cut as need be.

use super::stage::{Instance, Resident, Stage};
use super::times::Times;
use crate::layout::{ProfileIndex, Slot};

/// What the serial order costs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Serial {
    /// Instances started.
    pub creates: usize,
    /// Instances stopped.
    pub deletes: usize,
    /// Instances moved within a GPU and between GPUs.
    pub migrates: usize,
    /// GPUs recut.
    pub repartitions: usize,
    /// All actions one after the other, milliseconds.
    pub makespan_ms: u64,
    /// GPUs beyond those of the larger deployment.
    pub extra_gpus: usize,
}

impl Serial {
    /// All actions.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.creates + self.deletes + self.migrates + self.repartitions
    }
}

struct Cluster<'a> {
    stage: &'a Stage,
    times: Times,
    /// By GPU: its kind and what runs.
    gpus: Vec<(usize, Vec<Resident>)>,
    /// By GPU: slices that are cut.
    cut: Vec<Vec<Slot>>,
    cost: Serial,
    most: usize,
}

/// Plays exchange and compact from the old deployment to the instances of the new one.
#[must_use]
pub fn exchange_and_compact(stage: &Stage, times: Times) -> Serial {
    let before = stage.gpus.iter().filter(|gpu| gpu.from.is_some());
    let gpus: Vec<(usize, Vec<Resident>)> = before.map(|gpu| (gpu.kind, gpu.before.clone())).collect();
    let cut = gpus
        .iter()
        .map(|(_, all)| all.iter().map(|resident| resident.slot).collect())
        .collect();
    let mut cluster = Cluster {
        stage,
        times,
        gpus,
        cut,
        cost: Serial::default(),
        most: 0,
    };
    for service in 0..stage.services.len() {
        cluster.exchange(service);
    }
    cluster.compact();
    let larger = |count: fn(&super::stage::Gpu) -> bool| stage.gpus.iter().filter(|gpu| count(gpu)).count();
    let needed = larger(|gpu| gpu.from.is_some()).max(larger(|gpu| gpu.to.is_some()));
    cluster.cost.extra_gpus = cluster.most.saturating_sub(needed);
    cluster.cost
}

impl Cluster<'_> {
    fn exchange(&mut self, service: usize) {
        type Kept = (usize, ProfileIndex, Instance);
        let all = |after: bool| -> Vec<Kept> {
            let gpus = self.stage.gpus.iter();
            gpus.flat_map(|gpu| {
                let residents = if after { &gpu.after } else { &gpu.before };
                residents
                    .iter()
                    .map(|resident| (gpu.kind, resident.slot.0, resident.instance))
            })
            .filter(|(_, _, instance)| instance.service == service)
            .collect()
        };
        let mut unneeded = all(false);
        let mut new = Vec::new();
        for kept in all(true) {
            match unneeded.iter().position(|old| *old == kept) {
                Some(at) => drop(unneeded.swap_remove(at)),
                None => new.push(kept),
            }
        }
        new.sort_by_key(|kept| std::cmp::Reverse(kept.2.rate));
        unneeded.sort_by_key(|kept| std::cmp::Reverse(kept.2.rate));
        for kept in new {
            self.create(kept);
            let mut room = kept.2.rate;
            let mut paired = Vec::new();
            unneeded.retain(|old| {
                let takes = old.2.rate <= room;
                if takes {
                    room -= old.2.rate;
                    paired.push(*old);
                }
                !takes
            });
            // A new one that replaces none is created before any is deleted: the pairs' deletes need no more.
            for old in paired {
                self.delete(old);
            }
        }
        for old in unneeded {
            self.delete(old);
        }
    }

    fn spend(&mut self, time: u64) {
        self.cost.makespan_ms += time;
        self.most = self
            .most
            .max(self.gpus.iter().filter(|gpu| !gpu.1.is_empty()).count());
    }

    /// Room for a profile on a GPU: where it is cut, else anywhere.
    fn room(&self, gpu: usize, profile: ProfileIndex) -> Option<Slot> {
        let (kind, residents) = &self.gpus[gpu];
        let table = &self.stage.kinds[*kind].1;
        let places = table
            .profile(profile)
            .placements
            .iter()
            .map(|&place| (profile, place));
        let fits = |slot: &Slot| {
            let mut all: Vec<Slot> = residents.iter().map(|resident| resident.slot).collect();
            let free = !all.contains(slot);
            all.push(*slot);
            free && table.state_of(&all).is_ok()
        };
        places
            .filter(fits)
            .min_by_key(|slot| !self.cut[gpu].contains(slot))
    }

    /// Puts an instance into a slice, recutting the GPU if need be.
    fn put(&mut self, gpu: usize, slot: Slot, instance: Instance) {
        if !self.cut[gpu].contains(&slot) {
            self.cut[gpu] = self.gpus[gpu].1.iter().map(|resident| resident.slot).collect();
            self.cut[gpu].push(slot);
            self.cost.repartitions += 1;
            self.spend(self.times.repartition_ms);
        }
        self.gpus[gpu].1.push(Resident { slot, instance });
    }

    fn create(&mut self, (kind, profile, instance): (usize, ProfileIndex, Instance)) {
        let own = (0..self.gpus.len()).filter(|&gpu| self.gpus[gpu].0 == kind);
        let found = own.filter_map(|gpu| Some((gpu, self.room(gpu, profile)?)));
        let rank = |(gpu, slot): &(usize, Slot)| {
            (
                !self.cut[*gpu].contains(slot),
                std::cmp::Reverse(self.gpus[*gpu].1.len()),
            )
        };
        let (gpu, slot) = match found.min_by_key(rank) {
            Some(found) => found,
            None => {
                self.gpus.push((kind, Vec::new()));
                self.cut.push(Vec::new());
                let gpu = self.gpus.len() - 1;
                match self.room(gpu, profile) {
                    Some(slot) => (gpu, slot),
                    None => return,
                }
            }
        };
        self.put(gpu, slot, instance);
        self.cost.creates += 1;
        self.spend(self.times.create_ms);
    }

    fn delete(&mut self, (kind, profile, instance): (usize, ProfileIndex, Instance)) {
        let is_it = |resident: &Resident| resident.slot.0 == profile && resident.instance == instance;
        // The emptiest GPU is most easily given up.
        let hosts = (0..self.gpus.len())
            .filter(|&gpu| self.gpus[gpu].0 == kind && self.gpus[gpu].1.iter().any(is_it));
        if let Some(gpu) = hosts.min_by_key(|&gpu| self.gpus[gpu].1.len())
            && let Some(at) = self.gpus[gpu].1.iter().position(is_it)
        {
            self.gpus[gpu].1.swap_remove(at);
            self.cost.deletes += 1;
            self.spend(self.times.delete_ms);
        }
    }

    fn compact(&mut self) {
        let units = |residents: &[Resident]| residents.iter().map(|one| one.slot.1.size).sum::<u32>();
        let mut open: Vec<usize> = (0..self.gpus.len())
            .filter(|&gpu| !self.gpus[gpu].1.is_empty())
            .collect();
        while !open.is_empty() {
            open.sort_by_key(|&gpu| units(&self.gpus[gpu].1));
            let Some(gpu) = open.pop() else { break };
            // From the emptiest, as long as something fits.
            while let Some((donor, at, slot)) = open.iter().find_map(|&donor| {
                let same = self.gpus[donor].0 == self.gpus[gpu].0;
                let mut residents = self.gpus[donor].1.iter().enumerate().filter(|_| same);
                residents.find_map(|(at, one)| Some((donor, at, self.room(gpu, one.slot.0)?)))
            }) {
                let moved = self.gpus[donor].1.swap_remove(at);
                self.put(gpu, slot, moved.instance);
                self.cost.migrates += 1;
                self.spend(self.times.migrate_remote_ms);
                open.retain(|&gpu| !self.gpus[gpu].1.is_empty());
            }
        }
    }
}
