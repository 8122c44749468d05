//! What users ask for, and which slices a job may have by that.
//!
//! A wish is kept to the letter: a job that asks for a profile gets that one and no other, and where it outgrows
//! it, it is refused with the figures rather than moved to a larger one. A whole GPU is one slice that overlaps
//! every other place of its GPU, or a lease on all that a shared GPU has, with no other lease beside it.

use std::collections::{BTreeMap, HashMap};

use migm_shared::ids::JobId;

use super::machine::{Scheduler, Waiting};
use super::{GpuIndex, Terms, Wish};
use crate::layout::{ProfileIndex, Table};

#[cfg(test)]
mod tests;

/// The jobs of one user with one priority.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd)]
pub(super) struct Lane {
    pub(super) user: u32,
    pub(super) priority: i32,
}

/// The terms of all jobs for which they were said.
#[derive(Debug, Default)]
pub(super) struct Book {
    terms: HashMap<JobId, Terms>,
    /// How many jobs are of each lane.
    lanes: BTreeMap<Lane, usize>,
    /// How many ask for certain slices.
    wishing: usize,
}

impl Book {
    pub(super) fn set(&mut self, job: JobId, terms: Terms) {
        self.forget(job);
        *self.lanes.entry(lane_of(&terms)).or_default() += 1;
        self.wishing += usize::from(terms.wish != Wish::Any);
        self.terms.insert(job, terms);
    }

    pub(super) fn forget(&mut self, job: JobId) {
        let Some(terms) = self.terms.remove(&job) else {
            return;
        };
        self.wishing -= usize::from(terms.wish != Wish::Any);
        let lane = lane_of(&terms);
        if let Some(jobs) = self.lanes.get_mut(&lane) {
            *jobs -= 1;
            if *jobs == 0 {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Whose job it is, where that was said.
    pub(super) fn user(&self, job: JobId) -> Option<u32> {
        self.terms.get(&job).map(|terms| terms.user)
    }

    /// The lane of a job; of nobody's priority 0 where nothing was said.
    pub(super) fn lane(&self, job: JobId) -> Lane {
        self.terms.get(&job).map_or_else(Lane::default, lane_of)
    }

    pub(super) fn wish(&self, job: JobId) -> &Wish {
        // Jobs without a wish are by far the most: they cost no look-up.
        if self.wishing == 0 {
            return &Wish::Any;
        }
        self.terms.get(&job).map_or(&Wish::Any, |terms| &terms.wish)
    }

    /// Whether a job wants a whole GPU.
    pub(super) fn is_exclusive(&self, job: JobId) -> bool {
        *self.wish(job) == Wish::Exclusive
    }

    /// Whether no job asks for certain slices.
    pub(super) fn is_wishless(&self) -> bool {
        self.wishing == 0
    }

    /// Whether `jobs` jobs, all that there are, may be of more than one lane.
    pub(super) fn is_mixed(&self, jobs: usize) -> bool {
        self.lanes.len() > 1 || (self.lanes.len() == 1 && jobs > self.terms.len())
    }
}

fn lane_of(terms: &Terms) -> Lane {
    Lane {
        user: terms.user,
        priority: terms.priority,
    }
}

impl Wish {
    /// Whether a slice of this profile is what is asked for.
    #[must_use]
    pub fn admits(&self, table: &Table, profile: ProfileIndex) -> bool {
        match self {
            Self::Any => true,
            Self::Profile(name) => table.profile(profile).name == *name,
            Self::Exclusive => is_whole(table, profile),
        }
    }

    /// Why a job that asks for profile `wanted` gets none, by the names of those that its GPUs have; `None` if it is
    /// among them.
    #[must_use]
    pub fn why_not_among<'a>(wanted: &str, there: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        for name in there {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.contains(&wanted) {
            return None;
        }
        Some(match names.join(", ") {
            none if none.is_empty() => {
                format!("no GPU that the job may use is cut into profiles, so none has `{wanted}`")
            }
            names => format!("no GPU that the job may use has profile `{wanted}`; there are {names}"),
        })
    }
}

/// Whether nothing can stand beside a slice of this profile.
fn is_whole(table: &Table, profile: ProfileIndex) -> bool {
    let own = &table.profile(profile).placements;
    let all = || table.profiles().iter().flat_map(|other| &other.placements);
    profile == table.full() && own.iter().all(|place| all().all(|other| other.overlaps(*place)))
}

impl Scheduler {
    pub(super) fn set_terms(&mut self, job: JobId, terms: Terms) {
        let wishes_anew = *self.terms.wish(job) != terms.wish;
        self.terms.set(job, terms);
        self.charge(job);
        self.change_lane(job);
        let place = self.jobs.get(&job).map(|known| known.arrival);
        if let Some(place) = place.filter(|place| wishes_anew && self.queue.contains_key(place)) {
            // What is kept or being made for it may not be what it asks for now.
            self.unseat_from(place);
        }
        if let Some(planned) = &mut self.planned {
            if wishes_anew {
                planned.drop_seat(job);
            }
            planned.touch();
        }
    }

    /// Whether a job may have a slice of this profile there.
    pub(super) fn may_have(&self, job: JobId, gpu: GpuIndex, profile: ProfileIndex) -> bool {
        let wish = self.terms.wish(job);
        let known = self.gpus.get(&gpu);
        self.may_use(job, gpu) && known.is_some_and(|gpu| wish.admits(&gpu.table, profile))
    }

    /// What a job's wish adds to what it needs, for people: ` in a 1g.5gb`.
    pub(super) fn wish_in_words(&self, job: JobId) -> String {
        match self.terms.wish(job) {
            Wish::Any => String::new(),
            Wish::Profile(name) => format!(" in a {name}, as asked for"),
            Wish::Exclusive => " on a GPU of its own, as asked for".to_owned(),
        }
    }

    /// What there is instead of what a job asks for; `None` where its wish is no hindrance.
    pub(super) fn why_no_such(&self, waiting: &Waiting) -> Option<String> {
        let usable = || {
            self.gpus
                .iter()
                .filter(|(gpu, _)| self.may_use(waiting.job, **gpu))
        };
        let profiles = || {
            usable().flat_map(|(&gpu, state)| {
                let offered = self.offered(gpu);
                offered.into_iter().map(move |profile| (&state.table, profile))
            })
        };
        match self.terms.wish(waiting.job) {
            Wish::Any => None,
            Wish::Profile(name) => {
                let there = profiles().map(|(table, profile)| table.profile(profile).name.as_str());
                Wish::why_not_among(name, there)
            }
            Wish::Exclusive => {
                let any = profiles().any(|(table, profile)| is_whole(table, profile));
                (!any).then(|| "no GPU that the job may use can be had whole".to_owned())
            }
        }
    }
}
