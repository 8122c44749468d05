//! The choice without search: each waiting job, shortest first, takes the slice on which its time and the
//! price of the space it takes from those behind it are least.

use super::super::{Board, Candidate, Desk, Order};
use super::picture::Kind;
use crate::layout::{ProfileIndex, Slot};

/// Seconds of delay that a second of a whole GPU costs, for each job that waits behind and per GPU. A job
/// behind waits for the whole of it only when it is next: 0.1 to 0.25 did best on the trace of MISO.
const PRICE: f64 = 0.15;

/// Jobs that are put in order at first.
const HEAD: usize = 128;

pub(super) fn decide(
    board: &Board<'_>,
    kinds: &[Kind],
    left: impl Fn(Option<f64>, f64) -> f64,
    fifo: bool,
    batch: bool,
) -> Vec<Order> {
    let mut offers: Vec<Offer<'_>> = board
        .gpus
        .iter()
        .filter(|desk| desk.has_room())
        .map(|desk| Offer::new(desk.clone(), &kinds[desk.kind]))
        .filter(|offer| !offer.slots.is_empty())
        .collect();
    let mut queue: Vec<(f64, &Candidate<'_>)> = board
        .waiting
        .iter()
        .map(|candidate| {
            let left = left(candidate.facts.work, candidate.facts.attained);
            (left / candidate.facts.weight.max(1e-9), candidate)
        })
        .collect();
    // For the end of a batch the longest come first.
    let sign = if batch { -1.0 } else { 1.0 };
    let before = |a: &(f64, &Candidate<'_>), b: &(f64, &Candidate<'_>)| {
        (sign * a.0)
            .total_cmp(&(sign * b.0))
            .then(a.1.order.cmp(&b.1.order))
    };
    // Nearly always the head of the queue fills what is free: the rest is put in order only when it is needed.
    let head = HEAD.min(queue.len());
    if !fifo {
        if head < queue.len() {
            queue.select_nth_unstable_by(head, before);
        }
        queue[..head].sort_by(before);
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of jobs and one of GPUs")]
    let per_gpu = |jobs: usize| jobs as f64 / board.gpus.len().max(1) as f64;
    let mut orders = Vec::new();
    for place in 0..queue.len() {
        if offers.is_empty() {
            break;
        }
        if place == head && !fifo {
            queue[head..].sort_by(before);
        }
        let candidate = queue[place].1;
        let price = PRICE * per_gpu(queue.len() - place - 1);
        let Some((at, slot)) = best(&offers, candidate, price) else {
            continue;
        };
        let Offer { mut desk, .. } = offers.remove(at);
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
        let kind = &kinds[desk.kind];
        let left = Offer::new(desk, kind);
        if !left.slots.is_empty() {
            offers.insert(at, left);
        }
    }
    orders
}

/// What a GPU has to offer: for each profile that can be had the best slot, and the part of the GPU it takes.
struct Offer<'a> {
    desk: Desk<'a>,
    slots: Vec<(f64, Slot)>,
}

impl<'a> Offer<'a> {
    fn new(desk: Desk<'a>, kind: &Kind) -> Self {
        let profiles = kind.shares.iter().enumerate();
        let slots =
            profiles.filter_map(|(profile, &share)| Some((share, desk.slot_for(ProfileIndex(profile))?)));
        Self {
            slots: slots.collect(),
            desk,
        }
    }
}

fn best(offers: &[Offer<'_>], candidate: &Candidate<'_>, price: f64) -> Option<(usize, Slot)> {
    let mut best: Option<(f64, usize, Slot)> = None;
    for (at, Offer { desk, slots }) in offers.iter().enumerate() {
        if !candidate.may_use(desk.gpu) {
            continue;
        }
        for &(share, slot) in slots {
            let speed = candidate.speed(desk.kind, desk.table, slot.0);
            let cost = (1.0 + price * share) / speed;
            if speed > 0.0 && best.is_none_or(|(least, _, _)| cost < least - 1e-12) {
                best = Some((cost, at, slot));
            }
        }
    }
    best.map(|(_, at, slot)| (at, slot))
}
