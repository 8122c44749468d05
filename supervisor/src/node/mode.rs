//! The MIG mode of a GPU: what it is, what a change of it came to, and what can be done.
//!
//! NVML answers a change twice: the *return* is about the request, the *activation status* about its coming
//! into force. Both are looked at, and the mode is read back: only that is told. A change that the driver
//! took and could not put into force stays pending, and would come with the next reset, weeks later; where
//! somebody holds the GPU it is taken back, so that a refusal leaves everything as it was.

use super::Holder;

/// Whether a GPU is cut into instances.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MigMode {
    /// The model or the driver has no MIG.
    Absent,
    /// Off.
    Off,
    /// On.
    On,
    /// Asked for and not yet so: a reset is due. Holds the current mode.
    Pending {
        /// On until the reset.
        current: bool,
    },
}

impl MigMode {
    /// Whether instances can be made.
    #[must_use]
    pub const fn is_on(self) -> bool {
        matches!(self, Self::On | Self::Pending { current: true })
    }

    /// The word that `migm status` shows.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::On => "mig",
            Self::Absent | Self::Off => "whole",
            Self::Pending { .. } => "mig-pending",
        }
    }

    /// The mode now, in a word.
    #[must_use]
    pub const fn now(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::On | Self::Pending { current: true } => "on",
            Self::Off | Self::Pending { current: false } => "off",
        }
    }

    /// The mode after the next reset, in a word.
    #[must_use]
    pub const fn pending(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::On | Self::Pending { current: false } => "on",
            Self::Off | Self::Pending { current: true } => "off",
        }
    }

    /// What is to be done where the mode hinders, for people.
    #[must_use]
    pub fn remedy(self, gpu: u32, on: Virtual) -> Option<String> {
        match (self, on) {
            (Self::On, _) => None,
            (Self::Absent, Virtual::Vgpu) => Some(
                "a vGPU guest cannot cut its GPU: have the host give it a larger or a MIG-backed vGPU"
                    .to_owned(),
            ),
            (Self::Absent, _) => Some("no MIG on this GPU or driver: its slices are memory caps".to_owned()),
            (Self::Off, _) => Some(format!("`migm node enable-mig --device {gpu}` turns MIG on")),
            (Self::Pending { .. }, on) => Some(format!(
                "MIG is {} now and {} after a reset: {}",
                self.now(),
                self.pending(),
                Needs::of(on).remedy(gpu)
            )),
        }
    }
}

/// Whether a GPU is one of a virtual machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Virtual {
    /// No, or the driver does not say.
    No,
    /// Passed through whole: it cannot be reset from inside.
    Passthrough,
    /// A share of a GPU; the host cuts it.
    Vgpu,
}

/// What brings a pending mode into force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// A reset of this GPU.
    Reset,
    /// A reboot of the virtual machine.
    VmReboot,
}

impl Needs {
    /// By where the GPU is.
    #[must_use]
    pub const fn of(on: Virtual) -> Self {
        match on {
            Virtual::No => Self::Reset,
            Virtual::Passthrough | Virtual::Vgpu => Self::VmReboot,
        }
    }

    /// In words, for people.
    #[must_use]
    pub fn remedy(self, gpu: u32) -> String {
        match self {
            Self::Reset => {
                format!("stop what uses it and reset this GPU (`nvidia-smi --gpu-reset -i {gpu}`), or reboot")
            }
            Self::VmReboot => "reboot the virtual machine; a GPU cannot be reset from inside it".to_owned(),
        }
    }
}

/// What came of a change of the mode, as read back.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ModeChange {
    /// It was so already, and nothing was asked.
    Already,
    /// In force.
    Done,
    /// Taken, and in force after this.
    Pending(Needs),
    /// Somebody uses the GPU, and kept doing so over all tries; the mode is as it was.
    InUse(Vec<Holder>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_mode_says_what_it_is_what_it_will_be_and_what_brings_it() {
        let pending = MigMode::Pending { current: false };
        assert_eq!((pending.now(), pending.pending()), ("off", "on"));
        let said = pending.remedy(3, Virtual::No).unwrap();
        assert!(
            said.starts_with("MIG is off now and on after a reset: ") && said.contains("-i 3"),
            "{said}"
        );
        let said = pending.remedy(3, Virtual::Passthrough).unwrap();
        assert!(
            said.contains("reboot the virtual machine") && !said.contains("nvidia-smi"),
            "{said}"
        );
    }

    #[test]
    fn a_vgpu_guest_is_not_told_to_turn_on_what_only_the_host_can() {
        let said = MigMode::Absent.remedy(0, Virtual::Vgpu).unwrap();
        assert!(said.contains("host") && !said.contains("enable-mig"), "{said}");
    }
}
