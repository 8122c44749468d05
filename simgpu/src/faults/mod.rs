//! Faults that a simulated machine plays: what a real driver does on a bad day.
//!
//! One fault, told:
//! 1. Somebody writes it: `gpu1/destroy-gi@2x3=in-use`. It goes into the machine's state, when the
//!    machine is made (`SIMGPU_FAULTS`) or later ([`Machine::set_faults`]), so that it strikes whoever calls, in
//!    whatever process, and all processes count the same calls.
//! 2. Each change of MIG asks `State::strike` before its own checks. The faults of that kind of call and that GPU
//!    count it; those whose turn it is refuse it, delay it, or take the GPU away.
//! 3. A refused call has changed nothing. A GPU that is gone answers every call with `GPU_IS_LOST`, until the
//!    faults are set anew.
//!
//! A handle held by a process that is no CUDA process is not played here: a process holds it, see
//! [`crate::device_files`].
//!
//! ```text
//! faults = fault { ";" fault }
//! fault  = [ "gpu" N "/" ] when "=" effect
//! when   = call [ "@" K ] [ "x" N | "x*" ]     the K-th such call (the first), and N in all (one; * = all)
//!        | S "s"                               S simulated seconds after it was set
//! call   = "create-gi" | "create-ci" | "destroy-gi" | "destroy-ci" | "set-mode" | "change" (any of them)
//! effect = result | M "ms" | "lost"            an NVML result by name or number; M more simulated milliseconds
//! ```
//!
//! Calls are counted from the moment when the fault is set: those of GPU N, or those of all GPUs together.

mod grammar;

pub use grammar::FaultError;

use std::time::Duration;

use crate::machine::Machine;
use crate::state::{FaultSlot, State, WHOLE, monotonic};

/// Faults of one machine.
pub const FAULTS: usize = 32;

/// A change of MIG, as far as faults tell changes apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(crate) enum Call {
    CreateGpuInstance = 1,
    CreateComputeInstance = 2,
    DestroyGpuInstance = 4,
    DestroyComputeInstance = 8,
    SetMode = 16,
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// On calls of these kinds (bits of [`Call`]), numbered `first` to `last` from the moment it was set.
    Calls { calls: u32, first: u64, last: u64 },
    /// So many simulated seconds after it was set.
    After(f64),
}

/// What it does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effect {
    /// The call fails with this NVML result.
    Refuse(u32),
    /// It takes so much longer, simulated time.
    Delay(Duration),
    /// The GPU is gone.
    Lose,
}

/// A fault, as written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fault {
    gpu: Option<u32>,
    when: When,
    effect: Effect,
}

/// Numbers of [`Effect`] in a slot.
mod effect {
    pub(super) const REFUSE: u32 = 1;
    pub(super) const DELAY: u32 = 2;
    pub(super) const LOSE: u32 = 3;
}

/// What strikes a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Strike {
    /// The NVML result that it fails with.
    pub(crate) refused: Option<u32>,
    /// How much longer it takes, simulated time.
    pub(crate) delay: Duration,
}

impl FaultSlot {
    fn put(&self, fault: &Fault, now: u64, time_scale: f64) {
        self.gpu.set(fault.gpu.unwrap_or(WHOLE));
        self.seen.set(0);
        match fault.when {
            When::Calls { calls, first, last } => {
                self.calls.set(calls);
                self.first.set(first);
                self.last.set(last);
            }
            When::After(seconds) => {
                self.calls.set(0);
                self.first
                    .set(now.saturating_add(nanoseconds(Duration::from_secs_f64(seconds * time_scale))));
                self.last.set(u64::MAX);
            }
        }
        let (kind, value) = match fault.effect {
            Effect::Refuse(code) => (effect::REFUSE, code.into()),
            Effect::Delay(time) => (effect::DELAY, nanoseconds(time)),
            Effect::Lose => (effect::LOSE, 0),
        };
        self.effect.set(kind);
        self.value.set(value);
        self.used.set(1);
    }

    fn is_of(&self, gpu: u32) -> bool {
        self.gpu.get() == WHOLE || self.gpu.get() == gpu
    }

    /// Counts a call; whether it is one of those that are struck.
    fn counts(&self, call: Call) -> bool {
        if self.calls.get() & call as u32 == 0 {
            return false;
        }
        let number = self.seen.get() + 1;
        self.seen.set(number);
        (self.first.get()..=self.last.get()).contains(&number)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl State {
    /// Replaces all faults, and brings lost GPUs back.
    pub(crate) fn set_faults(&self, faults: &[Fault]) {
        self.faults.iter().for_each(|slot| slot.used.set(0));
        self.gpus.iter().for_each(|gpu| gpu.lost.set(0));
        let now = monotonic();
        for (slot, fault) in self.faults.iter().zip(faults) {
            slot.put(fault, now, self.time_scale.get_f64());
        }
    }

    fn faults_of(&self, gpu: u32) -> impl Iterator<Item = &FaultSlot> {
        self.faults
            .iter()
            .filter(move |slot| slot.used.get() != 0 && slot.is_of(gpu))
    }

    /// Counts a call on a GPU, and says what strikes it. Of two refusals the one written first counts.
    pub(crate) fn strike(&self, gpu: u32, call: Call) -> Strike {
        let mut strike = Strike::default();
        for slot in self.faults_of(gpu) {
            if !slot.counts(call) {
                continue;
            }
            match slot.effect.get() {
                effect::REFUSE => {
                    let code = u32::try_from(slot.value.get()).unwrap_or(u32::MAX);
                    strike.refused = strike.refused.or(Some(code));
                }
                effect::DELAY => strike.delay += Duration::from_nanos(slot.value.get()),
                _ => {
                    if let Some(gpu) = self.gpu(gpu) {
                        gpu.lost.set(1);
                    }
                }
            }
        }
        strike
    }

    /// Whether a fault took the GPU away.
    pub(crate) fn is_lost(&self, index: u32) -> bool {
        let due = |slot: &FaultSlot| slot.calls.get() == 0 && slot.first.get() <= monotonic();
        self.gpu(index).is_some_and(|gpu| gpu.lost.get() != 0) || self.faults_of(index).any(due)
    }
}

impl Machine {
    /// Plays these faults from now on, in place of all before; an empty text plays none, and brings lost GPUs back.
    /// The [module](self) tells the form.
    ///
    /// # Errors
    /// The text was not understood; the faults before stay.
    pub fn set_faults(&self, text: &str) -> Result<(), FaultError> {
        let faults = grammar::parse(text, self.gpu_count())?;
        self.mapping().locked().set_faults(&faults);
        Ok(())
    }

    /// Whether a fault took the GPU away.
    #[must_use]
    pub fn is_lost(&self, gpu: u32) -> bool {
        self.mapping().is_lost(gpu)
    }
}

pub(crate) use grammar::parse;

#[cfg(test)]
mod tests;
