//! What each user has had of the GPUs, fading with time.
//!
//! A second on a slice counts as the part of a GPU that the slice takes ([`share`](super::share())); of a soft slice, its part
//! of the memory that leases can have. What was used a half-life ago counts half. All of it is worked out from grants and
//! ends as the scheduler sees them, and can be told again after a restart.

use std::collections::{BTreeMap, HashMap};

use migm_shared::ids::{Incarnation, JobId};

use super::board::share;
use super::machine::Scheduler;

/// Seconds after which a use counts half: a day, so that who had the node yesterday stands behind today, and last
/// week is all but forgotten.
pub const HALF_LIFE_S: f64 = 86_400.0;
/// An account below so many GPU seconds that has not been used for a half-life is closed.
const NEGLIGIBLE_S: f64 = 1.0;
/// What a run costs while none has ended, in GPU seconds: anything above nothing makes users take turns.
const FIRST_RUN_S: f64 = 1.0;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// GPU seconds as of [`Account::since`].
    seconds: f64,
    since: f64,
    /// GPUs held now.
    rate: f64,
    /// Jobs that hold them.
    jobs: usize,
}

impl Account {
    /// GPU seconds at `now`: the solution of u' = rate - u ln 2 / half-life.
    fn at(&self, now: f64) -> f64 {
        let kept = (-(now - self.since).max(0.0) / HALF_LIFE_S).exp2();
        let span = HALF_LIFE_S / std::f64::consts::LN_2;
        self.seconds * kept + self.rate * span * (1.0 - kept)
    }

    fn settle(&mut self, now: f64) {
        self.seconds = self.at(now);
        self.since = now;
    }
}

/// A slice that a job holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    user: u32,
    part: f64,
    since: f64,
    /// GPU seconds of it before `since`.
    before: f64,
}

/// All accounts.
#[derive(Debug, Default)]
pub(super) struct Shares {
    accounts: BTreeMap<u32, Account>,
    held: HashMap<JobId, Held>,
    /// GPU seconds of the runs that have ended, without fading, and their number.
    ended: (f64, f64),
}

impl Shares {
    /// From now on the job holds so much of a GPU.
    pub(super) fn hold(&mut self, now: f64, job: JobId, user: u32, part: f64) {
        let old = self.release(now, job);
        let account = self.accounts.entry(user).or_default();
        account.settle(now);
        account.rate += part;
        account.jobs += 1;
        let before = old.map_or(0.0, |old| old.before + (now - old.since) * old.part);
        let held = Held {
            user,
            part,
            since: now,
            before,
        };
        self.held.insert(job, held);
    }

    /// The job holds nothing from now on.
    pub(super) fn ends(&mut self, now: f64, job: JobId) {
        if let Some(held) = self.release(now, job) {
            self.ended.0 += held.before + (now - held.since) * held.part;
            self.ended.1 += 1.0;
            let open = |account: &Account| {
                let used = account.jobs > 0 || now - account.since < HALF_LIFE_S;
                used || account.at(now) > NEGLIGIBLE_S
            };
            self.accounts.retain(|_, account| open(account));
        }
    }

    fn release(&mut self, now: f64, job: JobId) -> Option<Held> {
        let held = self.held.remove(&job)?;
        if let Some(account) = self.accounts.get_mut(&held.user) {
            account.settle(now);
            account.jobs -= 1;
            // Sums of parts do not come back to nothing by themselves.
            account.rate = if account.jobs == 0 {
                0.0
            } else {
                account.rate - held.part
            };
        }
        Some(held)
    }

    /// GPU seconds that a user has had, faded to `now`.
    pub(super) fn used(&self, now: f64, user: u32) -> f64 {
        self.accounts.get(&user).map_or(0.0, |account| account.at(now))
    }

    /// GPU seconds of a run in the mean, as far as seen.
    pub(super) fn run(&self) -> f64 {
        ((self.ended.0 + FIRST_RUN_S) / (self.ended.1 + 1.0)).max(f64::MIN_POSITIVE)
    }

    /// A user's use was so much, before what runs now.
    pub(super) fn tell(&mut self, now: f64, user: u32, seconds: f64) {
        if seconds.is_finite() && seconds >= 0.0 {
            let account = self.accounts.entry(user).or_default();
            account.settle(now);
            account.seconds = seconds;
        }
    }

