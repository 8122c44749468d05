//! What NVIDIA's library does not have: making simulated machines and choosing among them. For `migm`, which loads
//! this library by path.
//!
//! All return NVML results. After one that is not 0, [`simgpuLastError`] has a line for people.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_double, c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use simgpu::device_files::{DeviceFile, Held};
use simgpu::files::{self, DEFAULT_DRIVER, FileError, Plan};
use simgpu::guest::Guest;
use simgpu::{Machine, OpenError, machine};

use crate::code::{Code, words};
use crate::edge::{Buffer, Out, Text};
use crate::library::{self, guarded};
use crate::rights::{Right, may};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// Machines made by this process. Keeping them open keeps [`simgpuClear`] off them while it lives.
static CREATED: Mutex<Vec<Machine>> = Mutex::new(Vec::new());

/// Device files that [`simgpuHold`] made this process hold.
static HOLDING: Mutex<Vec<Held>> = Mutex::new(Vec::new());

fn holding() -> MutexGuard<'static, Vec<Held>> {
    HOLDING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn created() -> MutexGuard<'static, Vec<Machine>> {
    CREATED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the line of an error for [`simgpuLastError`].
pub(crate) fn remember(error: impl std::fmt::Display, code: Code) -> Code {
    let line = CString::new(error.to_string()).unwrap_or_default();
    LAST_ERROR.with_borrow_mut(|last| *last = line);
    code
}

fn file_error(error: FileError) -> Code {
    let code = match error {
        FileError::Io { .. } => Code::Unknown,
        FileError::Missing { .. } => Code::NotFound,
        FileError::Layout { .. } => Code::ArgumentVersionMismatch,
        _ => Code::InvalidArgument,
    };
    remember(error, code)
}

fn open_error(error: OpenError) -> Code {
    match error {
        OpenError::NotSet => remember(error, Code::DriverNotLoaded),
        OpenError::File(error) => file_error(error),
    }
}

/// The machine of the library, or the one that it would get.
pub(crate) fn current() -> Result<Machine, Code> {
    library::machine().or_else(|_| Machine::open().map_err(open_error))
}

/// Runs the body of an exported function. A failure without a line of its own gets NVML's words.
fn controlled(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    LAST_ERROR.with_borrow_mut(|last| *last = CString::default());
    let code = guarded(body);
    LAST_ERROR.with_borrow_mut(|last| {
        if code != 0 && last.is_empty() {
            words(code).clone_into(last);
        }
    });
    c_int::try_from(code).unwrap_or(c_int::MAX)
}

/// Makes a simulated machine of the GPUs in `spec` (`a100-40gb`, `a100-40gb:2`, or a list with commas), with
/// MIG on if `mig` is not 0, and writes its id. `time_scale` is wall seconds per simulated second; if it is not
/// positive, `SIMGPU_TIME_SCALE` is taken, else 1. `driver` is the driver's version, `faults` what goes wrong on the
/// machine ([`simgpu::faults`]); where null is given, `SIMGPU_DRIVER` and `SIMGPU_FAULTS` say it.
/// `SIMGPU_GUEST` says whether it is a virtual machine ([`simgpu::guest`]).
#[unsafe(no_mangle)]
pub extern "C" fn simgpuCreate(
    spec: Text,
    mig: c_int,
    time_scale: c_double,
    driver: Text,
    faults: Text,
    id: Buffer,
    room: libc::size_t,
) -> c_int {
    controlled(|| {
        let scale = if time_scale > 0.0 {
            time_scale
        } else {
            scale_from_environment().map_err(file_error)?
        };
        let driver = text(driver.read_if_given()?, "SIMGPU_DRIVER", DEFAULT_DRIVER);
        let faults = text(faults.read_if_given()?, "SIMGPU_FAULTS", "");
        let plan = Plan::parse(spec.read()?, mig != 0, scale, &driver)
            .and_then(|plan| plan.with_faults(&faults))
            .and_then(|plan| Ok(plan.as_guest(text(None, "SIMGPU_GUEST", "").parse::<Guest>()?)))
            .map_err(file_error)?;
        let machine = Machine::create(&plan).map_err(file_error)?;
        if let Err(code) = id.put(room, machine.id()) {
            files::remove(machine.id()).map_err(file_error)?;
            return Err(remember("no room for the id", code));
        }
        created().push(machine);
        Ok(())
    })
}

