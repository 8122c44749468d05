//! The choice without search: each waiting job, shortest first, takes the slice on which its time and the
//! price of the space it takes from those behind it are least.

use super::super::{Board, Candidate, Desk, Order};
use super::picture::Kind;
use crate::layout::{ProfileIndex, Slot};

/// Seconds of delay that a second of a whole GPU costs, for each job that waits behind and per GPU. A job
/// behind waits for the whole of it only when it is next: 0.1 to 0.25 did best on the trace of MISO.
const PRICE: f64 = 0.15;

pub(super) fn decide(
    board: &Board<'_>,
    kinds: &[Kind],
    left: impl Fn(Option<f64>, f64) -> f64,
    fifo: bool,
    batch: bool,
) -> Vec<Order> {
    let mut desks: Vec<Desk<'_>> = board
        .gpus
        .iter()
        .filter(|desk| desk.has_room() || !desk.lasting.is_empty())
        .cloned()
        .collect();
    let mut queue: Vec<(f64, &Candidate<'_>)> = board
        .waiting
        .iter()
        .map(|candidate| {
            let left = left(candidate.facts.work, candidate.facts.attained);
            (left / candidate.facts.weight.max(1e-9), candidate)
        })
        .collect();
    if !fifo {
        // For the end of a batch the longest come first.
        let sign = if batch { -1.0 } else { 1.0 };
        queue.sort_by(|a, b| {
            (sign * a.0)
                .total_cmp(&(sign * b.0))
                .then(a.1.order.cmp(&b.1.order))
        });
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of jobs and one of GPUs")]
    let per_gpu = |jobs: usize| jobs as f64 / board.gpus.len().max(1) as f64;
    let mut orders = Vec::new();
    for (place, (_, candidate)) in queue.iter().enumerate() {
        let price = PRICE * per_gpu(queue.len() - place - 1);
        let Some((at, slot)) = best(&desks, candidate, kinds, price) else {
            if desks.is_empty() {
                break;
            }
            continue;
        };
        let desk = &mut desks[at];
        orders.push(Order {
            job: candidate.job,
            gpu: desk.gpu,
            slot: Some(slot),
            reason: format!(
                "{} has the least time and price {price:.2}",
                desk.table.named(slot)
            ),
        });
        desk.take(slot, candidate.job);
        if !desk.has_room() && desk.lasting.is_empty() {
            desks.remove(at);
        }
    }
    orders
}

fn best(
    desks: &[Desk<'_>],
    candidate: &Candidate<'_>,
    kinds: &[Kind],
    price: f64,
) -> Option<(usize, Slot)> {
    let mut best: Option<(f64, usize, Slot)> = None;
    for (at, desk) in desks.iter().enumerate().filter(|(_, desk)| candidate.may_use(desk.gpu)) {
        for (profile, share) in kinds[desk.kind].shares.iter().enumerate() {
            let speed = candidate.speed(desk.kind, desk.table, ProfileIndex(profile));
            if speed <= 0.0 {
                continue;
            }
            let cost = (1.0 + price * share) / speed;
            if best.is_none_or(|(least, _, _)| cost < least - 1e-12)
                && let Some(slot) = desk.slot_for(ProfileIndex(profile))
            {
                best = Some((cost, at, slot));
            }
        }
    }
    best.map(|(_, at, slot)| (at, slot))
}
