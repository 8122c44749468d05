//! Watts and joules of a GPU.
//!
//! Power = idle + watts per busy multiprocessor + copy, and changes only when a kernel or a copy starts or ends.
//! So the energy is summed exactly: each change first adds the watts until then. Joules are of simulated time.

use crate::machine::Machine;
use crate::process::Process;
use crate::state::{Gpu, State, WHOLE, monotonic};

/// What runs on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Activity {
    /// Multiprocessors at work, on average over the turns of processes that share a slice.
    pub(crate) busy_sms: f64,
    /// Copies over the bus.
    pub(crate) copies: u32,
}

/// What the running kernels of one slice want.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// Multiprocessors of the slice.
    pub(crate) sms: u32,
    /// Processes with running kernels.
    pub(crate) processes: usize,
}

impl State {
    /// Multiprocessors of a slice, or of the whole GPU.
    pub(crate) fn sms(&self, gpu: &Gpu, gi: u32, ci: u32) -> u32 {
        if gi == WHOLE {
            return gpu.model().sms;
        }
        let Some(instance) = gpu.gpu_instance(gi) else {
            return 0;
        };
        instance
            .compute_instance(ci)
            .map_or(0, |compute| compute.sms(gpu.model(), instance))
    }

    /// Running kernels of a GPU: slice, process, multiprocessors wanted, one entry per process and slice.
    fn running(&self, index: u32) -> Vec<(u32, u32, Process, u64)> {
        let mut running: Vec<(u32, u32, Process, u64)> = self
            .used_records()
            .filter(|record| record.gpu.get() == index && record.sms.get() > 0)
            .map(|record| {
                (
                    record.gi.get(),
                    record.ci.get(),
                    record.process(),
                    record.sms.get(),
                )
            })
            .collect();
        running.sort_unstable();
        running.dedup_by(|next, kept| {
            let same = (next.0, next.1, next.2) == (kept.0, kept.1, kept.2);
            kept.3 += if same { next.3 } else { 0 };
            same
        });
        running
    }

    /// How the processes of one slice take turns.
    pub(crate) fn turns(&self, index: u32, gpu: &Gpu, gi: u32, ci: u32) -> Turns {
        let processes = self
            .running(index)
            .iter()
            .filter(|entry| (entry.0, entry.1) == (gi, ci))
            .count();
        Turns {
            sms: self.sms(gpu, gi, ci),
            processes,
        }
    }

    pub(crate) fn activity(&self, index: u32, gpu: &Gpu) -> Activity {
        let running = self.running(index);
        let busy = |slice: &[(u32, u32, Process, u64)]| {
            let sms = u64::from(self.sms(gpu, slice[0].0, slice[0].1));
            let sum: u64 = slice.iter().map(|entry| entry.3.min(sms)).sum();
            as_f64(sum) / as_f64(slice.len() as u64)
        };
        let busy_sms = running.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)).map(busy).sum();
        let on_gpu = self.used_records().filter(|record| record.gpu.get() == index);
        Activity {
            busy_sms,
            copies: on_gpu.map(|record| record.copies.get()).sum(),
        }
    }

    /// Watts at this moment.
    pub(crate) fn watts(&self, index: u32, gpu: &Gpu) -> f64 {
        let model = gpu.model();
        let activity = self.activity(index, gpu);
        let copy = if activity.copies > 0 {
            model.power.copy
        } else {
            0.0
        };
        model.power.idle + model.watts_per_sm() * activity.busy_sms + copy
    }

    /// Adds what was used until `now` (monotonic nanoseconds); to be called before each change of activity.
    pub(crate) fn advance_meter(&self, index: u32, gpu: &Gpu, now: u64) {
        let current = gpu.meter.get() & 1;
        let [from, to] = if current == 0 {
            [&gpu.meters[0], &gpu.meters[1]]
        } else {
            [&gpu.meters[1], &gpu.meters[0]]
        };
        let seconds = as_f64(now.saturating_sub(from.at.get())) / 1e9 / self.time_scale.get_f64();
        to.millijoules
            .set_f64(from.millijoules.get_f64() + self.watts(index, gpu) * seconds * 1e3);
        to.at.set(now.max(from.at.get()));
        // The switch is the one store that counts: a process killed before it has added nothing.
        gpu.meter.set(1 - current);
    }

    /// Millijoules up to the last advance.
    pub(crate) fn millijoules(&self, gpu: &Gpu) -> f64 {
        gpu.meters[gpu.meter.get() as usize & 1].millijoules.get_f64()
    }
}

impl Machine {
    /// Joules of simulated time since the state was made.
    #[must_use]
    pub fn energy_joules(&self, gpu: u32) -> f64 {
        let state = self.mapping().locked();
        let Some(of) = state.gpu(gpu) else { return 0.0 };
        let now = monotonic();
        state.reap(now);
        state.advance_meter(gpu, of, now);
        state.millijoules(of) / 1e3
    }