    fn all(&self, now: f64) -> BTreeMap<u32, f64> {
        let accounts = self.accounts.iter();
        accounts.map(|(&user, account)| (user, account.at(now))).collect()
    }
}

impl Scheduler {
    /// GPU seconds that each user has had, faded with [`HALF_LIFE_S`], and the time as of which that is: that of the last
    /// step. To be told again by [`Event::Used`](super::Event::Used).
    #[must_use]
    pub fn used(&self) -> (f64, BTreeMap<u32, f64>) {
        (self.now, self.shares.all(self.now))
    }

    /// Books what a job holds now to its user. Jobs of which nobody said whose they are cost nobody anything.
    pub(super) fn charge(&mut self, job: JobId) {
        let held = self.jobs.get(&job).and_then(|known| known.holds);
        self.lanes.touch();
        match (held, self.terms.user(job)) {
            (Some(slice), Some(user)) => {
                let part = self.part_of(slice);
                self.shares.hold(self.now, job, user, part);
            }
            _ => self.shares.ends(self.now, job),
        }
    }

    /// The part of its GPU that a slice takes.
    fn part_of(&self, slice: Incarnation) -> f64 {
        let Some(known) = self.slices.get(&slice) else {
            return self.soft.part(slice);
        };
        let gpu = self.gpus.get(&known.gpu);
        gpu.map_or(1.0, |gpu| share(&gpu.table, known.profile))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_counts_by_part_and_fades_by_half_in_a_half_life() {
        let mut shares = Shares::default();
        shares.hold(0.0, JobId(1), 7, 0.5);
        assert!(
            (shares.used(100.0, 7) - 50.0).abs() < 0.1,
            "nothing fades in 100 s"
        );
        shares.ends(100.0, JobId(1));
        let then = shares.used(100.0, 7);
        assert!((shares.used(100.0 + HALF_LIFE_S, 7) / then - 0.5).abs() < 1e-9);
        assert!((shares.run() - (50.0 + FIRST_RUN_S) / 2.0).abs() < 1e-9);
    }

    #[test]
    fn who_holds_a_gpu_for_ever_comes_to_a_half_life_over_ln_2() {
        let mut shares = Shares::default();
        shares.hold(0.0, JobId(1), 7, 1.0);
        let most = HALF_LIFE_S / std::f64::consts::LN_2;
        assert!((shares.used(100.0 * HALF_LIFE_S, 7) / most - 1.0).abs() < 1e-9);
    }

    #[test]
    fn settling_often_or_once_comes_to_the_same() {
        let (mut once, mut often) = (Shares::default(), Shares::default());
        once.hold(0.0, JobId(1), 7, 0.3);
        for step in 0..1000 {
            often.hold(f64::from(step), JobId(1), 7, 0.3);
        }
        let (once, often) = (once.used(50_000.0, 7), often.used(50_000.0, 7));
        assert!((once / often - 1.0).abs() < 1e-9, "{once} {often}");
    }

    #[test]
    fn what_was_told_fades_and_adds_up_with_what_runs() {
        let mut shares = Shares::default();
        shares.tell(10.0, 7, 400.0);
        shares.hold(10.0, JobId(1), 7, 1.0);
        assert!((shares.used(20.0, 7) - 410.0).abs() < 0.1);
        shares.tell(20.0, 8, f64::NAN);
        assert!((shares.used(20.0, 8)).abs() < 1e-9, "no number is no use");
    }

    #[test]
    fn many_short_runs_cost_what_they_took() {
        let mut shares = Shares::default();
        for run in 0..1000 {
            shares.hold(f64::from(run), JobId(1), 7, 1.0);
            shares.ends(f64::from(run) + 0.5, JobId(1));
        }
        assert!((shares.used(1000.0, 7) / 500.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn old_accounts_are_closed() {
        let mut shares = Shares::default();
        shares.hold(0.0, JobId(1), 7, 1.0);
        shares.ends(10.0, JobId(1));
        shares.hold(40.0 * HALF_LIFE_S, JobId(2), 8, 1.0);
        shares.ends(40.0 * HALF_LIFE_S + 5.0, JobId(2));
        let open: Vec<u32> = shares.all(41.0 * HALF_LIFE_S).into_keys().collect();
        assert_eq!(open, [8]);
    }
}
