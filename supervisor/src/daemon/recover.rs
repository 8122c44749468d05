//! What an earlier supervisor left: its slices are adopted, its half-done transitions finished or taken back.
//!
//! 1. `ready`, and the driver lists that instance at that place: ours, with or without its job. Its id is not
//!    enough, since an id is a function of the place and is used again; a MIG device with another UUID than the
//!    one noted is somebody else's, made after ours had gone.
//! 2. `creating`: nothing stood at the place when it was asked for, so an instance of that kind there is
//!    ours. Whole, it is adopted; without compute instance, it is removed.
//! 3. `destroying`: whole, it is adopted as idle; without compute instance, it is removed.
//! 4. Whatever is not named is foreign and stays as it is.
//! 5. What is named on a GPU that cannot be read now stays named, until that GPU answers.

use std::collections::BTreeMap;

use migm_shared::ids::Incarnation;

use super::gpus::PlacedGpu;
use super::slices::{Origin, Slice};
use super::state::{SliceRecord, State, Step};
use crate::layout::{Placement, Slot};
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

/// The instance that a record of ours tells of, taken out of the foreign ones, with its slot in the GPU's table.
pub(super) fn ours(record: &SliceRecord, gpu: &mut PlacedGpu) -> Option<(Slot, Instance)> {
    let placement = Placement {
        start: record.start,
        size: record.size,
    };
    let is_it = |one: &Instance| {
        one.profile == record.profile
            && one.placement == placement
            && record.gi.is_none_or(|gi| gi == one.gi)
            && (one.uuid.is_none() || record.uuid.is_none() || one.uuid == record.uuid)
    };
    let at = gpu.foreign.iter().position(is_it)?;
    // One of a kind that the table does not have is left where it is.
    let slot = gpu.slot(record.profile, placement)?;
    Some((slot, gpu.foreign.remove(at)))
}

