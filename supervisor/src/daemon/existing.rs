//! Instances that are not ours: worked around, or, where none can be made, used while they are idle.

use migm_shared::ids::{Incarnation, JobId};

use super::gpus::Use;
use super::job::Job;
use super::machine::Order;
use super::owner::Owner;
use super::slices::{Origin, Slice, stranger};
use super::state::Step;
use crate::control::JobState;
use crate::node::{Instance, NodeError};
use crate::schedule::Event;

impl Owner {
    /// This user may not make instances: from here on those that exist are used, for the jobs that allow it. The
    /// others get what needs no instance, a GPU without MIG say.
    pub(super) fn forbid(&mut self, error: &NodeError, now: f64) {
        let reason = format!("{error}; or use idle slices that exist with --use-existing");
        self.forbidden = Some(reason.clone());
        for gpu in self.gpus.iter_mut().filter(|gpu| gpu.used == Use::Reshaped) {
            if let Err(error) = gpu.only_existing() {
                tracing::info!(gpu = gpu.gpu.index, %error, "no instance to use");
                gpu.used = Use::Existing;
                gpu.table = gpu.table.frozen().into();
            }
        }
        let without = |job: &&Job| job.state == JobState::Waiting && self.usable(&job.submission).is_err();
        let refused: Vec<JobId> = self.jobs.values().filter(without).map(|job| job.id).collect();
        for id in refused {
            self.give_up(id, reason.clone(), now);
        }
        self.unsurveyed = (0..self.gpus.len())
            .filter(|index| self.gpus[*index].used == Use::Existing && self.gpus[*index].aside.is_none())
            .collect();
        self.feed(now);
        self.orders.push(Order::Survey);
    }

    /// Compares what the driver lists with what we know.
    pub(super) fn seen(&mut self, gpu: u32, instances: Vec<Instance>, occupied: &[u32], now: f64) {
        let Some(index) = self.gpus.iter().position(|one| one.gpu.index == gpu) else {
            return;
        };
        let gone: Vec<Incarnation> = self
            .slices
            .iter()
            .filter(|(_, slice)| slice.gpu == index && slice.step == Step::Ready && slice.gi.is_some())
            .filter(|(_, slice)| instances.iter().all(|one| Some(one.gi) != slice.gi))
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            tracing::warn!(slice = %number, "a slice has gone without us");
            self.slices.remove(&number);
            self.dirty = true;
            self.step(now, Event::Vanished { slice: number });
        }
        let mine = |one: &Instance| {
            self.slices.values().any(|slice| {
                slice.gpu == index
                    && slice.origin != Origin::Existing
                    // A create under way is not told by id yet.
                    && (slice.gi == Some(one.gi) || slice.gi.is_none() && slice.slot.1 == one.placement)
            })
        };
        let foreign: Vec<Instance> = instances.into_iter().filter(|one| !mine(one)).collect();
        if self.gpus[index].used == Use::Existing {
            self.gpus[index].foreign = foreign;
            self.offer_existing(index, occupied, now);
        } else if self.gpus[index].foreign != foreign {
            tracing::info!(
                gpu,
                count = foreign.len(),
                "instances that are not ours have changed"
            );
            self.gpus[index].foreign = foreign;
            self.tell_gpu(index, now);
        }
    }

    /// Instances of others become slices. One that its owner runs on counts as leased to a stranger, so
    /// that a job waits for it rather than being told that there is none.
    pub(super) fn offer_existing(&mut self, index: usize, occupied: &[u32], now: f64) {
        let is_known = |gi: u32| {
            self.slices
                .values()
                .any(|slice| slice.gpu == index && slice.gi == Some(gi))
        };
        let gpu = &self.gpus[index];
        let fresh: Vec<Slice> = gpu
            .foreign
            .iter()
            .filter(|one| one.uuid.is_some() && !is_known(one.gi))
            .filter_map(|one| {
                let slot = gpu.slot(one.profile, one.placement)?;
                let mut slice = Slice::there(index, gpu, slot, Origin::Existing, one);
                slice.taken = occupied.contains(&one.gi);
                Some(slice)
            })
            .collect();
        for slice in fresh {
            let number = Incarnation(self.next_slice);
            self.next_slice += 1;
            let event = Self::slice_event(number, &slice);
            self.slices.insert(number, slice);
            self.step(now, event);
        }
        let existing: Vec<Incarnation> = self
            .slices
            .iter()
            .filter(|(_, slice)| {
                slice.gpu == index && slice.origin == Origin::Existing && slice.job.is_none()
            })
            .map(|(number, _)| *number)
            .collect();
        for number in existing {
            self.note_taken(number, occupied, now);
        }
        if self.unsurveyed.remove(&index) && self.unsurveyed.is_empty() {
            self.queue_waiting(now);
        }
    }

    /// The owner of an unleased slice has come to run on it, or has gone.
    pub(super) fn note_taken(&mut self, number: Incarnation, occupied: &[u32], now: f64) {
        let Some(slice) = self.slices.get_mut(&number) else {
            return;
        };
        let taken = slice.gi.is_some_and(|gi| occupied.contains(&gi));
        if std::mem::replace(&mut slice.taken, taken) == taken || slice.job.is_some() {
            return;
        }
        let event = Self::slice_event(number, slice);
        if taken {
            self.step(now, Event::Vanished { slice: number });
            self.step(now, event);
        } else {
            let job = stranger(number);
            self.step(now, Event::Ended { job, again: None });
        }
    }
}
