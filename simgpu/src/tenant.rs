//! A process on a device: its memory, kernels and copies.
//!
//! All of it is one record in the state. Totals are summed from the records, so what a dead process held is free
//! once its record is taken out. The dead are looked for before anything is refused or reported, and now and
//! then when activity changes; until then their kernels count as running.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::files::Mapping;
use crate::machine::{AttachError, DeviceRef, Machine, MemoryInfo, OutOfMemory};
use crate::process::Process;
use crate::state::{Gpu, RECORDS, Record, Segment, State, WHOLE, monotonic};

/// How often activity changes look for dead processes, nanoseconds of wall time.
const LOOK_AGAIN: u64 = 10_000_000;

/// This process on one slice. Dropping it gives everything back. After a fork the child's copy does nothing.
#[derive(Debug)]
pub struct Tenant {
    mapping: Arc<Mapping>,
    record: usize,
    owner: u32,
    gpu: u32,
    gi: u32,
    ci: u32,
}

/// A kernel that runs; give it to [`Tenant::kernel_end`].
#[must_use]
#[derive(Debug)]
pub struct KernelMark {
    sms: u32,
}

/// A copy over the bus that runs; give it to [`Tenant::copy_end`].
#[must_use]
#[derive(Debug)]
pub struct CopyMark(());

/// What a process uses of a device, as NVML lists it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProcessUse {
    /// Process id.
    pub pid: u32,
    /// Device memory.
    pub bytes: u64,
    /// GPU and compute instance; `None` with MIG off.
    pub slice: Option<(u32, u32)>,
}

impl State {
    /// Takes out the records of dead processes.
    pub(crate) fn reap(&self, now: u64) {
        let mut dead: BTreeMap<Process, bool> = BTreeMap::new();
        for record in self.used_records() {
            let process = record.process();
            if *dead.entry(process).or_insert_with(|| process.is_dead()) {
                self.take_out(record, now);
            }
        }
        self.let_go(|hold| {
            let process = hold.process();
            dead.get(&process).copied().unwrap_or_else(|| process.is_dead())
        });
        self.reaped_at.set(now);
    }

    pub(crate) fn reap_now(&self) {
        self.reap(monotonic());
    }

    fn reap_at_times(&self, now: u64) {
        if now.saturating_sub(self.reaped_at.get()) >= LOOK_AGAIN {
            self.reap(now);
        }
    }

    fn take_out(&self, record: &Record, now: u64) {
        if let Some(gpu) = self.gpu(record.gpu.get()) {
            self.advance_meter(record.gpu.get(), gpu, now);
        }
        record.used.set(0);
    }

    /// Bytes that programs can have on an instance, or on the whole GPU with [`WHOLE`].
    pub(crate) fn capacity(&self, gpu: &Gpu, gi: u32) -> u64 {
        let model = gpu.model();
        let mib = if gi == WHOLE {
            model.framebuffer_mib - model.reserved_mib
        } else {
            gpu.gpu_instance(gi)
                .map_or(0, |instance| instance.profile(model).memory_mib)
        };
        mib << 20
    }

    pub(crate) fn memory(&self, index: u32, gi: u32) -> MemoryInfo {
        let total = self.gpu(index).map_or(0, |gpu| self.capacity(gpu, gi));
        let used = self.bytes_used(index, gi);
        MemoryInfo {
            total,
            used,
            free: total.saturating_sub(used),
        }
    }

    /// Whether `asked` more bytes fit.
    fn room(&self, index: u32, gi: u32, asked: u64) -> Result<(), OutOfMemory> {
        let MemoryInfo { total, free, .. } = self.memory(index, gi);
        if asked <= free {
            Ok(())
        } else {
            Err(OutOfMemory { asked, free, total })
        }
    }

    fn room_after_reaping(&self, index: u32, gi: u32, asked: u64) -> Result<(), OutOfMemory> {
        self.room(index, gi, asked).or_else(|_| {
            self.reap(monotonic());
            self.room(index, gi, asked)
        })
    }

    /// Whether any living process uses the GPU, or the instance, or the compute instance, given.
    pub(crate) fn is_used(&self, index: u32, gi: Option<u32>, ci: Option<u32>) -> bool {
        self.reap(monotonic());
        self.used_records().any(|record| {
            record.gpu.get() == index
                && gi.is_none_or(|gi| record.gi.get() == gi)
                && ci.is_none_or(|ci| record.ci.get() == ci)
        })
    }

