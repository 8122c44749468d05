//! Which of the page's devices an allocation is on.

use std::ffi::c_int;

use migm_shared::page::{CounterPage, DEVICES};

use crate::abi::{Ordinal, SUCCESS, Status, Uuid};
use crate::driver::Real;
use crate::gate;

// Getters: none makes a context, touches a stream or may end a capture.
// SAFETY: `cuda.h` declares the function with this type.
static GET_COUNT: Real<unsafe extern "C-unwind" fn(*mut c_int) -> Status> =
    unsafe { Real::new(c"cuDeviceGetCount") };
// SAFETY: `cuda.h` declares the function with this type.
static GET_DEVICE: Real<unsafe extern "C-unwind" fn(*mut Ordinal, c_int) -> Status> =
    unsafe { Real::new(c"cuDeviceGet") };
type GetUuid = unsafe extern "C-unwind" fn(*mut Uuid, Ordinal) -> Status;
// SAFETY: `cuda.h` declares the function with this type. It tells the UUID of a MIG device.
static GET_UUID_V2: Real<GetUuid> = unsafe { Real::new(c"cuDeviceGetUuid_v2") };
// SAFETY: `cuda.h` declares the function with this type. Drivers before 11.4 have only this one.
static GET_UUID: Real<GetUuid> = unsafe { Real::new(c"cuDeviceGetUuid") };
// SAFETY: `cuda.h` declares the function with this type.
static GET_CURRENT: Real<unsafe extern "C-unwind" fn(*mut Ordinal) -> Status> =
    unsafe { Real::new(c"cuCtxGetDevice") };

// Needs a context, and is answered for its device.
// SAFETY: `cuda.h` declares the function with this type.
static GET_INFO: Real<unsafe extern "C-unwind" fn(*mut usize, *mut usize) -> Status> =
    unsafe { Real::new(c"cuMemGetInfo_v2") };

/// Bytes in use on the device of the current context, by whomever; `None` where the driver does not say, as on a
/// thread without a context. To be called with nested hooks [unseen](gate::unseen).
#[must_use]
pub fn used() -> Option<u64> {
    let (mut free, mut total) = (0_usize, 0_usize);
    let ask = GET_INFO.get()?;
    // SAFETY: both are places to write to.
    let status = unsafe { ask(&raw mut free, &raw mut total) };
    let used = total.checked_sub(free).filter(|_| status == SUCCESS)?;
    u64::try_from(used).ok()
}

/// The devices that the process sees, as the page numbers them.
#[derive(Debug)]
pub struct Devices {
    /// Ordinal, page index and UUID; the first `count` are used.
    list: [(Ordinal, usize, Uuid); DEVICES],
    count: usize,
    /// The page index of the only device, if it is the only one.
    pub sole: Option<usize>,
}

impl Devices {
    /// The device of the current context. With one device, as in a MIG slice, there is no question; with
    /// several the driver's getter is asked. `None` when there is no telling.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        self.sole.or_else(|| self.ask_current())
    }

    #[cold]
    fn ask_current(&self) -> Option<usize> {
        let ask = GET_CURRENT.get()?;
        let mut ordinal = 0;
        // SAFETY: `ordinal` is a place to write to.
        let status = unsafe { ask(&raw mut ordinal) };
        self.of(ordinal).filter(|_| status == SUCCESS)
    }

    /// The page's index of the device with this ordinal.
    pub fn of(&self, ordinal: Ordinal) -> Option<usize> {
        let found = self.list[..self.count].iter().find(|device| device.0 == ordinal);
        found.map(|device| device.1)
    }

    /// Page index and ordinal of each.
    pub fn ordinals(&self) -> impl Iterator<Item = (usize, Ordinal)> {
        self.list[..self.count]
            .iter()
            .map(|&(ordinal, index, _)| (index, ordinal))
    }

    /// Page index and UUID of each.
    pub fn seen(&self) -> impl Iterator<Item = (usize, Uuid)> {
        self.list[..self.count]
            .iter()
            .map(|&(_, index, uuid)| (index, uuid))
    }
}

/// Asks the driver for the devices and enters them into the page. A driver that names none, while it hands
/// out memory, is counted as one device without a name.
#[must_use]
pub fn list(page: &CounterPage) -> Devices {
    let mut devices = Devices {
        list: [(0, 0, [0; 16]); DEVICES],
        count: 0,
        sole: None,
    };
    for (ordinal, uuid) in gate::unseen(ask_all) {
        if let Some(index) = page.device_index(uuid)
            && let Some(place) = devices.list.get_mut(devices.count)
        {
            *place = (ordinal, index, uuid);
            devices.count += 1;
        }
    }
    devices.sole = (devices.count == 1).then_some(devices.list[0].1);
    devices
}

fn ask_all() -> Vec<(Ordinal, Uuid)> {
    let mut count = 0;
    // SAFETY: `count` is a place to write to.
    let status = GET_COUNT.get().map(|ask| unsafe { ask(&raw mut count) });
    let all: Vec<_> = (0..count).filter_map(ask_one).collect();
    if status == Some(SUCCESS) && !all.is_empty() {
        all
    } else {
        vec![(0, [0; 16])]
    }
}

fn ask_one(number: c_int) -> Option<(Ordinal, Uuid)> {
    let (mut ordinal, mut uuid) = (0, [0; 16]);
    let get = GET_DEVICE.get()?;
    // SAFETY: `ordinal` is a place to write to.
    if unsafe { get(&raw mut ordinal, number) } != SUCCESS {
        return None;
    }
    let get = GET_UUID_V2.get().or_else(|| GET_UUID.get())?;
    // SAFETY: `uuid` is a place for 16 bytes.
    (unsafe { get(&raw mut uuid, ordinal) } == SUCCESS).then_some((ordinal, uuid))
}
