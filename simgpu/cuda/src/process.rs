//! The driver's state in this process: made by `cuInit`, and dead in the children of a fork.
//!
//! Two locks: the player's timeline, then [`State`]. A call that needs both takes the timeline first, or one after
//! the other; nothing takes the timeline while it holds the state.

use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use simgpu::machine::{DeviceInfo, DeviceRef, Machine, SliceRef};

use crate::code::{Answer, Code};
use crate::costs::Costs;
use crate::gate::say;
use crate::player::Player;
use crate::state::State;

/// Device bytes of a context if `SIMGPU_CONTEXT_BYTES` is not set.
const CONTEXT_BYTES: u64 = 434 << 20;
/// Simulated seconds that the first context takes if `SIMGPU_CONTEXT_SECONDS` is not set.
const CONTEXT_SECONDS: f64 = 0.05;

/// A device that this process sees.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) reference: DeviceRef,
    pub(crate) info: DeviceInfo,
    /// Multiprocessors of the whole GPU.
    pub(crate) all_sms: u32,
    /// Bytes per simulated second of the memory that the slice owns.
    pub(crate) memory_bandwidth: f64,
}

/// What `cuInit` made.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) machine: Machine,
    pub(crate) devices: Vec<Device>,
    pub(crate) costs: Costs,
    pub(crate) player: Player,
    pub(crate) context_bytes: u64,
    pub(crate) context_seconds: f64,
    state: Mutex<State>,
}

static PROCESS: OnceLock<Process> = OnceLock::new();
/// The process that called `cuInit`; 0 until then.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// One initialisation at a time.
static STARTING: Mutex<()> = Mutex::new(());

fn this_process() -> i32 {
    // SAFETY: getpid has no conditions.
    unsafe { libc::getpid() }
}

impl Process {
    /// `cuInit`. Again in the same process it does nothing; in a forked child it fails as the real driver does.
    pub(crate) fn init() -> Answer {
        match OWNER.load(Ordering::Acquire) {
            0 => {}
            owner if owner == this_process() => return Ok(()),
            _ => return Err(Code::NOT_INITIALIZED),
        }
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        if PROCESS.get().is_none() {
            let process = Self::open()?;
            let _ = PROCESS.set(process);
        }
        OWNER.store(this_process(), Ordering::Release);
        Ok(())
    }

    fn open() -> Answer<Self> {
        let machine = Machine::open().map_err(|error| {
            say(format_args!("{error}"));
            Code::NO_DEVICE
        })?;
        let costs = match std::env::var_os("SIMGPU_COSTS") {
            Some(path) => Costs::read(Path::new(&path)).map_err(|error| {
                say(format_args!("{error}"));
                Code::INVALID_VALUE
            })?,
            None => Costs::default(),
        };
        let context_bytes = from_environment("SIMGPU_CONTEXT_BYTES", CONTEXT_BYTES, |_| true)?;
        let context_seconds =
            from_environment("SIMGPU_CONTEXT_SECONDS", CONTEXT_SECONDS, |seconds: &f64| {
                seconds.is_finite() && *seconds >= 0.0
            })?;
        // What is not UTF-8 names no device, as any other text that is no list of devices.
        let visible =
            std::env::var_os("CUDA_VISIBLE_DEVICES").map(|list| list.to_string_lossy().into_owned());
        let references = machine.visible(visible.as_deref());
        if references.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        let devices: Vec<_> = references
            .into_iter()
            .map(|reference| Device::of(&machine, reference))
            .collect();
        let state = Mutex::new(State::new(devices.len()));
        let player = Player::new(machine.clone());
        Ok(Self {
            machine,
            devices,
            costs,
            player,
            context_bytes,
            context_seconds,
            state,
        })
    }

    /// The driver's state, if this process initialised it.
    pub(crate) fn get() -> Answer<&'static Self> {
        Self::running().ok_or(Code::NOT_INITIALIZED)
    }

    /// The same, where a missing one is no error.
    pub(crate) fn running() -> Option<&'static Self> {
        let owner = OWNER.load(Ordering::Acquire);
        if owner == 0 || owner != this_process() {
            None
        } else {
            PROCESS.get()
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device of an ordinal.
    pub(crate) fn device(&self, ordinal: i32) -> Answer<(usize, &Device)> {
        let index = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        Ok((index, self.devices.get(index).ok_or(Code::INVALID_DEVICE)?))
    }
}

impl Device {
    fn of(machine: &Machine, reference: DeviceRef) -> Self {
        let info = machine.device(reference);
        let whole = machine.device(DeviceRef {
            gpu: reference.gpu,
            slice: None::<SliceRef>,
        });
        // Two transfers a clock: the memory is of the double data rate kind.
        let all = f64::from(info.memory_clock_khz) * 1e3 * 2.0 * f64::from(info.memory_bus_bits) / 8.0;
        #[expect(clippy::cast_precision_loss, reason = "a ratio of byte counts far below 2^53")]
        let part = info.memory_total as f64 / whole.memory_total.max(1) as f64;
        Self {
            reference,
            all_sms: whole.sms,
            memory_bandwidth: (all * part.min(1.0)).max(1.0),
            info,
        }
    }
}

/// A variable's number; one that does not parse or fails the check is refused by name.
fn from_environment<T: std::str::FromStr>(name: &str, otherwise: T, check: impl Fn(&T) -> bool) -> Answer<T> {
    let Some(text) = std::env::var_os(name) else {
        return Ok(otherwise);
    };
    let value = text.to_str().and_then(|text| text.parse().ok()).filter(check);
    value.ok_or_else(|| {
        say(format_args!(
            "{name}={}: not a number that it can be",
            text.display()
        ));
        Code::INVALID_VALUE
    })
}
