//! A GPU in trouble is put aside, and nothing else is touched by it.
//!
//! 1. Its thread says [`Aside`](super::machine::Answer::Aside). The scheduler forgets the GPU: jobs that wait
//!    get slices elsewhere, or wait on. Jobs that run there are told of it in their note; their programs meet
//!    the driver's own error, and end as they will.
//! 2. Our slices there stay known by number, and in the state file.
//! 3. [`Back`](super::machine::Answer::Back): the GPU as it is now. A slice of ours that still stands there
//!    is ours again, with its job; what is gone is forgotten; what is new is foreign.
//!
//! A slice that somebody kept from being removed is *stuck*: nobody is to wait for it to go. After a while it
//! counts as any idle slice again. Where its compute instance went and its GPU instance stayed, no job can
//! have it: it takes room, and is asked to go again after that while.

use migm_shared::ids::{Incarnation, JobId};

use super::gpus::{Aside, PlacedGpu, Use};
use super::machine::Trouble;
use super::owner::Owner;
use super::slices::{Origin, Slice};
use super::state::{SliceRecord, Step};
use crate::node::NodeError;
use crate::schedule::{Event, GpuIndex};

/// A slice that was in use by somebody is not asked to go again for this long, seconds; each further time
/// twice as long.
const STUCK: f64 = 30.0;
/// At most this long.
const STUCK_LONGEST: f64 = 600.0;

/// A slice that could not be removed.
#[derive(Clone, Debug)]
pub(super) struct Stuck {
    /// When it counts as idle again.
    until: f64,
    pause: f64,
    /// Who holds it, in the driver's and our words.
    why: String,
}

impl Stuck {
    /// Left by an earlier supervisor: asked to go at the next beat.
    pub(super) fn half_done() -> Self {
        Self {
            until: 0.0,
            pause: STUCK,
            why: "half made or half removed".to_owned(),
        }
    }
}

impl Owner {
    /// A GPU fails: no job gets it from here on.
    pub(super) fn put_aside(&mut self, gpu: u32, trouble: &Trouble, now: f64) {
        let Some(index) = self.gpus.iter().position(|one| one.gpu.index == gpu) else {
            return;
        };
        let (word, why) = match trouble {
            Trouble::Lost(error) => ("lost", error.to_string()),
            Trouble::NeedsReset(error) => ("needs-reset", error.to_string()),
            Trouble::Failing(error) => ("failing", error.to_string()),
            Trouble::ModeChanged => (
                "mig-pending",
                "its MIG mode has changed; it is read anew".to_owned(),
            ),
        };
        tracing::error!(gpu, why, "a GPU is put aside");
        let note = format!("GPU {gpu} is put aside: {why}");
        self.gpus[index].aside = Some(Aside { word, why });
        self.unsurveyed.remove(&index);
        let on: Vec<JobId> = self
            .slices
            .values()
            .filter(|slice| slice.gpu == index)
            .filter_map(|slice| slice.job)
            .collect();
        for id in on {
            if let Some(job) = self.jobs.get_mut(&id) {
                tracing::error!(job = %id, gpu, "a job runs on a GPU that is put aside");
                job.note = Some(note.clone());
            }
            self.changed(id);
        }
        let gpu = GpuIndex(index);
        self.step(now, Event::Lost { gpu });
        self.queue_waiting(now);
    }

    /// A GPU that was put aside answers again.
    pub(super) fn take_back(&mut self, mut gpu: PlacedGpu, now: f64) {
        let Some(index) = self.gpus.iter().position(|one| one.gpu.index == gpu.gpu.index) else {
            return;
        };
        tracing::info!(
            gpu = gpu.gpu.index,
            mode = gpu.gpu.mode.word(),
            "a GPU answers again"
        );
        if !self.settings.config.mode.takes(gpu.gpu.mode) {
            let why = "the configuration leaves out GPUs of its MIG mode".to_owned();
            self.gpus[index].aside = Some(Aside {
                word: "left-out",
                why,
            });
            return;
        }
        self.adopt_absent(index, &mut gpu);
        let before = &self.gpus[index];
        let here: Vec<Incarnation> = self.of_gpu(index).collect();
        let mut kept = Vec::new();
        for number in here {
            let slice = &self.slices[&number];
            match still_there(slice, before, &mut gpu) {
                Some(slot) => kept.push((number, slot)),
                None => {
                    tracing::warn!(slice = %number, "a slice has gone with its GPU's trouble");
                    self.slices.remove(&number);
                    self.stuck.remove(&number);
                }
            }
        }
        if self.forbidden.is_some() && gpu.used == Use::Reshaped && gpu.only_existing().is_err() {
            gpu.used = Use::Existing;
        }
        if gpu.used == Use::Whole && kept.is_empty() {
            let number = Incarnation(self.next_slice);
            self.next_slice += 1;
            self.slices.insert(number, Slice::whole(index, &gpu));
            kept.push((number, self.slices[&number].slot));
        }
        self.gpus[index] = gpu;
        self.dirty = true;
        self.watch_changed = true;
        self.tell_gpu(index, now);
        for (number, slot) in kept {
            let Some(slice) = self.slices.get_mut(&number) else {
                continue;
            };
            slice.slot = slot;
            if slice.step == Step::Ready {
                let event = Self::slice_event(number, slice);
                self.step(now, event);
            }
        }
        self.queue_waiting(now);
    }

