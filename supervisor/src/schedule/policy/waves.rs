//! MIGM's scheme A (arXiv 2508.18556): jobs are grouped by their tightest profile, and each group runs in waves
//! on GPUs cut into slices of that profile alone.
//!
//! The paper leaves open: the order of the groups (here the least memory first), what happens on several GPUs
//! (each takes the next group when it has run dry), jobs that come later (they join their group), and priorities (a
//! GPU begins nothing of a lower level while it could run something of a higher).

use super::super::{Board, Decider, Order};
use super::mfi::tightest;
use crate::layout::ProfileIndex;

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Waves;

impl Decider for Waves {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        let mut orders = Vec::new();
        let mut placed = vec![false; board.waiting.len()];
        for desk in &board.gpus {
            let group = |index: usize| {
                let candidate = &board.waiting[index];
                candidate.may_use(desk.gpu).then(|| tightest(candidate, desk))?
            };
            let level = |index: usize| board.waiting[index].level;
            // A wave of a lower level would go on for ever before one of a higher begins.
            let waiting = |placed: &[bool]| {
                let free = (0..placed.len()).filter(|&index| !placed[index]);
                let mut here: Vec<usize> = free.filter(|&index| group(index).is_some()).collect();
                let highest = here.iter().map(|&index| level(index)).min();
                here.retain(|&index| Some(level(index)) == highest);
                here
            };
            let memory = |profile: ProfileIndex| desk.table.profile(profile).memory;
            let here = desk
                .held
                .iter()
                .find(|held| held.job.is_some())
                .map(|held| held.slot.0);
            let next = || {
                waiting(&placed)
                    .into_iter()
                    .filter_map(group)
                    .min_by_key(|&profile| (memory(profile), profile))
            };
            let Some(profile) = here.or_else(next) else {
                continue;
            };
            let mut desk_now = desk.clone();
            for index in waiting(&placed) {
                if group(index) != Some(profile) {
                    continue;
                }
                let Some(slot) = desk_now.slot_for(profile) else {
                    break;
                };
                placed[index] = true;
                orders.push(Order {
                    job: board.waiting[index].job,
                    gpu: desk.gpu,
                    slot: Some(slot),
                    reason: format!(
                        "{} in the wave of {}",
                        desk.table.named(slot),
                        desk.table.profile(profile).name
                    ),
                });
                desk_now.take(slot, board.waiting[index].job);
            }
        }
        orders
    }
}
