//! The order of the queue: by priority, then by what users have had, then by arrival.
//!
//! 1. Jobs of one user with one priority are a *lane*, and stay in order of arrival among themselves.
//! 2. The first job of a lane that has not been served for an hour counts as one level higher, and so on for each further
//!    hour ([`AGE_S`]): no lane starves, and a long queue gains nothing by its length.
//! 3. Within a level, jobs that go on come first (a policy that serves in order promises them that), then the users take turns:
//!    the k-th waiting job of a user stands where his use stands after k more runs of mean cost.
//! 4. A job that has a slice kept for it is overtaken by a higher level only, never for a share.
//!
//! With one lane all this is the order of arrival, and nothing is worked out. Places in the queue are numbers: ranking
//! gives the same numbers to the waiting jobs in another order.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use migm_shared::ids::JobId;

use super::machine::{Scheduler, Waiting};
use super::terms::Lane;

#[cfg(test)]
mod tests;

/// Seconds without service after which the first of a lane counts as one level higher.
pub const AGE_S: f64 = 3600.0;
/// The order is worked out again after so many seconds at the latest: use and age change by time alone.
const AGAIN_S: f64 = 1.0;

/// The lanes with waiting jobs.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    waiting: BTreeMap<Lane, Waits>,
    /// Some job's place is not that of its arrival.
    mixed: bool,
    /// What the order depends on has changed.
    stale: bool,
    ranked: f64,
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    jobs: usize,
    /// When it was served last, or when it began to wait.
    since: f64,
}

impl Lanes {
    fn join(&mut self, lane: Lane, now: f64) {
        let waits = self.waiting.entry(lane).or_insert(Waits { jobs: 0, since: now });
        waits.jobs += 1;
        self.stale = true;
    }

    fn leave(&mut self, lane: Lane, served: Option<f64>) {
        let Some(waits) = self.waiting.get_mut(&lane) else {
            return;
        };
        waits.jobs -= 1;
        waits.since = served.unwrap_or(waits.since);
        if waits.jobs == 0 {
            self.waiting.remove(&lane);
        }
        self.stale = true;
    }

    /// Levels that the first of a lane has gained by waiting.
    fn age(&self, lane: Lane, now: f64) -> i64 {
        let waited = self.waiting.get(&lane).map_or(0.0, |waits| now - waits.since);
        #[expect(clippy::cast_possible_truncation, reason = "hours that a lane has waited")]
        let levels = (waited.max(0.0) / AGE_S).floor() as i64;
        levels
    }

    /// Places may not be those of the arrivals from here on.
    pub(super) fn mix(&mut self) {
        (self.mixed, self.stale) = (true, true);
    }

    /// What a job holds has changed, and with it what its user has had.
    pub(super) fn touch(&mut self) {
        self.stale = true;
    }
}

/// A waiting job, as far as its rank goes.
struct Entry {
    /// Which it is in the queue as it stands.
    at: usize,
    /// The level noted there.
    noted: i64,
    job: JobId,
    lane: Lane,
    level: i64,
    seated: bool,
    goes_on: bool,
    came: u64,
    /// GPU seconds at which it stands.
    stands: f64,
}

impl Entry {
    /// Whether it comes before another of its lane.
    fn in_lane(&self, other: &Self) -> Ordering {
        (other.goes_on, self.came).cmp(&(self.goes_on, other.came))
    }

    fn by_level(&self, other: &Self) -> Ordering {
        (other.level, other.seated).cmp(&(self.level, self.seated))
    }

    fn rank(&self, other: &Self) -> Ordering {
        self.by_level(other).then_with(|| {
            if self.seated {
                return self.at.cmp(&other.at);
            }
            let shares = || self.stands.total_cmp(&other.stands);
            let goes_on = other.goes_on.cmp(&self.goes_on);
            goes_on.then_with(shares).then(self.came.cmp(&other.came))
        })
    }
}

impl Scheduler {
    /// Puts a job into the queue.
    pub(super) fn join_queue(&mut self, place: u64, waiting: Waiting) {
        self.lanes.join(waiting.lane, self.now);
        self.lanes.mixed |= place != waiting.came;
        self.queue.insert(place, waiting);
    }

    /// Takes a job out of the queue; `served` when it has got its slice.
    pub(super) fn leave_queue(&mut self, place: u64, served: bool) -> Option<Waiting> {
        let waiting = self.queue.remove(&place)?;
        self.lanes.leave(waiting.lane, served.then_some(self.now));
        if self.queue.is_empty() {
            self.lanes.mixed = false;
        }
        Some(waiting)
    }

