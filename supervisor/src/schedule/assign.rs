//! Assigning slices to the queue, strictly in order.

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::Bytes;

use super::choose::Choice;
use super::machine::{Scheduler, Seat, Waiting};
use super::{Action, GpuIndex, Slice, SliceState};
use crate::layout::Slot;

impl Scheduler {
    /// Serves the queue from the front as far as it goes.
    pub(super) fn serve(&mut self, actions: &mut Vec<Action>) {
        while let Some(arrival) = self.first_without_slice() {
            if !self.assign(arrival, actions) {
                break;
            }
        }
        self.grant_in_order(actions);
    }

    fn first_without_slice(&self) -> Option<u64> {
        self.queue
            .iter()
            .find(|(_, waiting)| waiting.seat.is_none())
            .map(|(&arrival, _)| arrival)
    }

    /// Gives one waiting job a slice or refuses it; false when it has to wait, and all behind it too.
    fn assign(&mut self, arrival: u64, actions: &mut Vec<Action>) -> bool {
        let waiting = &self.queue[&arrival];
        let job = waiting.job;
        let choice = self.choose(waiting);
        match choice {
            Choice::Take { slice } => {
                let exists = self.slices[&slice].state == SliceState::Idle;
                let (how, state) = if exists {
                    ("idle", SliceState::Reserved(job))
                } else {
                    ("being created", SliceState::Creating(Some(job)))
                };
                let reason = self.say_why(arrival, slice, how);
                self.set_state(slice, state);
                self.seat(arrival, slice, reason);
                true
            }
            Choice::Make { gpu, slot, reachable } => {
                let slice = self.create(gpu, slot, Some(job), actions);
                let how = match reachable {
                    1 => "created, 1 full layout stays in reach".to_owned(),
                    _ => format!("created, {reachable} full layouts stay in reach"),
                };
                let reason = self.say_why(arrival, slice, &how);
                self.seat(arrival, slice, reason);
                true
            }
            Choice::Clear { slices } => {
                for slice in slices {
                    self.set_state(slice, SliceState::Destroying);
                    actions.push(Action::Destroy { slice });
                }
                false
            }
            Choice::Detour { gpu, slot } => {
                self.create(gpu, slot, None, actions);
                false
            }
            Choice::Lease { gpu, bytes } => {
                let reason = self.say_why_lease(arrival, gpu, bytes);
                let slice = self.keep_lease(gpu, bytes, job);
                self.seat(arrival, slice, reason);
                true
            }
            Choice::Wait => false,
            Choice::Never { reason } => {
                if let Some(waiting) = self.leave_queue(arrival, false) {
                    self.refuse(arrival, &waiting, reason, actions);
                }
                // Another is the first of its lane now.
                self.rank();
                true
            }
        }
    }

    /// Asks for a new slice.
    fn create(
        &mut self,
        gpu: GpuIndex,
        slot: Slot,
        job: Option<JobId>,
        actions: &mut Vec<Action>,
    ) -> Incarnation {
        let slice = Incarnation(self.next_incarnation);
        self.next_incarnation += 1;
        let (profile, placement) = slot;
        let made = Slice {
            gpu,
            profile,
            placement,
            fixed: false,
            stuck: false,
            state: SliceState::Creating(job),
        };
        let standing = self.standing(gpu);
        self.planned_in.extend(standing.map(|state| (slice, state)));
        self.slices.insert(slice, made);
        actions.push(Action::Create {
            slice,
            gpu,
            profile,
            placement,
        });
        slice
    }

    fn seat(&mut self, arrival: u64, slice: Incarnation, reason: String) {
        if let Some(waiting) = self.queue.get_mut(&arrival) {
            waiting.seat = Some(Seat { slice, reason });
        }
    }

    /// Leases from the front of the queue while the front has a slice that exists.
    fn grant_in_order(&mut self, actions: &mut Vec<Action>) {
        while let Some(mut first) = self.queue.first_entry() {
            let place = *first.key();
            let waiting = first.get_mut();
            let job = waiting.job;
            let ready = waiting.seat.take_if(|seat| {
                self.slices
                    .get(&seat.slice)
                    .is_some_and(|slice| slice.state == SliceState::Reserved(job))
                    || self.soft.is_kept(seat.slice)
            });
            let Some(Seat { slice, reason }) = ready else {
                return;
            };
            self.leave_queue(place, true);
            self.hand_over(job, slice, reason, actions);
        }
    }

    /// A job that waits no longer has this slice from now on.
    pub(super) fn hand_over(
        &mut self,
        job: JobId,
        slice: Incarnation,
        reason: String,
        actions: &mut Vec<Action>,
    ) {
        if let Some(held) = self.slices.get_mut(&slice) {
            held.state = SliceState::Busy(job);
            held.stuck = false;
        }
        if let Some(known) = self.jobs.get_mut(&job) {
            known.holds = Some(slice);
            known.moving = false;
        }
        actions.extend(self.grant_lease(slice));
        self.charge(job);
        actions.push(Action::Grant { job, slice, reason });
    }

    /// Takes back the slices assigned from this place in the queue on: the job there may need the room.
    pub(super) fn unseat_from(&mut self, arrival: u64) {
        for (_, waiting) in self.queue.range_mut(arrival..) {
            let Some(seat) = waiting.seat.take() else {
                continue;
            };
            self.soft.release(seat.slice);
            if let Some(slice) = self.slices.get_mut(&seat.slice) {
                slice.state = match slice.state {
                    SliceState::Reserved(_) => SliceState::Idle,
                    SliceState::Creating(_) => SliceState::Creating(None),
                    other => other,
                };
            }
        }
    }

    /// One line for people on why this slice.
    fn say_why(&self, arrival: u64, slice: Incarnation, how: &str) -> String {
        let waiting = &self.queue[&arrival];
        let slice = &self.slices[&slice];
        let table = &self.gpus[&slice.gpu].table;
        let memory = Bytes(table.profile(slice.profile).memory);
        let need = need_in_words(waiting);
        let wish = self.wish_in_words(waiting.job);
        format!("{need}{wish}: {} with {memory}, {how}", table.named(slice.slot()))
    }
}

/// What a waiting job needs, for people.
pub(super) fn need_in_words(waiting: &Waiting) -> String {
    match (waiting.need.device_bytes, waiting.outgrown) {
        (0, 0) => "need unknown".to_owned(),
        (need, 0) => format!("need {}", Bytes(need)),
        (need, had) => format!("need {}, outgrew {}", Bytes(need), Bytes(had)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Node;
    use super::super::{Action, Policy};

    #[test]
    fn one_layout_stays_and_more_stay() {
        let mut node = Node::new(Policy::SchemeB, &[]);
        let actions = node.arrive(1, 30.0);
        let Some(Action::Grant { reason, .. }) = actions.last() else {
            panic!("{actions:?}")
        };
        assert!(
            reason.ends_with("created, 1 full layout stays in reach"),
            "{reason}"
        );
    }
}
