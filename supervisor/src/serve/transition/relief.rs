//! What is done when instances wait for one another in a circle, from the cheapest remedy to the dearest.

use std::cmp::Reverse;

use super::stage::{Instance, Resident};
use super::world::{CellId, CellState, WantedId, WantedState, World};
use crate::layout::Slot;

impl World<'_> {
    /// Breaks one circle. False only if nothing is wanted any more.
    pub(super) fn relieve(&mut self) -> bool {
        self.recut(false) || self.stop_one() || self.move_aside() || self.let_one_dip()
    }

    /// Stops an instance whose service can spare it, though it could have moved: a step more, but no room needed.
    fn stop_one(&mut self) -> bool {
        let spared = self
            .stuck()
            .into_iter()
            .flat_map(|(_, cells)| cells)
            .find_map(|cell| {
                let instance = self.leaving(cell)?;
                (self.can_spare(instance) && !self.is_promised(cell)).then_some((cell, instance))
            });
        if let Some((cell, instance)) = spared {
            self.stop_cell(cell, instance);
        }
        spared.is_some()
    }

    /// Every place that is waited for with the instances in its way, fewest first.
    fn stuck(&self) -> Vec<(WantedId, Vec<CellId>)> {
        let mut all = Vec::new();
        for gpu in 0..self.gpus.len() {
            let obstacles = self.in_the_way(gpu);
            let running: Vec<CellId> = obstacles
                .into_iter()
                .filter(|&cell| self.leaving(cell).is_some())
                .collect();
            for wanted in self.pending(gpu) {
                let place = self.wanted[wanted].resident.slot.1;
                let over = running
                    .iter()
                    .copied()
                    .filter(|&cell| self.cells[cell].slot.1.overlaps(place));
                let mut own: Vec<CellId> = over.collect();
                // No overlap, and still no room: too few compute slices or engines.
                if own.is_empty() {
                    own.clone_from(&running);
                }
                if !own.is_empty() {
                    all.push((wanted, own));
                }
            }
        }
        let units = |cells: &[CellId]| {
            cells
                .iter()
                .map(|&cell| self.cells[cell].slot.1.size)
                .sum::<u32>()
        };
        all.sort_by_key(|(wanted, cells)| (cells.len(), units(cells), *wanted));
        all
    }

    /// Promises the instances in one place's way room elsewhere: where it is free, else on an extra GPU.
    fn move_aside(&mut self) -> bool {
        let stuck = self.stuck();
        let most = self.options.max_extra_gpus.unwrap_or(usize::MAX);
        for more in [false, true] {
            for (_, cells) in &stuck {
                let mut hosts: Vec<(usize, Slot)> = Vec::new();
                let mut added = 0;
                for &cell in cells {
                    let kind = self.gpus[self.cells[cell].gpu].kind;
                    let found = self.room_for(cell, &hosts, added).or_else(|| {
                        let slot = self.anywhere(kind, self.cells[cell].slot)?;
                        (more && self.extra + added < most).then(|| {
                            added += 1;
                            (self.gpus.len() + added - 1, slot)
                        })
                    });
                    hosts.extend(found);
                }
                if hosts.len() < cells.len() {
                    continue;
                }
                for (&cell, (host, slot)) in cells.iter().zip(hosts) {
                    if host >= self.gpus.len() {
                        self.add_gpu(self.gpus[self.cells[cell].gpu].kind);
                    }
                    if let Some(instance) = self.leaving(cell) {
                        self.want(
                            host,
                            Resident { slot, instance },
                            WantedState::Pending,
                            Some(cell),
                        );
                    }
                }
                return true;
            }
        }
        false
    }

    /// A place for the profile of a slot on an empty GPU.
    fn anywhere(&self, kind: usize, slot: Slot) -> Option<Slot> {
        let profile = self.stage.kinds[kind].1.profile(slot.0);
        profile.placements.first().map(|&place| (slot.0, place))
    }

    /// A place for a cell's instance that nobody else will want, beside those chosen already. Slices that are cut come
    /// first, then GPUs with the most on them. GPUs that are yet to be added are not looked at, but for the `added`.
    fn room_for(&self, cell: CellId, chosen: &[(usize, Slot)], added: usize) -> Option<(usize, Slot)> {
        let own = self.cells[cell];
        let kind = self.gpus[own.gpu].kind;
        let table = &self.stage.kinds[kind].1;
        let mut best = None;
        for host in 0..self.gpus.len() + added {
            let standing = self.gpus.get(host);
            if standing.is_some_and(|gpu| gpu.kind != kind) {
                continue;
            }
            let here = |chosen: &&(usize, Slot)| chosen.0 == host;
            let taken = chosen.iter().filter(here).map(|chosen| chosen.1);
            let cells = standing.map_or(&[][..], |gpu| &gpu.cells);
            let used = cells
                .iter()
                .filter(|&&cell| self.cells[cell].state != CellState::Free);
            let used = used.map(|&cell| self.cells[cell].slot);
            let now: Vec<Slot> = used.chain(taken.clone()).collect();
            // Those who go later may overlap what will be: they matter only now.
            let mut later = standing.map_or_else(Vec::new, |_| self.claims(host));
            later.extend(taken);
            let fits = |slot: Slot| {
                let stands = |others: &[Slot]| {
                    let mut all = others.to_vec();
                    all.push(slot);
                    all.sort_unstable();
                    all.dedup();
                    !others.contains(&slot) && table.state_of(&all).is_ok()
                };
                stands(&now) && stands(&later)
            };
            for &place in &table.profile(own.slot.0).placements {
                let slot = (own.slot.0, place);
                if !fits(slot) {
                    continue;
                }
                let is_cut = cells.iter().any(|&cell| self.cells[cell].slot == slot);
                let rank = (!is_cut, host != own.gpu, Reverse(now.len()), host);
                if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                    best = Some((rank, slot));
                }
            }
        }
        best.map(|(rank, slot)| (rank.3, slot))
    }

    /// Stops the instance in somebody's way whose service loses the least of its floor.
    fn let_one_dip(&mut self) -> bool {
        let lost = |instance: Instance| {
            let floor = self.stage.services[instance.service].floor.max(1);
            (floor - (self.serving[instance.service] - instance.rate)) as f64 / floor as f64
        };
        let leaving = |cell: CellId| self.leaving(cell).map(|instance| (cell, instance));
        let all = self.stuck().into_iter().flat_map(|(_, cells)| cells);
        let least = all
            .filter_map(leaving)
            .min_by(|a, b| lost(a.1).total_cmp(&lost(b.1)));
        if let Some((cell, instance)) = least {
            self.stop_cell(cell, instance);
        }
        least.is_some()
    }
}