/// What was given, else the variable, else the last.
fn text(given: Option<&str>, variable: &str, otherwise: &str) -> String {
    given
        .map(str::to_owned)
        .or_else(|| std::env::var(variable).ok())
        .unwrap_or_else(|| otherwise.to_owned())
}

fn scale_from_environment() -> Result<f64, FileError> {
    match std::env::var("SIMGPU_TIME_SCALE") {
        Ok(text) => text.parse().map_err(|_| FileError::Scale(text)),
        Err(_) => Ok(1.0),
    }
}

/// This process uses the machine `id` from now on, whatever `SIMGPU_ID` says.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuSelect(id: Text) -> c_int {
    controlled(|| {
        machine::select(id.read()?).map_err(open_error)?;
        library::replace(Machine::open().map_err(open_error)?);
        Ok(())
    })
}

/// Takes a machine's name away. Processes that use it keep it.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuRemove(id: Text) -> c_int {
    controlled(|| {
        let id = id.read()?;
        created().retain(|machine| machine.id() != id);
        files::remove(id).map_err(file_error)
    })
}

/// Spares the machine in [`simgpuClear`] while the process `pid` lives: the shell that it was made for.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuKeep(id: Text, pid: c_uint) -> c_int {
    controlled(|| files::keep_for(id.read()?, pid).map_err(open_error))
}

/// Removes this user's machines that no living process made, uses or keeps.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuClear() -> c_int {
    controlled(|| files::clear().map(drop).map_err(file_error))
}

/// Plays these faults on the machine `id` from now on, in place of all before; an empty text plays none, and brings
/// lost GPUs back. The form is that of `SIMGPU_FAULTS`.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuFaults(id: Text, faults: Text) -> c_int {
    controlled(|| {
        let machine = Machine::open_id(id.read()?).map_err(open_error)?;
        machine
            .set_faults(faults.read()?)
            .map_err(|error| remember(error, Code::InvalidArgument))
    })
}

/// Holds GPU `gpu` of the machine in use as a monitor does that is no CUDA process, or one of its GPU instances, or
/// one of their compute instances; `UINT_MAX` leaves `gi` and `ci` out.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuHold(gpu: c_uint, gi: c_uint, ci: c_uint) -> c_int {
    controlled(|| {
        let machine = current()?;
        if gpu >= machine.gpu_count() || (gi == c_uint::MAX && ci != c_uint::MAX) {
            return Err(Code::InvalidArgument);
        }
        let file = match (gi, ci) {
            (c_uint::MAX, _) => DeviceFile::Gpu(gpu),
            (gi, c_uint::MAX) => DeviceFile::GpuInstance(gpu, gi),
            (gi, ci) => DeviceFile::ComputeInstance(gpu, gi, ci),
        };
        let held = machine.hold(file).map_err(file_error)?;
        holding().push(held);
        Ok(())
    })
}

/// Lets all go that this process holds by [`simgpuHold`].
#[unsafe(no_mangle)]
pub extern "C" fn simgpuRelease() -> c_int {
    controlled(|| {
        holding().clear();
        Ok(())
    })
}

/// Wall seconds per simulated second of the machine in use.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuTimeScale(scale: Out<c_double>) -> c_int {
    controlled(|| scale.put(current()?.time_scale()))
}

/// Why the last of these calls on this thread, or its last `nvmlInit`, failed, in one line; empty if it did not.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuLastError() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// What `nvidia-smi -r` does to GPU `index`: a pending MIG mode comes into force, all instances go. `IN_USE` while a
/// process uses the GPU.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuReset(index: c_uint) -> c_int {
    controlled(|| {
        may(Right::Mode)?;
        Ok(current()?.reset(index)?)
    })
}

/// What unloading the driver's modules and loading them again does, and a reboot: all instances of all GPUs go, and an
/// Ampere keeps its MIG mode, or gets the pending one, while others lose it. `IN_USE` while a process uses a GPU.
#[unsafe(no_mangle)]
pub extern "C" fn simgpuReload() -> c_int {
    controlled(|| {
        may(Right::Mode)?;
        Ok(current()?.reload()?)
    })
}
