//! Leases that grow: who asks, who is forecast to need more, and who moves where there is no room.

use migm_shared::ids::JobId;
use migm_shared::units::Bytes;

use super::Wish;
use crate::schedule::machine::Scheduler;
use crate::schedule::{Action, GpuIndex, Need};

/// How long a process that has asked for more waits for a job that is leaving: less than the two seconds for which the
/// interposer waits for its answer.
const WAIT_FOR_ROOM: f64 = 1.5;

impl Scheduler {
    /// A running job asks for more.
    pub(in crate::schedule) fn raise(&mut self, now: f64, job: JobId, need: u64, actions: &mut Vec<Action>) {
        let held = self.slice_of(job).and_then(|slice| self.soft.of(slice));
        let Some((_, pool)) = held.filter(|(_, pool)| pool.cut.grows) else {
            actions.push(Action::Stay { job });
            return;
        };
        let wish = pool.wishes.entry(job).or_default();
        wish.need = wish.need.max(need);
        wish.asked = Some(now + WAIT_FOR_ROOM);
    }

    /// A running job is forecast to need more than its lease. `false` if it holds none.
    pub(in crate::schedule) fn forecast_lease(&mut self, job: JobId, need: Need) -> bool {
        let Some(slice) = self.slice_of(job) else {
            return false;
        };
        let Some((_, pool)) = self.soft.of(slice) else {
            return false;
        };
        let bytes = pool.leases.get(&slice).map_or(0, |lease| lease.bytes);
        if need.device_bytes > bytes {
            let wish = pool.wishes.entry(job).or_default();
            wish.need = wish.need.max(need.device_bytes);
            wish.forecast = true;
        }
        true
    }

    /// Decides on all wishes for more on a GPU that has just been read.
    pub(super) fn grow(&mut self, now: f64, gpu: GpuIndex, actions: &mut Vec<Action>) {
        let Some(pool) = self.soft.0.get_mut(&gpu) else {
            return;
        };
        let mut wishes: Vec<(JobId, Wish)> = std::mem::take(&mut pool.wishes).into_iter().collect();
        // A process that waits comes before a forecast, and then who came first.
        wishes.sort_by_key(|(job, wish)| {
            let arrival = self.jobs.get(job).map(|known| known.arrival);
            (wish.asked.is_none(), arrival)
        });
        for (job, wish) in wishes {
            self.grow_one(now, gpu, job, wish, actions);
        }
    }

    fn grow_one(&mut self, now: f64, gpu: GpuIndex, job: JobId, wish: Wish, actions: &mut Vec<Action>) {
        let Some(slice) = self.slice_of(job) else { return };
        let leaving = self.is_leaving(now, gpu, job);
        let moving = self.jobs.get(&job).is_some_and(|known| known.moving);
        let Some(pool) = self.soft.0.get_mut(&gpu) else {
            return;
        };
        let (free, cut) = (pool.free(), pool.cut);
        let could = pool.could_hold(wish.need);
        let Some(lease) = pool.leases.get_mut(&slice) else {
            return;
        };
        let had = lease.bytes;
        let most = had.saturating_add(free);
        if wish.need <= had || (cut.grows && !moving && wish.need <= most) {
            let whole = wish
                .need
                .div_ceil(cut.grain.max(1))
                .saturating_mul(cut.grain.max(1));
            if wish.need > had {
                lease.bytes = whole.min(most).max(wish.need);
            }
            let memory = lease.bytes;
            self.charge(job);
            actions.push(Action::Grow { job, slice, memory });
            return;
        }
        let waits = wish.asked.is_none_or(|until| now < until);
        if waits && could && cut.grows && !moving && self.give_back(gpu, job, wish.need - most, actions) {
            self.wish_again(gpu, job, wish);
            return;
        }
        if wish.asked.is_some_and(|until| now < until) && leaving && could && cut.grows && !moving {
            self.wish_again(gpu, job, wish);
            return;
        }
        if wish.asked.is_some() {
            self.deny(now, gpu, job);
            actions.push(Action::Stay { job });
        }
        if !wish.forecast || moving {
            return;
        }
        if leaving && could && cut.grows {
            // What that one frees may do.
            self.wish_again(gpu, job, Wish { asked: None, ..wish });
            return;
        }
        let reason = format!(
            "forecast need {} exceeds its soft slice of {}, and GPU {} has {} free",
            Bytes(wish.need),
            Bytes(had),
            gpu.0,
            Bytes(free)
        );
        let elsewhere = self.could_hold(job, wish.need, had);
        let Some(known) = self.jobs.get_mut(&job) else {
            return;
        };
        if elsewhere {
            known.moving = true;
            known.note = Some(reason.clone());
            actions.push(Action::Move {
                job,
                for_speed: false,
                reason,
            });
        } else {
            known.note = Some(format!("{reason}; no slice here holds it, so it stays"));
        }
    }

    /// To be decided on at the next reading.
    fn wish_again(&mut self, gpu: GpuIndex, job: JobId, wish: Wish) {
        if let Some(pool) = self.soft.0.get_mut(&gpu) {
            pool.wishes.insert(job, wish);
        }
    }

    /// There is no more for who asked. Few programs go on after that, and of two that ask at once one is enough to go.
    fn deny(&mut self, now: f64, gpu: GpuIndex, job: JobId) {
        let leases = self.soft.0.get_mut(&gpu).map(|pool| pool.leases.values_mut());
        for lease in leases.into_iter().flatten().filter(|lease| lease.job == job) {
            lease.denied = Some(now + WAIT_FOR_ROOM);
        }
    }

    /// Whether a job other than this one is on its way out of a GPU.
    fn is_leaving(&self, now: f64, gpu: GpuIndex, but: JobId) -> bool {
        let Some(pool) = self.soft.0.get(&gpu) else {
            return false;
        };
        let mut others = pool.leases.values().filter(|lease| lease.job != but);
        others.any(|lease| {
            let moving = self.jobs.get(&lease.job).is_some_and(|known| known.moving);
            moving || lease.denied.is_some_and(|until| now < until)
        })
    }
}
