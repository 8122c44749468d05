//! Which slice a job should get: no state is changed here.

use std::cmp::Reverse;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::Bytes;

use super::board::serves;
use super::machine::{Scheduler, Waiting};
use super::{GpuIndex, Policy, SliceState};
use crate::layout::placing::{Cost, PlacementRule};
use crate::layout::{Goal, ProfileIndex, Slot, StateIndex, Step, Transition};

/// Waiting jobs that a place is chosen for besides the first: more than one GPU holds at a time.
const LOOK_AHEAD: usize = 8;

/// How a waiting job can be served.
#[derive(Debug)]
pub(super) enum Choice {
    /// This slice, idle or being created for no job any more.
    Take { slice: Incarnation },
    /// A slice to be created on free ground, after which so many full layouts stay in reach.
    Make {
        gpu: GpuIndex,
        slot: Slot,
        reachable: usize,
    },
    /// These go first; then it is planned again from what stands.
    Clear { slices: Vec<Incarnation> },
    /// Another slice comes first: the driver refuses the job's own where that one does not stand.
    Detour { gpu: GpuIndex, slot: Slot },
    /// A soft slice of so many bytes.
    Lease { gpu: GpuIndex, bytes: u64 },
    /// Not before something changes.
    Wait,
    /// Never.
    Never { reason: String },
}

/// What jobs further back in the queue will take.
#[derive(Debug, Default)]
struct Behind {
    /// Idle slices, in the order of the jobs.
    awaited: Vec<Incarnation>,
    /// For each of the others the profiles that it may get.
    following: Vec<Vec<ProfileIndex>>,
}

