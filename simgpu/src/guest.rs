//! A simulated machine that is a guest: a virtual machine with whole GPUs of its host, or with shares of them.
//!
//! With a whole GPU a change of MIG mode waits for a reboot of the guest ([`Machine::reload`]), whatever the architecture, and the GPU
//! cannot be reset from inside. With a share (vGPU) the host alone changes the mode and makes GPU instances.

use crate::machine::Machine;
use crate::state::State;

/// What kind of guest a machine is. The numbers are `NVML_GPU_VIRTUALIZATION_MODE_*`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u32)]
pub enum Guest {
    /// None.
    #[default]
    No = 0,
    /// It has whole GPUs.
    Passthrough = 1,
    /// It has shares.
    Vgpu = 2,
}

/// Text that names no kind of guest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("SIMGPU_GUEST: `{0}` is none of no, passthrough, vgpu")]
pub struct GuestError(String);

impl std::str::FromStr for Guest {
    type Err = GuestError;

    fn from_str(text: &str) -> Result<Self, GuestError> {
        match text {
            "" | "no" => Ok(Self::No),
            "passthrough" => Ok(Self::Passthrough),
            "vgpu" => Ok(Self::Vgpu),
            _ => Err(GuestError(text.to_owned())),
        }
    }
}

impl State {
    pub(crate) fn guest(&self) -> Guest {
        match self.guest.get() {
            1 => Guest::Passthrough,
            2 => Guest::Vgpu,
            _ => Guest::No,
        }
    }
}

impl Machine {
    /// What kind of guest the machine is.
    #[must_use]
    pub fn guest(&self) -> Guest {
        self.mapping().guest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{DEFAULT_DRIVER, Plan, remove};
    use crate::mig::{Activation, Refusal};

    fn machine(guest: Guest, mig: bool) -> Machine {
        let plan = Plan::parse("h100-80gb", mig, 0.001, DEFAULT_DRIVER).unwrap();
        let machine = Machine::create(&plan.as_guest(guest)).unwrap();
        remove(machine.id()).unwrap();
        machine
    }

    #[test]
    fn a_whole_gpu_changes_its_mode_with_a_reboot_of_the_guest() {
        let machine = machine(Guest::Passthrough, false);
        assert_eq!(machine.set_mig_mode(0, true), Ok(Activation::ResetRequired));
        assert_eq!(machine.reset(0), Err(Refusal::NotSupported));
        assert_eq!(machine.mig_mode(0), Ok((false, true)));
        machine.reload().unwrap();
        assert_eq!(machine.mig_mode(0), Ok((true, true)));
        assert!(machine.create_gpu_instance(0, 19, None).is_ok());
    }

    #[test]
    fn a_share_is_not_cut_from_inside() {
        let machine = machine(Guest::Vgpu, true);
        assert_eq!(machine.set_mig_mode(0, false), Err(Refusal::NotSupported));
        assert_eq!(
            machine.create_gpu_instance(0, 19, None).unwrap_err(),
            Refusal::NotSupported
        );
    }

    #[test]
    fn another_kind_is_refused_by_name() {
        let line = "x".parse::<Guest>().unwrap_err().to_string();
        assert_eq!(line, "SIMGPU_GUEST: `x` is none of no, passthrough, vgpu");
    }
}
