//! What a decider is told of jobs where users, priorities or wishes differ: the facts as they are known, with other weights and
//! fewer speeds. So every policy that weighs jobs and looks at speeds obeys, without knowing of any of it.
//!
//! - A level counts a hundredfold: a job goes before one of a lower level unless that takes a hundredth of its time. Levels are
//!   those on the board, numbered from the highest, which keeps its weights: what gains a policy asks for stay what they are.
//! - A user's weight is the mean use of all on the board over his own, within a factor of eight.
//! - Jobs that came as one batch are planned for its end only where they are alone, of one user and one level.
//! - A slice that the job's user does not want has speed 0.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use migm_shared::ids::JobId;

use super::board::Facts;
use super::machine::Scheduler;
use super::planned::Planned;
use super::terms::Lane;
use super::{Slice, SliceState, Wish};
use crate::layout::ProfileIndex;

/// Weight of a level over that below it.
const PER_LEVEL: f64 = 100.0;
/// Levels below the highest that are told apart: weights must stay well above what policies take for nothing.
const LEVELS_TOLD: u32 = 3;
/// The weight of a user over another is at most the square of this.
const SHARE_AT_MOST: f64 = 8.0;

/// What a decider is told beside what the scheduler was.
#[derive(Debug, Default)]
pub(super) struct Told {
    facts: HashMap<JobId, Facts>,
    /// The levels on the board, from the highest; empty where there is one.
    levels: BTreeMap<i64, u32>,
}

impl Told {
    /// Facts of a job that are not as known.
    pub(super) fn facts(&self, job: JobId) -> Option<&Facts> {
        if self.facts.is_empty() {
            None
        } else {
            self.facts.get(&job)
        }
    }

    /// How many levels on the board are above this one.
    pub(super) fn below(&self, level: i64) -> u32 {
        self.levels.get(&level).copied().unwrap_or(0)
    }
}

impl Scheduler {
    /// What to tell the decider now. Nothing is worked out where all jobs are of one user and priority, without wishes.
    pub(super) fn told(&self, planned: &Planned) -> Told {
        let mixed = self.terms.is_mixed(self.jobs.len());
        if !mixed && self.terms.is_wishless() {
            return Told::default();
        }
        let waiting = self
            .queue
            .values()
            .map(|waiting| (waiting.job, waiting.lane.user, waiting.level, None));
        let running = self.slices.values().filter_map(|slice| match slice.state {
            SliceState::Busy(job) => {
                let Lane { user, priority } = self.terms.lane(job);
                Some((job, user, i64::from(priority), Some(slice)))
            }
            _ => None,
        });
        let all: Vec<(JobId, u32, i64, Option<&Slice>)> = waiting.chain(running).collect();
        let levels: BTreeSet<i64> = all.iter().map(|job| job.2).collect();
        let levels: BTreeMap<i64, u32> = levels.into_iter().rev().zip(0..).collect();
        let users: BTreeSet<u32> = all.iter().map(|job| job.1).collect();
        let weights = self.user_weights(&users);
        let alone = levels.len() < 2 && users.len() < 2;
        let mut told = Told::default();
        for (job, user, level, slice) in all {
            // What a user asks for while his job runs counts from the next slice on.
            let has = |slice: &Slice| self.may_have(job, slice.gpu, slice.profile);
            let wish = match slice.is_none_or(has) {
                true => self.terms.wish(job),
                false => &Wish::Any,
            };
            if alone && *wish == Wish::Any {
                continue;
            }
            let mut facts = planned.facts(job).clone();
            let below = levels.get(&level).copied().unwrap_or(0).min(LEVELS_TOLD);
            facts.weight *= PER_LEVEL.powi(-below.cast_signed()) * weights.get(&user).copied().unwrap_or(1.0);
            facts.in_batch &= alone;
            if *wish != Wish::Any {
                self.keep_to(wish, &mut facts);
            }
            told.facts.insert(job, facts);
        }
        told.levels = levels;
        told
    }

    fn user_weights(&self, users: &BTreeSet<u32>) -> BTreeMap<u32, f64> {
        let run = self.shares.run();
        let used = |user: u32| self.shares.used(self.now, user) + run;
        let sum: f64 = users.iter().map(|&user| used(user)).sum();
        #[expect(clippy::cast_precision_loss, reason = "a number of users")]
        let mean = sum / users.len().max(1) as f64;
        let weight = |user| (mean / used(user)).clamp(1.0 / SHARE_AT_MOST, SHARE_AT_MOST);
        users.iter().map(|&user| (user, weight(user))).collect()
    }

    /// Takes the speed out of all slices but those wished for.
    fn keep_to(&self, wish: &Wish, facts: &mut Facts) {
        let kinds = self.kinds.iter().enumerate().map(|(kind, known)| {
            let table = known.table();
            let profiles = (0..table.profiles().len()).map(ProfileIndex);
            let speed = |profile| match wish.admits(table, profile) {
                true => facts.speed(kind, table, profile),
                false => 0.0,
            };
            profiles.map(speed).collect()
        });
        facts.speeds = kinds.collect();
    }
}
