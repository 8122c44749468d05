//! The state of the library in this process: which machine it answers for, and how often it was initialised.

use std::ffi::c_uint;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::Machine;
use simgpu::device_files::{DeviceFile, Held};
use simgpu::driver::Driver;

use crate::code::{Code, returned};

/// See the [module](self).
#[derive(Debug)]
struct Library {
    machine: Option<Machine>,
    /// Calls of `nvmlInit` less those of `nvmlShutdown`.
    initialised: u32,
    /// The device files that `SIMGPU_HOLD` makes an initialised library hold.
    held: Vec<Held>,
}

static LIBRARY: Mutex<Library> = Mutex::new(Library {
    machine: None,
    initialised: 0,
    held: Vec::new(),
});

fn library() -> MutexGuard<'static, Library> {
    LIBRARY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `nvmlInit`: without a machine it says what NVML says without a driver.
pub(crate) fn initialise() -> Result<(), Code> {
    let mut library = library();
    if library.machine.is_none() {
        let opened = Machine::open().map_err(|error| crate::control::remember(error, Code::DriverNotLoaded));
        let machine = opened?;
        crate::rights::understood()?;
        library.held = hold_as_told(&machine)?;
        library.machine = Some(machine);
    }
    library.initialised += 1;
    Ok(())
}

/// Holds the GPUs of `SIMGPU_HOLD`, indices with commas, as a monitor does.
fn hold_as_told(machine: &Machine) -> Result<Vec<Held>, Code> {
    let Ok(list) = std::env::var("SIMGPU_HOLD") else {
        return Ok(Vec::new());
    };
    let refused = |error: &dyn Display| crate::control::remember(error, Code::InvalidArgument);
    list.split(',')
        .map(str::trim)
        .filter(|index| !index.is_empty())
        .map(|text| {
            let index = text.parse().ok().filter(|index| *index < machine.gpu_count());
            let index = index.ok_or_else(|| {
                refused(&format_args!(
                    "SIMGPU_HOLD: `{text}` is none of the GPUs 0 to {}",
                    machine.gpu_count() - 1
                ))
            })?;
            machine
                .hold(DeviceFile::Gpu(index))
                .map_err(|error| refused(&error))
        })
        .collect()
}

/// `nvmlShutdown`: the last one lets the machine go.
pub(crate) fn shut_down() -> Result<(), Code> {
    let mut library = library();
    library.initialised = library.initialised.checked_sub(1).ok_or(Code::Uninitialized)?;
    if library.initialised == 0 {
        library.machine = None;
        library.held.clear();
    }
    Ok(())
}

/// Changes the machine under an initialised library.
pub(crate) fn replace(machine: Machine) {
    let mut library = library();
    if library.initialised > 0 {
        library.machine = Some(machine);
    }
}

/// The machine of an initialised library.
pub(crate) fn machine() -> Result<Machine, Code> {
    library().machine.clone().ok_or(Code::Uninitialized)
}

/// Runs the body of an exported function. No panic goes into C.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Code>) -> c_uint {
    returned(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::Unknown)))
}

/// As [`guarded`], for functions that need an initialised library.
pub(crate) fn answer(body: impl FnOnce(&Machine) -> Result<(), Code>) -> c_uint {
    guarded(|| body(&machine()?))
}

/// For a function that came with this branch of the driver: the library of an older one does not have it. Here it is
/// there, and says so.
pub(crate) fn since(machine: &Machine, branch: u32) -> Result<(), Code> {
    if machine.driver_branch() < Driver(branch) {
        Err(Code::FunctionNotFound)
    } else {
        Ok(())
    }
}

/// Exported functions that answer for the machine, named and typed as in nvml.h.
macro_rules! export {
    ($($(#[$attribute:meta])* fn $name:ident($machine:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block)+) => {$(
        #[doc = concat!("`", stringify!($name), "` of nvml.h.")]
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($argument: $type),*) -> std::ffi::c_uint {
            $crate::library::answer(|$machine| $body)
        }
    )+};
}
pub(crate) use export;
