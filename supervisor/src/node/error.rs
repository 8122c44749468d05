//! What the driver refused, where, and what can be done about it.

use std::fmt;

use nvml_wrapper::error::NvmlError;

use crate::layout::Placement;

/// An answer of NVML other than success, by number and by the header's name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Code(pub u32);

impl Code {
    /// `NVML_ERROR_INVALID_ARGUMENT`.
    pub const INVALID_ARGUMENT: Self = Self(2);
    /// `NVML_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// `NVML_ERROR_NO_PERMISSION`.
    pub const NO_PERMISSION: Self = Self(4);
    /// `NVML_ERROR_NOT_FOUND`.
    pub const NOT_FOUND: Self = Self(6);
    /// `NVML_ERROR_INSUFFICIENT_SIZE`.
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    /// `NVML_SUCCESS`.
    pub const SUCCESS: Self = Self(0);
    /// `NVML_ERROR_FUNCTION_NOT_FOUND`: the library has the name, and its driver has not the call.
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    /// `NVML_ERROR_RESET_REQUIRED`.
    pub const RESET_REQUIRED: Self = Self(16);
    /// `NVML_ERROR_GPU_IS_LOST`.
    pub const GPU_IS_LOST: Self = Self(15);
    /// `NVML_ERROR_IN_USE`.
    pub const IN_USE: Self = Self(19);
    /// `NVML_ERROR_INSUFFICIENT_RESOURCES`.
    pub const INSUFFICIENT_RESOURCES: Self = Self(23);
    /// `NVML_ERROR_ARGUMENT_VERSION_MISMATCH`.
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    /// `NVML_ERROR_UNKNOWN`: also what a failure without a code is filed under.
    pub const UNKNOWN: Self = Self(999);

    const fn name(self) -> &'static str {
        match self.0 {
            0 => "SUCCESS",
            1 => "UNINITIALIZED",
            2 => "INVALID_ARGUMENT",
            3 => "NOT_SUPPORTED",
            4 => "NO_PERMISSION",
            5 => "ALREADY_INITIALIZED",
            6 => "NOT_FOUND",
            7 => "INSUFFICIENT_SIZE",
            8 => "INSUFFICIENT_POWER",
            9 => "DRIVER_NOT_LOADED",
            10 => "TIMEOUT",
            11 => "IRQ_ISSUE",
            12 => "LIBRARY_NOT_FOUND",
            13 => "FUNCTION_NOT_FOUND",
            14 => "CORRUPTED_INFOROM",
            15 => "GPU_IS_LOST",
            16 => "RESET_REQUIRED",
            17 => "OPERATING_SYSTEM",
            18 => "LIB_RM_VERSION_MISMATCH",
            19 => "IN_USE",
            20 => "MEMORY",
            21 => "NO_DATA",
            22 => "VGPU_ECC_NOT_SUPPORTED",
            23 => "INSUFFICIENT_RESOURCES",
            24 => "FREQ_NOT_SUPPORTED",
            25 => "ARGUMENT_VERSION_MISMATCH",
            26 => "DEPRECATED",
            27 => "NOT_READY",
            28 => "GPU_NOT_FOUND",
            29 => "INVALID_STATE",
            999 => "UNKNOWN",
            _ => "an unnamed code",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

/// Who keeps an instance from being removed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// The process's own short name.
    pub program: String,
    /// What it holds: `GPU memory`, or the path of the open device.
    pub holds: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} ({}) holds {}", self.pid, self.program, self.holds)
    }
}