impl Scheduler {
    /// How `job` is served now by a slice of a fixed kind. The tightest memory size wins over all GPUs; within it the profile with the
    /// most multiprocessors; then an idle slice before a new one.
    pub(super) fn choose_slice(&self, job: &Waiting) -> Choice {
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
            if let Some(make) = self.make_one_of(job, &kinds) {
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
        let mut fit: Vec<ProfileIndex> = self.allowed(gpu, job.job, job.need.device_bytes);
        fit.retain(|&profile| table.profile(profile).memory > job.outgrown);
        fit.retain(|&profile| self.can_ever(gpu, profile));
        let least = fit.first().map(|&profile| table.profile(profile).memory);
        fit.retain(|&profile| Some(table.profile(profile).memory) == least);
        fit
    }

    /// Profiles of the GPU that the policy and the job's user admit and that hold `bytes`, tightest first.
    fn allowed(&self, gpu: GpuIndex, job: JobId, bytes: u64) -> Vec<ProfileIndex> {
        let table = &self.gpus[&gpu].table;
        let wish = self.terms.wish(job);
        let mut fit = table.tightest(bytes);
        fit.retain(|&profile| self.is_offered(gpu, profile) && wish.admits(table, profile));
        fit
    }

    /// Whether the policy gives slices of this profile at all.
    fn is_offered(&self, gpu: GpuIndex, profile: ProfileIndex) -> bool {
        let used = |offered: &Vec<ProfileIndex>| offered.contains(&profile);
        let gpu = &self.gpus[&gpu];
        (self.policy != Policy::Sequential || profile == gpu.table.full())
            && gpu.offered.as_ref().is_none_or(used)
    }

    /// Profiles of the GPU that the policy gives.
    pub(super) fn offered(&self, gpu: GpuIndex) -> Vec<ProfileIndex> {
        let mut all = self.gpus[&gpu].table.tightest(0);
        all.retain(|&profile| self.is_offered(gpu, profile));
        all
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
        let lasting = self.gpus[&gpu].lasting();
        let state = lasting.state_of(&pinned);
        state.is_ok_and(|state| lasting.has_room(state, profile))
    }

    /// The slice of these kinds to use: one that exists before one being created; one that cannot be
    /// destroyed before one that can, since it is of no other use; then the one whose place would cost least to
    /// take were all other idle slices gone.
    fn idle_of(&self, kinds: &[(GpuIndex, ProfileIndex)]) -> Option<Incarnation> {
        let idle = self.slices.iter().filter(|(_, slice)| {
            let free = matches!(slice.state, SliceState::Idle | SliceState::Creating(None));
            free && kinds.contains(&(slice.gpu, slice.profile))
        });
        let ranked = idle.map(|(&number, slice)| {
            let cost = if slice.is_spare() {
                self.cost(slice.gpu, &self.pinned(slice.gpu), slice.slot())
            } else {
                Cost::default()
            };
            // Of those being created the one asked for first is there first.
            let coming = (slice.state != SliceState::Idle).then_some(number);
            (coming, slice.is_spare(), cost, slice.gpu, slice.placement, number)
        });
        ranked.min().map(|ranked| ranked.5)
    }

    /// What a slot more costs where these are taken; the most where they cannot stand together.
    fn cost(&self, gpu: GpuIndex, taken: &[Slot], slot: Slot) -> Cost {
        let gpu = &self.gpus[&gpu];
        let with: Vec<Slot> = taken.iter().copied().chain([slot]).collect();
        match (gpu.table.state_of(taken), gpu.table.state_of(&with)) {
            (Ok(from), Ok(to)) => self.kinds[gpu.kind].cost(from, slot.1, to),
            _ => Cost(i64::MAX),
        }
    }

    /// The next step to a new slice of one of these kinds: on the shortest way over all GPUs, of these the one
    /// that costs least, then on the first GPU.
    fn make_one_of(&self, job: &Waiting, kinds: &[(GpuIndex, ProfileIndex)]) -> Option<Choice> {
        let behind = self.behind(job);
        let ways = kinds.iter().filter_map(|&(gpu, profile)| {
            let (cost, way) = self.way(gpu, profile, &behind)?;
            Some((way.steps.len(), cost, gpu, profile, way.steps))
        });
        let (.., gpu, profile, steps) = ways.min_by_key(|way| (way.0, way.1, way.2, way.3))?;
        let spare = self.spare(gpu);
        let number = |slot| {
            spare
                .iter()
                .find(|(_, at)| *at == slot)
                .map(|(number, _)| *number)
        };
        match *steps.first()? {
            Step::Create(slot) if slot.0 == profile => {
                let table = &self.gpus[&gpu].table;
                let all: Vec<Slot> = self.on(gpu).chain([slot]).collect();
                let reachable = table.state_of(&all).map_or(0, |to| table.reachable(to));
                Some(Choice::Make { gpu, slot, reachable })
            }
            Step::Create(slot) => Some(Choice::Detour { gpu, slot }),
            Step::Destroy(_) => {
                let leading = steps.iter().map_while(|step| match *step {
                    Step::Destroy(slot) => Some(slot),
                    Step::Create(_) => None,
                });
                let slices = leading.filter_map(number).collect();
                Some(Choice::Clear { slices })
            }
        }
    }

    /// The shortest way to one more of a profile on this GPU. Idle slices that jobs behind will take are there
    /// afterwards, moved if need be, as far as that goes: those of the first jobs rather than of later ones.
    fn way(
        &self,
        gpu: GpuIndex,
        profile: ProfileIndex,
        behind: &Behind,
    ) -> Option<((usize, Cost), Transition)> {
        let (state, pinned) = (&self.gpus[&gpu], self.pinned(gpu));
        let slots: Vec<Slot> = self.spare(gpu).iter().map(|(_, slot)| *slot).collect();
        let all: Vec<Slot> = pinned.iter().chain(&slots).copied().collect();
        let standing = state.table.state_of(&all).ok()?;
        let (kind, following) = (&self.kinds[state.kind], &behind.following);
        let cost = |to: StateIndex| {
            let placed = state.table.longest_prefix(to, following);
            (following.len() - placed, kind.loss(standing, to))
        };
        let awaited = behind
            .awaited
            .iter()
            .filter(|number| self.slices[number].gpu == gpu);
        let mut keeping: Vec<ProfileIndex> = awaited.map(|number| self.slices[number].profile).collect();
        let way = loop {
            let goal = Goal::OneMore {
                profile,
                keeping: &keeping,
            };
            match state.table.transition_by(&pinned, &slots, goal, &cost) {
                Ok(way) => break way,
                Err(_) => keeping.pop()?,
            };
        };
        let is_detour = matches!(way.steps.first(), Some(Step::Create(slot)) if slot.0 != profile);
        // What the driver refuses for a while is waited for and not walked round: each step would end the wait.
        (!is_detour || state.retry_at().is_none()).then(|| (cost(way.to), way))
    }

    /// What the jobs behind this one will take: idle slices that stand, or profiles that have to be made. The latter only
    /// where the node has one GPU: several share the queue in too many ways.
    fn behind(&self, job: &Waiting) -> Behind {
        let mut behind = Behind::default();
        let mut spare: Vec<(Incarnation, GpuIndex, ProfileIndex)> = Vec::new();
        for (&number, slice) in self.slices.iter().filter(|(_, slice)| slice.is_spare()) {
            spare.push((number, slice.gpu, slice.profile));
        }
        let Some(arrival) = self.jobs.get(&job.job).map(|known| known.arrival) else {
            return behind;
        };
        if spare.is_empty() && self.gpus.len() != 1 {
            return behind;
        }
        let later = self.queue.range(arrival + 1..).map(|(_, waiting)| waiting);
        for waiting in later.filter(|waiting| waiting.seat.is_none()).take(LOOK_AHEAD) {
            let classes = self.gpus.keys().map(|&gpu| (gpu, self.class(gpu, waiting)));
            let classes: Vec<(GpuIndex, Vec<ProfileIndex>)> = classes.collect();
            let suits = |gpu: GpuIndex, profile: ProfileIndex| {
                let mut classes = classes.iter();
                classes.any(|(on, class)| *on == gpu && class.contains(&profile))
            };
            if let Some(index) = spare.iter().position(|&(_, gpu, profile)| suits(gpu, profile)) {
                behind.awaited.push(spare.remove(index).0);
            } else if let [(_, class)] = &classes[..] {
                behind.following.push(class.clone());
            }
        }
        behind
    }

    /// All that stands or is being made on a GPU.
    pub(super) fn on(&self, gpu: GpuIndex) -> impl Iterator<Item = Slot> {
        let ours = self.slices.values().filter(move |slice| slice.gpu == gpu);
        let foreign = self.gpus[&gpu].foreign.iter().copied();
        foreign.chain(ours.map(super::Slice::slot))
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
        let wanted = wanted + &self.wish_in_words(job.job);
        let mut largest: Option<(u64, &str)> = None;
        let mut hindered = Vec::new();
        for (&gpu, state) in self.gpus.iter().filter(|(gpu, _)| self.may_use(job.job, **gpu)) {
            for profile in self.allowed(gpu, job.job, 0) {
                let kind = state.table.profile(profile);
                if self.can_ever(gpu, profile) {
                    if largest.is_none_or(|(most, _)| kind.memory > most) {
                        largest = Some((kind.memory, &kind.name));
                    }
                } else if serves(kind.memory, job.need.device_bytes, job.outgrown) {
                    hindered.push(format!(
                        "{} on GPU {}{}",
                        kind.name,
                        gpu.0,
                        self.what_is_in_the_way(gpu)
                    ));
                }
            }
        }
        let shared = self.largest_lease(job.job).map(|most| (most, "a soft slice"));
        let largest = largest.max(shared);
        let no_such = self.why_no_such(job);
        let offer = match largest {
            Some((memory, name)) => format!(
                "the largest slice to be had here is {name} with {}",
                Bytes(memory)
            ),
            None if no_such.is_some() => no_such.unwrap_or_default(),
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
    #[must_use]
    pub fn could_hold(&self, job: JobId, need: u64, had: u64) -> bool {
        let gpus = self.gpus.iter().filter(|(gpu, _)| self.may_use(job, **gpu));
        let soft = self
            .largest_lease(job)
            .is_some_and(|most| most > had && most >= need);
        soft || gpus.into_iter().any(|(&gpu, state)| {
            let fit = self.allowed(gpu, job, need);
            fit.iter()
                .any(|&profile| state.table.profile(profile).memory > had && self.can_ever(gpu, profile))
        })
    }
}
