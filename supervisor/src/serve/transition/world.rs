//! The transition played forward in time: what stands where, what is under way, and what may start now.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::stage::{Gpu, Instance, Resident, Stage};
use super::{Action, Options, Step};
use crate::layout::{ProfileIndex, Slot, Table};

pub(super) type CellId = usize;
pub(super) type WantedId = usize;

/// Equal instances on equal slices of equal GPUs can be moved to one another's place.
pub(super) type Key = (usize, ProfileIndex, Instance);

/// A slice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    pub(super) gpu: usize,
    pub(super) slot: Slot,
    pub(super) state: CellState,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CellState {
    /// Being made.
    Coming,
    /// Nothing runs on it.
    Free,
    /// An instance starts or arrives.
    Filling,
    /// An instance runs: for good, or until it is moved or stopped.
    Running { instance: Instance, stay: Stay },
    /// Its instance leaves or is stopped.
    Clearing,
    /// Removed.
    Gone,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stay {
    /// It belongs to the new deployment.
    Final,
    /// It has to go.
    Leaving,
    /// It was moved out of the way and has to go in the end, but is in nobody's way.
    Aside,
}

/// A resident that shall be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) gpu: usize,
    pub(super) resident: Resident,
    pub(super) state: WantedState,
    /// For a place aside: the cell whose instance goes there.
    pub(super) aside_of: Option<CellId>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WantedState {
    Pending,
    UnderWay,
    Done,
}

/// A GPU as it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    pub(super) kind: usize,
    pub(super) cells: Vec<CellId>,
    pub(super) wanted: Vec<WantedId>,
    pub(super) recutting: bool,
    /// By unit of the grid, the step that last claimed it.
    last: Vec<Option<usize>>,
    pub(super) last_recut: Option<usize>,
}