/// Why the machine did not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NodeError {
    /// No driver library, or no driver behind it.
    #[error("no NVIDIA driver on this machine: {0}")]
    NoDriver(String),
    /// NVML refused.
    #[error("{tried}: the driver says {code}{}", remedy(*code))]
    Nvml {
        /// What was tried, with its values.
        tried: String,
        /// The answer.
        code: Code,
    },
    /// This user may not.
    #[error("{tried}: the driver says NO_PERMISSION (4); needs {needs}")]
    Denied {
        /// What was tried, with its values.
        tried: String,
        /// What grants it.
        needs: &'static str,
    },
    /// The driver is too old to know the call.
    #[error("{tried}: this driver has no {function}{}", came_with(function))]
    Missing {
        /// What was tried.
        tried: String,
        /// The function's name.
        function: &'static str,
    },
    /// An instance stayed in use over all retries.
    #[error(
        "{tried}: still IN_USE (19) after {tries} tries in {seconds:.1} s; {}",
        held_by(holders)
    )]
    InUse {
        /// What was tried.
        tried: String,
        /// How often.
        tries: u32,
        /// Over which time.
        seconds: f64,
        /// Whom we could find.
        holders: Vec<Holder>,
    },
    /// What was made is not what was asked for; it has been removed again.
    #[error("{tried}: the driver made profile id {profile} at {start}+{size} instead, which was removed")]
    Mismatch {
        /// What was tried.
        tried: String,
        /// Profile id found.
        profile: u32,
        /// Start found.
        start: u32,
        /// Size found.
        size: u32,
    },
    /// The driver said success, and reading back disagrees.
    #[error("{tried}: the driver said success, but {found}")]
    Unconfirmed {
        /// What was tried.
        tried: String,
        /// What is there instead.
        found: String,
    },
    /// A destroy failed half-way: the compute instances are gone, so that nobody can run there, and the GPU
    /// instance still takes its room.
    #[error("{cause}; its compute instance is gone already, so GPU instance {gi} is of no use to anyone")]
    HalfGone {
        /// Id of the instance.
        gi: u32,
        /// Why the rest stays.
        cause: Box<NodeError>,
    },
    /// A create failed half-way and what it had made could not be removed.
    #[error("{cause}; GPU instance {gi} was left behind: {rollback}")]
    LeftBehind {
        /// Id of the instance.
        gi: u32,
        /// Why the create failed.
        cause: Box<NodeError>,
        /// Why removing failed.
        rollback: Box<NodeError>,
    },
}

/// What lets a user make and remove instances.
const CONFIG: &str = "root, or read access to /proc/driver/nvidia/capabilities/mig/config \
     (run the supervisor as a service, or give the user that file)";
/// What lets a user see the instances of others.
const MONITOR: &str = "root, or read access to /proc/driver/nvidia/capabilities/mig/monitor \
     (in a container: NVIDIA_MIG_MONITOR_DEVICES=all)";
/// What lets a user change the mode.
const MODE: &str = "root (CAP_SYS_ADMIN): no capability file grants a change of the MIG mode";

fn remedy(code: Code) -> &'static str {
    match code {
        Code::GPU_IS_LOST => "; the GPU needs a reset or a reboot",
        Code::RESET_REQUIRED => "; reset the GPU (`nvidia-smi --gpu-reset`) or reboot",
        _ => "",
    }
}

/// The branch that brought a call which nothing can take the place of.
fn came_with(function: &str) -> &'static str {
    match function {
        "nvmlDeviceCreateGpuInstanceWithPlacement" => ", which came with R460; update the driver",
        _ => "",
    }
}

fn held_by(holders: &[Holder]) -> String {
    if holders.is_empty() {
        return "no holder visible to this user (monitors such as DCGM hold instances too)".to_owned();
    }
    let names: Vec<String> = holders.iter().map(ToString::to_string).collect();
    names.join(", ")
}