    /// A waiting job's terms were said again.
    pub(super) fn change_lane(&mut self, job: JobId) {
        let lane = self.terms.lane(job);
        let place = self.jobs.get(&job).map(|known| known.arrival);
        let Some(waiting) = place.and_then(|place| self.queue.get_mut(&place)) else {
            return;
        };
        let old = std::mem::replace(&mut waiting.lane, lane);
        waiting.level = i64::from(lane.priority);
        self.lanes.join(lane, self.now);
        self.lanes.leave(old, None);
    }

    /// Puts the queue in order; whether it was not. Slices kept for jobs that others come before now are kept no longer.
    pub(super) fn rank(&mut self) -> bool {
        if self.lanes.waiting.len() < 2 && !self.lanes.mixed {
            return false;
        }
        if !self.lanes.stale && self.now < self.lanes.ranked + AGAIN_S {
            return false;
        }
        (self.lanes.stale, self.lanes.ranked) = (false, self.now);
        let ranked = self.ranked();
        let places: Vec<u64> = self.queue.keys().copied().collect();
        for entry in ranked.iter().filter(|entry| entry.level != entry.noted) {
            if let Some(waiting) = self.queue.get_mut(&places[entry.at]) {
                waiting.level = entry.level;
            }
        }
        let Some(first) = (0..places.len()).find(|&at| ranked[at].at != at) else {
            return false;
        };
        self.lanes.mixed = true;
        if let Some(planned) = &mut self.planned {
            planned.touch();
        }
        self.unseat_from(places[first]);
        for (&place, entry) in places.iter().zip(&ranked).skip(first) {
            if place != places[entry.at]
                && let Some(known) = self.jobs.get_mut(&entry.job)
            {
                known.arrival = place;
            }
        }
        // Places stay; who stands there changes, circle by circle.
        let mut slots: Vec<&mut Waiting> = self.queue.values_mut().collect();
        let mut from: Vec<usize> = ranked.into_iter().map(|entry| entry.at).collect();
        for start in first..from.len() {
            let mut at = start;
            while from[at] != start && from[at] != at {
                let next = from[at];
                let (one, other) = slots.split_at_mut(at.max(next));
                std::mem::swap(&mut *one[at.min(next)], &mut *other[0]);
                from[at] = at;
                at = next;
            }
            from[at] = at;
        }
        true
    }

    fn ranked(&self) -> Vec<Entry> {
        let entries = self.queue.values().enumerate().map(|(at, waiting)| Entry {
            at,
            noted: waiting.level,
            job: waiting.job,
            lane: waiting.lane,
            level: i64::from(waiting.lane.priority),
            seated: waiting.seat.is_some(),
            goes_on: waiting.goes_on,
            came: waiting.came,
            stands: 0.0,
        });
        let mut entries: Vec<Entry> = entries.collect();
        let mut firsts: BTreeMap<Lane, usize> = BTreeMap::new();
        for (at, entry) in entries.iter().enumerate() {
            let first = firsts.entry(entry.lane).or_insert(at);
            if entry.in_lane(&entries[*first]).is_lt() {
                *first = at;
            }
        }
        for (lane, first) in firsts {
            entries[first].level += self.lanes.age(lane, self.now);
        }
        // User by user, since each one's jobs are in order but for those that have just come: that sorts in few steps.
        let mut users: BTreeMap<u32, Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            users.entry(entry.lane.user).or_default().push(entry);
        }
        let run = self.shares.run();
        for (&user, own) in &mut users {
            own.sort_by(|one, other| one.by_level(other).then_with(|| one.in_lane(other)));
            let mut stands = self.shares.used(self.now, user);
            for entry in own {
                entry.stands = stands;
                stands += run;
            }
        }
        let mut ranked: Vec<Entry> = users.into_values().flatten().collect();
        ranked.sort_by(Entry::rank);
        ranked
    }

    /// Why a job that waits in front comes before another, for people.
    pub(super) fn why_before(&self, first: &Waiting, other: &Waiting) -> String {
        let in_brackets = |what: String| format!(" ({what})");
        match (first.level.cmp(&other.level), first.lane.user == other.lane.user) {
            (Ordering::Greater, _) if first.lane.priority > other.lane.priority => {
                in_brackets(format!("priority {}", first.lane.priority))
            }
            (Ordering::Greater, _) => in_brackets("its user's jobs have waited for hours".to_owned()),
            (_, true) => String::new(),
            (_, false) if first.came < other.came => String::new(),
            (_, false) => in_brackets("its user has had less of the GPUs".to_owned()),
        }
    }
}
