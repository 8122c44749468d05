//! `migm node clear`: idle slices of ours go, on request.
//!
//! The scheduler forgets such a slice at once and takes its ground for foreign until the driver has answered,
//! so that no job is placed there meanwhile. Busy, stuck and foreign ones stay, and are named.

use std::collections::BTreeSet;

use migm_shared::ids::Incarnation;

use super::job::Peer;
use super::owner::Owner;
use super::slices::Origin;
use super::state::Step;
use crate::control::Reply;
use crate::node::NodeError;
use crate::schedule::{Event, SliceState};

/// A request under way.
#[derive(Debug)]
pub(super) struct Clearing {
    peer: Peer,
    /// Not answered by the driver yet.
    left: BTreeSet<Incarnation>,
    removed: u32,
    kept: Vec<String>,
    failed: Vec<String>,
}

impl Owner {
    /// Removes the idle slices of ours, on one GPU or on all.
    pub(super) fn clear(&mut self, peer: Peer, device: Option<u32>, now: f64) {
        let us = nix::unistd::geteuid().as_raw();
        if !self.may(peer, us) {
            self.refuse(peer, "the supervisor belongs to another user");
            return;
        }
        let is_asked = |index: u32| device.is_none_or(|device| device == index);
        if !self.gpus.iter().any(|gpu| is_asked(gpu.gpu.index)) {
            let count = self.gpus.len();
            self.refuse(peer, format!("there is no such GPU; this supervisor has {count}"));
            return;
        }
        let mut clearing = Clearing {
            peer,
            left: BTreeSet::new(),
            removed: 0,
            kept: Vec::new(),
            failed: Vec::new(),
        };
        for (number, slice) in &self.slices {
            let gpu = &self.gpus[slice.gpu];
            if !is_asked(gpu.gpu.index) {
                continue;
            }
            let reserved = self
                .scheduler
                .slice(*number)
                .is_some_and(|slice| matches!(slice.state, SliceState::Reserved(_)));
            let why = match (slice.origin, slice.step, slice.job) {
                (Origin::Whole | Origin::Soft, ..) => continue,
                (Origin::Existing, ..) => "is foreign".to_owned(),
                (Origin::Left, ..) => "is half made and cannot be removed".to_owned(),
                (_, _, Some(job)) => format!("is busy with job {job}"),
                (_, Step::Creating, _) => "is being created".to_owned(),
                (_, Step::Destroying, _) => "is being removed already".to_owned(),
                _ if reserved => "is kept for a waiting job".to_owned(),
                _ if gpu.aside.is_some() => "is on a GPU that is put aside".to_owned(),
                _ => {
                    clearing.left.insert(*number);
                    continue;
                }
            };
            clearing.kept.push(format!("{} {why}", self.place_of(*number)));
        }
        for gpu in self.gpus.iter().filter(|gpu| is_asked(gpu.gpu.index)) {
            for one in &gpu.foreign {
                let name = gpu.profile_name(one.profile);
                let place = format!("{name}@{} on GPU {}", one.placement.start, gpu.gpu.index);
                clearing.kept.push(format!("{place} is foreign"));
            }
        }
        let going = clearing.left.clone();
        self.clearing.push(clearing);
        for number in going {
            let Some(index) = self.slices.get(&number).map(|slice| slice.gpu) else {
                continue;
            };
            // Its ground first, so that nothing is placed there.
            self.tell_gpu(index, now);
            self.step(now, Event::Vanished { slice: number });
            self.order_destroy(number);
        }
        self.answer_cleared();
    }

    /// Whether a slice is on its way out by such a request.
    pub(super) fn is_clearing(&self, number: Incarnation) -> bool {
        self.clearing.iter().any(|one| one.left.contains(&number))
    }

    /// The driver has answered; the slice is out of the owner's list where it is gone.
    pub(super) fn cleared(&mut self, number: Incarnation, result: Result<(), &NodeError>, now: f64) {
        let place = self.place_of(number);
        for clearing in &mut self.clearing {
            match result {
                _ if !clearing.left.remove(&number) => {}
                Ok(()) => clearing.removed += 1,
                Err(error) => clearing.failed.push(format!("{place}: {error}")),
            }
        }
        let standing = self.slices.get(&number).filter(|slice| slice.step == Step::Ready);
        if let Some(slice) = standing {
            let (index, event) = (slice.gpu, Self::slice_event(number, slice));
            self.tell_gpu(index, now);
            self.step(now, event);
        }
        self.answer_cleared();
    }

    fn answer_cleared(&mut self) {
        let (done, left) = std::mem::take(&mut self.clearing)
            .into_iter()
            .partition(|one: &Clearing| one.left.is_empty());
        self.clearing = left;
        let done: Vec<Clearing> = done;
        for clearing in done {
            let Clearing {
                peer,
                removed,
                kept,
                failed,
                ..
            } = clearing;
            self.reply(
                peer,
                Reply::Cleared {
                    removed,
                    kept,
                    failed,
                },
            );
        }
    }

    /// `1g.5gb@3 on GPU 0`.
    fn place_of(&self, number: Incarnation) -> String {
        let Some(slice) = self.slices.get(&number) else {
            return format!("slice {number}");
        };
        let gpu = &self.gpus[slice.gpu];
        format!("{} on GPU {}", gpu.table.named(slice.slot), gpu.gpu.index)
    }
}