impl NodeError {
    /// The driver's answer, if it is one.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Self::Nvml { code, .. } => Some(*code),
            Self::InUse { .. } => Some(Code::IN_USE),
            Self::Denied { .. } => Some(Code::NO_PERMISSION),
            Self::LeftBehind { cause, .. } | Self::HalfGone { cause, .. } => cause.code(),
            _ => None,
        }
    }

    /// No room, the place is taken or the count is used up: NVML does not tell these apart.
    #[must_use]
    pub fn is_insufficient(&self) -> bool {
        self.code() == Some(Code::INSUFFICIENT_RESOURCES)
    }

    /// Someone uses the instance.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.code() == Some(Code::IN_USE)
    }

    /// This user may not; the text names the capability.
    #[must_use]
    pub fn is_no_permission(&self) -> bool {
        self.code() == Some(Code::NO_PERMISSION)
    }

    /// Nothing that this process asks for will be changed: the user may not, or the driver has no such call.
    #[must_use]
    pub fn is_barred(&self) -> bool {
        self.is_no_permission() || matches!(self, Self::Missing { .. })
    }

    /// The GPU or its mode does not offer it.
    #[must_use]
    pub fn is_not_supported(&self) -> bool {
        self.code() == Some(Code::NOT_SUPPORTED) || matches!(self, Self::Missing { .. })
    }

    /// The driver will never take it: illegal profile or place.
    #[must_use]
    pub fn is_illegal(&self) -> bool {
        self.code() == Some(Code::INVALID_ARGUMENT)
    }

    /// The GPU does nothing more until it has been reset.
    #[must_use]
    pub fn needs_reset(&self) -> bool {
        self.code() == Some(Code::RESET_REQUIRED)
    }

    /// The GPU is gone.
    #[must_use]
    pub fn is_gpu_lost(&self) -> bool {
        self.code() == Some(Code::GPU_IS_LOST)
    }

    /// An answer other than success to a function of NVML. What a user lacks depends on the function.
    pub(super) fn answered(tried: String, code: Code, function: &'static str) -> Self {
        if code == Code::FUNCTION_NOT_FOUND {
            return Self::Missing { tried, function };
        }
        if code != Code::NO_PERMISSION {
            return Self::Nvml { tried, code };
        }
        let needs = if function.contains("SetMigMode") {
            MODE
        } else if function.contains("Create") || function.contains("Destroy") {
            CONFIG
        } else {
            MONITOR
        };
        Self::Denied { tried, needs }
    }

    pub(super) fn mismatch(tried: &str, profile: u32, found: Placement) -> Self {
        Self::Mismatch {
            tried: tried.to_owned(),
            profile,
            start: found.start,
            size: found.size,
        }
    }

    /// Files an error of the wrapper under the driver's own number: it has no variants for 23 to 30.
    pub(super) fn from_wrapper(tried: impl FnOnce() -> String, error: &NvmlError) -> Self {
        let number = match error {
            NvmlError::UnexpectedVariant(number) => *number,
            NvmlError::Uninitialized => 1,
            NvmlError::InvalidArg => 2,
            NvmlError::NotSupported => 3,
            NvmlError::NoPermission => 4,
            NvmlError::NotFound => 6,
            NvmlError::InsufficientSize(_) => 7,
            NvmlError::InsufficientPower => 8,
            NvmlError::DriverNotLoaded => 9,
            NvmlError::Timeout => 10,
            NvmlError::IrqIssue => 11,
            NvmlError::LibraryNotFound => 12,
            NvmlError::CorruptedInfoROM => 14,
            NvmlError::GpuLost => 15,
            NvmlError::ResetRequired => 16,
            NvmlError::OperatingSystem => 17,
            NvmlError::LibRmVersionMismatch => 18,
            NvmlError::InUse => 19,
            NvmlError::InsufficientMemory => 20,
            NvmlError::NoData => 21,
            NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => {
                return Self::Missing {
                    tried: tried(),
                    function: "such function",
                };
            }
            NvmlError::LibloadingError(error) => return Self::NoDriver(error.to_string()),
            _ => Code::UNKNOWN.0,
        };
        Self::answered(tried(), Code(number), "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_the_wrapper_does_not_know_keep_their_number() {
        let error = NodeError::from_wrapper(|| "creating 1g.5gb".into(), &NvmlError::UnexpectedVariant(23));
        assert!(error.is_insufficient());
        assert_eq!(
            error.to_string(),
            "creating 1g.5gb: the driver says INSUFFICIENT_RESOURCES (23)"
        );
    }

    #[test]
    fn no_permission_names_the_capability_that_is_missing() {
        let file = |function: &'static str| {
            let error = NodeError::answered("trying".into(), Code::NO_PERMISSION, function);
            assert!(error.is_no_permission());
            error.to_string()
        };
        for function in [
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            "nvmlGpuInstanceDestroy",
        ] {
            assert!(file(function).contains("/proc/driver/nvidia/capabilities/mig/config"));
        }
        assert!(file("nvmlDeviceGetGpuInstances").contains("/proc/driver/nvidia/capabilities/mig/monitor"));
        assert!(file("nvmlDeviceSetMigMode").contains("CAP_SYS_ADMIN"));
    }

    #[test]
    fn a_call_that_the_driver_lacks_is_missing_however_it_says_so() {
        let create = "nvmlDeviceCreateGpuInstanceWithPlacement";
        let told = NodeError::answered("creating 1g.5gb at 0".into(), Code::FUNCTION_NOT_FOUND, create);
        assert_eq!(
            told.to_string(),
            "creating 1g.5gb at 0: this driver has no nvmlDeviceCreateGpuInstanceWithPlacement, \
             which came with R460; update the driver"
        );
        let wrapped = NodeError::from_wrapper(|| "reading".into(), &NvmlError::FunctionNotFound);
        for error in [told, wrapped] {
            assert!(error.is_barred() && error.is_not_supported(), "{error:?}");
            assert!(matches!(error, NodeError::Missing { .. }), "{error:?}");
        }
    }

    #[test]
    fn in_use_names_the_holder() {
        let error = NodeError::InUse {
            tried: "removing GPU instance 7 on GPU 0".into(),
            tries: 8,
            seconds: 3.05,
            holders: vec![Holder {
                pid: 41,
                program: "dcgm-exporter".into(),
                holds: "/dev/nvidia0".into(),
            }],
        };
        assert!(error.is_in_use());
        assert_eq!(
            error.to_string(),
            "removing GPU instance 7 on GPU 0: still IN_USE (19) after 8 tries in 3.0 s; \
             pid 41 (dcgm-exporter) holds /dev/nvidia0"
        );
    }
}
