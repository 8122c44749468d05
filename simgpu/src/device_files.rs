//! Device files of a simulated GPU, for processes that hold one and are no CUDA processes: monitors, exporters and
//! plugins, the usual reason why a real driver says "in use" of a GPU on which nothing runs.
//!
//! What is `/dev/nvidia0` on a real machine is `migm-simgpu-<uid>-<id>.files/dev/nvidia0` beside the state, and
//! a capability is `…/dev/nvidia-caps/nvidia-cap30`, with the driver's minor numbers. Whoever has such a file open
//! and a shared lock on it (`flock`) holds what it stands for. The kernel takes the lock back when the process ends,
//! however it ends; until then its descriptor shows in `/proc/PID/fd`, where holders are looked for.
//!
//! A GPU that is held keeps its mode, cannot get its first GPU instance, and keeps those it has; a GPU instance that
//! is held keeps itself and its compute instances.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::files::{FileError, path_of};
use crate::machine::Machine;

/// What a device file stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeviceFile {
    /// A GPU, by index.
    Gpu(u32),
    /// A GPU instance: GPU and id.
    GpuInstance(u32, u32),
    /// A compute instance: GPU, GPU instance and id.
    ComputeInstance(u32, u32, u32),
}

/// Minor numbers of capabilities: one for `config`, one for `monitor`, then a block for each GPU.
mod minor {
    /// The first that is of an instance.
    pub(super) const FIRST: u32 = 3;
    /// Fifteen GPU instances with eight compute instances each.
    pub(super) const OF_GPU: u32 = 15 * OF_GPU_INSTANCE;
    pub(super) const OF_GPU_INSTANCE: u32 = 9;
}

impl DeviceFile {
    /// The file's minor number: of a GPU its index, else that of the capability.
    #[must_use]
    pub fn minor(self) -> u32 {
        let of_instance = |gpu, gi| minor::FIRST + minor::OF_GPU * gpu + minor::OF_GPU_INSTANCE * gi;
        match self {
            Self::Gpu(gpu) => gpu,
            Self::GpuInstance(gpu, gi) => of_instance(gpu, gi),
            Self::ComputeInstance(gpu, gi, ci) => of_instance(gpu, gi) + 1 + ci,
        }
    }

    /// Below the folder of the machine, or below `/`.
    fn below(self, root: &Path) -> PathBuf {
        match self {
            Self::Gpu(_) => root.join(format!("dev/nvidia{}", self.minor())),
            _ => root.join(format!("dev/nvidia-caps/nvidia-cap{}", self.minor())),
        }
    }
}

/// A device file held by this process, until it is dropped or the process ends. Children forked meanwhile hold it
/// too.
#[derive(Debug)]
pub struct Held {
    _file: Flock<File>,
}

/// The folder of device files that belongs to a state.
pub(crate) fn folder_of(state: &Path) -> PathBuf {
    state.with_extension("files")
}

impl Machine {
    /// Where the device file is, once somebody has held it.
    ///
    /// # Errors
    /// None for a machine that could be opened.
    pub fn device_file(&self, file: DeviceFile) -> Result<PathBuf, FileError> {
        Ok(file.below(&folder_of(&path_of(self.id())?)))
    }

    /// Holds a device file.
    ///
    /// # Errors
    /// The machine has been removed, or the system refused.
    pub fn hold(&self, file: DeviceFile) -> Result<Held, FileError> {
        let state = path_of(self.id())?;
        let path = self.device_file(file)?;
        let failed = |what, error| FileError::Io {
            what,
            path: path.clone(),
            error,
        };
        // Of a machine without a name nobody would take the folder away.
        fs::metadata(&state).map_err(|_| FileError::Missing {
            id: self.id().to_owned(),
            path: state.clone(),
        })?;
        if let Some(folder) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.map_err(|error| failed("create the folder of", error))?;
        }
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| failed("open", error))?;
        // Waits for nobody but an `is_held` at work.
        let locked = Flock::lock(opened, FlockArg::LockShared);
        let locked = locked.map_err(|(_, errno)| failed("lock", errno.into()))?;
        Ok(Held { _file: locked })
    }

    /// Whether any process holds it. Call it under the state's lock: two of these at once would take each other for
    /// holders.
    pub(crate) fn is_held(&self, file: DeviceFile) -> bool {
        let opened = self.device_file(file).ok().and_then(|path| File::open(path).ok());
        opened.is_some_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{DEFAULT_DRIVER, Plan, remove};
    use crate::mig::{Activation, Refusal};

    fn machine(gpus: &str, mig: bool) -> Machine {
        Machine::create(&Plan::parse(gpus, mig, 0.001, DEFAULT_DRIVER).unwrap()).unwrap()
    }

    #[test]
    fn minors_are_the_drivers() {
        assert_eq!(DeviceFile::ComputeInstance(31, 14, 7).minor(), 4322);
        assert_eq!(DeviceFile::GpuInstance(0, 0).minor(), 3);
        assert_eq!(
            DeviceFile::GpuInstance(0, 3).below(Path::new("/")),
            Path::new("/dev/nvidia-caps/nvidia-cap30")
        );
        assert_eq!(
            DeviceFile::Gpu(2).below(Path::new("/")),
            Path::new("/dev/nvidia2")
        );
    }

    #[test]
    fn a_held_gpu_gets_no_first_instance_and_keeps_its_mode() {
        let machine = machine("h100-80gb:2", true);
        let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
        let create = |gpu| machine.create_gpu_instance(gpu, 19, None);
        assert_eq!(create(0).unwrap_err(), Refusal::InUse);
        assert_eq!(machine.set_mig_mode(0, false), Ok(Activation::InUse));
        assert_eq!(machine.reset(0), Err(Refusal::InUse));
        assert!(create(1).is_ok(), "another GPU is none of its business");
        drop(held);
        assert!(create(0).is_ok());
        let _held = machine.hold(DeviceFile::Gpu(0)).unwrap();
        assert!(create(0).is_ok(), "only the first needs an idle GPU");
        remove(machine.id()).unwrap();
    }

    #[test]
    fn a_compute_instance_goes_from_a_held_gpu_and_its_gpu_instance_stays() {
        let machine = machine("a100-40gb", true);
        let reference = machine.create_gpu_instance(0, 9, None).unwrap().reference;
        let device = machine
            .create_compute_instance(reference, 2, None)
            .unwrap()
            .device;
        let held = machine.hold(DeviceFile::GpuInstance(0, reference.gi)).unwrap();
        assert_eq!(machine.destroy_compute_instance(device), Err(Refusal::InUse));
        drop(held);
        let held = machine.hold(DeviceFile::Gpu(0)).unwrap();
        assert_eq!(machine.destroy_compute_instance(device), Ok(()));
        assert_eq!(machine.destroy_gpu_instance(reference), Err(Refusal::InUse));
        drop(held);
        assert_eq!(machine.destroy_gpu_instance(reference), Ok(()));
        remove(machine.id()).unwrap();
    }

    #[test]
    fn the_files_go_with_the_machine() {
        let machine = machine("a100-40gb", true);
        let file = machine.device_file(DeviceFile::Gpu(0)).unwrap();
        let _held = machine.hold(DeviceFile::Gpu(0)).unwrap();
        assert!(file.ends_with("dev/nvidia0") && file.exists());
        remove(machine.id()).unwrap();
        assert!(!file.parent().unwrap().exists());
        assert!(matches!(
            machine.hold(DeviceFile::Gpu(0)),
            Err(FileError::Missing { .. })
        ));
    }
}
