//! Events: only `nvmlEventMigConfigChange` (0x100) of whole GPUs happens here.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::nvmlEventData_t;
use simgpu::Machine;

use crate::code::Code;
use crate::edge::{Out, device_pointer};
use crate::handles::Device;
use crate::library::export;

const MIG_CONFIG_CHANGE: c_ulonglong = 0x100;

/// `nvmlEventSet_t`: a number, never 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
#[repr(transparent)]
pub struct EventSet(usize);

/// Per set and GPU how many changes were delivered.
static SETS: Mutex<BTreeMap<EventSet, BTreeMap<u32, u64>>> = Mutex::new(BTreeMap::new());

fn sets() -> MutexGuard<'static, BTreeMap<EventSet, BTreeMap<u32, u64>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

export! {
    fn nvmlEventSetCreate(_machine, set: Out<EventSet>) {
        let mut sets = sets();
        let new = EventSet(sets.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        set.put(new)?;
        sets.insert(new, BTreeMap::new());
        Ok(())
    }

    fn nvmlEventSetFree(_machine, set: EventSet) {
        sets().remove(&set).map(drop).ok_or(Code::InvalidArgument)
    }

    fn nvmlDeviceGetSupportedEventTypes(machine, device: Device, types: Out<c_ulonglong>) {
        device.whole(machine)?;
        types.put(MIG_CONFIG_CHANGE)
    }

    fn nvmlDeviceRegisterEvents(machine, device: Device, types: c_ulonglong, set: EventSet) {
        let gpu = device.whole(machine)?;
        if types & !MIG_CONFIG_CHANGE != 0 {
            return Err(Code::NotSupported);
        }
        let mut sets = sets();
        let watched = sets.get_mut(&set).ok_or(Code::InvalidArgument)?;
        if types != 0 {
            watched.entry(gpu).or_insert_with(|| machine.changes(gpu));
        }
        Ok(())
    }

    fn nvmlEventSetWait_v2(machine, set: EventSet, data: Out<nvmlEventData_t>, milliseconds: c_uint) {
        wait(machine, set, &data, milliseconds)
    }

    fn nvmlEventSetWait(machine, set: EventSet, data: Out<nvmlEventData_t>, milliseconds: c_uint) {
        wait(machine, set, &data, milliseconds)
    }
}

/// A GPU of the set with an undelivered change.
fn changed(machine: &Machine, set: EventSet) -> Option<u32> {
    let sets = sets();
    sets.get(&set)?
        .iter()
        .find(|(gpu, seen)| machine.changes(**gpu) > **seen)
        .map(|(gpu, _)| *gpu)
}

fn wait(
    machine: &Machine,
    set: EventSet,
    data: &Out<nvmlEventData_t>,
    milliseconds: c_uint,
) -> Result<(), Code> {
    if !sets().contains_key(&set) || data.is_null() {
        return Err(Code::InvalidArgument);
    }
    let deadline = Instant::now() + Duration::from_millis(milliseconds.into());
    if !machine.wait_for_change(deadline, || changed(machine, set).is_some()) {
        return Err(Code::Timeout);
    }
    // Another thread may have taken the same event.
    let gpu = changed(machine, set).ok_or(Code::Timeout)?;
    if let Some(seen) = sets().get_mut(&set).and_then(|watched| watched.get_mut(&gpu)) {
        *seen += 1;
    }
    data.put(nvmlEventData_t {
        device: device_pointer(Device::gpu(gpu).raw()),
        eventType: MIG_CONFIG_CHANGE,
        eventData: 0,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    })
}