    /// Living processes on a GPU, by slice and pid.
    pub(crate) fn processes(&self, index: u32) -> Vec<ProcessUse> {
        self.reap(monotonic());
        let mut uses: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
        for record in self.used_records().filter(|record| record.gpu.get() == index) {
            let key = (record.gi.get(), record.ci.get(), record.pid.get());
            *uses.entry(key).or_default() += record.bytes.get();
        }
        for segment in self.live_segments().filter(|segment| segment.gpu.get() == index) {
            if let Some(payer) = self.payer(segment) {
                let key = (segment.gi.get(), payer.ci.get(), payer.pid.get());
                *uses.entry(key).or_default() += segment.bytes.get();
            }
        }
        let slice = |gi, ci| (gi != WHOLE).then_some((gi, ci));
        uses.into_iter()
            .map(|((gi, ci, pid), bytes)| ProcessUse {
                pid,
                bytes,
                slice: slice(gi, ci),
            })
            .collect()
    }

    /// Whether the device exists as it did when the reference was made.
    fn is_there(&self, device: DeviceRef) -> bool {
        let Some(gpu) = self.gpu(device.gpu).filter(|_| !self.is_lost(device.gpu)) else {
            return false;
        };
        let Some(slice) = device.slice else {
            return gpu.mig.get() == 0;
        };
        let compute = gpu
            .gpu_instance(slice.gi)
            .and_then(|instance| instance.compute_instance(slice.ci));
        compute.is_some_and(|compute| compute.serial.get() == slice.serial)
    }
}

impl Tenant {
    pub(crate) fn attach(
        mapping: &Arc<Mapping>,
        device: DeviceRef,
        context_bytes: u64,
    ) -> Result<Self, AttachError> {
        let state = mapping.locked();
        if !state.is_there(device) {
            return Err(AttachError::DeviceGone);
        }
        let (gi, ci) = device.slice.map_or((WHOLE, WHOLE), |slice| (slice.gi, slice.ci));
        state.reap(monotonic());
        state.room(device.gpu, gi, context_bytes)?;
        let free = state.records.iter().position(|record| record.used.get() == 0);
        let record = free.ok_or(AttachError::TooManyProcesses(RECORDS))?;
        let process = Process::this();
        let place = &state.records[record];
        place.pid.set(process.pid);
        place.start.set(process.start);
        place.gpu.set(device.gpu);
        place.gi.set(gi);
        place.ci.set(ci);
        place.copies.set(0);
        place.sms.set(0);
        place.bytes.set(context_bytes);
        let end = u32::try_from(record + 1).unwrap_or(u32::MAX);
        state.records_end.set(state.records_end.get().max(end));
        place.used.set(1);
        drop(state);
        Ok(Self {
            mapping: Arc::clone(mapping),
            record,
            owner: process.pid,
            gpu: device.gpu,
            gi,
            ci,
        })
    }

