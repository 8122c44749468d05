//! Which slice a job should get: no state is changed here.

use std::cmp::Reverse;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::Bytes;

use super::machine::{Scheduler, Waiting};
use super::{GpuIndex, Policy, SliceState};
use crate::layout::{Plan, ProfileIndex, Slot};

/// How a waiting job can be served.
#[derive(Debug)]
pub(super) enum Choice {
    /// This slice, idle or being created for no job any more.
    Take { slice: Incarnation },
    /// A slice to be created, `destroy` gone first.
    Make {
        gpu: GpuIndex,
        profile: ProfileIndex,
        plan: Plan,
        destroy: Vec<Incarnation>,
    },
    /// Not before something changes.
    Wait,
    /// Never.
    Never { reason: String },
}

impl Scheduler {
    /// How `job` is served now. The tightest memory size wins over all GPUs; within it the profile with the
    /// most multiprocessors; then an idle slice before a new one.
    pub(super) fn choose(&self, job: &Waiting) -> Choice {
        let mut options: Vec<(GpuIndex, Vec<ProfileIndex>)> = Vec::new();
        for &gpu in self.gpus.keys() {
            let class = self.class(gpu, job);
            if !class.is_empty() {
                options.push((gpu, class));
            }
        }
        if options.is_empty() {
            return if self.gpus.is_empty() {
                Choice::Wait
            } else {
                Choice::Never {
                    reason: self.why_never(job),
                }
            };
        }
        let mut ranked: Vec<(u64, u32, GpuIndex, ProfileIndex)> = Vec::new();
        for (gpu, class) in options {
            for profile in class {
                let kind = self.gpus[&gpu].table.profile(profile);
                ranked.push((kind.memory, kind.sms, gpu, profile));
            }
        }
        ranked.sort_by_key(|&(memory, sms, gpu, profile)| (memory, Reverse(sms), gpu, profile));
        for same in ranked.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let kinds: Vec<(GpuIndex, ProfileIndex)> = same.iter().map(|k| (k.2, k.3)).collect();
            if let Some(slice) = self.idle_of(&kinds) {
                return Choice::Take { slice };
            }
            // The room that these make is waited for, else more would be destroyed than the job needs.
            if self.going() > 0 {
                return Choice::Wait;
            }
            if let Some(make) = self.make_one_of(&kinds) {
                return make;
            }
        }
        Choice::Wait
    }

    /// The profiles of one memory size that `job` should get on this GPU: the least that holds its need,
    /// is larger than what it had, and can be had there at all. Empty when there is none.
    fn class(&self, gpu: GpuIndex, job: &Waiting) -> Vec<ProfileIndex> {
        let table = &self.gpus[&gpu].table;
        if !self.may_use(job.job, gpu) {
            return Vec::new();
        }
        let mut fit: Vec<ProfileIndex> = self.allowed(gpu, job.need.device_bytes);
        fit.retain(|&profile| table.profile(profile).memory > job.outgrown);
        fit.retain(|&profile| self.can_ever(gpu, profile));
        let least = fit.first().map(|&profile| table.profile(profile).memory);
        fit.retain(|&profile| Some(table.profile(profile).memory) == least);
        fit
    }

    /// Profiles of the GPU that the policy admits and that hold `bytes`, tightest first.
    fn allowed(&self, gpu: GpuIndex, bytes: u64) -> Vec<ProfileIndex> {
        let table = &self.gpus[&gpu].table;
        let mut fit = table.tightest(bytes);
        if self.policy == Policy::Sequential {
            fit.retain(|&profile| profile == table.full());
        }
        fit
    }

    /// Whether a slice of this profile is there to stay or could be made if every job of ours had ended.
    fn can_ever(&self, gpu: GpuIndex, profile: ProfileIndex) -> bool {
        let here = || self.slices.values().filter(|slice| slice.gpu == gpu);
        if here().any(|slice| slice.profile == profile && slice.state != SliceState::Destroying) {
            return true;
        }
        let lasting = here().filter(|slice| slice.fixed || (slice.stuck && slice.state == SliceState::Idle));
        let pinned: Vec<Slot> = self.gpus[&gpu]
            .foreign
            .iter()
            .copied()
            .chain(lasting.map(|slice| slice.slot()))
            .collect();
        self.gpus[&gpu]
            .lasting()
            .plan_for(&pinned, &[], profile)
            .is_some()
    }

    /// The slice of these kinds to use: one that exists before one being created; one that cannot be
    /// destroyed before one that can, since it is of no other use; then the one that leaves most full layouts
    /// in reach were all other idle slices gone.
    fn idle_of(&self, kinds: &[(GpuIndex, ProfileIndex)]) -> Option<Incarnation> {
        let idle = self.slices.iter().filter(|(_, slice)| {
            let free = matches!(slice.state, SliceState::Idle | SliceState::Creating(None));
            free && kinds.contains(&(slice.gpu, slice.profile))
        });
        let ranked = idle.map(|(&number, slice)| {
            let mut taken = self.pinned(slice.gpu);
            if slice.is_spare() {
                taken.push(slice.slot());
            }
            let table = &self.gpus[&slice.gpu].table;
            let reachable = table.state_of(&taken).map_or(0, |state| table.reachable(state));
            // Of those being created the one asked for first is there first.
            let coming = (slice.state != SliceState::Idle).then_some(number);
            (
                coming,
                slice.is_spare(),
                Reverse(reachable),
                slice.gpu,
                slice.placement,
                number,
            )
        });
        ranked.min().map(|ranked| ranked.5)
    }

    /// A new slice of one of these kinds: fewest idle slices destroyed, then most full layouts in reach,
    /// then the first GPU.
    fn make_one_of(&self, kinds: &[(GpuIndex, ProfileIndex)]) -> Option<Choice> {
        let plans = kinds.iter().filter_map(|&(gpu, profile)| {
            let spare: Vec<(Incarnation, Slot)> = self.spare(gpu);
            let slots: Vec<Slot> = spare.iter().map(|(_, slot)| *slot).collect();
            let plan = self.gpus[&gpu]
                .table
                .plan_for(&self.pinned(gpu), &slots, profile)?;
            let destroy = plan
                .destroy
                .iter()
                .map(|&index| spare[index].0)
                .collect::<Vec<_>>();
            Some((gpu, profile, plan, destroy))
        });
        let best = plans.min_by_key(|(gpu, profile, plan, destroy)| {
            (
                destroy.len(),
                Reverse(plan.reachable),
                *gpu,
                *profile,
                plan.placement,
            )
        });
        best.map(|(gpu, profile, plan, destroy)| Choice::Make {
            gpu,
            profile,
            plan,
            destroy,
        })
    }

    /// Slots of a GPU that must stay as they are for now.
    pub(super) fn pinned(&self, gpu: GpuIndex) -> Vec<Slot> {
        let ours = self
            .slices
            .values()
            .filter(|slice| slice.gpu == gpu && !slice.is_spare());
        self.gpus[&gpu]
            .foreign
            .iter()
            .copied()
            .chain(ours.map(|slice| slice.slot()))
            .collect()
    }

    /// Slices of a GPU that may be destroyed.
    fn spare(&self, gpu: GpuIndex) -> Vec<(Incarnation, Slot)> {
        let ours = self
            .slices
            .iter()
            .filter(|(_, slice)| slice.gpu == gpu && slice.is_spare());
        ours.map(|(&number, slice)| (number, slice.slot())).collect()
    }

    /// Why no slice of this node will ever serve `job`, with the figures.
    pub(super) fn why_never(&self, job: &Waiting) -> String {
        let wanted = match (job.need.device_bytes, job.outgrown) {
            (0, 0) => "needs a slice".to_owned(),
            (need, had) if had >= need => format!("needs more than the {} it had", Bytes(had)),
            (need, _) => format!("needs {}", Bytes(need)),
        };
        let mut largest: Option<(u64, &str)> = None;
        let mut hindered = Vec::new();
        for (&gpu, state) in self.gpus.iter().filter(|(gpu, _)| self.may_use(job.job, **gpu)) {
            for profile in self.allowed(gpu, 0) {
                let kind = state.table.profile(profile);
                if self.can_ever(gpu, profile) {
                    if largest.is_none_or(|(most, _)| kind.memory > most) {
                        largest = Some((kind.memory, &kind.name));
                    }
                } else if kind.memory >= job.need.device_bytes && kind.memory > job.outgrown {
                    hindered.push(format!(
                        "{} on GPU {}{}",
                        kind.name,
                        gpu.0,
                        self.what_is_in_the_way(gpu)
                    ));
                }
            }
        }
        let offer = match largest {
            Some((memory, name)) => format!(
                "the largest slice to be had here is {name} with {}",
                Bytes(memory)
            ),
            None if self.restricted.contains_key(&job.job) => {
                "no slice can be had on the GPUs that it may use".to_owned()
            }
            None => "no slice can be had here".to_owned(),
        };
        if hindered.is_empty() {
            format!("{wanted}; {offer}")
        } else {
            format!("{wanted}; {offer}; not to be had: {}", hindered.join(", "))
        }
    }

    /// The slices on a GPU that we cannot remove, in brackets.
    fn what_is_in_the_way(&self, gpu: GpuIndex) -> String {
        let state = &self.gpus[&gpu];
        let mut names: Vec<String> = state
            .foreign
            .iter()
            .map(|&slot| format!("foreign {}", state.table.named(slot)))
            .collect();
        for slice in self.slices.values().filter(|slice| slice.gpu == gpu) {
            let name = state.table.named(slice.slot());
            if slice.fixed {
                names.push(format!("fixed {name}"));
            } else if slice.stuck {
                names.push(format!("{name}, which cannot be removed"));
            }
        }
        if let Err(misfit) = state.table.state_of(&self.pinned(gpu)) {
            names.push(format!("a layout that is not understood: {misfit}"));
        }
        if names.is_empty() {
            " (the driver refuses it)".to_owned()
        } else {
            format!(" ({})", names.join(", "))
        }
    }

    /// Whether some slice that the job may use and that is larger than `had` bytes could ever hold `need` bytes.
    pub(super) fn could_hold(&self, job: JobId, need: u64, had: u64) -> bool {
        let gpus = self.gpus.iter().filter(|(gpu, _)| self.may_use(job, **gpu));
        gpus.into_iter().any(|(&gpu, state)| {
            let fit = self.allowed(gpu, need);
            fit.iter()
                .any(|&profile| state.table.profile(profile).memory > had && self.can_ever(gpu, profile))
        })
    }
}
