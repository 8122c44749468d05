//! What may start now: slices to fill, GPUs to recut, instances to stop.

use std::collections::BTreeMap;

use super::Action;
use super::stage::{Instance, Resident};
use super::world::{Cell, CellId, CellState, Key, Wanted, WantedState, World};
use crate::layout::Slot;

impl World<'_> {
    /// Fills slices that are there.
    pub(super) fn fill(&mut self) -> bool {
        let mut started = false;
        for wanted in 0..self.wanted.len() {
            let Wanted {
                gpu,
                resident,
                state,
                aside_of,
            } = self.wanted[wanted];
            if state != WantedState::Pending {
                continue;
            }
            let free = |cell: &&CellId| {
                let cell = &self.cells[**cell];
                cell.slot == resident.slot && cell.state == CellState::Free
            };
            let Some(&target) = self.gpus[gpu].cells.iter().find(free) else {
                continue;
            };
            let source = match aside_of {
                Some(cell) => self.leaving(cell).map(|_| cell),
                None => self.source(gpu, resident),
            };
            started = true;
            self.wanted[wanted].state = WantedState::UnderWay;
            let units = [(gpu, resident.slot)];
            let Some(source) = source else {
                let action = Action::Create {
                    gpu,
                    slot: resident.slot,
                    instance: resident.instance,
                };
                let time = self.options.times.create_ms;
                self.start(action, time, &units, &[], (vec![target], vec![], Some(wanted)));
                continue;
            };
            let left = (self.cells[source].gpu, self.cells[source].slot);
            let time = match left.0 == gpu {
                true => self.options.times.migrate_local_ms,
                false => self.options.times.migrate_remote_ms,
            };
            let action = Action::Migrate {
                from: left,
                to: (gpu, resident.slot),
                instance: resident.instance,
            };
            self.start(
                action,
                time,
                &[units[0], left],
                &[],
                (vec![target], vec![source], Some(wanted)),
            );
        }
        started
    }

    /// Which instance moves to a place: one of the same GPU, else one that is in somebody's way.
    fn source(&self, gpu: usize, resident: Resident) -> Option<CellId> {
        let key = self.key(gpu, resident.slot, resident.instance);
        let fits = |&cell: &CellId| {
            let Cell { gpu, slot, .. } = self.cells[cell];
            self.leaving(cell)
                .is_some_and(|instance| self.key(gpu, slot, instance) == key)
                && !self.is_promised(cell)
        };
        let rank = |&cell: &CellId| {
            let host = self.cells[cell].gpu;
            let obstacles = self.in_the_way(host);
            (host != gpu, !obstacles.contains(&cell), obstacles.len(), cell)
        };
        (0..self.cells.len()).filter(fits).min_by_key(rank)
    }

    /// Recuts GPUs: `whole` only those where all that is wanted can then stand, else the first where something can.
    pub(super) fn recut(&mut self, whole: bool) -> bool {
        let mut started = false;
        for gpu in 0..self.gpus.len() {
            if self.gpus[gpu].recutting || (started && !whole) {
                continue;
            }
            let own = self.gpus[gpu].cells.clone();
            let (free, busy): (Vec<CellId>, Vec<CellId>) = own
                .into_iter()
                .partition(|&cell| self.cells[cell].state == CellState::Free);
            let slot = |cell: &CellId| self.cells[*cell].slot;
            let pending: Vec<Slot> = self
                .pending(gpu)
                .map(|id| self.wanted[id].resident.slot)
                .collect();
            let is_there = |wanted: &&Slot| free.iter().chain(&busy).any(|cell| slot(cell) == **wanted);
            let (there, missing): (Vec<&Slot>, Vec<&Slot>) = pending.iter().partition(is_there);
            let (useful, useless): (Vec<CellId>, Vec<CellId>) =
                free.iter().partition(|cell| there.contains(&&slot(cell)));
            let fixed: Vec<Slot> = busy.iter().chain(&useful).map(slot).collect();
            let stands = |more: &[Slot]| {
                let all: Vec<Slot> = fixed.iter().chain(more).copied().collect();
                self.table(gpu).state_of(&all).is_ok()
            };
            let mut made: Vec<Slot> = Vec::new();
            for &&slot in &missing {
                made.push(slot);
                if !stands(&made) {
                    made.pop();
                }
            }
            if made.is_empty() || (whole && made.len() < missing.len()) {
                continue;
            }
            // What is in nobody's way stays cut, unless compute slices or engines are too few for it.
            let mut removed: Vec<CellId> = useless.clone();
            removed.retain(|cell| made.iter().any(|made| made.1.overlaps(slot(cell).1)));
            let left: Vec<Slot> = useless
                .iter()
                .filter(|cell| !removed.contains(cell))
                .map(slot)
                .collect();
            if !stands(&[&made[..], &left[..]].concat()) {
                removed = useless;
            }
            let gone: Vec<Slot> = removed.iter().map(slot).collect();
            let units: Vec<(usize, Slot)> = made.iter().chain(&gone).map(|&slot| (gpu, slot)).collect();
            let earlier: Vec<usize> = self.gpus[gpu].last_recut.into_iter().collect();
            for &cell in &removed {
                self.cells[cell].state = CellState::Gone;
            }
            self.gpus[gpu].cells.retain(|cell| !removed.contains(cell));
            let coming: Vec<CellId> = made
                .iter()
                .map(|&slot| self.add_cell(gpu, slot, CellState::Coming))
                .collect();
            self.gpus[gpu].recutting = true;
            self.gpus[gpu].last_recut = Some(self.steps.len());
            let action = Action::Repartition {
                gpu,
                removed: gone,
                made,
            };
            let time = self.options.times.repartition_ms;
            self.start(action, time, &units, &earlier, (coming, vec![], None));
            started = true;
        }
        started
    }

    /// Stops instances that their services can spare and that have no place to go.
    pub(super) fn stop(&mut self) -> bool {
        // How many of a key may be stopped: those beyond the places to fill.
        let mut surplus: BTreeMap<Key, i64> = BTreeMap::new();
        let mut leaving: Vec<(CellId, Instance)> = Vec::new();
        let promised: Vec<CellId> = self
            .wanted
            .iter()
            .filter(|wanted| wanted.state == WantedState::Pending)
            .filter_map(|wanted| wanted.aside_of)
            .collect();
        for cell in 0..self.cells.len() {
            if let Some(instance) = self.leaving(cell)
                && !promised.contains(&cell)
            {
                let Cell { gpu, slot, .. } = self.cells[cell];
                *surplus.entry(self.key(gpu, slot, instance)).or_default() += 1;
                leaving.push((cell, instance));
            }
        }
        for wanted in &self.wanted {
            if wanted.state == WantedState::Pending && wanted.aside_of.is_none() {
                let key = self.key(wanted.gpu, wanted.resident.slot, wanted.resident.instance);
                *surplus.entry(key).or_default() -= 1;
            }
        }
        let obstacles: Vec<Vec<CellId>> = (0..self.gpus.len()).map(|gpu| self.in_the_way(gpu)).collect();
        let hinders = |cell: CellId| obstacles[self.cells[cell].gpu].contains(&cell);
        let mut hindering = vec![false; self.serving.len()];
        for (_, instance) in leaving.iter().filter(|(cell, _)| hinders(*cell)) {
            hindering[instance.service] = true;
        }
        leaving.sort_by_key(|&(cell, _)| (!hinders(cell), obstacles[self.cells[cell].gpu].len(), cell));
        // What a service can spare goes to those in the way first.
        let may: Vec<(CellId, Instance)> = leaving
            .into_iter()
            .filter(|&(cell, instance)| hinders(cell) || !hindering[instance.service])
            .collect();
        let mut started = false;
        for (cell, instance) in may {
            let Cell { gpu, slot, .. } = self.cells[cell];
            let left = surplus.entry(self.key(gpu, slot, instance)).or_default();
            if *left > 0 && self.can_spare(instance) {
                *left -= 1;
                self.stop_cell(cell, instance);
                started = true;
            }
        }
        started
    }
}
