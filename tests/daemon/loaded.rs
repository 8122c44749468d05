//! A machine whose GPU is there before any supervisor.

use std::sync::MutexGuard;

use migm_supervisor::node::sim::{self, SimulatedGpu};
use migm_supervisor::node::{Instance, Node, Nvml};

use crate::daemon::{Daemon, slot, turn};
use crate::peer::GPU;

/// A GPU that is there before any supervisor.
pub struct Loaded {
    links: tempfile::TempDir,
    gpu: SimulatedGpu,
    pub node: Nvml,
    _turn: MutexGuard<'static, ()>,
}

impl Loaded {
    pub fn new(mig: bool) -> Self {
        let turn = turn();
        let links = Daemon::folder();
        sim::objects().unwrap().link(links.path(), true).unwrap();
        let gpu = SimulatedGpu::create(links.path(), GPU, mig, 0.05).unwrap();
        let node = gpu.node().unwrap();
        Self {
            links,
            gpu,
            node,
            _turn: turn,
        }
    }

    /// A supervisor that meets this GPU as on a real machine: by the loader, and not its own.
    pub fn daemon(&self, environment: &[(&str, &str)], config: &str) -> Daemon {
        let links = self.links.path().display().to_string();
        let own = [("LD_LIBRARY_PATH", links.as_str()), ("SIMGPU_ID", self.gpu.id())];
        Daemon::configured(&[&own, environment].concat(), config)
    }

    /// An instance that somebody else made.
    pub fn instance(&self, profile: &str, start: u32) -> Instance {
        let (kind, place) = slot(&self.node, 0, profile, start);
        self.node.create(0, &kind, place).unwrap()
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.gpu.remove();
    }
}