    /// Watts at this moment.
    #[must_use]
    pub fn watts(&self, gpu: u32) -> f64 {
        let state = self.mapping().locked();
        let Some(of) = state.gpu(gpu) else { return 0.0 };
        state.reap(monotonic());
        state.watts(gpu, of)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "nanoseconds and counts stay below 2^53"
)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use crate::files::{DEFAULT_DRIVER, Plan};
    use crate::machine::Machine;
    use crate::state::State;

    const SECOND: u64 = 1_000_000_000;

    fn close(left: f64, right: f64) {
        assert!(
            (left - right).abs() < 1e-6 * right.abs().max(1.0),
            "{left} is not {right}"
        );
    }

    /// An A100-40GB in which each simulated second takes half a wall second, and its state.
    fn machine() -> Machine {
        let machine = Machine::create(&Plan::parse("a100-40gb", true, 0.5, DEFAULT_DRIVER).unwrap()).unwrap();
        crate::files::remove(machine.id()).unwrap();
        machine
    }

    fn place(state: &State, record: usize, slice: (u32, u32), pid: u32, sms: u64, copies: u32) {
        let record_of = &state.records[record];
        record_of.pid.set(pid);
        record_of.gpu.set(0);
        record_of.gi.set(slice.0);
        record_of.ci.set(slice.1);
        record_of.sms.set(sms);
        record_of.copies.set(copies);
        record_of.used.set(1);
        state
            .records_end
            .set(state.records_end.get().max(u32::try_from(record).unwrap() + 1));
    }

    #[test]
    fn energy_is_the_sum_worked_out_by_hand() {
        let machine = machine();
        let three = machine.create_gpu_instance(0, 9, None).unwrap().reference;
        machine.create_compute_instance(three, 2, None).unwrap();
        let state = machine.mapping().locked();
        let gpu = state.gpu(0).unwrap();
        let begin = crate::state::monotonic();
        state.advance_meter(0, gpu, begin);
        let before = state.millijoules(gpu);
        // 2 s idle; 3 s with 10 multiprocessors; 1 s with 10 and a copy; 4 s with 42 of 60 wanted. Simulated.
        state.advance_meter(0, gpu, begin + SECOND);
        place(&state, 0, (2, 0), 1, 10, 0);
        state.advance_meter(0, gpu, begin + SECOND * 5 / 2);
        place(&state, 0, (2, 0), 1, 10, 1);
        state.advance_meter(0, gpu, begin + SECOND * 3);
        place(&state, 0, (2, 0), 1, 60, 0);
        state.advance_meter(0, gpu, begin + SECOND * 5);
        let per_sm = (400.0 - 55.0 - 20.0) / 108.0;
        let joules = 10.0 * 55.0 + (3.0 + 1.0) * 10.0 * per_sm + 20.0 + 4.0 * 42.0 * per_sm;
        close((state.millijoules(gpu) - before) / 1e3, joules);
    }

    #[test]
    fn processes_on_one_slice_take_turns_and_slices_add_up() {
        let machine = machine();
        for _ in 0..2 {
            let three = machine.create_gpu_instance(0, 9, None).unwrap().reference;
            machine.create_compute_instance(three, 2, None).unwrap();
        }
        let state = machine.mapping().locked();
        let gpu = state.gpu(0).unwrap();
        // In one slice a process with two kernels and one with a small one; in the other one process.
        place(&state, 0, (2, 0), 1, 30, 0);
        place(&state, 1, (2, 0), 1, 30, 0);
        place(&state, 2, (2, 0), 2, 10, 1);
        place(&state, 3, (1, 0), 3, 20, 1);
        let activity = state.activity(0, gpu);
        close(activity.busy_sms, f64::midpoint(42.0, 10.0) + 20.0);
        assert_eq!(activity.copies, 2);
        assert_eq!(state.turns(0, gpu, 2, 0).processes, 2);
    }

    #[test]
    fn a_meter_advance_cut_off_before_its_last_store_adds_nothing() {
        let machine = machine();
        let state = machine.mapping().locked();
        let gpu = state.gpu(0).unwrap();
        let now = crate::state::monotonic();
        state.advance_meter(0, gpu, now);
        let (switch, sum) = (gpu.meter.get(), state.millijoules(gpu));
        state.advance_meter(0, gpu, now + SECOND);
        gpu.meter.set(switch);
        close(state.millijoules(gpu), sum);
        state.advance_meter(0, gpu, now + SECOND);
        close(state.millijoules(gpu) - sum, 2.0 * 55.0 * 1e3);
    }

    #[test]
    fn a_clock_that_stands_still_adds_nothing() {
        let machine = machine();
        let state = machine.mapping().locked();
        let gpu = state.gpu(0).unwrap();
        let now = crate::state::monotonic();
        state.advance_meter(0, gpu, now);
        let sum = state.millijoules(gpu);
        state.advance_meter(0, gpu, now - SECOND);
        close(state.millijoules(gpu), sum);
    }
}
