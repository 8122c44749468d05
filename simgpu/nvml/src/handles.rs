//! Handles: numbers that say what they mean, so that any number that C passes can be looked at.
//!
//! A MIG device's handle names a place (GPU instance, compute instance) and so may later stand for another device
//! in the same place, as nvml.h warns. Handles of instances name one life of the instance and die with it.

use simgpu::mig::{ComputeInstanceInfo, GpuInstanceRef};
use simgpu::{DeviceRef, Machine, SliceRef};

use crate::code::Code;

const GPU: usize = 0xd0;
const MIG: usize = 0xd1;
const GPU_INSTANCE: usize = 0x61;
const COMPUTE_INSTANCE: usize = 0xc1;

/// Kind, GPU, GPU instance, compute instance, life.
const fn number(kind: usize, gpu: u32, gi: u32, ci: u32, serial: u32) -> usize {
    kind << 56
        | (gpu as usize & 0xff) << 48
        | (gi as usize & 0xff) << 40
        | (ci as usize & 0xff) << 32
        | serial as usize
}

#[expect(clippy::cast_possible_truncation, reason = "cut to the field's bits")]
const fn field(number: usize, shift: u32, mask: usize) -> u32 {
    (number >> shift & mask) as u32
}

/// `nvmlDevice_t`: a GPU or a MIG device.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Device(usize);

/// `nvmlGpuInstance_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct GpuInstance(usize);

/// `nvmlComputeInstance_t`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct ComputeInstance(usize);

/// What a device handle stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    /// A GPU.
    Gpu(u32),
    /// A MIG device.
    Mig(ComputeInstanceInfo),
}

impl Device {
    pub(crate) const fn gpu(index: u32) -> Self {
        Self(number(GPU, index, 0, 0, 0))
    }

    pub(crate) fn mig(info: &ComputeInstanceInfo) -> Self {
        let (gi, ci) = info.device.slice.map_or((0, 0), |slice| (slice.gi, slice.ci));
        Self(number(MIG, info.device.gpu, gi, ci, 0))
    }

    pub(crate) const fn raw(self) -> usize {
        self.0
    }

    /// What it stands for at this moment.
    pub(crate) fn target(self, machine: &Machine) -> Result<Target, Code> {
        let gpu = field(self.0, 48, 0xff);
        if gpu >= machine.gpu_count() {
            return Err(Code::InvalidArgument);
        }
        if machine.is_lost(gpu) {
            return Err(Code::GpuIsLost);
        }
        match self.0 >> 56 {
            GPU if self.0 == Self::gpu(gpu).0 => Ok(Target::Gpu(gpu)),
            MIG => {
                let here = |info: &ComputeInstanceInfo| Self::mig(info).0 == self.0;
                let found = machine.mig_devices(gpu).into_iter().flatten().find(here);
                found.map(Target::Mig).ok_or(Code::InvalidArgument)
            }
            _ => Err(Code::InvalidArgument),
        }
    }

    /// The GPU, for calls that only a whole GPU answers.
    pub(crate) fn whole(self, machine: &Machine) -> Result<u32, Code> {
        match self.target(machine)? {
            Target::Gpu(gpu) => Ok(gpu),
            Target::Mig(_) => Err(Code::NotSupported),
        }
    }

    /// The MIG device, for calls that only such a one answers.
    pub(crate) fn slice(self, machine: &Machine) -> Result<ComputeInstanceInfo, Code> {
        match self.target(machine)? {
            Target::Mig(info) => Ok(info),
            Target::Gpu(_) => Err(Code::NotSupported),
        }
    }

    /// The GPU, for calls of instance management.
    pub(crate) fn parent(self, machine: &Machine) -> Result<u32, Code> {
        match self.target(machine)? {
            Target::Gpu(gpu) => Ok(gpu),
            Target::Mig(_) => Err(Code::InvalidArgument),
        }
    }
}

impl Target {
    pub(crate) fn gpu(self) -> u32 {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Mig(info) => info.device.gpu,
        }
    }

    pub(crate) fn device(self) -> DeviceRef {
        match self {
            Self::Gpu(gpu) => DeviceRef { gpu, slice: None },
            Self::Mig(info) => info.device,
        }
    }
}

impl GpuInstance {
    pub(crate) const fn of(reference: GpuInstanceRef) -> Self {
        Self(number(
            GPU_INSTANCE,
            reference.gpu,
            reference.gi,
            0,
            reference.serial,
        ))
    }

    pub(crate) const fn raw(self) -> usize {
        self.0
    }

    pub(crate) fn reference(self) -> Result<GpuInstanceRef, Code> {
        let (gpu, gi, serial) = (
            field(self.0, 48, 0xff),
            field(self.0, 40, 0xff),
            field(self.0, 0, 0xffff_ffff),
        );
        let reference = GpuInstanceRef { gpu, gi, serial };
        if Self::of(reference).0 == self.0 {
            Ok(reference)
        } else {
            Err(Code::InvalidArgument)
        }
    }
}

impl ComputeInstance {
    pub(crate) fn of(device: DeviceRef) -> Self {
        let SliceRef { gi, ci, serial } = device.slice.unwrap_or(SliceRef {
            gi: 0xff,
            ci: 0xff,
            serial: 0,
        });
        Self(number(COMPUTE_INSTANCE, device.gpu, gi, ci, serial))
    }

    pub(crate) fn device(self) -> Result<DeviceRef, Code> {
        let (gi, ci, serial) = (
            field(self.0, 40, 0xff),
            field(self.0, 32, 0xff),
            field(self.0, 0, 0xffff_ffff),
        );
        let device = DeviceRef {
            gpu: field(self.0, 48, 0xff),
            slice: Some(SliceRef { gi, ci, serial }),
        };
        if Self::of(device).0 == self.0 {
            Ok(device)
        } else {
            Err(Code::InvalidArgument)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_comes_back_and_any_other_number_is_refused() {
        let reference = GpuInstanceRef {
            gpu: 63,
            gi: 14,
            serial: u32::MAX,
        };
        assert_eq!(GpuInstance::of(reference).reference(), Ok(reference));
        let device = DeviceRef {
            gpu: 3,
            slice: Some(SliceRef {
                gi: 7,
                ci: 2,
                serial: 9,
            }),
        };
        assert_eq!(ComputeInstance::of(device).device(), Ok(device));
        for number in [0, 1, usize::MAX, Device::gpu(0).raw()] {
            assert_eq!(GpuInstance(number).reference(), Err(Code::InvalidArgument));
            assert_eq!(ComputeInstance(number).device(), Err(Code::InvalidArgument));
        }
    }
}
