//! What an earlier supervisor left: its slices are adopted, its half-done transitions finished or taken back.
//!
//! 1. `ready`, and the driver lists that instance at that place: ours, with or without its job.
//! 2. `creating`: nothing stood at the place when it was asked for, so an instance of that kind there is
//!    ours. Whole, it is adopted; without compute instance, it is removed.
//! 3. `destroying`: whole, it is adopted as idle; without compute instance, it is removed.
//! 4. Whatever is not named is foreign and stays as it is.

use std::collections::BTreeMap;

use migm_shared::ids::Incarnation;

use super::gpus::PlacedGpu;
use super::slices::{Origin, Slice};
use super::state::{SliceRecord, State, Step};
use crate::layout::Placement;
use crate::node::{Instance, Node};

/// Adopts what is ours, and takes it out of the foreign instances of `gpus`.
pub fn adopt(node: &dyn Node, state: &State, gpus: &mut [PlacedGpu]) -> BTreeMap<Incarnation, Slice> {
    let mut slices = BTreeMap::new();
    for record in &state.slices {
        let found = gpus
            .iter_mut()
            .enumerate()
            .find(|(_, gpu)| gpu.gpu.uuid == record.gpu_uuid);
        let Some((index, gpu)) = found else {
            tracing::warn!(slice = %record.slice, gpu = record.gpu_uuid, "the GPU of a slice of ours is not here");
            continue;
        };
        if let Some(slice) = adopt_one(node, record, index, gpu) {
            slices.insert(record.slice, slice);
        }
    }
    slices
}

fn adopt_one(node: &dyn Node, record: &SliceRecord, index: usize, gpu: &mut PlacedGpu) -> Option<Slice> {
    let placement = Placement {
        start: record.start,
        size: record.size,
    };
    let is_it = |one: &Instance| {
        one.profile == record.profile && one.placement == placement && record.gi.is_none_or(|gi| gi == one.gi)
    };
    let Some(at) = gpu.foreign.iter().position(is_it) else {
        tracing::info!(slice = %record.slice, start = record.start, "a slice of an earlier supervisor is gone");
        return None;
    };
    let instance = gpu.foreign[at].clone();
    let slot = gpu.slot(record.profile, placement);
    let whole = !instance.cis.is_empty() && instance.uuid.is_some();
    if let Some(slot) = slot.filter(|_| whole) {
        gpu.foreign.remove(at);
        tracing::info!(
            slice = %record.slice, gi = instance.gi, profile = gpu.profile_name(record.profile),
            start = record.start, step = ?record.step, "adopted a slice of an earlier supervisor"
        );
        return Some(Slice::there(index, gpu, slot, Origin::Ours, &instance));
    }
    // Half made or half removed: nobody can run on it, and only we know of it.
    match node.destroy(gpu.gpu.index, instance.gi) {
        Ok(()) => {
            gpu.foreign.remove(at);
            tracing::info!(slice = %record.slice, gi = instance.gi, "removed a slice that was half done");
            None
        }
        Err(error) => {
            tracing::error!(slice = %record.slice, %error, "a half-done slice cannot be removed and is left");
            let slot = slot?;
            gpu.foreign.remove(at);
            let mut slice = Slice::there(index, gpu, slot, Origin::Left, &instance);
            slice.step = Step::Destroying;
            Some(slice)
        }
    }
}