    /// Whether this is the process that attached, and not a child forked since.
    pub(crate) fn is_ours(&self) -> bool {
        std::process::id() == self.owner
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// GPU, GPU instance, compute instance.
    pub(crate) fn place(&self) -> [u32; 3] {
        [self.gpu, self.gi, self.ci]
    }

    pub(crate) fn record<'a>(&self, state: &'a State) -> &'a Record {
        &state.records[self.record]
    }

    /// Takes memory. The limit is the slice's, over all its processes.
    pub fn charge(&self, bytes: u64) -> Result<(), OutOfMemory> {
        if !self.is_ours() {
            return Err(OutOfMemory {
                asked: bytes,
                free: 0,
                total: 0,
            });
        }
        let state = self.mapping.locked();
        state.room_after_reaping(self.gpu, self.gi, bytes)?;
        let record = self.record(&state);
        record.bytes.set(record.bytes.get() + bytes);
        Ok(())
    }

    /// Gives memory back.
    pub fn release(&self, bytes: u64) {
        if self.is_ours() {
            let state = self.mapping.locked();
            let record = self.record(&state);
            record.bytes.set(record.bytes.get().saturating_sub(bytes));
        }
    }

    /// Bytes of the slice, over all its processes.
    #[must_use]
    pub fn memory(&self) -> MemoryInfo {
        let state = self.mapping.locked();
        state.reap(monotonic());
        state.memory(self.gpu, self.gi)
    }

    /// Meters what was used so far, then changes the record.
    fn change_activity(&self, change: impl FnOnce(&Record)) {
        if !self.is_ours() {
            return;
        }
        let state = self.mapping.locked();
        let now = monotonic();
        state.reap_at_times(now);
        if let Some(gpu) = state.gpu(self.gpu) {
            state.advance_meter(self.gpu, gpu, now);
        }
        change(self.record(&state));
    }

    /// A kernel that wants `sms` multiprocessors starts.
    pub fn kernel_begin(&self, sms: u32) -> KernelMark {
        self.change_activity(|record| record.sms.set(record.sms.get() + u64::from(sms)));
        KernelMark { sms }
    }

    /// It ends.
    pub fn kernel_end(&self, mark: KernelMark) {
        let KernelMark { sms } = mark;
        self.change_activity(|record| record.sms.set(record.sms.get().saturating_sub(sms.into())));
    }

    /// The part (0..1] of the multiprocessors it wants that a running kernel gets on average at this moment. Kernels
    /// of one process run side by side; processes on one slice take turns, as without MPS. Call it between
    /// [`kernel_begin`](Self::kernel_begin) and [`kernel_end`](Self::kernel_end).
    #[must_use]
    pub fn sm_share(&self, wanted: u32) -> f64 {
        let state = self.mapping.locked();
        let Some(gpu) = state.gpu(self.gpu) else {
            return 1.0;
        };
        state.reap_at_times(monotonic());
        let turns = state.turns(self.gpu, gpu, self.gi, self.ci);
        let process = self.record(&state).process();
        let ours = state
            .used_records()
            .filter(|record| record.is_on(self.gpu, self.gi) && record.ci.get() == self.ci)
            .filter(|record| record.process() == process)
            .map(|record| record.sms.get())
            .sum::<u64>();
        let all_wanted = ours.max(wanted.into()).max(1);
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of multiprocessors and processes"
        )]
        let share = f64::from(turns.sms.max(1)) / all_wanted as f64;
        #[expect(clippy::cast_precision_loss, reason = "as above")]
        let processes = turns.processes.max(1) as f64;
        share.min(1.0) / processes
    }

    /// A copy between host and device starts.
    pub fn copy_begin(&self) -> CopyMark {
        self.change_activity(|record| record.copies.set(record.copies.get() + 1));
        CopyMark(())
    }

    /// It ends.
    pub fn copy_end(&self, mark: CopyMark) {
        let CopyMark(()) = mark;
        self.change_activity(|record| record.copies.set(record.copies.get().saturating_sub(1)));
    }

    /// Bytes per simulated second that one running copy gets at this moment: the GPU's one bus budget over all
    /// running copies of all its slices. Call it between begin and end.
    #[must_use]
    pub fn copy_bandwidth(&self) -> f64 {
        let state = self.mapping.locked();
        let Some(gpu) = state.gpu(self.gpu) else {
            return 1.0;
        };
        state.reap_at_times(monotonic());
        gpu.model().bus_bytes_per_second / f64::from(state.activity(self.gpu, gpu).copies.max(1))
    }
}

impl Machine {
    /// Bytes of a GPU instance; or of the whole GPU: with MIG on the sum over its instances.
    #[must_use]
    pub fn memory(&self, gpu: u32, gi: Option<u32>) -> MemoryInfo {
        let state = self.mapping().locked();
        state.reap(monotonic());
        if let Some(gi) = gi {
            return state.memory(gpu, gi);
        }
        let total = state.gpu(gpu).map_or(0, |gpu| state.capacity(gpu, WHOLE));
        let own = state.used_records().filter(|record| record.gpu.get() == gpu);
        let shared = state.live_segments().filter(|segment| segment.gpu.get() == gpu);
        let used = own.map(|record| record.bytes.get()).sum::<u64>()
            + shared.map(|segment| segment.bytes.get()).sum::<u64>();
        MemoryInfo {
            total,
            used,
            free: total.saturating_sub(used),
        }
    }

    /// Living processes on a GPU.
    #[must_use]
    pub fn processes(&self, gpu: u32) -> Vec<ProcessUse> {
        self.mapping().locked().processes(gpu)
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        if self.is_ours() {
            let state = self.mapping.locked();
            let on_slice = |id| {
                let same = |segment: &Segment| segment.gpu.get() == self.gpu && segment.gi.get() == self.gi;
                state
                    .live_segments()
                    .any(|segment| segment.id.get() == id && same(segment))
            };
            let this = Process::this();
            state.let_go(|hold| hold.process() == this && on_slice(hold.segment.get()));
            state.take_out(self.record(&state), monotonic());
        }
    }
}
