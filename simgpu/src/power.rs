//! Watts and joules of a GPU.
//!
//! Power = idle + watts per busy multiprocessor + copy, and changes only when a kernel or a copy starts or ends.
//! So the energy is summed exactly: each change first adds the watts until then. Joules are of simulated time.

use crate::process::Process;
use crate::state::{Gpu, State, WHOLE};

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
        let Some(instance) = gpu.gpu_instance(gi) else { return 0 };
        instance.compute_instance(ci).map_or(0, |compute| compute.sms(gpu.model(), instance))
    }

    /// Running kernels of a GPU: slice, process, multiprocessors wanted, one entry per process and slice.
    fn running(&self, index: u32) -> Vec<(u32, u32, Process, u64)> {
        let mut running: Vec<(u32, u32, Process, u64)> = self
            .used_records()
            .filter(|record| record.gpu.get() == index && record.sms.get() > 0)
            .map(|record| (record.gi.get(), record.ci.get(), record.process(), record.sms.get()))
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
        let processes = self.running(index).iter().filter(|entry| (entry.0, entry.1) == (gi, ci)).count();
        Turns { sms: self.sms(gpu, gi, ci), processes }
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
        Activity { busy_sms, copies: on_gpu.map(|record| record.copies.get()).sum() }
    }

    /// Watts at this moment.
    pub(crate) fn watts(&self, index: u32, gpu: &Gpu) -> f64 {
        let model = gpu.model();
        let activity = self.activity(index, gpu);
        let copy = if activity.copies > 0 { model.power.copy } else { 0.0 };
        model.power.idle + model.watts_per_sm() * activity.busy_sms + copy
    }

    /// Adds what was used until `now` (monotonic nanoseconds); to be called before each change of activity.
    pub(crate) fn advance_meter(&self, index: u32, gpu: &Gpu, now: u64) {
        let current = gpu.meter.get() & 1;
        let [from, to] = if current == 0 { [&gpu.meters[0], &gpu.meters[1]] } else { [&gpu.meters[1], &gpu.meters[0]] };
        let seconds = as_f64(now.saturating_sub(from.at.get())) / 1e9 / self.time_scale.get_f64();
        to.millijoules.set_f64(from.millijoules.get_f64() + self.watts(index, gpu) * seconds * 1e3);
        to.at.set(now.max(from.at.get()));
        // The switch is the one store that counts: a process killed before it has added nothing.
        gpu.meter.set(1 - current);
    }

    /// Millijoules up to the last advance.
    pub(crate) fn millijoules(&self, gpu: &Gpu) -> f64 {
        gpu.meters[gpu.meter.get() as usize & 1].millijoules.get_f64()
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds and counts stay below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}
