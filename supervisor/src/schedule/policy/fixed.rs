//! Static layouts: the GPUs are cut once and never again.

use super::super::{Board, Decider, Order, share};
use crate::layout::Slot;

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
    layouts: Vec<Vec<Slot>>,
    rule: Rule,
}

impl Fixed {
    /// With the layout of each GPU, in order of their indices.
    #[must_use]
    pub fn new(layouts: Vec<Vec<Slot>>, rule: Rule) -> Self {
        Self { layouts, rule }
    }
}

impl Decider for Fixed {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        let mut free: Vec<(usize, Slot)> = Vec::new();
        for (at, desk) in board.gpus.iter().enumerate() {
            let layout = self.layouts.get(desk.gpu.0).into_iter().flatten().copied();
            let open = layout.filter(|slot| !desk.held.iter().any(|held| held.slot.1.overlaps(slot.1)));
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
    fn layouts(&self) -> Option<&[Vec<Slot>]> {
        Some(&self.layouts)
    }
}