pub(super) struct World<'a> {
    pub(super) stage: &'a Stage,
    pub(super) options: &'a Options,
    pub(super) gpus: Vec<Standing>,
    pub(super) cells: Vec<Cell>,
    pub(super) wanted: Vec<Wanted>,
    /// What each service gets now.
    pub(super) serving: Vec<i64>,
    /// What each service got at first.
    first: Vec<i64>,
    /// Creates that have ended, by service, in that order, with what each serves.
    created: Vec<Vec<(usize, i64)>>,
    /// What was stopped so far, by service.
    stopped: Vec<i64>,
    pub(super) extra: usize,
    pub(super) steps: Vec<Step>,
    under_way: BinaryHeap<Reverse<(u64, usize)>>,
    /// The cells that a step under way fills or makes, and clears.
    touched: Vec<(Vec<CellId>, Vec<CellId>, Option<WantedId>)>,
    now: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(stage: &'a Stage, options: &'a Options) -> Self {
        let services = stage.services.len();
        let mut world = Self {
            stage,
            options,
            gpus: Vec::new(),
            cells: Vec::new(),
            wanted: Vec::new(),
            serving: vec![0; services],
            first: Vec::new(),
            created: vec![Vec::new(); services],
            stopped: vec![0; services],
            extra: 0,
            steps: Vec::new(),
            under_way: BinaryHeap::new(),
            touched: Vec::new(),
            now: 0,
        };
        for (index, gpu) in stage.gpus.iter().enumerate() {
            world.gpus.push(Standing {
                kind: gpu.kind,
                ..Standing::default()
            });
            for resident in &gpu.before {
                let stay = match gpu.after.contains(resident) {
                    true => Stay::Final,
                    false => Stay::Leaving,
                };
                let instance = resident.instance;
                world.serving[instance.service] += instance.rate;
                world.add_cell(index, resident.slot, CellState::Running { instance, stay });
            }
            for resident in &gpu.after {
                let state = match gpu.before.contains(resident) {
                    true => WantedState::Done,
                    false => WantedState::Pending,
                };
                world.want(index, *resident, state, None);
            }
        }
        world.first.clone_from(&world.serving);
        world
    }

    /// Plays until all is as it shall be. The steps, none before one that it waits for, and the GPUs that were added.
    pub(super) fn play(mut self) -> (Vec<Step>, Vec<Gpu>) {
        loop {
            while self.fill() || self.recut(true) || self.stop() {}
            if let Some(&Reverse((end, _))) = self.under_way.peek() {
                self.now = end;
                while let Some(&Reverse((at, step))) = self.under_way.peek()
                    && at == end
                {
                    self.under_way.pop();
                    self.end(step);
                }
            } else if self.is_done() || !self.relieve() {
                break;
            }
        }
        debug_assert!(self.is_done(), "a transition stands still");
        let extra = self.gpus[self.stage.gpus.len()..].iter().map(|gpu| Gpu {
            kind: gpu.kind,
            before: Vec::new(),
            after: Vec::new(),
            from: None,
            to: None,
            extra: true,
        });
        let extra = extra.collect();
        self.bring_forward();
        (self.steps, extra)
    }

    /// Starts each step as soon as what it waits for has ended. A step that broke a circle was found only when all else
    /// had ended, and need not wait for that.
    fn bring_forward(&mut self) {
        for index in 0..self.steps.len() {
            let ends = self.steps[index]
                .after
                .iter()
                .map(|&earlier| self.steps[earlier].end_ms);
            let start = ends.max().unwrap_or(0);
            let step = &mut self.steps[index];
            step.end_ms = start + (step.end_ms - step.start_ms);
            step.start_ms = start;
        }
    }

    fn is_done(&self) -> bool {
        let there = self.wanted.iter().all(|wanted| wanted.state == WantedState::Done);
        there && (0..self.cells.len()).all(|cell| self.leaving(cell).is_none())
    }

    pub(super) fn table(&self, gpu: usize) -> &'a Table {
        &self.stage.kinds[self.gpus[gpu].kind].1
    }

    pub(super) fn add_gpu(&mut self, kind: usize) -> usize {
        self.extra += 1;
        self.gpus.push(Standing {
            kind,
            ..Standing::default()
        });
        self.gpus.len() - 1
    }

    pub(super) fn add_cell(&mut self, gpu: usize, slot: Slot, state: CellState) -> CellId {
        self.cells.push(Cell { gpu, slot, state });
        self.gpus[gpu].cells.push(self.cells.len() - 1);
        self.cells.len() - 1
    }

    pub(super) fn want(
        &mut self,
        gpu: usize,
        resident: Resident,
        state: WantedState,
        aside_of: Option<CellId>,
    ) {
        self.gpus[gpu].wanted.push(self.wanted.len());
        self.wanted.push(Wanted {
            gpu,
            resident,
            state,
            aside_of,
        });
    }

    /// The instance of a cell that runs and has to go.
    pub(super) fn leaving(&self, cell: CellId) -> Option<Instance> {
        match self.cells[cell].state {
            CellState::Running { instance, stay } if stay != Stay::Final => Some(instance),
            _ => None,
        }
    }

    /// Whether a cell is promised a place aside.
    pub(super) fn is_promised(&self, cell: CellId) -> bool {
        let pending = |wanted: &Wanted| wanted.state == WantedState::Pending;
        self.wanted
            .iter()
            .any(|wanted| pending(wanted) && wanted.aside_of == Some(cell))
    }

    pub(super) fn key(&self, gpu: usize, slot: Slot, instance: Instance) -> Key {
        (self.gpus[gpu].kind, slot.0, instance)
    }

    pub(super) fn pending(&self, gpu: usize) -> impl Iterator<Item = WantedId> + '_ {
        let all = self.gpus[gpu].wanted.iter().copied();
        all.filter(|&wanted| self.wanted[wanted].state == WantedState::Pending)
    }

    /// Cells of a GPU that have to be cleared before all that it wants can stand.
    pub(super) fn in_the_way(&self, gpu: usize) -> Vec<CellId> {
        let pending: Vec<Slot> = self
            .pending(gpu)
            .map(|wanted| self.wanted[wanted].resident.slot)
            .collect();
        if pending.is_empty() {
            return Vec::new();
        }
        let standing = self.gpus[gpu].cells.iter().copied();
        let (mut claimed, mut beside): (Vec<CellId>, Vec<CellId>) = (Vec::new(), Vec::new());
        for cell in standing {
            let has_to_go = match self.cells[cell].state {
                CellState::Running { stay, .. } => stay == Stay::Leaving,
                CellState::Clearing => true,
                _ => false,
            };
            if has_to_go {
                let overlaps = pending
                    .iter()
                    .any(|slot| slot.1.overlaps(self.cells[cell].slot.1));
                (if overlaps { &mut claimed } else { &mut beside }).push(cell);
            }
        }
        let mut all = self.claims(gpu);
        all.extend(beside.iter().map(|&cell| self.cells[cell].slot));
        // Without an overlap, compute slices or engines may still be too few.
        if self.table(gpu).state_of(&all).is_err() {
            claimed.append(&mut beside);
        }
        claimed
    }

    /// The slots of a GPU that are or will be used and are in nobody's way.
    pub(super) fn claims(&self, gpu: usize) -> Vec<Slot> {
        let standing = &self.gpus[gpu];
        let for_good = standing.wanted.iter().map(|&wanted| &self.wanted[wanted]);
        let for_good =
            for_good.filter(|wanted| wanted.aside_of.is_none() || wanted.state != WantedState::Done);
        let aside = standing.cells.iter().map(|&cell| &self.cells[cell]);
        let aside = aside.filter(|cell| {
            matches!(
                cell.state,
                CellState::Running {
                    stay: Stay::Aside,
                    ..
                }
            )
        });
        for_good
            .map(|wanted| wanted.resident.slot)
            .chain(aside.map(|cell| cell.slot))
            .collect()
    }

    pub(super) fn can_spare(&self, instance: Instance) -> bool {
        self.serving[instance.service] - instance.rate >= self.stage.services[instance.service].floor
    }

    /// Stops an instance. It waits for the creates without which its service would get too little.
    pub(super) fn stop_cell(&mut self, cell: CellId, instance: Instance) {
        let Cell { gpu, slot, .. } = self.cells[cell];
        let service = instance.service;
        self.serving[service] -= instance.rate;
        self.stopped[service] += instance.rate;
        let mut lacking = self.stage.services[service].floor - (self.first[service] - self.stopped[service]);
        let mut after = Vec::new();
        for &(step, rate) in &self.created[service] {
            if lacking <= 0 {
                break;
            }
            lacking -= rate;
            after.push(step);
        }
        let action = Action::Delete { gpu, slot, instance };
        let time = self.options.times.delete_ms;
        self.start(action, time, &[(gpu, slot)], &after, (vec![], vec![cell], None));
    }

    /// Starts a step that claims `units` and waits for their last users and for `after`.
    pub(super) fn start(
        &mut self,
        action: Action,
        time: u64,
        units: &[(usize, Slot)],
        after: &[usize],
        touched: (Vec<CellId>, Vec<CellId>, Option<WantedId>),
    ) {
        let step = self.steps.len();
        let mut after = after.to_vec();
        for &(gpu, slot) in units {
            let last = &mut self.gpus[gpu].last;
            let end = (slot.1.start + slot.1.size) as usize;
            if last.len() < end {
                last.resize(end, None);
            }
            for unit in &mut last[slot.1.start as usize..end] {
                after.extend(unit.replace(step));
            }
        }
        after.sort_unstable();
        after.dedup();
        after.retain(|&earlier| earlier != step);
        for &cell in &touched.0 {
            if self.cells[cell].state == CellState::Free {
                self.cells[cell].state = CellState::Filling;
            }
        }
        for &cell in &touched.1 {
            self.cells[cell].state = CellState::Clearing;
        }
        self.touched.push(touched);
        self.under_way.push(Reverse((self.now + time, step)));
        self.steps.push(Step {
            action,
            start_ms: self.now,
            end_ms: self.now + time,
            after,
        });
    }

    fn end(&mut self, step: usize) {
        let (filled, cleared, wanted) = std::mem::take(&mut self.touched[step]);
        for cell in cleared {
            self.cells[cell].state = CellState::Free;
        }
        match (&self.steps[step].action, wanted) {
            (Action::Repartition { gpu, .. }, _) => {
                self.gpus[*gpu].recutting = false;
                for cell in filled {
                    self.cells[cell].state = CellState::Free;
                }
            }
            (action, Some(wanted)) => {
                let instance = self.wanted[wanted].resident.instance;
                if matches!(action, Action::Create { .. }) {
                    self.serving[instance.service] += instance.rate;
                    self.created[instance.service].push((step, instance.rate));
                }
                let stay = match self.wanted[wanted].aside_of {
                    Some(_) => Stay::Aside,
                    None => Stay::Final,
                };
                for cell in filled {
                    self.cells[cell].state = CellState::Running { instance, stay };
                }
                self.wanted[wanted].state = WantedState::Done;
            }
            (_, None) => {}
        }
    }
}