fn adopt_one(node: &dyn Node, record: &SliceRecord, index: usize, gpu: &mut PlacedGpu) -> Option<Slice> {
    let Some((slot, instance)) = ours(record, gpu) else {
        tracing::info!(slice = %record.slice, start = record.start, "a slice of an earlier supervisor is gone");
        return None;
    };
    if !instance.cis.is_empty() && instance.uuid.is_some() {
        tracing::info!(
            slice = %record.slice, gi = instance.gi, profile = gpu.profile_name(record.profile),
            start = record.start, step = ?record.step, "adopted a slice of an earlier supervisor"
        );
        return Some(Slice::there(index, gpu, slot, Origin::Ours, &instance));
    }
    // Half made or half removed: nobody can run on it, and only we know of it.
    match node.destroy(gpu.gpu.index, instance.gi) {
        Ok(()) => {
            tracing::info!(slice = %record.slice, gi = instance.gi, "removed a slice that was half done");
            None
        }
        Err(error) => {
            tracing::error!(slice = %record.slice, %error, "a half-done slice cannot be removed and is left");
            let mut slice = Slice::there(index, gpu, slot, Origin::Left, &instance);
            slice.step = Step::Destroying;
            Some(slice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Profile, Rules, Table};
    use crate::node::{Code, Gpu, Memory, MigMode, NodeError, Process};
    use std::sync::Mutex;

    const AT_0: Placement = Placement { start: 0, size: 1 };
    const AT_1: Placement = Placement { start: 1, size: 1 };

    /// A machine whose instances are what the test says. With `stuck` they are all in use.
    struct Scripted {
        removed: Mutex<Vec<u32>>,
        stuck: bool,
    }

    impl Node for Scripted {
        fn gpus(&self) -> Result<Vec<Gpu>, NodeError> {
            Ok(vec![])
        }
        fn driver(&self) -> Result<String, NodeError> {
            Ok("535.1".into())
        }
        fn profiles(&self, _: u32) -> Result<Vec<Profile>, NodeError> {
            Ok(vec![])
        }
        fn instances(&self, _: u32) -> Result<Vec<Instance>, NodeError> {
            Ok(vec![])
        }
        fn create(&self, _: u32, _: &Profile, _: Placement) -> Result<Instance, NodeError> {
            Err(NodeError::Nvml {
                tried: "creating".into(),
                code: Code::NOT_SUPPORTED,
            })
        }
        fn destroy(&self, _: u32, gi: u32) -> Result<(), NodeError> {
            if self.stuck {
                return Err(NodeError::Nvml {
                    tried: "removing".into(),
                    code: Code::IN_USE,
                });
            }
            self.removed.lock().unwrap().push(gi);
            Ok(())
        }
        fn energy_mj(&self, _: u32) -> Result<Option<u64>, NodeError> {
            Ok(None)
        }
        fn memory(&self, _: u32) -> Result<Memory, NodeError> {
            Ok(Memory::default())
        }
        fn slice_memory(&self, _: &str) -> Result<Memory, NodeError> {
            Ok(Memory::default())
        }
        fn processes(&self, _: u32) -> Result<Vec<Process>, NodeError> {
            Ok(vec![])
        }
    }

    fn gpu(foreign: Vec<Instance>) -> PlacedGpu {
        let profile = Profile {
            id: 19,
            name: "1g.5gb".into(),
            compute: 1,
            sms: 14,
            memory: 5 << 30,
            count: 2,
            engines: [0; 5],
            placements: vec![AT_0, AT_1],
        };
        PlacedGpu {
            gpu: Gpu {
                index: 0,
                name: "A100".into(),
                uuid: "GPU-a".into(),
                memory: 40 << 30,
                mode: MigMode::On,
            },
            used: super::super::gpus::Use::Reshaped,
            table: std::sync::Arc::new(Table::build(vec![profile.clone()], Rules::default()).unwrap()),
            profiles: vec![profile],
            foreign,
            aside: None,
        }
    }

    fn instance(gi: u32, placement: Placement, whole: bool) -> Instance {
        Instance {
            gi,
            profile: 19,
            placement,
            cis: if whole { vec![0] } else { vec![] },
            uuid: whole.then(|| format!("MIG-{gi}")),
            memory: whole.then_some(4 << 30),
        }
    }

    fn record(slice: u64, gi: Option<u32>, placement: Placement, step: Step) -> SliceRecord {
        SliceRecord {
            slice: Incarnation(slice),
            gpu_uuid: "GPU-a".into(),
            gi,
            profile: 19,
            start: placement.start,
            size: placement.size,
            step,
            uuid: None,
        }
    }

    /// Adopted slices, what is left as foreign, and what was removed.
    fn recover(
        records: Vec<SliceRecord>,
        there: Vec<Instance>,
        stuck: bool,
    ) -> (BTreeMap<Incarnation, Slice>, Vec<Instance>, Vec<u32>) {
        let node = Scripted {
            removed: Mutex::default(),
            stuck,
        };
        let state = State {
            slices: records,
            ..State::default()
        };
        let mut gpus = vec![gpu(there)];
        let slices = adopt(&node, &state, &mut gpus);
        (slices, gpus.remove(0).foreign, node.removed.into_inner().unwrap())
    }

    #[test]
    fn ours_is_adopted_and_a_neighbour_of_the_same_kind_stays_foreign() {
        let there = vec![instance(7, AT_0, true), instance(8, AT_1, true)];
        let (slices, foreign, removed) = recover(vec![record(3, Some(7), AT_0, Step::Ready)], there, false);
        assert_eq!(slices[&Incarnation(3)].gi, Some(7));
        assert_eq!(slices[&Incarnation(3)].memory, 4 << 30);
        assert_eq!(foreign, [instance(8, AT_1, true)]);
        assert!(removed.is_empty());
    }

    #[test]
    fn killed_after_the_gpu_instance_and_before_its_compute_instance() {
        let (slices, foreign, removed) = recover(
            vec![record(3, None, AT_0, Step::Creating)],
            vec![instance(7, AT_0, false)],
            false,
        );
        assert!(slices.is_empty() && foreign.is_empty());
        assert_eq!(removed, [7]);
    }

    #[test]
    fn killed_after_a_create_and_before_it_was_noted() {
        let (slices, ..) = recover(
            vec![record(3, None, AT_0, Step::Creating)],
            vec![instance(7, AT_0, true)],
            false,
        );
        let slice = &slices[&Incarnation(3)];
        assert_eq!(
            (slice.gi, slice.step, slice.origin),
            (Some(7), Step::Ready, Origin::Ours)
        );
    }

    #[test]
    fn killed_before_a_create_or_after_a_destroy() {
        let records = vec![
            record(3, None, AT_0, Step::Creating),
            record(4, Some(8), AT_1, Step::Destroying),
        ];
        let (slices, foreign, removed) = recover(records, vec![], false);
        assert!(slices.is_empty() && foreign.is_empty() && removed.is_empty());
    }

    #[test]
    fn killed_between_the_two_halves_of_a_destroy() {
        let (slices, _, removed) = recover(
            vec![record(4, Some(8), AT_1, Step::Destroying)],
            vec![instance(8, AT_1, false)],
            false,
        );
        assert!(slices.is_empty());
        assert_eq!(removed, [8]);
    }

    #[test]
    fn another_instance_at_our_place_is_not_ours() {
        let (slices, foreign, removed) = recover(
            vec![record(4, Some(8), AT_1, Step::Ready)],
            vec![instance(9, AT_1, true)],
            false,
        );
        assert!(slices.is_empty() && removed.is_empty());
        assert_eq!(foreign.len(), 1);
    }

    /// The instance id is the same, as it is a function of the place: only the UUID tells.
    #[test]
    fn what_somebody_made_in_the_place_of_ours_is_foreign() {
        let mut ours = record(4, Some(8), AT_1, Step::Ready);
        ours.uuid = Some("MIG-before".into());
        let (slices, foreign, removed) = recover(vec![ours.clone()], vec![instance(8, AT_1, true)], false);
        assert!(slices.is_empty() && removed.is_empty());
        assert_eq!(foreign.len(), 1);
        ours.uuid = Some("MIG-8".into());
        let (slices, foreign, _) = recover(vec![ours], vec![instance(8, AT_1, true)], false);
        assert_eq!((slices.len(), foreign.len()), (1, 0));
    }

    #[test]
    fn a_half_that_cannot_be_removed_takes_room_and_stays_named() {
        let (slices, foreign, _) = recover(
            vec![record(4, Some(8), AT_1, Step::Destroying)],
            vec![instance(8, AT_1, false)],
            true,
        );
        assert!(foreign.is_empty());
        let slice = &slices[&Incarnation(4)];
        assert_eq!(slice.origin, Origin::Left);
        let kept = slice.record(Incarnation(4), &[gpu(vec![])]).unwrap();
        assert_eq!(kept.step, Step::Destroying);
    }
}