    /// Slices of ours by the state file on a GPU that could not be read at the start.
    fn adopt_absent(&mut self, index: usize, gpu: &mut PlacedGpu) {
        let (back, absent) = std::mem::take(&mut self.absent)
            .into_iter()
            .partition(|record| record.gpu_uuid == gpu.gpu.uuid);
        self.absent = absent;
        let back: Vec<SliceRecord> = back;
        for record in back {
            let Some((slot, instance)) = super::recover::ours(&record, gpu) else {
                continue;
            };
            let mut slice = Slice::there(index, gpu, slot, Origin::Ours, &instance);
            slice.job = self
                .jobs
                .values()
                .find(|job| {
                    job.grant
                        .as_ref()
                        .is_some_and(|grant| grant.slice == record.slice)
                })
                .map(|job| job.id);
            if instance.cis.is_empty() {
                slice.origin = Origin::Left;
                slice.step = Step::Destroying;
                let why = "half made or half removed".to_owned();
                let stuck = Stuck {
                    until: 0.0,
                    pause: STUCK,
                    why,
                };
                self.stuck.insert(record.slice, stuck);
            }
            tracing::info!(slice = %record.slice, gi = instance.gi, "a slice of ours is back with its GPU");
            self.slices.insert(record.slice, slice);
            gpu.foreign.push(instance);
        }
    }

    /// No GPU that answers will ever do for a job. While one that could is put aside, it waits for its return.
    pub(super) fn waits_for_a_gpu(&mut self, id: JobId, reason: &str) -> bool {
        let Some(job) = self.jobs.get(&id) else {
            return false;
        };
        let list = job.submission.visible_devices.as_deref();
        let visible = list.and_then(|list| self.visible(list).ok());
        let allowed = self
            .on_devices(&job.submission.wishes.devices, visible)
            .ok()
            .flatten();
        let could = |index: usize| {
            let may = allowed
                .as_ref()
                .is_none_or(|gpus| gpus.contains(&GpuIndex(index)));
            may && self.gpus[index].gpu.memory >= job.need.max(1)
        };
        let aside = self.gpus.iter().enumerate().find_map(|(index, gpu)| {
            let aside = gpu.aside.as_ref().filter(|_| could(index))?;
            Some(format!(
                "{reason}; waits for GPU {}, put aside: {}",
                gpu.gpu.index, aside.why
            ))
        });
        let (Some(note), Some(job)) = (aside, self.jobs.get_mut(&id)) else {
            return false;
        };
        tracing::info!(job = %id, note, "waits for a GPU that is put aside");
        job.note = Some(note);
        self.changed(id);
        true
    }

    /// Numbers of the slices on a GPU.
    pub(super) fn of_gpu(&self, index: usize) -> impl Iterator<Item = Incarnation> + '_ {
        let here = self.slices.iter().filter(move |(_, slice)| slice.gpu == index);
        here.map(|(number, _)| *number)
    }

    /// A slice could not be removed.
    pub(super) fn note_stuck(&mut self, number: Incarnation, error: &NodeError, now: f64) {
        let pause = self
            .stuck
            .get(&number)
            .map_or(STUCK, |stuck| (stuck.pause * 2.0).min(STUCK_LONGEST));
        let stuck = Stuck {
            until: now + pause,
            pause,
            why: error.to_string(),
        };
        self.stuck.insert(number, stuck);
    }

    /// Why a slice could not be removed, until that is tried again.
    pub(super) fn why_stuck(&self, number: Incarnation, now: f64) -> Option<&str> {
        let stuck = self.stuck.get(&number).filter(|stuck| now < stuck.until)?;
        Some(&stuck.why)
    }

    /// Stuck slices whose time has come count as idle again.
    pub(super) fn release_stuck(&mut self, now: f64) {
        let due: Vec<Incarnation> = self
            .stuck
            .iter()
            .filter(|(_, stuck)| stuck.until.is_finite() && now >= stuck.until)
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            if let Some(stuck) = self.stuck.get_mut(&number) {
                // Kept for the length of the next pause.
                stuck.until = f64::INFINITY;
            }
            let Some(slice) = self.slices.get(&number) else {
                continue;
            };
            if slice.origin == Origin::Left {
                self.order_destroy(number);
                continue;
            }
            if slice.job.is_some() || slice.step != Step::Ready {
                continue;
            }
            let event = Self::slice_event(number, slice);
            self.step(now, Event::Vanished { slice: number });
            self.step(now, event);
        }
    }
}

/// The slot of a slice of ours that still stands on its GPU, which is then taken out of the foreign ones.
fn still_there(slice: &Slice, before: &PlacedGpu, now: &mut PlacedGpu) -> Option<crate::layout::Slot> {
    if slice.origin == Origin::Whole {
        return (now.used == Use::Whole && now.gpu.uuid == before.gpu.uuid).then_some(slice.slot);
    }
    if slice.origin == Origin::Soft {
        return (now.used == Use::Soft && now.gpu.uuid == before.gpu.uuid).then_some(slice.slot);
    }
    if slice.origin == Origin::Existing {
        return None;
    }
    // A slice that came back with its GPU has its slot in the new table already.
    let table = if before.gpu.uuid == now.gpu.uuid {
        before
    } else {
        &*now
    };
    let profile = table.table.profile(slice.slot.0).id;
    let is_it = |one: &crate::node::Instance| {
        Some(one.gi) == slice.gi
            && one.profile == profile
            && one.placement == slice.slot.1
            && one.uuid == slice.uuid
    };
    let at = now.foreign.iter().position(is_it)?;
    let slot = now.slot(profile, slice.slot.1)?;
    now.foreign.remove(at);
    Some(slot)
}
