//! Static layouts: the GPUs are cut once and never again.

use std::collections::BTreeMap;

use super::super::{Board, Decider, Desk, GpuIndex, Order, share};
use super::layouts::static_layout;
use crate::layout::{ProfileIndex, Slot, Table};

/// Which of the free slices a job takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// The one on which it runs fastest, ties to the smaller.
    Fastest,
    /// The smallest that holds it, ties to the faster.
    Smallest,
}

/// One layout for each GPU; jobs in order of arrival, skipping those that no free slice holds.
#[derive(Clone, Debug)]
pub struct Fixed {
    layouts: Layouts,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Layouts {
    /// In order of the GPUs' indices.
    Each(Vec<Vec<Slot>>),
    /// The same on every GPU, with its slots by kind of GPU as they have been found.
    Named {
        layout: String,
        placed: BTreeMap<usize, Option<Vec<Slot>>>,
    },
}

impl Fixed {
    /// With the layout of each GPU, in order of their indices.
    #[must_use]
    pub fn new(layouts: Vec<Vec<Slot>>, rule: Rule) -> Self {
        let layouts = Layouts::Each(layouts);
        Self { layouts, rule }
    }

    /// With a layout such as `4g+3g` on each GPU that can have it. Of the others, those slices are used that stand and
    /// cannot go: a GPU without MIG is one.
    #[must_use]
    pub fn named(layout: String) -> Self {
        let placed = BTreeMap::new();
        Self {
            layouts: Layouts::Named { layout, placed },
            rule: Rule::Fastest,
        }
    }

    fn layout(&mut self, desk: &Desk<'_>) -> Vec<Slot> {
        match &mut self.layouts {
            Layouts::Each(layouts) => layouts.get(desk.gpu.0).cloned().unwrap_or_default(),
            Layouts::Named { layout, placed } => {
                let slots = placed
                    .entry(desk.kind)
                    .or_insert_with(|| static_layout(desk.table, layout).ok());
                slots.clone().unwrap_or_else(|| desk.lasting.clone())
            }
        }
    }
}

impl Decider for Fixed {
    fn offers(&self, gpu: GpuIndex, table: &Table) -> Option<Vec<ProfileIndex>> {
        let slots = match &self.layouts {
            Layouts::Each(layouts) => layouts.get(gpu.0).cloned(),
            Layouts::Named { layout, .. } => static_layout(table, layout).ok(),
        };
        slots.map(|slots| slots.iter().map(|slot| slot.0).collect())
    }

    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        let mut free: Vec<(usize, Slot)> = Vec::new();
        for (at, desk) in board.gpus.iter().enumerate() {
            let layout = self.layout(desk).into_iter();
            let open = layout.filter(|slot| {
                let refused = desk.refused.contains(slot);
                !refused && !desk.held.iter().any(|held| held.slot.1.overlaps(slot.1))
            });
            free.extend(open.map(|slot| (at, slot)));
        }
        let mut orders = Vec::new();
        for candidate in &board.waiting {
            if free.is_empty() {
                break;
            }
            let options = free.iter().enumerate().filter_map(|(index, &(at, slot))| {
                let desk = &board.gpus[at];
                let speed = candidate.speed(desk.kind, desk.table, slot.0);
                let share = share(desk.table, slot.0);
                let key = match self.rule {
                    Rule::Fastest => (-speed, share),
                    Rule::Smallest => (share, -speed),
                };
                (speed > 0.0 && candidate.may_use(desk.gpu)).then_some((key, index))
            });
            let best = options.min_by(|a, b| {
                a.0.0
                    .total_cmp(&b.0.0)
                    .then(a.0.1.total_cmp(&b.0.1))
                    .then(a.1.cmp(&b.1))
            });
            if let Some((_, index)) = best {
                let (at, slot) = free.remove(index);
                let desk = &board.gpus[at];
                orders.push(Order {
                    job: candidate.job,
                    gpu: desk.gpu,
                    slot: Some(slot),
                    reason: format!("{} of the static layout", desk.table.named(slot)),
                });
            }
        }
        orders
    }
}
