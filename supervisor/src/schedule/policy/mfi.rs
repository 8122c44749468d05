//! Fragmentation-aware placement (MFI, arXiv 2511.18906): the tightest profile, placed where the fragmentation
//! of the GPU grows least.
//!
//! F = sum over profiles p and their places i of size(p), where p would fit by the free units of the grid but
//! place i is blocked. The paper turns away what cannot be placed; here it waits, in order of arrival with
//! skipping.

use std::cmp::Reverse;

use super::super::{Board, Candidate, Decider, Desk, Order};
use crate::layout::{Placement, ProfileIndex, Slot};

/// The policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mfi;

impl Decider for Mfi {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        let mut desks: Vec<Desk<'_>> = board.gpus.clone();
        let mut orders = Vec::new();
        for candidate in &board.waiting {
            if desks.iter().all(|desk| !desk.has_room()) {
                break;
            }
            let options = desks
                .iter()
                .enumerate()
                .filter(|(_, desk)| candidate.may_use(desk.gpu))
                .flat_map(|(at, desk)| {
                    let slots = tightest(candidate, desk)
                        .into_iter()
                        .flat_map(|profile| desk.slots_for(profile));
                    slots.map(move |slot| (growth(desk, slot), !desk.idle.contains(&slot), at, slot))
                });
            if let Some((_, _, at, slot)) = options.min() {
                let desk = &mut desks[at];
                orders.push(Order {
                    job: candidate.job,
                    gpu: desk.gpu,
                    slot: Some(slot),
                    reason: format!("{} fragments the GPU least", desk.table.named(slot)),
                });
                desk.take(slot, candidate.job);
            }
        }
        orders
    }
}

/// The profile of the least memory on which the job runs, then with most multiprocessors.
pub(super) fn tightest(candidate: &Candidate<'_>, desk: &Desk<'_>) -> Option<ProfileIndex> {
    let profiles = (0..desk.table.profiles().len()).map(ProfileIndex);
    let fit = profiles.filter(|&p| candidate.speed(desk.kind, desk.table, p) > 0.0 && desk.can_ever(p));
    fit.min_by_key(|&p| {
        let profile = desk.table.profile(p);
        (profile.memory, Reverse(profile.sms), profile.is_variant())
    })
}

/// How much F grows with one more slot.
fn growth(desk: &Desk<'_>, slot: Slot) -> i64 {
    let mut taken: Vec<Placement> = desk.held.iter().map(|held| held.slot.1).collect();
    let before = fragmentation(desk, &taken);
    taken.push(slot.1);
    fragmentation(desk, &taken) - before
}

fn fragmentation(desk: &Desk<'_>, taken: &[Placement]) -> i64 {
    let grid = desk
        .table
        .profiles()
        .iter()
        .flat_map(|p| &p.placements)
        .map(|place| place.start + place.size)
        .max();
    let free = i64::from(grid.unwrap_or(0)) - taken.iter().map(|place| i64::from(place.size)).sum::<i64>();
    let places = desk
        .table
        .profiles()
        .iter()
        .flat_map(|profile| &profile.placements);
    let blocked = places
        .filter(|place| i64::from(place.size) <= free && taken.iter().any(|other| other.overlaps(**place)));
    blocked.map(|place| i64::from(place.size)).sum()
}
